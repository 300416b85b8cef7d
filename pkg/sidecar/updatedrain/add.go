// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// ControllerName is the name of the controller.
const ControllerName = "drainstrategy"

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes, pods kubernetes.Interface) error {
	r.Source = mgr.GetClient()
	r.Nodes = nodes
	r.Executor = &drainer.Executor{Client: pods}
	r.Clock = clock.RealClock{}
	r.Recorder = nodes.GetEventRecorder(ControllerName)
	r.Backoff = flowcontrol.NewBackOff(pace.MinRetry, pace.MaxRetry)

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.Pods = drainer.WatchPods(ctx, pods, queue)
			return nil
		})).
		WatchesRawSource(nodes.Source(shoot.RequestsForNode, nodeChanged())).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(shoot.RequestsForMachine), builder.WithPredicates(machineChanged())).
		Watches(&machinev1alpha1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfMachines), builder.WithPredicates(machineSetChanged())).
		Watches(&machinev1alpha1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfMachines), builder.WithPredicates(deploymentChanged())).
		WithOptions(pace.Options(5, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(r))
}

// nodesOfMachines returns all nodes that have a machine. It asks nothing of the shoot, not even of its cache: as long as
// that is not filled, because the shoot's API server is away, the watch would not be taken for begun, and the process would end
// (P9).
func (r *Reconciler) nodesOfMachines(ctx context.Context, _ client.Object) []reconcile.Request {
	machines := &machinev1alpha1.MachineList{}
	if err := r.Source.List(ctx, machines); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the Machines")
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, shoot.RequestsForMachine(ctx, &machines.Items[i])...)
	}
	return requests
}
