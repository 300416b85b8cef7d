// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package metal3 is the driver of hosts that are BareMetalHosts of Metal3. It needs nothing of them but what is declared here: their
// Go module is not used.
package metal3

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	// Kind is that of the hosts.
	Kind = "BareMetalHost"

	// annotationHost on a Machine names its host.
	annotationHost = "metal3.io/BareMetalHost"
	providerScheme = "baremetalhost://"

	// annotationRebootBase asks for one reboot, and those with it as prefix for being off until they are removed. Each client has
	// one of its own, and the host is off while one is left.
	annotationRebootBase = "reboot.metal3.io"
	// While one of these is there, nobody acts on the host.
	annotationPaused   = "baremetalhost.metal3.io/paused"
	annotationDetached = "baremetalhost.metal3.io/detached"

	// hard does not wait for an operating system that hangs.
	hard = `{"mode":"hard"}`

	stateProvisioned           = "provisioned"
	stateExternallyProvisioned = "externally provisioned"
	operationalStatusDetached  = "detached"
	operationalStatusServicing = "servicing"
)

var (
	kind     = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: Kind}
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
		PoweredOn         *bool  `json:"poweredOn"`
		OperationalStatus string `json:"operationalStatus"`
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
			"status.poweredOn", "status.operationalStatus", "status.provisioning.state",
		)},
	}
}

// Mapper returns a mapper that knows the kind without asking an API server.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	mapper.Add(kind.GroupVersion().WithKind(Kind+"List"), meta.RESTScopeNamespace)
	return mapper
}

// PolicyRules returns what the driver must be allowed in the namespaces of the hosts.
func PolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "patch"}}}
}

// Driver implements host.Driver.
type Driver struct{ host.Access }

var _ host.Driver = &Driver{}

// Key returns the host that an annotation of the machine names, and else the one of its provider id.
func (*Driver) Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool) {
	if name, ok := machine.Annotations[annotationHost]; ok {
		return keyOf(strings.Split(name, "/"), 2)
	}
	id, ok := strings.CutPrefix(machine.Spec.ProviderID, providerScheme)
	if !ok {
		return client.ObjectKey{}, false
	}
	return keyOf(strings.Split(strings.TrimPrefix(id, "/"), "/"), 3)
}

// keyOf returns the key that a namespace and a name are, with up to as many parts.
func keyOf(parts []string, most int) (client.ObjectKey, bool) {
	if len(parts) < 2 || len(parts) > most || slices.Contains(parts, "") {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: parts[0], Name: parts[1]}, true
}

// Of returns the host of a machine from the cache.
func (d *Driver) Of(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	return d.read(ctx, d.Cached, machine)
}

// Live returns the host of a machine from the API server.
func (d *Driver) Live(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	return d.read(ctx, d.APIReader, machine)
}

func (d *Driver) read(ctx context.Context, reader client.Reader, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	key, ok := d.Key(machine)
	if !ok {
		return nil, host.ErrNoHost
	}
	object := host.New(kind)
	if err := host.Get(ctx, reader, key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: there is no %s %q", host.ErrNoHost, Kind, key)
		}
		return nil, err
	}
	bmh, err := convert(object)
	if err != nil {
		return nil, err
	}
	if !bmh.isOf(client.ObjectKeyFromObject(machine)) {
		return nil, fmt.Errorf("%w: %s %q has another consumer", host.ErrForeign, Kind, key)
	}
	return host.For(machine, bmh.observe()), nil
}

// PowerOff annotates a host that is on.
func (d *Driver) PowerOff(ctx context.Context, before *remediation.Host, owner remediation.Owner) error {
	object := host.New(kind)
	if err := host.Get(ctx, d.APIReader, client.ObjectKey{Namespace: before.Namespace, Name: before.Name}, object); err != nil {
		return err
	}
	bmh, err := convert(object)
	if err != nil {
		return err
	}
	live := bmh.observe()
	if !bmh.isOf(client.ObjectKey{Namespace: owner.Namespace, Name: owner.Machine}) {
		live.Taken = "it has another consumer"
	}
	if err := host.Changed(resource, before, live); err != nil {
		return err
	}
	owner.On = host.VersionOf(object)
	return d.Request(ctx, object, owner, hard, nil)
}

// Release removes the annotations.
func (d *Driver) Release(ctx context.Context, h *remediation.Host) error {
	object := host.New(kind)
	object.SetNamespace(h.Namespace)
	object.SetName(h.Name)
	return d.TakeBack(ctx, object, h, nil)
}

// Owned returns the hosts with an owner in a control plane.
func (d *Driver) Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error) {
	objects, err := host.List(ctx, d.Cached, kind, d.HostNamespace)
	if err != nil {
		return nil, err
	}
	var owned []remediation.Host
	for i := range objects {
		if owner := host.OwnerOf(&objects[i]); owner == nil || owner.Seed != seed || owner.Namespace != namespace {
			continue
		}
		bmh, err := convert(&objects[i])
		if err != nil {
			return nil, err
		}
		owned = append(owned, *bmh.observe())
	}
	return owned, nil
}

// Objects returns a BareMetalHost.
func (*Driver) Objects() []client.Object { return []client.Object{host.New(kind)} }

// Machine returns the machine whose request a host has, and else its consumer.
func (d *Driver) Machine(_ context.Context, object client.Object) (client.ObjectKey, bool) {
	if owner := host.OwnerOf(object); owner != nil {
		return client.ObjectKey{Namespace: owner.Namespace, Name: owner.Machine}, owner.Namespace == d.Namespace
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return client.ObjectKey{}, false
	}
	bmh, err := convert(u)
	if err != nil || bmh.Spec.ConsumerRef == nil {
		return client.ObjectKey{}, false
	}
	key := client.ObjectKey{Namespace: bmh.Spec.ConsumerRef.Namespace, Name: bmh.Spec.ConsumerRef.Name}
	return key, key.Namespace == d.Namespace && bmh.isOf(key)
}

func convert(object *unstructured.Unstructured) (*bareMetalHost, error) {
	bmh := &bareMetalHost{}
	return bmh, host.Convert(object, bmh)
}

// isOf says that a machine of machine-controller-manager is the consumer of the host.
func (b *bareMetalHost) isOf(machine client.ObjectKey) bool {
	ref := b.Spec.ConsumerRef
	return ref != nil && ref.Kind == "Machine" && ref.Namespace == machine.Namespace && ref.Name == machine.Name &&
		(ref.APIVersion == "" || ref.GroupVersionKind().Group == machinev1alpha1.GroupName)
}

func (b *bareMetalHost) observe() *remediation.Host {
	h := &remediation.Host{
		Namespace: b.Namespace, Name: b.Name, UID: b.UID,
		On: b.Status.PoweredOn, Requested: host.IsRequested(b), Owner: host.OwnerOf(b), Taken: b.taken(),
	}
	if b.unattended() {
		h.On = nil
	}
	h.OffSinceRequest = h.Requested && h.Owner != nil && h.On != nil && !*h.On && host.IsLater(b, h.Owner.On)
	return h
}

// unattended says that nobody looks at the host: what it reports may have been so long ago.
func (b *bareMetalHost) unattended() bool {
	return metav1.HasAnnotation(b.ObjectMeta, annotationPaused) || b.detached()
}

func (b *bareMetalHost) detached() bool {
	return metav1.HasAnnotation(b.ObjectMeta, annotationDetached) || b.Status.OperationalStatus == operationalStatusDetached
}

// taken says whose the host is if it is not ours to cycle (X14).
func (b *bareMetalHost) taken() string {
	for _, key := range slices.Sorted(maps.Keys(b.Annotations)) {
		if isReboot(key) && (key != v1alpha1.AnnotationReboot || host.OwnerOf(b) == nil) {
			return fmt.Sprintf("somebody else asks for it to be off (annotation %s)", key)
		}
	}
	switch state := b.Status.Provisioning.State; {
	case b.DeletionTimestamp != nil:
		return "it is being deleted"
	case b.detached():
		return "it is detached"
	case b.unattended():
		return "it is paused"
	case !b.Spec.Online:
		return "it is to be offline"
	case b.Spec.DisablePowerOff:
		return "it must not be powered off"
	case b.Status.OperationalStatus == operationalStatusServicing:
		return "it is being serviced"
	// A host in any other state does not honour the annotation. One without a state has just been created, and reports no power.
	case state != "" && state != stateProvisioned && state != stateExternallyProvisioned:
		return "it is " + state
	}
	return ""
}

func isReboot(key string) bool {
	return key == annotationRebootBase || strings.HasPrefix(key, annotationRebootBase+"/")
}
