// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package facts is what is read of a machine, of its node and of its pool: each fact once, whoever needs it. It decides nothing, and
// knows no client and no clock. What is on a node can be written by the shoot, what is on a Machine or in a pool only in the seed.
package facts

import (
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Member is a machine of a pool and its node.
type Member struct {
	Machine *machinev1alpha1.Machine
	// Node is nil if there is none, or if NodeUnknown.
	Node *corev1.Node
	// NodeUnknown says that the shoot's API server could not be asked yet (P9).
	NodeUnknown bool
}

// knownPhases are all phases of machine-controller-manager 0.62. One that has just been created has none.
var knownPhases = []machinev1alpha1.MachinePhase{
	"", machinev1alpha1.MachinePending, machinev1alpha1.MachineAvailable, machinev1alpha1.MachineRunning, machinev1alpha1.MachineUnknown, machinev1alpha1.MachineFailed,
	machinev1alpha1.MachineTerminating, machinev1alpha1.MachineCrashLoopBackOff,
	machinev1alpha1.MachineInPlaceUpdating, machinev1alpha1.MachineInPlaceUpdateSuccessful, machinev1alpha1.MachineInPlaceUpdateFailed,
}

// IsPhaseKnown says that it is known what the phase of a machine means. In any other, of a machine-controller-manager to come, the
// machine is left alone: nothing is begun, and what has begun ends at its time.
func IsPhaseKnown(machine *machinev1alpha1.Machine) bool {
	return slices.Contains(knownPhases, machine.Status.CurrentStatus.Phase)
}

// IsReady says that a node is ready, and answers: a pod that was deleted there has ended.
func IsReady(node *corev1.Node) bool {
	ready := v1alpha1.ConditionOf(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// IsMaintained says that a node says that it is under maintenance: its NodeMaintenance is past Pending (M3).
func IsMaintained(node *corev1.Node) bool {
	_, ok := node.Annotations[v1alpha1.AnnotationMaintenance]
	return ok
}

// IsSelectedForUpdate says that a node says that machine-controller-manager drains it to update it in place.
func IsSelectedForUpdate(node *corev1.Node) bool {
	return isUpdated(node, machinev1alpha1.SelectedForUpdate)
}

// IsUpdatedInPlace says that a node says that it is updated in place: from when machine-controller-manager selects it until the update
// has succeeded or failed (M15).
func IsUpdatedInPlace(node *corev1.Node) bool {
	return isUpdated(node, machinev1alpha1.SelectedForUpdate, machinev1alpha1.DrainSuccessful, machinev1alpha1.ReadyForUpdate)
}

func isUpdated(node *corev1.Node, reasons ...string) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == machinev1alpha1.NodeInPlaceUpdate && slices.Contains(reasons, c.Reason)
	})
}
