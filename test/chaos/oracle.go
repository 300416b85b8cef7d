// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// overdue is for how long a machine may be kept beyond its expiry.
	overdue = 45 * time.Second
	// aftermath is for how long something that was done explains what becomes of a machine: a container that was killed
	// waits for its lease, and machine-controller-manager looks at an unhealthy machine once a minute.
	aftermath = 90 * time.Second
	// noticed is how long after it broke a machine may still be taken for healthy: the shoot takes 8 seconds to notice.
	noticed = 20 * time.Second
	// marginal is more than the margin before a deadline in which a machine is held that has not failed yet (H4).
	marginal = 40 * time.Second

	// lag is how far the two watches may be apart: what becomes of a MachineDeployment may be seen after what follows from it.
	lag = 2 * time.Second

	deploymentLabel = "name"
)

// oracle knows what has been done, sees what becomes of the machines, and says what the rules do not allow. It would rather
// miss something than blame what may be right: a reason counts for everything that it could explain.
type oracle struct {
	mutex       sync.Mutex
	say         func(string)
	machines    map[string]*history
	deployments map[string]*deployment
	// maintenances are NodeMaintenances by their names, nodes and hosts those of the machines.
	maintenances map[string]*maintenance
	nodes        map[string]*node
	hosts        map[string]*rules.Host
	// outages are those of the shoot's API server. The last one has no end while it lasts.
	outages []outage
	// killed is when the sidecar was killed for the last time.
	killed time.Time
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
	reasons []reason
	// hangs says that it is broken until it has no power, and edited that an operator has edited an expiry of it.
	hangs, edited bool
	blamed        bool
	lines         []string
}

// reason is something that may end the preservation of a machine, or only what it is kept for by a claim of one cause.
type reason struct {
	at    time.Time
	text  string
	cause string
}

// deployment is what is known of a MachineDeployment.
type deployment struct {
	replicas int32
	shares   []share
	rolling  bool
	reasons  []reason
}

type share struct {
	from  time.Time
	value int
}

func newOracle(say func(string)) *oracle {
	return &oracle{
		say: say, machines: map[string]*history{}, deployments: map[string]*deployment{}, maintenances: map[string]*maintenance{},
		nodes: map[string]*node{}, hosts: map[string]*rules.Host{}, counts: map[string]int{},
	}
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

// did says that something was done to a machine that may end its preservation.
func (o *oracle) did(machine, text string, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	h := o.historyOf(machine)
	h.note(now, "did: "+text)
	h.reasons = append(h.reasons, reason{at: now, text: text})
}

// editedExpiry says that an operator has edited the expiry of a machine.
func (o *oracle) editedExpiry(machine, text string, now time.Time) {
	o.did(machine, text, now)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.historyOf(machine).edited = true
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

// didToAll says that something was done to the machines of a MachineDeployment that may end preservations.
func (o *oracle) didToAll(name, text string, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.explain(name, text, now)
}

func (o *oracle) explain(name, text string, now time.Time) {
	d := o.deploymentOf(name)
	d.reasons = append(d.reasons, reason{at: now, text: text})
	for _, h := range o.machines {
		if h.deployment == name && !h.state.Terminating {
			h.note(now, "did to its MachineDeployment: "+text)
		}
	}
}

// shootAway says that the shoot's API server goes away or comes back.
func (o *oracle) shootAway(away bool, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if away {
		o.outages = append(o.outages, outage{from: now})
	} else {
		o.outages[len(o.outages)-1].to = now
	}
}

// killedSidecar says that the sidecar was killed.
func (o *oracle) killedSidecar(now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.killed = now
}

// sawDeployment takes a state of a MachineDeployment.
func (o *oracle) sawDeployment(d *machinev1alpha1.MachineDeployment, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	known := o.deploymentOf(d.Name)
	if d.Spec.Replicas < known.replicas {
		o.explain(d.Name, fmt.Sprintf("scaled down from %d to %d (P2)", known.replicas, d.Spec.Replicas), now)
	}
	known.replicas = d.Spec.Replicas
	rolling := d.Status.UpdatedReplicas < d.Status.Replicas
	if rolling != known.rolling {
		o.explain(d.Name, fmt.Sprintf("rolling update under way: %t (P3)", rolling), now)
	}
	known.rolling = rolling
	value, err := strconv.Atoi(d.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax])
	if err != nil {
		return // nobody has said so yet
	}
	if n := len(known.shares); n == 0 || known.shares[n-1].value != value {
		if n > 0 && value < known.shares[n-1].value {
			o.explain(d.Name, fmt.Sprintf("share lowered to %d (T9)", value), now)
		}
		known.shares = append(known.shares, share{now, value})
	}
}

// rolling says whether a rolling update is under way anywhere.
func (o *oracle) rolling() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, d := range o.deployments {
		if d.rolling {
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
		h.reasons = append(h.reasons, reason{now, fmt.Sprintf("power cycle over, %q (X10)", current.Cycle), v1alpha1.CauseRemediation})
	}
	switch {
	case current.Kept && !before.Kept:
		h.since = now
		o.tell(m.Name, "kept: "+current.String())
	case current.Kept && current.Phase != before.Phase:
		o.tell(m.Name, current.String())
		if before.Phase == rules.FailedPreserved && !h.broken.IsZero() && o.passed(h.broken, now) > noticed {
			o.blame(m.Name, "is taken for healthy although it is not (H1): "+current.String(), now)
		}
	case before.Kept && !current.Kept:
		since := h.since
		o.judge(now, func() { o.ended(m.Name, h, before, current, since, now) })
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
func (o *oracle) ended(name string, h *history, before, current rules.Machine, since, at time.Time) {
	verb := "let go"
	if current.Terminating {
		verb = "terminated"
	}
	why := o.why(h, before, current, since, at)
	if why == "" {
		o.blame(name, fmt.Sprintf("was %s without a reason while it was %s", verb, before), at)
		return
	}
	o.counts[verb]++
	o.say(fmt.Sprintf("%s %s: %s", name, verb, why))
	h.note(at, verb+": "+why)
}

// why returns why a preservation ended, empty if nothing is known.
func (o *oracle) why(h *history, before, current rules.Machine, since, at time.Time) string {
	if !at.Add(time.Second).Before(before.Expiry) {
		return "expiry (T3, T8)"
	}
	d := o.deploymentOf(h.deployment)
	for _, r := range slices.Backward(slices.Concat(d.reasons, h.reasons)) {
		if _, claimed := before.Claims[r.cause]; o.passed(r.at, at) <= aftermath && (r.cause == "" || claimed) {
			return r.text
		}
	}
	_, auto := before.Claims[v1alpha1.CauseAuto]
	switch {
	case d.rolling:
		return "rolling update (P3)"
	case auto && before.Phase != "" && before.Phase != rules.FailedPreserved: // without one it is held before its deadline
		return "it recovered, failed again, and found no place (P1)"
	case before.Phase == "" && current.Status == machinev1alpha1.MachineRunning && at.Sub(since) <= marginal:
		return "it was healthy again before its deadline (H4)"
	case before.IsOnlyWorkedOn(at) && o.unattended(before, at):
		return unattended
	}
	return ""
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
		if len(held) <= limit {
			return
		}
		for _, machine := range held {
			o.blame(machine, fmt.Sprintf("was one of %d auto-preserved machines in %s, the share was %d (P1): %s", len(held), rules.FailedPreserved, limit, strings.Join(held, ", ")), at)
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
	disturbed := o.killed
	if n := len(o.outages); n > 0 {
		if o.outages[n-1].to.IsZero() {
			return
		}
		if o.outages[n-1].to.After(disturbed) {
			disturbed = o.outages[n-1].to
		}
	}
	o.lookAtMaintenances(disturbed, now)
	for name, h := range o.machines {
		if h.state.Kept && now.Sub(h.state.Expiry) > overdue && now.Sub(disturbed) > overdue {
			o.blame(name, fmt.Sprintf("is kept for more than %s beyond its expiry: %s", overdue, h.state), now)
		}
	}
}

// blame takes down what the rules do not allow, the first thing of each machine.
func (o *oracle) blame(name, text string, now time.Time) {
	h := o.historyOf(name)
	h.note(now, "VIOLATION: "+text)
	if h.blamed {
		return
	}
	h.blamed = true
	o.violations = append(o.violations, violation{name, text})
	o.say(fmt.Sprintf("VIOLATION: %s %s", name, text))
}

// lasting are annotations that stay when all is over: what the longest time is counted from for which a machine may be kept
// (P13), or kept because of maintenances (M12), and when its power cycles of the last day were (X9).
var lasting = []string{builder.NotePreservedSince, builder.NoteMaintainedSince, v1alpha1.AnnotationPowerCycleRecord}

// leftovers returns what is left on a machine that is neither kept nor going, and on its node.
func leftovers(m *machinev1alpha1.Machine, node *corev1.Node) []string {
	var left []string
	add := func(on, what string) { left = append(left, on+": "+what) }
	keys := func(on string, annotations map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if slices.Contains(lasting, key) {
				continue
			}
			if key == v1alpha1.AnnotationPreserve || key == v1alpha1.AnnotationNeedsRemediation || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, v1alpha1.AnnotationScaleDownDisabled) {
				add(on, key+"="+annotations[key])
			}
		}
	}
	keys("Machine", m.Annotations)
	if priority := m.Annotations[v1alpha1.AnnotationMachinePriority]; priority != "" && priority != "3" {
		add("Machine", v1alpha1.AnnotationMachinePriority+"="+priority)
	}
	if phase := m.Status.CurrentStatus.Phase; phase != machinev1alpha1.MachineRunning {
		add("Machine", "phase "+string(phase))
	}
	if m.Status.CurrentStatus.PreserveExpiryTime != nil {
		add("Machine", "expiry in the status")
	}
	if m.DeletionTimestamp != nil {
		add("Machine", "is going")
	}
	for _, finalizer := range m.Finalizers {
		if strings.HasPrefix(finalizer, v1alpha1.GroupName+"/") {
			add("Machine", "finalizer "+finalizer)
		}
	}
	if node == nil {
		add("Node", "there is none")
		return left
	}
	keys("Node", node.Annotations)
	if node.Spec.Unschedulable {
		add("Node", "cordoned")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintPreserved || taint.Key == corev1.TaintNodeOutOfService || strings.HasPrefix(taint.Key, v1alpha1.GroupName+"/") {
			add("Node", "taint "+taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Preserved" && condition.Status == corev1.ConditionTrue {
			add("Node", "condition Preserved is True: "+condition.Message)
		}
		if slices.Contains(conditionsOfWork, condition.Type) {
			add("Node", "condition "+string(condition.Type)+": "+condition.Message)
		}
	}
	return left
}
