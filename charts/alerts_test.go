// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"

	componenttest "github.com/gardener/gardener/pkg/component/test"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
)

var _ = Describe("Alerts of the seed", func() {
	const tests = "testdata/gardener-extension-machine-preservation.prometheusrule.test.yaml"

	var rule *monitoringv1.PrometheusRule

	BeforeEach(func() { rule = one[*monitoringv1.PrometheusRule](render(charts.Extension, nil)) })

	It("should be found by the Prometheus of the seed", func() {
		Expect(rule.Labels).To(HaveKeyWithValue("prometheus", "seed"))
	})

	It("should alert when they should, and only then", func() {
		// The first build takes minutes; from then on, Go keeps it. The tag leaves out what discovers targets in clouds.
		command := exec.Command("go", "tool", "-modfile=../hack/tools/promtool/go.mod", "-n", "promtool")
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=remove_all_sd")
		command.Stderr = GinkgoWriter
		path, err := command.Output()
		Expect(err).NotTo(HaveOccurred())
		GinkgoT().Setenv("PATH", filepath.Dir(string(path))+string(os.PathListSeparator)+os.Getenv("PATH"))

		componenttest.PrometheusRule(rule, tests)
	})

	It("should have an entry in the runbook each, and a test", func() {
		Expect(rule.Spec.Groups[0].Rules).NotTo(BeEmpty())
		for _, rule := range rule.Spec.Groups[0].Rules {
			Expect(read("../docs/operations/troubleshooting.md")).To(ContainSubstring("\n### " + rule.Alert + "\n"))
			Expect(read(tests)).To(ContainSubstring("alertname: " + rule.Alert + "\n"))
		}
	})
})
