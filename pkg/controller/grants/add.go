// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package grants limits how many power cycles there are at a time in a seed (X8). Only the leading replica grants power cycles.
package grants

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "grants"

// requests has the one request that there is.
var requests = []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "seed"}}}

// AddToManager adds the controller to the manager, whose cache is to have those Machines only that have LabelPowerCycle.
func (r *Reconciler) AddToManager(mgr manager.Manager) error {
	r.Client = mgr.GetClient()
	r.APIReader = mgr.GetAPIReader()
	r.Clock = clock.RealClock{}

	seed := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return requests })
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		// There is one request, and never more than one at work: two would each grant what is left.
		WithOptions(pace.Options(1, time.Second, time.Minute)).
		WatchesMetadata(&machinev1alpha1.Machine{}, seed, builder.WithPredicates(MachinePredicate())).
		Complete(r)
}
