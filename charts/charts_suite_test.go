// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	fluentbitv1alpha2 "github.com/fluent/fluent-operator/v3/apis/fluentbit/v1alpha2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
)

func TestCharts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Charts Suite")
}

const (
	release   = "machine-preservation"
	namespace = "extension-machine-preservation"
)

// render renders a chart and decodes its objects strictly into their types.
func render(chart charts.Chart, values map[string]any) []runtime.Object {
	GinkgoHelper()
	types := runtime.NewScheme()
	Expect(scheme.AddToScheme(types)).To(Succeed())
	for _, add := range []func(*runtime.Scheme) error{vpaautoscalingv1.AddToScheme, monitoringv1.AddToScheme, fluentbitv1alpha2.AddToScheme} {
		Expect(add(types)).To(Succeed())
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()

	var objects []runtime.Object
	for _, untyped := range renderUntyped(chart, values) {
		raw, err := untyped.MarshalJSON()
		Expect(err).NotTo(HaveOccurred())
		object, _, err := decoder.Decode(raw, nil, nil)
		Expect(err).NotTo(HaveOccurred(), string(raw))
		objects = append(objects, object)
	}
	return objects
}

func renderUntyped(chart charts.Chart, values map[string]any) []*unstructured.Unstructured {
	GinkgoHelper()
	objects, err := chart.Render(release, namespace, values)
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).NotTo(BeEmpty())
	return objects
}

// all returns the objects of a type.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// one returns the only object of a type.
func one[T runtime.Object](objects []runtime.Object) T {
	GinkgoHelper()
	found := all[T](objects)
	Expect(found).To(HaveLen(1))
	return found[0]
}

func container(objects []runtime.Object) corev1.Container {
	GinkgoHelper()
	containers := one[*appsv1.Deployment](objects).Spec.Template.Spec.Containers
	Expect(containers).To(HaveLen(1))
	return containers[0]
}

// readYAML reads a file of a chart.
func readYAML(chart charts.Chart, name string) map[string]any {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(string(chart), name))
	Expect(err).NotTo(HaveOccurred())
	content := map[string]any{}
	Expect(yaml.UnmarshalStrict(raw, &content)).To(Succeed())
	return content
}

// gone is the value of a leaf that is there no more.
const gone = "(gone)"

// difference returns the leaves that are new, changed or gone.
func difference(before, after map[string]string) map[string]string {
	changed := map[string]string{}
	for path, value := range after {
		if old, ok := before[path]; !ok || old != value {
			changed[path] = value
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			changed[path] = gone
		}
	}
	return changed
}

// flatten returns the leaves of objects by their paths. Items of lists are in the path by their names and not by their
// positions, so that one that is added does not change the paths of the others.
func flatten(objects []*unstructured.Unstructured) map[string]string {
	leaves := map[string]string{}
	for _, object := range objects {
		path := object.GetKind()
		switch path {
		case "ConfigMap", "ClusterFilter", "ClusterParser":
			path += "[" + strings.TrimPrefix(object.GetName(), "gardener-extension-machine-preservation-") + "]"
		}
		flattenInto(leaves, path, object.Object)
	}
	return leaves
}

func flattenInto(leaves map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			flattenInto(leaves, path+"."+key, child)
		}
	case []any:
		for _, child := range value {
			name, content := nameOf(child)
			flattenInto(leaves, path+"["+name+"]", content)
		}
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

// nameOf returns what an item of a list is called, and what it says.
func nameOf(item any) (string, any) {
	switch item := item.(type) {
	case string:
		if name, value, isFlag := strings.Cut(item, "="); isFlag {
			return name, value
		}
		return item, item
	case map[string]any:
		if resources, ok := item["resources"].([]any); ok { // a rule
			names, _ := item["resourceNames"].([]any)
			return fmt.Sprint(append(slices.Clone(resources), names...)...), item
		}
		// A subject, a policy, an alert, anything else, how metrics are scraped.
		for _, key := range []string{"kind", "containerName", "alert", "name", "port", "action"} {
			if name, ok := item[key].(string); ok {
				return name, item
			}
		}
		for key := range item { // how logs are read
			if len(item) == 1 {
				return key, item
			}
		}
	}
	Fail(fmt.Sprintf("an item without a name: %v", item))
	return "", nil
}
