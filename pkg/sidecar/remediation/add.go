// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "remediation"
	// SweeperName is the name of the controller of hosts that no cycle needs off.
	SweeperName = ControllerName + "-sweeper"
)

// AddToManager adds the Reconciler to a manager of the control-plane namespace, with a Sweeper, and what watches the hosts.
func (r *Reconciler) AddToManager(mgr manager.Manager, nodes *shoot.Nodes, pods kubernetes.Interface, hosts *Hosts) error {
	r.Source = mgr.GetClient()
	r.SourceReader = mgr.GetAPIReader()
	r.Nodes = nodes
	r.Driver = hosts.Driver
	r.ReadNodeContents = func(ctx context.Context, node string) (remediation.NodeContents, error) {
		return ReadNodeContents(ctx, pods, node)
	}
	if r.QuietTime == 0 {
		r.QuietTime = remediation.DefaultQuietTime
	}
	r.Clock = clock.RealClock{}
	r.Counting = semaphore.NewWeighted(1)
	r.Recorder = mgr.GetEventRecorder(ControllerName)
	r.ShootRecorder = nodes.GetEventRecorder(ControllerName)

	if err := mgr.Add(hosts); err != nil {
		return err
	}
	sweep := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: hosts.Namespace}}}
	if err := builder.ControllerManagedBy(mgr).
		Named(SweeperName).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return sweep }), builder.WithPredicates(phaseChanged())).
		WatchesRawSource(hosts.Source(func(_ context.Context, before, after client.Object) []reconcile.Request {
			if before == nil && after == nil || isOwned(before) || isOwned(after) {
				return sweep
			}
			return nil
		})).
		WithOptions(pace.Options(1, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(&Sweeper{Source: r.Source, SourceReader: r.SourceReader, Driver: r.Driver, Seed: r.Seed})); err != nil {
		return err
	}

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		For(&machinev1alpha1.MachineDeployment{}, builder.WithPredicates(shoot.DeploymentChanged())).
		Watches(&machinev1alpha1.MachineSet{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &machinev1alpha1.MachineDeployment{}, handler.OnlyControllerOwner()), builder.WithPredicates(shoot.MachineSetChanged())).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.machineToDeployment), builder.WithPredicates(machineChanged())).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return r.waiting(ctx) }), builder.WithPredicates(roomChanged())).
		WatchesRawSource(nodes.Source(r.nodeToDeployment, nodeChanged())).
		WatchesRawSource(nodes.Source(func(ctx context.Context, _ *corev1.Node) []reconcile.Request { return r.waiting(ctx) }, readinessChanged())).
		WatchesRawSource(hosts.Source(r.hostToDeployment)).
		WithOptions(pace.Options(5, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(r))
}

// machineToDeployment returns the MachineDeployment that owns the machine, or the request for those of none if there is
// something of ours on it.
func (r *Reconciler) machineToDeployment(ctx context.Context, obj client.Object) []reconcile.Request {
	machine := obj.(*machinev1alpha1.Machine)
	deployment, err := shoot.DeploymentOf(ctx, r.Source, machine)
	switch {
	case err != nil, deployment == nil && !isMarked(machine):
		return nil
	case deployment == nil:
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace}}}
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(deployment)}}
}

// waiting returns the MachineDeployments with a machine that waits for its power cycle: what others do may be what it waits for.
func (r *Reconciler) waiting(ctx context.Context) []reconcile.Request {
	return r.deploymentsOf(ctx, func(machine *machinev1alpha1.Machine) bool {
		return machine.Annotations[v1alpha1.AnnotationPowerCyclePhase] == v1alpha1.PowerCycleWaiting
	})
}

// deploymentsOf returns the MachineDeployments with one of some machines.
func (r *Reconciler) deploymentsOf(ctx context.Context, some func(*machinev1alpha1.Machine) bool) []reconcile.Request {
	list := &machinev1alpha1.MachineList{}
	if err := r.Source.List(ctx, list); err != nil { // of a cache that has synced
		logf.FromContext(ctx).Error(err, "Failed to list the machines")
	}
	requests := sets.New[reconcile.Request]()
	for i := range list.Items {
		if some(&list.Items[i]) {
			requests.Insert(r.machineToDeployment(ctx, &list.Items[i])...)
		}
	}
	return requests.UnsortedList()
}

// nodeToDeployment returns the MachineDeployment of the machine whose node it is.
func (r *Reconciler) nodeToDeployment(ctx context.Context, node *corev1.Node) []reconcile.Request {
	machine, err := shoot.MachineOf(ctx, r.Source, node.Name)
	if err != nil || machine == nil {
		return nil
	}
	return r.machineToDeployment(ctx, machine)
}

// hostToDeployment returns the MachineDeployments of the machines whose host it was, or is; all of them when hosts have become
// known.
func (r *Reconciler) hostToDeployment(ctx context.Context, before, after client.Object) []reconcile.Request {
	if before == nil && after == nil {
		return r.deploymentsOf(ctx, func(*machinev1alpha1.Machine) bool { return true })
	}
	driver := r.Driver()
	if driver == nil {
		return nil
	}
	var requests []reconcile.Request
	for _, object := range []client.Object{before, after} {
		if object == nil {
			continue
		}
		key, ok := driver.Machine(ctx, object)
		machine := &machinev1alpha1.Machine{}
		if !ok || r.Source.Get(ctx, key, machine) != nil {
			continue
		}
		requests = append(requests, r.machineToDeployment(ctx, machine)...)
	}
	return requests
}

func isOwned(object client.Object) bool { return object != nil && host.OwnerOf(object) != nil }
