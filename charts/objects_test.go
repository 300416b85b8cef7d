// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"strings"
	"time"

	fluentbitv1alpha2 "github.com/fluent/fluent-operator/v3/apis/fluentbit/v1alpha2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	admissionapp "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
	extensionapp "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1/validation"
)

var _ = Describe("Objects", func() {
	for _, component := range []struct {
		chart         charts.Chart
		name          string
		priorityClass string
		networkLabels map[string]string
		command       func() *cobra.Command
	}{
		{
			chart:         charts.Extension,
			name:          "gardener-extension-" + extensionapp.Name,
			priorityClass: "gardener-system-900",
			networkLabels: map[string]string{
				"networking.gardener.cloud/to-dns":                                         "allowed",
				"networking.gardener.cloud/to-runtime-apiserver":                           "allowed",
				"networking.resources.gardener.cloud/to-all-shoots-kube-apiserver-tcp-443": "allowed",
			},
			command: extensionapp.NewCommand,
		},
		{
			chart:         charts.AdmissionRuntime,
			name:          "gardener-extension-" + admissionapp.Name,
			priorityClass: "gardener-garden-system-400",
			networkLabels: map[string]string{
				"networking.gardener.cloud/to-dns":                                             "allowed",
				"networking.gardener.cloud/to-runtime-apiserver":                               "allowed",
				"networking.resources.gardener.cloud/to-virtual-garden-kube-apiserver-tcp-443": "allowed",
			},
			command: admissionapp.NewCommand,
		},
	} {
		Describe(string(component.chart), func() {
			DescribeTable("should start the process with flags that it has",
				func(values map[string]any) {
					container := container(render(component.chart, values))
					Expect(container.Command).To(BeEmpty())
					Expect(component.command().ParseFlags(container.Args)).To(Succeed())
				},
				Entry("by default", nil),
				Entry("with everything set", everything(component.chart)),
			)

			It("should be highly available where Gardener takes care of it", func() {
				objects := render(component.chart, nil)
				deployment := one[*appsv1.Deployment](objects)
				Expect(deployment.Labels).To(HaveKeyWithValue("high-availability-config.resources.gardener.cloud/type", "server"))
				Expect(deployment.Spec.RevisionHistoryLimit).To(HaveValue(BeEquivalentTo(2)))
				Expect(deployment.Spec.Template.Spec.PriorityClassName).To(Equal(component.priorityClass))
				Expect(deployment.Spec.Template.Spec.Affinity).To(BeNil())

				pdb := one[*policyv1.PodDisruptionBudget](objects)
				Expect(pdb.Spec.MaxUnavailable).To(HaveValue(Equal(intstr.FromInt32(1))))
				Expect(pdb.Spec.UnhealthyPodEvictionPolicy).To(HaveValue(Equal(policyv1.AlwaysAllow)))
				Expect(pdb.Spec.Selector).To(Equal(deployment.Spec.Selector))
			})

			It("should select its pods", func() {
				objects := render(component.chart, nil)
				deployment := one[*appsv1.Deployment](objects)
				podLabels := labels.Set(deployment.Spec.Template.Labels)

				selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
				Expect(err).NotTo(HaveOccurred())
				Expect(selector.Matches(podLabels)).To(BeTrue())
				Expect(labels.SelectorFromSet(one[*corev1.Service](objects).Spec.Selector).Matches(podLabels)).To(BeTrue())

				vpa := one[*vpaautoscalingv1.VerticalPodAutoscaler](objects)
				Expect(vpa.Spec.TargetRef.Name).To(Equal(deployment.Name))
				policies := vpa.Spec.ResourcePolicy.ContainerPolicies
				Expect(policies).To(HaveLen(2))
				Expect(policies[0].ContainerName).To(Equal(container(objects).Name))
				Expect(policies[0].ControlledValues).To(HaveValue(Equal(vpaautoscalingv1.ContainerControlledValuesRequestsOnly)))
				Expect(policies[0].MaxAllowed).To(BeNil())
				Expect(policies[1].ContainerName).To(Equal("*"))
				Expect(policies[1].Mode).To(HaveValue(Equal(vpaautoscalingv1.ContainerScalingModeOff)))
			})

			It("should be reached by those who are to reach it, and reach those whom it is to reach", func() {
				objects := render(component.chart, nil)
				Expect(networkLabels(one[*appsv1.Deployment](objects))).To(Equal(component.networkLabels))

				service := one[*corev1.Service](objects)
				Expect(service.Name).To(Equal(component.name))
				Expect(service.Spec.Ports[0].Port).To(BeEquivalentTo(443))
				Expect(service.Spec.Ports[0].TargetPort.IntVal).To(Equal(port(objects, "webhook")))
				for key, value := range service.Annotations {
					switch {
					case strings.HasSuffix(key, "-allowed-ports"), strings.HasSuffix(key, "/from-world-to-ports"):
						var ports []networkingv1.NetworkPolicyPort
						Expect(json.Unmarshal([]byte(value), &ports)).To(Succeed())
						expected := intstr.FromInt32(port(objects, "webhook"))
						if strings.Contains(key, "scrape") {
							expected = intstr.FromInt32(port(objects, "metrics"))
						}
						Expect(ports).To(ConsistOf(networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: &expected}))
					case strings.HasSuffix(key, "/namespace-selectors"):
						var selectors []metav1.LabelSelector
						Expect(json.Unmarshal([]byte(value), &selectors)).To(Succeed())
						Expect(selectors).To(ConsistOf(metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "garden"}}))
					default:
						Expect(key).To(HaveSuffix("/pod-label-selector-namespace-alias"))
						Expect(value).To(Equal("extensions"))
					}
				}
			})

			It("should probe the ports that the process listens on", func() {
				objects := render(component.chart, nil)
				container := container(objects)
				Expect(container.Args).To(ContainElement(HavePrefix("--webhook-config-server-port=10250")))
				Expect(port(objects, "webhook")).To(BeEquivalentTo(10250))
				Expect(container.Args).To(ContainElement("--health-bind-address=:8081"))
				Expect(port(objects, "health")).To(BeEquivalentTo(8081))
				Expect(container.LivenessProbe.HTTPGet.Port).To(Equal(intstr.FromString("health")))
				Expect(container.LivenessProbe.HTTPGet.Path).To(Equal("/healthz"))
				Expect(container.ReadinessProbe.HTTPGet.Port).To(Equal(intstr.FromString("health")))
				Expect(container.ReadinessProbe.HTTPGet.Path).To(Equal("/readyz"))
			})

			It("should have no more privileges on its node than it needs", func() {
				objects := render(component.chart, nil)
				pod := one[*appsv1.Deployment](objects).Spec.Template.Spec
				Expect(pod.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
				Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
				Expect(container(objects).SecurityContext).To(Equal(&corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					ReadOnlyRootFilesystem:   new(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}))

				account := one[*corev1.ServiceAccount](objects)
				Expect(pod.ServiceAccountName).To(Equal(account.Name))
				Expect(account.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
			})
		})
	}

	for _, chart := range charts.All {
		DescribeTable("should decode strictly and have names of their own: "+string(chart),
			func(values map[string]any) {
				for _, decoded := range render(chart, values) {
					object := decoded.(client.Object)
					switch object.(type) {
					case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
						Expect(object.GetName()).To(HavePrefix("extensions.gardener.cloud:extension-machine-preservation:"))
						Expect(object.GetNamespace()).To(BeEmpty())
					case *fluentbitv1alpha2.ClusterFilter, *fluentbitv1alpha2.ClusterParser:
						Expect(object.GetName()).To(ContainSubstring("machine-preservation"))
						Expect(object.GetNamespace()).To(BeEmpty())
					default:
						if object.GetName() == "gardener-extension-machine-preservation-dashboards" {
							Expect(object.GetNamespace()).To(Equal("garden"))
							continue
						}
						Expect(object.GetName()).To(HavePrefix("gardener-extension-machine-preservation"))
						Expect(object.GetNamespace()).To(Equal(namespace))
					}
				}
			},
			Entry("by default", nil),
			Entry("with everything set", everything(chart)),
		)
	}

	It("should bring a dashboard to the Plutono of the seed, whoever has deployed it", func() {
		for _, configMap := range all[*corev1.ConfigMap](render(charts.Extension, nil)) {
			if configMap.Namespace != "garden" {
				continue
			}
			Expect(configMap.Labels).To(HaveKeyWithValue("dashboard.monitoring.gardener.cloud/seed", "true"))
			Expect(configMap.Labels).To(HaveKeyWithValue("dashboard.monitoring.gardener.cloud/garden", "true"))
			Expect(configMap.Data["machine-preservation-seed.json"]).To(MatchJSON(read("gardener-extension-machine-preservation/dashboards/machine-preservation-seed.json")))
			return
		}
		Fail("there is none")
	})

	DescribeTable("should have logs read by a filter with a parser of its own",
		func(chart charts.Chart, log string, expected ...string) {
			objects := render(chart, nil)
			var filters []string
			for _, filter := range all[*fluentbitv1alpha2.ClusterFilter](objects) {
				matches, err := path.Match(filter.Spec.Match, "kubernetes.var.log.containers."+log)
				Expect(err).NotTo(HaveOccurred())
				if !matches {
					continue
				}
				filters = append(filters, filter.Name)
				Expect(filter.Labels).To(HaveKeyWithValue("fluentbit.gardener/type", "seed"))
				Expect(all[*fluentbitv1alpha2.ClusterParser](objects)).To(ContainElement(And(
					HaveField("Name", filter.Spec.FilterItems[0].Parser.Parser), HaveField("Labels", HaveKeyWithValue("fluentbit.gardener/type", "seed")))))
			}
			Expect(filters).To(ConsistOf(expected))
		},
		Entry("extension", charts.Extension, "gardener-extension-machine-preservation-5d-x_extension-machine-preservation-a_gardener-extension-machine-preservation-0.log", "gardener-extension-machine-preservation"),
		Entry("sidecar", charts.Extension, "machine-controller-manager-5d-x_shoot--foo--bar_machine-preservation-controller-0.log", "machine-preservation-controller"),
		Entry("its neighbour", charts.Extension, "machine-controller-manager-5d-x_shoot--foo--bar_machine-controller-manager-0.log"),
		Entry("admission component", charts.AdmissionRuntime, "gardener-extension-machine-preservation-admission-5d-x_garden_gardener-extension-machine-preservation-admission-0.log", "gardener-extension-machine-preservation-admission"),
	)

	It("should have the Prometheus of the garden scrape the admission component", func() {
		objects := render(charts.AdmissionRuntime, nil)
		monitor, service := one[*monitoringv1.ServiceMonitor](objects), one[*corev1.Service](objects)
		Expect(monitor.Labels).To(HaveKeyWithValue("prometheus", "garden"))
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
		Expect(err).NotTo(HaveOccurred())
		Expect(selector.Matches(labels.Set(service.Labels))).To(BeTrue())
		Expect(monitor.Spec.Endpoints).To(HaveLen(1))
		Expect(service.Spec.Ports).To(ContainElement(And(
			HaveField("Name", monitor.Spec.Endpoints[0].Port), HaveField("TargetPort.IntVal", port(objects, "metrics")))))
		Expect(container(objects).Args).To(ContainElement(fmt.Sprintf("--metrics-bind-address=:%d", port(objects, "metrics"))))
	})

	Describe("component configuration", func() {
		decode := func(values map[string]any) *configv1alpha1.ControllerConfiguration {
			GinkgoHelper()
			scheme := runtime.NewScheme()
			Expect(configv1alpha1.AddToScheme(scheme)).To(Succeed())
			decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(configv1alpha1.SchemeGroupVersion)
			object, err := runtime.Decode(decoder, []byte(all[*corev1.ConfigMap](render(charts.Extension, values))[0].Data["config.yaml"]))
			Expect(err).NotTo(HaveOccurred())
			return object.(*configv1alpha1.ControllerConfiguration)
		}

		It("should have the defaults of the code", func() {
			defaults := &configv1alpha1.ControllerConfiguration{}
			configv1alpha1.SetObjectDefaults_ControllerConfiguration(defaults)
			config := decode(nil)
			Expect(config.AutoPreserveFailedMax).To(Equal(defaults.AutoPreserveFailedMax))
			Expect(config.MachinePreserveTimeout).To(Equal(defaults.MachinePreserveTimeout))
			Expect(config.MaxMachinePreserveTimeout).To(Equal(defaults.MaxMachinePreserveTimeout))
			Expect(config.MaxNodeMaintenanceOvertime).To(Equal(defaults.MaxNodeMaintenanceOvertime))
			Expect(config.Injection).To(Equal(defaults.Injection))
			Expect(config.InjectionMaxFailed).To(Equal(defaults.InjectionMaxFailed))
			Expect(config.InjectionMaxFailedPercent).To(Equal(defaults.InjectionMaxFailedPercent))
			Expect(config.Hosts).To(BeNil())
			Expect(config.Evidence).To(BeNil())
		})

		It("X11: should have the hosts that its values show", func() {
			raw, err := os.ReadFile("gardener-extension-machine-preservation/values.yaml")
			Expect(err).NotTo(HaveOccurred())
			_, example, found := strings.Cut(string(raw), "  # hosts:\n")
			Expect(found).To(BeTrue())
			example, _, _ = strings.Cut(example, "  hosts: null")
			hosts := map[string]any{}
			Expect(yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+example, "\n  # ", "\n")), &hosts)).To(Succeed())
			Expect(hosts).To(HaveLen(reflect.TypeFor[configv1alpha1.Hosts]().NumField()), "all fields are shown")
			config := decode(map[string]any{"config": map[string]any{"hosts": hosts}})
			Expect(config.Hosts).To(Equal(&configv1alpha1.Hosts{Kind: configv1alpha1.HostKindBareMetalHost, MaxServicing: &metav1.Duration{Duration: 2 * time.Hour}}))
			Expect(validation.ValidateControllerConfiguration(config)).To(BeEmpty())
		})

		It("should have evidence as it is configured", func() {
			config := decode(map[string]any{"config": map[string]any{"evidence": map[string]any{"enabled": true, "budget": "2Mi", "maxRetention": "200h"}}})
			Expect(config.Evidence.Enabled).To(BeTrue())
			Expect(config.Evidence.Budget.Value()).To(BeEquivalentTo(2 << 20))
			Expect(config.Evidence.SeedBudget.Value()).To(BeEquivalentTo(512 << 20))
			Expect(config.Evidence.MaxRetention.Duration).To(Equal(200 * time.Hour))
			Expect(validation.ValidateControllerConfiguration(config)).To(BeEmpty())
		})

		It("should be valid when there is none", func() {
			Expect(decode(map[string]any{"config": nil})).To(Equal(decode(nil)))
		})
	})
})

// networkLabels returns the labels of a Deployment's pods that NetworkPolicies select.
func networkLabels(deployment *appsv1.Deployment) map[string]string {
	found := map[string]string{}
	for key, value := range deployment.Spec.Template.Labels {
		if strings.HasPrefix(key, "networking.") {
			found[key] = value
		}
	}
	return found
}

// port returns a port of the container by its name.
func port(objects []runtime.Object, name string) int32 {
	GinkgoHelper()
	for _, port := range container(objects).Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	Fail("no port " + name)
	return 0
}
