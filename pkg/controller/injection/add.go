// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package injection triggers the webhook again if the preservation controller is missing or outdated in the Deployment of
// machine-controller-manager.
package injection

import (
	"context"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "injection"

	// The webhook's caches see within milliseconds what this controller's have seen. If that is not what it waits for, it
	// may be long.
	firstRetry = time.Second
	lastRetry  = 10 * time.Minute
)

// requests has the one request that there is.
var requests = []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "seed"}}}

// AddToManager adds the controller to the manager.
func (r *Reconciler) AddToManager(mgr manager.Manager, schemas *machinecrd.Schemas) error {
	r.Client = mgr.GetClient()
	r.APIReader = mgr.GetAPIReader()
	r.Clock = clock.RealClock{}
	r.Backoff = flowcontrol.NewBackOff(firstRetry, lastRetry)

	seed := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return requests })
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		// The waves are those of the seed: there is one request, and never more than one at work.
		WithOptions(pace.Options(1, firstRetry, pause)).
		Watches(&appsv1.Deployment{}, seed, builder.WithPredicates(DeploymentPredicate())).
		Watches(&extensionsv1alpha1.Extension{}, seed, builder.WithPredicates(worker.ExtensionPredicate())).
		WatchesMetadata(&corev1.Secret{}, seed, builder.WithPredicates(AccessSecretPredicate())).
		WatchesRawSource(schemas.MachinesSource(func(context.Context, *apiextensionsv1.CustomResourceDefinition) []reconcile.Request {
			return requests // the definition of Machines decides on how they are held
		})).
		Complete(r)
}
