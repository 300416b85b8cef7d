// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Types of the conditions of a Node by which others see a drain without knowing this extension. They are Kubernetes' own: KEP-5683,
// in k8s.io/api since v0.37. Their reason is a Writer of this extension, or one of somebody else, such as kubectl drain.
const (
	// ConditionDrainInProgress is True on a node that is being drained for a NodeMaintenance, a preserved machine that failed, or an update
	// of its pool with drain strategies, and False when that drain has ended. The message says what drains the node.
	ConditionDrainInProgress corev1.NodeConditionType = "DrainInProgress"
	// ConditionDrained is False on a node that is being drained for a NodeMaintenance, a preserved machine that failed, or an update of its
	// pool with drain strategies, and True when it is drained for one of the first two. The message says what drains the node.
	ConditionDrained corev1.NodeConditionType = "Drained"
)

// Writer is who says on a node how its drain goes. It is the reason of the conditions. It writes once that the drain begins, and once
// that it ends: what somebody else writes in between, who drains the node as well, stays.
type Writer string

// Those who write of drains.
const (
	WriterMaintenance  Writer = "NodeMaintenance"
	WriterPreservation Writer = "MachinePreservation"
	WriterUpdate       Writer = "MachineUpdate"
)

// isOurs says that a condition was written by a Writer.
func isOurs(c corev1.NodeCondition) bool {
	return slices.Contains([]Writer{WriterMaintenance, WriterPreservation, WriterUpdate}, Writer(c.Reason))
}

// Begin says that a drain begins, in place of what one before has said, unless one of somebody else is in progress.
func (w Writer) Begin(node *corev1.Node, message string, now time.Time) {
	if c := v1alpha1.ConditionOf(node, ConditionDrainInProgress); c == nil || c.Status != corev1.ConditionTrue || isOurs(*c) {
		w.set(node, ConditionDrainInProgress, corev1.ConditionTrue, message, now)
		w.set(node, ConditionDrained, corev1.ConditionFalse, message, now)
	}
}

// End says that a drain has ended.
func (w Writer) End(node *corev1.Node, message string, now time.Time) {
	w.keep(node, ConditionDrainInProgress, corev1.ConditionFalse, message, now)
	w.keep(node, ConditionDrained, corev1.ConditionTrue, message, now)
}

// keep is set where nobody else has written since.
func (w Writer) keep(node *corev1.Node, t corev1.NodeConditionType, status corev1.ConditionStatus, message string, now time.Time) {
	if c := v1alpha1.ConditionOf(node, t); c == nil || w.wrote(*c) {
		w.set(node, t, status, message, now)
	}
}

// Say changes the message of what is said.
func (w Writer) Say(node *corev1.Node, message string) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; w.wrote(*c) {
			c.Message = message
		}
	}
}

// Clear removes what is said.
func (w Writer) Clear(node *corev1.Node) {
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, w.wrote)
}

func (w Writer) wrote(c corev1.NodeCondition) bool {
	return (c.Type == ConditionDrainInProgress || c.Type == ConditionDrained) && c.Reason == string(w)
}

func (w Writer) set(node *corev1.Node, t corev1.NodeConditionType, status corev1.ConditionStatus, message string, now time.Time) {
	v1alpha1.SetCondition(node, t, status, string(w), message, now)
}
