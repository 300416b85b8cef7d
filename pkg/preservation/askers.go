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

// asker is who may want a machine to be kept: a row of the table of claims.
type asker struct {
	cause    string        // of its claims; a person's is the request
	begun    reason.Reason // why a machine is kept that it begins to keep
	told     int           // its weight: people are told of the cause of the most
	personal bool          // it is a person, who asks with a request
	// onceFailed says that it keeps what has failed. Before the deadline there is nothing but the hold (H4).
	onceFailed bool
	// unstoppable says that its claim outlives what stops the others, until the host is released (X10).
	unstoppable bool
	// work is of who works on the machine, nil of others.
	work *work
}

// work is how a machine is kept for who works on it. That does not count to the share, and has a bound of its own instead of that of
// P13. Nothing is drained meanwhile, whoever else keeps the machine (M12, X10).
type work struct {
	// wants returns until when a machine is to be kept that is claimed now, and whether it is to be.
	wants func(d *Decision, g Group, now time.Time) (until time.Time, ok bool)
	// follow notes what the claim rests on, and returns whether that has changed and is not over yet.
	follow func(d *Decision, g Group, now time.Time) bool
	// spend counts that as used up: it is no reason any more to keep the machine.
	spend func(d *Decision, g Group, now time.Time)
	// settle adds the claim to those of others, renews it, or drops it.
	settle func(d *Decision, a *asker, g Group, now time.Time)
}

// askers are all that there are, in the order in which they are heard for a machine without a claim. Claims of those who work on it are
// settled in the opposite order: a remediation comes last, because it depends on whether other claims are left.
var askers = []*asker{
	{cause: v1alpha1.CauseNow, begun: WhyAskedFor, told: 3, personal: true},
	{cause: v1alpha1.CauseRemediation, begun: WhyPowerCycle, told: 1, unstoppable: true, work: &work{
		(*Decision).remediable, (*Decision).followRemediation, (*Decision).spendRemediation, (*Decision).settleRemediation}},
	{cause: v1alpha1.CauseMaintenance, begun: WhyUnderMaintenance, work: &work{
		(*Decision).maintainable, (*Decision).countMaintenance, (*Decision).spendMaintenance, (*Decision).settleMaintenance}},
	{cause: v1alpha1.CauseWhenFailed, begun: WhyAskedInCase, told: 3, personal: true, onceFailed: true},
	theShare,
}

var theShare = &asker{cause: v1alpha1.CauseAuto, begun: WhyMachineFailed, told: 2, onceFailed: true}

// askerOf returns who claims for a cause. One that is not known is that of a version with more askers.
func askerOf(cause string) *asker {
	if i := slices.IndexFunc(askers, func(a *asker) bool { return a.cause == cause }); i >= 0 {
		return askers[i]
	}
	return &asker{cause: cause}
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

// wantedBy returns the first asker who wants a machine to be kept that has no claim, nil if there is none. If the machine was let go
// after a failure, only a request now counts.
func (d *Decision) wantedBy(g Group, now time.Time) *asker {
	for _, a := range askers {
		if _, ok := d.wants(a, g, now); ok && (a.cause == v1alpha1.CauseNow || !d.hadItsTime()) {
			return a
		}
	}
	return nil
}

// wants returns until when the machine is to be kept if an asker claims it now, and whether it does. The time is in whole seconds,
// as it is written: the machine is released neither before nor after what people read.
func (d *Decision) wants(a *asker, g Group, now time.Time) (until time.Time, ok bool) {
	if a.work != nil {
		return a.work.wants(d, g, now)
	}
	asks := a.personal && d.Request.Value == a.cause || a == theShare && d.Request.Value == ""
	timeout := g.Timeout
	if a != theShare || !d.Request.explicit() { // what is asked for is another claim's
		timeout = cmp.Or(d.Request.Timeout, timeout)
	}
	until = now.Add(timeout).Truncate(time.Second)
	if native, ok := d.nativeExpiry(now); ok && asks {
		until = native
	}
	failing := d.near || d.Current != nil && d.Current.Failed
	return earlier(until, d.limit), asks && now.Before(d.limit) && (failing || !a.onceFailed)
}

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
	switch {
	case a.work != nil:
		target.dropIf(Claim.tentative)
		a.work.follow(d, g, now)
	case d.Current != nil:
		rule = RuleClaims
	}
	if !target.Provisional {
		d.become(rule, a.begun)
	}
}

// spend counts as used up what the claims rest on: a request, the time of maintenances, what a power cycle was given.
func (d *Decision) spend(g Group, now time.Time) {
	for _, claim := range d.Target.Claims {
		if a := askerOf(claim.Cause); a.work != nil {
			a.work.spend(d, g, now)
		} else {
			d.ConsumeRequest = true
		}
	}
}
