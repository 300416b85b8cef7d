// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/component/observability/monitoring/prometheus/aggregate"
	componenttest "github.com/gardener/gardener/pkg/component/test"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failuredrain"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failures"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	_ "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
)

var _ = Describe("Monitoring", func() {
	const (
		namespace = "shoot--foo--bar"
		root      = "../../.."
	)

	var (
		ctx            = context.Background()
		c              client.Client
		service        = &corev1.Service{}
		serviceMonitor = &monitoringv1.ServiceMonitor{}
		prometheusRule = &monitoringv1.PrometheusRule{}
	)

	BeforeEach(func() {
		c = fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).Build()
		Expect(New(c, namespace, Values{}).Deploy(ctx)).To(Succeed())
		for name, object := range map[string]client.Object{
			"machine-preservation-controller":       service,
			"shoot-machine-preservation-controller": serviceMonitor,
		} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
		}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-machine-preservation-controller"}, prometheusRule)).To(Succeed())
	})

	It("should have the shoot's Prometheus scrape the pods of machine-controller-manager, beside Gardener's own Service", func() {
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "generic-token-kubeconfig", Namespace: namespace}})).To(Succeed())
		gardenlet := machinecontrollermanager.New(c, namespace, fakesecretsmanager.New(c, namespace), machinecontrollermanager.Values{})
		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		deployment := &appsv1.Deployment{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		theirs := &monitoringv1.ServiceMonitor{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-machine-controller-manager"}, theirs)).To(Succeed())

		Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
		Expect(service.Spec.ClusterIP).To(Equal("None"))
		Expect(service.Spec.Ports).To(HaveLen(1))
		Expect(service.Spec.Ports[0].Port).To(Equal(Container(ContainerValues{}).Ports[0].ContainerPort))
		Expect(service.Annotations).To(HaveKeyWithValue("networking.resources.gardener.cloud/from-all-scrape-targets-allowed-ports", `[{"protocol":"TCP","port":10260}]`))

		Expect(serviceMonitor.Labels).To(Equal(map[string]string{"prometheus": "shoot"}))
		Expect(serviceMonitor.Spec.Endpoints).To(HaveLen(1))
		Expect(serviceMonitor.Spec.Endpoints[0].Port).To(Equal(service.Spec.Ports[0].Name))
		for monitor, match := range map[*monitoringv1.ServiceMonitor]bool{serviceMonitor: true, theirs: false} {
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			Expect(err).NotTo(HaveOccurred())
			Expect(selector.Matches(labels.Set(service.Labels))).To(Equal(match), monitor.Name)
		}
	})

	It("P14: should let the shoot's Prometheus take no more samples than a very large shoot has", func() {
		Expect(serviceMonitor.Spec.SampleLimit).To(HaveValue(Equal(int64(50000))))
	})

	It("should keep all metrics that the container serves of its own", func() {
		keep := regexp.MustCompile(serviceMonitor.Spec.Endpoints[0].MetricRelabelConfigs[0].Regex)

		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			ctrlmetrics.Registry.(prometheus.Collector).Describe(descriptions)
		}()
		var own int
		for description := range descriptions {
			name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(description.String())[1]
			if !strings.HasPrefix(name, "machine_preservation_") {
				continue
			}
			own++
			if strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_timestamp_seconds") {
				name += "_bucket"
			}
			Expect(keep.MatchString(name)).To(BeTrue(), name)
		}
		Expect(own).To(Equal(30))
		Expect(keep.MatchString("controller_runtime_reconcile_errors_total")).To(BeTrue(), "an alert needs it")
		Expect(keep.MatchString("go_goroutines")).To(BeFalse())
	})

	It("should alert and record when it should, and only then", func() {
		usePromtool(root)
		componenttest.PrometheusRule(prometheusRule, "testdata/shoot-machine-preservation-controller.prometheusrule.test.yaml")
	})

	It("should have an entry for each alert in the runbook, and a test", func() {
		runbook, err := os.ReadFile(filepath.Join(root, "docs/operations/troubleshooting.md"))
		Expect(err).NotTo(HaveOccurred())
		tests, err := os.ReadFile("testdata/shoot-machine-preservation-controller.prometheusrule.test.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(prometheusRule.Spec.Groups).To(HaveLen(2))
		rules := prometheusRule.Spec.Groups[0].Rules
		Expect(rules).NotTo(BeEmpty())
		for _, rule := range rules {
			Expect(string(runbook)).To(ContainSubstring("\n### " + rule.Alert + "\n"))
			Expect(string(tests)).To(ContainSubstring("alertname: " + rule.Alert + "\n"))
			Expect(rule.Annotations["runbook_url"]).To(HaveSuffix("/docs/operations/troubleshooting.md#" + strings.ToLower(rule.Alert)))
		}
	})

	It("should record what the aggregate Prometheus takes, with few series for a shoot, and a test each", func() {
		tests, err := os.ReadFile("testdata/shoot-machine-preservation-controller.prometheusrule.test.yaml")
		Expect(err).NotTo(HaveOccurred())
		federated := regexp.MustCompile(`__name__=~"([^"]+)"`).FindStringSubmatch(
			aggregate.CentralServiceMonitors()[0].Spec.Endpoints[0].Params["match[]"][1])[1]
		rules := prometheusRule.Spec.Groups[1].Rules
		Expect(rules).NotTo(BeEmpty())
		for _, rule := range rules {
			Expect(rule.Record).To(MatchRegexp("^" + federated + "$"))
			Expect(rule.Expr.StrVal).NotTo(MatchRegexp(`by \([^)]*(pool|zone|machine)`))
			Expect(string(tests)).To(ContainSubstring("expr: " + rule.Record + "\n"))
		}
	})

	It("should bring a dashboard to the Plutono of the shoot", func() {
		configMap := &corev1.ConfigMap{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-preservation-controller-dashboards"}, configMap)).To(Succeed())
		Expect(configMap.Labels).To(Equal(map[string]string{"dashboard.monitoring.gardener.cloud/shoot": "true"}))
		Expect(configMap.Data).To(HaveLen(1))
		Expect(readDashboard(configMap.Data["machine-preservation.json"]).queries).NotTo(BeEmpty())
	})
})

// usePromtool puts promtool into the path. Its first build takes minutes; from then on, Go keeps it. The tag leaves out
// what discovers targets in clouds.
func usePromtool(root string) {
	GinkgoHelper()
	command := exec.Command("go", "tool", "-modfile="+filepath.Join(root, "hack/tools/promtool/go.mod"), "-n", "promtool")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=remove_all_sd")
	command.Stderr = GinkgoWriter
	path, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	GinkgoT().Setenv("PATH", filepath.Dir(string(path))+string(os.PathListSeparator)+os.Getenv("PATH"))
}
