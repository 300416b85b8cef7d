// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// asker is who may claim a machine: a row of the table of claims. Where a row says nothing, its claims are like those of people: they
// take a place within the share, the node of a failed machine is drained, and P13 bounds them.
type asker struct {
	cause  string        // of its claims; a person's is the request
	begun  reason.Reason // why a preservation begins with its claim
	weight int           // people are told of the cause of the most
	// personal says that it is a person, who asks with a request.
	personal bool
	// onceFailed says that it keeps what has failed. Before the deadline there is nothing but the hold (H4).
	onceFailed bool
	// exempt says that its claim needs no place within the share, and that the share claims nothing beside it (P1). An asker that is
	// neither exempt nor a person must give its place back when the share is lowered (T9).
	exempt bool
	// sparesPods says that nothing is drained meanwhile, even if something else preserves the machine (M12, X10).
	sparesPods bool
	// ownBound says that what it asks for has a bound of its own instead of that of P13.
	ownBound bool
	// untilFailure says that its claim ends when the machine fails: it stands in nobody's way then (V5).
	untilFailure bool
	// passing says that it comes and goes beside other claims: people are told of its begin as if there were none, and mostly not of
	// its end (M13, X10).
	passing bool

	// asks returns until when a machine is claimed that is claimed now, and whether it is.
	asks func(d *Decision, g Group, now time.Time) (until time.Time, ok bool)
	// outlives says that its claim stands, or is about to be added, where a person or machine-controller-manager stops the others; it ends
	// as its own settle says (X10). It is nil where the claim is stopped with them.
	outlives func(d *Decision, g Group, now time.Time) bool
	// follow notes what the claim rests on. It may be nil.
	follow func(d *Decision, g Group, now time.Time)
	// spend counts that as used up: it no longer preserves the machine.
	spend func(d *Decision, g Group, now time.Time)
	// settle adds the claim to those of others, renews it, or drops it. It is nil of people and the share.
	settle func(d *Decision, a *asker, g Group, now time.Time)
}

// askers are all that there are, in the order in which they are heard for a machine without a claim: against false, only the first of them
// can begin. Their claims are settled in the opposite order: a remediation comes last, because it depends on whether other claims are left.
var askers = []*asker{
	{cause: v1alpha1.CauseNow, begun: WhyAskedFor, weight: 3, personal: true,
		asks: requested(v1alpha1.CauseNow), spend: (*Decision).spendRequest},
	{cause: v1alpha1.CauseRemediation, begun: WhyPowerCycle, weight: 1, exempt: true, sparesPods: true, ownBound: true, passing: true,
		asks: (*Decision).remediable, outlives: (*Decision).remediates, follow: (*Decision).followRemediation,
		spend: (*Decision).spendRemediation, settle: (*Decision).settleRemediation},
	{cause: v1alpha1.CauseValidation, begun: WhyUnvalidated, exempt: true, ownBound: true, passing: true, untilFailure: true,
		asks: (*Decision).neverAsks, spend: (*Decision).spendNothing, settle: (*Decision).settleValidation},
	{cause: v1alpha1.CauseMaintenance, begun: WhyUnderMaintenance, exempt: true, sparesPods: true, ownBound: true, passing: true,
		asks: (*Decision).maintainable, follow: (*Decision).countMaintenance, spend: (*Decision).spendMaintenance, settle: (*Decision).settleMaintenance},
	{cause: v1alpha1.CauseWhenFailed, begun: WhyAskedInCase, weight: 3, personal: true, onceFailed: true,
		asks: requested(v1alpha1.CauseWhenFailed), spend: (*Decision).spendRequest},
	theShare,
}

var theShare = &asker{cause: v1alpha1.CauseAuto, begun: WhyMachineFailed, weight: 2, onceFailed: true,
	asks: requested(""), spend: (*Decision).spendRequest}

// first returns the first asker that is so, nil if there is none.
func first(is func(*asker) bool) *asker {
	if i := slices.IndexFunc(askers, is); i >= 0 {
		return askers[i]
	}
	return nil
}

// askerOf returns the asker of a cause. A cause that is not known is of a version with more askers: nobody knows whether its claim needs a
// place, or rests on a request, so it needs none until it ends, and uses nothing up.
func askerOf(cause string) *asker {
	if a := first(func(a *asker) bool { return a.cause == cause }); a != nil {
		return a
	}
	return &asker{cause: cause, exempt: true, asks: requested(cause), spend: (*Decision).spendNothing}
}

// Causes returns all causes of claims.
func Causes() (causes []string) {
	for _, a := range askers {
		causes = append(causes, a.cause)
	}
	return causes
}

// WhyBegun returns why a machine is preserved for a cause, no reason for a cause that is not known.
func WhyBegun(cause string) reason.Reason { return askerOf(cause).begun }

// wantedBy returns the first asker that claims a machine without a claim, nil if there is none. If the machine was released after a
// failure, only a request now counts.
func (d *Decision) wantedBy(g Group, now time.Time) *asker {
	return first(func(a *asker) bool {
		_, ok := d.wants(a, g, now)
		return ok && (a.cause == v1alpha1.CauseNow || !d.hadItsTime())
	})
}

// wants returns until when an asker claims the machine from now on, and whether it does. The time is in whole seconds, like the one that
// is written: the machine is released neither before nor after what people read.
func (d *Decision) wants(a *asker, g Group, now time.Time) (until time.Time, ok bool) {
	until, ok = a.asks(d, g, now)
	if !a.ownBound {
		until, ok = earlier(until, d.limit), ok && now.Before(d.limit)
	}
	return until, ok && (!a.onceFailed || d.near || d.Current != nil && d.Current.Failed)
}

// leastAfterFailure is for how long a machine is preserved at least that is claimed before it fails, if the claim is for that long.
const leastAfterFailure = 30 * time.Second

// requested returns how a value of the request asks; the share asks where there is none.
func requested(value string) func(*Decision, Group, time.Time) (time.Time, bool) {
	return func(d *Decision, g Group, now time.Time) (time.Time, bool) {
		asks, timeout := d.Request.Value == value, g.Timeout
		if native, ok := d.nativeExpiry(now); ok && asks {
			return native, true
		}
		if value != "" { // a timeout without a request is nobody's (R5)
			timeout = cmp.Or(d.Request.Timeout, timeout)
		}
		until := now.Add(timeout)
		// What is claimed before the failure that it is for does not end with that (H4). A machine that has failed has a deadline as well: the
		// end of its hold.
		mayFail := value != v1alpha1.RequestNow && (d.Current == nil || !d.Current.Failed)
		if least := d.Deadline.Add(min(timeout, leastAfterFailure)); mayFail && until.Before(least) {
			until = least
		}
		return until.Truncate(time.Second), asks
	}
}

func (d *Decision) spendRequest(Group, time.Time) { d.ConsumeRequest = true }

// claim adds the claim of an asker who wants the machine to be kept. If it was only held because its deadline is near, nothing has
// failed that the share could have a claim for.
func (d *Decision) claim(a *asker, g Group, now time.Time) {
	until, ok := d.wants(a, g, now)
	if !ok {
		return
	}
	target, rule := d.Target, a.begun.Rule
	if target.Provisional {
		target.drop(v1alpha1.CauseAuto)
		target.Provisional = a.onceFailed
	}
	target.Claims = append(target.Claims, Claim{Cause: a.cause, Expiry: until})
	if a.exempt {
		target.dropIf(Claim.tentative)
	}
	if a.follow != nil {
		a.follow(d, g, now)
	}
	if d.Current != nil && !a.passing {
		rule = RuleClaims
	}
	if !target.Provisional {
		d.become(rule, a.begun)
	}
}

// spend counts as used up what the claims rest on: a request, the time of maintenances, what a power cycle was given.
func (d *Decision) spend(g Group, now time.Time) {
	for _, claim := range d.Target.Claims {
		askerOf(claim.Cause).spend(d, g, now)
	}
}
