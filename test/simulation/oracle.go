// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// calm is for how long there must have been no fault before something is blamed that it could explain.
	calm = 6 * time.Minute
	// soon is how long it may take until what has happened is acted on, and recently how long machine-controller-manager may take.
	soon     = time.Minute
	recently = 30 * time.Minute
	// denied is for how long the end of a preservation waits for a node that cannot be written to (P14).
	denied = 5 * time.Minute
	// rollTime is how long an update may take after the last thing that was done.
	rollTime = 3 * time.Hour
	// restTime is for how long nothing must be written at the end of a history.
	restTime = 2 * time.Hour
)

// oracle sees all writes, and says what the rules do not allow. A machine or its node that something was done to lately, and
// all of them after a fault, are only blamed for what nothing excuses.
type oracle struct {
	mutex sync.Mutex
	world rules.World
	excuses
	alone   bool
	share   int
	timeout time.Duration
	// longest is for how long people and the share may keep a machine at most.
	longest time.Duration
	// prefersNew says that what fails for a new reason is kept rather than others (P15).
	prefersNew bool
	// shows says that nodes are to show all drains (D13).
	shows bool
	// storm says when too many machines fail at the same time, and stormy since when there are for certain; zero if there are not (P16).
	storm  rules.Limits
	stormy time.Time
	// proof is how it is proven that machines work that are back (V3).
	proof Proof
	// shared says that all zones use the same places (P20).
	shared   bool
	hours    machineHours
	machines map[string]*subject
	sets     map[string]*machinev1alpha1.MachineSet
	pods     podRules
	// class is the name of the newest template's MachineClass.
	class        string
	replicas     int
	maintenances maintenances
	hosts        map[string]*observedHost // by their names
	ledger       ledger

	operators operators
	// spared are machines that were spared when the share was lowered.
	spared []spared

	// outranked are machines that were kept, and terminated in the place of others.
	outranked []outranked

	// replacements are the machines that an update may have cost their places, refused those of which we have said that they get none.
	replacements map[string]time.Time
	refused      map[string]bool

	violation string
	violated  chan struct{}
	// seen counts what has happened, so that a history in which nothing does is noticed.
	seen map[string]int
}

func newOracle(h History) *oracle {
	share := h.Share
	if h.Alone && old {
		share = 0 // it keeps nothing
	}
	world := rules.World{
		Lasts:     map[rules.Kind]time.Duration{rules.Fault: calm, rules.Touched: calm, rules.Blind: soon, rules.Mute: soon, rules.Overwritten: soon, rules.Orphaned: rules.Forever},
		Aftermath: recently, Late: calm, Noticed: soon, Settling: calm, PowerOff: stepTime, HoldsLate: old,
	}
	if h.Alone {
		world.Late += 10 * time.Minute // machine-controller-manager looks no sooner
	}
	return &oracle{
		shows: h.ShowsDrains,
		world: world, alone: h.Alone, share: share, timeout: h.Timeout, longest: h.longest(), prefersNew: h.PrefersNew, proof: h.Proof, shared: h.Shared, hours: machineHours{limit: time.Duration(h.Hours) * time.Hour}, class: pool, replicas: h.Replicas, machines: map[string]*subject{}, sets: map[string]*machinev1alpha1.MachineSet{},
		replacements: map[string]time.Time{}, refused: map[string]bool{}, violated: make(chan struct{}), seen: map[string]int{},
		storm: rules.Limits{
			Number: int(h.Storm.MaxFailing), Percent: int(h.Storm.MaxFailingPercent),
			Settling: h.Storm.SettlingTime, Together: max(h.Storm.SettlingTime, healthTimeout),
		},
		operators: operators{least: h.Timeout, most: h.Timeout},
	}
}

func (o *oracle) blame(rule, format string, args ...any) {
	if o.violation == "" {
		o.violation = rule + ": " + fmt.Sprintf(format, args...)
		close(o.violated)
	}
}

// judge blames what a judge has found of a machine.
func (o *oracle) judge(name string, v *rules.Violation) {
	if v != nil {
		o.blame(v.Rule, "%s %s", name, v.Text)
	}
}

// excuses are those of all machines, or of one.
type excuses struct{ rules.Excuses }

// since returns how long ago the last of some kinds was over: not long if it goes on, forever if there was none.
func (e *excuses) since(kinds ...rules.Kind) time.Duration { return e.Since(time.Now(), kinds...) }

// last returns when that was.
func (e *excuses) last(kinds ...rules.Kind) time.Time { return e.Last(time.Now(), kinds...) }

func (e *excuses) happens(kind rules.Kind) { e.Add(rules.At(time.Now(), kind)) }

// excuse says that there is something for some time that excuses what becomes of all machines.
func (o *oracle) excuse(kind rules.Kind, d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.Add(rules.Excuse{Kind: kind, From: time.Now(), Until: time.Now().Add(d)})
}

// disturb says that there is a fault for some time.
func (o *oracle) disturb(d time.Duration) { o.excuse(rules.Fault, d) }

func (o *oracle) disturbMachine(name string, d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.subject(name).Add(rules.Excuse{Kind: rules.Touched, From: time.Now(), Until: time.Now().Add(d)})
}

func (o *oracle) deny(name string, d time.Duration) {
	o.disturbMachine(name, d)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.subject(name).Add(rules.Excuse{Kind: rules.Denied, From: time.Now(), Until: time.Now().Add(d)})
}

func (o *oracle) ask(name, value string, onNode bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	s := o.subject(name)
	s.asked, s.askedAt = true, time.Now()
	s.onMachine, s.withdrawn = s.onMachine || !onNode, value == ""
	s.happens(rules.Touched)
	switch {
	case value == v1alpha1.RequestFalse:
		s.happens(rules.Withdrawn)
		s.happens(rules.Vetoed)
	case value == "":
		s.happens(rules.Withdrawn)
	case value == nonsense && !onNode && s.holdsByItself():
		s.happens(rules.Overwritten)
	}
}

func (o *oracle) scale(replicas int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if replicas < o.replicas {
		o.happens(rules.ScaledDown)
	}
	o.goesOn(rules.Hibernated, replicas == 0)
	o.replicas = replicas
}

func (o *oracle) roll(class string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.class = class; !o.isRolling(0) {
		o.Add(rules.Excuse{Kind: rules.RollingUpdate, From: time.Now()})
	}
}

// isCalm says that nothing has happened for so long that everything about a machine must be as it is to be.
func (o *oracle) isCalm(s *subject) bool {
	return o.since(rules.Fault) > calm && s.since(rules.Touched) > calm && time.Since(s.changed) > soon
}

// observe is called with each change.
func (o *oracle) observe(change *Change) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch change.resource {
	case "machines":
		o.countHours()
		o.observeMachine(change)
	case "nodes":
		o.observeNode(change)
	case "baremetalhosts":
		o.observeHost(change)
	case "nodemaintenances":
		o.observeMaintenance(change)
	case "machinefailures":
		o.observeLedger(change)
	case "machinesets":
		if o.sets[change.name] = fromUnstructured[machinev1alpha1.MachineSet](change.Object); change.Type == watch.Deleted {
			delete(o.sets, change.name)
		}
		o.observeSets()
	}
	o.observePods(change)
}

// observeSets follows an update: it is over when only the MachineSet of the newest template has machines, or is to have some,
// but for those that are being deleted, which may take a month (P3).
func (o *oracle) observeSets() {
	old, newest := false, false
	for _, s := range o.machines {
		old = old || s.machine != nil && s.machine.DeletionTimestamp == nil && s.machine.Spec.Class.Name != o.class
	}
	for _, set := range o.sets {
		switch {
		case set.Spec.Template.Spec.Class.Name == o.class:
			newest = true
		case set.Spec.Replicas > 0:
			old = true
		}
	}
	if newest && !old && o.isRolling(0) {
		o.Ends(rules.RollingUpdate, time.Now())
	}
}

// isRolling says that an update goes on for some time.
func (o *oracle) isRolling(d time.Duration) bool {
	return o.GoesOn(rules.RollingUpdate) && time.Since(o.Excuses[rules.RollingUpdate].From) >= d
}

// isUpdated says that an update of the machine's zone goes on for some time. Which of two zones is being updated only old machines show.
func (o *oracle) isUpdated(machine *machinev1alpha1.Machine, d time.Duration) bool {
	return o.isRolling(d) && (!o.shared || machine.Spec.Class.Name != o.class)
}

// observeEvent is called with each Event of ours about a machine.
func (o *oracle) observeEvent(name, reason string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.refused[name] = o.refused[name] || reason == preservation.EventRefused
	if s := o.machines[name]; s != nil && reason == preservation.EventPreserved {
		s.told = time.Now()
	}
}

// checkReplaced notes a machine that is terminated as it has failed, and would have had a place if there was no update.
func (o *oracle) checkReplaced(s *subject, before *machinev1alpha1.Machine, change *Change) {
	if o.isUpdated(before, calm) && o.since(rules.Fault) > healthTimeout+calm && s.since(rules.Touched) > calm && !o.alone &&
		!s.everKept && !s.asked && !s.worked && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed && before.Spec.ProviderID != "" &&
		len(o.places(false)) < o.share && o.since(rules.PlaceFreed) > soon {
		o.replacements[change.name] = time.Now()
	}
}

// lookAtReplacements blames that nobody was told of a place that a machine has not got because of an update (P3).
func (o *oracle) lookAtReplacements() {
	for _, name := range slices.Sorted(maps.Keys(o.replacements)) {
		if time.Since(o.replacements[name]) < 10*time.Second {
			continue
		}
		delete(o.replacements, name)
		o.seen["cost its place by an update"]++
		if !o.refused[name] {
			o.blame("P3", "%s has failed and is replaced during an update, the share has room, and no Event says so", name)
		}
	}
}

// outranked is a machine in a phase that was terminated when the pool was scaled down, and spare one that nobody keeps.
type outranked struct {
	machine, phase, spare string
	at                    time.Time
}

// lookAtOutranked blames that machines are terminated that are kept, and not those that are not: MCM terminates those of one scale-down
// one after the other, in any order (P2).
func (o *oracle) lookAtOutranked() {
	o.outranked = slices.DeleteFunc(o.outranked, func(r outranked) bool {
		if time.Since(r.at) < 10*time.Second {
			return false
		}
		if o.machines[r.spare].isSpare() {
			o.blame("P2", "%s is %s and terminated as the pool is scaled down, and %s is not kept", r.machine, r.phase, r.spare)
		}
		return true
	})
}

// look is called every few seconds, for what no write tells.
func (o *oracle) look() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	now := time.Now()
	o.countFailing()
	o.lookAtOutranked()
	o.lookAtReplacements()
	o.lookAtMaintenances()
	o.lookAtHosts()
	o.lookAtOperators()
	o.lookAtSpared()
	o.lookAtHours()
	if o.isRolling(0) {
		// MCM 0.61 replaces one after the other, and each may have pods that hold its drain up.
		last := later(o.Excuses[rules.RollingUpdate].From, o.last(rules.Slow, rules.Fault))
		for _, s := range o.machines {
			last = later(last, s.last(rules.Touched))
		}
		if now.Sub(last) > rollTime {
			o.blame("P3", "the update has not ended that has begun at %s", o.Excuses[rules.RollingUpdate].From.Format(time.TimeOnly))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		s := o.machines[name]
		o.recount(name)
		o.lookAtMaintained(name, s)
		o.lookAtCycle(name, s)
		o.lookAtShown(name, s)
		o.lookAtShownDrain(name, s)
		if s.machine != nil && s.machine.DeletionTimestamp == nil {
			o.lookAtFailure(name, s)
		}
		if s.machine != nil && s.machine.DeletionTimestamp == nil && o.isCalm(s) {
			o.lookAtMachine(name, s)
		}
	}
}

// rest blames what is not as it is to be at the end of a history, when nothing has happened for half of it.
func (o *oracle) rest(w *World) {
	var last *Change
	for _, server := range []*APIServer{w.seed, w.shoot} {
		for _, change := range server.Log() {
			if change.By != "kubelet" && w.now()-change.At.Sub(w.begin) < restTime {
				last = change
			}
		}
	}
	machines, _ := w.seed.List("machines", namespace, labels.Everything())
	nodes, _ := w.shoot.List("nodes", "", labels.Everything())

	vms := w.cloud.Machines()

	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch {
	case last != nil:
		o.blame("rest", "%s still writes: %s", last.By, describe(last))
	case len(machines) != o.replicas || len(nodes) != o.replicas || len(vms) != o.replicas:
		o.blame("rest", "there are %d machines, %d nodes and %d VMs for %d replicas", len(machines), len(nodes), len(vms), o.replicas)
	}
	o.restOfMaintenances()
	o.restOfCycles()
	o.restOfLedger()
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		s := o.machines[name]
		switch {
		case s.machine == nil || s.node == nil || s.machine.Status.CurrentStatus.Phase != machinev1alpha1.MachineRunning || !s.unhealthy.IsZero():
			o.blame("rest", "%s is not a healthy machine", name)
		case s.record.Kept || s.machine.Status.CurrentStatus.PreserveExpiryTime != nil:
			o.blame("rest", "%s is still kept", name)
		case len(s.node.Spec.Taints) > 0:
			o.blame("rest", "the node of %s still has taints: %v", name, s.node.Spec.Taints)
		case s.suspicious != "":
			o.blame("T6", "%s was never kept, and we have written it: %s", name, s.suspicious)
		case !o.alone:
			// A request that nobody withdraws stays.
			if left := rules.Leftovers(s.machine, s.node, v1alpha1.AnnotationPreserve, v1alpha1.AnnotationTimeout, builder.NoteSpentRequest); len(left) > 0 {
				o.blame("rest", "of %s is left %q", name, left)
			}
		}
	}
	o.restOfPods()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
