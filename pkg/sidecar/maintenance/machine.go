// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// MachineOf returns what is known of the machine of a node, from a cache of the control-plane namespace with
// shoot.IndexNode (M15, M17). showsUpdate says whether the node reports an update in place. The shoot can write that, so MachineOf
// checks it.
func MachineOf(ctx context.Context, pools *shoot.Pools, node string, showsUpdate bool) (maintenance.Machine, error) {
	machine, err := shoot.MachineOf(ctx, pools, node)
	if err != nil || machine == nil {
		return maintenance.Machine{Missing: true}, err
	}
	m := maintenance.Machine{Terminating: machine.DeletionTimestamp != nil, PowerCycled: remediation.UnderWay(machine), PhaseNotKnown: !facts.IsPhaseKnown(machine)}
	deployment, err := shoot.DeploymentOf(ctx, pools, machine)
	if err != nil || deployment == nil {
		return m, err
	}
	m.Hibernating = deployment.Spec.Replicas == 0
	if _, wanted := deployment.Annotations[v1alpha1.AnnotationValidation]; wanted {
		m.Validated, m.Unvalidated = preservation.OwesProof(machine)
	}
	if m.Rolling, err = pools.IsRolling(ctx, deployment); err != nil {
		return m, err
	}
	if showsUpdate {
		update, err := pools.UpdateOf(ctx, machine)
		if err != nil {
			return m, err
		}
		m.UpdatedInPlace = update.Outdated
	}
	return m, nil
}

// HoldOf returns until when the machine of a node would be preserved if it failed, or why it would not be (M12). It reads from the same
// cache as MachineOf. The group has what applies to all machines.
func HoldOf(ctx context.Context, pools *shoot.Pools, group preservation.Group, node *corev1.Node, now time.Time) (maintenance.Hold, error) {
	machine, err := shoot.MachineOf(ctx, pools, node.Name)
	if err != nil || machine == nil {
		return maintenance.Hold{}, err
	}
	deployment, err := shoot.DeploymentOf(ctx, pools, machine)
	if err != nil || deployment == nil {
		return maintenance.Hold{}, err
	}
	group = group.Of(deployment)
	if group.Rollout, err = pools.IsRolling(ctx, deployment); err != nil {
		return maintenance.Hold{}, err
	}
	if !facts.IsMaintained(node) { // it is about to be
		node = node.DeepCopy()
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationMaintenance, now.UTC().Format(time.RFC3339))
	}
	until, why := preservation.MaintainedUntil(group, facts.Member{Machine: machine, Node: node}, now)
	return maintenance.Hold{Until: until, Why: why.Text}, nil
}

// HoldChanged selects changes of a Machine that may change what HoldOf returns.
func HoldChanged() predicate.Predicate {
	return shoot.OnChange(func(m *machinev1alpha1.Machine) [5]string {
		var view [5]string
		for i, key := range []string{v1alpha1.AnnotationCause, v1alpha1.AnnotationPreservationRecord, v1alpha1.AnnotationExpiryTime, v1alpha1.AnnotationForbidden} {
			view[i] = m.Annotations[key]
		}
		view[4] = fmt.Sprint(m.Status.CurrentStatus.PreserveExpiryTime)
		return view
	})
}

// WatchMachines wakes a controller when something changes that MachineOf reads. ofMachine and ofOwner return the requests for a Machine,
// and for a MachineSet or MachineDeployment that owns Machines.
func WatchMachines(b *builder.TypedBuilder[reconcile.Request], ofMachine, ofOwner handler.MapFunc) *builder.TypedBuilder[reconcile.Request] {
	return b.
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(machineChanged())).
		Watches(&machinev1alpha1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(ofOwner), builder.WithPredicates(machineSetChanged())).
		Watches(&machinev1alpha1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(ofOwner), builder.WithPredicates(deploymentChanged()))
}

func machineChanged() predicate.Predicate {
	return shoot.OnChange(func(m *machinev1alpha1.Machine) [4]string {
		return [4]string{fmt.Sprint(m.DeletionTimestamp != nil), m.Labels[machinev1alpha1.NodeLabelKey], fmt.Sprint(remediation.UnderWay(m)), fmt.Sprint(facts.IsPhaseKnown(m))}
	})
}

// machineSetChanged selects changes with which a rollout begins, or may end. The deletion of the last machine of a MachineSet wakes a
// controller for the node of that machine only. For the other nodes of the pool, the status of the MachineSet does. The status may be
// wrong when no machine is wanted any more, and stay so: machine-controller-manager counts from its cache.
func machineSetChanged() predicate.Predicate {
	return shoot.OnChange(func(s *machinev1alpha1.MachineSet) [3]int64 {
		return [3]int64{facts.RevisionOf(s), int64(min(s.Spec.Replicas, 1)), int64(min(s.Status.Replicas, 1))}
	})
}

func deploymentChanged() predicate.Predicate {
	return shoot.OnChange(func(d *machinev1alpha1.MachineDeployment) bool { return d.Spec.Replicas == 0 })
}
