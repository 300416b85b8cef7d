// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package clusterautoscaler adds to the cluster-autoscaler of a shoot, and removes from it, the flag with which it goes on
// scaling while failed machines are preserved.
package clusterautoscaler

import (
	"context"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "clusterautoscaler"

	// Each change replaces a pod of the cluster-autoscaler. Another default of the operators, which concerns all shoots of a
	// seed, is brought to 500 of them within 17 minutes.
	changesPerMinute = 30
	changesAtOnce    = 10
)

// AddToManager adds the controller to the manager.
func (r *Reconciler) AddToManager(mgr manager.Manager) error {
	r.Client = mgr.GetClient()
	r.APIReader = mgr.GetAPIReader()
	r.Limiter = flowcontrol.NewTokenBucketRateLimiter(changesPerMinute/60., changesAtOnce)

	autoscaler := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: v1beta1constants.DeploymentNameClusterAutoscaler}}}
	})
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		// There is one worker, because it waits for the limiter.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		// With its start it sees all of them. What was written while the webhook was away, is made up for then or after the
		// next reconciliation of the shoot.
		Watches(&machinev1alpha1.MachineDeployment{}, autoscaler, builder.WithPredicates(ShareChangedPredicate())).
		Watches(&extensionsv1alpha1.Extension{}, autoscaler, builder.WithPredicates(ExtensionReconciledPredicate())).
		Complete(r)
}
