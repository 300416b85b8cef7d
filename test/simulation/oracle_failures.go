// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// margin is how long before its deadline a machine is held at most.
const margin = 30 * time.Second

// failure is what the oracle knows of the last failure of a machine that was kept already.
type failure struct {
	// near is when its deadline had come near, steady until when it was to be kept before.
	near, steady time.Time
	// at is when it failed, and owed until when it is to be kept if there was a place for it; zero once that was looked at.
	at, owed time.Time
	// promised is until when it is kept, whatever becomes of what was asked for (T2).
	promised time.Time
}

// observeFailure follows a machine that is kept, and fails. Asking never shortens (T2).
func (o *oracle) observeFailure(name string, s *subject, before *machinev1alpha1.Machine, was rules.Machine, change *Change) {
	if s.record.Terminating { // what was promised until then counts
		return
	}
	now, f := time.Now(), &s.failure
	if change.By == sidecarName {
		o.checkPromise(name, s, before, was)
		if is := s.record; was.Failing && was.Phase != "" && was.Phase != rules.FailedPreserved && is.Kept && !is.IsFailing() &&
			!s.worked && s.askedAt.Before(f.near) && f.steady.After(now) && is.Written.Sub(f.steady).Abs() > time.Second {
			o.blame("H4", "%s has not failed, is to be kept until %s, and was to be kept until %s before", name, is.Written.Format(time.DateTime), f.steady.Format(time.DateTime))
		}
	}
	switch {
	case !s.record.Kept:
		*f = failure{}
	case !s.record.IsFailing():
		f.steady, f.at = s.record.Written, time.Time{}
	case !was.IsFailing():
		f.near = now
	}
	if s.record.Phase != rules.FailedPreserved || was.Phase == rules.FailedPreserved || was.Phase == "" {
		return
	}
	*f = failure{near: f.near, steady: f.steady}
	_, asked := was.Claims[v1alpha1.CauseNow]
	if change.By != sidecarName || s.unhealthy.IsZero() || !asked && !was.IsAuto(time.Now()) || was.IsWorkedOn(time.Now().Add(-soon)) || s.record.IsWorkedOn(time.Now().Add(-soon)) || o.isOverruled() ||
		len(o.takenBeside(s)) >= o.share || o.alone {
		return
	}
	// It may have been seen to be about to fail before it has. One that has not joined fails with its creation timeout.
	deadline := s.unhealthy.Add(healthTimeout)
	if now.Before(deadline) {
		deadline = now
	}
	f.at, f.owed = now, deadline.Add(-margin-5*time.Second+o.operators.least)
	if first := s.kept.longest.first; !first.IsZero() && f.owed.After(first.Add(o.longest-margin-5*time.Second)) {
		f.owed = first.Add(o.longest - margin - 5*time.Second)
	}
}

// lookAtUnkept blames that a machine has failed, is still there as others are to go first, and has not got the place that there is.
func (o *oracle) lookAtUnkept(name string, s *subject) {
	status := s.machine.Status.CurrentStatus
	if s.unhealthy.IsZero() || status.Phase != machinev1alpha1.MachineUnknown || time.Since(status.LastUpdateTime.Time) <= healthTimeout+soon ||
		s.asked || !s.record.Released.IsZero() || s.machine.Spec.ProviderID == "" || s.kept.isUsedUp(o.longest) || o.isOverruled() || o.alone {
		return
	}
	if taken := o.takenBeside(s); len(taken) < o.share && o.since(rules.Storm) > soon {
		o.blame("T5", "%s has failed, the share of %d has room beside %q, and it is not kept", name, o.share, taken)
	}
}

// takenBeside are the places that others have, or have just given back.
func (o *oracle) takenBeside(s *subject) (names []string) {
	for name, other := range o.machines {
		if other == s || other.machine == nil || other.record.IsOnlyWorkedOn(time.Now().Add(-soon)) {
			continue
		}
		if other.machine.DeletionTimestamp == nil && (other.record.IsFailing() || !other.placed.IsZero()) {
			names = append(names, name)
		}
	}
	if o.since(rules.PlaceFreed) <= soon {
		names = append(names, "one that was")
	}
	return names
}

// findsNoPlace says that a machine which had recovered fails again, and needs a place that there is not (T2, P1).
func (o *oracle) findsNoPlace(s *subject) bool {
	return !s.unhealthy.IsZero() && time.Since(s.unhealthy) >= healthTimeout-margin && len(o.takenBeside(s)) >= o.share
}

// lookAtFailure blames that a machine has failed for which there was a place, and is not kept for as long as if nobody had asked.
// It looks when all that fail at the same moment have their places.
func (o *oracle) lookAtFailure(name string, s *subject) {
	f := &s.failure
	if f.at.IsZero() || time.Since(f.at) <= soon {
		return
	}
	calmly := o.since(rules.Fault) > calm && s.since(rules.Touched) > 0 && !s.last(rules.Withdrawn).After(f.at.Add(-soon)) && !o.isOverruled() && !s.record.IsWorkedOn(time.Now().Add(-soon))
	f.at = time.Time{}
	if !calmly || s.record.Phase != rules.FailedPreserved || len(o.takenBeside(s)) >= o.share {
		return
	}
	auto, ok := s.record.Claims[v1alpha1.CauseAuto]
	switch {
	case !ok || auto.Before(f.owed):
		o.blame("T2", "%s has failed, the share of %d has room beside %q, and it is kept until %s as %v, not until %s",
			name, o.share, o.takenBeside(s), s.record.Expiry.Format(time.DateTime), s.record.Claims, f.owed.Format(time.DateTime))
	default:
		f.promised = auto
		o.seen["promised"]++
	}
}

// checkPromise blames that we let go of a machine that is to be kept whatever becomes of what was asked for. machine-controller-
// manager 0.62 may have ended that itself: the request that was withdrawn was what had it hold the machine.
func (o *oracle) checkPromise(name string, s *subject, before *machinev1alpha1.Machine, was rules.Machine) {
	f := &s.failure
	if !f.promised.After(time.Now().Add(5*time.Second)) || s.machine.DeletionTimestamp != nil || !was.Kept || o.isOverruled() ||
		s.GoesOn(rules.Forbidden) || s.since(rules.Vetoed) < recently || s.since(rules.Overwritten) < recently || !old && before.Status.CurrentStatus.PreserveExpiryTime == nil {
		return
	}
	switch {
	case !s.record.Kept && was.Phase != rules.FailedPreserved && o.findsNoPlace(s):
	case !s.record.Kept && was.Phase == rules.FailedPreserved && !s.asked && o.repeats(s): // a new reason stands above that (P15)
	case !s.record.Kept:
		o.blame("T2", "%s is let go of, and was to be kept until %s, whatever was asked for", name, f.promised.Format(time.DateTime))
	case s.record.Written.Before(f.promised.Add(-time.Second)):
		o.blame("T2", "%s is to be kept until %s, and was until %s, whatever was asked for", name, s.record.Written.Format(time.DateTime), f.promised.Format(time.DateTime))
	}
}
