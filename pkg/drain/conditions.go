// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == ConditionDrainInProgress && c.Status == corev1.ConditionTrue && !isOurs(c)
	}) {
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
	if i := indexOf(node, t); i < 0 || w.wrote(node.Status.Conditions[i]) {
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
	i := indexOf(node, t)
	if i < 0 {
		i = len(node.Status.Conditions)
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: t})
	}
	c := &node.Status.Conditions[i]
	if c.Status == status && c.Reason == string(w) && c.Message == message {
		return
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, string(w), message, metav1.NewTime(now)
}

func indexOf(node *corev1.Node, t corev1.NodeConditionType) int {
	return slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
}
