// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package update

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Reasons of the Events on Nodes and Pods (D11).
const (
	// EventStrategyActed says which strategy dealt with which pods of a node.
	EventStrategyActed = "DrainStrategyActed"
	// EventStrategyFailed says which pods of a node a strategy could not deal with, and why.
	EventStrategyFailed = "DrainStrategyFailed"
	// EventPodsCameBack says whose pods came back after they were deleted by force.
	EventPodsCameBack = "PodsCameBack"
	// EventDrainTimedOut says which pods are left when the drain of a node has failed.
	EventDrainTimedOut = "DrainTimedOut"
	// EventDeletedByForce is on a pod that was deleted without a grace period.
	EventDeletedByForce = "DeletedByForce"
	// EventFinalizersRemoved is on a pod whose finalizers were removed.
	EventFinalizersRemoved = "FinalizersRemoved"

	// eventAction is the action of Events that are not a strategy's.
	eventAction = "Drain"
)

// Event is to be told on the node, or on a pod if there is one.
type Event struct {
	Pod                  *drain.Pod
	Warning              bool
	Reason, Action, Note string
}

// condition returns what is to be shown of the drain, nil for nothing: then no pods are left. Before the drain fails, it changes with
// deadlines and not with each pod that goes. Its last transition is when the drain began: that identifies the drain, the text is for people.
func (d *Decision) condition(actions []drain.Action) *corev1.NodeCondition {
	if len(d.pods) == 0 {
		return nil
	}
	c := &corev1.NodeCondition{
		Type: v1alpha1.ConditionNodeDrain, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(d.facts.Since),
		Reason: v1alpha1.ReasonDrainUnderWay, Message: d.deadlinesText(),
	}
	if d.Failed {
		c.Reason, c.Message = v1alpha1.ReasonDrainTimedOut, d.leftText()
	}
	var kept []drain.Pod
	for _, action := range actions {
		if action.Verb == drain.Keep {
			kept = append(kept, action.Pod)
		}
	}
	if len(kept) > 0 {
		c.Message += " Kept, because the VM may still run them with their volumes: " + namesOf(kept) + "."
	}
	return c
}

// text says in words what machine-controller-manager does.
func (d Drain) text() string {
	return fmt.Sprintf("Drained by machine-controller-manager for %s since %s.", d.Cause, formatTime(d.Since))
}

// deadlinesText says what is being waited for, and until when.
func (d *Decision) deadlinesText() string {
	if len(d.stages) == 0 {
		return d.facts.text() + " Its pods are left alone, because drain strategies are disabled."
	}
	result := d.facts.text()
	for _, group := range []struct {
		group drain.Group
		text  string
	}{
		{drain.UnprotectedPods, "Pods that no PodDisruptionBudget protects"},
		{drain.ProtectedPods, "Protected pods"},
	} {
		i := slices.IndexFunc(d.stages, func(s drain.Stage) bool { return s.Selector.Group == group.group })
		at, verb := d.facts.Since.Add(d.stages[i].After), "are deleted by force from"
		if !d.now.Before(at) {
			verb = "have been deleted by force since"
		}
		result += fmt.Sprintf(" %s %s %s.", group.text, verb, formatTime(at))
	}
	return result
}

// leftText says that the drain has failed, and which pods are left.
func (d *Decision) leftText() string {
	var names []string
	for _, pod := range d.pods {
		names = append(names, pod.NameAt(d.now))
	}
	return d.facts.text() + " The drain has failed. Pods left: " + firstNames(names) + "."
}

// namesOf returns the first names of pods, and how many more there are.
func namesOf(pods []drain.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Key())
	}
	return firstNames(names)
}

func firstNames(names []string) string {
	slices.Sort(names)
	return strings.Join(brief.First(names, maxNamed), ", ")
}

// Show returns the write by which a node has the condition, or none if that is nil. It changes nothing where that is so. With the condition
// it shows to others that the drain is under way, or does not (D13). That it has ended is machine-controller-manager's to say, whose drain it
// is.
func Show(node *corev1.Node, wanted *corev1.NodeCondition, shows bool, now time.Time) intent.Write {
	before, edited := v1alpha1.ConditionOf(node, v1alpha1.ConditionNodeDrain), node.DeepCopy()
	if wanted == nil || before == nil || before.Status != wanted.Status || before.Reason != wanted.Reason || before.Message != wanted.Message ||
		!before.LastTransitionTime.Equal(&wanted.LastTransitionTime) {
		v1alpha1.RemoveCondition(edited, v1alpha1.ConditionNodeDrain)
		if wanted != nil {
			wanted.LastHeartbeatTime = metav1.NewTime(now)
			edited.Status.Conditions = append(edited.Status.Conditions, *wanted)
		}
	}
	was, is := drain.NoDrain, drain.NoDrain
	if before != nil {
		was = drain.UnderWay
	}
	if shows && wanted != nil {
		is = drain.UnderWay
	}
	drain.WriterUpdate.Show(edited, was, is, "Machine-controller-manager drains the node for an update of its pool.", now)
	return intent.Write{Before: node, After: edited, Status: true, Lock: drain.Touches(node, edited)}
}

// TimedOut returns the Event that a drain has failed.
func (d Decision) TimedOut() Event {
	return Event{Warning: true, Reason: EventDrainTimedOut, Action: eventAction, Note: d.leftText()}
}

// ofStage tells which strategy dealt with which pods, and on whose behalf.
func (d Decision) ofStage(stage *drain.Stage, pods []drain.Pod) Event {
	what := fmt.Sprintf("deleted %d pod(s) by force", len(pods))
	if stage.Verb == drain.RemoveFinalizers {
		what = fmt.Sprintf("removed the finalizers of %d pod(s)", len(pods))
	}
	// The action tells them apart: Events that differ in nothing but their notes become one, with the first note.
	return Event{Reason: EventStrategyActed, Action: stage.Name, Note: fmt.Sprintf("Drain strategy %q %s %s after machine-controller-manager began to drain the node for %s: %s",
		stage.Name, what, d.now.Sub(d.facts.Since).Round(time.Second), d.facts.Cause, namesOf(pods))}
}

// ofPod tells a pod's owner what became of it.
func (d Decision) ofPod(action drain.Action) Event {
	reason, what := EventDeletedByForce, "Deleted without a grace period"
	if action.Verb == drain.RemoveFinalizers {
		reason, what = EventFinalizersRemoved, "Finalizers removed"
	}
	return Event{Pod: &action.Pod, Warning: true, Reason: reason, Action: action.Stage.Name, Note: fmt.Sprintf("%s by drain strategy %q, because the pod blocked the drain of node %s, which began at %s",
		what, action.Stage.Name, d.facts.Node.Name, formatTime(d.facts.Since))}
}
