// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What requests begin and end.

// shortest is the shortest time that a request may ask for (R5).
const shortest = 10 * time.Second

// request is what counts of what people have written before we hold the machine, and for how long it is to be kept then, 0 if they do
// not say (R2, R5).
func (o *oracle) request(s *subject, before *machinev1alpha1.Machine) (value string, timeout time.Duration) {
	value, onNode := requestedOf(before, s.node)
	written := before.Annotations[v1alpha1.AnnotationTimeout]
	if onNode {
		written = s.node.Annotations[v1alpha1.AnnotationTimeout]
	}
	timeout, _ = time.ParseDuration(written)
	if timeout < shortest || timeout > o.longest {
		timeout = 0
	}
	return value, timeout
}

// checkBegun is called when we begin to keep a machine. It blames that there is no reason for it (R3, R6, P4, T6), and that it is for
// longer, or shorter, than somebody asks for (R5, P6).
func (o *oracle) checkBegun(name string, s *subject, before *machinev1alpha1.Machine) {
	s.begun = time.Now()
	if o.since(rules.Fault) <= calm || s.since(rules.Touched) < 0 {
		return
	}
	switch {
	case o.goesOnFor(rules.Hibernated, soon):
		o.blame("P4", "%s begins to be kept as %v, and the pool is hibernated", name, s.record.Claims)
	case o.isForbidden(s):
		o.blame("R6", "%s begins to be kept as %v, and operators forbid it", name, s.record.Claims)
	}
	value, timeout := o.request(s, before)
	for _, cause := range slices.Sorted(maps.Keys(s.record.Claims)) {
		asked := map[string]string{v1alpha1.CauseNow: v1alpha1.RequestNow, v1alpha1.CauseWhenFailed: v1alpha1.RequestWhenFailed}[cause]
		switch {
		case !rules.IsAsking(cause), strings.HasSuffix(cause, "?"): // somebody works on it, or it is no claim yet
			continue
		case asked != "" && s.askedAt.Before(s.ended):
			o.blame("T3", "%s begins to be kept as %s, had its time at %s, and nobody has asked since", name, cause, s.ended.Format(time.DateTime))
		case asked != "" && value != asked:
			o.blame("R3", "%s begins to be kept as %s, and what counts is %q", name, cause, value)
		case cause != v1alpha1.CauseNow && s.unhealthy.IsZero() && time.Since(s.lately.Until) > soon && s.node != nil:
			o.blame("T6", "%s begins to be kept as %s, and its node is healthy", name, cause)
		}
		if native := before.Status.CurrentStatus.PreserveExpiryTime; native != nil {
			continue // machine-controller-manager 0.62 keeps it already (checkNative)
		}
		until, shall := s.record.Claims[cause], time.Now().Add(o.timeout)
		switch {
		case asked != "" && timeout != 0:
			shall = time.Now().Add(timeout)
		case time.Since(o.operators.changed) <= soon:
			continue
		}
		switch first := s.kept.longest.first; { // P13
		case !first.IsZero() && shall.After(first.Add(o.longest)):
			continue
		case shall.After(time.Now().Add(o.longest)):
			shall = time.Now().Add(o.longest)
		}
		if off := until.Sub(shall); off.Abs() > 5*time.Second {
			o.blame("R5", "%s begins to be kept as %s until %s, and shall be until %s", name, cause, until.Format(time.DateTime), shall.Format(time.DateTime))
		}
	}
}

// checkNative is called when we begin to keep a machine. It blames that one which machine-controller-manager 0.62 keeps since some time,
// because of a request, gets another end than people could read (P6, P13).
func (o *oracle) checkNative(name string, s *subject, before *machinev1alpha1.Machine) {
	native := before.Status.CurrentStatus.PreserveExpiryTime
	if value, timeout := o.request(s, before); native == nil || timeout != 0 || value != v1alpha1.RequestNow && value != v1alpha1.RequestWhenFailed ||
		s.nativeSince.IsZero() || time.Since(s.nativeSince) <= soon || s.askedAt.After(s.nativeSince.Add(5*time.Second)) || !native.After(time.Now()) || s.record.IsWorkedOn(time.Now().Add(-soon)) {
		return
	}
	shall := native.Time
	if last := s.kept.longest.first.Add(o.longest); !s.kept.longest.first.IsZero() && shall.After(last) {
		return
	}
	o.seen["taken over"]++
	if until := slices.MaxFunc(slices.Collect(maps.Values(s.record.Claims)), time.Time.Compare); until.Before(shall.Add(-2 * time.Second)) {
		o.blame("P6", "%s is taken over until %s, and machine-controller-manager keeps it until %s", name, until.Format(time.DateTime), shall.Format(time.DateTime))
	}
}

// checkStopped is called when we let go of a machine before its time. It blames that this is because of a request that is none (R3).
func (o *oracle) checkStopped(name string, s *subject, was rules.Machine) {
	value, _ := s.requested()
	if value != nonsense || was.Phase == "" || !was.Expiry.After(time.Now().Add(5*time.Second)) || was.IsWorkedOn(time.Now().Add(-soon)) || was.IsOnlyValidated(time.Now()) || o.isOverruled() ||
		s.since(rules.Withdrawn) < recently || s.since(rules.Overwritten) < recently || o.since(rules.ShareLowered) < recently || was.IsAuto(time.Now()) || o.since(rules.Fault) <= calm {
		return
	}
	o.blame("R3", "%s is let go of, and was to be kept until %s: %q stops nothing", name, was.Expiry.Format(time.DateTime), value)
}

// checkRemoved blames that we take away what forbids to keep a machine (R4).
func (o *oracle) checkRemoved(what string, before, after map[string]string) {
	if before[v1alpha1.AnnotationPreserve] == v1alpha1.RequestFalse && after[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse {
		o.blame("R4", "%s says %q, and said that nobody may keep it", what, after[v1alpha1.AnnotationPreserve])
	}
}

// checkForged blames that something gets from a Node into the Machine that is no request (P14). What a person has put on the Machine itself
// is set aside while the machine is kept, and put back.
func (o *oracle) checkForged(name string, s *subject, before, after map[string]string) {
	if s.onMachine {
		return
	}
	for _, annotation := range []string{v1alpha1.AnnotationPreserve, v1alpha1.AnnotationLastAppliedNodePreserveValue} {
		if value := after[annotation]; value != before[annotation] && (value == nonsense || value == forged) {
			o.blame("P14", "we write %s=%s on %s", annotation, value, name)
		}
	}
}

// checkWhenFailed is called when a machine is terminated that nobody keeps. It blames that it was to be kept once it fails (T4).
func (o *oracle) checkWhenFailed(name string, s *subject, before *machinev1alpha1.Machine) {
	if s.node == nil || s.node.Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestWhenFailed || time.Since(s.askedAt) <= healthTimeout+calm ||
		o.since(rules.Fault) <= healthTimeout+calm || s.everKept || s.GoesOn(rules.Forbidden) || s.kept.isUsedUp(o.longest) || o.isOverruled() || o.alone ||
		before.Status.CurrentStatus.Phase != machinev1alpha1.MachineFailed {
		return
	}
	o.blame("T4", "%s has failed, was to be kept then, and is terminated", name)
}

// lookAtShown blames what people see of a preservation (P11), and what is left of one whose machine is on its way out (T10).
func (o *oracle) lookAtShown(name string, s *subject) {
	if o.alone || s.machine == nil || !o.isCalm(s) {
		return
	}
	if s.machine.DeletionTimestamp != nil {
		kept := s.machine.Annotations[v1alpha1.AnnotationCause] != ""
		tainted := s.node != nil && rules.HasTaint(s.node, v1alpha1.TaintPreserved)
		if gone := time.Since(s.machine.DeletionTimestamp.Time); gone > calm && (kept || tainted) {
			o.blame("T10", "%s is deleted for %s, and says that it is kept: %t, or its node does: %t", name, gone, kept, tainted)
		}
		return
	}
	if s.record.Phase == "" {
		return
	}
	phase := string(s.machine.Status.CurrentStatus.Phase)
	if shall := phase + ":Preserved"; s.record.Phase != rules.FailedPreserved && !s.record.Failing && s.record.Phase != shall {
		o.blame("P11", "%s is %s, and says that it is %s", name, phase, s.record.Phase)
	}
	if s.node == nil {
		return
	}
	shown := slices.ContainsFunc(s.node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.ConditionPreserved && c.Status == corev1.ConditionTrue
	})
	if unheld := s.record.IsOnlyWorkedOn(time.Now()) && !s.record.IsFailing(); !shown && !unheld {
		o.blame("P11", "%s is %s, and its node does not show that it is preserved", name, s.record.Phase)
	}
	if !s.begun.IsZero() && time.Since(s.begun) > soon && s.told.Before(s.begun.Add(-soon)) && o.last(rules.Fault).Before(s.begun.Add(-calm)) && !s.record.IsOnlyWorkedOn(time.Now()) {
		o.blame("P11", "%s is kept since %s, and no Event says so", name, s.begun.Format(time.TimeOnly))
	}
}

// checkOwnWrite is called with each write of ours of a machine that there was before.
func (o *oracle) checkOwnWrite(name string, s *subject, before *machinev1alpha1.Machine, was rules.Machine) {
	o.checkRemoved(name, before.Annotations, s.machine.Annotations)
	o.checkForged(name, s, before.Annotations, s.machine.Annotations)
	if s.machine.DeletionTimestamp != nil {
		return
	}
	switch {
	case !was.Kept && s.record.Kept:
		o.checkBegun(name, s, before)
		o.checkNative(name, s, before)
	case was.Kept && !s.record.Kept:
		o.checkStopped(name, s, was)
		o.checkEdited(name, s)
		if hadTime := slices.DeleteFunc([]time.Time{was.Claims[v1alpha1.CauseNow], was.Claims[v1alpha1.CauseWhenFailed]}, time.Time.IsZero); len(hadTime) > 0 && !hadTime[0].After(time.Now()) {
			s.ended = time.Now()
		}
		if was.Phase == rules.FailedPreserved && was.Expiry.After(time.Now().Add(5*time.Second)) {
			o.checkLowered(name, s, was)
		}
	}
}
