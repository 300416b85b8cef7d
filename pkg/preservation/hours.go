// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// Hours is what is left of the machine-hours for which people and the share may preserve machines of the shoot in a month (P18).
type Hours struct {
	// SpentAt is when they are used up if nothing changes; zero if they are not in this month.
	SpentAt time.Time
	// Until is when the month is over.
	Until time.Time
}

// areSpent says that nobody but maintenances and power cycles claims a machine anew until the month is over.
func (h *Hours) areSpent(now time.Time) bool {
	return h != nil && !h.SpentAt.IsZero() && !now.Before(h.SpentAt) && now.Before(h.Until)
}

// Counted returns the time for which people and the share have preserved a machine, also if they did not in between, and until when they do;
// zero if they did not, or do not. The end of the time is known where nothing preserves the machine any more, or where it is being deleted.
func Counted(machine *machinev1alpha1.Machine) (kept Span, until time.Time) {
	kept = ReadNotes(machine).Spent.Kept
	if deleted := machine.DeletionTimestamp; deleted != nil {
		if kept.Until.IsZero() || deleted.Time.Before(kept.Until) {
			kept.Until = deleted.Time
		}
		return kept, time.Time{}
	}
	return kept, ReadRecord(machine).askedUntil()
}

// BeginsUntil returns until when people and the share preserve a machine that they do not preserve yet; zero if they do not begin to.
func (d *Decision) BeginsUntil() time.Time {
	if !d.Current.askedUntil().IsZero() {
		return time.Time{}
	}
	return d.Target.askedUntil()
}

// askedUntil returns until when people and the share preserve the machine; zero if they do not. What holds the machine before its deadline
// does not count (H4).
func (r *Record) askedUntil() (until time.Time) {
	if r == nil || r.Provisional {
		return time.Time{}
	}
	for _, claim := range r.Claims {
		if !claim.ownBound() && !claim.Tentative && claim.Expiry.After(until) {
			until = claim.Expiry
		}
	}
	return until
}

// cutByHours returns when a claim ends, whose own expiry is given: with the machine-hours of the month, unless it is what an operator has
// edited (P6, P18). The limit of P13 may have passed before: what was preserved already when operators lowered it goes on.
func (d *Decision) cutByHours(g Group, expiry, now time.Time) time.Time {
	if !g.Hours.areSpent(now) || expiry.Equal(d.Current.Edited) {
		return expiry
	}
	return earlier(expiry, g.Hours.SpentAt.Truncate(time.Second))
}

// awaitHours looks again when the machine-hours of the month are used up, or there are those of the next month.
func (d *Decision) awaitHours(g Group, now time.Time) {
	switch {
	case g.Hours == nil:
	case g.Hours.areSpent(now):
		d.lookAt(g.Hours.Until)
	case d.Target != nil && !d.Target.hasOnly(Claim.ownBound) && !g.Hours.SpentAt.IsZero():
		d.lookAt(g.Hours.SpentAt)
	}
}

// readEdit reads the expiry that an operator has edited: the one that is not as it was written (P6), or was not once. One that
// machine-controller-manager has begun anew is no edit. It is known only where machine-hours are limited.
func (r *Record) readEdit(machine *machinev1alpha1.Machine) {
	if expiry := r.Expiry(); !r.Written.IsZero() && !r.Written.Equal(expiry) && !isNative(machine) {
		r.Edited = expiry
	}
}

// settleWritten has the expiry noted as it is written, where machine-hours are limited, and an edit as long as a claim ends with it:
// something else may preserve the machine for longer meanwhile.
func (d *Decision) settleWritten(g Group) {
	target := d.Target
	if target == nil {
		return
	}
	target.Written, target.Edited = time.Time{}, time.Time{}
	if g.Hours == nil {
		return
	}
	target.Written = target.Expiry()
	if d.Current != nil && target.has(func(c Claim) bool { return c.Expiry.Equal(d.Current.Edited) }) {
		target.Edited = d.Current.Edited
	}
}
