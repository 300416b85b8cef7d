// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation/failuredrain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "drain"

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes, pods kubernetes.Interface) error {
	r.Source = mgr.GetClient()
	r.Nodes = nodes
	r.Drainer = &drainer.Drainer{Client: pods}
	r.Clock = clock.RealClock{}
	r.Recorder = nodes.GetEventRecorder(ControllerName)

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(nodes.Source(requestOf, drainChanges())).
		WithOptions(pace.Options(5, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(r))
}

func requestOf(_ context.Context, node *corev1.Node) []reconcile.Request {
	if !domain.IsDraining(node) && !domain.IsStray(node) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(node)}}
}

// drainChanges leaves the following steps to the requeue: each step changes the node's condition, and would bring the
// next one forward. What else decides on a step comes from outside.
func drainChanges() predicate.TypedPredicate[*corev1.Node] {
	type view struct{ draining, reachable, selected, maintained bool }
	of := func(node *corev1.Node) view {
		return view{domain.IsDraining(node), facts.IsReady(node), facts.IsSelectedForUpdate(node), facts.IsMaintained(node)}
	}
	type stray struct {
		is     bool
		course drain.Course
	}
	strayOf := func(node *corev1.Node) stray { return stray{domain.IsStray(node), drain.CourseOfPreserved(node)} }
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return domain.IsDraining(e.ObjectNew) && of(e.ObjectOld) != of(e.ObjectNew) ||
			domain.IsStray(e.ObjectNew) && strayOf(e.ObjectOld) != strayOf(e.ObjectNew)
	}}
}
