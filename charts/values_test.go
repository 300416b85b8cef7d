// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// setting is a value of a chart that is not the default, and all that it changes in what the chart renders.
type setting struct {
	value   any
	changes Keys
}

// settings are all values of the charts.
var settings = map[charts.Chart]map[string]setting{
	charts.Extension:        extensionSettings(),
	charts.AdmissionRuntime: admissionRuntimeSettings(),
	charts.AdmissionApplication: {
		"gardener.virtualCluster.serviceAccount.name":      {"foo", Keys{"ClusterRoleBinding.subjects[ServiceAccount].name": Equal("foo")}},
		"gardener.virtualCluster.serviceAccount.namespace": {"foo", Keys{"ClusterRoleBinding.subjects[ServiceAccount].namespace": Equal("foo")}},
	},
}

const (
	pod         = "Deployment.spec.template.spec."
	annotations = "Deployment.spec.template.metadata.annotations."
)

// componentSettings are the values that all Deployments have.
func componentSettings(chart charts.Chart, name, repository string) map[string]setting {
	container := pod + "containers[" + name + "]."
	policy := "VerticalPodAutoscaler.spec.resourcePolicy.containerPolicies[" + name + "]."
	return map[string]setting{
		"image.repository":          {"example.com/foo", Keys{container + "image": HavePrefix("example.com/foo:v")}},
		"image.tag":                 {"bar", Keys{container + "image": Equal(repository + ":bar")}},
		"image.pullPolicy":          {"Always", Keys{container + "imagePullPolicy": Equal("Always")}},
		"replicaCount":              {3, Keys{"Deployment.spec.replicas": Equal("3")}},
		"logLevel":                  {"debug", Keys{container + "args[--log-level]": Equal("debug")}},
		"logFormat":                 {"text", Keys{container + "args[--log-format]": Equal("text")}},
		"resources.requests.cpu":    {"20m", Keys{container + "resources.requests.cpu": Equal("20m")}},
		"resources.requests.memory": {"128Mi", Keys{container + "resources.requests.memory": Equal("128Mi")}},
		"vpa.minAllowed.memory":     {"32Mi", Keys{policy + "minAllowed.memory": Equal("32Mi")}},
		"vpa.updateMode":            {"Recreate", Keys{"VerticalPodAutoscaler.spec.updatePolicy.updateMode": Equal("Recreate")}},
		"vpa.enabled":               {false, without(chart, "VerticalPodAutoscaler")},
	}
}

// without returns that the objects of a kind are gone.
func without(chart charts.Chart, kind string) Keys {
	objects, err := chart.Render(release, namespace, nil)
	utilruntime.Must(err)
	changes := Keys{}
	for leaf := range flatten(objects) {
		if strings.HasPrefix(leaf, kind+".") {
			changes[leaf] = Equal(gone)
		}
	}
	return changes
}

func extensionSettings() map[string]setting {
	const name = "gardener-extension-machine-preservation"
	settings := componentSettings(charts.Extension, name, "europe-docker.pkg.dev/gardener-project/public/gardener/extensions/machine-preservation")

	container := pod + "containers[" + name + "]."
	config := func(matcher OmegaMatcher) Keys {
		return Keys{"ConfigMap[config].data.config.yaml": matcher, annotations + "checksum/config": HaveLen(64)}
	}
	overwrite := "ConfigMap[imagevector-overwrite]."
	maps.Copy(settings, map[string]setting{
		"config.autoPreserveFailedMax":      {2, config(ContainSubstring("\nautoPreserveFailedMax: 2\n"))},
		"config.maxMachinePreserveTimeout":  {"100h", config(ContainSubstring("\nmaxMachinePreserveTimeout: 100h\n"))},
		"config.maxNodeMaintenanceOvertime": {"1h", config(ContainSubstring("\nmaxNodeMaintenanceOvertime: 1h\n"))},
		"config.maxAutoPreserveFailed":      {3, config(ContainSubstring("\nmaxAutoPreserveFailed: 3\n"))},
		"config.maxMachineHours": {500, Keys{
			"ConfigMap[config].data.config.yaml": ContainSubstring("\nmaxMachineHours: 500\n"), annotations + "checksum/config": HaveLen(64),
			"ClusterRole.rules[configmapsmachine-preservation-hours].apiGroups[]":                               BeEmpty(),
			"ClusterRole.rules[configmapsmachine-preservation-hours].resources[configmaps]":                     Equal("configmaps"),
			"ClusterRole.rules[configmapsmachine-preservation-hours].resourceNames[machine-preservation-hours]": Equal("machine-preservation-hours"),
			"ClusterRole.rules[configmapsmachine-preservation-hours].verbs[get]":                                Equal("get"),
			"ClusterRole.rules[configmapsmachine-preservation-hours].verbs[update]":                             Equal("update"),
			"ClusterRole.rules[configmapsmachine-preservation-hours].verbs[delete]":                             Equal("delete"),
		}},
		"config.machinePreserveTimeout": {"24h", config(ContainSubstring("\nmachinePreserveTimeout: 24h\n"))},
		"config.injection":              {"WithNextReconciliation", config(ContainSubstring("\ninjection: WithNextReconciliation\n"))},
		"config.injectionMaxFailed":     {5, config(ContainSubstring("\ninjectionMaxFailed: 5\n"))},
		"config.hosts": {map[string]any{"kind": "ServerClaim", "kubeconfigSecretName": "metal", "maxPerShoot": int64(3), "maxServicing": "1h", "quarantine": map[string]any{"failures": int64(4)}}, Keys{
			"ConfigMap[config].data.config.yaml":                                                     ContainSubstring("\nhosts:\n  kind: ServerClaim\n  kubeconfigSecretName: metal\n  maxPerShoot: 3\n  maxServicing: 1h\n  quarantine:\n    failures: 4\n"),
			annotations + "checksum/config":                                                          HaveLen(64),
			"ClusterRole.rules[machines].verbs[watch]":                                               Equal("watch"),
			"ClusterRole.rules[secretsmetal].apiGroups[]":                                            BeEmpty(),
			"ClusterRole.rules[secretsmetal].resources[secrets]":                                     Equal("secrets"),
			"ClusterRole.rules[secretsmetal].resourceNames[metal]":                                   Equal("metal"),
			"ClusterRole.rules[secretsmetal].verbs[get]":                                             Equal("get"),
			"Deployment.spec.template.metadata.labels.networking.gardener.cloud/to-private-networks": Equal("allowed"),
			"Deployment.spec.template.metadata.labels.networking.gardener.cloud/to-public-networks":  Equal("allowed"),
		}},
		"config.storm":    {map[string]any{"maxFailing": int64(3), "settlingTime": "5m"}, config(ContainSubstring("\nstorm:\n  maxFailing: 3\n  settlingTime: 5m\n"))},
		"config.failures": {map[string]any{"enabled": false}, config(ContainSubstring("\nfailures:\n  enabled: false\n"))},
		"config.evidence": {map[string]any{"enabled": true, "seedBudget": "1Gi"}, evidenceKeys(Keys{
			"ConfigMap[config].data.config.yaml":        ContainSubstring("\nevidence:\n  enabled: true\n  seedBudget: 1Gi\n"),
			annotations + "checksum/config":             HaveLen(64),
			"ClusterRole.rules[configmaps].verbs[list]": Equal("list"),
		})},
		"config.injectionMaxFailedPercent":           {20, config(ContainSubstring("\ninjectionMaxFailedPercent: 20\n"))},
		"controllers.lifecycle.concurrentSyncs":      {7, Keys{container + "args[--lifecycle-max-concurrent-reconciles]": Equal("7")}},
		"controllers.worker.concurrentSyncs":         {8, Keys{container + "args[--worker-max-concurrent-reconciles]": Equal("8")}},
		"controllers.healthcheck.concurrentSyncs":    {9, Keys{container + "args[--healthcheck-max-concurrent-reconciles]": Equal("9")}},
		"controllers.heartbeat.renewIntervalSeconds": {15, Keys{container + "args[--heartbeat-renew-interval-seconds]": Equal("15")}},
		"controllers.ignoreOperationAnnotation":      {true, Keys{container + "args[--ignore-operation-annotation]": Equal("true")}},
		"metrics.enableScraping": {false, Keys{
			annotations + "prometheus.io/scrape": Equal(gone),
			annotations + "prometheus.io/name":   Equal(gone),
			annotations + "prometheus.io/port":   Equal(gone),
			"Service.metadata.annotations.networking.resources.gardener.cloud/from-all-seed-scrape-targets-allowed-ports": Equal(gone),
			"Service.metadata.annotations.networking.resources.gardener.cloud/namespace-selectors":                        Equal(gone),
			"Service.metadata.annotations.networking.resources.gardener.cloud/pod-label-selector-namespace-alias":         Equal(gone),
		}},
		"imageVectorOverwrite": {map[string]any{"images": []any{map[string]any{"name": "foo", "ref": "example.com/foo:v1"}}}, Keys{
			overwrite + "apiVersion":                                    Equal("v1"),
			overwrite + "kind":                                          Equal("ConfigMap"),
			overwrite + "metadata.name":                                 Equal(name + "-imagevector-overwrite"),
			overwrite + "metadata.namespace":                            Equal(namespace),
			overwrite + "metadata.labels.app.kubernetes.io/name":        Equal(name),
			overwrite + "metadata.labels.app.kubernetes.io/instance":    Equal(release),
			overwrite + "data.images_overwrite.yaml":                    Equal("images:\n- name: foo\n  ref: example.com/foo:v1\n"),
			annotations + "checksum/imagevector-overwrite":              HaveLen(64),
			container + "env[IMAGEVECTOR_OVERWRITE].name":               Equal("IMAGEVECTOR_OVERWRITE"),
			container + "env[IMAGEVECTOR_OVERWRITE].value":              Equal("/etc/imagevector-overwrite/images_overwrite.yaml"),
			container + "volumeMounts[imagevector-overwrite].name":      Equal("imagevector-overwrite"),
			container + "volumeMounts[imagevector-overwrite].mountPath": Equal("/etc/imagevector-overwrite"),
			container + "volumeMounts[imagevector-overwrite].readOnly":  Equal("true"),
			pod + "volumes[imagevector-overwrite].name":                 Equal("imagevector-overwrite"),
			pod + "volumes[imagevector-overwrite].configMap.name":       Equal(name + "-imagevector-overwrite"),
		}},
	})
	maps.Copy(settings["metrics.enableScraping"].changes, without(charts.Extension, "PrometheusRule"))
	return settings
}

func admissionRuntimeSettings() map[string]setting {
	const name = "gardener-extension-machine-preservation-admission"
	scraping := without(charts.AdmissionRuntime, "ServiceMonitor")
	for _, leaf := range []string{"name", "port", "protocol", "targetPort"} {
		scraping["Service.spec.ports[metrics]."+leaf] = Equal(gone)
	}
	scraping["Service.metadata.annotations.networking.resources.gardener.cloud/from-all-garden-scrape-targets-allowed-ports"] = Equal(gone)
	settings := componentSettings(charts.AdmissionRuntime, name, "europe-docker.pkg.dev/gardener-project/public/gardener/extensions/machine-preservation-admission")

	maps.Copy(settings, map[string]setting{
		"metrics.enableScraping":                    {false, scraping},
		"config.maxMachinePreserveTimeout":          {"100h", Keys{pod + "containers[" + name + "].args[--max-machine-preserve-timeout]": Equal("100h")}},
		"config.hosts.enabled":                      {true, Keys{pod + "containers[" + name + "].args[--hosts]": Equal("true")}},
		"config.hosts.automatic":                    {true, Keys{pod + "containers[" + name + "].args[--hosts-automatic]": Equal("true")}},
		"config.evidence.enabled":                   {true, Keys{pod + "containers[" + name + "].args[--evidence]": Equal("true")}},
		"config.evidence.maxRetention":              {"200h", Keys{pod + "containers[" + name + "].args[--evidence-max-retention]": Equal("200h")}},
		"config.maxAutoPreserveFailed":              {0, Keys{pod + "containers[" + name + "].args[--max-auto-preserve-failed]": Equal("0")}},
		"gardener.runtimeCluster.priorityClassName": {"foo", Keys{pod + "priorityClassName": Equal("foo")}},
		"gardener.virtualCluster.namespace": {"foo", Keys{
			pod + "containers[" + name + "].args[--webhook-config-owner-namespace]": Equal("foo"),
		}},
	})
	return settings
}

// everything returns all settings of a chart at once, but for those that take away what others change.
func everything(chart charts.Chart) map[string]any {
	GinkgoHelper()
	values := map[string]any{}
	for path, setting := range settings[chart] {
		if setting.value != false {
			set(values, path, setting.value)
		}
	}
	return values
}

func set(values map[string]any, path string, value any) {
	GinkgoHelper()
	Expect(unstructured.SetNestedField(values, jsonValue(value), strings.Split(path, ".")...)).To(Succeed())
}

// evidenceKeys adds the rule for ConfigMaps with evidence.
func evidenceKeys(keys Keys) Keys {
	names := append(retention.StoredNames(), retention.StoredCapName)
	rule := "ClusterRole.rules[configmaps" + strings.Join(names, "") + "]."
	keys[rule+"apiGroups[]"] = BeEmpty()
	keys[rule+"resources[configmaps]"] = Equal("configmaps")
	for _, name := range names {
		keys[rule+"resourceNames["+name+"]"] = Equal(name)
	}
	keys[rule+"verbs[patch]"] = Equal("patch")
	keys[rule+"verbs[delete]"] = Equal("delete")
	return keys
}

// jsonValue returns a value as it is after decoding JSON.
func jsonValue(value any) any {
	if number, ok := value.(int); ok {
		return int64(number)
	}
	return value
}

var _ = Describe("Values", func() {
	for _, chart := range charts.All {
		Describe(string(chart), func() {
			It("should have a comment and a test each", func() {
				raw, err := os.ReadFile(filepath.Join(string(chart), "values.yaml"))
				Expect(err).NotTo(HaveOccurred())
				Expect(uncommented(string(raw))).To(BeEmpty())
				Expect(leaves("", readYAML(chart, "values.yaml"))).To(ConsistOf(slices.Collect(maps.Keys(settings[chart]))))
			})

			for _, path := range slices.Sorted(maps.Keys(settings[chart])) {
				It(fmt.Sprintf("should change what %s says, and nothing else", path), func() {
					values := map[string]any{}
					set(values, path, settings[chart][path].value)
					changes := difference(flatten(renderUntyped(chart, nil)), flatten(renderUntyped(chart, values)))
					Expect(changes).NotTo(BeEmpty())
					Expect(changes).To(MatchAllKeys(settings[chart][path].changes))
				})
			}

			DescribeTable("should pass helm lint",
				func(values map[string]any) {
					for _, message := range lint.RunAll(string(chart), values, namespace).Messages {
						Expect(message.Severity).To(BeNumerically("<", support.WarningSev), message.Error())
					}
				},
				Entry("by default", nil),
				Entry("with everything set", everything(chart)),
			)
		})
	}
})

// leaves returns the paths of all values. An empty map or list is one.
func leaves(path string, value any) []string {
	children, ok := value.(map[string]any)
	if !ok || len(children) == 0 {
		return []string{path}
	}
	var paths []string
	for key, child := range children {
		paths = append(paths, leaves(strings.TrimPrefix(path+"."+key, "."), child)...)
	}
	return paths
}

// uncommented returns the lines with values that neither have a comment above them nor are in a block that has.
func uncommented(content string) []string {
	var (
		missing []string
		comment bool
		block   = -1 // the indentation of the block that has a comment
	)
	for line := range strings.Lines(content) {
		indentation := len(line) - len(strings.TrimLeft(line, " "))
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			comment = line != ""
			continue
		}
		if indentation <= block {
			block = -1
		}
		if comment && block < 0 {
			block = indentation
		}
		if block < 0 && !strings.HasSuffix(line, ":") {
			missing = append(missing, line)
		}
		comment = false
	}
	return missing
}
