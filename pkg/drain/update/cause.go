// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package update decides what happens on a node that machine-controller-manager drains because of an update of the shoot's
// workers, and what is reported about that drain. It uses no client and no clock.
package update

import (
	"regexp"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Cause is why machine-controller-manager drains a node.
type Cause string

const (
	causeNone          Cause = ""
	causeRollingUpdate Cause = "a rolling update"
	causeInPlaceUpdate Cause = "an update in place"
)

// Drain is because of what, and since when, machine-controller-manager drains a node. Its zero value is one because of no update.
type Drain struct {
	Cause Cause
	Since time.Time
}

// Ahead is the time of a selection that was yet to come, and when the first such time of the node was seen. Nodes say themselves since
// when they are selected for an update in place: that is bounded to not after now (D2). A time ahead would stall the strategies and the
// alert until it has come, now would begin the drain anew at each look, and the lower bound, which may be hours ago where nodes are
// updated one after the other, would skip PodDisruptionBudgets. So it counts from when such a time was seen first, which the shoot
// cannot write either, also once that time has come.
//
// After a restart that is what the node's own condition says, as far as it can be true. The shoot can gain no more by writing
// there than by dating the selection back; without it, for one whose writes are denied, the time begins once more.
type Ahead struct{ claimed, seen time.Time }

// MayConcern says that machine-controller-manager drains the node because of an update, if the machine, nil for none, has missed one.
func MayConcern(machine *machinev1alpha1.Machine, node *corev1.Node) bool {
	return machine != nil && !IsControlPlane(node) && (machine.DeletionTimestamp != nil || facts.IsSelectedForUpdate(node))
}

// DrainOf returns because of which update machine-controller-manager drains a node, if any, and since when (D1, D2), and what is to be
// remembered of that. It is not before the first update came that the machine has missed: what is on the node is the shoot's to write,
// and a time of long ago must not skip PodDisruptionBudgets. A deletion cannot be taken back, so a return to the machine's own
// MachineSet ends no drain. It does not matter which component cordoned the node, and when.
func DrainOf(machine *machinev1alpha1.Machine, node *corev1.Node, missed facts.Missed, ahead Ahead, now time.Time) (Drain, Ahead) {
	if !MayConcern(machine, node) {
		return Drain{}, Ahead{}
	}
	switch deleted := machine.DeletionTimestamp; {
	case deleted == nil && missed.Outdated:
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == machinev1alpha1.NodeInPlaceUpdate })
		ahead = ahead.after(node, later(missed.Since, node.Status.Conditions[i].LastTransitionTime.Time), missed.Since, now)
		return Drain{causeInPlaceUpdate, ahead.seen}, ahead
	case deleted == nil || deleted.Before(&node.CreationTimestamp): // it is another machine's by now
	case missed.Outdated || !missed.Since.IsZero() && !missed.Since.After(deleted.Time):
		return Drain{causeRollingUpdate, later(missed.Since, deleted.Time)}, Ahead{}
	}
	return Drain{}, Ahead{}
}

// after returns what is known of the selection after a look at a node that says that it was selected at claimed, which is not before
// earliest. It was seen at the time from which it counts.
func (a Ahead) after(node *corev1.Node, claimed, earliest, now time.Time) Ahead {
	switch isAhead := a.seen.Before(a.claimed); {
	case isAhead && a.claimed.Equal(claimed):
		return a
	case !claimed.After(now):
		return Ahead{claimed, claimed}
	case isAhead:
		return Ahead{claimed, a.seen}
	}
	if shown := shownSince(v1alpha1.ConditionOf(node, v1alpha1.ConditionNodeDrain)); !shown.IsZero() && !shown.Before(earliest) && !shown.After(now) {
		return Ahead{claimed, shown}
	}
	return Ahead{claimed, now.Truncate(time.Second)}
}

// legacySince finds since when the drain goes on in the text of an earlier version, which had no other place for it. It may go once no
// node shows a condition of such a version any more.
var legacySince = regexp.MustCompile(`^Drained by machine-controller-manager for an? [a-z ]+ since ([0-9TZ:-]+)\.`)

// shownSince returns since when the drain goes on that the condition of a node shows: its last transition. It is zero if the node shows
// none. That identifies the drain, because no two of a node begin at the same time: a deletion comes after all looks at an update in place.
func shownSince(c *corev1.NodeCondition) time.Time {
	if c == nil {
		return time.Time{}
	}
	if match := legacySince.FindStringSubmatch(c.Message); match != nil {
		if since, err := time.Parse(time.RFC3339, match[1]); err == nil {
			return since
		}
	}
	return c.LastTransitionTime.Time
}

// IsControlPlane says that the node runs the shoot's own control plane.
func IsControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels[v1alpha1.LabelControlPlane]
	return ok
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
