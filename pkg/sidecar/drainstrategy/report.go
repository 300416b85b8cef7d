// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Reasons of the Events on Nodes and Pods (D11).
const (
	// EventStrategyActed says which strategy dealt with which pods of a node.
	EventStrategyActed = "DrainStrategyActed"
	// EventStrategyFailed says with which pods of a node that was not possible, and why.
	EventStrategyFailed = "DrainStrategyFailed"
	// EventPodsCameBack says whose pods came back after they were deleted by force.
	EventPodsCameBack = "PodsCameBack"
	// EventDrainTimedOut says that the drain of a node has failed, and which pods are left.
	EventDrainTimedOut = "DrainTimedOut"
	// EventDeletedByForce is on a pod that was deleted without a grace period.
	EventDeletedByForce = "DeletedByForce"
	// EventFinalizersRemoved is on a pod whose finalizers were removed.
	EventFinalizersRemoved = "FinalizersRemoved"

	// eventAction is the action of Events that are not a strategy's.
	eventAction = "Drain"

	// maxNamed is how many pods, or errors, are named.
	maxNamed = 5
)

// condition returns what is to be shown of the drain, nil for nothing: then no pods are left. It changes with deadlines,
// not with each pod that goes.
func (d *nodeDrain) condition(actions []drain.Action, failed bool, before *corev1.NodeCondition) *corev1.NodeCondition {
	if len(d.pods) == 0 {
		return nil
	}
	c := &corev1.NodeCondition{Type: v1alpha1.ConditionNodeDrain, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonDrainUnderWay}
	if failed {
		c.Reason = v1alpha1.ReasonDrainTimedOut
		c.Message = d.leftText()
		if d.hasFailed(before) {
			// The pods are those that were left when it failed.
			c.Message, _, _ = strings.Cut(before.Message, keptPrefix)
		}
	} else {
		c.Message = d.deadlinesText()
	}
	var kept []drain.Pod
	for _, action := range actions {
		if action.Verb == drain.Keep {
			kept = append(kept, action.Pod)
		}
	}
	if len(kept) > 0 {
		c.Message += keptPrefix + namesOf(kept) + "."
	}
	return c
}

// hasFailed says that the condition tells that this very drain has failed. What an earlier one has left there, while nobody
// looked, does not.
func (d *nodeDrain) hasFailed(c *corev1.NodeCondition) bool {
	return c != nil && c.Reason == v1alpha1.ReasonDrainTimedOut && strings.HasPrefix(c.Message, d.begunText())
}

// keptPrefix is before the names of the pods that are kept.
const keptPrefix = " Kept, as the VM may still run them with their volumes: "

func (d *nodeDrain) begunText() string {
	return begunPrefix(d.because) + formatTime(d.since) + "."
}

func begunPrefix(because cause) string {
	return fmt.Sprintf("Drained by machine-controller-manager for %s since ", because)
}

// toldSince returns since when a node is drained for that as the condition tells, zero if it does not.
func toldSince(c *corev1.NodeCondition, because cause) time.Time {
	if c == nil {
		return time.Time{}
	}
	since, _ := strings.CutPrefix(c.Message, begunPrefix(because))
	since, _, _ = strings.Cut(since, ".")
	told, _ := time.Parse(time.RFC3339, since)
	return told
}

// deadlinesText says what is being waited for, and until when.
func (d *nodeDrain) deadlinesText() string {
	if len(d.policy.Stages) == 0 {
		return d.begunText() + " Nothing is done with its pods, as drain strategies are disabled."
	}
	result := d.begunText()
	for _, group := range []struct {
		group drain.Group
		text  string
	}{
		{drain.UnprotectedPods, "Pods that no PodDisruptionBudget protects"},
		{drain.ProtectedPods, "Protected pods"},
	} {
		i := slices.IndexFunc(d.policy.Stages, func(s drain.Stage) bool { return s.Selector.Group == group.group })
		at, verb := d.since.Add(d.policy.Stages[i].After), "are deleted by force from"
		if !d.now.Before(at) {
			verb = "have been deleted by force since"
		}
		result += fmt.Sprintf(" %s %s %s.", group.text, verb, formatTime(at))
	}
	return result
}

// leftText says that the drain has failed, and which pods are left.
func (d *nodeDrain) leftText() string {
	var names []string
	for _, pod := range d.pods {
		names = append(names, pod.NameAt(d.now))
	}
	return d.begunText() + " It has failed. Pods that were left: " + firstNames(names) + "."
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
	return strings.Join(text.First(names, maxNamed), ", ")
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func conditionOf(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionNodeDrain })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// setCondition writes the condition of a node, or removes it, if it is not as it should be.
func (r *Reconciler) setCondition(ctx context.Context, node *corev1.Node, wanted *corev1.NodeCondition) error {
	before := conditionOf(node)
	switch {
	case wanted == nil && before == nil:
		return nil
	case wanted != nil && before != nil && before.Status == wanted.Status && before.Reason == wanted.Reason && before.Message == wanted.Message:
		return nil
	}
	edited := node.DeepCopy()
	edited.Status.Conditions = slices.DeleteFunc(edited.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionNodeDrain })
	if wanted != nil {
		now := metav1.NewTime(r.Clock.Now())
		wanted.LastHeartbeatTime, wanted.LastTransitionTime = now, now
		if before != nil && before.Status == wanted.Status {
			wanted.LastTransitionTime = before.LastTransitionTime
		}
		edited.Status.Conditions = append(edited.Status.Conditions, *wanted)
	}
	ctx, cancel := context.WithTimeout(ctx, shoot.WriteTimeout)
	defer cancel()
	if err := r.Nodes.Status().Patch(ctx, edited, client.StrategicMergeFrom(node)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to write the condition of the node: %w", text.CutError(err))
	}
	return nil
}

// tellStage tells on the node which strategy dealt with which pods, and on whose behalf.
func (r *Reconciler) tellStage(d *nodeDrain, stage *drain.Stage, pods []drain.Pod) {
	what := "deleted by force"
	if stage.Verb == drain.RemoveFinalizers {
		what = "rid of their finalizers"
	}
	// The action tells them apart: Events that differ in nothing but their notes become one, with the first note.
	r.tellAction(d.node, corev1.EventTypeNormal, EventStrategyActed, stage.Name, "Strategy %q, %s after machine-controller-manager began to drain the node for %s: %d %s: %s",
		stage.Name, d.now.Sub(d.since).Round(time.Second), d.because, len(pods), what, namesOf(pods))
}

// tellPod tells a pod's owner what became of it.
func (r *Reconciler) tellPod(d *nodeDrain, action drain.Action) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: action.Pod.Namespace, Name: action.Pod.Name, UID: action.Pod.UID},
	}
	reason, what := EventDeletedByForce, "Deleted without a grace period"
	if action.Verb == drain.RemoveFinalizers {
		reason, what = EventFinalizersRemoved, "Finalizers removed"
	}
	r.tellAction(pod, corev1.EventTypeWarning, reason, action.Stage.Name, "%s by drain strategy %q, as it held up the drain of node %s since %s", what, action.Stage.Name, d.node.Name, formatTime(d.since))
}

func (r *Reconciler) tell(regarding client.Object, eventType, reason, format string, arguments ...any) {
	r.tellAction(regarding, eventType, reason, eventAction, format, arguments...)
}

func (r *Reconciler) tellAction(regarding client.Object, eventType, reason, action, format string, arguments ...any) {
	r.Recorder.Eventf(regarding, nil, eventType, reason, action, "%s", text.Note(fmt.Sprintf(format, arguments...)))
}
