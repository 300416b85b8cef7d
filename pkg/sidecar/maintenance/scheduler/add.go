// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "nodemaintenance-scheduler"

// minRetry is after which time what failed is tried again at first.
const minRetry = 100 * time.Millisecond

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes, maintenances *maintenance.Maintenances) error {
	r.Source = mgr.GetClient()
	r.Shoot = maintenances
	r.Nodes = nodes
	r.Live = maintenances.GetAPIReader()
	r.Clock = clock.RealClock{}
	r.Recorder = maintenances.GetEventRecorder(ControllerName)

	return maintenance.WatchMachines(builder.ControllerManagedBy(mgr), everything, everything).
		Named(ControllerName).
		WatchesRawSource(nodes.Source(func(ctx context.Context, node *corev1.Node) []reconcile.Request { return everything(ctx, node) }, nodeChanged())).
		WatchesRawSource(maintenances.Source(func(ctx context.Context, nm *v1alpha1.NodeMaintenance) []reconcile.Request {
			return everything(ctx, nm)
		})).
		WatchesRawSource(maintenances.ConfigSource(func(ctx context.Context) []reconcile.Request { return everything(ctx, nil) })).
		WithOptions(pace.Options(1, minRetry, pace.MaxRetry)).
		WithLogConstructor(maintenances.Log(ControllerName)).
		Complete(pace.RetryConflicts(r))
}

// all is the only request: a round is about everything.
var all = reconcile.Request{NamespacedName: maintenance.ConfigKey}

func everything(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} }

// nodeChanged selects changes of what scheduling sees of a node.
func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return shoot.OnNodeChange(domain.NewScheduledNode)
}
