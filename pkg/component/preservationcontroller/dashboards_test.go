// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	componenttest "github.com/gardener/gardener/pkg/component/test"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	_ "sigs.k8s.io/controller-runtime/pkg/webhook/admission" // its metrics
	"sigs.k8s.io/yaml"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

var _ = Describe("Dashboards", func() {
	const (
		namespace = "shoot--foo--bar"
		root      = "../../.."
	)

	for file, datasources := range map[string][]string{
		"dashboards/machine-preservation.json": {"prometheus"},
		root + "/charts/gardener-extension-machine-preservation/dashboards/machine-preservation-seed.json": {"prometheus-aggregate", "prometheus-seed"},
	} {
		Describe(filepath.Base(file), func() {
			var found dashboard

			BeforeEach(func() {
				content, err := os.ReadFile(file)
				Expect(err).NotTo(HaveOccurred())
				found = readDashboard(string(content))
			})

			It("should be one that Gardener's own check lets pass, with data sources that Plutono has", func() {
				Expect(found.Title).NotTo(BeEmpty())
				Expect(found.UID).NotTo(BeEmpty())
				Expect(len(found.UID)).To(BeNumerically("<=", 40))
				for _, panel := range found.Panels {
					Expect(datasources).To(ContainElement(panel.Datasource), panel.Title)
					Expect(panel.Description).NotTo(BeEmpty(), panel.Title)
				}
			})

			// Each series that the components serve is there, with each label that they give it, and no other.
			It("should only ask for what the components serve and the rules record", func() {
				c := fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).Build()
				Expect(New(c, namespace, Values{}).Deploy(GinkgoT().Context())).To(Succeed())
				rule := &monitoringv1.PrometheusRule{}
				Expect(c.Get(GinkgoT().Context(), client.ObjectKey{Namespace: namespace, Name: "shoot-machine-preservation-controller"}, rule)).To(Succeed())

				rules, err := filepath.Abs("testdata/shoot-machine-preservation-controller.prometheusrule.yaml")
				Expect(err).NotTo(HaveOccurred())
				test := map[string]any{
					"rule_files":          []string{rules},
					"evaluation_interval": "1m",
					"tests": []any{map[string]any{
						"interval":         "1m",
						"input_series":     served(),
						"promql_expr_test": found.expectResults("90m"),
					}},
				}
				content, err := yaml.Marshal(test)
				Expect(err).NotTo(HaveOccurred())
				path := filepath.Join(GinkgoT().TempDir(), "test.yaml")
				Expect(os.WriteFile(path, content, 0o600)).To(Succeed())

				usePromtool(root)
				componenttest.PrometheusRule(rule, path)
			})
		})
	}
})

// dashboard is what Plutono reads.
type dashboard struct {
	Title, UID string
	Panels     []struct {
		Title, Description, Datasource string
		Targets                        []struct{ Expr string }
	}
	queries []string
}

func readDashboard(content string) dashboard {
	GinkgoHelper()
	var found dashboard
	Expect(json.Unmarshal([]byte(content), &found)).To(Succeed())
	for _, panel := range found.Panels {
		Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
		for _, target := range panel.Targets {
			found.queries = append(found.queries, target.Expr)
		}
	}
	return found
}

// expectResults has promtool expect that each query finds something, without what it shows in the place of nothing.
func (d dashboard) expectResults(at string) []any {
	variables := strings.NewReplacer("$pool", ".*", "$cluster", ".*", "$__range", "1h", "$__rate_interval", "5m", " or vector(0)", "")
	var expected []any
	for _, query := range d.queries {
		expected = append(expected, map[string]any{
			"expr":        "count(" + variables.Replace(query) + ") > bool 0",
			"eval_time":   at,
			"exp_samples": []any{map[string]any{"labels": "{}", "value": 1}},
		})
	}
	return expected
}

// served returns series of all metrics that the sidecar and the extension serve, and that their Prometheus keeps.
func served() []any {
	GinkgoHelper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		ctrlmetrics.Registry.(prometheus.Collector).Describe(descriptions)
	}()

	// Labels that queries match by value.
	values := map[string][]string{
		"reason": {"DrainBlocked", "Drained"},
		"state":  {"used", "free"},
		"le":     {"0", "30", "+Inf"},
	}
	var series []any
	for description := range descriptions {
		matches := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(description.String())
		name, labels := matches[1], []string{}
		if matches[2] != "" {
			labels = strings.Split(matches[2], ",")
		}
		job := "gardener-extension-machine-preservation"
		if strings.HasPrefix(name, "machine_preservation_") {
			job = "machine-preservation-controller"
		}
		if strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_timestamp_seconds") {
			name, labels = name+"_bucket", append(labels, "le")
		}
		selectors := []string{fmt.Sprintf("job=%q", job)}
		for _, label := range labels {
			choices := values[label]
			if choices == nil {
				choices = []string{"any"}
			}
			var longer []string
			for _, selector := range selectors {
				for _, choice := range choices {
					longer = append(longer, fmt.Sprintf("%s, %s=%q", selector, label, choice))
				}
			}
			selectors = longer
		}
		samples := "0+1x120"
		if name == "machine_preservation_shoot_synced" {
			samples = "0x120"
		}
		for _, selector := range selectors {
			series = append(series, map[string]any{"series": name + "{" + selector + "}", "values": samples})
		}
	}
	Expect(series).NotTo(BeEmpty())
	return series
}
