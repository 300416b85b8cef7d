// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package ironcore knows hosts that are ServerClaims of IronCore's metal-operator, and the Servers that they are bound to. It
// declares the fields that it needs. The same code reads v0.3.0, v0.7.0 and later versions: where they differ, a comment names the
// version.
package ironcore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
)

const (
	providerScheme = "ironcore-metal://"

	// annotationOperation with one of the values ignored says that nobody acts on the object. Any other value on a Server is what
	// the metal-operator does next.
	annotationOperation = "metal.ironcore.dev/operation"
	operationPark       = "park" // since v0.7.0
	// annotationParked says, before the state does, that the Server has been left to somebody else. Since v0.7.0.
	annotationParked = "metal.ironcore.dev/parked"

	powerOn, powerOff = "On", "Off"
	stateReserved     = "Reserved"
	stateError        = "Error"       // no version sets this automatically
	stateMaintenance  = "Maintenance" // until v0.7.0
	stateParked       = "Parked"      // since v0.7.0

	subresourceStatus = "status"
)

var (
	version = schema.GroupVersion{Group: "metal.ironcore.dev", Version: "v1alpha1"}
	// Claims are namespaced, Servers are not.
	claimKind  = version.WithKind("ServerClaim")
	serverKind = version.WithKind("Server")
	resource   = schema.GroupResource{Group: version.Group, Resource: "serverclaims"}

	pathUnclaimable = []string{"spec", "unclaimable"}

	ignored = []string{
		"ignore-reconciliation", "ignore-reconciliation-propagated", "ignore-child-and-self-reconciliation", // v0.3.0
		"ignore",                                     // since v0.7.0
		"ignore-propagated", "ignore-child-and-self", // v0.7.0
	}
)

// serverClaim has the fields of a ServerClaim that are read.
type serverClaim struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Power     string                       `json:"power"`
		ServerRef *corev1.LocalObjectReference `json:"serverRef"`
	} `json:"spec"`
}

// server has the fields of a Server that are read.
type server struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		// Power is the claim's power, copied to the Server. After v0.7.0 it is emptied, and later removed: the claim counts, and the
		// former value means nothing.
		Power          string `json:"power"`
		ServerClaimRef *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			// UID is in v0.3.0 only.
			UID types.UID `json:"uid"`
		} `json:"serverClaimRef"`
		// ServerMaintenanceRef is there until v0.7.0.
		ServerMaintenanceRef *struct {
			Name string `json:"name"`
		} `json:"serverMaintenanceRef"`
	} `json:"spec"`
	Status struct {
		PowerState string `json:"powerState"`
		State      string `json:"state"`
	} `json:"status"`
}

// ByObject returns what a cache must store of ServerClaims and Servers. Readers must not change what they get.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		host.New(claimKind): {UnsafeDisableDeepCopy: new(true), Transform: host.Strip(
			func(key string) bool {
				return slices.Contains([]string{v1alpha1.AnnotationReboot, v1alpha1.AnnotationHostOwner, annotationOperation}, key)
			},
			"spec.power", "spec.serverRef",
		)},
		host.New(serverKind): {UnsafeDisableDeepCopy: new(true), Transform: keepingChanged(host.Strip(
			func(key string) bool {
				return slices.Contains([]string{annotationOperation, annotationParked, v1alpha1.AnnotationHostFailures}, key)
			},
			"spec.power", "spec.unclaimable", "spec.serverClaimRef.namespace", "spec.serverClaimRef.name", "spec.serverClaimRef.uid", "spec.serverMaintenanceRef.name",
			"status.powerState", "status.state",
		))},
	}
}

// keepingChanged returns a transform that also keeps the time of the last write of the status. It does not keep which fields were
// written.
func keepingChanged(strip toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		stripped, err := strip(obj)
		before, ok := obj.(*unstructured.Unstructured)
		if err != nil || !ok {
			return stripped, err
		}
		if at := changed(before); !at.IsZero() {
			stripped.(*unstructured.Unstructured).SetManagedFields([]metav1.ManagedFieldsEntry{{Subresource: subresourceStatus, Time: &at}})
		}
		return stripped, nil
	}
}

// changed returns when the status of an object was last written, according to the API server, zero if it does not say. The power does
// not change without such a write, but other changes write the status, too.
func changed(object metav1.Object) metav1.Time {
	var last metav1.Time
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == subresourceStatus && entry.Time != nil && entry.Time.After(last.Time) {
			last = *entry.Time
		}
	}
	return last
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

// PolicyRules returns the permissions that a driver needs in the namespaces of the ServerClaims.
func PolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{version.Group}, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "patch"}}}
}

// ClusterPolicyRules returns the permissions that a driver needs in addition, because Servers are in no namespace.
func ClusterPolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{version.Group}, Resources: []string{"servers"}, Verbs: []string{"get", "list", "watch"}}}
}

// QuarantinePolicyRules returns the permissions that are needed in addition to put Servers into quarantine.
func QuarantinePolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{version.Group}, Resources: []string{"servers"}, Verbs: []string{"patch"}}}
}

// Kind implements host.Kind.
type Kind struct{}

var (
	_ host.Kind         = Kind{}
	_ host.Quarantining = Kind{}
)

// Objects returns a ServerClaim and a Server.
func (Kind) Objects() []client.Object {
	return []client.Object{host.New(claimKind), host.New(serverKind)}
}

// Key returns the ServerClaim that the machine's provider ID names.
func (Kind) Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool) {
	id, ok := strings.CutPrefix(machine.Spec.ProviderID, providerScheme)
	namespace, name, both := strings.Cut(id, "/")
	if !ok || !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, true
}

// HostOf returns a claim itself, or the claim of a Server. The claims of all other Servers cannot be read.
func (Kind) HostOf(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) *unstructured.Unstructured {
	if object.GetKind() != serverKind.Kind {
		return object
	}
	s := &server{}
	if err := host.Convert(object, s); err != nil || s.Spec.ServerClaimRef == nil {
		return nil
	}
	claim := host.New(claimKind)
	if err := host.Get(ctx, reader, client.ObjectKey{Namespace: s.Spec.ServerClaimRef.Namespace, Name: s.Spec.ServerClaimRef.Name}, claim); err != nil {
		return nil
	}
	return claim
}

// Rest returns the Server of a claim.
func (Kind) Rest(object *unstructured.Unstructured) []*unstructured.Unstructured {
	claim := &serverClaim{}
	if err := host.Convert(object, claim); err != nil || claim.Spec.ServerRef == nil {
		return nil
	}
	s := host.New(serverKind)
	s.SetName(claim.Spec.ServerRef.Name)
	return []*unstructured.Unstructured{s}
}

// Consumer returns the machine that has the name of the claim.
func (Kind) Consumer(claim *unstructured.Unstructured, namespace string) (client.ObjectKey, bool) {
	return client.ObjectKey{Namespace: namespace, Name: claim.GetName()}, true
}

// Report returns what the Server of a claim says. It reads the Server after the claim, so the report is never older than the request.
func (Kind) Report(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) (host.Report, error) {
	claim := &serverClaim{}
	if err := host.Convert(object, claim); err != nil {
		return host.Report{}, err
	}
	s, err := claim.server(ctx, reader)
	if err != nil {
		return host.Report{}, err
	}
	report := host.Report{
		Unowned: claim.Spec.Power == powerOff || metav1.HasAnnotation(claim.ObjectMeta, v1alpha1.AnnotationReboot),
		Taken:   claim.taken(s),
	}
	if s == nil {
		return report, nil
	}
	report.Changed = changed(s).Time
	if s.isOf(claim) {
		report.Servicing, report.Error = s.servicing(), s.error()
	}
	if isIgnored(s) || s.isParked() { // its report may be old
		return report, nil
	}
	switch {
	case s.Status.PowerState == powerOn:
		report.On = new(true)
	case s.isOff(claim):
		report.On = new(false)
	}
	report.By, report.IsAsked = s, claim.Spec.Power == powerOff && s.isOf(claim)
	return report, nil
}

// Switch changes the power.
func (Kind) Switch(claim *unstructured.Unstructured, on bool) error {
	power := powerOff
	if on {
		power = powerOn
	}
	return unstructured.SetNestedField(claim.Object, power, "spec", "power")
}

// Lasting is a Server: its claim is deleted with the machine.
func (Kind) Lasting() schema.GroupVersionKind { return serverKind }

// IsBound says whether a Server belongs to a claim.
func (Kind) IsBound(object, lasting *unstructured.Unstructured) bool {
	claim, s := &serverClaim{}, &server{}
	return host.Convert(object, claim) == nil && host.Convert(lasting, s) == nil && s.isOf(claim)
}

// IsQuarantined says whether no new claim is bound to a Server.
func (Kind) IsQuarantined(lasting *unstructured.Unstructured) bool {
	unclaimable, _, err := unstructured.NestedBool(lasting.Object, pathUnclaimable...)
	return err == nil && unclaimable
}

// IsServiced says whether a Server is in maintenance or parked, or is about to be parked.
func (Kind) IsServiced(lasting *unstructured.Unstructured) bool {
	s := &server{}
	return host.Convert(lasting, s) == nil && s.servicing() != ""
}

// Quarantine leaves a claim alone that is bound already. The field exists since v0.7.0.
func (Kind) Quarantine(lasting *unstructured.Unstructured) error {
	return unstructured.SetNestedField(lasting.Object, true, pathUnclaimable...)
}

// server returns the Server of a claim, nil if it has none.
func (c *serverClaim) server(ctx context.Context, reader client.Reader) (*server, error) {
	if c.Spec.ServerRef == nil {
		return nil, nil
	}
	object := host.New(serverKind)
	if err := host.Get(ctx, reader, client.ObjectKey{Name: c.Spec.ServerRef.Name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	s := &server{}
	return s, host.Convert(object, s)
}

// taken says why the host must not be cycled (X14), no matter which machine has the request of ours. Servicing and errors are reported
// separately.
func (c *serverClaim) taken(s *server) string {
	switch {
	case c.Spec.Power != powerOn && host.OwnerOf(c) == nil:
		return "somebody else keeps it off"
	case s == nil:
		return "it is bound to no Server"
	case !s.isOf(c):
		return "its Server is that of another " + claimKind.Kind
	case isIgnored(c), isIgnored(s):
		return "nobody acts on it (annotation " + annotationOperation + ")"
	case s.servicing() != "", s.error() != "":
		return ""
	case s.operation() != "":
		return fmt.Sprintf("its Server is about to do %q", s.operation())
	case s.Status.State != stateReserved:
		return fmt.Sprintf("its Server is not %s but %q", stateReserved, s.Status.State)
	}
	return ""
}

// servicing says in words that somebody works on the Server, or is about to, and may power it off and on meanwhile; empty for nobody.
func (s *server) servicing() string {
	switch {
	case s.Spec.ServerMaintenanceRef != nil, s.Status.State == stateMaintenance:
		return "its Server is in maintenance"
	case s.isParked():
		return "its Server is parked"
	case s.operation() == operationPark:
		return "its Server is about to be parked"
	}
	return ""
}

// error says that something is wrong with the Server. No version has a condition for it.
func (s *server) error() string {
	if s.Status.State == stateError {
		return "its Server is in state " + stateError
	}
	return ""
}

func (s *server) isOf(claim *serverClaim) bool {
	ref := s.Spec.ServerClaimRef
	return ref != nil && (ref.UID == claim.UID || ref.UID == "") && ref.Name == claim.Name && ref.Namespace == claim.Namespace
}

// isOff says whether the Server is off and stays off. A Server is reported off also while it is about to be powered on (X1). It stays
// off if nothing requests anything else: neither its claim, which counts after v0.7.0, nor its own power, which follows the claim later
// in v0.3.0 and v0.7.0, nor an operation, because most operations reset the Server. One race is left in all versions: if the
// metal-operator finds the Server off and has not seen the claim's power yet, it powers the Server on once more, and off right after.
// No object shows that.
func (s *server) isOff(claim *serverClaim) bool {
	return s.Status.State == stateReserved && s.Status.PowerState == powerOff &&
		s.isOf(claim) && claim.Spec.Power == powerOff && s.Spec.Power != powerOn &&
		s.operation() == "" && s.Spec.ServerMaintenanceRef == nil
}

func (s *server) isParked() bool {
	_, parked := s.Annotations[annotationParked]
	return parked || s.Status.State == stateParked
}

func (s *server) operation() string { return s.Annotations[annotationOperation] }

func isIgnored(object metav1.Object) bool {
	return slices.Contains(ignored, object.GetAnnotations()[annotationOperation])
}
