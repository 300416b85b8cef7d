// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package injection has the webhook called again where the preservation controller is missing from, or outdated in, the
// Deployment of machine-controller-manager.
package injection

import (
	"context"
	"fmt"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "injection"

	// Each repair replaces a pod of machine-controller-manager. A new version of the extension is so brought to 500 shoots
	// within 17 minutes; what concerns a few shoots only is not delayed.
	repairsPerMinute = 30
	repairsAtOnce    = 10

	// The webhook's caches see within milliseconds what this controller's have seen. If that is not what it waits for, it
	// may be long.
	firstRetry = time.Second
	lastRetry  = 10 * time.Minute
)

// AddToManager adds the controller to the manager. Fields of the Reconciler that have a default get it.
func (r *Reconciler) AddToManager(mgr manager.Manager, schemas *machinecrd.Schemas) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Limiter == nil {
		r.Limiter = flowcontrol.NewTokenBucketRateLimiter(repairsPerMinute/60., repairsAtOnce)
	}

	sameNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(object.GetNamespace())}
	})
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		// There is one worker, as it waits for the limiter. While it does, the queue lets what happens now go before what
		// was found at the start.
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		For(&appsv1.Deployment{}, builder.WithPredicates(DeploymentPredicate())).
		Watches(&extensionsv1alpha1.Extension{}, sameNamespace, builder.WithPredicates(worker.ExtensionPredicate())).
		WatchesMetadata(&corev1.Secret{}, sameNamespace, builder.WithPredicates(AccessSecretPredicate())).
		WatchesRawSource(schemas.MachinesSource(r.all)).
		Complete(r)
}

// all returns a request for each Deployment: the definition of Machines decides on how they are held.
func (r *Reconciler) all(ctx context.Context, _ *apiextensionsv1.CustomResourceDefinition) []reconcile.Request {
	deployments := &appsv1.DeploymentList{}
	if err := r.Client.List(ctx, deployments); err != nil {
		logf.FromContext(ctx).Error(fmt.Errorf("failed to list Deployments: %w", err), "Cannot look after all shoots")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(deployments.Items))
	for i := range deployments.Items {
		requests = append(requests, requestFor(deployments.Items[i].Namespace))
	}
	return requests
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}}
}
