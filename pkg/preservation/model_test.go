// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// model is a second implementation of the rules, deliberately naive: it knows no API objects, no writes and no way to
// hold a machine, only what people asked for, what machine-controller-manager has said, and the time. World drives it
// next to the real one. Where the rules leave something open, a comment with the rule's id says what was chosen.
type model struct {
	share    *int32
	timeout  time.Duration
	replicas int32
	rollout  bool
	machines []*modelMachine
}

// modelMachine is a machine as the rules see it.
type modelMachine struct {
	name             string
	created          time.Time
	hasVM            bool
	health, creation time.Duration

	// phase is the last one that machine-controller-manager gave the machine, since is when it started its health timer.
	phase   machinev1alpha1.MachinePhase
	since   time.Time
	deleted bool

	hasNode     bool
	nodeUnknown bool
	onNode      ask
	onMachine   ask
	// synced is the request that was on the node when it was last synced to the machine (R2).
	synced string

	// kept is the preservation, nil for none.
	kept *keptModel
	// released says that the machine failed, was kept and had its time (T8).
	released bool
}

// ask is what a person wrote on one object.
type ask struct {
	there          bool
	value, timeout string
}

// keptModel is a preservation.
type keptModel struct {
	cause  string
	expiry time.Time
	failed bool
	// since is the start of the health timer that had run out.
	since time.Time
	// share is the share by which the machine was judged last (T9).
	share int32
	// unplaced says that it failed again while nobody knew the share.
	unplaced bool
}

// look does what the controller is to do at this time.
func (m *model) look(now time.Time) {
	var claims []*modelMachine
	leaving := int32(0)
	for _, x := range m.machines {
		failed := x.kept != nil && x.kept.failed
		if m.lookAt(x, now) {
			claims = append(claims, x)
		}
		if failed && (x.kept == nil || !x.kept.failed) {
			leaving++ // P1, T7, T8: its place is free from the next look on, when this is written
		}
	}
	if m.share != nil {
		m.letGo(*m.share)
	}
	slices.SortFunc(claims, func(a, b *modelMachine) int { // P1: first come, first served
		return cmp.Or(a.failsAt(now).Compare(b.failsAt(now)), cmp.Compare(a.name, b.name))
	})
	for _, x := range claims {
		m.serve(x, leaving, now)
	}
}

// lookAt applies to one machine what does not depend on the share, and returns whether it claims a place within it.
func (m *model) lookAt(x *modelMachine, now time.Time) (claims bool) {
	if x.deleted { // T10
		x.kept = nil
		return false
	}
	if x.kept == nil {
		return m.lookAtFree(x, now)
	}
	return x.lookAtKept(now)
}

func (m *model) lookAtFree(x *modelMachine, now time.Time) (claims bool) {
	if x.phase == machinev1alpha1.MachineRunning {
		x.released = false // T8: what fails next is another failure
	}
	if !x.nodeUnknown && !x.hasNode {
		x.synced = "" // R2: the request is gone with the node
	}
	request := x.request()
	switch {
	case m.replicas == 0: // P4
	case request == "now": // T1; also for a machine that was released: it was asked for anew
		m.begin(x, "now", now)
	case !x.failed(now):
	case request == "false": // R4, T6
	case x.released: // T8
	case m.rollout: // P3
	case request == "when-failed": // T4
		m.begin(x, "when-failed", now)
	case x.hasVM: // T5; a gap: without a VM there is nothing to keep
		return true
	}
	return false
}

func (x *modelMachine) lookAtKept(now time.Time) (claims bool) {
	k, request := x.kept, x.request()
	switch {
	case !now.Before(k.expiry): // T3, T8
		x.release()
		x.consume()
		return false
	case request == "false": // R4
		x.release()
		return false
	case k.cause != "auto" && request == "": // T3, T8: withdrawn
		x.release()
		return false
	case k.cause == "now" && request == "when-failed" && !k.failed: // T3; a gap: asks for nothing yet, so now was withdrawn
		x.release()
		return false
	}

	if request == "now" || request == "when-failed" { // a gap: a request takes an auto-preservation over
		k.cause = request
	}
	switch {
	case k.failed && x.phase == machinev1alpha1.MachineRunning: // T7
		k.failed = false
	case !k.failed && x.failed(now):
		if k.cause == "auto" { // P1: it gave its place back when it recovered. A gap: P3 does not matter, it is not new
			return true
		}
		k.failed, k.since = true, x.timerStart() // T2
	}
	return false
}

// letGo is T9: once the share was lowered, the oldest of what is above it go.
func (m *model) letGo(share int32) {
	auto := slices.DeleteFunc(slices.Clone(m.machines), func(x *modelMachine) bool {
		return x.kept == nil || !x.kept.failed || x.kept.cause != "auto"
	})
	slices.SortFunc(auto, func(a, b *modelMachine) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	for _, x := range auto {
		if m.inFailedPreserved() > share && (x.kept.unplaced || x.kept.share > share) {
			x.release()
			continue
		}
		x.kept.share, x.kept.unplaced = share, false
	}
}

// serve gives a failed machine a place within the share if there is one: T5, T6, P1.
func (m *model) serve(x *modelMachine, leaving int32, now time.Time) {
	var free, soon bool
	if m.share != nil {
		free, soon = m.inFailedPreserved()+leaving < *m.share, m.inFailedPreserved() < *m.share
	}
	switch {
	case x.kept == nil && free:
		m.begin(x, "auto", now)
		x.kept.share = *m.share
	case x.kept == nil:
	case free:
		x.kept.failed, x.kept.since, x.kept.share, x.kept.unplaced = true, x.timerStart(), *m.share, false
	case m.share == nil: // a gap: nothing is let go while the share is unknown
		x.kept.failed, x.kept.since, x.kept.unplaced = true, x.timerStart(), true
	case !soon:
		x.release()
	}
}

func (m *model) inFailedPreserved() (n int32) {
	for _, x := range m.machines {
		if x.kept != nil && x.kept.failed {
			n++
		}
	}
	return n
}

func (m *model) begin(x *modelMachine, cause string, now time.Time) {
	timeout := m.timeout
	if own, err := time.ParseDuration(x.timeout()); err == nil && own > 0 { // R5
		timeout = own
	}
	x.released = false
	x.kept = &keptModel{cause: cause, expiry: now.Add(timeout).Truncate(time.Second)}
	if x.failed(now) {
		x.kept.failed, x.kept.since = true, x.timerStart()
	}
}

func (x *modelMachine) release() {
	x.released = x.kept.failed && x.phase != machinev1alpha1.MachineRunning
	x.kept = nil
}

// consume deletes the requests, which have had their time (T3, T8). False stays (R4).
func (x *modelMachine) consume() {
	for _, a := range []*ask{&x.onNode, &x.onMachine} {
		a.timeout = ""
		if a.value != "false" {
			*a = ask{}
		}
	}
}

// request returns what was asked for: "" for nothing, "invalid" for something invalid (R1, R2, R3).
func (x *modelMachine) request() string {
	value := x.onMachine.value
	switch {
	case x.nodeUnknown && x.synced != "": // P9
		value = x.synced
	case !x.nodeUnknown && x.hasNode && x.onNode.there:
		value = x.onNode.value
	}
	switch value {
	case "true":
		return "now"
	case "", "now", "when-failed", "false":
		return value
	}
	return "invalid"
}

// timeout returns the duration beside the request (R5). A gap: without a request, the one on the machine counts.
func (x *modelMachine) timeout() string {
	if !x.nodeUnknown && x.hasNode && x.onNode.there {
		return x.onNode.timeout
	}
	return x.onMachine.timeout
}

func (x *modelMachine) failed(now time.Time) bool {
	at := x.failsAt(now)
	return !at.IsZero() && !now.Before(at)
}

// failsAt returns when the machine counts as failed: a margin before its deadline, since the hold must be there before
// machine-controller-manager acts. Zero for never.
func (x *modelMachine) failsAt(now time.Time) time.Time {
	switch x.phase {
	case machinev1alpha1.MachineFailed:
		return now
	case machinev1alpha1.MachineUnknown:
		return x.deadline().Add(-min(30*time.Second, x.health/10))
	case machinev1alpha1.MachinePending:
		return x.deadline().Add(-min(30*time.Second, x.creation/10))
	}
	return time.Time{}
}

// deadline returns after which time machine-controller-manager takes the machine for failed. Zero for never.
func (x *modelMachine) deadline() time.Time {
	switch x.phase {
	case machinev1alpha1.MachineFailed:
		return x.since
	case machinev1alpha1.MachineUnknown:
		return x.since.Add(x.health)
	case machinev1alpha1.MachinePending:
		return x.created.Add(x.creation)
	}
	return time.Time{}
}

func (x *modelMachine) timerStart() time.Time {
	if x.phase == machinev1alpha1.MachinePending {
		return x.created
	}
	return x.since
}

// next returns when look would do something that it does not do now, zero for never.
func (m *model) next(now time.Time) (next time.Time) {
	for _, x := range m.machines {
		times := []time.Time{x.failsAt(now)}
		if x.kept != nil {
			times = append(times, x.kept.expiry)
		}
		for _, t := range times {
			next = earlier(next, t, now)
		}
	}
	return next
}

// earlier returns the earlier of a and b. Zero, and a b that is not after now, do not count.
func earlier(a, b, now time.Time) time.Time {
	if b.After(now) && (a.IsZero() || b.Before(a)) {
		return b
	}
	return a
}

// copy returns the machine as it is now.
func (x *modelMachine) copy() modelMachine {
	c := *x
	if x.kept != nil {
		c.kept = new(*x.kept)
	}
	return c
}

// keptLike says that both machines are preserved in the same way, or both are not.
func (x *modelMachine) keptLike(y *modelMachine) bool {
	if x.kept == nil || y.kept == nil {
		return x.kept == y.kept
	}
	return *x.kept == *y.kept
}

func (x *modelMachine) String() string {
	s := fmt.Sprintf("%s %s since %s, asked on node %q on machine %q", x.name, x.phase, clock(x.since), x.onNode, x.onMachine)
	if x.kept != nil {
		s += fmt.Sprintf(", kept for %s until %s", x.kept.cause, clock(x.kept.expiry))
		if x.kept.failed {
			s += ", failed"
		}
	}
	if x.released {
		s += ", released"
	}
	if x.deleted {
		s += ", deleted"
	}
	return s
}

func (a ask) String() string {
	if !a.there {
		return "-"
	}
	return a.value + " " + a.timeout
}
