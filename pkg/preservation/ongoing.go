// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// decideOngoing decides on a preserved machine: T2, T3, T7, T8.
func (d *Decision) decideOngoing(g Group, now time.Time) {
	d.Target = d.Current.clone()
	for i := range d.Target.Claims {
		claim, a := &d.Target.Claims[i], askerOf(d.Target.Claims[i].Cause)
		if claim.Expiry.IsZero() { // made unreadable by hand
			claim.Expiry, _ = d.wants(a, g, now)
			if a.follow != nil {
				a.follow(d, g, now)
			}
		}
		// What nobody has counted from the beginning, or machine-controller-manager has begun anew, ends at the limit. Any other expiry
		// beyond that is an operator's edit (P6).
		if !a.ownBound && (!d.Current.Provisional && d.Current.Since.IsZero() || isNative(d.Machine)) {
			claim.Expiry = earlier(claim.Expiry, d.limit)
		}
		if !a.ownBound {
			claim.Expiry = d.cutByHours(g, claim.Expiry, now)
		}
	}
	renewed := d.renewRemediation(g, now)
	outliving := first(func(a *asker) bool { return a.outlives != nil && a.outlives(d, g, now) })
	switch {
	case g.Disabled:
		d.release(WhyDisabled)
	case g.Forbids(d.Machine):
		d.end(RuleForbidden, WhyForbidden)
		d.ConsumeRequest = true
	case !now.Before(d.Target.Expiry()) && !d.Target.hasOnly(Claim.outlives):
		d.spend(g, now)
		switch rule, why := d.overLimit(); {
		case g.Hours.areSpent(now) && now.Before(d.Current.Expiry()):
			d.end(RuleMaxHours, WhyHoursUsedUp)
		case !now.Before(d.limit) && d.ConsumeRequest:
			d.end(rule, why)
		default:
			d.release(d.whyOver(g, now))
		}
	case d.Request.Value == v1alpha1.RequestFalse && outliving == nil:
		d.release(WhyStopped)
	case d.Target.has(Claim.unrequested) && !renewed && now.Before(d.Target.Expiry()) && d.stopped():
		d.spend(g, now)
		d.release(WhyEndedNatively)
	default:
		stops := d.Request.Value == v1alpha1.RequestFalse
		if renewed && d.stopped() {
			d.spendMaintenance(g, now)
			stops = true
		}
		if stops && d.Target.dropIf(func(c Claim) bool { return !c.outlives() }) {
			d.become(RuleClaims, outliving.begun)
		}
		for _, a := range slices.Backward(askers) { // see askers for the order
			if a.settle != nil && (a.outlives != nil || !stops) {
				a.settle(d, a, g, now)
			}
		}
		d.settleRequest(g, now)
		d.beside = d.uncured && d.asked && d.Target.hasOnly(Claim.Personal) // what the share would have done without the request (T2)
		switch {
		case len(d.Target.Claims) == 0 && d.Verdict == Untold: // somebody has worked on it, who is done
			d.Target = nil
		case !now.Before(d.Target.Expiry()): // of what is left, if anything
			d.ConsumeRequest = d.Target.personal() != nil
			d.release(d.Why)
		case d.near && cannotBeHeld(d):
			d.release(WhyComponentsNotReady)
			d.ConsumeRequest = true
		default:
			d.settleFailure(g, now)
		}
	}
}

// settleRequest drops the claim of a person who withdrew the request, and adds that of a person who requests a machine
// that is preserved for another reason. The request of a claim that has expired is deleted when the last claim ends.
func (d *Decision) settleRequest(g Group, now time.Time) {
	target := d.Target
	switch claim := target.personal(); {
	case claim != nil && d.withdrawn(*claim):
		target.drop(claim.Cause)
		d.become(RuleClaims, WhyRequestWithdrawn)
		if len(target.Claims) == 1 && target.has(Claim.tentative) { // as if nobody had asked
			target.confirm()
			target.Provisional = true
		}
	case claim != nil && d.Request.explicit():
		claim.Cause = d.Request.Value
	case claim == nil && d.Request.explicit():
		d.claim(askerOf(d.Request.Value), g, now)
	}
	claim := target.personal()
	d.asked = claim != nil && now.Before(claim.Expiry)
}

// withdrawn says that the request which a person's claim rests on is gone: also when now, on a machine that has not
// failed, became when-failed. An invalid value withdraws nothing (R3).
func (d *Decision) withdrawn(claim Claim) bool {
	return d.Request.Invalid == "" && (!d.Request.explicit() ||
		claim.Cause == v1alpha1.CauseNow && d.Request.Value == v1alpha1.RequestWhenFailed && !d.Current.Failed)
}

// settleFailure follows the health of a preserved machine: T2, T7, P3, H1, H4.
func (d *Decision) settleFailure(g Group, now time.Time) {
	switch {
	case d.rolling && (d.Target.Failed || d.Target.FailsAt.IsZero() && d.due):
		d.replace()
	case !facts.IsPhaseKnown(d.Machine): // what the machine waits for is decided once the phase is known again
	case d.Target.Failed && d.recovered():
		d.Target.Failed, d.Target.FailedSince = false, time.Time{}
		d.become(RuleRecover, WhyHealthyAgain)
		d.awaitValidation(g, now)
	case d.Target.Failed:
	case !d.Target.FailsAt.IsZero():
		d.settleFailing(g, now)
	case d.near && !d.rolling:
		d.settleDoubted(g, now)
	}
}

// recovered says that the machine is healthy, and that machine-controller-manager knows it. Until both agree, the hold would
// not be seen to be needed again (H1).
func (d *Decision) recovered() bool {
	return d.healthy && d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning
}

// isWell says that the machine is healthy, and that machine-controller-manager knows it if it was to end the machine.
func (d *Decision) isWell() bool { return d.healthy && (!d.Target.Failing() || d.recovered()) }

// settleFailing is for a machine that is held because its deadline is near (H4).
func (d *Decision) settleFailing(g Group, now time.Time) {
	switch {
	case d.recovered():
		d.Deadline = time.Time{}
		if d.Target.Provisional {
			d.end(RuleMargin, WhyDidNotFail)
			return
		}
		d.Target.FailsAt, d.Target.FailedSince = time.Time{}, time.Time{}
		d.Target.dropIf(Claim.tentative)
		if d.Target.hasBefore(v1alpha1.CauseWhenFailed) { // that claim came for this deadline only
			d.Target.drop(v1alpha1.CauseWhenFailed)
		}
		if !now.Before(d.Target.Expiry()) {
			d.ConsumeRequest = d.Target.personal() != nil
			d.release(WhyExpired)
		}
	case d.due && !d.healthy && d.rolling:
		d.replace()
	default:
		d.beside = d.asked && !d.Target.Provisional && !d.Target.has(Claim.shields) && !d.Target.has(Claim.tentative)
		if d.due && !d.healthy { // else machine-controller-manager has yet to see it
			d.fail(g, now)
		}
	}
}

// settleDoubted is for a preserved machine whose deadline has come near.
func (d *Decision) settleDoubted(g Group, now time.Time) {
	d.Target.FailedSince, d.Target.FailsAt = failedSince(d.Machine), d.Deadline
	if d.Rule == "" {
		d.become(RuleMargin, WhyAboutToFail)
	}
	shielded := d.Target.has(Claim.shields)
	d.claims = !d.asked && d.Target.HasPlace(now)
	d.beside, d.renews = d.asked && !shielded, !shielded
	if d.asked {
		d.Target.Share = 0 // the place was given back with the recovery (P1)
	}
	if d.due {
		d.fail(g, now)
	}
}

// replace releases a machine that failed during an update of its MachineDeployment (P3). If it was only held until its
// deadline, nobody was told that it is kept: people are told that it is not.
func (d *Decision) replace() {
	d.end(RuleRollout, WhyReplaced)
	d.ConsumeRequest = true
	if d.Current.Provisional {
		d.Why, d.Verdict = WhyUpdating, Refused
	}
}

// fail is the transition at the deadline itself (H4).
func (d *Decision) fail(g Group, now time.Time) {
	d.become(RuleFail, WhyMachineFailed)
	// Nobody was told that it had begun, also where somebody asks at the very deadline.
	if a := askerOf(d.Target.Cause()); d.Current.Provisional || d.Target.Provisional && a.onceFailed {
		d.become(a.begun.Rule, a.begun)
	}
	d.Target.Failed, d.Target.FailsAt, d.Target.Provisional = true, time.Time{}, false
	d.Target.confirm()
	if d.Target.validating() {
		d.Target.drop(v1alpha1.CauseValidation)
		d.failUnvalidated(g, now)
	}
}

// stopped says that what was written into the Machine's status has been removed from there together with the annotation
// that it goes with. machine-controller-manager >= 0.62 does both at an expiry that an operator brought forward while
// nobody saw it (P6).
func (d *Decision) stopped() bool {
	onNode := d.Request.OnNode
	if d.Node != nil { // the pool's request comes back after it was removed from there
		_, onNode = d.Node.Annotations[v1alpha1.AnnotationPreserve]
	}
	_, onMachine := d.Machine.Annotations[v1alpha1.AnnotationPreserve]
	return isStopped(d.Machine) && !onMachine && !onNode && !d.forged()
}

// isStopped says that of what goes with the annotation nothing is left on the Machine.
func isStopped(machine *machinev1alpha1.Machine) bool {
	_, synced := machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	return IsExpiryInStatus(machine) && machine.Status.CurrentStatus.PreserveExpiryTime == nil && !synced
}

// release ends the preservation: T8 for a failed machine, T3 for any other.
func (d *Decision) release(why reason.Reason) {
	rule := RuleRelease
	if d.Current.Failed {
		rule = RuleReleaseFailed
	}
	d.end(rule, why)
}

// end ends the preservation by a rule.
func (d *Decision) end(rule Rule, why reason.Reason) {
	if d.Current.Provisional { // nobody was told that it had begun
		rule = RuleMargin
	}
	d.become(rule, why)
	d.Target, d.claims = nil, false
}
