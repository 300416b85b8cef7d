// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package failuredrain decides who drains the node of a preserved machine that has failed, and what is reported about that drain. It
// uses no client and no clock.
package failuredrain

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// Owner is who empties a node.
type Owner string

// Those who empty nodes.
const (
	Nobody       Owner = ""
	MCM          Owner = "machine-controller-manager"
	Maintenance  Owner = "maintenance"
	Preservation Owner = "preservation"
)

// OwnerOf returns who empties a machine's node. It is one at a time: machine-controller-manager when the node is to go or
// is updated in place, else a maintenance of the node, also one for which the machine is no longer preserved (M12), else the
// preservation of a failed machine. That a node was selected for an update is the shoot's to write: it counts for a machine
// that is not of the newest MachineSet.
func OwnerOf(machine *machinev1alpha1.Machine, node *corev1.Node, outdated, maintained bool) Owner {
	record := preservation.ReadRecord(machine)
	switch {
	case machine.DeletionTimestamp != nil, outdated && facts.IsSelectedForUpdate(node):
		return MCM
	case maintained:
		return Maintenance
	case record != nil && record.Drains() && IsDraining(node):
		return Preservation
	}
	return Nobody
}

// IsDraining says that the node is marked as that of a failed, preserved machine, and that pods are left on it.
func IsDraining(node *corev1.Node) bool {
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
