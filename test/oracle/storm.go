// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle

import "time"

// Limits say when too many machines fail at the same time (P16, X21).
type Limits struct {
	// Number and Percent are how many machines may, each 0 for no limit.
	Number, Percent int
	// Settling is for how long a machine counts when it is healthy again, and Together within what time failures begin that belong together.
	Settling, Together time.Duration
}

// Failing is a machine that fails, or did until some time. It counts, or does in somebody's eyes.
type Failing struct {
	From, Until time.Time
	Doubtful    bool
}

// Exceeded returns whether more of the machines fail than may, for certain, and whether there may be so many in anybody's eyes, who may
// be so late.
func (l Limits) Exceeded(failing []Failing, machines int, now time.Time, late time.Duration) (certain, possible bool) {
	limit := l.Number
	if l.Percent > 0 {
		part := 1
		for part*100 < machines*l.Percent {
			part++
		}
		if limit == 0 || part < limit {
			limit = part
		}
	}
	if limit == 0 {
		return false, false
	}
	most, least := 0, 0
	for _, first := range failing {
		if !first.Until.IsZero() && now.Sub(first.Until) >= l.Settling+late {
			continue
		}
		most++
		together := 0
		for _, f := range failing {
			goesOn := f.Until.IsZero() || now.Sub(f.Until) < l.Settling-late
			if goesOn && !f.Doubtful && !f.From.Before(first.From) && f.From.Sub(first.From) <= l.Together-late {
				together++
			}
		}
		least = max(least, together)
	}
	return least > limit, most > limit
}

// BegunInStorm judges that something begins automatically, since when there are for certain too many machines that fail, zero if there
// are not.
func (w *World) BegunInStorm(rule, what string, since, at time.Time, excuses ...Excuses) *Violation {
	if since.IsZero() || w.elapsed(since, at) <= w.Noticed || w.hindered(at, []Kind{Fault, Blind, ShootAway, Killed}, excuses) {
		return nil
	}
	return blame(rule, "%s, and too many machines fail at the same time since %s", what, since.UTC().Format(time.TimeOnly))
}
