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

// Types of the conditions of a Node by which others see a drain without knowing this extension (D13). They are Kubernetes' own: KEP-5683,
// in k8s.io/api since v0.37. Their reason is a Writer of this extension, or one of somebody else, such as kubectl drain.
const (
	// ConditionDrainInProgress is True on a node that is being drained for a NodeMaintenance and, with `drainConditions` of the Shoot, for a
	// preserved machine that failed, or for an update of its pool with drain strategies. It is False when that drain has ended, with
	// `drainConditions` only. The message says what drains the node.
	ConditionDrainInProgress corev1.NodeConditionType = "DrainInProgress"
	// ConditionDrained is True on a node that was drained for a NodeMaintenance and, with `drainConditions` of the Shoot, for a preserved
	// machine that failed. It is False on a node that is being drained, with `drainConditions` only. The message says what drains the node.
	ConditionDrained corev1.NodeConditionType = "Drained"
)

// Course is how far a drain is, as far as others see that.
type Course int

// The courses of a drain.
const (
	NoDrain Course = iota
	UnderWay
	Over
)

// Writer is who says on a node how its drain goes. It is the reason of the conditions. A condition of somebody else's stays as it is.
type Writer string

// Those who write of drains: the reasons of ConditionDrainInProgress, and of the other one.
const (
	// WriterMaintenance says that a NodeMaintenance drains the node.
	WriterMaintenance Writer = "NodeMaintenance"
	// WriterPreservation says that the machine is preserved and has failed.
	WriterPreservation Writer = "MachinePreservation"
	// WriterUpdate says that machine-controller-manager drains the node for an update, with drain strategies.
	WriterUpdate Writer = "MachineUpdate"
)

var (
	writers        = []Writer{WriterMaintenance, WriterPreservation, WriterUpdate}
	conditionTypes = []corev1.NodeConditionType{ConditionDrainInProgress, ConditionDrained}
)

// IsCondition says that a type of Node conditions is one of those that tell of drains.
func IsCondition(t corev1.NodeConditionType) bool { return slices.Contains(conditionTypes, t) }

// Show says how far a drain is. It writes when the drain begins and when it ends: what somebody does to the conditions in between stays,
// because two that insist would write in a loop. That there is no drain any more it writes at any time, so that nothing is left behind. How
// far the drain was before is read from what is written on the node in the same write, so that a crash loses nothing. The preservation
// leaves what a maintenance has written until HandOver (M16).
func (w Writer) Show(node *corev1.Node, was, is Course, message string, now time.Time) {
	switch {
	case is == NoDrain:
		w.Clear(node)
	case w == WriterPreservation && WriterMaintenance.HasWritten(node):
	case is != was:
		w.Set(node, ConditionDrainInProgress, is == UnderWay, message, now)
		w.Set(node, ConditionDrained, is == Over, message, now)
	}
}

// Set writes one of the conditions, unless it is somebody else's.
func (w Writer) Set(node *corev1.Node, t corev1.NodeConditionType, is bool, message string, now time.Time) {
	if c := v1alpha1.ConditionOf(node, t); c != nil && !isOurs(*c) {
		return
	}
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	v1alpha1.SetCondition(node, t, status, string(w), message, now)
}

// Say changes the message of what is said.
func (w Writer) Say(node *corev1.Node, message string) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; w.wrote(*c) {
			c.Message = message
		}
	}
}

// Clear removes what is said, of one type or of all.
func (w Writer) Clear(node *corev1.Node, types ...corev1.NodeConditionType) {
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return w.wrote(c) && (len(types) == 0 || slices.Contains(types, c.Type))
	})
}

// ShowPreserved says how far the drain of a preserved machine's node is, and was before.
func ShowPreserved(node *corev1.Node, was, is Course, now time.Time) {
	text := "The preservation drains the node, because its machine failed."
	if is == Over {
		text = "The preservation has drained the node, because its machine failed."
	}
	WriterPreservation.Show(node, was, is, text, now)
}

// HandOver removes what is said of a maintenance. The preservation's drain, of which nothing was said meanwhile, is shown instead, or not.
func HandOver(node *corev1.Node, shows bool, now time.Time) {
	if !WriterMaintenance.HasWritten(node) {
		return
	}
	WriterMaintenance.Clear(node)
	if shows {
		ShowPreserved(node, NoDrain, CourseOfPreserved(node), now)
	}
}

// CourseOfPreserved returns how far the drain of a preserved machine's node is, by its condition Preserved. As long as pods are kept it is
// not over.
func CourseOfPreserved(node *corev1.Node) Course {
	switch c := v1alpha1.ConditionOf(node, v1alpha1.ConditionPreserved); {
	case c == nil || c.Status != corev1.ConditionTrue || !v1alpha1.IsDrainReason(c.Reason):
		return NoDrain
	case c.Reason == v1alpha1.ReasonDrained:
		return Over
	}
	return UnderWay
}

// HasWritten says that there is something on a node that it has said.
func (w Writer) HasWritten(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, w.wrote)
}

func (w Writer) wrote(c corev1.NodeCondition) bool {
	return IsCondition(c.Type) && c.Reason == string(w)
}

// ClearAll removes what any Writer has said on a node.
func ClearAll(node *corev1.Node) {
	for _, w := range writers {
		w.Clear(node)
	}
}

func isOurs(c corev1.NodeCondition) bool { return slices.Contains(writers, Writer(c.Reason)) }

// Touches says that two versions of a node differ in the conditions of drains, or would if no maintenance had written these. Somebody else may
// have written that since the node was read: a patch would change, or remove, what is theirs by now.
func Touches(before, after *corev1.Node) bool {
	if WriterMaintenance.HasWritten(before) && CourseOfPreserved(before) != CourseOfPreserved(after) {
		return true
	}
	return slices.ContainsFunc(conditionTypes, func(t corev1.NodeConditionType) bool {
		b, a := v1alpha1.ConditionOf(before, t), v1alpha1.ConditionOf(after, t)
		return (b == nil) != (a == nil) || b != nil && *b != *a
	})
}
