// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// Span is the time for which a machine was preserved, from the first claim to the end of the last one. It outlives the record:
// what is used up of the longest time is counted from its begin, until it comes back (P13, M12).
type Span struct {
	// Since is when it began; zero for none.
	Since time.Time `json:"since,omitzero"`
	// Until is when it ended; zero while it goes on.
	Until time.Time `json:"until,omitzero"`
}

// settle returns what becomes of a span now that it goes on, or does not.
func (s Span) settle(goesOn bool, now time.Time) Span {
	switch {
	case goesOn:
		s.Until = time.Time{}
	case s.Until.IsZero() && !s.Since.IsZero():
		s.Until = now.Truncate(time.Second).UTC()
	}
	return s
}

// writeTime is how long it takes at the longest until what was decided is written: some calls, of up to ten seconds each.
const writeTime = time.Minute

// comesBack returns when what was used up in a span that has ended comes back: when the machine was healthy, and nothing claimed it, for as
// long as its health timeout. The end of the span is when that was decided. It is zero if the machine is not healthy.
func (d *Decision) comesBack(s Span, g Group) time.Time {
	if s.Until.IsZero() || !d.recovered() {
		return time.Time{}
	}
	from := s.Until.Add(writeTime)
	if recovered := recoveredAt(d.Machine); recovered.After(from) {
		from = recovered
	}
	return from.Add(g.Timeouts.For(d.Machine).Health)
}

// readSpans reads for how long the machine was preserved, and what of that has come back by now. It bounds what people and the share ask for
// (P13).
func (d *Decision) readSpans(g Group, now time.Time) {
	left := func(s Span) Span {
		if at := d.comesBack(s, g); !at.IsZero() && !now.Before(at) {
			return Span{}
		}
		return s
	}
	d.kept, d.maintained = left(d.notes.Spent.Kept), left(d.notes.Spent.Maintained)
	since := d.kept.Since
	if since.IsZero() {
		since = now.Truncate(time.Second)
	}
	d.limit = since.Add(g.MaxTimeout).Truncate(time.Second)
	if g.Hours.areSpent(now) && g.Hours.SpentAt.Before(d.limit) {
		d.limit, d.hoursSpent = g.Hours.SpentAt.Truncate(time.Second), true
	}
}

// overLimit returns the rule and the reason of the limit.
func (d *Decision) overLimit() (Rule, reason.Reason) {
	if d.hoursSpent {
		return RuleMaxHours, WhyHoursUsedUp
	}
	return RuleMaxTimeout, WhyKeptForTooLong
}

// settleSpans makes the spans what the decision makes of them, and looks again when what was used up comes back. A request
// that is not heeded must not be what it comes back for: while it stands, it does not. Nor does it for the maintenance that
// goes on although its time is over.
func (d *Decision) settleSpans(g Group, now time.Time) {
	target := d.Target
	if target == nil && g.Disabled { // nobody will be there to count anew
		d.kept, d.maintained = Span{}, Span{}
		return
	}
	if target != nil && target.Provisional {
		target = nil // nobody is to know that there was something (H4)
	} else {
		asked := d.Request.Value == v1alpha1.RequestNow && !d.ConsumeRequest && !d.hoursSpent // it waits for the next month
		d.kept = d.kept.settle(target != nil || asked, now)
		if d.refusesAgain() {
			d.kept.Until = now.Truncate(time.Second).UTC()
		}
	}
	if target != nil && !target.hasOnly(Claim.ownBound) {
		if d.kept.Since.IsZero() {
			d.kept.Since = now.Truncate(time.Second).UTC()
		}
		target.Since = d.kept.Since
	}
	_, shown := d.maintenance(g)
	mayGoOn := d.mayBeMaintained(g) && d.maintained.Until.IsZero()
	d.maintained = d.maintained.settle(target != nil && target.maintained() || shown || mayGoOn, now)
	for _, s := range []Span{d.kept, d.maintained} {
		if at := d.comesBack(s, g); at.After(now) {
			d.lookAt(at)
		}
	}
}

// refusesAgain says that a request is refused, and deleted, of a machine that was preserved before. It was asked for all the same: what is used up
// does not come back for the next request.
func (d *Decision) refusesAgain() bool {
	return d.Current == nil && d.Target == nil && d.Request.Value == v1alpha1.RequestNow && d.ConsumeRequest && !d.hoursSpent && !d.kept.Since.IsZero()
}

// spend notes for how long the machine was preserved, and what of AnnotationRemediation no longer counts.
func (n *Notes) spend(d Decision) {
	n.Spent.Kept, n.Spent.Maintained = d.kept, d.maintained
	if !d.spentUntil.IsZero() {
		n.RemediatedUntil = d.spentUntil
	}
}

// refuse refuses, for good, what the machine would be preserved for. A request is deleted only where machine-controller-
// manager >= 0.62 obeys it by itself.
func (d *Decision) refuse(g Group, why reason.Reason) {
	d.Why = why
	switch asked := d.Request.explicit(); {
	case asked && d.due:
		d.Verdict, d.ConsumeRequest = Refused, g.Holder.obeys(*d)
	case asked:
		d.Verdict, d.ConsumeRequest = Ignored, g.Holder.obeys(*d)
	case d.due && d.Request.Value == "" && g.Share != nil && *g.Share > 0 && d.notes.Spent.Released.IsZero():
		d.Verdict = Refused
	}
}

// refuseRequest refuses what was asked for. machine-controller-manager >= 0.62 would obey the request by itself.
func (d *Decision) refuseRequest(why reason.Reason) {
	d.Why = why
	if d.due && d.Request.explicit() {
		d.Verdict, d.ConsumeRequest = Refused, true
	}
}

// outwait is for a request that is not honoured, that machine-controller-manager >= 0.62 obeys by itself, and that comes
// back: from the pool's annotations, or from somebody in the shoot. machine-controller-manager restarts the health timer
// with each beginning and each end of a preservation, and would never mark the machine Failed. So the request is left
// alone, and what it holds is made to last until that has happened. Then it can be ended for good.
func (d *Decision) outwait(g Group, now time.Time) {
	failed := d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
	obeyed := d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && g.Holder.obeys(*d)
	if d.Request.Templated && !failed || d.Current == nil && obeyed {
		d.ConsumeRequest = false
	}
	expiry := d.Machine.Status.CurrentStatus.PreserveExpiryTime
	if d.ConsumeRequest || !obeyed || expiry == nil || d.Target != nil || d.Deadline.IsZero() || g.Disabled || g.Replicas == 0 {
		return
	}
	failsBy := d.Deadline
	if now.After(failsBy) {
		failsBy = now
	}
	if expiry.Time.Before(failsBy.Add(respite)) {
		d.outlast = failsBy.Add(g.Timeouts.For(d.Machine).Health).Truncate(time.Second)
		return
	}
	d.lookAt(expiry.Add(-respite))
}
