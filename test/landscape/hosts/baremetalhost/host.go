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

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
)

const (
	// AnnotationHost on a Machine is the namespace and name of its host, with a slash between.
	AnnotationHost = "metal3.io/BareMetalHost"
	// AnnotationReboot on a host asks for it to be switched off, and on again. With a slash and the name of a client behind,
	// the host is off until the client removes it.
	AnnotationReboot = "reboot.metal3.io"

	annotationPaused   = "baremetalhost.metal3.io/paused"
	annotationDetached = "baremetalhost.metal3.io/detached"

	stateProvisioned = "provisioned"
	stateAvailable   = "available"
	statePreparing   = "preparing"

	statusOK        = "OK"
	statusError     = "error"
	statusDetached  = "detached"
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
	_, used, _ := unstructured.NestedMap(host.Object, "spec", "consumerRef")
	switch {
	case hosts.MisbehaviourOf(host) == hosts.Preparing:
		return statePreparing
	case used:
		return stateProvisioned
	}
	return stateAvailable
}

// isOnline returns whether the host is to be on, but for reboots.
func isOnline(host *unstructured.Unstructured) bool {
	online, _, _ := unstructured.NestedBool(host.Object, "spec", "online")
	return online
}

// statusOf returns a field of the status, empty if there is none.
func statusOf(host *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(host.Object, "status", field)
	return value
}

// wanted returns whether the host is to be on, and whether it is to be switched off without asking the kernel. One that
// reboots because of the annotation without a client is to be off until it reports so.
func wanted(host *unstructured.Unstructured) (on, hard bool) {
	on = isOnline(host)
	for key, value := range host.GetAnnotations() {
		if key != AnnotationReboot && !strings.HasPrefix(key, AnnotationReboot+"/") {
			continue
		}
		var arguments struct {
			Mode  string `json:"mode"`
			Force bool   `json:"force"`
		}
		_ = json.Unmarshal([]byte(value), &arguments) // what is no JSON has no mode
		if stateOf(host) != stateProvisioned && !arguments.Force {
			continue
		}
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
