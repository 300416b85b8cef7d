// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
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
