// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package metal3 knows hosts that are BareMetalHosts of Metal3. It needs nothing of them but what is declared here: their
// Go module is not used.
package metal3

import (
	"context"
	"maps"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
)

const (
	// annotationHost on a Machine names its host.
	annotationHost = "metal3.io/BareMetalHost"
	// A provider id has a namespace and a name behind the scheme, and what else there is to say. That of
	// cluster-api-provider-metal3 has its machine there; an old one has the UID of the host only, by which nobody finds it.
	providerScheme    = "baremetalhost://"
	providerSchemeAPI = "metal3://"

	kindHostClaim = "HostClaim"

	// annotationRebootBase asks for one reboot, and those with it as prefix for being off until they are removed. Each client has
	// one of its own, and the host is off while one is left.
	annotationRebootBase = "reboot.metal3.io"
	// While one of these is there, nobody acts on the host.
	annotationPaused   = "baremetalhost.metal3.io/paused"
	annotationDetached = "baremetalhost.metal3.io/detached"

	hard = `{"mode":"hard"}`

	stateProvisioned           = "provisioned"
	stateExternallyProvisioned = "externally provisioned"
	operationalStatusDetached  = "detached"
	operationalStatusServicing = "servicing"
	operationalStatusError     = "error"
	errorTypeServicing         = "servicing error"
)

var (
	kind     = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
	resource = schema.GroupResource{Group: kind.Group, Resource: "baremetalhosts"}
)

// bareMetalHost is what is read of one.
type bareMetalHost struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Online          bool                    `json:"online"`
		DisablePowerOff bool                    `json:"disablePowerOff"`
		ConsumerRef     *corev1.ObjectReference `json:"consumerRef"`
	} `json:"spec"`
	Status struct {
		PoweredOn         *bool       `json:"poweredOn"`
		OperationalStatus string      `json:"operationalStatus"`
		ErrorType         string      `json:"errorType"`
		ErrorMessage      string      `json:"errorMessage"`
		LastUpdated       metav1.Time `json:"lastUpdated"`
		Provisioning      struct {
			State string `json:"state"`
		} `json:"provisioning"`
	} `json:"status"`
}

// ByObject returns what a cache has to keep of BareMetalHosts. Nothing that is read is changed.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		host.New(kind): {UnsafeDisableDeepCopy: new(true), Transform: host.Strip(
			func(key string) bool {
				return isReboot(key) || slices.Contains([]string{v1alpha1.AnnotationHostOwner, annotationPaused, annotationDetached}, key)
			},
			"spec.online", "spec.disablePowerOff", "spec.consumerRef",
			"status.poweredOn", "status.operationalStatus", "status.errorType", "status.errorMessage", "status.lastUpdated",
			"status.provisioning.state",
		)},
	}
}

// Mapper returns a mapper that knows the kind without asking an API server.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	mapper.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), meta.RESTScopeNamespace)
	return mapper
}

// PolicyRules returns what who drives them must be allowed in the namespaces of the hosts.
func PolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "patch"}}}
}

// Kind implements host.Kind.
type Kind struct{}

var _ host.Kind = Kind{}

// Objects returns a BareMetalHost.
func (Kind) Objects() []client.Object { return []client.Object{host.New(kind)} }

// Key returns the host that an annotation of the machine names, and else the one of its provider id.
func (Kind) Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool) {
	if name, ok := machine.Annotations[annotationHost]; ok {
		return keyOf(name, 2, 2)
	}
	if id, ok := strings.CutPrefix(machine.Spec.ProviderID, providerScheme); ok {
		return keyOf(strings.TrimPrefix(id, "/"), 2, 3)
	}
	if id, ok := strings.CutPrefix(machine.Spec.ProviderID, providerSchemeAPI); ok {
		return keyOf(id, 3, 3)
	}
	return client.ObjectKey{}, false
}

// keyOf returns the key that a namespace and a name are, and what is behind them, if there are as many parts.
func keyOf(name string, least, most int) (client.ObjectKey, bool) {
	parts := strings.Split(name, "/")
	if len(parts) < least || len(parts) > most || slices.Contains(parts, "") {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: parts[0], Name: parts[1]}, true
}

// HostOf returns the object itself.
func (Kind) HostOf(_ context.Context, _ client.Reader, object *unstructured.Unstructured) *unstructured.Unstructured {
	return object
}

// Rest returns nothing: it is one object.
func (Kind) Rest(*unstructured.Unstructured) []*unstructured.Unstructured { return nil }

// Consumer returns the consumer, if that is a machine of machine-controller-manager, or a HostClaim of metal3 that has the name of
// one, in a namespace that has the name of its own: the claim itself says of whom it is, but he who may write it says so.
func (Kind) Consumer(object *unstructured.Unstructured, _ string) (client.ObjectKey, bool) {
	bmh, err := convert(object)
	if err != nil || bmh.Spec.ConsumerRef == nil {
		return client.ObjectKey{}, false
	}
	ref := bmh.Spec.ConsumerRef
	group := ref.GroupVersionKind().Group
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name},
		ref.Kind == "Machine" && (ref.APIVersion == "" || group == machinev1alpha1.GroupName) || ref.Kind == kindHostClaim && group == kind.Group
}

// Report returns what the BareMetalHost says of itself.
func (Kind) Report(_ context.Context, _ client.Reader, object *unstructured.Unstructured) (host.Report, error) {
	bmh, err := convert(object)
	if err != nil {
		return host.Report{}, err
	}
	report := host.Report{
		Changed: bmh.Status.LastUpdated.Time, Unowned: metav1.HasAnnotation(bmh.ObjectMeta, v1alpha1.AnnotationReboot),
		Servicing: bmh.servicing(), Error: bmh.error(), Taken: bmh.taken(),
	}
	if !bmh.unattended() {
		report.On, report.By, report.IsAsked = bmh.Status.PoweredOn, object, true
	}
	return report, nil
}

// Switch does not wait for an operating system that hangs.
func (Kind) Switch(object *unstructured.Unstructured, on bool) error {
	if on {
		return nil
	}
	return unstructured.SetNestedField(object.Object, hard, "metadata", "annotations", v1alpha1.AnnotationReboot)
}

func convert(object *unstructured.Unstructured) (*bareMetalHost, error) {
	bmh := &bareMetalHost{}
	return bmh, host.Convert(object, bmh)
}

// unattended says that nobody looks at the host: what it reports may have been so long ago.
func (b *bareMetalHost) unattended() bool {
	return metav1.HasAnnotation(b.ObjectMeta, annotationPaused) || b.detached()
}

func (b *bareMetalHost) detached() bool {
	return metav1.HasAnnotation(b.ObjectMeta, annotationDetached) || b.Status.OperationalStatus == operationalStatusDetached
}

// taken says whose the host is if it is not ours to cycle (X14), whoever has the request of ours.
func (b *bareMetalHost) taken() string {
	for _, key := range slices.Sorted(maps.Keys(b.Annotations)) {
		if isReboot(key) && key != v1alpha1.AnnotationReboot {
			return host.TakenBy(key)
		}
	}
	switch state := b.Status.Provisioning.State; {
	case b.detached():
		return "it is detached"
	case b.unattended():
		return "it is paused"
	case !b.Spec.Online:
		return "it is to be offline"
	case b.Spec.DisablePowerOff:
		return "it must not be powered off"
	// A host in any other state does not honour the annotation. One without a state has just been created, and reports no power.
	case state != "" && state != stateProvisioned && state != stateExternallyProvisioned:
		return "it is " + state
	}
	return ""
}

// servicing says that the operator updates firmware or its settings: that begins where they are to be updated on a reboot, and the
// host was off, for a request too, and may switch the host meanwhile. A servicing that failed is tried again, and power is left
// alone until it succeeds or nothing is to be updated any more.
func (b *bareMetalHost) servicing() string {
	if b.Status.OperationalStatus == operationalStatusServicing || b.Status.ErrorType == errorTypeServicing {
		return "it is being serviced"
	}
	return ""
}

// error says what the operator has failed to do last, and tries again.
func (b *bareMetalHost) error() string {
	switch {
	case b.Status.ErrorType != "" && b.Status.ErrorMessage != "":
		return b.Status.ErrorType + ": " + b.Status.ErrorMessage
	case b.Status.ErrorType != "":
		return b.Status.ErrorType
	case b.Status.OperationalStatus == operationalStatusError:
		return strings.TrimSuffix(operationalStatusError+": "+b.Status.ErrorMessage, ": ")
	}
	return ""
}

func isReboot(key string) bool {
	return key == annotationRebootBase || strings.HasPrefix(key, annotationRebootBase+"/")
}
