// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	// checks is how many sequences each of the four subtests of TestRules runs.
	checks = "25000"
	// steps is how many events a sequence has on average.
	steps = "22"
	// seed makes every run the same. Run with -rapid.seed=0 to look further.
	seed = "1"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"checks": checks, "steps": steps, "seed": seed, "nofailfile": "true"} {
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestRules drives the domain and the model of the rules with the same random events. Everything is checked whenever
// the controller has looked.
func TestRules(t *testing.T) {
	for _, newMCM := range []bool{false, true} {
		for _, machines := range []int{2, 5} {
			t.Run(fmt.Sprintf("new MCM %t, up to %d machines", newMCM, machines), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					w := newWorld(t, newMCM, machines)
					w.settle()
					t.Repeat(map[string]func(*rapid.T){"something": w.something})
					w.finale()
				})
			})
		}
	}
}

// Known disagreements between the rules and the domain. Each is left out where it is named, so that the others are found.
const (
	// skipForgottenExpiry: when MCM >= 0.62 stops a preservation for a moment, because a request has changed that the
	// controller has not seen, an operator's edit goes with it; and when MCM begins it anew by itself, its own expiry is
	// taken for an edit. P6, P10.
	skipForgottenExpiry = true
	// skipStaleSync: the request of a node that is gone stays synced to the machine, and counts again when the nodes are
	// not known; as "now" if MCM >= 0.62 synced it from the hold. R2, P9.
	skipStaleSync = true
	// skipUnsynced: the hold of MCM >= 0.62 is put where the request is, but MCM looks where it saw one last. Until it has
	// seen that a request on the node has come or gone, it does not see the hold, or takes an old one for a request. P8, R2.
	skipUnsynced = true
	// skipAside: what was set aside of a request stays until the controller has seen that the request is gone, and has been
	// able to end the preservation. "now", written before that, is taken for the hold and means what is set aside. R2.
	skipAside = true
)

// outlives are the annotations of ours that a machine may carry which is not preserved.
var outlives = []string{"timeout", "released", "forbidden", "preserved-since", "maintained-since", "remediation", "remediated-until"}

// synced is what a Machine says of the request on its Node (P14).
func synced(value string) string {
	if value == "yes" || value == "auto-preserved" {
		return "invalid"
	}
	return value
}

// unknownShare stands for a share that nobody has said yet.
const unknownShare = -1

// What is drawn.

var (
	requests  = rapid.SampledFrom([]string{"now", "true", "when-failed", "when-failed", "false", "", "yes"})
	forgeries = rapid.SampledFrom([]string{"now", "true", "when-failed", "when-failed", "false", "", "yes", "auto-preserved"})
	durations = rapid.SampledFrom([]string{"", "", "2h", "3m", "10s", "-1h", "9s", "2562047h", "soon"})
	timeouts  = rapid.SampledFrom([]time.Duration{time.Hour, 5 * time.Minute, 72 * time.Hour})
	shares    = rapid.SampledFrom([]int32{1, 0, 2, 3, unknownShare})
	longest   = rapid.SampledFrom([]time.Duration{336 * time.Hour, 336 * time.Hour, 90 * time.Minute})
	holds     = rapid.SampledFrom([]time.Duration{24 * time.Hour, 40 * time.Minute, 3 * time.Hour})
	reboots   = rapid.SampledFrom([]time.Duration{time.Minute, 9*time.Minute + 45*time.Second, 25 * time.Minute})
	// begins are how long ago maintenances have begun; nonsense stands for what is no time.
	begins = rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Minute, 2 * time.Hour, 100 * 365 * 24 * time.Hour, -30 * time.Minute, -100 * 365 * 24 * time.Hour, nonsense})
)

// untils are for how long power cycles ask.
var untils = rapid.SampledFrom([]time.Duration{45 * time.Minute, 10 * time.Minute, 10 * time.Second, 3 * time.Hour, 2000 * time.Hour, 0, -5 * time.Minute, nonsense})

const nonsense = time.Nanosecond

func newWorld(t *rapid.T, newMCM bool, machines int) *world {
	w := &world{
		t:          t,
		now:        Start,
		newMCM:     newMCM,
		nodesKnown: true,
		writesLeft: -1,
		model:      &model{},
		shown:      map[string]string{},
	}
	w.group.Timeouts = facts.Timeouts{Health: healthTimeout, Creation: creationTimeout, Drain: 2 * time.Hour}
	w.group.MaxTimeout = longest.Draw(t, "longest")
	w.model.longest = w.group.MaxTimeout
	w.setMaintenances(true, holds.Draw(t, "hold"))
	w.setRemediations(true)
	w.nativeOurs = rapid.Bool().Draw(t, "MCM preserves for as long")
	if rapid.Bool().Draw(t, "between two seconds") {
		w.now = w.now.Add(400 * time.Millisecond)
	}
	w.setShare(shares.Draw(t, "share"))
	w.setTimeout(timeouts.Draw(t, "timeout"))
	w.setReplicas(rapid.Int32Range(1, int32(machines)).Draw(t, "machines"))
	for range w.group.Replicas {
		w.addAny()
	}
	return w
}

func (w *world) addAny() {
	kind := rapid.SampledFrom([]string{"running", "running", "running", "joining", "creating", "crashing", "waiting"}).Draw(w.t, "machine")
	age := time.Duration(rapid.IntRange(0, 3).Draw(w.t, "age")) * time.Minute
	m := w.add(age, kind == "running")
	if kind == "waiting" {
		w.join(m)
		m.waits = true
		Taint(criticalComponents, w.now)(m.node)
	}
	if kind == "crashing" {
		m.broken, m.phase = true, machinev1alpha1.MachineCrashLoopBackOff
		Phase(m.phase, m.since)(m.obj)
	}
	switch special := rapid.IntRange(0, 9).Draw(w.t, "special"); {
	case kind == "creating":
		m.hasVM, m.obj.Spec.ProviderID = false, ""
		delete(m.obj.Labels, "node")
	case special == 1: // a health timeout of its own
		m.health = time.Minute
		m.obj.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: duration(m.health)}
		w.configure(m)
	case special == 2 && m.node != nil: // protected by a user
		w.setScaleDown(m, "true")
	case special == 3: // as in pools with in-place updates
		m.unlimited = true
		m.obj.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{DisableHealthTimeout: new(true)}
		w.configure(m)
	case special >= 7: // ordered by somebody
		m.priority = []string{"1", "2", "6"}[special-7]
		m.obj.Annotations = with(nil, priority, m.priority)
	}
}

// event is something that may happen, as often as its weight says.
type event struct {
	weight int
	name   string
	happen func(*world)
}

var events = weighted([]event{
	{2, "fails", on((*world).failMachine)},
	{4, "ten minutes pass", func(w *world) { w.pass(healthTimeout - 10*time.Second) }},
	{1, "seconds pass", passing(time.Second, 90)},
	{1, "minutes pass", passing(30*time.Second, 50)},
	{1, "days pass", passing(time.Hour, 100)},
	{2, "all fail", func(w *world) {
		for _, m := range w.machines {
			w.failMachine(m)
		}
	}},
	{3, "recovers or joins", on((*world).recover)},
	{3, "request on node", on((*world).requestOnNode)},
	{3, "request on machine", on((*world).requestOnMachine)},
	{1, "request in the pool's annotations", on((*world).requestInTemplate)},
	{4, "share", func(w *world) { w.setShare(shares.Draw(w.t, "share")) }},
	{2, "all is well again", (*world).normal},
	{1, "timeout", func(w *world) { w.setTimeout(timeouts.Draw(w.t, "timeout")) }},
	{2, "expiry edited", on((*world).editExpiry)},
	{1, "operators forbid or allow", (*world).forbid},
	{1, "operators forbid or allow a machine", on((*world).forbidMachine)},
	{1, "scale-down annotation edited", on((*world).editProtection)},
	{1, "node lost", on((*world).loseNode)},
	{1, "machine created", (*world).create},
	{1, "deleted", on((*world).deleteOnce)},
	{1, "scale-down", (*world).scaleDown},
	{1, "rollout begins or ends", func(w *world) {
		if !w.shootAway { // it cannot protect the nodes then
			w.setRollout(!w.group.Rollout)
		}
	}},
	{1, "hibernation begins or ends", (*world).hibernate},
	{2, "controller crashes or starts", (*world).crashOrStart},
	{3, "maintenance begins", on((*world).beginMaintenance)},
	{2, "maintenance ends", on((*world).endMaintenance)},
	{2, "reboots", on((*world).reboot)},
	{1, "maintenances are switched", func(w *world) { w.setMaintenances(!w.model.maintenances, holds.Draw(w.t, "hold")) }},
	{4, "remediation is asked for", on((*world).remediate)},
	{2, "remediation is over", on((*world).endRemediation)},
	{1, "host is power-cycled", on((*world).powerCycle)},
	{1, "remediations are switched", func(w *world) { w.setRemediations(!w.model.remediations) }},
	{1, "shoot goes or comes", (*world).shoot},
	{1, "MCM sleeps or wakes", func(w *world) { w.asleep = !w.asleep }},
	{2, "MCM is switched", (*world).switchMCM},
	{1, "control plane is migrated", (*world).migrate},
})

// weighted repeats each event as often as its weight says.
func weighted(all []event) (result []event) {
	for _, e := range all {
		for range e.weight {
			result = append(result, e)
		}
	}
	return result
}

// on is for what happens to one machine.
func on(happen func(*world, *machine)) func(*world) {
	return func(w *world) {
		if len(w.machines) > 0 {
			m := w.machines[rapid.IntRange(0, len(w.machines)-1).Draw(w.t, "which")]
			w.t.Logf("    %s", m.name)
			happen(w, m)
		}
	}
}

// passing is for some time to pass.
func passing(unit time.Duration, most int) func(*world) {
	return func(w *world) { w.pass(unit * time.Duration(rapid.IntRange(1, most).Draw(w.t, "time"))) }
}

// something happens.
func (w *world) something(*rapid.T) {
	e := events[rapid.IntRange(0, len(events)-1).Draw(w.t, "event")]
	w.t.Logf("%s: %s", clock(w.now), e.name)
	w.mcmFirst = rapid.Bool().Draw(w.t, "MCM first")
	before := w.now
	e.happen(w)
	if w.now.Equal(before) { // time alone does not call the controller
		w.dirty = true
		w.settle()
	}
}

// Events.

func (w *world) setShare(share int32) {
	w.group.Share, w.model.share = nil, nil
	if share != unknownShare {
		w.group.Share, w.model.share = &share, &share
	}
}

func (w *world) setTimeout(t time.Duration) {
	w.group.Timeout, w.model.timeout = t, t
	for _, m := range w.machines {
		w.configure(m)
	}
}

func (w *world) setReplicas(replicas int32) { w.group.Replicas, w.model.replicas = replicas, replicas }

// setMaintenances switches maintenances on or off.
func (w *world) setMaintenances(on bool, hold time.Duration) {
	w.model.maintenances, w.model.hold = on, hold
	w.group.Maintenance = MaintenanceOptions{Enabled: on, MaxHoldTime: hold}
}

// beginMaintenance is what a maintenance, or anybody in the shoot, writes on a node (M12).
func (w *world) beginMaintenance(m *machine) {
	if m.node == nil || w.shootAway {
		return
	}
	ago := begins.Draw(w.t, "ago")
	m.maintained, m.began = true, w.now.Add(-ago).Truncate(time.Second)
	value := stamp(m.began)
	if ago == nonsense {
		m.began, value = time.Time{}, "soon"
	}
	m.node.Annotations = with(m.node.Annotations, maintenance, value)
}

func (w *world) endMaintenance(m *machine) {
	if m.node != nil && !w.shootAway {
		m.node.Annotations = without(m.node.Annotations, maintenance)
		m.maintained = false
	}
}

// setRemediations switches remediations on or off.
func (w *world) setRemediations(on bool) {
	w.model.remediations, w.group.Remediation.Enabled = on, on
}

// remediate is what the controller of remediations writes on a machine, again and again (X10).
func (w *world) remediate(m *machine) {
	value := ""
	if d := untils.Draw(w.t, "for"); d == nonsense {
		m.until, value = time.Time{}, "soon"
	} else {
		m.until = w.now.Add(d).Truncate(time.Second)
		value = stamp(m.until)
	}
	m.cycled = true
	m.obj.Annotations = with(m.obj.Annotations, remediation, value)
}

func (w *world) endRemediation(m *machine) {
	m.cycled, m.until = false, time.Time{}
	m.obj.Annotations = without(m.obj.Annotations, remediation)
}

// powerCycle asks, makes the kubelet go for some time, and asks no more.
func (w *world) powerCycle(m *machine) {
	w.remediate(m)
	w.reboot(m)
	w.endRemediation(m)
	w.dirty = true
	w.settle()
}

// reboot makes the kubelet go for some time.
func (w *world) reboot(m *machine) {
	w.failMachine(m)
	w.dirty = true
	w.settle()
	w.pass(reboots.Draw(w.t, "takes"))
	if m.node != nil {
		w.recover(m)
		w.dirty = true
		w.settle()
	}
}

// setRollout begins or ends an update. MCM protects all nodes for as long as it lasts, and in the end removes what says
// that it is its own.
func (w *world) setRollout(rollout bool) {
	w.group.Rollout, w.model.rollout = rollout, rollout
	for _, m := range w.machines {
		switch {
		case m.node == nil:
		case rollout && !has(m.node.Annotations, disabled):
			m.node.Annotations = with(with(m.node.Annotations, disabled, "true"), byMCM, "true")
			m.byRollout = true
		case !rollout && has(m.node.Annotations, byMCM):
			m.node.Annotations = without(m.node.Annotations, disabled, byMCM)
			m.byRollout = false
		}
	}
}

func (w *world) setScaleDown(m *machine, value string) {
	m.node.Annotations = with(m.node.Annotations, disabled, value)
	if !has(m.node.Annotations, byMCM) { // else it is put back, and not the user's
		m.scaleDown = value
	}
}

// requestOnNode writes or, for "-", deletes a user's request.
func (w *world) requestOnNode(m *machine) {
	if m.node == nil || w.shootAway {
		return
	}
	if w.unsynced(m) {
		return
	}
	w.changeRequest(m, &m.node.Annotations, &m.onNode, forgeries)
}

// requestInTemplate writes a request into the annotations that MCM keeps on the node, or deletes it from there.
func (w *world) requestInTemplate(m *machine) {
	if w.shootAway || w.asleep || m.phaseOf() == "" || w.unsynced(m) { // MCM puts it on the node before anybody sees it
		return
	}
	defer w.syncTemplate(m)
	m.held = false // until the controller has seen it
	annotations := &m.obj.Spec.NodeTemplateSpec.Annotations
	if has(*annotations, preserve) {
		*annotations = nil
		return
	}
	if value := forgeries.Draw(w.t, "value"); value != "auto-preserved" || m.kept == nil {
		*annotations = map[string]string{preserve: value}
	}
}

// unsynced says that MCM >= 0.62 would be late to see that a request on the node comes or goes, or that the controller
// may not live to see both.
func (w *world) unsynced(m *machine) bool {
	a := m.obj.Annotations
	hold := m.kept != nil && has(a, preserve)
	return skipUnsynced && w.newMCM && (w.asleep || hold && (m.onNode.there || w.writesLeft >= 0))
}

func (w *world) requestOnMachine(m *machine) {
	if has(m.obj.Annotations, preserve) && m.kept != nil && (w.newMCM || has(Noted(m.obj), prefix+"expiry-in-status")) {
		// MCM >= 0.62 reads its hold there. Whether it or the controller sees the change first is a race.
		if w.down || w.writesLeft >= 0 || w.shootAway {
			return
		}
		w.mcmFirst = false
	}
	w.changeRequest(m, &m.obj.Annotations, &m.onMachine, requests)
}

func (w *world) changeRequest(m *machine, annotations *map[string]string, asked *ask, values *rapid.Generator[string]) {
	old, there := (*annotations)[preserve]
	if old == "auto-preserved" && m.kept != nil { // MCM >= 0.62 ends what it holds for that, at once
		return
	}
	if w.down {
		m.held = false // MCM >= 0.62 obeys a request by itself
	}
	if there && rapid.IntRange(0, 2).Draw(w.t, "remove") == 0 {
		*annotations = without(*annotations, preserve, timeout)
		*asked = ask{}
		return
	}
	value := values.Draw(w.t, "value")
	if value == "auto-preserved" && m.kept != nil { // MCM >= 0.62 ends what is held, and all traces of it, at once
		return
	}
	if there && value == old { // nobody can see that it was written
		return
	}
	if skipAside && (w.down || w.shootAway) && value == "now" && has(Noted(m.obj), prefix+"request") {
		return
	}
	if m.stopped { // what MCM has ended cannot be told any more from what it does about the request
		m.stopped = false
		w.forgetExpiry(m)
	}
	*annotations = with(*annotations, preserve, value)
	asked.there, asked.value = true, value
	if own := durations.Draw(w.t, "own timeout"); own != "" {
		*annotations = with(*annotations, timeout, own)
		asked.timeout = own
	}
}

func (w *world) recover(m *machine) {
	if !m.deleted && !w.shootAway {
		w.join(m)
	}
}

// loseNode makes the node go, and what was written on it.
func (w *world) loseNode(m *machine) {
	if w.shootAway || w.unsynced(m) {
		return
	}
	if skipStaleSync && m.kept != nil && (w.down || w.newMCM && (!m.kept.auto.IsZero() || m.kept.workedOn()) && m.onNode.there) { // without the synced value it looks as if MCM had ended it
		return
	}
	m.node, m.healthy, m.hasNode, m.onNode, m.scaleDown, m.byRollout, m.maintained = nil, false, false, ask{}, "", false, false
	if skipStaleSync {
		m.obj.Annotations, m.synced = without(m.obj.Annotations, lastApplied), ""
	}
}

// editExpiry edits the end of a preservation where an operator does (P6).
func (w *world) editExpiry(m *machine) {
	if m.kept == nil || !w.shows(m) || m.stopped || !w.now.Before(m.kept.expiry()) { // what has been ended cannot be prolonged
		return
	}
	minutes := rapid.SampledFrom([]int{-10, 0, 1, 7, 300, 10000}).Draw(w.t, "minutes from now")
	expiry := w.now.Add(time.Duration(minutes) * time.Minute).Truncate(time.Second)
	switch {
	case !w.newMCM, !m.expiryInStatus() && w.unheld(m):
		m.obj.Annotations = with(m.obj.Annotations, prefix+"expiry-time", stamp(expiry))
		m.held = false // until the controller has shifted the timer
	case m.obj.Status.CurrentStatus.PreserveExpiryTime != nil && m.expiryInStatus():
		w.setExpiry(m, expiry)
	default:
		return
	}
	m.kept.edit(expiry)
}

// editProtection changes what keeps the cluster-autoscaler away (P5).
func (w *world) editProtection(m *machine) {
	if m.node == nil || w.shootAway {
		return
	}
	m.byRollout = false
	switch value := rapid.SampledFrom([]string{"true", "false", ""}).Draw(w.t, "value"); value {
	case m.node.Annotations[disabled]:
	case "":
		m.node.Annotations, m.scaleDown = without(m.node.Annotations, disabled), ""
	default:
		w.setScaleDown(m, value)
	}
}

// forbid is an operator's veto on the MachineDeployment, or takes it back (R6).
func (w *world) forbid() {
	w.group.Forbidden = !w.group.Forbidden
	w.model.forbidden = w.group.Forbidden
}

// forbidMachine is an operator's veto on a machine, or takes it back (R6).
func (w *world) forbidMachine(m *machine) {
	if m.forbidden = !m.forbidden; m.forbidden {
		m.obj.Annotations = with(m.obj.Annotations, prefix+"forbidden", "true")
	} else {
		m.obj.Annotations = without(m.obj.Annotations, prefix+"forbidden")
	}
}

func (w *world) deleteOnce(m *machine) {
	if !m.deleted {
		w.delete(m, "somebody deletes")
	}
}

func (w *world) create() {
	if len(w.machines) < 5 && w.group.Replicas > 0 {
		w.addAny()
	}
}

// scaleDown takes one machine away in the order of MCM. If MCM has a choice, it takes a preserved one (P2).
func (w *world) scaleDown() {
	if w.down || w.asleep || w.shootAway || w.group.Replicas < 2 {
		return
	}
	w.setReplicas(w.group.Replicas - 1)
	var victim *machine
	for _, m := range w.machines {
		if m.deleted {
			continue
		}
		if victim == nil || w.goesFirst(m) < w.goesFirst(victim) || w.goesFirst(m) == w.goesFirst(victim) && m.kept != nil {
			victim = m
		}
	}
	if victim == nil {
		return
	}
	if victim.kept != nil && victim.priority != "1" && victim.held {
		for _, m := range w.machines {
			native := m.obj.Status.CurrentStatus.PreserveExpiryTime != nil // MCM preserves it by itself
			if !m.deleted && m.kept == nil && m.priority != "6" && !native {
				w.fail("%s is scaled down, which is preserved, and %s stays", victim.name, m.name)
			}
		}
	}
	w.delete(victim, "MCM: scales down")
}

// goesFirst orders machines for a scale-down, lower first.
func (w *world) goesFirst(m *machine) int {
	order := 3
	switch m.obj.Annotations[priority] {
	case "1":
		order = 1
	case "2":
		order = 2
	case "4":
		order = 4
	case "6":
		order = 6
	}
	if expiry := m.obj.Status.CurrentStatus.PreserveExpiryTime; w.newMCM && expiry != nil && expiry.After(w.now) {
		order += 10
	}
	return order
}

func (w *world) hibernate() {
	if w.group.Replicas > 0 {
		w.setReplicas(0)
		return
	}
	w.setReplicas(2)
	w.create()
}

// crashOrStart starts the controller, or makes it crash in one of its next writes.
func (w *world) crashOrStart() {
	if w.down {
		w.start()
		return
	}
	w.writesLeft = rapid.IntRange(0, 7).Draw(w.t, "writes before the crash")
	w.restartAtOnce = rapid.Bool().Draw(w.t, "restart at once")
}

func (w *world) shoot() {
	thaws := w.frozen()
	w.shootAway = !w.shootAway
	if w.shootAway {
		w.awaySince = w.now
		return
	}
	w.nodesKnown = true
	if !thaws {
		return
	}
	// It takes every machine in Unknown for running, without a look at it, and looks again some time later.
	w.blindUntil = w.now.Add(safetyDelay)
	for _, m := range w.machines {
		if m.phaseOf() == machinev1alpha1.MachineUnknown {
			w.setPhase(m, machinev1alpha1.MachineRunning)
		}
	}
}

// normal ends whatever is out of the ordinary.
func (w *world) normal() {
	if w.shootAway {
		w.shoot()
	}
	if w.down {
		w.start()
	}
	if w.group.Replicas == 0 {
		w.hibernate()
	}
	w.asleep = false
	if w.group.Rollout {
		w.setRollout(false)
	}
	if w.group.Forbidden {
		w.forbid()
	}
}

// Properties.

// checkOrder is the property that the order in which the objects arrive does not matter.
func (w *world) checkOrder(decisions []Decision) {
	if len(decisions) < 2 {
		return
	}
	reversed := Decide(w.withMembers(true), w.now)
	for i, d := range decisions {
		r := reversed[len(reversed)-1-i]
		if d.Rule != r.Rule || d.Why != r.Why || d.Verdict != r.Verdict || d.ConsumeRequest != r.ConsumeRequest || !d.Next.Equal(r.Next) || !reflect.DeepEqual(d.Target, r.Target) {
			w.fail("the decision on %s depends on the order of the machines", w.machines[i].name)
		}
	}
}

// checkShare is P1: the share is never exceeded by auto-preservation.
func (w *world) checkShare() {
	if w.group.Share == nil || w.shootAway {
		return
	}
	var auto int32
	for _, m := range w.machines {
		a := m.obj.Annotations
		if m.deleted || a[prefix+"cause"] != "auto" || a[prefix+"phase"] != "Failed:Preserved" || !ReadRecord(m.obj).HasPlace(w.now) { // X10: its time within the share may be over
			continue
		}
		auto++
	}
	if auto > *w.group.Share {
		w.fail("P1: %d machines are auto-preserved", auto)
	}
}

// check compares a machine with the model after the controller has looked, and looks at what is on its objects.
func (w *world) check(m *machine) {
	switch {
	case !w.shows(m):
		w.fail("%s is not preserved as the rules say", m.name)
	case m.kept == nil:
		w.checkFree(m)
	default:
		w.checkKept(m)
	}
}

// checkKept are the properties of a preserved machine.
func (w *world) checkKept(m *machine) {
	var (
		a         = Noted(m.obj)
		status    = m.obj.Status.CurrentStatus
		reachable = !w.shootAway && m.node != nil && w.nodesKnown
	)
	switch {
	case !w.shootAway && !w.now.Before(m.kept.expiry()):
		w.fail("P10: %s is held past its expiry", m.name)
	case !w.shootAway && a[prefix+"expiry-time"] != stamp(m.kept.expiry()):
		w.fail("P8: the expiry of %s is not on record", m.name)
	case !m.held, w.young(m):
		return
	case !m.kept.failed && m.kept.failing() && !m.kept.tentative && a[prefix+"phase"] != "Unknown:Preserved",
		!m.kept.failing() && status.Phase != machinev1alpha1.MachineFailed && a[prefix+"phase"] != string(status.Phase)+":Preserved":
		w.fail("P11: the sub-phase of %s is wrong", m.name)
	case !w.newMCM && m.kept.failing() && status.Phase != machinev1alpha1.MachineRunning && (status.Phase != machinev1alpha1.MachineUnknown || !status.LastUpdateTime.Add(m.health).Equal(m.kept.expiry())):
		w.fail("P10: the health timer of %s does not end at the expiry", m.name)
	case m.kept.failing() && m.ghost():
		w.fail("H2: %s passes for running", m.name)
	case !w.newMCM && a[priority] != "4" && a[priority] != "6" && a[priority] != "1":
		w.fail("P2: %s is not the last to go", m.name)
	case w.newMCM && w.unheld(m):
		if value := a[preserve]; status.PreserveExpiryTime != nil || value != m.onMachine.value || has(a, prefix+"request") {
			w.fail("M12: %s is held long before its deadline", m.name)
		}
	case w.newMCM && m.heldOnceFailed() && status.Phase != machinev1alpha1.MachineFailed:
	case w.newMCM && (status.PreserveExpiryTime == nil || !status.PreserveExpiryTime.Time.Equal(m.kept.expiry())):
		w.fail("P10: %s has no expiry in its status", m.name)
	}
	if !reachable {
		return
	}
	_, tainted := TaintedSince(m.node)
	switch {
	case tainted && m.kept.workedOn():
		w.fail("M12, X10: the node of %s is tainted", m.name)
	case m.kept.workedOn() && ReadRecord(m.obj).Drains():
		w.fail("M12, X10: the node of %s is drained", m.name)
	case tainted != (m.kept.failed && !m.kept.workedOn()):
		w.fail("T2, T7, H4: the node of %s is tainted: %t", m.name, tainted)
	case m.kept.tentative:
	case m.node.Annotations[disabled] != "true":
		w.fail("P5: the node of %s is not protected", m.name)
	case conditionTrue(m.node) == w.unheld(m):
		w.fail("P11: the node of %s shows that it is held: %t", m.name, conditionTrue(m.node))
	}
}

// heldByMCM says that MCM >= 0.62 neither stops nor terminates the machine, so long as its expiry is in the future.
func (w *world) heldByMCM(m *machine) bool {
	value := m.obj.Annotations[preserve]
	if m.node != nil {
		nodeValue := m.node.Annotations[preserve]
		switch {
		case nodeValue == "yes", nodeValue == "true", nodeValue == "" && has(m.node.Annotations, preserve): // it looks away
			return true
		case nodeValue != "" || m.obj.Annotations[lastApplied] != "":
			value = nodeValue
		}
	}
	return value == "now" || m.heldOnceFailed()
}

// heldOnceFailed says that MCM >= 0.62 reads a when-failed on the node that cannot be changed: it ends each hold until it has
// marked the machine Failed, and then holds it by itself.
func (m *machine) heldOnceFailed() bool {
	if m.node == nil {
		return false
	}
	value, templated := m.obj.Spec.NodeTemplateSpec.Annotations[preserve]
	if !templated {
		return m.node.Annotations[preserve] == "auto-preserved"
	}
	return value == "auto-preserved" || value == "when-failed"
}

// checkFree are the properties of a machine that is not preserved.
func (w *world) checkFree(m *machine) {
	var (
		a      = Noted(m.obj)
		status = m.obj.Status.CurrentStatus
		asked  = m.request()
		native = w.newMCM && (asksMCM(m) || asked == "now" || asked == "when-failed") // what is there may be MCM's
	)
	for key := range a {
		if name, ours := strings.CutPrefix(key, prefix); ours && !slices.Contains(outlives, name) {
			w.fail("%s carries %s", m.name, key)
		}
	}
	switch {
	case a[preservedSince] != span(m.first, m.ended):
		w.fail("P13: for how long %s was preserved is not on record: %s", m.name, span(m.first, m.ended))
	case a[maintainedSince] != span(m.counted, m.worked):
		w.fail("M12: since when %s is maintained is not on record", m.name)
	case !m.deleted && w.nodesKnown && a[remediatedUntil] != stampOrNone(m.spent) && !(w.shootAway && m.spent.IsZero()): // what is spent no more may wait for the node
		w.fail("X10: it is not on record that %s had its time", m.name)
	case !m.deleted && has(a, released) != m.released:
		w.fail("T8: %s is marked as released: %t", m.name, has(a, released))
	case a[priority] != m.priority:
		w.fail("P2: the priority of %s was not put back", m.name)
	case !m.deleted && (a[preserve] != m.onMachine.value || has(a, preserve) != m.onMachine.there && m.onMachine.value != ""):
		w.fail("R2: the request on machine %s is not what a person wrote", m.name)
	case !w.newMCM && status.Phase == machinev1alpha1.MachineUnknown && !m.released && !m.deleted && !status.LastUpdateTime.Time.Equal(m.since):
		w.fail("T6: the health timer of %s was changed", m.name)
	case !w.newMCM && w.nodesKnown && m.node != nil && !m.deleted && a[lastApplied] != synced(m.onNode.value):
		w.fail("R2: the request on the node of %s is not synced", m.name)
	}
	if w.shootAway || !w.nodesKnown || native && !m.deleted {
		return
	}
	expired := status.PreserveExpiryTime != nil && !status.PreserveExpiryTime.After(w.now)
	if !m.deleted && status.PreserveExpiryTime != nil && !(expired && status.Phase == machinev1alpha1.MachineFailed) {
		w.fail("%s has an expiry", m.name)
	}
	if m.node != nil {
		w.checkFreeNode(m)
	}
	m.traces = has(a, released) || has(a, remediatedUntil) || has(a, preservedSince) || has(a, maintainedSince)
}

func (w *world) checkFreeNode(m *machine) {
	a := m.node.Annotations
	_, tainted := TaintedSince(m.node)
	switch {
	case tainted:
		w.fail("the node of %s is tainted", m.name)
	case conditionTrue(m.node):
		w.fail("the node of %s shows that it is preserved", m.name)
	case m.byRollout && !(has(a, byMCM) && a[disabled] == "true"):
		w.fail("P3: the node of %s has lost the protection of MCM", m.name)
	case !w.group.Rollout && (has(a, byMCM) || a[disabled] != m.scaleDown):
		w.fail("P5: the node of %s is protected", m.name)
	case !m.deleted && (a[preserve] != m.onNode.value || has(a, preserve) != m.onNode.there):
		w.fail("R2: the request on the node of %s is not what a person wrote", m.name)
	// What was consumed may be gone before the Machine says so, and nobody goes on with one that is being deleted.
	case a[timeout] != m.onNode.timeout && !(m.deleted && !has(a, timeout)):
		w.fail("R5: the timeout on the node of %s is not what a person wrote", m.name)
	}
}

// checkQuiet is the property that a machine that is not preserved goes when it has failed: nothing is delayed (T6, T8).
func (w *world) checkQuiet() {
	if w.asleep || w.shootAway || w.now.Before(w.blindUntil) {
		return
	}
	for _, m := range w.machines {
		if m.ghost() && m.kept == nil && !m.deleted && !w.down {
			w.fail("H2: nobody ends %s", m.name)
		}
		if w.newMCM && m.kept != nil && m.held && !w.unheld(m) && !w.down && !w.heldByMCM(m) {
			w.fail("P8: MCM does not see that %s is held", m.name)
		}
		deadline := m.deadline()
		if m.kept != nil || m.deleted || deadline.IsZero() || !w.now.After(deadline) {
			continue
		}
		if w.newMCM && w.down && w.spares(m) {
			continue // MCM obeys the request on its own
		}
		w.fail("T6: %s has failed, is not preserved and still there", m.name)
	}
}

// finaleForbidden is that operators forbid everything (R6), and no machine gets well any more: whoever asks, all are replaced.
func (w *world) finaleForbidden() {
	w.normal()
	w.writesLeft = -1
	if !w.group.Forbidden {
		w.forbid()
	}
	for _, m := range w.machines {
		w.failMachine(m)
	}
	w.dirty = true
	w.settle()
	w.pass(creationTimeout + 4*healthTimeout)
	for _, m := range w.machines {
		if !m.deleted && !m.unlimited {
			w.fail("R6: %s is kept for ever", m.name)
		}
	}
}

// finale ends the sequence in one of two ways, after which nothing may be left.
func (w *world) finale() {
	w.t.Logf("%s: finale", clock(w.now))
	slept := w.asleep
	w.asleep, w.dirty = false, true
	if w.shootAway {
		w.shoot()
	}
	if slept { // it puts the pool's annotations on the node before anybody takes them away
		w.settle()
	}
	if rapid.IntRange(0, 3).Draw(w.t, "operators forbid") == 0 {
		w.finaleForbidden()
	}
	for _, m := range w.machines { // else MCM preserves by itself for ever
		m.obj.Spec.NodeTemplateSpec.Annotations = nil
		m.held = !w.syncTemplate(m) && m.held
	}
	if rapid.Bool().Draw(w.t, "the controller is gone") {
		w.down = true
		w.settle()
		w.pass(200 * 24 * time.Hour)
		for _, m := range w.machines {
			// Without a health timeout MCM ends no machine that is Unknown, and after an outage none that never joined.
			if !m.healthy && !m.deleted && !m.unlimited && !m.ghost() && !(w.newMCM && asksMCM(m) && (m.kept == nil || m.withdrawsOnNode())) { // else MCM keeps it by itself
				w.fail("P10: %s is held for ever", m.name)
			}
		}
		return
	}

	w.writesLeft = -1
	w.start()
	w.settle()
	for _, m := range w.machines {
		m.obj.Annotations = with(m.obj.Annotations, preserve, "false")
		m.onMachine.there, m.onMachine.value = true, "false"
		if m.node != nil {
			m.node.Annotations = with(m.node.Annotations, preserve, "false")
			m.onNode.there, m.onNode.value = true, "false"
		}
	}
	w.dirty = true
	w.settle()
	for _, m := range w.machines {
		if m.kept != nil && (!m.kept.onlyRemediated() || !m.cycled && !m.healthy) {
			w.fail("R4: %s is kept for more than its power cycle", m.name)
		}
		w.endRemediation(m) // its host is released
	}
	w.dirty = true
	w.settle()
	for _, m := range w.machines {
		if m.kept != nil || m.traces && !m.released && m.first.IsZero() && m.counted.IsZero() {
			w.fail("%s was not released", m.name)
		}
	}
	w.pass(3 * healthTimeout)
	for _, m := range w.machines {
		if m.well() && m.phase == machinev1alpha1.MachineRunning && !m.maintained && !m.deleted && (has(Noted(m.obj), preservedSince) || has(Noted(m.obj), maintainedSince)) {
			w.fail("P13, M12: what %s has used up does not come back", m.name)
		}
	}
}
