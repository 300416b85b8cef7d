// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package ironcore is the driver of hosts that are ServerClaims of the metal-operator of IronCore, and the Servers that these are
// bound to. It needs nothing of them but what is declared here.
package ironcore

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	// Kind is that of the hosts.
	Kind = "ServerClaim"

	providerScheme = "ironcore-metal://"

	// annotationOperation with one of the values ignored says that nobody acts on the object.
	annotationOperation = "metal.ironcore.dev/operation"

	powerOn, powerOff = "On", "Off"
	stateReserved     = "Reserved"
	stateMaintenance  = "Maintenance"
)

var (
	version = schema.GroupVersion{Group: "metal.ironcore.dev", Version: "v1alpha1"}
	// claims are namespaced, and servers are not.
	claimKind  = version.WithKind(Kind)
	serverKind = version.WithKind("Server")
	resource   = schema.GroupResource{Group: version.Group, Resource: "serverclaims"}

	ignored = []string{"ignore-reconciliation", "ignore-reconciliation-propagated", "ignore-child-and-self-reconciliation"}
)

// serverClaim is what is read of one.
type serverClaim struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Power     string                       `json:"power"`
		ServerRef *corev1.LocalObjectReference `json:"serverRef"`
	} `json:"spec"`
}

// server is what is read of one.
type server struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Power          string `json:"power"`
		ServerClaimRef *struct {
			Namespace string    `json:"namespace"`
			Name      string    `json:"name"`
			UID       types.UID `json:"uid"`
		} `json:"serverClaimRef"`
		ServerMaintenanceRef *struct {
			Name string `json:"name"`
		} `json:"serverMaintenanceRef"`
	} `json:"spec"`
	Status struct {
		PowerState string `json:"powerState"`
		State      string `json:"state"`
	} `json:"status"`
}

// ByObject returns what a cache has to keep of ServerClaims and Servers. Nothing that is read is changed.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		host.New(claimKind): {UnsafeDisableDeepCopy: new(true), Transform: host.Strip(
			func(key string) bool {
				return slices.Contains([]string{v1alpha1.AnnotationReboot, v1alpha1.AnnotationHostOwner, annotationOperation}, key)
			},
			"spec.power", "spec.serverRef",
		)},
		host.New(serverKind): {UnsafeDisableDeepCopy: new(true), Transform: host.Strip(
			func(key string) bool { return key == annotationOperation },
			"spec.power", "spec.serverClaimRef.namespace", "spec.serverClaimRef.name", "spec.serverClaimRef.uid", "spec.serverMaintenanceRef.name",
			"status.powerState", "status.state",
		)},
	}
}

// Mapper returns a mapper that knows the kinds without asking an API server.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{version})
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{claimKind: meta.RESTScopeNamespace, serverKind: meta.RESTScopeRoot} {
		mapper.Add(kind, scope)
		mapper.Add(version.WithKind(kind.Kind+"List"), scope)
	}
	return mapper
}

// PolicyRules returns what the driver must be allowed in the namespaces of the ServerClaims.
func PolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{version.Group}, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "patch"}}}
}

// ClusterPolicyRules returns what the driver must be allowed beside that: Servers are in no namespace.
func ClusterPolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{version.Group}, Resources: []string{"servers"}, Verbs: []string{"get", "list", "watch"}}}
}

// Driver implements host.Driver.
type Driver struct{ host.Access }

var _ host.Driver = &Driver{}

// Key returns the ServerClaim of the machine's provider id.
func (*Driver) Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool) {
	id, ok := strings.CutPrefix(machine.Spec.ProviderID, providerScheme)
	namespace, name, both := strings.Cut(id, "/")
	if !ok || !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, true
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
	if key.Name != machine.Name {
		return nil, fmt.Errorf("%w: %s %q is that of another machine", host.ErrForeign, Kind, key)
	}
	object := host.New(claimKind)
	if err := host.Get(ctx, reader, key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: there is no %s %q", host.ErrNoHost, Kind, key)
		}
		return nil, err
	}
	h, _, err := observe(ctx, reader, object)
	if err != nil {
		return nil, err
	}
	return host.For(machine, h), nil
}

// PowerOff annotates the claim of a Server that is on, and changes its power.
func (d *Driver) PowerOff(ctx context.Context, before *remediation.Host, owner remediation.Owner) error {
	object := host.New(claimKind)
	if err := host.Get(ctx, d.APIReader, client.ObjectKey{Namespace: before.Namespace, Name: before.Name}, object); err != nil {
		return err
	}
	live, on, err := observe(ctx, d.APIReader, object)
	if err != nil {
		return err
	}
	if owner.Machine != before.Name {
		live.Taken = "it is that of another machine"
	}
	if err := host.Changed(resource, before, live); err != nil {
		return err
	}
	owner.On = host.VersionOf(on)
	return d.Request(ctx, object, owner, "", setPower(powerOff))
}

// Release removes the annotations, and changes the power back.
func (d *Driver) Release(ctx context.Context, h *remediation.Host) error {
	object := host.New(claimKind)
	object.SetNamespace(h.Namespace)
	object.SetName(h.Name)
	return d.TakeBack(ctx, object, h, setPower(powerOn))
}

func setPower(power string) func(*unstructured.Unstructured) error {
	return func(claim *unstructured.Unstructured) error {
		return unstructured.SetNestedField(claim.Object, power, "spec", "power")
	}
}

// Owned returns the hosts with an owner in a control plane.
func (d *Driver) Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error) {
	objects, err := host.List(ctx, d.Cached, claimKind, d.HostNamespace)
	if err != nil {
		return nil, err
	}
	var owned []remediation.Host
	for i := range objects {
		if owner := host.OwnerOf(&objects[i]); owner == nil || owner.Seed != seed || owner.Namespace != namespace {
			continue
		}
		h, _, err := observe(ctx, d.Cached, &objects[i])
		if err != nil {
			return nil, err
		}
		owned = append(owned, *h)
	}
	return owned, nil
}

// Objects returns a ServerClaim and a Server.
func (*Driver) Objects() []client.Object {
	return []client.Object{host.New(claimKind), host.New(serverKind)}
}

// Machine returns the machine that has the name of a claim, or of that of a Server.
func (d *Driver) Machine(ctx context.Context, object client.Object) (client.ObjectKey, bool) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return client.ObjectKey{}, false
	}
	if u.GetKind() == serverKind.Kind {
		s := &server{}
		if err := host.Convert(u, s); err != nil || s.Spec.ServerClaimRef == nil {
			return client.ObjectKey{}, false
		}
		// All other Servers are those of claims that are out of reach.
		u = host.New(claimKind)
		if err := host.Get(ctx, d.Cached, client.ObjectKey{Namespace: s.Spec.ServerClaimRef.Namespace, Name: s.Spec.ServerClaimRef.Name}, u); err != nil {
			return client.ObjectKey{}, false
		}
	}
	if owner := host.OwnerOf(u); owner != nil && owner.Namespace != d.Namespace {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: d.Namespace, Name: u.GetName()}, true
}

// observe returns the host that a claim is, and its Server, nil if there is none. The Server is read after the claim: what it
// reports is never older than the request.
func observe(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) (*remediation.Host, *server, error) {
	claim := &serverClaim{}
	if err := host.Convert(object, claim); err != nil {
		return nil, nil, err
	}
	h := &remediation.Host{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		Requested: host.IsRequested(claim), Owner: host.OwnerOf(claim),
	}
	s, err := claim.server(ctx, reader)
	if err != nil {
		return nil, nil, err
	}
	if h.Taken = claim.taken(s); s == nil || isIgnored(s) {
		return h, s, nil
	}
	switch {
	case s.Status.PowerState == powerOn:
		h.On = new(true)
	case s.isOff():
		h.On = new(false)
	}
	h.OffSinceRequest = h.Requested && h.Owner != nil && h.On != nil && !*h.On &&
		claim.Spec.Power == powerOff && s.isOf(claim) && host.IsLater(s, h.Owner.On)
	return h, s, nil
}

// server returns the Server of a claim, nil if it has none.
func (c *serverClaim) server(ctx context.Context, reader client.Reader) (*server, error) {
	if c.Spec.ServerRef == nil {
		return nil, nil
	}
	object := host.New(serverKind)
	if err := host.Get(ctx, reader, client.ObjectKey{Name: c.Spec.ServerRef.Name}, object); err != nil {
		if errors.Is(err, host.ErrNoKind) {
			return nil, err
		}
		return nil, client.IgnoreNotFound(err)
	}
	s := &server{}
	return s, host.Convert(object, s)
}

// taken says whose the host is if it is not ours to cycle (X14).
func (c *serverClaim) taken(s *server) string {
	ours := host.OwnerOf(c) != nil
	switch {
	case host.IsRequested(c) && !ours:
		return fmt.Sprintf("somebody else asks for it to be off (annotation %s)", v1alpha1.AnnotationReboot)
	case c.DeletionTimestamp != nil:
		return "it is being deleted"
	case c.Spec.Power != powerOn && !ours:
		return "somebody else keeps it off"
	case s == nil:
		return "it is bound to no Server"
	case !s.isOf(c):
		return "its Server is that of another " + Kind
	case isIgnored(c), isIgnored(s):
		return "it is parked"
	case s.Spec.ServerMaintenanceRef != nil, s.Status.State == stateMaintenance:
		return "its Server is in maintenance"
	case s.Status.State != stateReserved:
		return fmt.Sprintf("its Server is not %s but %q", stateReserved, s.Status.State)
	}
	return ""
}

func (s *server) isOf(claim *serverClaim) bool {
	ref := s.Spec.ServerClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Name == claim.Name && ref.Namespace == claim.Namespace
}

// isOff says that the Server is off and stays off: it is reported so while it is on its way to be powered on as well (X1).
func (s *server) isOff() bool {
	return s.Status.State == stateReserved && s.Spec.Power == powerOff && s.Status.PowerState == powerOff
}

func isIgnored(object metav1.Object) bool {
	return slices.Contains(ignored, object.GetAnnotations()[annotationOperation])
}
