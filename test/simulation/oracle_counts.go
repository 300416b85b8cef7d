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
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// count is from when on the time is counted for which a machine may be kept: by people and the share (P13), or for maintenances
// (M12). It begins anew after a quiet time, of which nobody can say to the second whether it was long enough, nor what the
// sidecar has seen of it during a fault.
type count struct {
	// longest begins anew only where there is no doubt of that, shortest where it may.
	longest, shortest span
}

type span struct {
	// first is from when on is counted, zero if nothing is, quiet since when the machine is quiet, zero if it is not.
	first, quiet time.Time
}

// follow follows what counts, and since when the machine is quiet beyond doubt, or may be.
func (c *count) follow(counts, isQuiet, mayBeQuiet, isCalm bool) {
	if c.longest.rest(isQuiet) > healthTimeout+calm && isCalm {
		c.longest.first = time.Time{}
	}
	was := !c.shortest.quiet.IsZero()
	if c.shortest.rest(mayBeQuiet) > healthTimeout-5*time.Second || was && !mayBeQuiet && !isCalm {
		c.shortest.first = time.Time{}
	}
	for _, s := range []*span{&c.longest, &c.shortest} {
		if counts && s.first.IsZero() {
			s.first = time.Now()
		}
	}
}

// rest returns for how long the machine is quiet, or was until now.
func (s *span) rest(quiet bool) (d time.Duration) {
	if !s.quiet.IsZero() {
		d = time.Since(s.quiet)
	}
	s.quiet = rules.Since(s.quiet, quiet, time.Now())
	return d
}

// isUsedUp says that the time may be over.
func (c *count) isUsedUp(most time.Duration) bool {
	return !c.longest.first.IsZero() && time.Since(c.longest.first) > most-soon
}

// recount is called with each change of a machine, its node and its maintenances, and every few seconds.
func (o *oracle) recount(name string) {
	s := o.machines[name]
	if s == nil || s.machine == nil {
		return
	}
	isCalm := o.since(rules.Fault) > calm
	healthy := s.node != nil && s.unhealthy.IsZero() && s.machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning
	_, onMachine := s.machine.Annotations[v1alpha1.AnnotationPreserve]
	asked, onNode := s.requested()
	left := healthy && !s.record.Kept
	s.kept.follow(s.record.Phase != "" && s.record.IsAsked(),
		left && !onMachine && !onNode && s.machine.Status.CurrentStatus.PreserveExpiryTime == nil, left && (asked != v1alpha1.RequestNow || o.GoesOn(rules.HoursUsedUp)), isCalm) // a request waits for the next month then

	maintained := o.maintenances.of(name) != nil
	_, marked := s.record.Claims[v1alpha1.CauseMaintenance]
	counts := maintained && len(rules.MarksOfMaintenance(s.node)) > 0 // nobody asks as long as the node cannot be written to
	s.maintained.follow(counts, healthy && !maintained && !marked && len(rules.MarksOfMaintenance(s.node)) == 0, healthy && !maintained, isCalm)
}

// requested returns the request for a machine as it is written, and whether that is on its node.
func (s *subject) requested() (value string, onNode bool) { return requestedOf(s.machine, s.node) }

func requestedOf(machine *machinev1alpha1.Machine, node *corev1.Node) (value string, onNode bool) {
	if node != nil {
		value, onNode = node.Annotations[v1alpha1.AnnotationPreserve]
	}
	if !onNode {
		value = machine.Annotations[v1alpha1.AnnotationPreserve]
	}
	if value != "" && value == builder.Noted(machine)[builder.NoteSpentRequest] { // it counts for nothing until it is another one
		value = ""
	}
	return value, onNode
}

// checkWork blames that we let go of a machine that somebody works on, whatever else has kept it (P13).
func (o *oracle) checkWork(name string, s *subject, was rules.Machine) {
	_, maintained := was.Claims[v1alpha1.CauseMaintenance]
	_, cycled := was.Claims[v1alpha1.CauseRemediation]
	ended := !s.editedAt.IsZero() && !was.Expiry.After(time.Now()) // by an operator, who is obeyed to the second (P6)
	switch {
	case s.record.Kept || !was.Kept || s.machine.DeletionTimestamp != nil || o.since(rules.Fault) <= calm || s.since(rules.Withdrawn) < recently || o.since(rules.Forbidden, rules.Hibernated) < recently:
	case maintained && o.isMaintained(name, s):
		o.blame("M12", "%s is let go of, and its node is under maintenance", name)
	case cycled && s.record.IsCycled() && !o.isOverruled() && !ended:
		o.blame("X10", "%s is let go of, and its host is being power-cycled", name)
	}
}

// checkCounts is called with each write of a machine by us that is not being deleted.
func (o *oracle) checkCounts(name string, s *subject, before *machinev1alpha1.Machine) {
	if o.since(rules.Fault) <= calm {
		return
	}
	isDropped := func(annotation string) bool {
		_, was := builder.Noted(before)[annotation]
		_, is := builder.Noted(s.machine)[annotation]
		return was && !is
	}
	if isDropped(builder.NotePreservedSince) && !s.kept.shortest.first.IsZero() {
		o.blame("P13", "for how long %s is kept is counted anew, and is to be counted from %s", name, s.kept.shortest.first.Format(time.DateTime))
	}
	if isDropped(builder.NoteMaintainedSince) && !s.maintained.shortest.first.IsZero() {
		o.blame("M12", "for how long %s is under maintenance is counted anew, and is to be counted from %s", name, s.maintained.shortest.first.Format(time.DateTime))
	}
}

// lookAtCounts blames that a machine of which all is as it should be is to be kept for too long, and what is counted for too long.
func (o *oracle) lookAtCounts(name string, s *subject) {
	if o.alone {
		return
	}
	for _, cause := range slices.Sorted(maps.Keys(s.record.Claims)) {
		expiry := s.record.Claims[cause]
		if first := s.kept.shortest.first; rules.IsAsking(cause) && !first.IsZero() && s.editedAt.IsZero() && expiry.After(first.Add(o.longest+soon)) {
			o.blame("P13", "%s is kept as %s until %s, and may be kept for %s from %s on", name, cause, expiry.Format(time.DateTime), o.longest, first.Format(time.DateTime))
		}
		// After a maintenance the machine has some time left to become healthy (M13).
		if first := s.maintained.shortest.first; cause == v1alpha1.CauseMaintenance && !first.IsZero() && s.editedAt.IsZero() && expiry.After(first.Add(maxHoldTime+healthTimeout+soon)) {
			o.blame("M12", "%s is kept for maintenances until %s, and may be for %s from %s on", name, expiry.Format(time.DateTime), maxHoldTime, first.Format(time.DateTime))
		}
	}

	asking := s.record.Phase != "" && s.record.IsAsked()
	asked, _ := s.requested() // what is not heeded does not bring it back
	o.lookAtCount("P13", name, s, builder.NotePreservedSince, s.kept.longest.quiet, asking, !s.record.Kept && asked != v1alpha1.RequestNow)
	_, claimed := s.record.Claims[v1alpha1.CauseMaintenance]
	maintained := o.maintenances.of(name) != nil
	o.lookAtCount("M12", name, s, builder.NoteMaintainedSince, s.maintained.longest.quiet, claimed && maintained, !claimed && !maintained && time.Since(o.maintenances.changed[name]) > calm)
}

// lookAtCount blames what is written of a count: since when as long as something counts, with until when after that, and nothing
// after a quiet time.
func (o *oracle) lookAtCount(rule, name string, s *subject, annotation string, quiet time.Time, counts, ended bool) {
	value, counted := builder.Noted(s.machine)[annotation]
	_, _, over := strings.Cut(value, "/")
	switch {
	case counts && (!counted || over):
		o.blame(rule, "%s is kept, and says %s=%q", name, annotation, value)
	case ended && counted && !quiet.IsZero() && time.Since(quiet) > healthTimeout+calm:
		o.blame(rule, "%s is quiet since %s, and still says %s=%s", name, quiet.Format(time.DateTime), annotation, value)
	case ended && counted && !over:
		o.blame(rule, "%s is not kept any more, and says %s=%s", name, annotation, value)
	}
}
