// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What the oracle knows of machines that somebody works on.

const (
	// maxParallel and powerOff are as in shoot.yaml.
	maxParallel = 3
	powerOff    = time.Minute
)

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
	cordon           rules.Cordon
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
	m.ending = rules.Since(m.ending, gone || nm.DeletionTimestamp != nil, now)
	m.taken = rules.Since(m.taken, !gone && rules.IsUnderWay(nm), now)
	m.ready = rules.Since(m.ready, !m.taken.IsZero() && m.phase == maintenancev1alpha1.PhaseReady, now)
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
		h.excuses.Add(rules.At(now, rules.MaintenanceOver))
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
	n.cordon.See(object, now)
	if n.fenced && !before.fenced {
		o.counts["node made safe"]++
		o.judge(now, func() { o.blame(name, o.world.MadeSafe(o.hosts[name], since), now) })
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
	work := rules.Work{Taken: m.taken, Anew: at.Add(lag)} // it was released before that
	o.judge(at, func() {
		// Its end may be seen a moment later.
		work.Ending = m.ending
		request := ""
		if n := o.nodes[h.node]; n != nil {
			request = n.request
		}
		why := o.world.Unkept(before, request, work, at, o.deploymentOf(h.deployment).excuses, h.excuses, o.excuses)
		if why == "" {
			o.blame(name, &rules.Violation{Rule: "M12", Text: fmt.Sprintf("was terminated while it was %s, and NodeMaintenance %s has had its node since %s", before, m.name, work.Taken.UTC().Format(time.TimeOnly))}, at)
			return
		}
		o.counts["terminated under maintenance"]++
		h.note(at, "terminated under maintenance: "+why)
	})
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
		for _, name := range taken {
			o.blame(o.machineOf(name), rules.TooMany(taken, maxParallel), at)
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
func (o *oracle) lookAtMaintenances(now time.Time) {
	for _, m := range o.maintenances {
		n, machine := o.nodes[m.node], o.machineOf(m.node)
		if n != nil && !m.ready.IsZero() && m.ending.IsZero() && m.cordons && !o.historyOf(machine).state.Terminating {
			o.blame(machine, o.world.PutBack(n.cordon, m.ready, now, o.excuses), now)
		}
	}
}

// lookAtHosts looks for hosts that are kept off for too long (X5).
func (o *oracle) lookAtHosts(now time.Time) {
	for name, h := range o.hosts {
		o.blame(name, o.world.KeptOff(h, false, now, o.excuses), now)
	}
}
