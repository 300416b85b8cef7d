// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// owner is who empties a node.
type owner string

const (
	ownerNobody       owner = ""
	ownerMCM          owner = "machine-controller-manager"
	ownerMaintenance  owner = "maintenance"
	ownerPreservation owner = "preservation"

	// clockSkew is how far ahead the clock may have been that the taint was put on by.
	clockSkew = time.Minute
)

// ownerOf returns who empties a machine's node. It is one at a time: machine-controller-manager when the node is to go or
// is updated in place, else a maintenance of the node, also one for which the machine is kept no longer (M12), else the
// preservation of a failed machine. That a node was selected for an update is the shoot's to write: it counts for a machine
// that is not of the newest MachineSet.
func ownerOf(machine *machinev1alpha1.Machine, node *corev1.Node, outdated, maintained bool) owner {
	record := preservation.ReadRecord(machine)
	switch {
	case machine.DeletionTimestamp != nil, outdated && preservation.IsSelectedForUpdate(node):
		return ownerMCM
	case maintained:
		return ownerMaintenance
	case record != nil && record.Drains() && isDraining(node):
		return ownerPreservation
	}
	return ownerNobody
}

// isMaintained says that a node is under maintenance, where maintenances are enabled.
func isMaintained(node *corev1.Node) bool {
	_, ok := node.Annotations[v1alpha1.AnnotationMaintenance]
	return ok
}

// isDraining says that the node is marked as that of a failed, preserved machine, and that pods are left on it.
func isDraining(node *corev1.Node) bool {
	if _, tainted := preservation.TaintedSince(node); !tainted {
		return false
	}
	c := preservation.PreservedCondition(node)
	if c == nil || c.Status != corev1.ConditionTrue {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonDraining, v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonPodsKept:
		return true
	}
	return false
}

// drainBegan returns when the drain of a failed, preserved machine's node began: when the taint was put on, but not
// before the machine's deadline and not after now. The taint's time is the shoot's to write, the deadline is not: a time
// of long ago must not skip PodDisruptionBudgets, and none and one that is yet to come must not keep the drain from
// timing out.
func drainBegan(machine *machinev1alpha1.Machine, node *corev1.Node, timeouts preservation.Timeouts, now time.Time) time.Time {
	failed := preservation.ReadRecord(machine).FailedAt(machine, timeouts)
	began, _ := preservation.TaintedSince(node)
	if began.IsZero() {
		// Somebody else put the taint on: the condition tells since when the machine is preserved.
		began = preservation.PreservedCondition(node).LastTransitionTime.Time
	}
	if began.Before(failed) || began.After(now.Add(clockSkew)) {
		began = failed
	}
	if began.IsZero() || began.After(now) {
		return now
	}
	return began
}
