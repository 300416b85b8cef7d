// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// operators are what operators have done that overrules what keeps machines.
type operators struct {
	// from is what the share was before it was last lowered, and placed are those that had a place then (T9).
	from   int
	placed []string
	// had are those as well, and stay: a lower share ends nothing that persons ask for (T9).
	had []string
	// least and most are the shortest and the longest timeout that there was, and changed is when there was last another one (P6).
	least, most time.Duration
	changed     time.Time
}

// edit returns whether an operator may edit until when a machine is kept, so that it counts: what is about to fail, and not kept
// before, is kept by a hold which is nobody's business yet (H4).
func (o *oracle) edit(name string, until time.Time) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	s := o.subject(name)
	if !s.record.Kept || s.record.Failing || !s.record.Expiry.After(time.Now()) {
		return false
	}
	s.edited, s.editedAt, s.asked = until, time.Now(), true
	s.failure.promised = time.Time{} // what an operator says stands above that
	s.happens(rules.Touched)
	s.happens(rules.ExpiryEdited)
	return true
}

func (o *oracle) forbid(name string, on bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	s := o.subject(name)
	s.asked = true
	s.happens(rules.Touched)
	s.happens(rules.Withdrawn)
	s.goesOn(rules.Forbidden, on)
}

func (o *oracle) forbidAll(on bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.goesOn(rules.Forbidden, on)
}

// goesOn says that something begins to go on, or is over.
func (e *excuses) goesOn(kind rules.Kind, on bool) {
	switch {
	case !on:
		e.Ends(kind, time.Now())
	case !e.GoesOn(kind):
		e.Add(rules.Excuse{Kind: kind, From: time.Now()})
	}
}

// goesOnFor says that something goes on for some time.
func (e *excuses) goesOnFor(kind rules.Kind, d time.Duration) bool {
	return e.GoesOn(kind) && time.Since(e.Excuses[kind].From) > d
}

func (o *oracle) setShare(share int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	p := &o.operators
	switch {
	case share < o.share:
		p.from = max(o.share, o.mostShare())
		p.placed = o.places(true)
		p.had = p.placed
		for _, s := range o.machines {
			s.failure.promised = time.Time{} // a lower share stands above that (T9)
		}
		o.happens(rules.ShareLowered)
	case share > o.share:
		o.happens(rules.PlaceFreed)
	}
	o.share = share
}

func (o *oracle) setTimeout(timeout time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	p := &o.operators
	o.timeout, p.changed = timeout, time.Now()
	p.least, p.most = min(p.least, timeout), max(p.most, timeout)
}

// wanted returns how many machines there are to be.
func (o *oracle) wanted() int {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.replicas
}

// mostShare returns the largest share that the sidecar may go by.
func (o *oracle) mostShare() int {
	if lowered := o.since(rules.ShareLowered); lowered <= soon || lowered != rules.Forever && o.since(rules.Fault) <= calm {
		return max(o.operators.from, o.share)
	}
	return o.share
}

// isOverruled says that machines may be let go of whatever keeps them: by an update (P3), operators (R6, P18), or hibernation (P4).
func (o *oracle) isOverruled() bool {
	return o.since(rules.RollingUpdate, rules.Forbidden, rules.Hibernated, rules.HoursUsedUp) < recently
}

// lookAtOperators blames what operators forbid, and is still there.
func (o *oracle) lookAtOperators() {
	if o.alone || o.since(rules.Fault) <= calm {
		return
	}
	p := &o.operators
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		s := o.machines[name]
		if s.machine == nil || s.machine.DeletionTimestamp != nil {
			continue
		}
		if o.goesOnFor(rules.Hibernated, calm) {
			o.blame("P4", "the pool is hibernated for %s, and %s is not deleted: it is kept as %v", calm, name, s.record.Claims)
		}
		if s.record.Kept && o.isForbidden(s) && s.since(rules.Touched) > soon {
			o.blame("R6", "%s is kept as %v, and operators forbid it", name, s.record.Claims)
		}
		o.lookAtEdit(name, s)
	}
	if o.since(rules.ShareLowered) > soon && p.placed != nil {
		o.lookAtLowered()
		p.placed = nil
	}
}

// isForbidden says that operators forbid to keep the machine for some time.
func (o *oracle) isForbidden(s *subject) bool {
	return o.goesOnFor(rules.Forbidden, soon) || s.goesOnFor(rules.Forbidden, soon)
}

// lookAtLowered blames that more machines are auto-preserved than the share allows since it was lowered. What a person has asked for
// since then is no reason to let go of one.
func (o *oracle) lookAtLowered() {
	held, auto := 0, []string{}
	for _, name := range o.places(false) {
		s := o.machines[name]
		if s.askedAt.After(o.last(rules.ShareLowered)) {
			continue
		}
		if s.since(rules.Touched) <= calm { // its release may wait for a node that cannot be written to (P14)
			continue
		}
		if held++; slices.Contains(o.operators.placed, name) && !s.isAskedFor() {
			auto = append(auto, name)
		}
	}
	if held > o.share && len(auto) > 0 {
		o.blame("T9", "the share is %d since %s, and %q are still auto-preserved", o.share, o.last(rules.ShareLowered).Format(time.TimeOnly), auto)
	}
}

// isAskedFor says that a person's request keeps the machine.
func (s *subject) isAskedFor() bool { return isAskedForBy(s.record) }

func isAskedForBy(r rules.Machine) bool {
	return slices.ContainsFunc([]string{v1alpha1.CauseNow, v1alpha1.CauseWhenFailed}, func(cause string) bool { return r.Claims[cause].After(time.Now().Add(5 * time.Second)) })
}

// checkLowered is called when we let go of a machine in Failed:Preserved before its time. It blames that a lower share cost a person what
// was asked for, and notes who is older and has a place.
func (o *oracle) checkLowered(name string, s *subject, was rules.Machine) {
	if o.since(rules.ShareLowered) > soon || o.isOverruled() || s.since(rules.Withdrawn) < recently {
		return
	}
	o.seen["let go by a lower share"]++
	if isAskedForBy(was) && !s.record.IsWorkedOn(time.Now().Add(-soon)) {
		o.blame("T9", "%s is kept as %v, and let go of when the share becomes %d", name, was.Claims, o.share)
	}
	for _, other := range o.places(true) {
		if t := o.machines[other]; t != s && !t.isAskedFor() && !t.record.IsWorkedOn(time.Now().Add(-soon)) && t.machine.CreationTimestamp.Before(&s.machine.CreationTimestamp) {
			o.spared = append(o.spared, spared{name, other, time.Now()})
		}
	}
}

// spared is an older machine that had a place when a machine was let go of because of a lower share.
type spared struct {
	machine, older string
	at             time.Time
}

// lookAtSpared blames that older machines stay: those of one share are let go of one after the other.
func (o *oracle) lookAtSpared() {
	o.spared = slices.DeleteFunc(o.spared, func(x spared) bool {
		if time.Since(x.at) < 10*time.Second {
			return false
		}
		if s := o.machines[x.older]; s != nil && s.machine != nil && s.machine.DeletionTimestamp == nil && s.record.Kept && s.record.Phase == rules.FailedPreserved && s.askedAt.Before(x.at) {
			o.blame("T9", "%s is let go of because of a lower share, and %s is older, and stays", x.machine, x.older)
		}
		return true
	})
}

// lookAtEdit blames that what an operator has edited does not count (P6). Who asks after that, works on the machine, or finds that it
// fails, may move the end. A validation that begins after that has a time of its own, which moves it as well (V1, V4).
func (o *oracle) lookAtEdit(name string, s *subject) {
	if s.edited.IsZero() {
		return
	}
	if !s.record.Kept || s.askedAt.After(s.editedAt) || s.failure.near.After(s.editedAt) || s.worked || s.GoesOn(rules.Forbidden) || o.isOverruled() {
		s.edited = time.Time{}
		return
	}
	if !s.gate.Since.Before(s.editedAt) {
		if now := time.Now(); s.edited.Before(now) {
			s.edited = now // what is left ends with the validation
		}
		return
	}
	late := soon
	if s.since(rules.Denied) < soon {
		late += denied
	}
	switch quiet := time.Since(later(s.editedAt, o.last(rules.Fault))) > soon; {
	case !quiet:
	case time.Since(s.edited) > late:
		o.blame("P6", "%s is kept, and an operator let it be so until %s", name, s.edited.Format(time.DateTime))
	case s.edited.After(time.Now()) && !s.record.Expiry.Equal(s.edited):
		o.blame("P6", "%s is kept until %s, and an operator let it be so until %s", name, s.record.Expiry.Format(time.DateTime), s.edited.Format(time.DateTime))
	}
}

// checkEdited is called when we let go of a machine, or machine-controller-manager 0.62 terminates it at its end. It blames that this
// is not to the second when an operator says (P6).
func (o *oracle) checkEdited(name string, s *subject) {
	if s.edited.IsZero() || s.askedAt.After(s.editedAt) || s.failure.near.After(s.editedAt) || s.worked || s.GoesOn(rules.Forbidden) || o.isOverruled() ||
		o.since(rules.Fault) <= calm || o.since(rules.ShareLowered) < recently || s.since(rules.Touched) <= calm { // its node cannot be written to (P14)
		return
	}
	o.seen["let go when an operator says"]++
	end := s.edited
	s.edited = time.Time{}
	if time.Now().Before(end) && o.findsNoPlace(s) {
		return
	}
	if off := time.Since(end); off < -time.Second || time.Since(later(end, s.editedAt)) > 10*time.Second {
		o.blame("P6", "%s is let go of %s after the end that an operator has edited", name, off)
	}
}
