// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// provisioner gives each Machine a host.
type provisioner struct {
	client client.Client
}

// Reconcile implements reconcile.Reconciler.
func (p *provisioner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	machine, host := &machinev1alpha1.Machine{}, New(request.NamespacedName)
	if err := p.client.Get(ctx, request.NamespacedName, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, p.release(ctx, host)
		}
		return reconcile.Result{}, fmt.Errorf("could not read the machine: %w", err)
	}
	if _, err := controllerutil.CreateOrPatch(ctx, p.client, host, func() error { use(host, machine); return nil }); err != nil {
		return reconcile.Result{}, fmt.Errorf("could not provision the host: %w", err)
	}
	before := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, AnnotationHost, client.ObjectKeyFromObject(host).String())
	if err := p.client.Patch(ctx, machine, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("could not tell the machine its host: %w", err)
	}
	return reconcile.Result{}, nil
}

// release keeps the host, so that what is left of the Machine on it can be seen.
func (p *provisioner) release(ctx context.Context, host *unstructured.Unstructured) error {
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(host), host); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := host.DeepCopy()
	unstructured.RemoveNestedField(host.Object, "spec", "consumerRef")
	if err := p.client.Patch(ctx, host, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not release the host: %w", err)
	}
	return nil
}
