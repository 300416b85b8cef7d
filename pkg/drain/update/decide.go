// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package update

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// maxNamed is how many pods, or errors, are named.
const maxNamed = 5

// leftInterval is after what time other pods are named that are left when a drain has failed.
const leftInterval = time.Minute

// Facts are what is known of a node that machine-controller-manager drains because of an update.
type Facts struct {
	Drain
	Node *corev1.Node
	// Pods are all pods of the node.
	Pods []drain.Pod
	// ForceVolumes says that pods with volumes may be deleted from a node that does not answer.
	ForceVolumes bool
	// Budgets are those of the namespaces that NeedsBudgets returns.
	Budgets    drain.Budgets
	Strategies *drain.Strategies
	// Conditions says that others see in conditions of the node that it is being drained (D13).
	Conditions bool

	// Deletions are what was deleted on the node, and failures how often what was due failed on a pod, by its UID. They are kept in
	// memory only.
	Deletions drain.Deletions
	Failures  map[types.UID]int
}

// Decision is what is to be done with a node.
type Decision struct {
	// Due is to be carried out, in this order. A pod on which it fails stops no other.
	Due []drain.Action
	// Failed says that the drain has failed (D7), and JustFailed that this is not shown on the node yet.
	Failed, JustFailed bool
	// Write shows on the node how the drain goes.
	Write intent.Write
	// Next is when to look again if nothing changes, zero for never.
	Next time.Time

	facts Facts
	now   time.Time
	pods  []drain.Pod
	// stages are those that Due is because of.
	stages []drain.Stage
}

// NeedsBudgets returns of which namespaces the budgets decide on something that may be due, none before that.
func (f Facts) NeedsBudgets(now time.Time) []string {
	if !slices.ContainsFunc(f.Strategies.Policy().Stages, func(s drain.Stage) bool { return !now.Before(f.Since.Add(s.After)) }) {
		return nil
	}
	namespaces := sets.New[string]()
	for _, pod := range f.concerned() {
		if !pod.Ignored {
			namespaces.Insert(pod.Namespace)
		}
	}
	return sets.List(namespaces)
}

// concerned returns the pods that a drain waits for (D3), with what is known of them here.
func (f Facts) concerned() []drain.Pod {
	var concerned []drain.Pod
	for _, pod := range f.Pods {
		if pod.Belongs() {
			continue
		}
		pod.AtRisk = pod.Volumes && !f.ForceVolumes && !facts.IsReady(f.Node)
		pod.Ignored = f.Strategies.Ignores(pod.Namespace)
		concerned = append(concerned, pod)
	}
	return concerned
}

// Decide returns what is to be done with a node now.
func Decide(facts Facts, now time.Time) Decision {
	policy := facts.Strategies.Policy()
	d := Decision{facts: facts, now: now, pods: facts.concerned(), stages: policy.Stages}
	actions, next, failed := drain.Plan(now, facts.Since, d.pods, facts.Budgets, facts.Deletions, policy)
	d.Next = next
	for i := range d.stages {
		for _, action := range actions {
			if action.Stage == &d.stages[i] && action.Verb != drain.Keep {
				d.Due = append(d.Due, action)
			}
		}
	}
	// Pods that hang, as a webhook does, must not take the time of those that do not.
	slices.SortStableFunc(d.Due, func(a, b drain.Action) int {
		return cmp.Compare(facts.Failures[a.Pod.UID], facts.Failures[b.Pod.UID])
	})

	// Once failed, it stays so until the drain ends, also across a restart. What an earlier drain has left on the node, while nobody
	// looked, says nothing of this one.
	shown := v1alpha1.ConditionOf(facts.Node, v1alpha1.ConditionNodeDrain)
	failedBefore := shown != nil && shown.Reason == v1alpha1.ReasonDrainTimedOut && shownSince(shown).Equal(facts.Since)
	d.Failed = len(d.pods) > 0 && (failed || failedBefore)
	d.JustFailed = d.Failed && !failedBefore
	d.Write = Show(facts.Node, d.condition(actions), facts.Conditions, now)
	// Pods that come back again and again would cost a write each time.
	if failedBefore && d.Failed && d.Write.Changes() && shown.LastTransitionTime.Time.Equal(facts.Since) {
		if again := shown.LastHeartbeatTime.Add(leftInterval); now.Before(again) {
			d.Write = Show(facts.Node, shown.DeepCopy(), facts.Conditions, now)
			if d.Next.IsZero() || again.Before(d.Next) {
				d.Next = again
			}
		}
	}
	return d
}

// Outcome is what comes of what was due.
type Outcome struct {
	// Events tell of it.
	Events []Event
	// Failures are those of the Facts from now on.
	Failures map[types.UID]int
	// Progress says that something was done, and Err what was not.
	Progress bool
	Err      error
}

// Outcome returns what comes of what was due, whose errors are given, and notes what was deleted in the deletions of the facts.
func (d Decision) Outcome(errs []error) Outcome {
	var (
		o       = Outcome{Failures: map[types.UID]int{}}
		carried []drain.Action
		tried   bool
	)
	for i, action := range d.Due {
		before := d.facts.Failures[action.Pod.UID]
		switch {
		case errs[i] == nil:
			if carried = append(carried, action); !action.Returned { // of these, one Event tells for all
				o.Events = append(o.Events, d.ofPod(action))
			}
		case !errors.Is(errs[i], drain.ErrNotReached):
			tried = true
			before++
		}
		o.Failures[action.Pod.UID] = before
	}
	o.Progress = len(carried) > 0
	if owners := d.facts.Deletions.Note(carried, d.now); len(owners) > 0 {
		o.Events = append(o.Events, Event{Warning: true, Reason: EventPodsCameBack, Action: eventAction, Note: drain.ReturnsText(owners)})
	}
	for i := range d.stages {
		var pods []drain.Pod
		for _, action := range carried {
			if action.Stage == &d.stages[i] && !action.Returned {
				pods = append(pods, action.Pod)
			}
		}
		if len(pods) > 0 {
			o.Events = append(o.Events, d.ofStage(&d.stages[i], pods))
		}
	}
	if o.Err = utilerrors.NewAggregate(firstOf(errs)); tried {
		o.Events = append(o.Events, Event{Warning: true, Reason: EventStrategyFailed, Action: eventAction, Note: o.Err.Error()})
	}
	return o
}

// firstOf returns the first errors. Each is short, and there may be as many as pods.
func firstOf(errs []error) []error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if more := len(errs) - maxNamed; more > 0 {
		return append(errs[:maxNamed], errors.New(brief.More(more)))
	}
	return errs
}
