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
)

const (
	// calm is for how long there must have been no fault before something is blamed that it could explain.
	calm = 6 * time.Minute
	// soon is how long it may take until what has happened is acted on.
	soon = time.Minute
	// rollTime is how long an update may take after the last thing that was done.
	rollTime = 3 * time.Hour
	// restTime is for how long nothing must be written at the end of a history.
	restTime = 2 * time.Hour

	failedPreserved  = "Failed:Preserved"
	runningPreserved = "Running:Preserved"
)

// oracle sees all writes, and says what the rules do not allow. A machine or its node that something was done to lately, and
// all of them after a fault, are only blamed for what nothing excuses.
type oracle struct {
	mutex   sync.Mutex
	alone   bool
	share   int
	timeout time.Duration
	// longest is for how long people and the share may keep a machine at most.
	longest  time.Duration
	machines map[string]*subject
	sets     map[string]*machinev1alpha1.MachineSet
	pods     podRules
	// class is the name of the newest template's MachineClass.
	class string
	// rolling is since when machines are replaced because of an update, rolled until when; zero for not, and never.
	rolling, rolled time.Time
	// scaled is when machines were last to become fewer.
	replicas int
	scaled   time.Time
	// replaced is when a machine was last gone.
	replaced time.Time
	// disturbed is when the last fault was over, and is in the future while there is one.
	disturbed time.Time
	// blind is until when the sidecar could not see what becomes of nodes, mute until when it could not write Machines.
	blind, mute time.Time
	// clinging is until when a machine may stay that is deleted.
	clinging time.Time
	// advanced is when the last machine of before the update began to go, or was gone.
	advanced     time.Time
	maintenances maintenances
	hosts        map[string]*observedHost // by their names
	ledger       ledger

	// freed is when a machine last gave its place back.
	freed time.Time
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
	return &oracle{
		alone: h.Alone, share: share, timeout: h.Timeout, longest: h.longest(), class: pool, replicas: h.Replicas, machines: map[string]*subject{}, sets: map[string]*machinev1alpha1.MachineSet{},
		replacements: map[string]time.Time{}, refused: map[string]bool{}, violated: make(chan struct{}), seen: map[string]int{},
	}
}

func (o *oracle) blame(rule, format string, args ...any) {
	if o.violation == "" {
		o.violation = rule + ": " + fmt.Sprintf(format, args...)
		close(o.violated)
	}
}

// disturb says that there is a fault for some time.
func (o *oracle) disturb(d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.disturbed = later(o.disturbed, time.Now().Add(d))
}

// blindFor says that the sidecar cannot see what becomes of nodes for some time.
func (o *oracle) blindFor(d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.blind = later(o.blind, time.Now().Add(d+soon))
}

// muteFor says that the sidecar cannot write Machines for some time.
func (o *oracle) muteFor(d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.mute = later(o.mute, time.Now().Add(d+soon))
}

func (o *oracle) disturbMachine(name string, d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	s := o.subject(name)
	s.disturbed = later(s.disturbed, time.Now().Add(d))
}

func (o *oracle) ask(name, value string, onNode bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	s := o.subject(name)
	s.asked, s.askedAt, s.disturbed = true, time.Now(), later(s.disturbed, time.Now())
	switch {
	case value == v1alpha1.RequestFalse:
		s.denied, s.vetoed = time.Now(), time.Now()
	case value == "":
		s.denied = time.Now()
	case value == nonsense && !onNode && s.holdsByItself():
		s.overwritten = time.Now()
	}
}

func (o *oracle) scale(replicas int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if replicas < o.replicas {
		o.scaled = time.Now()
	}
	o.replicas = replicas
}

func (o *oracle) roll(class string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.class = class; o.rolling.IsZero() {
		o.rolling = time.Now()
	}
}

// cling says that a machine that is deleted may stay for some time, which others may have to wait for.
func (o *oracle) cling(d time.Duration) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.clinging = later(o.clinging, time.Now().Add(d))
}

// isCalm says that nothing has happened for so long that everything about a machine must be as it is to be.
func (o *oracle) isCalm(s *subject) bool {
	return time.Since(o.disturbed) > calm && time.Since(s.disturbed) > calm && time.Since(s.changed) > soon
}

// observe is called with each change.
func (o *oracle) observe(change *Change) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch change.resource {
	case "machines":
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
	if newest && !old && !o.rolling.IsZero() {
		o.rolling, o.rolled = time.Time{}, time.Now()
	}
}

// isReplaced says that machines are replaced because of an update, or were a moment ago.
func (o *oracle) isReplaced() bool { return !o.rolling.IsZero() || recent(o.rolled) }

// observeEvent is called with each Event of ours about a machine.
func (o *oracle) observeEvent(name, reason string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.refused[name] = o.refused[name] || reason == preservation.EventRefused
}

// checkReplaced notes a machine that is terminated as it has failed, and would have had a place if there was no update.
func (o *oracle) checkReplaced(s *subject, before *machinev1alpha1.Machine, change *Change) {
	if !o.rolling.IsZero() && time.Since(o.rolling) > calm && time.Since(o.disturbed) > healthTimeout+calm && time.Since(s.disturbed) > calm && !o.alone &&
		!s.everKept && !s.asked && !s.worked && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed && before.Spec.ProviderID != "" &&
		len(o.places(false)) < o.share && time.Since(o.freed) > soon {
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
	o.lookAtOutranked()
	o.lookAtReplacements()
	o.lookAtMaintenances()
	o.lookAtHosts()
	if !o.rolling.IsZero() {
		// MCM 0.61 replaces one after the other, and each may have pods that hold its drain up.
		last := later(later(o.rolling, o.advanced), later(later(o.disturbed, o.clinging), o.pods.hindered))
		for _, s := range o.machines {
			last = later(last, s.disturbed)
		}
		if now.Sub(last) > rollTime {
			o.blame("P3", "the update has not ended that has begun at %s", o.rolling.Format(time.TimeOnly))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		s := o.machines[name]
		o.recount(name)
		o.lookAtMaintained(name, s)
		o.lookAtCycle(name, s)
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
		case s.record.kept || s.machine.Status.CurrentStatus.PreserveExpiryTime != nil:
			o.blame("rest", "%s is still kept", name)
		case s.node.Annotations[v1alpha1.AnnotationScaleDownDisabled] != "" || len(s.node.Spec.Taints) > 0 || s.node.Spec.Unschedulable:
			o.blame("rest", "the node of %s still has marks: %v, %v", name, s.node.Annotations, s.node.Spec.Taints)
		case s.suspicious != "":
			o.blame("T6", "%s was never kept, and we have written it: %s", name, s.suspicious)
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
