// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// overdue is how late something may be done.
	overdue = 45 * time.Second
	// aftermath is for how long something that was done explains what becomes of a machine: a container that was killed
	// waits for its lease, and machine-controller-manager looks at an unhealthy machine once a minute.
	aftermath = 90 * time.Second
	// settling is how long after a maintenance has its node its machine may still be lost: as long as a machine may fail unnoticed
	// and then be past its deadline.
	settling = 30 * time.Second
	// takeover is for how long nobody is there after the sidecar was killed.
	takeover = 30 * time.Second
	// lag is how far the two watches may be apart: what becomes of a MachineDeployment may be seen after what follows from it.
	lag = 2 * time.Second

	deploymentLabel = "name"
)

// oracle knows what has been done, sees what becomes of the machines, and says what the rules do not allow. It would rather
// miss something than blame what may be right: a reason counts for everything that it could explain.
type oracle struct {
	mutex       sync.Mutex
	world       rules.World
	say         func(string)
	machines    map[string]*history
	deployments map[string]*deployment
	// maintenances are NodeMaintenances by their names, nodes and hosts those of the machines.
	maintenances map[string]*maintenance
	nodes        map[string]*node
	hosts        map[string]*rules.Host
	// outages are those of the shoot's API server. The last one has no end while it lasts.
	outages []outage
	// excuses are those of all machines: that the shoot's API server is away, and that the sidecar was killed.
	excuses rules.Excuses
	// judgements are those that are to come, in their order.
	judgements []judgement
	violations []violation
	counts     map[string]int
}

// judgement is about what was seen at a time.
type judgement struct {
	at   time.Time
	pass func()
}

type outage struct{ from, to time.Time }

type violation struct{ machine, text string }

// history is what is known of a machine.
type history struct {
	deployment string
	node       string
	state      rules.Machine
	// since is when the machine began to be kept.
	since time.Time
	// broken is since when the machine cannot be healthy; zero if it can.
	broken  time.Time
	excuses rules.Excuses
	// hangs says that it is broken until it has no power.
	hangs, blamed bool
	lines         []string
}

// deployment is what is known of a MachineDeployment.
type deployment struct {
	replicas int32
	shares   []share
	excuses  rules.Excuses
}

type share struct {
	from  time.Time
	value int
}

func newOracle(say func(string)) *oracle {
	o := &oracle{
		say: say, machines: map[string]*history{}, deployments: map[string]*deployment{}, maintenances: map[string]*maintenance{},
		nodes: map[string]*node{}, hosts: map[string]*rules.Host{}, counts: map[string]int{},
	}
	o.world = rules.World{
		Aftermath: aftermath, Lasts: map[rules.Kind]time.Duration{rules.Killed: takeover}, Elapsed: o.passed,
		Lag: lag, Late: overdue, Settling: settling, PowerOff: powerOff,
		Noticed: 20 * time.Second, // the shoot takes 8 to notice
		Margin:  40 * time.Second, // more than that of the sidecar
	}
	return o
}

func (o *oracle) historyOf(name string) *history {
	if o.machines[name] == nil {
		o.machines[name] = &history{}
	}
	return o.machines[name]
}

func (o *oracle) deploymentOf(name string) *deployment {
	if o.deployments[name] == nil {
		o.deployments[name] = &deployment{}
	}
	return o.deployments[name]
}

func (h *history) note(now time.Time, text string) {
	h.lines = append(h.lines, now.UTC().Format("15:04:05.000 ")+text)
}

// did says that something was done to a machine that excuses what becomes of it.
func (o *oracle) did(machine string, kind rules.Kind, text string, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	h := o.historyOf(machine)
	h.note(now, "did: "+text)
	h.excuses.Add(rules.At(now, kind))
}

// breaks says that a machine is made to fail, or with nothing that it recovers.
func (o *oracle) breaks(machine, failure string, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	h := o.historyOf(machine)
	h.hangs = failure == string(simulator.KernelHang)
	if failure == "" {
		h.broken = time.Time{}
		h.note(now, "did: recovers")
		return
	}
	h.broken = now
	h.note(now, "did: "+failure)
}

// rollsOut says that a rolling update of a MachineDeployment is begun.
func (o *oracle) rollsOut(name string, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.excuseAll(name, rules.At(now, rules.RollingUpdate), now)
}

// excuseAll takes what excuses what becomes of the machines of a MachineDeployment.
func (o *oracle) excuseAll(name string, x rules.Excuse, now time.Time) {
	o.deploymentOf(name).excuses.Add(x)
	for _, h := range o.machines {
		if h.deployment == name && !h.state.Terminating {
			h.note(now, "did to its MachineDeployment: "+string(x.Kind))
		}
	}
}

// shootAway says that the shoot's API server goes away or comes back.
func (o *oracle) shootAway(away bool, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if away {
		o.outages = append(o.outages, outage{from: now})
		o.excuses.Add(rules.Excuse{Kind: rules.ShootAway, From: now})
	} else {
		o.outages[len(o.outages)-1].to = now
		o.excuses.Ends(rules.ShootAway, now)
	}
}

// killedSidecar says that the sidecar was killed.
func (o *oracle) killedSidecar(now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.excuses.Add(rules.At(now, rules.Killed))
}

// sawDeployment takes a state of a MachineDeployment.
func (o *oracle) sawDeployment(d *machinev1alpha1.MachineDeployment, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	known := o.deploymentOf(d.Name)
	if d.Spec.Replicas < known.replicas {
		o.excuseAll(d.Name, rules.At(now, rules.ScaledDown), now)
	}
	known.replicas = d.Spec.Replicas
	switch rolling := d.Status.UpdatedReplicas < d.Status.Replicas; {
	case rolling && !known.excuses.GoesOn(rules.RollingUpdate):
		o.excuseAll(d.Name, rules.Excuse{Kind: rules.RollingUpdate, From: now}, now)
	case !rolling && known.excuses.GoesOn(rules.RollingUpdate):
		known.excuses.Ends(rules.RollingUpdate, now)
	}
	value, err := strconv.Atoi(d.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax])
	if err != nil {
		return // nobody has said so yet
	}
	if n := len(known.shares); n == 0 || known.shares[n-1].value != value {
		if n > 0 && value < known.shares[n-1].value {
			o.excuseAll(d.Name, rules.At(now, rules.ShareLowered), now)
		}
		known.shares = append(known.shares, share{now, value})
	}
}

// rolling says whether a rolling update is under way anywhere.
func (o *oracle) rolling() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, d := range o.deployments {
		if d.excuses.GoesOn(rules.RollingUpdate) {
			return true
		}
	}
	return false
}

// saw takes a state of a Machine, or its end.
func (o *oracle) saw(m *machinev1alpha1.Machine, gone bool, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	h, current := o.historyOf(m.Name), rules.ReadMachine(m)
	h.deployment, h.node = m.Labels[deploymentLabel], m.Labels[machinev1alpha1.NodeLabelKey]
	if gone {
		current = rules.Machine{Status: "gone", Terminating: true}
	}
	before := h.state
	if h.state = current; current.String() == before.String() {
		return
	}
	h.note(now, "saw: "+current.String())
	if current.Terminating && !before.Terminating {
		o.terminates(m.Name, h, before, now)
	}
	if current.Cycle != before.Cycle && current.Cycle != "" {
		o.counts["power cycle "+current.Cycle]++
		o.say(m.Name + " power cycle " + current.Cycle)
	}
	if cycleEnds(before, current) {
		h.excuses.Add(rules.At(now, rules.PowerCycleOver))
	}
	switch {
	case current.Kept && !before.Kept:
		h.since = now
		o.tell(m.Name, "kept: "+current.String())
	case current.Kept && current.Phase != before.Phase:
		o.tell(m.Name, current.String())
		o.blame(m.Name, o.world.TakenForHealthy(before, current, h.broken, now), now)
	case before.Kept && !current.Kept:
		end := rules.End{Was: before, Is: current, At: now, Since: h.since, Early: time.Second, Full: true}
		o.judge(now, func() { o.ended(m.Name, h, end) })
	}
	o.checkShare(h.deployment, now)
}

// judge has a judgement passed on what was seen, when all that explains it has been seen as well.
func (o *oracle) judge(at time.Time, pass func()) {
	o.judgements = append(o.judgements, judgement{at, pass})
}

// tell counts a transition, and says it.
func (o *oracle) tell(machine, text string) {
	what, _, _ := strings.Cut(text, " (")
	o.counts[what]++
	o.say(machine + " " + text)
}

// ended judges the end of a preservation.
func (o *oracle) ended(name string, h *history, end rules.End) {
	verb := "let go"
	if end.Is.Terminating {
		verb = "terminated"
	}
	why, violation := o.world.Ended(end, o.deploymentOf(h.deployment).excuses, h.excuses, o.excuses)
	if violation != nil {
		o.blame(name, violation, end.At)
		return
	}
	o.counts[verb]++
	o.say(fmt.Sprintf("%s %s: %s", name, verb, why))
	h.note(end.At, verb+": "+why)
}

// passed returns how long ago something was, not counting the time in which the shoot's API server was away.
func (o *oracle) passed(at, now time.Time) time.Duration {
	passed := now.Sub(at)
	for _, outage := range o.outages {
		from, to := outage.from, outage.to
		if to.IsZero() || to.After(now) {
			to = now
		}
		if from.Before(at) {
			from = at
		}
		if to.After(from) {
			passed -= to.Sub(from)
		}
	}
	return passed
}

// checkShare says whether more machines are auto-preserved than there are places, or have been a while before (P1, T9).
func (o *oracle) checkShare(name string, at time.Time) {
	var held []string
	for machine, h := range o.machines {
		if h.deployment == name && h.state.UsesShare(at) {
			held = append(held, machine)
		}
	}
	if len(held) == 0 {
		return
	}
	slices.Sort(held)
	o.judge(at, func() {
		limit, shares := 0, o.deploymentOf(name).shares
		for i, share := range shares {
			begun := !share.from.After(at.Add(lag))
			ended := i+1 < len(shares) && o.passed(shares[i+1].from, at) > aftermath
			if begun && !ended {
				limit = max(limit, share.value)
			}
		}
		for _, machine := range held {
			o.blame(machine, rules.OverShare(held, limit), at)
		}
	})
}

// tick passes the judgements that are due, and looks for machines that are kept for too long.
func (o *oracle) tick(now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for len(o.judgements) > 0 && now.Sub(o.judgements[0].at) > lag {
		o.judgements[0].pass()
		o.judgements = o.judgements[1:]
	}
	o.lookAtHosts(now)
	o.lookAtMaintenances(now)
	for name, h := range o.machines {
		o.blame(name, o.world.Overdue(h.state, now, o.excuses), now)
	}
}

// blame takes down what the rules do not allow, the first thing of each machine.
func (o *oracle) blame(name string, v *rules.Violation, now time.Time) {
	if v == nil {
		return
	}
	h, text := o.historyOf(name), v.String()
	h.note(now, "VIOLATION: "+text)
	if h.blamed {
		return
	}
	h.blamed = true
	o.violations = append(o.violations, violation{name, text})
	o.say(fmt.Sprintf("VIOLATION: %s %s", name, text))
}
