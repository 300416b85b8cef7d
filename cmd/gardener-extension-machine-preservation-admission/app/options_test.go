// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
)

var _ = Describe("Options", func() {
	// kubeconfig returns a file that leads to the given host.
	kubeconfig := func(host string) string {
		GinkgoHelper()
		config := clientcmdapi.NewConfig()
		config.Clusters["test"] = &clientcmdapi.Cluster{Server: host}
		config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
		config.CurrentContext = "test"
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
		return path
	}

	DescribeTable("clusters",
		func(arguments []string, environment map[string]string, expectedGarden, expectedRuntime string) {
			for i, argument := range arguments {
				flag, host, _ := strings.Cut(argument, "=")
				arguments[i] = flag + "=" + kubeconfig(host)
			}
			for _, name := range []string{"GARDEN_KUBECONFIG", "KUBECONFIG"} {
				path := ""
				if host := environment[name]; host != "" {
					path = kubeconfig(host)
				}
				GinkgoT().Setenv(name, path)
			}

			garden, runtime, err := Hosts(arguments...)
			Expect(err).NotTo(HaveOccurred())
			Expect(garden).To(Equal(expectedGarden))
			Expect(runtime).To(Equal(expectedRuntime))
		},
		Entry("flags", []string{"--kubeconfig=https://a", "--runtime-kubeconfig=https://b"}, nil, "https://a", "https://b"),
		Entry("flags before the environment", []string{"--kubeconfig=https://a", "--runtime-kubeconfig=https://b"},
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://a", "https://b"),
		Entry("the garden that Gardener names", []string{"--runtime-kubeconfig=https://b"},
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://c", "https://b"),
		Entry("the garden is not the runtime cluster", nil,
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://c", "https://d"),
		Entry("a garden that is not split", nil, map[string]string{"KUBECONFIG": "https://d"}, "https://d", "https://d"),
	)

	It("should fail without the file", func() {
		_, _, err := Hosts("--kubeconfig=missing")
		Expect(err).To(MatchError(os.ErrNotExist))
	})

	DescribeTable("limits",
		func(expected configv1alpha1.ControllerConfiguration, message string, arguments ...string) {
			limits, err := Limits(arguments...)
			if message != "" {
				Expect(err).To(MatchError(message))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(limits).To(Equal(&expected))
		},
		Entry("those of an extension that is not configured", configv1alpha1.ControllerConfiguration{MaxMachinePreserveTimeout: &metav1.Duration{Duration: 336 * time.Hour}}, ""),
		Entry("both", configv1alpha1.ControllerConfiguration{
			MaxAutoPreserveFailed:     new(int32(0)),
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: time.Hour},
		}, "", "--max-auto-preserve-failed=0", "--max-machine-preserve-timeout=1h"),
		Entry("hosts", configv1alpha1.ControllerConfiguration{
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 336 * time.Hour},
			Hosts:                     &configv1alpha1.Hosts{Automatic: true},
		}, "", "--hosts", "--hosts-automatic"),
		Entry("evidence", configv1alpha1.ControllerConfiguration{
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 336 * time.Hour},
			Evidence:                  evidenceFor(720 * time.Hour),
		}, "", "--evidence"),
		Entry("evidence for a time", configv1alpha1.ControllerConfiguration{
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 336 * time.Hour},
			Evidence:                  evidenceFor(200 * time.Hour),
		}, "", "--evidence", "--evidence-max-retention=200h"),
		Entry("evidence for no time", configv1alpha1.ControllerConfiguration{}, `evidence.maxRetention: Invalid value: "0s": must be between 1h0m0s and 720h0m0s`, "--evidence", "--evidence-max-retention=0s"),
		Entry("no number", configv1alpha1.ControllerConfiguration{}, "maxAutoPreserveFailed: Invalid value: -2: must not be negative", "--max-auto-preserve-failed=-2"),
		Entry("no time", configv1alpha1.ControllerConfiguration{}, `maxMachinePreserveTimeout: Invalid value: "0s": must be at least 10s`, "--max-machine-preserve-timeout=0"),
	)
})

func evidenceFor(retention time.Duration) *configv1alpha1.Evidence {
	evidence := &configv1alpha1.Evidence{Enabled: true, MaxRetention: &metav1.Duration{Duration: retention}}
	configv1alpha1.SetDefaults_Evidence(evidence)
	return evidence
}
