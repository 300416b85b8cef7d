// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// StormLimits say when too many machines of a shoot fail at the same time (P16, X21). The zero value says never.
type StormLimits struct {
	// MaxFailing is how many machines may fail at the same time, MaxFailingPercent the same as a percentage. 0 is no limit. The lower one
	// applies.
	MaxFailing, MaxFailingPercent int32
	// SettlingTime is how long a machine still counts as failing after its node has become ready again.
	SettlingTime time.Duration
}

// Enabled says that there is a limit.
func (l StormLimits) Enabled() bool { return l.MaxFailing > 0 || l.MaxFailingPercent > 0 }

// of returns how many of the machines may fail at the same time: the lower of the limits.
func (l StormLimits) of(machines int) int {
	limit := int(l.MaxFailing)
	if l.MaxFailingPercent > 0 {
		if part := max(1, (machines*int(l.MaxFailingPercent)+99)/100); limit == 0 || part < limit {
			limit = part
		}
	}
	return limit
}

// maxFailureAge is for how long a failure is part of a storm at most: a storm that does not end holds nothing up for ever.
const maxFailureAge = 24 * time.Hour

// StormInterval is when to count again while something waits for the end of a storm: the machines of others that recover, or go, tell nobody
// who waits.
const StormInterval = 10 * time.Second

// Storm is how many machines of a shoot fail at the same time. The zero value is none.
type Storm struct {
	// Failing is how many fail, of how many Machines, and Limit how many may.
	Failing, Machines, Limit int
	// Next is when to count again although nothing changes; zero if there is no storm. It may be over before: machines go.
	Next time.Time
}

// IsOn says that more machines fail than may.
func (s Storm) IsOn() bool { return s.Failing > s.Limit }

// StormOf counts the machines of a shoot that fail at the same time. It remembers nothing: all that counts can be read from the objects.
//
// A machine fails from when its node is unhealthy until the settling time after its node has become ready again: that is the delay after
// a storm. Failures belong together if they began within the larger of the settling time and the machine's health timeout; one that has
// yet to settle belongs to all that began before it has, because nobody knows any more when it began. So machines that fail one after the
// other over hours are no storm, nor are those that are Failed:Preserved for days.
//
// The shoot writes the times of its nodes (P14). A time in the future counts as now. The worst that a shoot can do is to hinder its own
// places and automatic power cycles, or to have them in a storm.
//
// FailedSince returns since when a preserved machine has failed, zero for any other. What counts the time for it may have been shifted.
func StormOf(members []Member, failedSince func(*machinev1alpha1.Machine) time.Time, limits StormLimits, timeouts Timeouts, unhealthy []string, now time.Time) Storm {
	if !limits.Enabled() {
		return Storm{}
	}
	var (
		storm    Storm
		from, to []time.Time
		next     time.Time
	)
	for _, m := range members {
		if !hasJoined(m) {
			continue
		}
		storm.Machines++
		t, ok := troubleOf(m, failedSince, limits, timeouts, unhealthy, now)
		if !ok {
			continue
		}
		from, to = append(from, t.from), append(to, t.to)
		if next.IsZero() || t.over.Before(next) {
			next = t.over
		}
	}
	slices.SortFunc(from, time.Time.Compare)
	slices.SortFunc(to, time.Time.Compare)
	for _, at := range slices.Concat(from, to) {
		begun, _ := slices.BinarySearchFunc(from, at.Add(1), time.Time.Compare)
		ended, _ := slices.BinarySearchFunc(to, at, time.Time.Compare)
		storm.Failing = max(storm.Failing, begun-ended)
	}
	if storm.Limit = limits.of(storm.Machines); storm.IsOn() {
		storm.Next = next
	}
	return storm
}

// hasJoined says that a machine has, or had, a node, and is not on its way out.
func hasJoined(m Member) bool {
	switch m.Machine.Status.CurrentStatus.Phase {
	case "", machinev1alpha1.MachinePending, machinev1alpha1.MachineAvailable, machinev1alpha1.MachineCrashLoopBackOff, machinev1alpha1.MachineTerminating:
		return false
	}
	return m.Machine.DeletionTimestamp == nil && (m.Node != nil || len(m.Machine.Status.Conditions) > 0)
}

// isWorkedOn says that somebody works on a machine, so that its node may be away as is to be expected.
func isWorkedOn(m Member) bool {
	return m.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineInPlaceUpdating || m.Node != nil && (IsMaintained(m.Node) || IsUpdatedInPlace(m.Node))
}

// trouble is a failure. It belongs to all that began from from until to, and counts until over.
type trouble struct{ from, to, over time.Time }

// troubleOf returns the failure of a machine, if it counts now.
func troubleOf(m Member, failedSince func(*machinev1alpha1.Machine) time.Time, limits StormLimits, timeouts Timeouts, unhealthy []string, now time.Time) (t trouble, ok bool) {
	if isWorkedOn(m) {
		return trouble{}, false
	}
	if IsHealthy(m, unhealthy) {
		back := earlierOf(now, readyOf(m).LastTransitionTime.Time)
		settled := back.Add(limits.SettlingTime)
		// What became ready while it was young has joined, and not recovered.
		return trouble{to: settled, over: settled}, back.After(m.Node.CreationTimestamp.Add(limits.SettlingTime)) && now.Before(settled)
	}
	status := m.Machine.Status.CurrentStatus
	doubted := status.Phase == machinev1alpha1.MachineUnknown || status.Phase == machinev1alpha1.MachineFailed
	if m.Node == nil && !doubted { // it has just gone, or nobody knows it
		return trouble{}, false
	}
	t.from = now
	begins := func(at time.Time) {
		if !at.IsZero() {
			t.from = earlierOf(t.from, at)
		}
	}
	begins(failedSince(m.Machine))
	if ready := readyOf(m); ready != nil && ready.Status != corev1.ConditionTrue {
		begins(ready.LastTransitionTime.Time)
	}
	if doubted {
		begins(status.LastUpdateTime.Time)
	}
	last := t.from
	// A condition may have been bad before. Nobody knows which of the two times is the beginning: machine-controller-manager may have begun to
	// count anew since, or the list of conditions may have changed. The failure belongs to those of both times.
	if bad := FirstBad(m, unhealthy); bad != nil {
		begins(bad.LastTransitionTime.Time)
	}
	t.to, t.over = last.Add(max(limits.SettlingTime, timeouts.For(m.Machine).Health)), last.Add(maxFailureAge)
	return t, now.Before(t.over)
}

// readyOf returns the condition Ready of a machine's node, nil if there is none.
func readyOf(m Member) *corev1.NodeCondition {
	if m.Node == nil {
		return nil
	}
	return v1alpha1.ConditionOf(m.Node, corev1.NodeReady)
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
