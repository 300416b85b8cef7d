// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	hostdriver "github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What the oracle knows of machines that somebody works on.

const (
	// maxParallel and powerOff are as in shoot.yaml.
	maxParallel = 3
	powerOff    = time.Minute
	// settling is how long after a maintenance has its node its machine may still be lost: as long as a machine may fail unnoticed
	// and then be past its deadline.
	settling = 30 * time.Second
	// takeover is for how long nobody is there after the sidecar was killed.
	takeover = 30 * time.Second
	// A cordon that somebody takes away is put back later each time, from the shortest to the longest time (M3).
	shortestCordon, longestCordon = 10 * time.Second, 5 * time.Minute

	unattended = "the sidecar had been killed, and a machine that has not failed is held when its deadline comes near, and not before (M12)"
)

// conditionsOfWork are those by which others see that somebody works on a node (M16, X12).
var conditionsOfWork = []corev1.NodeConditionType{
	"MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress", v1alpha1.ConditionPowerCycle,
}

// maintenance is what is known of a NodeMaintenance.
type maintenance struct {
	name, node, phase string
	cordons, failed   bool
	// taken is since when it has its node, ready since when that was handed over, and ending since when it is on its way out; each
	// zero if it is not.
	taken, ready, ending time.Time
}

func (m *maintenance) String() string {
	text := cmp.Or(m.phase, "new")
	if !m.ending.IsZero() {
		text += ", deleted"
	}
	if m.failed {
		text += ", its requestor has failed"
	}
	return "NodeMaintenance " + m.name + ": " + text
}

// node is what is known of a Node.
type node struct {
	ready            corev1.ConditionStatus
	cordoned, fenced bool // fenced: out of service
	request          string
	// uncordoned is since when it is not cordoned, and flaps how often a cordon was taken away from it.
	uncordoned time.Time
	flaps      int
}

func (n *node) String() string {
	return fmt.Sprintf("Ready %s, cordoned %t, out of service %t, request %q", n.ready, n.cordoned, n.fenced, n.request)
}

// machineOf returns the name of the machine of a node, or that of the node if there is none.
func (o *oracle) machineOf(node string) string {
	for name, h := range o.machines {
		if h.node == node {
			return name
		}
	}
	return node
}

// cycleEnds says that the power cycle is over, or that a request which waits keeps the machine no longer. The request itself goes
// before the host is on again.
func cycleEnds(before, s rules.Machine) bool {
	over := []string{"", v1alpha1.PowerCycleSucceeded, v1alpha1.PowerCycleFailed, v1alpha1.PowerCycleCancelled}
	return before.CycleUntil != "" && s.CycleUntil == "" || s.Cycle != before.Cycle && slices.Contains(over, s.Cycle)
}

// unattended says that nobody was there who could have held a machine that had not failed.
func (o *oracle) unattended(before rules.Machine, at time.Time) bool {
	return before.Phase != rules.FailedPreserved && !o.killed.IsZero() && !o.killed.After(at) && at.Sub(o.killed) <= takeover
}

// sawMaintenance takes a state of a NodeMaintenance, or its end.
func (o *oracle) sawMaintenance(nm *maintenancev1alpha1.NodeMaintenance, gone bool, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	m := o.maintenances[nm.Name]
	if m == nil {
		m = &maintenance{name: nm.Name, node: nm.Spec.NodeName}
		o.maintenances[nm.Name] = m
	}
	before := *m
	m.phase, m.cordons, m.failed = rules.PhaseOf(nm), ptr.Deref(nm.Spec.Cordon, true), requestorFailed(nm)
	if (gone || nm.DeletionTimestamp != nil) && m.ending.IsZero() {
		m.ending = now
	}
	cleared := nm.DeletionTimestamp != nil && !slices.Contains(nm.Finalizers, maintenancev1alpha1.Finalizer)
	set := func(since *time.Time, is bool) {
		if !is {
			*since = time.Time{}
		} else if since.IsZero() {
			*since = now
		}
	}
	set(&m.taken, !gone && !cleared && m.phase != "" && m.phase != maintenancev1alpha1.PhasePending)
	set(&m.ready, !m.taken.IsZero() && m.phase == maintenancev1alpha1.PhaseReady)
	if *m == before && !gone {
		return
	}
	h := o.historyOf(o.machineOf(m.node))
	if gone {
		delete(o.maintenances, nm.Name)
		h.note(now, "saw: NodeMaintenance "+m.name+": gone")
	} else {
		h.note(now, "saw: "+m.String())
	}
	if m.phase != before.phase {
		o.counts["maintenance "+cmp.Or(m.phase, "asked for")]++
		o.say(nm.Spec.NodeName + " " + m.String())
	}
	// That of a machine which is on its way out ends because of that (M15).
	if !before.taken.IsZero() && (m.taken.IsZero() || before.ending.IsZero() && !m.ending.IsZero()) && !h.state.Terminating {
		h.reasons = append(h.reasons, reason{now, "NodeMaintenance " + m.name + " over (M13)", v1alpha1.CauseMaintenance})
	}
	o.checkParallel(now)
}

// sawNode takes a state of a Node, or its end.
func (o *oracle) sawNode(object *corev1.Node, gone bool, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if gone {
		delete(o.nodes, object.Name)
		return
	}
	n := o.nodes[object.Name]
	if n == nil {
		n = &node{}
		o.nodes[object.Name] = n
	}
	before := *n
	n.request, n.cordoned, n.fenced, n.ready = object.Annotations[v1alpha1.AnnotationPreserve], object.Spec.Unschedulable, false, ""
	for _, condition := range object.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.ready = condition.Status
		}
	}
	name, since := o.machineOf(object.Name), now
	for _, taint := range object.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			if n.fenced = true; taint.TimeAdded != nil { // it may be seen when the shoot's API server is back
				since = taint.TimeAdded.Time
			}
		}
	}
	switch {
	case n.cordoned:
		n.uncordoned = time.Time{}
	case before.cordoned:
		n.flaps++
		fallthrough
	case n.uncordoned.IsZero():
		n.uncordoned = now
	}
	if n.fenced && !before.fenced {
		o.counts["node made safe"]++
		o.judge(now, func() { o.madeSafe(name, since, now) })
	}
	if *n != before {
		o.historyOf(name).note(now, "saw on the Node: "+n.String())
	}
	o.checkParallel(now)
}

// sawHost takes a state of the host of a machine, whose name it has.
func (o *oracle) sawHost(object *unstructured.Unstructured, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	name := object.GetName()
	if o.hosts[name] == nil {
		o.hosts[name] = &rules.Host{}
	}
	known, h := o.hosts[name], o.historyOf(name)
	before := *known
	known.See(object, now)
	asked := !known.Asked.IsZero()
	if before.On == known.On && before.Asked.IsZero() == !asked {
		return
	}
	if asked && before.Asked.IsZero() {
		o.counts["host asked to be off"]++
	}
	h.note(now, fmt.Sprintf("saw on the host: on %t, asked to be off %t", known.On, asked))
	// It loses its power at once, and may report that later, or never if it is on again before.
	if h.hangs && (before.Asked.IsZero() && asked || before.On && !known.On) {
		h.hangs, h.broken = false, time.Time{}
		h.note(now, "does not hang any more when it has no power")
	}
}

// underWay returns the maintenance that has a node, nil for none.
func (o *oracle) underWay(node string) *maintenance {
	for _, m := range o.maintenances {
		if m.node == node && !m.taken.IsZero() {
			return m
		}
	}
	return nil
}

// terminates judges that a machine is on its way out while a maintenance has its node (M12).
func (o *oracle) terminates(name string, h *history, before rules.Machine, at time.Time) {
	m := o.underWay(h.node)
	if m == nil {
		return
	}
	taken, deployment := m.taken, h.deployment
	o.judge(at, func() {
		why := o.whyTerminated(o.deploymentOf(deployment), h, before, m, taken, at)
		if why == "" {
			o.blame(name, fmt.Sprintf("was terminated while it was %s, and NodeMaintenance %s has had its node since %s (M12)", before, m.name, taken.UTC().Format(time.TimeOnly)), at)
			return
		}
		o.counts["terminated under maintenance"]++
		h.note(at, "terminated under maintenance: "+why)
	})
}

// whyTerminated returns why a machine is terminated whose node is under maintenance, empty if nothing is known. That its time is
// up is no reason: all that keeps it adds up, and it is kept for a maintenance for longer than any run takes.
func (o *oracle) whyTerminated(d *deployment, h *history, before rules.Machine, m *maintenance, taken, at time.Time) string {
	for _, r := range slices.Backward(slices.Concat(d.reasons, h.reasons)) {
		if r.cause == "" && o.passed(r.at, at) <= aftermath {
			return r.text
		}
	}
	n := o.nodes[h.node]
	switch {
	case d.rolling:
		return "rolling update (P3)"
	case !m.ending.IsZero() && !m.ending.After(at.Add(lag)):
		return "the maintenance was over (M13)"
	case o.passed(taken, at) <= settling:
		return "the maintenance had just begun"
	case h.edited:
		return "an operator has ended what it was kept for, and that is not begun anew (P6)"
	case !before.Released.IsZero():
		return "it was on its way out before (T8)"
	case before.Request == v1alpha1.RequestFalse, n != nil && n.request == v1alpha1.RequestFalse:
		return "nobody may keep it (R4)"
	case o.unattended(before, at):
		return unattended
	}
	return ""
}

// checkParallel says whether more nodes are under maintenance than may be at a time (M10).
func (o *oracle) checkParallel(at time.Time) {
	taken := o.takenNodes()
	if len(taken) <= maxParallel {
		return
	}
	o.judge(at, func() {
		// A node that is gone has no slot, which may be seen a moment later.
		taken = slices.DeleteFunc(taken, func(name string) bool { return o.nodes[name] == nil })
		if len(taken) <= maxParallel {
			return
		}
		for _, name := range taken {
			o.blame(o.machineOf(name), fmt.Sprintf("is one of %d nodes under maintenance, and there may be %d (M10): %s", len(taken), maxParallel, strings.Join(taken, ", ")), at)
		}
	})
}

// takenNodes returns the nodes that are under maintenance, in the order of their names.
func (o *oracle) takenNodes() []string {
	var taken []string
	for _, m := range o.maintenances {
		if !m.taken.IsZero() && o.nodes[m.node] != nil && !slices.Contains(taken, m.node) {
			taken = append(taken, m.node)
		}
	}
	slices.Sort(taken)
	return taken
}

// lookAtMaintenances looks for nodes that were handed over, and whose cordon nobody puts back (M3).
func (o *oracle) lookAtMaintenances(disturbed, now time.Time) {
	for _, m := range o.maintenances {
		n := o.nodes[m.node]
		if n == nil || m.ready.IsZero() || !m.ending.IsZero() || !m.cordons || n.uncordoned.IsZero() {
			continue
		}
		machine := o.machineOf(m.node)
		if o.historyOf(machine).state.Terminating {
			continue
		}
		since := m.ready
		if n.uncordoned.After(since) {
			since = n.uncordoned
		}
		patience := min(shortestCordon<<min(n.flaps, 10), longestCordon) + overdue
		if o.passed(since, now) > patience && now.Sub(disturbed) > overdue {
			o.blame(machine, fmt.Sprintf("was handed over to %s, and is not cordoned for more than %s (M3)", m.name, patience), now)
		}
	}
}

// madeSafe judges that a node was made safe: its host must be off, or have been a moment before (X1).
func (o *oracle) madeSafe(machine string, since, at time.Time) {
	h := o.hosts[machine]
	if h != nil && (h.OnSince.IsZero() || h.OnSince.After(since.Add(-lag))) {
		return
	}
	o.blame(machine, "its node was made safe, and its host was on (X1)", at)
}

// lookAtHosts looks for hosts that are kept off for too long, whatever hinders but that nobody is there (X2, X5).
func (o *oracle) lookAtHosts(now time.Time) {
	for name, h := range o.hosts {
		if !h.Asked.IsZero() && now.Sub(h.Asked) > powerOff+overdue && now.Sub(o.killed) > overdue {
			o.blame(name, fmt.Sprintf("its host is asked to be off for more than %s (X5)", powerOff+overdue), now)
		}
	}
}

// leftoversOfHost returns what is left on a host.
func leftoversOfHost(object *unstructured.Unstructured) []string {
	var left []string
	if !baremetalhost.PoweredOn(object) {
		left = append(left, "host: off")
	}
	if value, ok := object.GetAnnotations()[v1alpha1.AnnotationReboot]; ok {
		left = append(left, "host: "+v1alpha1.AnnotationReboot+"="+value)
	}
	if owner := hostdriver.OwnerOf(object); owner != nil {
		left = append(left, fmt.Sprintf("host: %s=%+v", v1alpha1.AnnotationHostOwner, *owner))
	}
	return left
}
