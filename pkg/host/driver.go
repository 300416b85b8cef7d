// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// Driver reads and switches the power of hosts of one kind. It wraps errors of the API server. If the API server does not serve the
// kind, the error is ErrNoKind, with the kind's name.
type Driver struct {
	Access
	Kind Kind
}

// Of returns the host of a machine from the cache, or ErrNoHost. The Owner of a request says whose it is: a request of another machine
// is not this machine's, even if that machine had the same name and the same host.
func (d *Driver) Of(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	return d.read(ctx, d.Cached, machine)
}

// Live is Of with a live read, and sets Live of the host. Whatever cannot be undone must rely on it: a cache may still say that a host
// is off when it is on again, and its node must not be made safe then (X1).
func (d *Driver) Live(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	h, err := d.read(ctx, d.APIReader, machine)
	if h != nil {
		h.Live = true
	}
	return h, err
}

// Whole reads live all objects that the host of a machine consists of, or returns ErrNoHost. It is no error if some of the objects are
// gone.
func (d *Driver) Whole(ctx context.Context, machine *machinev1alpha1.Machine) ([]unstructured.Unstructured, error) {
	object, err := d.find(ctx, d.APIReader, machine)
	if err != nil {
		return nil, err
	}
	objects := []unstructured.Unstructured{*object}
	for _, part := range d.Kind.Rest(object) {
		switch err := Get(ctx, d.APIReader, client.ObjectKeyFromObject(part), part); {
		case err == nil:
			objects = append(objects, *part)
		case !apierrors.IsNotFound(err):
			return objects, err
		}
	}
	return objects, nil
}

// NameOf returns the name by which people know the host of a machine: the name of the object that stays when the machine is deleted, if
// the cache has it. Otherwise it is the name that the machine has for its host, empty for none.
func (d *Driver) NameOf(ctx context.Context, machine *machinev1alpha1.Machine) string {
	if object, err := d.find(ctx, d.Cached, machine); err == nil {
		for _, part := range d.Kind.Rest(object) {
			return part.GetName()
		}
	}
	key, _ := d.Kind.Key(machine)
	return key.Name
}

// find returns the host object of a machine, or ErrNoHost.
func (d *Driver) find(ctx context.Context, reader client.Reader, machine *machinev1alpha1.Machine) (*unstructured.Unstructured, error) {
	kind := d.kind().Kind
	key, ok := d.Kind.Key(machine)
	if !ok {
		return nil, fmt.Errorf("%w: it names no %s", ErrNoHost, kind)
	}
	object := New(d.kind())
	if err := Get(ctx, reader, key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: there is no %s %q", ErrNoHost, kind, key)
		}
		return nil, err
	}
	if !d.isOf(object, client.ObjectKeyFromObject(machine)) {
		return nil, fmt.Errorf("%w: %s %q is that of somebody else", ErrNoHost, kind, key)
	}
	return object, nil
}

func (d *Driver) read(ctx context.Context, reader client.Reader, machine *machinev1alpha1.Machine) (*remediation.Host, error) {
	object, err := d.find(ctx, reader, machine)
	if err != nil {
		return nil, err
	}
	h, _, err := d.observe(ctx, reader, object)
	if err != nil {
		return nil, err
	}
	if h.Owner != nil && h.Owner.UID != machine.UID {
		h.OffSinceRequest = false
		if h.Requested {
			h.Taken = fmt.Sprintf("it is off for machine %s/%s, which had it before", h.Owner.Namespace, h.Owner.Machine)
		}
	}
	return h, nil
}

// PowerOff requests in one write that the host is off, on behalf of an owner, whose On it fills in. It returns a Conflict if the host
// has changed since it was read, or is not reported to be on (X1), or if it is taken, has a request (even one of the same owner), or has
// another machine.
func (d *Driver) PowerOff(ctx context.Context, before *remediation.Host, owner remediation.Owner) error {
	object, live, by, err := d.again(ctx, before, owner)
	if err != nil {
		return err
	}
	if reason := conflict(live); reason != "" {
		return d.refuse(live, reason)
	}
	owner.On = versionOf(by)
	return d.request(ctx, object, owner)
}

// conflict says why a host that was read live must not be switched off: it is not on, or it has a request, or it is taken (X1, X14).
func conflict(live *remediation.Host) string {
	switch {
	case live.Requested:
		return "it is asked to be off already"
	case live.Taken != "":
		return live.Taken
	case live.On == nil || !*live.On:
		return "it is not reported to be on"
	}
	return ""
}

// Restore gives a request that has lost its owner the same owner again, in one write (X20). It returns a Conflict if the host is
// another object, or belongs to another machine, and if the request has an owner, or nothing is left of the request.
func (d *Driver) Restore(ctx context.Context, before *remediation.Host, owner remediation.Owner) error {
	object, live, _, err := d.again(ctx, before, owner)
	switch {
	case err != nil:
		return err
	case live.Owner != nil:
		return d.refuse(live, "its request has an owner")
	case !live.Unowned:
		return d.refuse(live, "it is not asked to be off any more")
	case live.Servicing != "":
		return d.refuse(live, live.Servicing)
	}
	return d.request(ctx, object, owner)
}

// again reads live the host of an owner's machine, and the object that reports whether the host is on. It returns a Conflict if the
// host is another object than before, or does not belong to that machine.
func (d *Driver) again(ctx context.Context, before *remediation.Host, owner remediation.Owner) (*unstructured.Unstructured, *remediation.Host, metav1.Object, error) {
	object := New(d.kind())
	if err := Get(ctx, d.APIReader, client.ObjectKey{Namespace: before.Namespace, Name: before.Name}, object); err != nil {
		return nil, nil, nil, err
	}
	live, by, err := d.observe(ctx, d.APIReader, object)
	switch {
	case err != nil:
	case live.UID != before.UID:
		err = d.refuse(live, "it is another object now")
	case !d.isOf(object, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Machine}):
		err = d.refuse(live, "it is that of somebody else")
	}
	return object, live, by, err
}

func (d *Driver) refuse(h *remediation.Host, reason string) error {
	resource, _ := meta.UnsafeGuessKindToResource(d.kind())
	return apierrors.NewConflict(resource.GroupResource(), h.Name, errors.New(reason))
}

// Release takes the request back, if it is still the request of the same machine (X2). A host without a request is no error. The cycles
// that the host has had stay on it (X20). Release returns a Conflict if the host is being serviced (X18).
func (d *Driver) Release(ctx context.Context, h *remediation.Host) error {
	if h.Owner == nil {
		return nil
	}
	object := New(d.kind())
	if err := Get(ctx, d.APIReader, client.ObjectKey{Namespace: h.Namespace, Name: h.Name}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if owner := OwnerOf(object); owner == nil || owner.UID != h.Owner.UID {
		return nil
	}
	live, _, err := d.observe(ctx, d.APIReader, object)
	if err != nil {
		return err
	}
	if live.Servicing != "" {
		return d.refuse(live, live.Servicing)
	}
	return client.IgnoreNotFound(d.takeBack(ctx, object))
}

// Owned returns from the cache all hosts of the HostNamespace that the machines of a control plane own. This includes hosts whose
// request somebody else has taken back: they must be released as well.
func (d *Driver) Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error) {
	objects, err := d.list(ctx, d.kind())
	if err != nil {
		return nil, err
	}
	var owned []remediation.Host
	for i := range objects {
		if owner := OwnerOf(&objects[i]); owner == nil || owner.Seed != seed || owner.Namespace != namespace {
			continue
		}
		h, _, err := d.observe(ctx, d.Cached, &objects[i])
		if err != nil {
			return nil, err
		}
		owned = append(owned, *h)
	}
	return owned, nil
}

// Forget removes the cycles of a control plane from those hosts of the HostNamespace that have no request of it any more: nothing of the
// extension is left on them then (X15). It continues after an error.
func (d *Driver) Forget(ctx context.Context, seed, namespace string) error {
	objects, err := d.list(ctx, d.kind())
	if err != nil {
		return err
	}
	isPast := func(object *unstructured.Unstructured) bool {
		r := recordOf(object)
		return r.owner() == nil && len(r.Cycles) > 0 && r.Seed == seed && r.Namespace == namespace
	}
	var errs []error
	for i := range objects {
		if !isPast(&objects[i]) {
			continue
		}
		object := New(d.kind())
		err := Get(ctx, d.APIReader, client.ObjectKeyFromObject(&objects[i]), object)
		if err == nil && isPast(object) {
			err = d.forget(ctx, object)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// Machine returns the namespace and the name of the machine that a change of a watched object concerns, and false if it is none of the
// control plane: the machine whose request the host has, and otherwise the machine that the host is for.
func (d *Driver) Machine(ctx context.Context, object client.Object) (client.ObjectKey, bool) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return client.ObjectKey{}, false
	}
	if u = d.Kind.HostOf(ctx, d.Cached, u); u == nil {
		return client.ObjectKey{}, false
	}
	if owner := OwnerOf(u); owner != nil {
		return client.ObjectKey{Namespace: owner.Namespace, Name: owner.Machine}, owner.Namespace == d.Namespace
	}
	key, ok := d.Kind.Consumer(u, d.Namespace)
	return key, ok && key.Namespace == d.Namespace
}

func (d *Driver) kind() schema.GroupVersionKind {
	return d.Kind.Objects()[0].GetObjectKind().GroupVersionKind()
}

func (d *Driver) isOf(object *unstructured.Unstructured, machine client.ObjectKey) bool {
	consumer, ok := d.Kind.Consumer(object, d.Namespace)
	return ok && consumer == machine
}

// observe returns the host that an object is, and the object that reports whether the host is on.
func (d *Driver) observe(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) (*remediation.Host, metav1.Object, error) {
	report, err := d.Kind.Report(ctx, reader, object)
	if err != nil {
		return nil, nil, err
	}
	r := recordOf(object)
	h := &remediation.Host{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		On: report.On, Requested: isRequested(object), Owner: r.owner(), Unowned: r.owner() == nil && report.Unowned,
		Changed: report.Changed, Servicing: report.Servicing, Error: brief.Cut(report.Error), Cycles: r.Cycles, Taken: report.Taken,
	}
	switch {
	case h.Requested && h.Owner == nil:
		h.Taken = TakenBy(v1alpha1.AnnotationReboot)
	case object.GetDeletionTimestamp() != nil:
		h.Taken = "it is being deleted"
	case h.Taken == "" && h.Namespace != d.HostNamespace: // Owned would not return it, and nobody would take its request back
		h.Taken = fmt.Sprintf("it is in namespace %s, hosts are looked for in %s", h.Namespace, d.HostNamespace)
	case h.Taken == "" && h.Error != "":
		h.Taken = "its operator reports: " + h.Error
	case h.Taken == "":
		h.Taken = h.Servicing
	}
	h.OffSinceRequest = h.Requested && h.Owner != nil && report.IsAsked && h.On != nil && !*h.On && isLater(report.By, h.Owner.On)
	return h, report.By, nil
}
