// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "nodemaintenance"

const (
	// An eviction that was refused is tried again after minEviction at first, and never later than after maxEviction.
	minEviction, maxEviction = time.Second, 15 * time.Second
	// A cordon that vanishes is put back at once, again after minCordon, and never later than after maxCordon (M3). As long as
	// it is away pods get in: machine-controller-manager 0.62.1 takes it away a few times as the maintenance begins, of which the
	// first times are to cost seconds, and then no more often than every ten minutes.
	minCordon, maxCordon = time.Second, time.Minute
)

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes, maintenances *maintenance.Maintenances, pods kubernetes.Interface) error {
	r.Source = mgr.GetClient()
	r.Shoot = maintenances
	r.Config = maintenances.Config
	r.Nodes = nodes
	r.Live = nodes.GetAPIReader()
	r.ReadPods = func(ctx context.Context, node string) ([]drain.Pod, error) { return drainer.ListPods(ctx, pods, node) }
	r.Executor = &drainer.Executor{Client: pods}
	r.Clock = clock.RealClock{}
	r.Recorder = maintenances.GetEventRecorder(ControllerName)
	r.Evictions = flowcontrol.NewBackOff(minEviction, maxEviction)
	r.Cordons = flowcontrol.NewBackOff(minCordon, maxCordon)

	drainsFailed.WithLabelValues() // an increase can be seen only of what was there before
	return maintenance.WatchMachines(builder.ControllerManagedBy(mgr), shoot.RequestsForMachine, r.nodesOfMaintenances).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(shoot.RequestsForMachine), builder.WithPredicates(maintenance.HoldChanged())).
		Named(ControllerName).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.Pods = drainer.WatchPods(ctx, pods, queue)
			// Nodes that still have marks of a maintenance that is gone.
			maintenances.WhenKnown(ctx, func() {
				for _, request := range r.markedNodes(ctx) {
					queue.Add(request)
				}
			})
			return nil
		})).
		WatchesRawSource(nodes.Source(shoot.RequestsForNode, nodeChanged())).
		WatchesRawSource(maintenances.Source(requestOf)).
		WatchesRawSource(maintenances.ConfigSource(r.nodesHandedOver)).
		WithOptions(pace.Options(5, pace.MinRetry, pace.MaxRetry)).
		WithLogConstructor(maintenances.Log(ControllerName)).
		Complete(pace.RetryConflicts(r))
}

func requestOf(_ context.Context, nm *v1alpha1.NodeMaintenance) []reconcile.Request {
	return []reconcile.Request{shoot.RequestFor(nm.Spec.NodeName)}
}

// nodesOfMaintenances returns all nodes that have a maintenance.
func (r *Reconciler) nodesOfMaintenances(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.nodesOf(ctx, func(*v1alpha1.NodeMaintenance) bool { return true })
}

// nodesHandedOver returns all nodes that are handed over. Nothing but for how long they may be depends on the configuration, and each
// node that is looked at is read live.
func (r *Reconciler) nodesHandedOver(ctx context.Context) []reconcile.Request {
	return r.nodesOf(ctx, domain.IsHandedOver)
}

// nodesOf returns all nodes that have a maintenance like that.
func (r *Reconciler) nodesOf(ctx context.Context, like func(*v1alpha1.NodeMaintenance) bool) []reconcile.Request {
	names := sets.New[string]()
	for _, nm := range maintenance.All(ctx, r.Shoot) {
		if like(nm) {
			names.Insert(nm.Spec.NodeName)
		}
	}
	var requests []reconcile.Request
	for name := range names {
		requests = append(requests, shoot.RequestFor(name))
	}
	return requests
}

func (r *Reconciler) markedNodes(ctx context.Context) []reconcile.Request {
	nodes := &corev1.NodeList{}
	if err := r.Nodes.List(ctx, nodes); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the nodes")
		return nil
	}
	var requests []reconcile.Request
	for i := range nodes.Items {
		if domain.IsMarked(&nodes.Items[i]) {
			requests = append(requests, shoot.RequestFor(nodes.Items[i].Name))
		}
	}
	return requests
}
