// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// MaintenanceOptions say how maintenances of nodes preserve machines (M12).
type MaintenanceOptions struct {
	// Enabled says that AnnotationMaintenance on a Node counts. What was kept because of it ends as if it was removed.
	Enabled bool
	// MaxHoldTime is for how long maintenances preserve a machine at most, of all requestors together. More than Group.MaxTimeout counts
	// as that.
	MaxHoldTime time.Duration
}

// maintained says that the claim of a maintenance stands: it is dropped when its time is over.
func (r *Record) maintained() bool { return r.claim(v1alpha1.CauseMaintenance) != nil }

// onlyProtected says that a maintenance is all that preserves the machine, maybe beside a remediation that waits for its end
// (X8), and that it is not about to fail. Nothing was held that counts as a preservation (P13).
func (r *Record) onlyProtected() bool {
	return r.maintained() && r.hasOnly(Claim.ownBound) && !r.Failing()
}

// unheld says that machine-controller-manager is not told of the preservation: it is only protected, and the deadline is not
// near (M12). What it holds by itself, or cannot be told to hold no longer, stays held.
func (d *Decision) unheld(holder Holder) bool {
	_, onNode := setAside(d.Machine, true)
	return d.Target.onlyProtected() && !holder.obeys(*d) && d.Request.Spent != v1alpha1.RequestNow && !(onNode && d.NodeUnknown)
}

// maintenance returns since when the maintenance of the machine's node goes on according to the Node, and whether there is one.
// The time is zero if it cannot be read.
func (d *Decision) maintenance(g Group) (since time.Time, ok bool) {
	if !g.Maintenance.Enabled || d.Node == nil {
		return time.Time{}, false
	}
	value, ok := d.Node.Annotations[v1alpha1.AnnotationMaintenance]
	return parseTime(value), ok
}

// mayBeMaintained says that nobody can read whether the Node tells of a maintenance (P9).
func (d *Decision) mayBeMaintained(g Group) bool { return d.NodeUnknown && g.Maintenance.Enabled }

// countedSince returns from when on the maintenances of the machine are counted: the begin of the first one of those that
// have not come back (see span), so that a chain of them for a dead node does not start anew. What the Node says is the
// shoot's: it counts only if it is in the past.
func (d *Decision) countedSince(g Group, now time.Time) time.Time {
	since, _ := d.maintenance(g)
	return earlier(cmp.Or(d.maintained.Since, since, now), now).Truncate(time.Second)
}

func maxHoldTime(g Group) time.Duration { return min(g.Maintenance.MaxHoldTime, g.MaxTimeout) }

// maintainable returns until when the machine may be kept because of maintenances, and whether one of its node is a reason to.
func (d *Decision) maintainable(g Group, now time.Time) (until time.Time, ok bool) {
	_, ok = d.maintenance(g)
	until = d.countedSince(g, now).Add(maxHoldTime(g))
	return until, ok && now.Before(until)
}

// countMaintenance counts from now on, unless that is done already.
func (d *Decision) countMaintenance(g Group, now time.Time) {
	d.maintained.Since = d.countedSince(g, now)
}

// refuseMaintenance tells why a maintenance that begins once the time of all of them is used up does not preserve the
// machine (M12). If it was under way then, an Event told the end of its claim.
func (d *Decision) refuseMaintenance(g Group, now time.Time) {
	since, _ := d.maintenance(g)
	if until, ok := d.maintainable(g, now); !ok && !since.Before(until) {
		d.Why, d.Verdict = WhyMaintenanceExhausted, Ignored
	}
}

// awaitMaintenance looks again when the maintenance begins that was announced too early: it may be one that counts anew.
func (d *Decision) awaitMaintenance(g Group, now time.Time) {
	if since, _ := d.maintenance(g); since.After(now) {
		d.lookAt(since)
	}
}

// settleMaintenance adds the claim of a maintenance to a preservation, or drops it: in silence when the maintenance is over
// and the machine is healthy, and otherwise after the health timeout, so that a reboot that takes long is not punished
// (M13). Nothing ends because the node cannot be read (P9).
func (d *Decision) settleMaintenance(a *asker, g Group, now time.Time) {
	var (
		target    = d.Target
		claim     = target.claim(a.cause)
		_, goes   = d.maintenance(g)
		ends      = !goes && !d.mayBeMaintained(g)
		until, ok = d.maintainable(g, now)
	)
	switch {
	case claim == nil:
		d.claim(a, g, now)
	case !now.Before(claim.Expiry):
		d.spendMaintenance(g, now)
		target.drop(a.cause)
		d.become(RuleClaims, WhyMaintenanceExhausted)
	case ok && !target.MaintenanceOver.IsZero():
		claim.Expiry, target.MaintenanceOver = until, time.Time{}
	case ends && d.isWell():
		target.drop(a.cause)
		d.become(RuleMaintenanceOver, WhyMaintenanceOver)
		if !target.MaintenanceOver.IsZero() { // it is back only now: what was reported until then proves nothing (V3)
			target.drop(v1alpha1.CauseValidation)
		}
		target.MaintenanceOver = time.Time{}
		d.comeBack(g, now)
	case ends && target.MaintenanceOver.IsZero():
		target.MaintenanceOver = now.Truncate(time.Second)
		claim.Expiry = earlier(claim.Expiry, target.MaintenanceOver.Add(g.Timeouts.For(d.Machine).Health))
		d.become(RuleMaintenanceOver, WhyMaintenanceOver)
		d.comeBack(g, now)
	}
	if auto := target.claim(v1alpha1.CauseAuto); auto != nil && target.maintained() && !target.remediated() && !now.Before(auto.Expiry) {
		target.drop(v1alpha1.CauseAuto) // its place is free
	}
}

// spendMaintenance counts the time of maintenances as used up, also if an operator has cut it short (P6): the maintenance
// that goes on no longer preserves the machine.
func (d *Decision) spendMaintenance(g Group, now time.Time) {
	until, _ := d.maintainable(g, now)
	if d.Target.maintained() && d.Target.MaintenanceOver.IsZero() && now.Before(until) {
		d.maintained.Since = now.Add(-maxHoldTime(g)).Truncate(time.Second).UTC()
	}
}

// MaintainedUntil returns until when a machine is preserved whose Node shows a maintenance, and if it is not, the zero time and why
// the maintenance does not keep it (M12). The group need not have its other members.
func MaintainedUntil(g Group, m facts.Member, now time.Time) (until time.Time, why reason.Reason) {
	g.Members = []facts.Member{m}
	d := Decide(g, now)[0]
	if d.Target != nil {
		return d.Target.Expiry(), reason.Reason{}
	}
	return time.Time{}, cmp.Or(d.Why, WhyMaintenanceExhausted)
}
