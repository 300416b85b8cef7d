// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What it is for machines that fail for a new reason are preferred (P15).

// kind is how a machine fails: by the condition of its node that was bad first, or without one.
func (s *subject) kind() string {
	if s.node == nil {
		return "no node"
	}
	kind, since := "nothing", time.Time{}
	for _, c := range s.node.Status.Conditions {
		bad := c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue || c.Type == kernelDeadlock && c.Status == corev1.ConditionTrue
		if bad && (since.IsZero() || c.LastTransitionTime.Time.Before(since)) {
			kind, since = string(c.Type), c.LastTransitionTime.Time
		}
	}
	return kind
}

// isFailing says that a machine is unhealthy, or has not joined for so long that it may fail for that.
func (s *subject) isFailing() bool {
	return !s.unhealthy.IsZero() || s.node == nil && time.Since(s.machine.CreationTimestamp.Time) > healthTimeout
}

// kinds returns how the machines fail that are kept, and how many in each way, without one of them.
func (o *oracle) kinds(without *subject) map[string]int {
	kinds := map[string]int{}
	for _, other := range o.machines {
		if other != without && other.record.Kept && other.record.Phase == rules.FailedPreserved && !other.record.IsOnlyWorkedOn(time.Now()) {
			kinds[other.kind()]++
		}
	}
	return kinds
}

// repeats says that another kept machine shows what a machine shows, and that one fails which shows what no kept one does.
func (o *oracle) repeats(s *subject) bool {
	kinds := o.kinds(s)
	if !o.prefersNew || kinds[s.kind()] == 0 {
		return false
	}
	for _, other := range o.machines {
		if other != s && other.machine != nil && other.isFailing() && other.record.Phase != rules.FailedPreserved && kinds[other.kind()] == 0 {
			return true
		}
	}
	return false
}

// checkNew is called when a machine is terminated that nobody keeps. It blames that it failed for a new reason, and that there were machines
// that nobody asked for and that show the same as others.
func (o *oracle) checkNew(name string, s *subject, before *machinev1alpha1.Machine) {
	kinds := o.kinds(nil)
	if !o.prefersNew || s.everKept || s.asked || s.GoesOn(rules.Forbidden) || o.GoesOn(rules.HoursUsedUp) || before.Status.CurrentStatus.Phase != machinev1alpha1.MachineFailed || before.Spec.ProviderID == "" ||
		kinds[s.kind()] > 0 || len(o.places(false)) > o.share || // people keep more than the share, and no place would be free
		o.since(rules.Fault) <= healthTimeout+calm || o.since(rules.PlaceFreed, rules.ShareLowered, rules.Storm) <= healthTimeout+calm || s.since(rules.Touched) <= calm {
		return
	}
	for other, kept := range o.machines {
		if kept.record.IsAuto(time.Now()) && !kept.asked && !kept.worked && kept.record.Phase == rules.FailedPreserved && kinds[kept.kind()] > 1 &&
			time.Since(kept.changed) > healthTimeout+calm && kept.since(rules.Touched) > healthTimeout+calm {
			o.blame("P15", "%s failed and is terminated, no kept machine shows %s as well, and %s shows %s as others do", name, s.kind(), other, kept.kind())
			return
		}
	}
}
