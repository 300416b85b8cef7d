// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package failure decides what the failure history of a shoot says, purely: when an entry begins, what it says, when it is complete, and
// which entries must go. Entries are for people. Somebody may have forged an entry: what is read from it decides on that entry only.
package failure

import (
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// ReasonPowerCycled says that the machine has not failed: the failure history has it because its host was power-cycled.
const ReasonPowerCycled = "PowerCycled"

var reasons reason.Table

// The reasons that only the failure history has.
var (
	// WhyUnseen stands for the end of a failure that nobody saw end.
	WhyUnseen = reasons.Add("Unseen", "", "it was gone when the preservation controller looked again")
	// WhyUndecided stands for the decision on a machine that nobody decided on.
	WhyUndecided = reasons.Add("Undecided", "", "it was already being deleted when the preservation controller first saw the failure")
)

// Entry is what is remembered of a failure until it is over.
type Entry struct {
	// Name is that of the MachineFailure, by which there is one at most, and UID that of the machine.
	Name string
	UID  types.UID
	// Since is the start of the timer that ran out, and At when the failure was seen.
	Since, At time.Time
	// Decision is what was decided last.
	Decision failuresv1alpha1.Decision
	// PowerCycled says that the host was power-cycled, OnlyPowerCycled that nothing but that made it a failure.
	PowerCycled, OnlyPowerCycled bool
	// Expected says that the timer began to run when the host was being power-cycled already, or that somebody works on the node.
	Expected bool
	// Going says that the machine is being deleted: nothing is decided on it any more.
	Going bool

	// released is why the machine is no longer preserved; zero while it is, or if it was not.
	released reason.Reason
	// ends is how it ends, once the machine is being deleted.
	ends *failuresv1alpha1.MachineFailureStatus
}

// Of returns the failure of the machine that a decision was taken on, and nil if it has not failed.
func Of(d *preservation.Decision, defaults facts.Timeouts, now time.Time) *Entry {
	machine := d.Machine
	since, failed := d.HasFailed()
	if machine.DeletionTimestamp != nil {
		since, failed = missed(d.Member, d.Current, defaults)
	}
	powerCycled := remediation.UnderWay(machine)
	onlyPowerCycled := !failed && powerCycled && machine.DeletionTimestamp == nil
	switch {
	case onlyPowerCycled:
		since = remediation.Began(machine)
	case !failed:
		return nil
	}
	if since.IsZero() { // made unreadable by hand
		since = machine.CreationTimestamp.Time
	}
	return &Entry{
		Name: NameOf(machine.Name, since), UID: machine.UID, Since: since, At: now.Truncate(time.Second),
		Decision: decisionOf(d), PowerCycled: powerCycled, OnlyPowerCycled: onlyPowerCycled, Going: machine.DeletionTimestamp != nil,
		Expected: powerCycled && !since.Before(remediation.Began(machine)) || isMaintained(d),
	}
}

// isMaintained says that somebody works on the node of a machine, which is kept for that.
func isMaintained(d *preservation.Decision) bool {
	return d.Target != nil && slices.ContainsFunc(d.Target.Claims, func(c preservation.Claim) bool { return c.Cause == v1alpha1.CauseMaintenance })
}

// missed returns whether a machine had failed by the time that it was deleted, and since when its timer ran, for one that nobody saw
// until then: no sidecar led. What the node says of when it became unhealthy is the shoot's, and gets into nothing but an entry.
func missed(m facts.Member, current *preservation.Record, defaults facts.Timeouts) (since time.Time, failed bool) {
	deleted, timeouts := m.Machine.DeletionTimestamp.Time, defaults.For(m.Machine)
	switch c := m.Machine.Spec.MachineConfiguration; {
	case current != nil:
		return current.FailedSince, current.Failed
	case len(m.Machine.Status.Conditions) == 0:
		since = m.Machine.CreationTimestamp.Time
		return since, !deleted.Before(since.Add(timeouts.Creation))
	case m.Node == nil || c != nil && ptr.Deref(c.DisableHealthTimeout, false):
		return time.Time{}, false
	}
	ready := v1alpha1.ConditionOf(m.Node, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return time.Time{}, false
	}
	since = ready.LastTransitionTime.Time
	return since, !deleted.Before(since.Add(timeouts.Health))
}

func decisionOf(d *preservation.Decision) failuresv1alpha1.Decision {
	record := d.Target
	if record == nil {
		record = d.Current
	}
	if record == nil || d.Target == nil && !record.Failed {
		why := d.Why
		if d.Machine.DeletionTimestamp != nil {
			why = WhyUndecided
		}
		return failuresv1alpha1.Decision{Reason: why.ID, Text: cut(why.Text, failuresv1alpha1.MaxText)}
	}
	cause := record.Cause()
	why := preservation.WhyBegun(cause)
	return failuresv1alpha1.Decision{Kept: true, Cause: cut(cause, failuresv1alpha1.MaxText), Reason: why.ID, Text: cut(why.Text, failuresv1alpha1.MaxText)}
}

// NameOf returns the name of the entry of a failure, the same whoever asks, and whenever. It rests on the name of the machine, and not
// on its UID: a Machine that is restored after a migration of the control plane has another one.
func NameOf(machine string, since time.Time) string {
	suffix := "-" + strconv.FormatInt(since.Unix(), 36)
	return machine[:min(len(machine), failuresv1alpha1.MaxName-len(suffix))] + suffix
}

// sinceOf returns since when the machine of an entry has failed, in seconds as its name has it, 0 if that does not say so.
func sinceOf(name string) int64 {
	since, _ := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 36, 64)
	return since
}

// Opened returns what is remembered of an entry that was begun before, as far as it can be used.
func Opened(f *failuresv1alpha1.MachineFailure) *Entry {
	onlyPowerCycled := f.Spec.Reason == ReasonPowerCycled
	return &Entry{
		Name: f.Name, UID: types.UID(f.Spec.MachineUID), Since: f.Spec.FailedSince.Time, At: f.Spec.FailedAt.Time,
		Decision: f.Spec.Decision, PowerCycled: onlyPowerCycled, OnlyPowerCycled: onlyPowerCycled,
	}
}

// IsOf says that it is a failure of a machine, and not of one that had its name before.
func (e *Entry) IsOf(machine *machinev1alpha1.Machine) bool {
	record := preservation.ReadRecord(machine)
	return machine.UID == e.UID || record != nil && record.FailedSince.Equal(e.Since) // it was restored
}

// Learn takes over what was decided since. The failure itself stays what it was. A machine that was preserved and released counts as
// preserved: machine-controller-manager may delete it before its record is gone.
func (e *Entry) Learn(later *Entry) {
	e.PowerCycled = e.PowerCycled || later.PowerCycled
	if !later.Going && (later.Decision.Kept || e.released.IsZero()) {
		e.Decision, e.released = later.Decision, reason.Reason{}
	}
}

// Release says that the machine is no longer preserved.
func (e *Entry) Release(why reason.Reason) { e.released = why }

// Look returns how the failure has ended, and nil if it has not. The member is nil once the machine is gone.
func (e *Entry) Look(m *facts.Member, unhealthy []string, now time.Time) *failuresv1alpha1.MachineFailureStatus {
	if m == nil {
		if e.ends == nil {
			e.ends = e.ending(nil)
		}
		return e.ended(*e.ends, now)
	}
	underWay := remediation.UnderWay(m.Machine)
	e.PowerCycled = e.PowerCycled || underWay
	record := preservation.ReadRecord(m.Machine)
	switch {
	case m.Machine.DeletionTimestamp != nil:
		if e.ends == nil { // what the first look finds there may be gone with the next
			e.ends = e.ending(m)
		}
	case m.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && !underWay && (record == nil || !record.Failed) && facts.IsHealthy(*m, unhealthy):
		return e.ended(statusOf(failuresv1alpha1.OutcomeRecovered, preservation.WhyHealthyAgain), now)
	}
	return nil
}

// ending returns why a machine is deleted, nil for one that is gone. What nobody had time to decide on, machine-controller-manager >= 0.62
// has ended by itself: with its next write it clears the expiry of any machine that is being deleted.
func (e *Entry) ending(m *facts.Member) *failuresv1alpha1.MachineFailureStatus {
	status := statusOf(failuresv1alpha1.OutcomeDeleted, WhyUnseen)
	switch {
	case !e.released.IsZero():
		status = statusOf(failuresv1alpha1.OutcomeReplaced, e.released)
	case !e.Decision.Kept && !e.OnlyPowerCycled:
		status = failuresv1alpha1.MachineFailureStatus{Outcome: failuresv1alpha1.OutcomeReplaced, Reason: e.Decision.Reason, Text: e.Decision.Text}
	case m == nil:
	default:
		status = endingOf(m)
	}
	return &status
}

// endingOf returns why a machine is deleted that was kept.
func endingOf(m *facts.Member) failuresv1alpha1.MachineFailureStatus {
	record, current := preservation.ReadRecord(m.Machine), m.Machine.Status.CurrentStatus
	switch {
	case record == nil && !preservation.ReadNotes(m.Machine).Spent.Released.IsZero():
		return statusOf(failuresv1alpha1.OutcomeReplaced, preservation.WhyHadItsTime)
	case record != nil && !record.Expiry().After(m.Machine.DeletionTimestamp.Time):
		return statusOf(failuresv1alpha1.OutcomeReplaced, preservation.WhyExpired)
	case preservation.RequestOf(*m, v1alpha1.DefaultMaxMachinePreserveTimeout).Value == v1alpha1.RequestFalse:
		return statusOf(failuresv1alpha1.OutcomeReplaced, preservation.WhyStopped)
	case preservation.IsExpiryInStatus(m.Machine) && current.PreserveExpiryTime == nil && current.Phase == machinev1alpha1.MachineFailed:
		return statusOf(failuresv1alpha1.OutcomeReplaced, preservation.WhyEndedNatively)
	}
	return statusOf(failuresv1alpha1.OutcomeDeleted, preservation.WhyDeleted)
}

func statusOf(outcome failuresv1alpha1.Outcome, why reason.Reason) failuresv1alpha1.MachineFailureStatus {
	return failuresv1alpha1.MachineFailureStatus{Outcome: outcome, Reason: why.ID, Text: cut(why.Text, failuresv1alpha1.MaxText)}
}

func (e *Entry) ended(status failuresv1alpha1.MachineFailureStatus, now time.Time) *failuresv1alpha1.MachineFailureStatus {
	status.EndedAt.Time, status.PowerCycled = now.Truncate(time.Second), e.PowerCycled
	return &status
}

// other stands for a reason that is none of a list of ours.
const other = "other"

// MetricReasons are those that metrics have.
var MetricReasons = append([]string{
	string(corev1.NodeReady), string(corev1.NodeMemoryPressure), string(corev1.NodePIDPressure),
	facts.ReasonNeverJoined, facts.ReasonNodeGone, ReasonPowerCycled, facts.ReasonInPlaceUpdateFailed, facts.ReasonUnknown, other,
}, facts.DefaultNodeConditions...)

// MetricReason returns the reason of a failure as metrics have it: a machine may be unhealthy by conditions of any name.
func MetricReason(reason string) string {
	if slices.Contains(MetricReasons, reason) {
		return reason
	}
	return other
}
