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
	// longest is for how long a machine may be kept from when people or the share began to keep it, until the count begins anew
	// (P13), forbidden the veto on all (R6).
	longest   time.Duration
	forbidden bool
	// maintenances says that they count, hold for how long a machine is kept because of them (M12).
	maintenances bool
	hold         time.Duration
	// remediations says that they count (X10).
	remediations bool
	machines     []*modelMachine
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
	// waits says that components on the node are not ready, without which MCM does not take the machine for joined.
	waits bool
	// healthy says that the node is what the rules call healthy, joined that machine-controller-manager has seen it.
	healthy, joined bool
	// broken says that the VM cannot be initialised, unlimited that machine-controller-manager has no health timeout for it.
	broken, unlimited bool
	// spared says that machine-controller-manager does not terminate the machine when it is Failed: it obeys the request.
	spared bool
	// obeyed says that machine-controller-manager keeps the machine by itself because of the request.
	obeyed bool
	// templated says that the request on the node is that of the pool's annotations, which is put back as often as it changes.
	templated bool
	template  string
	// renewed says that its end is the one that machine-controller-manager gave it when it began anew: no operator's (P13).
	renewed bool
	// native is when a preservation ends that machine-controller-manager has begun by itself some time ago.
	native    time.Time
	onNode    ask
	onMachine ask
	// synced is the request that was on the node when it was last synced to the machine (R2).
	synced string

	// kept is the preservation, nil for none.
	kept *keptModel
	// first is when people and the share began to have it preserved, zero for never, and ended when nobody had any more (P13).
	first, ended time.Time
	// forbidden says that operators forbid to preserve it (R6).
	forbidden bool
	// maintained says that somebody works on the node, began what the node says of since when, zero for nonsense. Counted is
	// from when on the time for all maintenances is counted, zero for never, and worked when there was none any more (M12).
	maintained      bool
	began           time.Time
	counted, worked time.Time
	// cycled says that a power cycle of the host asks for the machine to be kept, until is what it says, zero for nonsense.
	// Spent is what it said when that came to its end before that time (X10).
	cycled       bool
	until, spent time.Time
	// denied says that machine-controller-manager ends whatever holds the machine, wasEnded that it did.
	denied, wasEnded bool
	// consumed says that the request has just been deleted (T3, T8).
	consumed bool
	// beside and renews say that the share is to claim the machine, which fails, beside a person, or anew (T2).
	beside, renews bool
	// takesOver says that it claims a place as it is kept for a power cycle no longer.
	takesOver bool
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
	// auto and person are when the two claims end that there may be, zero for none; cause is the person's.
	auto, person time.Time
	cause        string
	// next is when the share's claim ends once the machine has failed, zero for none (T2).
	next time.Time
	// maintenance is when the third one ends, and over is when the maintenance did, if the machine was not well then.
	maintenance, over time.Time
	// remediation is when the fourth one ends, and obeyed is what it was made of.
	remediation, obeyed time.Time
	failed              bool
	// failsAt is the deadline that is about to pass, zero for none; tentative says that nothing is preserved until then.
	failsAt   time.Time
	tentative bool
	// since is the start of the timer that has run out, or is about to.
	since time.Time
	// share is the share by which the machine was judged last (T9).
	share int32
	// unplaced says that it failed again while nobody knew the share.
	unplaced bool
}

// expiry is the end of the last claim.
func (k *keptModel) expiry() time.Time {
	return slices.MaxFunc([]time.Time{k.auto, k.next, k.person, k.maintenance, k.remediation}, time.Time.Compare)
}

// claims returns how many there are.
func (k *keptModel) claims() (n int) {
	for _, claim := range []time.Time{k.auto, k.next, k.person, k.maintenance, k.remediation} {
		if !claim.IsZero() {
			n++
		}
	}
	return n
}

// onlyProtected says that there is nothing but a maintenance, and what waits for that, and the machine is not about to fail:
// then there is no hold.
func (k *keptModel) onlyProtected() bool {
	return !k.maintenance.IsZero() && k.onlyWorkedOn() && !k.failing()
}

// workedOn says that somebody works on the machine (M12, X10), onlyWorkedOn that there is no other reason to keep it.
func (k *keptModel) workedOn() bool     { return !(k.maintenance.IsZero() && k.remediation.IsZero()) }
func (k *keptModel) onlyWorkedOn() bool { return k.auto.IsZero() && k.person.IsZero() }

// onlyRemediated says that there is nothing but a remediation.
func (k *keptModel) onlyRemediated() bool { return k.claims() == 1 && !k.remediation.IsZero() }

// counts says that the machine counts towards the share (P1): a maintenance or a remediation does not.
func (k *keptModel) counts(now time.Time) bool {
	return k.failing() && k.claims() > 0 && (!k.workedOn() || now.Before(k.auto) || now.Before(k.person))
}

// edit makes the preservation end at another time: an operator edits the whole and not a claim (P6).
func (k *keptModel) edit(expiry time.Time) {
	last, standing := k.expiry(), slices.MaxFunc([]time.Time{k.auto, k.person, k.maintenance, k.remediation}, time.Time.Compare)
	for _, claim := range []*time.Time{&k.auto, &k.next, &k.person, &k.maintenance, &k.remediation} {
		edited := !expiry.Equal(last) && claim != &k.next && claim.Equal(standing) // it is not to go with the next
		if !claim.IsZero() && (claim.After(expiry) || claim.Equal(last) || edited) {
			*claim = expiry
		}
	}
}

func (k *keptModel) causes() string {
	switch {
	case !k.person.IsZero():
		return k.cause
	case !k.auto.IsZero():
		return "auto"
	case !k.remediation.IsZero():
		return "remediation"
	}
	return "maintenance"
}

// failing says that the machine has failed, or is about to.
func (k *keptModel) failing() bool { return k != nil && (k.failed || !k.failsAt.IsZero()) }

// look does what the controller is to do at this time.
func (m *model) look(now time.Time) {
	var claims []*modelMachine
	leaving := int32(0)
	for _, x := range m.machines {
		if !x.cycled || !m.remediations || !x.until.IsZero() && !x.until.Equal(x.spent) {
			x.spent = time.Time{}
		}
		x.consumed = false
		x.comeBack(now)
		had := x.kept.counts(now)
		if m.lookAt(x, now) {
			claims = append(claims, x)
		}
		if had && !x.kept.counts(now) {
			leaving++ // P1, T7, T8: its place is free from the next look on, when this is written
		}
	}
	if m.share != nil {
		m.letGo(*m.share, now)
	}
	first := func(a, b *modelMachine) int { // P1: first come, first served
		return cmp.Or(a.failsAt(now).Compare(b.failsAt(now)), cmp.Compare(a.name, b.name))
	}
	beside := slices.DeleteFunc(slices.Clone(m.machines), func(x *modelMachine) bool { return !x.beside || !x.kept.failing() })
	slices.SortFunc(beside, first)
	for others := m.inFailedPreserved(now) + leaving - int32(len(beside)); len(beside) > 0 && m.share != nil && others < *m.share; beside = beside[1:] { // T2
		if m.claimAnew(beside[0], now) {
			others++
		}
	}
	slices.SortFunc(claims, func(a, b *modelMachine) int {
		return cmp.Or(a.claimTime(now).Compare(b.claimTime(now)), cmp.Compare(a.name, b.name))
	})
	for _, x := range claims {
		m.serve(x, leaving, now)
	}
	for _, x := range m.machines {
		x.takesOver, x.beside, x.renews = false, false, false
		if x.kept == nil && x.hasNode && !x.nodeUnknown && x.phase == machinev1alpha1.MachineFailed && (x.templated && x.template == "auto-preserved" || !x.templated && x.onNode.value == "auto-preserved") { // P14
			x.onNode = ask{}
		}
		m.count(x, now)
	}
}

// comeBack is P13 and M12: what was used up comes back once the machine was healthy for its health timeout, and nobody kept it.
func (x *modelMachine) comeBack(now time.Time) {
	for _, span := range [][2]*time.Time{{&x.first, &x.ended}, {&x.counted, &x.worked}} {
		if at := x.comesBack(*span[1]); !at.IsZero() && !now.Before(at) && !x.deleted {
			*span[0], *span[1] = time.Time{}, time.Time{}
		}
	}
}

func (x *modelMachine) comesBack(ended time.Time) time.Time {
	if ended.IsZero() || !x.well() || x.phase != machinev1alpha1.MachineRunning {
		return time.Time{}
	}
	return slices.MaxFunc([]time.Time{ended, x.since}, time.Time.Compare).Add(x.health)
}

// count is P13 and M12: for how long the machine is kept, and worked on. A hold before the deadline is no preservation (H4).
func (m *model) count(x *modelMachine, now time.Time) {
	if x.deleted {
		return
	}
	end := func(since, ended *time.Time, goesOn bool) {
		switch {
		case goesOn:
			*ended = time.Time{}
		case !since.IsZero() && ended.IsZero():
			*ended = now.Truncate(time.Second)
		}
	}
	if x.kept == nil || !x.kept.tentative {
		if x.first.IsZero() && x.kept != nil && !x.kept.onlyWorkedOn() {
			x.first = now.Truncate(time.Second)
		}
		end(&x.first, &x.ended, x.kept != nil || x.request() == "now" && !x.consumed) // what is not heeded does not bring it back
	}
	goes := m.maintenances && (x.maintained && x.hasNode && !x.nodeUnknown || x.nodeUnknown && x.worked.IsZero())
	end(&x.counted, &x.worked, goes || x.kept != nil && !x.kept.maintenance.IsZero())
}

// claimAnew is T2: the share claims a machine that fails, with an end of its own.
func (m *model) claimAnew(x *modelMachine, now time.Time) bool {
	if m.hadItsTime(x, now) || !x.hasVM {
		return false
	}
	x.kept.next, x.kept.share, x.kept.unplaced = slices.MaxFunc([]time.Time{x.kept.auto, m.shareUntil(x, now)}, time.Time.Compare), *m.share, false
	if x.kept.failed {
		x.kept.confirm()
	}
	return true
}

func (k *keptModel) confirm() {
	if !k.next.IsZero() {
		k.auto, k.next = k.next, time.Time{}
	}
}

// shareUntil is until when the share keeps a machine: what somebody asks for beside it does not count.
func (m *model) shareUntil(x *modelMachine, now time.Time) time.Time {
	if request := x.request(); request == "now" || request == "when-failed" {
		return m.cut(x, now.Add(m.timeout), now)
	}
	return m.expiryFor(x, now)
}

func span(since, until time.Time) string {
	if since.IsZero() || until.IsZero() {
		return stampOrNone(since)
	}
	return stamp(since) + "/" + stamp(until)
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
	return m.lookAtKept(x, now)
}

func (m *model) lookAtFree(x *modelMachine, now time.Time) (claims bool) {
	if x.phase == machinev1alpha1.MachineRunning && x.well() && !x.ghost() {
		x.released = false // T8: what fails next is another failure
	}
	if !x.nodeUnknown && !x.hasNode {
		x.synced = "" // R2: the request is gone with the node
	}
	request := x.request()
	asked := request == "now" || request == "when-failed"
	switch {
	case m.replicas == 0: // P4
	case m.forbidden, x.forbidden, m.hadItsTime(x, now) && (x.released || !m.remediable(x, now) && !m.maintainable(x, now)): // R6, P13: only what MCM would obey is deleted
		if asked && x.obeyed && x.consumable() {
			x.consume()
		}
	case x.near(now) && x.cannotBeHeld(), x.near(now) && m.rollout, x.near(now) && x.phase == machinev1alpha1.MachineFailed && !x.spared: // P3, H3
		if asked && x.due(now) && x.consumable() {
			x.consume()
		}
	case request == "now" && !m.hadItsTime(x, now): // T1; also for a machine that was released: it was asked for anew
		m.begin(x, "now", now)
	case !x.released && m.remediable(x, now): // X10; also with false
		m.begin(x, "remediation", now)
	case request == "false": // R4, T6
	case !x.released && m.maintainable(x, now): // M12
		m.begin(x, "maintenance", now)
	case !x.near(now):
	case x.released: // T8
		if asked && x.due(now) && x.consumable() {
			x.consume()
		}
	case request == "when-failed": // T4
		m.begin(x, "when-failed", now)
	case x.hasVM: // T5; a gap: without a VM there is nothing to keep
		return true
	}
	return false
}

func (m *model) lookAtKept(x *modelMachine, now time.Time) (claims bool) {
	k, request := x.kept, x.request()
	asked := request == "now" || request == "when-failed"
	for _, claim := range []*time.Time{&k.auto, &k.next, &k.person} {
		if x.renewed && !claim.IsZero() {
			*claim = m.cut(x, *claim, now)
		}
	}
	follows := m.remediations && x.cycled && !k.remediation.IsZero() && !x.until.IsZero() && !x.until.Equal(k.obeyed)
	if follows { // X10
		k.obeyed, k.remediation = x.until, m.cycledUntil(x, now)
	}
	if !k.remediation.IsZero() && !now.Before(k.remediation) && m.remediations && x.cycled && x.until.Equal(k.obeyed) && x.until.After(now) { // P6
		x.spent = x.until
	}
	switch {
	case m.forbidden, x.forbidden: // R6
		x.release(now)
		x.consume()
		return false
	case !now.Before(k.expiry()) && !k.onlyRemediated(): // T3, T8
		m.exhaust(x, now)
		if x.release(now); !k.onlyWorkedOn() {
			x.consume()
		}
		return false
	case request == "false" && !m.remediates(x, now): // R4
		x.release(now)
		return false
	case request == "false", follows && x.wasEnded: // R4, X10
		if follows && x.wasEnded { // M12, P6
			m.exhaust(x, now)
		}
		*k = keptModel{remediation: k.remediation, obeyed: k.obeyed, failed: k.failed, failsAt: k.failsAt, since: k.since}
	default:
		m.lookAtMaintenance(x, now)
	}
	cycled := !k.remediation.IsZero()
	claims = m.lookAtRemediation(x, now)
	uncured := cycled && k.remediation.IsZero() && k.failed && !(x.well() && x.phase == machinev1alpha1.MachineRunning)
	switch {
	case k.person.IsZero() && m.hadItsTime(x, now): // P13; an operator has prolonged it
	case k.person.IsZero():
		if request == "now" || request == "when-failed" && (k.failed || x.near(now)) { // T1, T4
			k.cause, k.person = request, m.expiryFor(x, now)
			if k.tentative { // H4: nothing has failed
				k.auto, k.tentative = time.Time{}, request == "when-failed"
			}
		}
	case request == "", // T3, T8: withdrawn
		k.cause == "now" && request == "when-failed" && !k.failed: // T3; a gap: asks for nothing yet, so now was withdrawn
		k.cause, k.person = "", time.Time{}
		if k.auto.IsZero() && !k.workedOn() && !k.next.IsZero() { // H4: as if nobody had asked
			k.confirm()
			k.tentative = true
		}
	case asked:
		k.cause = request
	}
	if !now.Before(k.expiry()) && !claims {
		if x.release(now); !k.person.IsZero() {
			x.consume()
		}
		return false
	}
	if x.near(now) && x.cannotBeHeld() {
		x.release(now)
		x.consume()
		return false
	}
	claims = m.followHealth(x, now) || claims && x.kept != nil
	if uncured && x.kept.failing() && x.kept.claims() == 1 && now.Before(x.kept.person) { // T2: the share would have it now
		x.beside = true
	}
	return claims
}

// followHealth is what happens to a preserved machine that fails, is about to fail, or does not any more.
func (m *model) followHealth(x *modelMachine, now time.Time) (claims bool) {
	k := x.kept
	x.beside = !k.failed && !k.tentative && !k.workedOn() && now.Before(k.person) && k.next.IsZero() && x.near(now) // T2
	recovered := x.phase == machinev1alpha1.MachineRunning && x.well()                                              // H1: both must say so
	switch {
	case k.failed && m.rollout: // P3
		x.release(now)
		x.consume()
	case k.failed && recovered: // T7
		k.failed = false
	case k.failed:
	case !k.failsAt.IsZero() && recovered: // H4
		x.beside, k.next = false, time.Time{}
		if k.failsAt = (time.Time{}); k.tentative {
			x.kept = nil
		} else {
			if (!k.auto.IsZero() || k.workedOn()) && k.cause == "when-failed" {
				k.cause, k.person = "", time.Time{}
			}
			if !now.Before(k.expiry()) {
				if x.release(now); !k.person.IsZero() {
					x.consume()
				}
			}
		}
	case !x.near(now), !k.failsAt.IsZero() && !x.due(now), !k.failsAt.IsZero() && x.well(): // H4
	case m.rollout && !x.due(now):
	case m.rollout: // P3
		x.release(now)
		x.released = x.released || !x.well()
		x.consume()
	case !k.failsAt.IsZero(): // T2, T4, T5
		k.failed, k.failsAt, k.tentative = true, time.Time{}, false
		k.confirm()
	case !now.Before(k.person) && (!k.workedOn() || now.Before(k.auto)): // P1: it gave its place back when it recovered, and nobody asks any more
		x.renews = !k.workedOn() // T2
		return true
	default: // T2
		x.startFailing(now)
		k.unplaced = !k.auto.IsZero()
	}
	return false
}

// letGo is T9: once the share was lowered, the oldest of what is above it go.
func (m *model) letGo(share int32, now time.Time) {
	auto := slices.DeleteFunc(slices.Clone(m.machines), func(x *modelMachine) bool {
		return !x.kept.counts(now) || now.Before(x.kept.person)
	})
	slices.SortFunc(auto, func(a, b *modelMachine) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	for _, x := range auto {
		if m.inFailedPreserved(now) > share && (x.kept.unplaced || x.kept.share > share) {
			if !x.kept.workedOn() {
				x.release(now)
			} else { // M12, X10: it needs no place
				x.kept.auto = time.Time{}
			}
			continue
		}
		x.kept.share, x.kept.unplaced = share, false
	}
}

// serve gives a failed machine a place within the share if there is one: T5, T6, P1.
func (m *model) serve(x *modelMachine, leaving int32, now time.Time) {
	var free, soon bool
	if m.share != nil {
		free, soon = m.inFailedPreserved(now)+leaving < *m.share, m.inFailedPreserved(now) < *m.share
	}
	switch {
	case x.takesOver && free: // T5
		x.kept.auto, x.kept.share = m.expiryFor(x, now), *m.share
	case x.takesOver:
		if x.kept.claims() == 0 {
			x.release(now)
		}
	case x.kept == nil && free:
		m.begin(x, "auto", now)
		x.kept.share = *m.share
	case x.kept == nil:
	case free:
		x.startFailing(now)
		x.kept.share, x.kept.unplaced = *m.share, false
		if x.renews {
			m.claimAnew(x, now)
		}
	case m.share == nil: // a gap: nothing is let go while the share is unknown
		x.startFailing(now)
		x.kept.unplaced = true
	case x.kept.workedOn(): // M12, X10: it needs no place
		x.kept.auto = time.Time{}
		x.startFailing(now)
	case !soon && x.due(now):
		x.release(now)
	}
}

// startFailing is what happens when the deadline of a preserved machine comes near (T2, H4).
func (x *modelMachine) startFailing(now time.Time) {
	x.kept.since = x.timerStart()
	if x.due(now) {
		x.kept.failed = true
		return
	}
	x.kept.failsAt = x.deadline()
}

func (m *model) inFailedPreserved(now time.Time) (n int32) {
	for _, x := range m.machines {
		if x.kept.counts(now) {
			n++
		}
	}
	return n
}

func (m *model) expiryFor(x *modelMachine, now time.Time) time.Time {
	timeout := m.timeout
	if m.validTimeout(x) { // R5
		timeout, _ = time.ParseDuration(x.timeout())
	}
	return m.cut(x, now.Add(timeout), now)
}

// validTimeout says that the request carries a duration that counts (R5).
func (m *model) validTimeout(x *modelMachine) bool {
	own, err := time.ParseDuration(x.timeout())
	return err == nil && own >= 10*time.Second && own <= m.longest
}

// cut shortens what would last longer than the machine may be kept (P13).
func (m *model) cut(x *modelMachine, expiry, now time.Time) time.Time {
	first := x.first
	if first.IsZero() {
		first = now.Truncate(time.Second)
	}
	if last := first.Add(m.longest); expiry.After(last) {
		expiry = last
	}
	return expiry.Truncate(time.Second)
}

// hadItsTime says that the machine has been kept for as long as operators allow (P13).
func (m *model) hadItsTime(x *modelMachine, now time.Time) bool {
	return !x.first.IsZero() && !now.Before(x.first.Add(m.longest))
}

func (m *model) begin(x *modelMachine, cause string, now time.Time) {
	x.released = false
	x.kept = &keptModel{}
	switch cause {
	case "auto":
		x.kept.auto = m.expiryFor(x, now)
	case "maintenance":
		x.counted = m.countedSince(x, now)
		x.kept.maintenance = m.maintainedUntil(x, now)
	case "remediation":
		x.kept.remediation, x.kept.obeyed = m.cycledUntil(x, now), x.until
	default:
		x.kept.cause, x.kept.person = cause, m.expiryFor(x, now)
		if !x.native.IsZero() { // P6
			x.kept.person = m.cut(x, x.native, now)
		}
	}
	if x.near(now) {
		x.beside = cause == "now" // T2
		x.startFailing(now)
		x.kept.tentative = (cause == "auto" || cause == "when-failed") && !x.kept.failed
	}
}

// lookAtMaintenance is what a maintenance means for a machine that is kept (M12, M13).
func (m *model) lookAtMaintenance(x *modelMachine, now time.Time) {
	k := x.kept
	goes := m.maintenances && x.maintained && x.hasNode && !x.nodeUnknown
	over := !goes && !(x.nodeUnknown && m.maintenances) // P9
	switch {
	case k.maintenance.IsZero():
		if m.maintainable(x, now) {
			if k.tentative { // H4: nothing has failed
				k.auto, k.tentative = time.Time{}, false
			}
			x.counted, k.next = m.countedSince(x, now), time.Time{}
			k.maintenance = m.maintainedUntil(x, now)
		}
	case !now.Before(k.maintenance): // M12
		m.exhaust(x, now)
		k.maintenance, k.over = time.Time{}, time.Time{}
	case goes && !k.over.IsZero() && m.maintainable(x, now): // another one, before the machine was well again
		x.counted = m.countedSince(x, now)
		k.maintenance, k.over = m.maintainedUntil(x, now), time.Time{}
	case over && x.well() && (!k.failing() || x.phase == machinev1alpha1.MachineRunning): // M13
		k.maintenance, k.over = time.Time{}, time.Time{}
	case over && k.over.IsZero(): // M13
		k.over = now.Truncate(time.Second)
		if end := k.over.Add(x.health); end.Before(k.maintenance) {
			k.maintenance = end
		}
	}
	if !k.maintenance.IsZero() && k.remediation.IsZero() && !now.Before(k.auto) {
		k.auto = time.Time{}
	}
}

// lookAtRemediation is what a power cycle means for a machine that is kept (X10). It returns whether the machine claims a
// place within the share as nothing else keeps it: a gap, half a minute before the end, so that MCM does not terminate it.
func (m *model) lookAtRemediation(x *modelMachine, now time.Time) (claims bool) {
	k := x.kept
	if k.remediation.IsZero() {
		if m.remediable(x, now) {
			if k.tentative { // H4: nothing has failed
				k.auto, k.tentative = time.Time{}, false
			}
			k.remediation, k.obeyed, k.next = m.cycledUntil(x, now), x.until, time.Time{}
		}
		return false
	}
	ends := !now.Before(k.remediation) || !m.remediates(x, now)
	x.takesOver = k.onlyRemediated() && x.couldTakeOver(now) && !m.hadItsTime(x, now) && !m.rollout &&
		(ends || !now.Before(k.remediation.Add(-min(30*time.Second, x.health/10))))
	if ends {
		k.remediation, k.obeyed = time.Time{}, time.Time{}
	}
	return x.takesOver
}

// couldTakeOver says that the machine has failed, is not being terminated (H3), and nobody says anything about it.
func (x *modelMachine) couldTakeOver(now time.Time) bool {
	k, request := x.kept, x.request()
	failed := k.failed && !(x.well() && x.phase == machinev1alpha1.MachineRunning) || !k.failsAt.IsZero() && x.due(now) && !x.well()
	late := x.phase == machinev1alpha1.MachineFailed && !x.spared
	return failed && !late && x.hasVM && (request == "" || request == "invalid")
}

// remediable says that a power cycle is a reason to keep the machine.
func (m *model) remediable(x *modelMachine, now time.Time) bool {
	return m.remediations && x.cycled && now.Before(x.until) && !x.until.Equal(x.spent) && !x.denied
}

// remediates says that the machine is kept for a power cycle, or is to be. A gap: one that is healthy, or whose node nobody
// knows, is kept until MCM has seen that it is.
func (m *model) remediates(x *modelMachine, now time.Time) bool {
	k := x.kept
	if k.remediation.IsZero() {
		return m.remediable(x, now)
	}
	comes := k.failing() && (x.nodeUnknown || x.well()) && !(x.well() && x.phase == machinev1alpha1.MachineRunning)
	return now.Before(k.remediation) && !x.denied && (m.remediations && x.cycled || comes)
}

// maintainable says that somebody works on the node, and that the time for that is not used up.
func (m *model) maintainable(x *modelMachine, now time.Time) bool {
	return m.maintenances && x.maintained && x.hasNode && !x.nodeUnknown && now.Before(m.maintainedUntil(x, now))
}

// cycledUntil is until when the machine is kept for a power cycle. A gap: at most for as long as for anything else.
func (m *model) cycledUntil(x *modelMachine, now time.Time) time.Time {
	if last := now.Add(m.longest).Truncate(time.Second); x.until.After(last) {
		return last
	}
	return x.until
}

// countedSince is from when on the time for maintenances is counted.
func (m *model) countedSince(x *modelMachine, now time.Time) time.Time {
	since, past := x.counted, !x.began.IsZero() && !x.began.After(now)
	if x.nodeUnknown || !x.hasNode || !x.maintained || !m.maintenances {
		past = false
	}
	if since.IsZero() {
		since = now
		if past {
			since = x.began
		}
	}
	return since.Truncate(time.Second)
}

func (m *model) maintainedUntil(x *modelMachine, now time.Time) time.Time {
	return m.countedSince(x, now).Add(min(m.hold, m.longest))
}

// exhaust makes the time for maintenances be used up: what goes on is no reason to keep the machine any more (M12, P6).
func (m *model) exhaust(x *modelMachine, now time.Time) {
	if !x.kept.maintenance.IsZero() && x.kept.over.IsZero() && now.Before(m.maintainedUntil(x, now)) {
		x.counted = now.Add(-min(m.hold, m.longest)).Truncate(time.Second)
	}
}

func (x *modelMachine) release(now time.Time) {
	x.released = (x.kept.failed || !x.kept.failsAt.IsZero() && x.due(now) && !x.well()) && !(x.phase == machinev1alpha1.MachineRunning && x.well() && !x.ghost())
	x.kept = nil
}

// consumable says that a request which is refused can be deleted: not while machine-controller-manager keeps the machine for
// it, and has not made up its mind whether that has failed.
func (x *modelMachine) consumable() bool {
	return !(x.obeyed && x.phase == machinev1alpha1.MachineUnknown)
}

// consume deletes the requests, which have had their time (T3, T8). False stays (R4), and so does what comes from the pool's
// annotations until the machine is on its way out.
func (x *modelMachine) consume() {
	if x.templated && x.phase != machinev1alpha1.MachineFailed {
		return
	}
	x.consumed = true
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
	case !x.nodeUnknown && x.hasNode && x.templated:
		value = x.template
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
	if !x.nodeUnknown && x.hasNode && (x.onNode.there || x.templated) {
		return x.onNode.timeout
	}
	return x.onMachine.timeout
}

// well is what the rules call healthy (H1).
func (x *modelMachine) well() bool { return x.hasNode && !x.nodeUnknown && x.healthy }

// cannotBeHeld says that MCM would take the machine for joined in each phase in which it can be held (H2).
func (x *modelMachine) cannotBeHeld() bool {
	return x.waits && x.well() && (x.phase == machinev1alpha1.MachinePending || x.phase == machinev1alpha1.MachineCrashLoopBackOff)
}

// ghost says that machine-controller-manager takes the machine for running, and has never seen its node (H2).
func (x *modelMachine) ghost() bool { return x.phase == machinev1alpha1.MachineRunning && !x.joined }

// due says that the deadline of the machine has passed.
func (x *modelMachine) due(now time.Time) bool {
	at := x.failsAt(now)
	return !at.IsZero() && !now.Before(at)
}

// near says that the deadline is so near that the hold must be made (H4).
func (x *modelMachine) near(now time.Time) bool {
	if x.kept != nil && !x.kept.failsAt.IsZero() {
		return true
	}
	at := x.nearAt(now)
	return !at.IsZero() && !now.Before(at)
}

func (x *modelMachine) nearAt(now time.Time) time.Time {
	at := x.failsAt(now)
	switch {
	case at.IsZero(), x.phase == machinev1alpha1.MachineFailed:
	case x.phase == machinev1alpha1.MachineUnknown:
		return at.Add(-min(30*time.Second, x.health/10))
	case x.phase == machinev1alpha1.MachinePending, x.phase == machinev1alpha1.MachineCrashLoopBackOff:
		return at.Add(-min(30*time.Second, x.creation/10))
	}
	return at
}

// failsAt returns when the machine has failed. Zero for never.
func (x *modelMachine) failsAt(now time.Time) time.Time {
	if x.kept != nil && !x.kept.failsAt.IsZero() {
		return x.kept.failsAt
	}
	return x.claimTime(now)
}

// claimTime is in which order machines are given places. One that machine-controller-manager has marked fails now.
func (x *modelMachine) claimTime(now time.Time) time.Time {
	switch {
	case x.takesOver && x.kept.since.Equal(x.created):
		return x.created.Add(x.creation)
	case x.takesOver:
		return x.kept.since.Add(x.health)
	case x.phase == machinev1alpha1.MachineFailed:
		return now
	}
	return x.deadline()
}

// deadline returns after which time machine-controller-manager takes the machine for failed. Zero for never.
func (x *modelMachine) deadline() time.Time {
	switch x.phase {
	case machinev1alpha1.MachineFailed:
		return x.since
	case machinev1alpha1.MachineUnknown:
		if x.unlimited {
			return time.Time{}
		}
		return x.since.Add(x.health)
	case machinev1alpha1.MachineCrashLoopBackOff:
		if !x.hasVM {
			return time.Time{}
		}
		return x.created.Add(x.creation)
	case machinev1alpha1.MachinePending:
		return x.created.Add(x.creation)
	}
	return time.Time{}
}

func (x *modelMachine) timerStart() time.Time {
	if x.phase == machinev1alpha1.MachinePending || x.phase == machinev1alpha1.MachineCrashLoopBackOff {
		return x.created
	}
	return x.since
}

// next returns when look would do something that it does not do now, zero for never.
func (m *model) next(now time.Time) (next time.Time) {
	for _, x := range m.machines {
		times := []time.Time{x.nearAt(now), x.failsAt(now), x.comesBack(x.ended), x.comesBack(x.worked)}
		if x.kept != nil {
			times = append(times, x.kept.auto, x.kept.next, x.kept.person, x.kept.maintenance, x.kept.remediation)
			if x.kept.onlyRemediated() && x.kept.failed {
				times = append(times, x.kept.remediation.Add(-min(30*time.Second, x.health/10)))
			}
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
		s += fmt.Sprintf(", kept for %s until %s", x.kept.causes(), clock(x.kept.expiry()))
		switch {
		case x.kept.failed:
			s += ", failed"
		case !x.kept.failsAt.IsZero():
			s += ", fails at " + clock(x.kept.failsAt)
		}
	}
	if x.maintained {
		s += ", maintained since " + clock(x.began)
	}
	if !x.counted.IsZero() {
		s += ", counted since " + clock(x.counted)
	}
	if x.cycled {
		s += ", power-cycled until " + clock(x.until)
	}
	if !x.spent.IsZero() {
		s += ", spent " + clock(x.spent)
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
