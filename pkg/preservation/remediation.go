// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// RemediationOptions say how power cycles of hosts preserve machines (X10).
type RemediationOptions struct {
	// Enabled says that AnnotationRemediation on a Machine counts. If it is false, what it preserved ends as if the annotation was removed.
	Enabled bool
}

// remediated says that the claim of a remediation stands: it is dropped when its time is over.
func (r *Record) remediated() bool { return r.claim(v1alpha1.CauseRemediation) != nil }

// onlyRemediated says that a remediation is all that preserves the machine.
func (r *Record) onlyRemediated() bool { return len(r.Claims) == 1 && r.remediated() }

// remediation returns until when the machine is to be kept for the power cycle of its host, and whether that is asked for.
// The time is zero if it cannot be read: then it begins nothing, and what has begun goes on to its expiry, as with a request
// (R3).
func (d *Decision) remediation(g Group) (until time.Time, ok bool) {
	if !g.Remediation.Enabled {
		return time.Time{}, false
	}
	value, ok := d.Machine.Annotations[v1alpha1.AnnotationRemediation]
	return parseTime(value).Truncate(time.Second), ok
}

// spentRemediation returns what AnnotationRemediation still says after what was kept because of it has ended.
func (d *Decision) spentRemediation(g Group) time.Time {
	until, ok := d.remediation(g)
	if spent := d.notes.RemediatedUntil; ok && (until.IsZero() || until.Equal(spent)) && (d.Current == nil || !d.Current.remediated()) {
		return spent
	}
	return time.Time{}
}

// remediable returns until when the machine is to be kept for the power cycle of its host, and whether that is a reason to. It
// is one also where a person has stopped every preservation: that ends what there is once the host is released (X10).
func (d *Decision) remediable(g Group, now time.Time) (until time.Time, ok bool) {
	until, _ = d.remediation(g)
	return earlier(until, now.Add(g.MaxTimeout).Truncate(time.Second)), now.Before(until) && !until.Equal(d.spentUntil) && !g.Holder.denies(*d)
}

// remediates says that the claim of a remediation stands, or is about to be added.
func (d *Decision) remediates(g Group, now time.Time) bool {
	claim := d.Target.claim(v1alpha1.CauseRemediation)
	if claim == nil {
		_, ok := d.remediable(g, now)
		return ok
	}
	return now.Before(claim.Expiry) && !g.Holder.denies(*d) && !d.remediationEnds(g)
}

// followRemediation makes the claim of a remediation end when AnnotationRemediation says. If that says nothing else than before, the end
// is what an operator has made of it (P6).
func (d *Decision) followRemediation(g Group, now time.Time) {
	until, _ := d.remediation(g)
	if claim := d.Target.claim(v1alpha1.CauseRemediation); claim != nil && !until.IsZero() && !until.Equal(d.Target.RemediatedUntil) {
		claim.Expiry, _ = d.remediable(g, now)
		d.Target.RemediatedUntil = until
	}
}

// renewRemediation brings the claim of a remediation in line with what AnnotationRemediation says by now, and returns whether that is
// something else than before that is not over.
func (d *Decision) renewRemediation(g Group, now time.Time) bool {
	d.followRemediation(g, now)
	claim := d.Target.claim(v1alpha1.CauseRemediation)
	if claim == nil {
		return false
	}
	renewed := now.Before(claim.Expiry) && !d.Target.RemediatedUntil.Equal(d.Current.RemediatedUntil)
	if d.Target.onlyRemediated() && !renewed && d.stopped() { // machine-controller-manager has ended the hold: the claim ends now
		claim.Expiry = earlier(claim.Expiry, now)
	}
	if !now.Before(claim.Expiry) {
		d.spendRemediation(g, now)
	}
	return renewed
}

// spendRemediation counts what AnnotationRemediation says as used up.
func (d *Decision) spendRemediation(g Group, now time.Time) {
	if until, _ := d.remediation(g); until.After(now) && until.Equal(d.Target.RemediatedUntil) {
		d.spentUntil = until
	}
}

// remediationEnds says that nobody asks any more. A machine that is healthy, or may be, is kept until machine-controller-
// manager has seen that: it would be terminated.
func (d *Decision) remediationEnds(g Group) bool {
	_, asked := d.remediation(g)
	return !asked && !(d.Target.Failing() && !d.recovered() && (d.healthy || d.NodeUnknown))
}

// settleRemediation adds the claim of a remediation to a preservation, or drops it: in silence when the machine is healthy.
// One that is still failed, and that nothing else keeps, asks for a place within the share. It does so before the expiry:
// after that it would be terminated.
func (d *Decision) settleRemediation(a *asker, g Group, now time.Time) {
	target, claim := d.Target, d.Target.claim(a.cause)
	if claim == nil {
		d.claim(a, g, now)
		return
	}
	ends := !now.Before(claim.Expiry) || d.remediationEnds(g)
	if target.onlyRemediated() && d.mayTakeOver(g, now) {
		nearAt := claim.Expiry.Add(-min(maxMargin, g.Timeouts.For(d.Machine).Health/10))
		if ends || !now.Before(nearAt) {
			d.claim(theShare, g, now)
			d.become(RuleAuto, WhyPowerCycleFailed)
			d.claims, d.takesOver = true, true
			d.Deadline = target.FailedAt(d.Machine, g.Timeouts) // and not that of the hold: first come, first served
		} else {
			d.lookAt(nearAt)
		}
	}
	if !ends {
		return
	}
	target.drop(a.cause)
	d.uncured = target.Failed
	switch {
	case d.takesOver:
	case d.isWell():
		if d.Verdict == Untold { // what ends with it may be what people are told of
			d.become(RuleRemediation, WhyPowerCycleOver)
			d.Verdict = Untold
		}
		d.comeBack(g, now)
	default:
		d.become(RuleClaims, WhyPowerCycleOver)
	}
}

// mayTakeOver says that the machine has failed, and could be auto-preserved if nothing kept it (T5, H3).
func (d *Decision) mayTakeOver(g Group, now time.Time) bool {
	_, ok := d.wants(theShare, g, now)
	return ok && d.mayBeKept(g, now)
}

// mayBeKept says that the machine has failed, and is one that can be auto-preserved (H3).
func (d *Decision) mayBeKept(g Group, now time.Time) bool {
	failed := d.Target.Failed && !d.recovered() || !d.Target.FailsAt.IsZero() && d.due && !d.healthy
	return failed && facts.IsPhaseKnown(d.Machine) && !d.rolling && !d.tooLate(g, now) && d.Machine.Spec.ProviderID != ""
}

// giveUp is for a machine that there is no place for when a remediation ends, or is about to, or when it fails unvalidated.
func (d *Decision) giveUp(now time.Time) {
	d.Target.drop(v1alpha1.CauseAuto)
	switch {
	case !now.Before(d.Target.Expiry()):
		d.ConsumeRequest = d.Target.personal() != nil
		why := WhyPowerCycleFailed
		if d.Why.Is(WhyMachineFailed) {
			why = WhyFailedUnvalidated
		}
		d.release(why)
		d.Next = time.Time{}
	case d.Rule == RuleAuto:
		d.become("", reason.Reason{})
	}
}
