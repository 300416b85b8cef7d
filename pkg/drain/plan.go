// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"
	"time"
)

// Verb is what is done with a pod.
type Verb int

const (
	// Wait for a pod whose time has not come, or that was asked to go.
	Wait Verb = iota
	// Keep a pod that the VM may still be running with its volumes (D10).
	Keep
	// Evict a pod, which its PodDisruptionBudget may refuse.
	Evict
	// Delete a pod without a grace period, once more if it is terminating.
	Delete
	// Terminate is to delete a pod that came back, and leave it its grace period (D6).
	Terminate
	// RemoveFinalizers from a terminating pod.
	RemoveFinalizers
)

// Action is what is to be done with a pod, and because of which stage. A pod to wait for has none.
type Action struct {
	Pod   Pod
	Verb  Verb
	Stage *Stage
	// Returned says that its time has come, and that it came back after others of its owner were deleted by force.
	Returned bool
}

// Group is a part of a node's pods by whether a PodDisruptionBudget selects them (D4).
type Group int

const (
	// AllPods are all.
	AllPods Group = iota
	// UnprotectedPods are those that no PodDisruptionBudget selects.
	UnprotectedPods
	// ProtectedPods are those that one does, and those of which that is not known.
	ProtectedPods
)

// State is how far a pod's termination is.
type State int

const (
	// AnyState is whatever it is.
	AnyState State = iota
	// NotTerminating is a pod that nobody has asked to go.
	NotTerminating
	// Finalizing is a pod whose grace period is over and that has finalizers.
	Finalizing
	// Stuck is a pod whose grace period is over and that has no finalizers.
	Stuck
)

// Selector selects pods of a group while they are in a state.
type Selector struct {
	Group Group
	State State
}

// Stage acts, from that long after the start of a drain, on the pods that it selects then and later.
type Stage struct {
	// Name is what the stage is called in Events.
	Name     string
	After    time.Duration
	Selector Selector
	Verb     Verb
}

// evict is the stage of those that empty a node by themselves (P7, M5).
var evict = Stage{Name: "evict", Selector: Selector{AllPods, NotTerminating}, Verb: Evict}

// Policy says how a drain goes about and when it has failed.
type Policy struct {
	// Stages are in the order in which they act. Of those that select a pod, the last one decides.
	Stages []Stage
	// Timeout is how long a drain has at least before it has failed, and ExpectedDrainTime how long a stage has for its pods.
	Timeout, ExpectedDrainTime time.Duration
}

// EvictionPolicy returns the policy of a drain that does nothing but to evict, and has failed after the timeout (M5).
func EvictionPolicy(timeout time.Duration) Policy {
	return Policy{Timeout: timeout, Stages: []Stage{evict}}
}

// Plan returns what is to be done with each of the pods now, in their order, when to look again, and whether the drain
// that began at since has failed (D12). It is to be looked at again when pods or budgets change, or else at next, which
// is after now; zero stands for never. Pods of ignored namespaces are waited for. A pod of which nobody knows whether a budget
// selects it is due when the pods of both groups are. Deletions are what was deleted on the node before, nil for
// nothing.
func Plan(now, since time.Time, pods []Pod, budgets Budgets, deletions Deletions, policy Policy) (actions []Action, next time.Time, failed bool) {
	wake := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	longest, latest := policy.Timeout, time.Duration(0)
	for _, stage := range policy.Stages {
		if stage.Selector.Group != AllPods {
			latest = max(latest, stage.After)
		}
	}
	for _, pod := range pods {
		protected, known := budgets.protect(pod)
		action := Action{Pod: pod}
		for i := range policy.Stages {
			stage := &policy.Stages[i]
			if pod.Ignored {
				if i == 0 {
					longest = max(longest, stage.After+policy.ExpectedDrainTime)
				}
				continue
			}
			if known && !stage.Selector.Group.has(protected) {
				continue
			}
			longest = max(longest, stage.After+policy.ExpectedDrainTime)
			due, ever := stage.Selector.State.from(pod, since.Add(stage.After))
			if !ever {
				continue
			}
			wake(due)
			if !known && stage.Selector.Group != AllPods {
				due, _ = stage.Selector.State.from(pod, since.Add(latest))
				wake(due)
			}
			if !now.Before(due) && stage.Selector.Group.has(protected) {
				action.Verb, action.Stage = stage.Verb, stage
			}
		}
		if pod.AtRisk && action.Verb != Wait && action.Verb != Evict {
			action.Verb = Keep
		}
		if action.Verb == Delete {
			from := now
			switch action.Returned = deletions.returned(pod); {
			case pod.Forced: // it is its finalizers that keep it, and another deletion changes nothing
				action.Verb = Wait
			case action.Returned:
				action.Verb, from = deletions.again(pod)
			}
			if wake(from); now.Before(from) {
				action.Verb = Wait
			}
			if action.Verb == Wait {
				action.Stage = nil
			}
		}
		actions = append(actions, action)
	}

	deadline := since.Add(longest)
	failed = len(pods) > 0 && now.After(deadline)
	if len(pods) > 0 && !failed {
		wake(deadline.Add(time.Nanosecond))
	}
	slices.SortFunc(actions, func(a, b Action) int { return cmp.Compare(a.Pod.Key(), b.Pod.Key()) })
	return actions, next, failed
}

func (g Group) has(protected bool) bool {
	return g == AllPods || protected == (g == ProtectedPods)
}

// from returns from when on, but not before the given time, a pod is in the state if nobody changes it, and whether it
// ever is.
func (s State) from(pod Pod, earliest time.Time) (time.Time, bool) {
	terminating := !pod.GraceEnds.IsZero()
	switch s {
	case NotTerminating:
		return earliest, !terminating
	case Finalizing, Stuck:
		if pod.GraceEnds.After(earliest) {
			earliest = pod.GraceEnds
		}
		return earliest, terminating && len(pod.Finalizers) > 0 == (s == Finalizing)
	}
	return earliest, true
}
