// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	healthTimeout   = 10 * time.Minute
	creationTimeout = 20 * time.Minute
	// nativeTimeout is for how long machine-controller-manager >= 0.62 preserves when it is left to itself.
	nativeTimeout = 96 * time.Hour
	// safetyTimeout is how long the shoot's API server may be away before machine-controller-manager freezes, and
	// safetyDelay how long it then takes for what it has reset to be looked at again.
	safetyTimeout, safetyDelay = 30 * time.Second, 30 * time.Second
	// nativePatience is for how long a request for now is left to machine-controller-manager >= 0.62.
	nativePatience = 10 * time.Second
)

// world is a MachineDeployment with its objects, the controller under test, the model of what it should do, and a
// machine-controller-manager (MCM). All of them only see the objects; the model is told what happens to them.
type world struct {
	t   *rapid.T
	now time.Time

	// newMCM says that MCM is >= 0.62.
	newMCM bool
	// asleep says that MCM does nothing at present, for example because it replaces other machines first.
	asleep bool
	// mcmFirst says that MCM sees the next event before the controller does.
	mcmFirst bool

	// shootAway says that the shoot's API server is away, nodesKnown that the controller has read the nodes before.
	shootAway, nodesKnown bool
	// awaySince is when it went, blindUntil when MCM doubts again what it has reset.
	awaySince, blindUntil time.Time
	// nativeOurs says that MCM >= 0.62 preserves for as long as the controller would.
	nativeOurs bool

	group    Group
	machines []*machine
	model    *model
	created  int
	shown    map[string]string

	// down says that the controller does not run.
	down bool
	// writesLeft is how many writes the controller does before it crashes, negative for any number. Then it is down or,
	// if restartAtOnce, starts anew.
	writesLeft    int
	restartAtOnce bool
	crashed       bool
	// dirty says that something happened that the controller gets to know; next is when it wants to look anyway.
	dirty bool
	next  time.Time
}

// machine is a machine in the world.
type machine struct {
	*modelMachine
	obj *machinev1alpha1.Machine
	// node is nil if there is none.
	node *corev1.Node
	// begun is when a person's now was taken up.
	begun time.Time
	// scaleDown is what a user wrote for the cluster-autoscaler, priority what the Machine had before.
	scaleDown, priority string
	// byRollout says that MCM protects the node as the MachineDeployment is being updated.
	byRollout bool
	// traces says that the machine was preserved, or MCM did something of its own, and it may have to be cleaned.
	traces bool
	// stopped says that MCM ended an auto-preservation at an expiry that is no more to be seen on the Machine.
	stopped bool
	// held says that the controller has completed the hold, so that MCM must respect it.
	held bool
	// fromTemplate says that MCM has put the request on the node that is in the pool's annotations.
	fromTemplate bool
}

// settle lets the controller and MCM work until neither has anything to do at this time.
func (w *world) settle() {
	for range 12 {
		changed := w.mcmFirst && w.actMCM()
		changed = w.look() || changed
		changed = !w.mcmFirst && w.actMCM() || changed
		if !changed {
			w.checkQuiet()
			w.t.Logf("%s", w)
			return
		}
	}
	w.fail("the controller and MCM do not come to rest")
}

// pass lets time pass, and everybody act exactly when they are due.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for again := 0; again < 200; again++ {
		next := w.model.next(w.now)
		if !w.down {
			next = earlier(next, w.next, w.now)
		}
		if !w.asleep && !w.frozen() {
			next = earlier(next, w.blindUntil, w.now)
			for _, m := range w.machines {
				next = earlier(next, w.nextMCM(m), w.now)
			}
		}
		if next.IsZero() || next.After(end) {
			w.now = end
			w.settle()
			return
		}
		if next.After(w.now.Add(time.Second)) { // a request of the pool's annotations begins anew with each expiry
			again = 0
		}
		w.now = next
		w.settle()
	}
	w.fail("too much to do until %s", clock(end))
}

// The controller.

// look does what the reconciler does when it is called, and once more: what is done must not be done again. It returns
// whether anything was written.
func (w *world) look() (wrote bool) {
	if w.down {
		return false
	}
	called := w.dirty || !w.next.IsZero() && !w.now.Before(w.next)
	w.dirty = false
	if wrote, _ = w.round(called); wrote && !w.down && !w.dirty {
		again, changed := w.round(true)
		if again && !changed {
			w.fail("a second round writes again")
		}
		w.dirty = w.dirty || again
	}
	return wrote
}

// round lets the model and, if it is called, the controller look. It returns whether anything was written, and whether
// the model found something to do.
func (w *world) round(called bool) (wrote, changed bool) {
	before := make([]modelMachine, len(w.machines))
	for i, m := range w.machines {
		m.nodeUnknown = m.labelled() && !w.nodesKnown
		m.template, m.templated = m.obj.Spec.NodeTemplateSpec.Annotations[preserve]
		m.templated = m.templated && (m.nodeUnknown && m.synced != "" || !m.nodeUnknown && m.node != nil)
		expiry, request := m.obj.Status.CurrentStatus.PreserveExpiryTime, m.request()
		m.spared = w.newMCM && (expiry != nil && expiry.After(w.now) ||
			expiry == nil && (m.node != nil || m.nodeUnknown || !m.labelled()) && (request == "now" || request == "when-failed"))
		m.obeyed = w.newMCM && (request == "now" || request == "when-failed" && m.phase == machinev1alpha1.MachineFailed)
		last := m.obj.Status.CurrentStatus.LastUpdateTime.Time
		m.renewed = expiry != nil && m.expiryInStatus() && (expiry.Sub(last)-m.nativeTimeout()).Abs() <= time.Second
		m.denied = w.newMCM && m.templated && request == "false"
		m.wasEnded = m.stopped && expiry == nil && m.expiryInStatus()
		m.native = time.Time{}
		if expiry != nil && expiry.After(w.now) && !m.expiryInStatus() && !w.model.validTimeout(m.modelMachine) && w.now.Sub(last) >= nativePatience {
			m.native = expiry.Time
		}
		before[i] = m.copy()
	}
	w.model.look(w.now)
	if called {
		wrote = w.reconcile(before)
	}

	for i, m := range w.machines {
		changed = changed || !m.keptLike(&before[i]) || m.released != before[i].released || m.onNode != before[i].onNode || m.onMachine != before[i].onMachine
		w.adopt(m, &before[i])
		if !w.crashed {
			w.check(m)
		}
	}
	if w.crashed {
		w.crash()
		return true, true
	}
	w.checkShare()
	return wrote, changed
}

// adopt takes it back if the model did to the machine what the controller could not do to the end: because it crashed,
// or because the shoot is away and an end is written only when the Node is clean. Half of it must not be visible.
func (w *world) adopt(m *machine, before *modelMachine) {
	disturbed := w.crashed || w.shootAway && before.kept != nil && m.kept == nil
	changed := !m.keptLike(before)
	if m.kept != nil && !m.kept.person.IsZero() && (before.kept == nil || before.kept.person.IsZero()) {
		m.begun = w.now
	}
	if w.young(m) && m.obj.Status.CurrentStatus.PreserveExpiryTime != nil && m.expiryInStatus() {
		m.kept.edit(m.expiry()) // MCM's own, of the same length, is as good
	}
	dropped := m.phase == "" || m.phase == machinev1alpha1.MachineCrashLoopBackOff && !m.kept.failing() // MCM drops what is in the status
	m.held = m.kept != nil && !dropped && (m.held && !changed || !w.crashed)
	if m.kept == nil && (w.crashed || m.nodeUnknown) { // the mark may not be written yet
		m.released = has(Noted(m.obj), released)
	}
	if w.crashed || m.kept == nil && (w.shootAway || m.nodeUnknown) { // what is counted may not be written yet
		m.first, m.ended = readSpan(Noted(m.obj)[preservedSince])
		m.counted, m.worked = readSpan(Noted(m.obj)[maintainedSince])
		before.first, before.ended, before.counted, before.worked = m.first, m.ended, m.counted, m.worked
	}
	if disturbed && changed && !w.shows(m) {
		*m.modelMachine = *before
		m.held = false
		if m.node != nil && !has(m.node.Annotations, preserve) && !has(m.node.Annotations, timeout) {
			m.onNode = ask{} // deleted already
		}
		if w.noteCrash(m); w.shows(m) {
			return
		}
		w.fail("%s is preserved neither as before nor as decided", m.name)
	}
	if before.kept == nil && m.kept == nil && (w.crashed || w.shootAway || m.nodeUnknown) { // a request may be refused later
		if has(m.obj.Annotations, preserve) || has(m.obj.Annotations, timeout) {
			m.onMachine = before.onMachine
		}
		if m.node != nil && (has(m.node.Annotations, preserve) || has(m.node.Annotations, timeout)) {
			m.onNode = before.onNode
		}
	}
	switch aside := strings.HasPrefix(Noted(m.obj)[prefix+"request"], "Node:"); {
	case m.obj.Annotations[lastApplied] != "now":
	case aside && m.held && w.nodesKnown:
		m.synced = m.onNode.value // P9: what MCM has synced is the hold; what was asked for is on record beside it
	case skipStaleSync && !aside:
		m.synced = "now"
	}
	if m.kept == nil && !m.deleted && !m.nodeUnknown {
		m.letGo(before.kept, w.now)
	}
	if w.newMCM && !has(m.obj.Annotations, preserve) && m.onMachine.value != "false" &&
		(before.withdrawsOnNode() || m.withdrawsOnNode()) {
		m.onMachine.there, m.onMachine.value = false, "" // R2: MCM would obey what the node's empty request beats
	}
	if m.held && m.kept.failing() && !w.crashed {
		waits := (!m.joined || m.kept.since.Equal(m.created)) && m.phase == machinev1alpha1.MachineUnknown
		switch trying := m.phase == machinev1alpha1.MachineCrashLoopBackOff || m.ghost() || waits; {
		case w.newMCM && trying:
			m.phase = machinev1alpha1.MachinePending
		case !w.newMCM && (trying || m.phase != machinev1alpha1.MachineRunning):
			m.phase = machinev1alpha1.MachineUnknown // what holds is the timer of that phase
		}
		if m.phase == machinev1alpha1.MachineUnknown {
			m.since = m.kept.since
		}
	}
	w.noteCrash(m)
	m.traces = m.traces || m.kept != nil || m.released
}

// noteCrash tells the model what of the phase and the timer was written before a crash.
func (w *world) noteCrash(m *machine) {
	if !w.crashed {
		return
	}
	m.phase = m.phaseOf()
	switch {
	case m.phase != machinev1alpha1.MachineUnknown:
	case m.kept.failing():
		m.since = m.kept.since
	default:
		m.since = m.obj.Status.CurrentStatus.LastUpdateTime.Time // the respite of what was overdue (H3)
	}
}

// letGo is what the release does to the phase and to the timer of a machine that was held (T8, H2).
func (m *modelMachine) letGo(kept *keptModel, now time.Time) {
	held := kept.failing()
	switch misplaced := m.ghost() || m.phase == machinev1alpha1.MachineUnknown; {
	case misplaced && !m.joined && (held || !m.hasNode), held && kept.since.Equal(m.created) && m.phase == machinev1alpha1.MachineUnknown:
		m.phase, m.since = machinev1alpha1.MachinePending, m.created
	case held && m.phase == machinev1alpha1.MachineUnknown:
		m.since = kept.since
		if latest := now.Add(-m.health - time.Second).Truncate(time.Second); kept.failed && m.since.After(latest) {
			m.since = latest
		}
	}
}

// young says that a request for now is so new that MCM >= 0.62 is left to do by itself what follows from it.
func (w *world) young(m *machine) bool {
	if !w.newMCM || !w.nativeOurs || m.kept == nil || m.kept.cause != "now" || m.kept.claims() > 1 || m.kept.failing() {
		return false
	}
	anew := m.kept.person.Add(-w.group.Timeout) // MCM may have begun it anew
	return w.now.Before(m.begun.Add(nativePatience+time.Second)) || !w.now.Before(anew) && w.now.Before(anew.Add(nativePatience+time.Second))
}

// frozen says that MCM does nothing as the shoot's API server is away.
func (w *world) frozen() bool { return w.shootAway && w.now.Sub(w.awaySince) > safetyTimeout }

// shows says whether the Machine shows the preservation that the model has. The expiry in the status counts (P6).
func (w *world) shows(m *machine) bool {
	a := Noted(m.obj)
	if m.kept == nil {
		return !has(a, prefix+"cause")
	}
	stopped := m.stopped && m.obj.Status.CurrentStatus.PreserveExpiryTime == nil
	return a[prefix+"cause"] == m.kept.causes() && (m.expiry().Equal(m.kept.expiry()) || stopped) &&
		(a[prefix+"phase"] == "Failed:Preserved") == m.kept.failed &&
		(m.kept.tentative || a[preservedSince] == span(m.first, m.ended)) &&
		a[maintainedSince] == span(m.counted, m.worked) && a[prefix+"maintenance-over"] == stampOrNone(m.kept.over) &&
		a[remediatedUntil] == stampOrNone(slices.MaxFunc([]time.Time{m.kept.obeyed, m.spent}, time.Time.Compare)) &&
		a[prefix+"fails-at"] == stampOrNone(m.kept.failsAt) && has(a, prefix+"phase") != m.kept.tentative &&
		len(ReadRecord(m.obj).Claims) == m.kept.claims() && // there may be three
		(m.kept.auto.IsZero() || m.kept.unplaced && !has(a, share) || a[share] == strconv.Itoa(int(m.kept.share)))
}

// expiry is the one that counts: that in the status once the controller has written it there.
func (m *machine) expiry() time.Time {
	inStatus := m.obj.Status.CurrentStatus.PreserveExpiryTime
	if inStatus != nil && m.expiryInStatus() {
		return inStatus.Time
	}
	expiry, _ := time.Parse(time.RFC3339, m.obj.Annotations[prefix+"expiry-time"])
	return expiry
}

// expiryInStatus says that the controller has written the expiry into the status of this very object.
func (m *machine) expiryInStatus() bool {
	return Noted(m.obj)[prefix+"expiry-in-status"] == string(m.obj.UID)
}

// reconcile decides and carries the decisions out like the reconciler.
func (w *world) reconcile(before []modelMachine) (wrote bool) {
	decisions := Decide(w.withMembers(false), w.now)
	w.checkOrder(decisions)

	w.next = time.Time{}
	runs := make([]*run, 0, len(decisions))
	for i := range decisions {
		d, m := &decisions[i], w.machines[i]
		w.next = earlier(w.next, d.Next, w.now)
		untouched := before[i].kept == nil && m.kept == nil && !m.traces && !m.withdrawsOnNode() && m.onNode == before[i].onNode && m.onMachine == before[i].onMachine
		r := &run{world: w, machine: m, target: d.Target != nil, untouched: untouched}
		r.steps = Steps(w.holder(), *d, w.group.Timeouts, w.now)
		if len(r.steps) == 0 {
			continue
		}
		if !d.NodeUnknown || r.target {
			runs = append(runs, r)
		}
	}
	// The holds of all machines come first.
	for _, r := range runs {
		holds := len(r.steps)
		if i := slices.IndexFunc(r.steps, func(step intent.Write) bool { return !step.Hold }); i >= 0 {
			holds = i
		}
		for ; holds > 0; holds-- {
			r.do(r.steps[:1])
			if r.steps = r.steps[1:]; holds > 1 {
				r.checkRespite()
			}
		}
	}
	for _, r := range runs {
		r.do(r.steps)
		wrote = wrote || r.wrote
	}
	return wrote
}

func (w *world) withMembers(reversed bool) Group {
	g := w.group
	g.Holder = w.holder()
	g.Members = make([]facts.Member, 0, len(w.machines))
	for _, m := range w.machines {
		member := facts.Member{Machine: m.obj}
		if m.labelled() {
			if member.NodeUnknown = !w.nodesKnown; w.nodesKnown {
				member.Node = m.node
			}
		}
		g.Members = append(g.Members, member)
	}
	if reversed {
		slices.Reverse(g.Members)
	}
	return g
}

func (w *world) holder() Holder {
	if w.newMCM {
		return PreserveExpiry{}
	}
	return HealthTimer{}
}

// run carries out the steps for one machine.
type run struct {
	*world
	machine           *machine
	steps             []intent.Write
	target, untouched bool
	wrote, nodeFailed bool
}

func (r *run) do(steps []intent.Write) {
	for _, step := range steps {
		_, onMachine := step.Before.(*machinev1alpha1.Machine)
		switch {
		case r.crashed, step.AfterAll && r.nodeFailed:
			return
		case onMachine:
			r.onMachine(step)
		case r.machine.node != nil && !r.nodeFailed:
			r.onNode(step)
		}
	}
}

// checkRespite looks at a machine whose hold is half done as MCM does, which every write calls.
func (r *run) checkRespite() {
	m := r.machine
	if m.unlimited || m.phaseOf() == machinev1alpha1.MachineFailed || r.crashed || r.newMCM && r.spares(m) {
		return
	}
	if next := r.nextMCM(m); !next.IsZero() && !next.After(r.now.Add(time.Second)) {
		r.fail("H3: MCM terminates %s before its hold is complete", m.name)
	}
}

func (r *run) onMachine(step intent.Write) {
	old := r.machine.obj
	edited := *old
	edited.Annotations = maps.Clone(old.Annotations)
	step.Edit(&edited)
	if len(edited.Annotations) == 0 {
		edited.Annotations = nil
	}

	sameMeta, sameStatus := maps.Equal(old.Annotations, edited.Annotations), sameStatus(old, &edited)
	switch {
	case sameMeta && sameStatus:
		return
	case !sameMeta && step.Status, !sameStatus && !step.Status:
		r.fail("%s: a step edits metadata and status at once", r.machine.name)
	}
	if !r.mayWrite() {
		return
	}
	r.t.Logf("    controller: machine %s %s", r.machine.name, difference{old.Annotations, edited.Annotations})
	if r.untouched && !(sameStatus && sameBut(lastApplied, old.Annotations, edited.Annotations)) {
		r.fail("%s is not preserved and was written to", r.machine.name)
	}
	r.machine.obj, r.wrote = &edited, true
	r.machine.traces = r.machine.traces || !sameStatus
	r.machine.noteSync(old.Annotations)
}

func (r *run) onNode(step intent.Write) {
	old := r.machine.node
	edited := *old
	edited.Annotations = maps.Clone(old.Annotations)
	edited.Spec.Taints = slices.Clone(old.Spec.Taints)
	edited.Status.Conditions = slices.Clone(old.Status.Conditions)
	step.Edit(&edited)
	if len(edited.Annotations) == 0 {
		edited.Annotations = nil
	}

	sameMeta := maps.Equal(old.Annotations, edited.Annotations) && slices.Equal(old.Spec.Taints, edited.Spec.Taints)
	sameStatus := slices.Equal(old.Status.Conditions, edited.Status.Conditions)
	switch {
	case sameMeta && sameStatus:
		return
	case !sameMeta && step.Status, !sameStatus && !step.Status:
		r.fail("%s: a step edits the node's metadata and status at once", r.machine.name)
	case r.shootAway:
		r.nodeFailed = true
		return
	case !r.mayWrite():
		return
	}
	r.t.Logf("    controller: node %s %s", r.machine.name, difference{old.Annotations, edited.Annotations})
	if r.untouched {
		r.fail("%s is not preserved and its node was written to", r.machine.name)
	}
	if k := r.machine.kept; k != nil && k.tentative && !sameBut(preserve, old.Annotations, edited.Annotations) {
		r.fail("H4: the node of %s is written to before the deadline", r.machine.name)
	}
	r.machine.node, r.wrote = &edited, true
	if has(edited.Annotations, byMCM) {
		r.machine.scaleDown = "" // what a user had written is overwritten (P5)
	}
}

func (w *world) mayWrite() bool {
	w.crashed = w.writesLeft == 0
	w.writesLeft--
	return !w.crashed
}

// crash ends the process of the controller. Nothing is left of it but the objects.
func (w *world) crash() {
	w.t.Logf("    controller crashed")
	w.crashed, w.writesLeft, w.down = false, -1, true
	if w.restartAtOnce {
		w.start()
	}
}

func (w *world) start() {
	w.down, w.dirty, w.nodesKnown = false, true, !w.shootAway
}

// MCM.

// actMCM returns whether MCM did anything.
func (w *world) actMCM() (acted bool) {
	if w.asleep {
		return false
	}
	for _, m := range slices.Clone(w.machines) {
		acted = w.actOn(m) || acted
	}
	w.dirty = w.dirty || acted
	return acted
}

func (w *world) actOn(m *machine) (acted bool) {
	switch {
	case m.deleted && w.now.After(m.obj.DeletionTimestamp.Time):
		w.remove(m)
		return true
	case m.deleted:
		return false
	case w.group.Replicas == 0: // P4
		w.delete(m, "MCM: scales down")
		return true
	case w.frozen():
		return false
	}

	unseen := m.phaseOf() == ""
	acted = !unseen && w.watchHealth(m)
	acted = !unseen && w.syncTemplate(m) || acted
	if w.newMCM && m.phaseOf() != machinev1alpha1.MachineCrashLoopBackOff { // else it undoes that at once
		acted = w.preserveNatively(m) || acted
	}
	if unseen || m.phaseOf() == machinev1alpha1.MachineCrashLoopBackOff {
		acted = w.tryToCreate(m) || acted
	}
	if m.phaseOf() == machinev1alpha1.MachineFailed && !(w.newMCM && w.spares(m)) {
		if !w.mayTerminate(m) {
			w.fail("MCM terminates %s, which is preserved", m.name)
		}
		w.delete(m, "MCM: terminates")
		return true
	}
	return acted
}

// tryToCreate is what both generations do with a machine that has no VM, or one that cannot be initialised. The status
// that they write has no expiry.
func (w *world) tryToCreate(m *machine) bool {
	phase := machinev1alpha1.MachinePending
	if m.broken {
		phase = machinev1alpha1.MachineCrashLoopBackOff
		if w.now.Sub(m.obj.CreationTimestamp.Time) > m.creation {
			phase = machinev1alpha1.MachineFailed
		}
	}
	if phase == m.phaseOf() && m.obj.Status.CurrentStatus.PreserveExpiryTime == nil {
		return false
	}
	m.obj.Status.CurrentStatus.PreserveExpiryTime = nil
	w.setPhase(m, phase)
	return true
}

// syncTemplate is how both generations keep the pool's annotations on the node, whoever changes them there.
func (w *world) syncTemplate(m *machine) bool {
	if m.node == nil || w.shootAway {
		return false
	}
	value, wanted := m.obj.Spec.NodeTemplateSpec.Annotations[preserve]
	switch {
	case wanted && (!has(m.node.Annotations, preserve) || m.node.Annotations[preserve] != value):
		m.node.Annotations = with(m.node.Annotations, preserve, value)
	case !wanted && m.fromTemplate:
		m.node.Annotations = without(m.node.Annotations, preserve)
	case wanted: // what is there may be the hold
		m.fromTemplate, m.onNode.there, m.onNode.value = true, true, value
		return false
	default:
		return false
	}
	w.t.Logf("    MCM: the pool's annotations are put on node %s", m.name)
	m.fromTemplate, m.onNode.there, m.onNode.value = wanted, wanted, value
	return true
}

// watchHealth is what both generations do about the health of a node, and about one that never comes. What is known of
// the node is copied to the machine, so that one which goes is missed, but one that never came is not.
func (w *world) watchHealth(m *machine) (acted bool) {
	var (
		phase   = m.phaseOf()
		healthy = m.node != nil && m.healthy
	)
	if m.node != nil && !m.joined {
		m.joined = true
		m.obj.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		w.dirty = true
	}
	switch {
	case phase == machinev1alpha1.MachineCrashLoopBackOff:
		return false
	case healthy && phase != machinev1alpha1.MachineRunning && !(m.waits && phase == machinev1alpha1.MachinePending):
		w.setPhase(m, machinev1alpha1.MachineRunning)
	case !healthy && phase == machinev1alpha1.MachineRunning && m.joined && !w.now.Before(w.blindUntil):
		w.setPhase(m, machinev1alpha1.MachineUnknown)
	case phase == machinev1alpha1.MachineUnknown && !m.unlimited && w.now.Sub(m.obj.Status.CurrentStatus.LastUpdateTime.Time) > m.health,
		phase == machinev1alpha1.MachinePending && w.now.Sub(m.obj.CreationTimestamp.Time) > m.creation:
		w.setPhase(m, machinev1alpha1.MachineFailed)
	default:
		return false
	}
	return true
}

// nextMCM returns when MCM does something to the machine even if nothing happens until then.
func (w *world) nextMCM(m *machine) time.Time {
	status := m.obj.Status.CurrentStatus
	switch {
	case m.deleted:
		return m.obj.DeletionTimestamp.Add(time.Second)
	case status.PreserveExpiryTime != nil && status.PreserveExpiryTime.After(w.now):
		return status.PreserveExpiryTime.Time
	case status.Phase == machinev1alpha1.MachineUnknown && !m.unlimited:
		return status.LastUpdateTime.Add(m.health + time.Second)
	case status.Phase == machinev1alpha1.MachinePending, status.Phase == machinev1alpha1.MachineCrashLoopBackOff && m.broken:
		return m.obj.CreationTimestamp.Add(m.creation + time.Second)
	}
	return time.Time{}
}

// mayTerminate says that it is right, or not the controller's fault, that MCM terminates the machine.
func (w *world) mayTerminate(m *machine) bool {
	return m.kept == nil || !m.held || !w.now.Before(m.kept.expiry()) ||
		!m.kept.failing() && (!w.newMCM || m.kept.onlyProtected()) || // the hold is made when the machine fails, and the controller was down then
		w.modelWouldRelease(m)
}

func (w *world) modelWouldRelease(m *machine) bool {
	saved := make([]modelMachine, len(w.machines))
	for i, m := range w.machines {
		saved[i] = m.copy()
	}
	w.model.look(w.now)
	released := m.kept == nil
	for i, m := range w.machines {
		*m.modelMachine = saved[i]
	}
	return released
}

// natively are the values of a request that MCM >= 0.62 knows.
var natively = []string{"now", "when-failed", "auto-preserved", "false"}

// preserveNatively is what MCM >= 0.62 does on its own.
func (w *world) preserveNatively(m *machine) (acted bool) {
	var (
		a         = m.obj.Annotations
		status    = &m.obj.Status.CurrentStatus
		last      = a[lastApplied]
		value, on = a[preserve], slices.Contains(natively, a[preserve])
		nodeValue string
		nodeOn    bool
	)
	if !on {
		value = ""
	}
	if m.node != nil {
		if nodeValue, nodeOn = m.node.Annotations[preserve]; nodeOn && !slices.Contains(natively, nodeValue) {
			return false
		}
	}
	if status.PreserveExpiryTime == nil && !nodeOn && !on && last == "" {
		return false
	}
	if m.node != nil && (nodeValue != "" || last != "") {
		value = nodeValue
	}

	switch {
	case value == "", value == "false":
		acted = w.stopNatively(m, false)
	case value == "auto-preserved" && status.Phase != machinev1alpha1.MachineFailed:
		return w.stopNatively(m, true)
	case status.PreserveExpiryTime != nil && !status.PreserveExpiryTime.After(w.now):
		return w.stopNatively(m, true)
	case value == "now", status.Phase == machinev1alpha1.MachineFailed:
		acted = w.startNatively(m)
	default:
		acted = w.stopNatively(m, false)
	}

	if (nodeOn || last != "") && (nodeValue != last || on) {
		old := maps.Clone(a)
		m.obj.Annotations = with(without(a, preserve), lastApplied, nodeValue)
		m.onMachine.there, m.onMachine.value = false, ""
		m.noteSync(old)
		m.traces, acted = true, true
		w.t.Logf("    MCM: machine %s %s", m.name, difference{old, m.obj.Annotations})
	}
	return acted
}

func (w *world) startNatively(m *machine) (acted bool) {
	if m.obj.Status.CurrentStatus.PreserveExpiryTime == nil {
		w.setExpiry(m, w.now.Add(m.nativeTimeout()))
		w.forgetExpiry(m)
		w.restartTimer(m)
		m.traces, acted = true, true
	}
	if m.node == nil || conditionTrue(m.node) || w.shootAway {
		return acted
	}
	w.t.Logf("    MCM: marks node %s", m.name)
	if m.node.Annotations[disabled] != "true" {
		m.node.Annotations = with(with(m.node.Annotations, disabled, "true"), byMCM, "true")
		m.scaleDown = ""
	}
	setCondition(m.node, corev1.ConditionTrue, "Preserved by user.")
	m.traces = true
	return true
}

// nativeTimeout is for how long MCM >= 0.62 preserves the machine.
func (m *machine) nativeTimeout() time.Duration {
	if c := m.obj.Spec.MachineConfiguration; c != nil && c.MachinePreserveTimeout != nil {
		return c.MachinePreserveTimeout.Duration
	}
	return nativeTimeout
}

func (w *world) stopNatively(m *machine, expired bool) (acted bool) {
	if m.obj.Status.CurrentStatus.PreserveExpiryTime == nil || m.node != nil && w.shootAway { // it writes to the node first
		return false
	}
	w.t.Logf("    MCM: stops the preservation of %s, expired: %t", m.name, expired)
	if m.node != nil {
		setCondition(m.node, corev1.ConditionFalse, "Preservation stopped.")
		if m.node.Annotations[byMCM] == "true" {
			m.node.Annotations, m.byRollout = without(m.node.Annotations, disabled, byMCM), false
		}
		if expired && m.node.Annotations[preserve] != "" {
			m.node.Annotations = without(m.node.Annotations, preserve)
			if m.onNode.value != "false" || !m.expiryInStatus() { // else it was not what MCM has removed, and comes back (R4)
				m.onNode.there, m.onNode.value = false, ""
			}
		}
	}
	if expired {
		m.obj.Annotations = without(m.obj.Annotations, preserve, lastApplied)
		m.synced = ""
		if m.onMachine.value != "false" || !m.expiryInStatus() || !strings.HasPrefix(Noted(m.obj)[prefix+"request"], "Machine:") {
			m.onMachine.there, m.onMachine.value = false, ""
		}
	}
	m.obj.Status.CurrentStatus.PreserveExpiryTime = nil
	// It looks only at what it can see: when a person withdraws a request, it ends what is kept for another reason as well.
	m.held = m.held && !expired && (m.kept == nil || m.kept.claims() == 1 && m.kept.remediation.IsZero())
	if m.stopped = expired && m.kept != nil && (!m.kept.auto.IsZero() || m.kept.workedOn()); !m.stopped {
		w.forgetExpiry(m) // a request is withdrawn with it
	}
	w.restartTimer(m)
	m.traces = true
	return true
}

// forgetExpiry makes the model forget the expiry that was in the status.
func (w *world) forgetExpiry(m *machine) {
	if !skipForgottenExpiry || m.kept == nil {
		return
	}
	defer func() { m.kept.edit(m.expiry()) }()
	for part := range strings.SplitSeq(Noted(m.obj)[prefix+"claims"], ",") {
		cause, value, _ := strings.Cut(part, "=")
		switch at, _ := time.Parse(time.RFC3339, value); {
		case cause == "auto" && !m.kept.auto.IsZero():
			m.kept.auto = at
		case cause == "auto?" && !m.kept.next.IsZero():
			m.kept.next = at
		case cause == "maintenance" && !m.kept.maintenance.IsZero():
			m.kept.maintenance = at
		case cause == "remediation" && !m.kept.remediation.IsZero():
			m.kept.remediation = at
		case cause != "" && cause != "auto" && cause != "auto?" && cause != "maintenance" && cause != "remediation" && !m.kept.person.IsZero():
			m.kept.person = at
		}
	}
}

// spares says that MCM >= 0.62 does not terminate the failed machine.
func (w *world) spares(m *machine) bool {
	if expiry := m.obj.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
		return expiry.After(w.now)
	}
	return (m.node != nil || !m.labelled()) && asksMCM(m)
}

// asksMCM says that there is a request that MCM >= 0.62 obeys on its own.
func asksMCM(m *machine) bool {
	value := m.obj.Annotations[preserve]
	if m.node != nil {
		if nodeValue := m.node.Annotations[preserve]; nodeValue != "" || m.obj.Annotations[lastApplied] != "" {
			value = nodeValue
		}
	}
	return value == "now" || value == "when-failed" || value == "auto-preserved"
}

// What happens to machines, for the objects and the model alike.

func (w *world) setPhase(m *machine, phase machinev1alpha1.MachinePhase) {
	w.t.Logf("    MCM: %s is %s", m.name, phase)
	m.obj.Status.CurrentStatus.Phase, m.phase = phase, phase
	m.held = m.held && w.newMCM // with the shifted timer, the hold is gone
	w.restartTimer(m)
}

func (w *world) restartTimer(m *machine) {
	m.since = w.now.Truncate(time.Second)
	m.obj.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(m.since)
}

func (w *world) setExpiry(m *machine, expiry time.Time) {
	m.obj.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: expiry.Truncate(time.Second)}
}

// add makes a machine that was created age ago. Running, or waiting for its node.
func (w *world) add(age time.Duration, running bool) *machine {
	if running {
		age += time.Minute // it took some time to join
	}
	name := "m" + strconv.Itoa(w.created)
	w.created++
	m := &machine{
		obj: Machine(name, Created(w.now.Add(-age).Truncate(time.Second))),
		modelMachine: &modelMachine{
			name:     name,
			created:  w.now.Add(-age).Truncate(time.Second),
			hasVM:    true,
			health:   healthTimeout,
			creation: creationTimeout,
			phase:    machinev1alpha1.MachinePending,
			since:    w.now.Truncate(time.Second),
		},
	}
	m.obj.Annotations, m.obj.Status.Conditions = nil, nil
	if running {
		m.phase, m.joined = machinev1alpha1.MachineRunning, true
		m.obj.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		w.join(m)
	}
	w.configure(m)
	Phase(m.phase, m.since)(m.obj)
	w.machines = append(w.machines, m)
	w.model.machines = append(w.model.machines, m.modelMachine)
	w.dirty = true
	return m
}

// configure tells MCM >= 0.62 how long to preserve.
func (w *world) configure(m *machine) {
	if !w.nativeOurs {
		return
	}
	configuration := machinev1alpha1.MachineConfiguration{}
	if m.obj.Spec.MachineConfiguration != nil {
		configuration = *m.obj.Spec.MachineConfiguration
	}
	configuration.MachinePreserveTimeout = duration(w.group.Timeout)
	m.obj.Spec.MachineConfiguration = &configuration
}

// join makes the node of a machine come, or be ready again.
func (w *world) join(m *machine) {
	m.healthy, m.hasNode, m.hasVM, m.broken, m.waits = true, true, true, false, false
	m.obj.Labels["node"] = m.name
	m.obj.Spec.ProviderID = "local:///" + m.name
	if m.node == nil {
		m.node = Node(m.name)
		m.node.Annotations = nil
	}
	m.node.Spec.Taints = slices.DeleteFunc(slices.Clone(m.node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == criticalComponents })
	m.showHealth()
}

// showHealth makes the node tell whether it is ready.
func (m *machine) showHealth() {
	if m.node == nil {
		return
	}
	m.node.Status.Conditions = slices.Clone(m.node.Status.Conditions)
	status := corev1.ConditionTrue
	if !m.healthy {
		status = corev1.ConditionUnknown
	}
	Condition(corev1.NodeReady, status, "", "")(m.node)
}

// fail makes the kubelet of a machine die.
func (w *world) failMachine(m *machine) {
	if !w.shootAway { // nobody gets to know before it is back
		m.healthy = false
		m.showHealth()
	}
}

func (w *world) delete(m *machine, why string) {
	w.t.Logf("    %s %s", why, m.name)
	Deleted(w.now)(m.obj)
	m.deleted, w.dirty = true, true
}

func (w *world) remove(m *machine) {
	w.t.Logf("    MCM: %s is gone", m.name)
	w.machines = slices.DeleteFunc(w.machines, func(o *machine) bool { return o == m })
	w.model.machines = slices.DeleteFunc(w.model.machines, func(o *modelMachine) bool { return o == m.modelMachine })
}

// switchMCM replaces MCM and the controller by those of the other generation.
func (w *world) switchMCM() {
	w.newMCM = !w.newMCM
	if !w.down {
		w.start()
	}
	for _, m := range w.machines {
		m.held = false
	}
	if w.newMCM {
		return
	}
	// The older MCM terminates a machine in phase Failed at once. Nothing can be done if it starts before the controller.
	w.mcmFirst = false
	for _, m := range w.machines {
		m.obj.Status.CurrentStatus.PreserveExpiryTime = nil
		if m.kept != nil && !m.stopped { // an edit that the controller has not seen goes with the field
			w.forgetExpiry(m)
		}
	}
}

// migrate moves the control plane to another seed. Machines are created anew there, with what was in their metadata but
// without their status. Those without a VM are left behind.
func (w *world) migrate() {
	if w.shootAway || slices.ContainsFunc(w.machines, func(m *machine) bool { return m.deleted }) {
		return
	}
	for _, m := range slices.Clone(w.machines) {
		if !m.labelled() && m.obj.Spec.ProviderID == "" {
			w.remove(m)
			continue
		}
		m.obj.UID += "-restored"
		m.created = w.now.Add(-time.Second).Truncate(time.Second) // nothing of what MCM does takes no time
		Created(m.created)(m.obj)
		m.obj.Status = machinev1alpha1.MachineStatus{}
		m.phase, m.held, m.stopped, m.joined = "", false, false, false
		if m.kept != nil { // an edit that the controller has not seen goes with the status
			w.forgetExpiry(m)
		}
	}
	if !w.down {
		w.start()
	}
}

// unheld says that MCM is not told that the machine is preserved: it would uncordon the node of one that runs (M12).
func (w *world) unheld(m *machine) bool {
	return m.kept.onlyProtected() && !(w.newMCM && m.request() == "now") &&
		!(m.nodeUnknown && strings.HasPrefix(Noted(m.obj)[prefix+"request"], "Node:"))
}

// labelled says that the Machine knows the name of its Node.
func (m *machine) labelled() bool { return m.obj.Labels["node"] != "" }

func (m *machine) phaseOf() machinev1alpha1.MachinePhase { return m.obj.Status.CurrentStatus.Phase }

// withdrawsOnNode says that the request on the node is an empty one.
func (m *modelMachine) withdrawsOnNode() bool {
	return m.onNode.there && m.onNode.value == "" || m.hasNode && m.templated && m.template == ""
}

// noteSync tells the model that the request on the node was synced to the machine (R2).
func (m *machine) noteSync(old map[string]string) {
	if value := m.obj.Annotations[lastApplied]; value != old[lastApplied] {
		m.synced = ""
		if value != "" {
			m.synced = m.onNode.value
		}
	}
}

// Small helpers.

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%s", w)
	w.t.Fatalf(format, args...)
}

// String shows the world and the machines that have changed since it was shown last.
func (w *world) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s share %s", clock(w.now), shareString(w.group.Share))
	for _, flag := range []struct {
		on   bool
		text string
	}{
		{w.newMCM, "MCM 0.62"}, {!w.newMCM, "MCM 0.61"}, {w.asleep, "MCM asleep"}, {w.down, "controller down"},
		{!w.model.maintenances, "no maintenances"}, {!w.model.remediations, "no remediations"}, {w.shootAway, "shoot away"}, {!w.nodesKnown, "nodes unknown"}, {w.group.Rollout, "rollout"}, {w.group.Replicas == 0, "hibernated"},
	} {
		if flag.on {
			s.WriteString(", " + flag.text)
		}
	}
	for _, m := range w.machines {
		if line := m.String(); w.shown[m.name] != line {
			s.WriteString(line)
			w.shown[m.name] = line
		}
	}
	return s.String()
}

func (m *machine) String() string {
	var (
		s      strings.Builder
		status = m.obj.Status.CurrentStatus
	)
	fmt.Fprintf(&s, "\n    model: %s", m.modelMachine)
	fmt.Fprintf(&s, "\n    world: %s %s since %s %s", m.name, status.Phase, clock(status.LastUpdateTime.Time), short(m.obj.Annotations))
	if status.PreserveExpiryTime != nil {
		fmt.Fprintf(&s, " expiry in status %s", clock(status.PreserveExpiryTime.Time))
	}
	if m.node != nil {
		_, tainted := TaintedSince(m.node)
		fmt.Fprintf(&s, "; node ready %t %s taint %t condition %t", m.healthy, short(m.node.Annotations), tainted, conditionTrue(m.node))
	}
	return s.String()
}

// clock shows a time as the time since Start.
func clock(t time.Time) string { return "+" + t.Sub(Start).String() }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// readSpan returns the times of a span as it is written.
func readSpan(value string) (since, until time.Time) {
	first, second, _ := strings.Cut(value, "/")
	since, _ = time.Parse(time.RFC3339, first)
	until, _ = time.Parse(time.RFC3339, second)
	return since, until
}

func stampOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t)
}

func shareString(share *int32) string {
	if share == nil {
		return "unknown"
	}
	return strconv.Itoa(int(*share))
}

// short shows annotations without the prefixes of their keys.
func short(annotations map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		_, name, _ := strings.Cut(key, "/")
		if name == "" {
			name = key
		}
		parts = append(parts, name+"="+annotations[key])
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// difference shows what a write changed.
type difference struct{ before, after map[string]string }

func (d difference) String() string {
	if maps.Equal(d.before, d.after) {
		return "(spec or status)"
	}
	return short(d.before) + " -> " + short(d.after)
}

func has(annotations map[string]string, key string) bool {
	_, ok := annotations[key]
	return ok
}

// with and without return annotations with a value, or without some keys.
func with(annotations map[string]string, key, value string) map[string]string {
	result := maps.Clone(annotations)
	if result == nil {
		result = map[string]string{}
	}
	result[key] = value
	return result
}

func without(annotations map[string]string, keys ...string) map[string]string {
	result := maps.Clone(annotations)
	for _, key := range keys {
		delete(result, key)
	}
	if len(result) == 0 {
		return nil
	}
	return result
}

// sameBut says that a and b differ in nothing but the value of key.
func sameBut(key string, a, b map[string]string) bool {
	return maps.Equal(without(a, key), without(b, key))
}

func sameStatus(a, b *machinev1alpha1.Machine) bool {
	s, o := a.Status.CurrentStatus, b.Status.CurrentStatus
	return s.Phase == o.Phase && s.LastUpdateTime.Equal(&o.LastUpdateTime) && s.PreserveExpiryTime.Equal(o.PreserveExpiryTime)
}

func conditionTrue(node *corev1.Node) bool {
	c := PreservedCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

func setCondition(node *corev1.Node, status corev1.ConditionStatus, reason string) {
	node.Status.Conditions = slices.Clone(node.Status.Conditions)
	Condition("Preserved", status, reason, "")(node)
}
