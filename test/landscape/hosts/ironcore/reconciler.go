// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
)

const (
	// bindTime is for how long metal-operator may bind the claim of a machine to a Server that is there.
	bindTime = 10 * time.Second
	// listTime is for how long machine-controller-manager may go on with a list of Pods that it has made: it deletes orphans one by one,
	// which takes five seconds each. There is none, so that one is enough.
	listTime = 6 * time.Second
)

// reconciler gives a machine a host, and switches it.
type reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	bmcs   bmcStarter
	// ignore is what keeps metal-operator from a Server.
	ignore string
}

type bmcStarter interface {
	// start starts the BMC of a Server, unless it runs, and returns its port.
	start(ctx context.Context, server string) (int, error)
	stop(ctx context.Context, server string) error
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	machine := &machinev1alpha1.Machine{}
	if err := r.client.Get(ctx, request.NamespacedName, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, r.remove(ctx, request.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("could not read the machine: %w", err)
	}
	wait, err := r.identify(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	server, err := r.provision(ctx, request.NamespacedName)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case server == nil:
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err := r.boot(ctx, request.NamespacedName); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, r.follow(ctx, request.NamespacedName, server)
}

// identify gives a machine the provider id that it would have from machine-controller-manager's provider for ironcore, as soon as
// it has one. Its Pod is taken away from those before that which provider-local lists: machine-controller-manager would delete
// it, as one that belongs to no machine with its id. It returns how long to wait until no list has the Pod any more.
func (r *reconciler) identify(ctx context.Context, machine *machinev1alpha1.Machine) (wait time.Duration, err error) {
	id := providerScheme + client.ObjectKeyFromObject(machine).String()
	if machine.DeletionTimestamp != nil || machine.Spec.ProviderID == "" || machine.Spec.ProviderID == id {
		return 0, nil
	}
	pod, err := hosts.Machine(ctx, r.client, client.ObjectKeyFromObject(machine))
	if err != nil || pod == nil {
		return 0, err
	}
	now := r.clock.Now()
	since, err := time.Parse(time.RFC3339Nano, pod.Annotations[annotationUnlisted])
	if err != nil {
		unlisted := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:%q}}}`, labelListed, annotationUnlisted, now.Format(time.RFC3339Nano))
		if err := r.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, unlisted)); err != nil {
			return 0, fmt.Errorf("could not keep the pod of the machine from being listed: %w", err)
		}
		since = now
	}
	if wait := since.Add(listTime).Sub(now); wait > 0 {
		return wait, nil
	}
	before := machine.DeepCopy()
	machine.Spec.ProviderID = id
	if err := r.client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return 0, fmt.Errorf("could not write the provider id: %w", err)
	}
	return 0, nil
}

// provision makes claim and Server, and returns the Server. metal-operator does not see the Server before it is discovered. Where there
// are Servers that last, metal-operator may give the machine one of these instead. As long as that is open, there is none.
func (r *reconciler) provision(ctx context.Context, machine client.ObjectKey) (*unstructured.Unstructured, error) {
	claim, server := NewServerClaim(machine), NewServer(machine)
	if err := r.ensure(ctx, claim, func() error {
		lasting, err := r.areLasting(ctx)
		if lasting {
			specifyClaim(claim, "")
		} else {
			specifyClaim(claim, server.GetName())
		}
		return err
	}); err != nil {
		return nil, err
	}
	switch bound := serverOf(claim); {
	case bound == "" && r.clock.Since(claim.GetCreationTimestamp().Time) < bindTime:
		return nil, nil
	case bound == "":
		own := fmt.Appendf(nil, `{"spec":{"serverRef":{"name":%q}}}`, server.GetName())
		if err := r.client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, own)); err != nil {
			return nil, fmt.Errorf("could not ask for a Server of its own: %w", err)
		}
	case bound != server.GetName():
		server = newObject(kindServer, client.ObjectKey{Name: bound})
		return server, r.client.Get(ctx, client.ObjectKeyFromObject(server), server)
	}
	if err := r.ensure(ctx, server, func() error {
		secret := newObject(kindBMCSecret, client.ObjectKey{Name: secretName})
		if err := r.ensure(ctx, secret, func() error {
			return unstructured.SetNestedStringMap(secret.Object, map[string]string{"username": secretName64, "password": secretName64}, "data")
		}); err != nil {
			return err
		}
		port, err := r.bmcs.start(ctx, server.GetName())
		specifyServer(server, claim, r.ignore, port)
		return err
	}); err != nil {
		return nil, err
	}
	if server.GetAnnotations()[annotationOperation] != r.ignore {
		return server, nil
	}
	if err := r.patchStatus(ctx, server, `{"status":{"state":"Reserved","powerState":"On"}}`); err != nil {
		return nil, err
	}
	discovered := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, annotationOperation)
	if err := r.client.Patch(ctx, server, client.RawPatch(types.MergePatchType, discovered)); err != nil {
		return nil, fmt.Errorf("could not hand over Server %s: %w", server.GetName(), err)
	}
	return server, nil
}

// areLasting says that there are Servers that stay when their machines go.
func (r *reconciler) areLasting(ctx context.Context) (bool, error) {
	servers := &unstructured.UnstructuredList{}
	servers.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kindServer+"List"))
	err := r.client.List(ctx, servers)
	return slices.ContainsFunc(servers.Items, func(s unstructured.Unstructured) bool { return isLasting(&s) }), err
}

func isLasting(server *unstructured.Unstructured) bool {
	return server.GetAnnotations()[AnnotationLasting] != ""
}

// ensure reads the object, or creates it as it is specified.
func (r *reconciler) ensure(ctx context.Context, object *unstructured.Unstructured, specify func() error) error {
	err := r.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := specify(); err != nil {
		return err
	}
	if err := r.client.Create(ctx, object); err != nil {
		return fmt.Errorf("could not create %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// boot reports a boot configuration as ready, which the boot operator would do.
func (r *reconciler) boot(ctx context.Context, machine client.ObjectKey) error {
	configuration := newObject(kindBootConfiguration, machine)
	if err := r.client.Get(ctx, machine, configuration); err != nil {
		return client.IgnoreNotFound(err)
	}
	if state, _, _ := unstructured.NestedString(configuration.Object, "status", "state"); state == "Ready" {
		return nil
	}
	return r.patchStatus(ctx, configuration, `{"status":{"state":"Ready"}}`)
}

// follow switches the machine as its Server reports it.
func (r *reconciler) follow(ctx context.Context, machine client.ObjectKey, server *unstructured.Unstructured) error {
	state, _, _ := unstructured.NestedString(server.Object, "status", "powerState")
	if has, _ := machineOf(server); has != machine || state != "On" && state != "Off" {
		return nil
	}
	pod, err := hosts.Machine(ctx, r.client, machine)
	if err != nil || pod == nil {
		return err
	}
	_, err = hosts.MisbehaviourOf(server).Switch(ctx, r.client, pod, state == "On", r.clock.Now())
	return err
}

// remove takes away the claim, after which metal-operator frees the Server, then the Server, and then its BMC, unless it lasts.
func (r *reconciler) remove(ctx context.Context, machine client.ObjectKey) error {
	server := NewServer(machine)
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(server), server); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not read the Server: %w", err)
	}
	if isLasting(server) {
		return client.IgnoreNotFound(r.client.Delete(ctx, NewServerClaim(machine)))
	}
	for _, object := range []*unstructured.Unstructured{NewServerClaim(machine), server} {
		err := r.client.Delete(ctx, object)
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("could not delete %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return r.bmcs.stop(ctx, server.GetName())
}

func (r *reconciler) patchStatus(ctx context.Context, object *unstructured.Unstructured, patch string) error {
	if err := r.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not write the status of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
