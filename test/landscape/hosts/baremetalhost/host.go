// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"encoding/json"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// AnnotationHost on a Machine is the namespace and name of its host, with a slash between.
	AnnotationHost = "metal3.io/BareMetalHost"
	// AnnotationReboot on a host, with a slash and the name of a client behind, asks for it to be off until the client removes it.
	AnnotationReboot = "reboot.metal3.io"

	stateProvisioned = "provisioned"
	stateAvailable   = "available"

	statusOK        = "OK"
	statusError     = "error"
	statusServicing = "servicing"

	errorTypePower = "power management error"
)

var gvk = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}

// New returns a host that has a name only.
func New(key client.ObjectKey) *unstructured.Unstructured {
	host := &unstructured.Unstructured{}
	host.SetGroupVersionKind(gvk)
	host.SetNamespace(key.Namespace)
	host.SetName(key.Name)
	return host
}

// PoweredOn returns whether the host reports that it is on.
func PoweredOn(host *unstructured.Unstructured) bool {
	on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
	return on
}

// stateOf returns the state that the host is to be in.
func stateOf(host *unstructured.Unstructured) string {
	if _, used, _ := unstructured.NestedMap(host.Object, "spec", "consumerRef"); used {
		return stateProvisioned
	}
	return stateAvailable
}

// statusOf returns a field of the status, empty if there is none.
func statusOf(host *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(host.Object, "status", field)
	return value
}

// wanted returns whether the host is to be on, and whether it is to be switched off without asking the kernel.
func wanted(host *unstructured.Unstructured) (on, hard bool) {
	if stateOf(host) != stateProvisioned {
		return true, false
	}
	on = true
	for key, value := range host.GetAnnotations() {
		if !strings.HasPrefix(key, AnnotationReboot+"/") {
			continue
		}
		var arguments struct {
			Mode string `json:"mode"`
		}
		_ = json.Unmarshal([]byte(value), &arguments) // what is no JSON has no mode
		on, hard = false, hard || arguments.Mode == "hard"
	}
	return on, hard
}

// use makes the machine the consumer of the host.
func use(host *unstructured.Unstructured, machine *machinev1alpha1.Machine) {
	spec := map[string]any{"online": true, "consumerRef": map[string]any{
		"apiVersion": machinev1alpha1.SchemeGroupVersion.String(),
		"kind":       "Machine",
		"namespace":  machine.Namespace,
		"name":       machine.Name,
		"uid":        string(machine.UID),
	}}
	host.Object["spec"] = spec
}
