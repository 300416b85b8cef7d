// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "failures"

// AddToManager adds the controller of the failure history to a manager of the control-plane namespace. It looks at the Machines that others watch.
func (l *Ledger) AddToManager(mgr manager.Manager, nodes *shoot.Nodes) error {
	l.Source = mgr.GetClient()
	l.SourceReader = mgr.GetAPIReader()
	l.Nodes = nodes
	l.Clock = clock.RealClock{}
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(l.requestsFor), builder.WithPredicates(machineChanged())).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			l.start(queue.AddAfter)
			return nil
		})).
		WithOptions(pace.Options(1, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(l))
}

// start has requests added from now on, beginning with all that were made before, and one that finds what a former process has left.
func (l *Ledger) start(enqueue func(reconcile.Request, time.Duration)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.enqueue = enqueue
	enqueue(l.request(""), 0)
	for machine := range l.items {
		enqueue(l.request(machine), 0)
	}
}

// requestsFor returns the request for a machine whose failure is not over.
func (l *Ledger) requestsFor(_ context.Context, obj client.Object) []reconcile.Request {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.items[obj.GetName()] == nil {
		return nil
	}
	return []reconcile.Request{l.request(obj.GetName())}
}

// machineChanged is for machines that go, and for those that may be healthy again. Of one that is preserved, machine-controller-manager
// changes the phase first, and then the preservation controller changes AnnotationPhase, or ends its power cycle. A failure that comes
// before the entry is complete would have no entry of its own.
func machineChanged() predicate.Predicate {
	return shoot.OnUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return o.Status.CurrentStatus.Phase != n.Status.CurrentStatus.Phase || o.DeletionTimestamp.IsZero() != n.DeletionTimestamp.IsZero() ||
			o.Annotations[v1alpha1.AnnotationPhase] != n.Annotations[v1alpha1.AnnotationPhase] || remediation.UnderWay(o) != remediation.UnderWay(n)
	})
}
