// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// machineHours is for how long machines are kept by people and the share, as it is seen, where that is limited (P17, P18). A history is in
// one month.
type machineHours struct {
	limit, used time.Duration
	// lost is what nobody could count who died or saw nothing when a machine went: the account is written once an hour.
	lost time.Duration
	// last is until when it is counted, over since when it is more than the limit.
	last, over time.Time
}

// countHours is called before each change of a machine, and every few seconds.
func (o *oracle) countHours() {
	h, now := &o.hours, time.Now()
	if h.limit == 0 {
		return
	}
	for _, s := range o.machines {
		if s.machine != nil && s.machine.DeletionTimestamp == nil && s.record.Phase != "" {
			if until := s.record.AskedUntil(); until.After(h.last) && !h.last.IsZero() {
				h.used += min(now.Sub(h.last), until.Sub(h.last))
			}
		}
	}
	h.last = now
	// Nobody counts to the second.
	if h.used > h.limit-2*soon && !o.GoesOn(rules.HoursUsedUp) {
		o.seen["machine-hours used up"]++
		o.Add(rules.Excuse{Kind: rules.HoursUsedUp, From: now})
	}
	h.over = rules.Since(h.over, h.used-h.lost > h.limit+2*soon, now)
}

// loseHours is called when a machine that is kept goes.
func (o *oracle) loseHours(s *subject) {
	if o.since(rules.Fault) <= soon {
		o.hours.lost += min(time.Hour, time.Since(s.keptSince))
	}
}

// lookAtHours blames that machines are kept although the machine-hours of the month are used up.
func (o *oracle) lookAtHours() {
	o.countHours()
	if o.hours.over.IsZero() || time.Since(o.hours.over) <= calm || o.since(rules.Fault) <= healthTimeout+calm {
		return
	}
	var kept []string
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		s := o.machines[name]
		if s.machine != nil && s.machine.DeletionTimestamp == nil && s.record.Phase != "" && s.editedAt.IsZero() && s.since(rules.Touched) > calm &&
			s.record.AskedUntil().After(time.Now()) {
			kept = append(kept, name)
		}
	}
	if v := rules.OverHours(kept, o.hours.limit); v != nil {
		o.blame(v.Rule, "%s", v.Text)
	}
}
