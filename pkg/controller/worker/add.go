// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package worker writes the settings of worker pools on the MachineDeployments of their zones.
package worker

import (
	"context"
	"fmt"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ControllerName is the name of the controller.
const ControllerName = "worker"

// AddToManager adds the controller to the manager.
func (r *Reconciler) AddToManager(mgr manager.Manager, options controller.Options) error {
	r.Client = mgr.GetClient()
	r.APIReader = mgr.GetAPIReader()
	r.Clock = clock.RealClock{}
	r.Recorder = mgr.GetEventRecorder("machine-preservation-" + ControllerName)

	sameNamespace := handler.EnqueueRequestsFromMapFunc(r.workersOfNamespace)
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&extensionsv1alpha1.Worker{}, builder.WithPredicates(WorkerPredicate())).
		Watches(&extensionsv1alpha1.Extension{}, sameNamespace, builder.WithPredicates(ExtensionPredicate())).
		Watches(&machinev1alpha1.MachineDeployment{}, sameNamespace, builder.WithPredicates(MachineDeploymentPredicate())).
		Watches(&machinev1alpha1.MachineClass{}, sameNamespace, builder.WithPredicates(MachineClassPredicate())).
		Complete(r)
}

func (r *Reconciler) workersOfNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	workers := &extensionsv1alpha1.WorkerList{}
	if err := r.Client.List(ctx, workers, client.InNamespace(object.GetNamespace())); err != nil {
		logf.FromContext(ctx).Error(fmt.Errorf("failed to list Workers: %w", err), "Cannot map object to Workers", "object", client.ObjectKeyFromObject(object))
		return nil
	}

	requests := make([]reconcile.Request, 0, len(workers.Items))
	for i := range workers.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&workers.Items[i])})
	}
	return requests
}
