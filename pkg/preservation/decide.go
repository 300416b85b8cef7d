// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Group is a MachineDeployment with its machines: what one decision is taken on.
type Group struct {
	// Share is how many failed machines may be auto-preserved. Nil while nobody has said so: then none is preserved
	// anew, and none is let go.
	Share *int32
	// Timeout is for how long a preservation lasts that begins now.
	Timeout time.Duration
	// Replicas is the wanted number of machines; 0 means hibernation, or that the pool is removed (P4).
	Replicas int32
	// Rollout says that a rolling update is under way (P3).
	Rollout bool
	// Disabled says that the shoot is to do without this extension: all preservations end (P10).
	Disabled bool
	// Timeouts are the defaults of the machines' timeouts.
	Timeouts Timeouts
	// Members are the machines, in any order.
	Members []Member
}

// Member is a machine and its node.
type Member struct {
	Machine *machinev1alpha1.Machine
	// Node is nil if there is none, or if NodeUnknown.
	Node *corev1.Node
	// NodeUnknown says that the shoot's API server could not be asked yet (P9).
	NodeUnknown bool
}

// Decision is what is to become of one machine.
type Decision struct {
	Member
	// Current is the preservation that is under way; nil for none.
	Current *Record
	// Target is the preservation that is to be; nil for none.
	Target *Record
	// Rule is the id of the rule that makes Target differ from Current in more than bookkeeping, else empty.
	Rule string
	// Reason says in words why, for Events.
	Reason string
	// Refused says that the machine failed and found no share left (T6).
	Refused bool
	// ConsumeRequest says that the request annotations are to be deleted: they have had their time (T3, T8).
	ConsumeRequest bool
	// Confirm says that the decision rests on there being no preservation yet, which is to be read live before the first
	// write: a cache may lag, and what was preserved already would get another expiry.
	Confirm bool
	// Request is the request that counts.
	Request Request
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time

	// Deadline is when machine-controller-manager takes the machine for failed; zero if no deadline runs, and not of
	// interest once Target or Current are Failed.
	Deadline time.Time

	// failsAt is when the machine counts as failed: a margin before its deadline. Zero if no deadline runs.
	failsAt time.Time
	// claims says that the machine has failed and asks for a place within the share.
	claims bool
}

// Decide returns a decision for each member of the group, in their order. It depends on nothing but its arguments: the
// order of the members does not matter.
func Decide(g Group, now time.Time) []Decision {
	decisions := make([]Decision, len(g.Members))
	for i, member := range g.Members {
		decisions[i] = decide(g, member, now)
	}
	distribute(g, decisions)
	return decisions
}

// decide takes the decision for one machine, except where it hangs on the share: then the decision claims.
func decide(g Group, m Member, now time.Time) Decision {
	d := Decision{Member: m, Current: ReadRecord(m.Machine), Request: RequestOf(m)}

	if m.Machine.DeletionTimestamp != nil {
		if d.Current != nil {
			d.Rule, d.Reason = "T10", "the machine is being deleted"
		}
		return d
	}

	failed := false
	if at, margin := deadline(m.Machine, g.Timeouts, now); !at.IsZero() {
		d.Deadline, d.failsAt = at, at.Add(-margin)
		failed = !now.Before(d.failsAt)
	}

	if d.Current == nil {
		d.decideNew(g, failed, now)
	} else {
		d.decideOngoing(g, failed, now)
	}

	// The record latches the failure: its timer may have been shifted by the hold.
	if !failed && !d.failsAt.IsZero() && (d.Target == nil || !d.Target.Failed) {
		d.Next = d.failsAt
	}
	if d.Target != nil {
		d.lookAt(d.Target.Expiry)
	}
	return d
}

// decideNew decides on a machine that is not preserved: T1, T4, T5, T6.
func (d *Decision) decideNew(g Group, failed bool, now time.Time) {
	switch {
	case g.Disabled: // P10
	case g.Replicas == 0: // P4
	case d.Request.Value == v1alpha1.RequestNow:
		d.begin(g, v1alpha1.CauseNow, failed, now)
		d.Confirm = true
		d.Rule, d.Reason = "T1", "it was asked for"
	case !failed || d.Request.Value == v1alpha1.RequestFalse: // T6
	case d.Machine.Annotations[v1alpha1.AnnotationReleased] != "": // T8: it has had its time
	case g.Rollout: // P3
	case d.Request.Value == v1alpha1.RequestWhenFailed:
		d.begin(g, v1alpha1.CauseWhenFailed, failed, now)
		d.Rule, d.Reason = "T4", "it was asked for in case the machine fails"
	case d.Machine.Annotations[v1alpha1.AnnotationPreserve] == preserveValueAutoPreserved && d.Machine.Status.CurrentStatus.PreserveExpiryTime != nil:
		d.begin(g, v1alpha1.CauseAuto, failed, now)
		d.Target.Expiry = d.Machine.Status.CurrentStatus.PreserveExpiryTime.Time
		d.Rule, d.Reason, d.claims = "T5", "machine-controller-manager had preserved it", true
	case d.Machine.Spec.ProviderID == "": // no VM, no evidence
	default:
		d.begin(g, v1alpha1.CauseAuto, failed, now)
		d.Rule, d.Reason, d.claims = "T5", "the machine failed", true
	}
}

// decideOngoing decides on a preserved machine: T2, T3, T7, T8.
func (d *Decision) decideOngoing(g Group, failed bool, now time.Time) {
	target := *d.Current
	d.Target = &target

	if target.Expiry.IsZero() {
		target.Expiry = d.expiry(g, now)
	}

	running := d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning
	switch {
	case g.Disabled:
		d.release("preservation was disabled for the shoot")
		return
	case !now.Before(target.Expiry):
		d.release("the preservation expired")
		d.ConsumeRequest = true
		return
	case d.Request.Value == v1alpha1.RequestFalse:
		d.release("the preservation was stopped by " + v1alpha1.AnnotationPreserve + "=" + v1alpha1.RequestFalse)
		return
	case d.withdrawn():
		d.release("the request was withdrawn")
		return
	case d.stopped():
		d.release("machine-controller-manager had ended it")
		d.ConsumeRequest = true
		return
	}

	if d.Request.explicit() {
		target.Cause, target.Share = causeOf(d.Request.Value), 0
	}

	switch {
	case target.Failed && running:
		target.Failed, target.FailedSince = false, time.Time{}
		d.Rule, d.Reason = "T7", "the node is healthy again"
	case !target.Failed && failed:
		target.Failed, target.FailedSince = true, failedSince(d.Machine)
		d.Rule, d.Reason, d.claims = "T2", "the machine failed", target.Cause == v1alpha1.CauseAuto
	}
}

// withdrawn says that the request which started or took over the preservation is gone: also when now, on a machine
// that has not failed, became when-failed. An invalid value withdraws nothing (R3).
func (d *Decision) withdrawn() bool {
	if d.Current.Cause == v1alpha1.CauseAuto || d.Request.Invalid != "" {
		return false
	}
	return !d.Request.explicit() ||
		d.Current.Cause == v1alpha1.CauseNow && d.Request.Value == v1alpha1.RequestWhenFailed && !d.Current.Failed
}

// stopped says that what was written into the Machine's status has been removed from there together with the annotation
// that it goes with. machine-controller-manager >= 0.62 does both at an expiry that an operator brought forward while
// nobody saw it (P6).
func (d *Decision) stopped() bool {
	if !expiryInStatus(d.Machine) || d.Machine.Status.CurrentStatus.PreserveExpiryTime != nil || d.NodeUnknown {
		return false
	}
	_, annotated := d.Machine.Annotations[v1alpha1.AnnotationPreserve]
	_, synced := d.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	return !annotated && !synced && !d.Request.OnNode
}

func (d *Decision) begin(g Group, cause string, failed bool, now time.Time) {
	d.Target = &Record{Cause: cause, Expiry: d.expiry(g, now), Failed: failed}
	if failed {
		d.Target.FailedSince = failedSince(d.Machine)
	}
}

// release ends the preservation: T8 for a failed machine, T3 for any other.
func (d *Decision) release(reason string) {
	d.Rule, d.Reason = "T3", reason
	if d.Current.Failed {
		d.Rule = "T8"
	}
	d.Target = nil
}

// expiry is in whole seconds, as it is written: the machine is released neither before nor after what people read.
func (d *Decision) expiry(g Group, now time.Time) time.Time {
	timeout := g.Timeout
	if d.Request.Timeout > 0 {
		timeout = d.Request.Timeout
	}
	return now.Add(timeout).Truncate(time.Second)
}

func (d *Decision) lookAt(t time.Time) {
	if d.Next.IsZero() || t.Before(d.Next) {
		d.Next = t
	}
}

// distribute settles the claims on the share (P1, T5, T9). What is let go of when the share was lowered are the oldest
// auto-preserved machines; what fails first is served first.
func distribute(g Group, decisions []Decision) {
	var claims, auto []*Decision
	used, leaving := int32(0), int32(0)
	for i := range decisions {
		d := &decisions[i]
		switch {
		case d.claims:
			claims = append(claims, d)
		case d.Target != nil && d.Target.Failed:
			used++
			if d.Target.Cause == v1alpha1.CauseAuto {
				auto = append(auto, d)
			}
		case d.Current != nil && d.Current.Failed:
			// The place is free when the release, or the recovery, is written: its reason may be gone until then.
			leaving++
		}
	}

	if g.Share != nil {
		slices.SortFunc(auto, func(a, b *Decision) int {
			return cmp.Or(a.Machine.CreationTimestamp.Compare(b.Machine.CreationTimestamp.Time), cmp.Compare(a.Machine.Name, b.Machine.Name))
		})
		for _, d := range auto {
			if used > *g.Share && (d.Current.Share == 0 || d.Current.Share > *g.Share) {
				d.release("the share was lowered")
				d.Rule, d.Next = "T9", time.Time{}
				used--
				continue
			}
			d.Target.Share = *g.Share
		}
	}

	slices.SortFunc(claims, func(a, b *Decision) int {
		return cmp.Or(a.failsAt.Compare(b.failsAt), cmp.Compare(a.Machine.Name, b.Machine.Name))
	})
	for _, d := range claims {
		switch {
		case g.Share != nil && used+leaving < *g.Share:
			d.Target.Share = *g.Share
			used++
		case g.Share == nil && d.Current != nil:
			d.Target.Share = 0
			used++
		case d.Current != nil && used < *g.Share:
			// The place is free with the next look: the machine waits for it rather than being let go and taken anew.
			*d.Target = *d.Current
			d.Rule, d.Reason = "", ""
		case d.Current != nil:
			d.release("the machine failed again and the share is used up")
			d.Rule, d.Next = "P1", time.Time{}
		default:
			d.Target, d.Rule, d.Reason, d.Next = nil, "", "", time.Time{}
			d.Refused = g.Share != nil && *g.Share > 0 && used >= *g.Share
		}
	}
}

func causeOf(request string) string {
	if request == v1alpha1.RequestNow {
		return v1alpha1.CauseNow
	}
	return v1alpha1.CauseWhenFailed
}

// failedSince returns when the timer was started whose deadline the machine missed.
func failedSince(machine *machinev1alpha1.Machine) time.Time {
	if machine.Status.CurrentStatus.Phase == machinev1alpha1.MachinePending {
		return machine.CreationTimestamp.Time
	}
	return machine.Status.CurrentStatus.LastUpdateTime.Time
}
