// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy

import (
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// cause is why machine-controller-manager drains a node.
type cause string

const (
	causeNone          cause = ""
	causeRollingUpdate cause = "a rolling update"
	causeInPlaceUpdate cause = "an update in place"
)

// causeOf returns because of which update machine-controller-manager drains a node, if any, and since when (D1, D2). That is
// not before the first update came that the machine has missed: what is on the node is the shoot's to write, and a time of
// long ago must not skip PodDisruptionBudgets. One that is yet to come is left to selections. A deletion cannot be taken back, so a return to the machine's own MachineSet
// ends no drain. Who has cordoned the node, and when, is no matter.
func causeOf(machine *machinev1alpha1.Machine, node *corev1.Node, update shoot.Update) (cause, time.Time) {
	if machine == nil || isControlPlane(node) {
		return causeNone, time.Time{}
	}
	switch deleted := machine.DeletionTimestamp; {
	case deleted != nil && deleted.Before(&node.CreationTimestamp): // it is another machine's by now
	case deleted != nil && (update.Outdated || !update.Since.IsZero() && !update.Since.After(deleted.Time)):
		return causeRollingUpdate, later(update.Since, deleted.Time)
	case deleted == nil && update.Outdated && preservation.IsSelectedForUpdate(node):
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == machinev1alpha1.NodeInPlaceUpdate })
		return causeInPlaceUpdate, later(notBefore(machine, update), node.Status.Conditions[i].LastTransitionTime.Time)
	}
	return causeNone, time.Time{}
}

// notBefore is the lower bound of when a node was selected for an update in place, which the shoot cannot write.
func notBefore(machine *machinev1alpha1.Machine, update shoot.Update) time.Time {
	return later(update.Since, machine.CreationTimestamp.Time)
}

// selections bound the times of nodes that say themselves since when they are selected for an update in place: not after now (D2).
// A time ahead would stall the strategies and the alert until it has come, now would begin the drain anew at each look, and the
// lower bound, which may be hours ago where nodes are updated one after the other, would skip PodDisruptionBudgets. So it counts
// from when such a time was seen first, which the shoot cannot write either, also once that time has come.
//
// After a restart that is what the node's own condition says, as far as it can be true. The shoot can gain no more by writing
// there than by dating the selection back; without it, for one whose writes are denied, the time begins once more.
type selections struct{ byNode sync.Map }

// ahead is a time that was yet to come, and when the first of such times of a node was seen.
type ahead struct{ claimed, seen time.Time }

// bound returns since when a node is drained that was selected at claimed, but not before earliest.
func (s *selections) bound(node *corev1.Node, claimed, earliest, now time.Time) time.Time {
	var before ahead
	if v, ok := s.byNode.Load(node.Name); ok {
		before = v.(ahead)
	}
	switch known := !before.seen.IsZero(); {
	case known && before.claimed.Equal(claimed):
		return before.seen
	case !claimed.After(now):
		s.byNode.Delete(node.Name)
		return claimed
	case !known:
		before.seen = now.Truncate(time.Second)
		if told := toldSince(conditionOf(node), causeInPlaceUpdate); !told.IsZero() && !told.Before(earliest) && !told.After(now) {
			before.seen = told
		}
	}
	s.byNode.Store(node.Name, ahead{claimed: claimed, seen: before.seen})
	return before.seen
}

func (s *selections) forget(node string) { s.byNode.Delete(node) }

// isControlPlane says that the node runs the shoot's own control plane.
func isControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels[v1alpha1.LabelControlPlane]
	return ok
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
