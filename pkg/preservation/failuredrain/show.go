// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// Reasons of the Events on Nodes (P11).
const (
	// EventDrained says that nothing is left to be evicted.
	EventDrained = "PreservedNodeDrained"
	// EventDrainBlocked says which PodDisruptionBudget holds evictions up.
	EventDrainBlocked = "PreservedNodeDrainBlocked"
	// EventPodsKept says that the drain timeout has passed and all that is left are pods that are not deleted by force.
	EventPodsKept = "PreservedNodePodsKept"
	// EventDrainForced says that the drain timeout has passed and pods are deleted by force.
	EventDrainForced = "PreservedNodeDrainForced"
	// EventPodsCameBack says whose pods came back after they were deleted by force.
	EventPodsCameBack = "PreservedNodePodsCameBack"
)

// Event is to be told on the node.
type Event struct{ Type, Reason, Note string }

// Show returns the write by which a node that is drained shows how that goes, which changes nothing where it shows that already, and
// what is told once it is made. It is shown to others as well, or not (D13).
func Show(node *corev1.Node, progress drain.Progress, shows bool, now time.Time) (intent.Write, []Event) {
	reason := v1alpha1.ReasonDraining
	switch {
	case progress.Done:
		reason = v1alpha1.ReasonDrained
	case progress.OnlyKept():
		reason = v1alpha1.ReasonPodsKept
	case len(progress.BlockedBy) > 0:
		reason = v1alpha1.ReasonDrainBlocked
	}
	edited := node.DeepCopy()
	preservation.SetDrainProgress(edited, reason, progress.String(), shows, now)
	var told []Event
	if progress.Forced > 0 {
		told = append(told, Event{corev1.EventTypeWarning, EventDrainForced, "The drain timeout has passed. " + progress.String()})
	}
	if preservation.PreservedCondition(node).Reason != reason {
		switch reason {
		case v1alpha1.ReasonDrained:
			told = append(told, Event{corev1.EventTypeNormal, EventDrained, "The node of a preserved machine is drained. " + progress.String()})
		case v1alpha1.ReasonPodsKept:
			told = append(told, Event{corev1.EventTypeWarning, EventPodsKept, "The drain timeout has passed. " + progress.String()})
		case v1alpha1.ReasonDrainBlocked:
			told = append(told, Event{corev1.EventTypeWarning, EventDrainBlocked, progress.String()})
		}
	}
	return intent.Write{Before: node, After: edited, Status: true, Lock: drain.Touches(node, edited)}, told
}

// IsStray says that a node that is not being drained because its machine failed has conditions of drains, so that nobody may show them any
// more (D11, D13).
func IsStray(node *corev1.Node) bool {
	return !IsDraining(node) && (drain.WriterPreservation.HasWritten(node) || drain.WriterUpdate.HasWritten(node) || v1alpha1.ConditionOf(node, v1alpha1.ConditionNodeDrain) != nil)
}

// Sweep returns the write that removes from a node what was shown to others of drains that nobody shows any more, which changes nothing
// where there is no such thing (D11, D13). That is all of it without conditions, also what is of updates without strategies, and what is
// left after somebody has changed the condition Preserved. What is of maintenances is removed where those are carried out, and at their
// end.
func Sweep(node *corev1.Node, conditions, strategies bool) intent.Write {
	edited := node.DeepCopy()
	if !conditions || drain.CourseOfPreserved(node) == drain.NoDrain {
		drain.WriterPreservation.Clear(edited)
	}
	if !conditions || !strategies {
		drain.WriterUpdate.Clear(edited)
	}
	if !strategies {
		v1alpha1.RemoveCondition(edited, v1alpha1.ConditionNodeDrain)
	}
	return intent.Write{Before: node, After: edited, Status: true, Lock: true}
}
