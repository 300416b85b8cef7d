// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "preservation"

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes) error {
	r.Source = mgr.GetClient()
	r.SourceReader = mgr.GetAPIReader()
	r.Nodes = nodes
	r.NodeReader = nodes.GetAPIReader()
	r.Clock = clock.RealClock{}
	r.Events = Events{Source: mgr.GetEventRecorder(ControllerName), Shoot: nodes.GetEventRecorder(ControllerName)}

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		For(&machinev1alpha1.MachineDeployment{}, builder.WithPredicates(shoot.DeploymentChanged())).
		Watches(&machinev1alpha1.MachineSet{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &machinev1alpha1.MachineDeployment{}, handler.OnlyControllerOwner()), builder.WithPredicates(shoot.MachineSetChanged())).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.machineToDeployment), builder.WithPredicates(machineChanged())).
		WatchesRawSource(nodes.Source(r.nodeToDeployment, nodeChanged())).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.enqueue = queue.Add
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 5,
			NewQueue:                newQueue,
			// Reads that fail are repeated before a deadline is missed (P12).
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, pace.MaxRetry),
		}).
		Complete(pace.RetryConflicts(r))
}

// settling is how long a change waits to be looked at: those that come together are looked at together, and machine-
// controller-manager, which writes several times because of one change, is not interrupted. What is due at a certain time
// does not wait.
const settling = 200 * time.Millisecond

// settlingQueue is a workqueue that lets changes settle.
type settlingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return settlingQueue{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})}
}

func (q settlingQueue) Add(request reconcile.Request) { q.AddAfter(request, settling) }

// machineToDeployment returns the MachineDeployment that owns the machine. One that the cache does not know yet, or whose
// MachineSet it does not know, is called by that when it arrives.
func (r *Reconciler) machineToDeployment(ctx context.Context, obj client.Object) []reconcile.Request {
	deployment, err := shoot.DeploymentOf(ctx, r.Source, obj.(*machinev1alpha1.Machine))
	if err != nil || deployment == nil {
		return nil
	}
	return r.requestsFor(ctx, deployment)
}

// requestsFor returns the request for a MachineDeployment, and where it shares its places with others of its pool, for these as well: one
// may wait for a place that another one gives back (P20).
func (r *Reconciler) requestsFor(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(deployment)}}
	pool := deployment.Annotations[v1alpha1.AnnotationSharedInPool]
	if pool == "" {
		return requests
	}
	others := &machinev1alpha1.MachineDeploymentList{}
	if err := r.Source.List(ctx, others, client.InNamespace(deployment.Namespace)); err != nil {
		return requests
	}
	for i := range others.Items {
		if other := &others.Items[i]; other.Name != deployment.Name && other.Annotations[v1alpha1.AnnotationSharedInPool] == pool {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)})
		}
	}
	return requests
}

// nodeToDeployment returns the MachineDeployment of the machine whose node it is.
func (r *Reconciler) nodeToDeployment(ctx context.Context, node *corev1.Node) []reconcile.Request {
	machine, err := shoot.MachineOf(ctx, r.Source, node.Name)
	if err != nil || machine == nil {
		return nil
	}
	return r.machineToDeployment(ctx, machine)
}
