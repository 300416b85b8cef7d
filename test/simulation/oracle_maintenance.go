// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// maintained is a NodeMaintenance as it was written last, and since when it is in its phase, and is being deleted.
type maintained struct {
	*maintenancev1alpha1.NodeMaintenance

	since, ending time.Time
}

// maintenances are what the oracle knows of them.
type maintenances struct {
	byName map[string]*maintained
	// changed is when one of a node has last taken another course, free since when no node is under maintenance.
	changed map[string]time.Time
	free    time.Time
}

func (m *maintained) hasFinalizer() bool {
	return slices.Contains(m.Finalizers, maintenancev1alpha1.Finalizer)
}

// work says that somebody works on a machine, or is going to.
func (o *oracle) work(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.subject(name).worked = true
}

// of returns the maintenance that has a node, nil for none.
func (m *maintenances) of(node string) *maintained {
	for _, nm := range m.byName {
		if nm.Spec.NodeName == node && rules.IsUnderWay(nm.NodeMaintenance) {
			return nm
		}
	}
	return nil
}

func (o *oracle) observeMaintenance(change *Change) {
	m := &o.maintenances
	if m.byName == nil {
		m.byName, m.changed = map[string]*maintained{}, map[string]time.Time{}
	}
	after := &maintained{NodeMaintenance: fromUnstructured[maintenancev1alpha1.NodeMaintenance](change.Object), since: time.Now()}
	node := after.Spec.NodeName
	defer o.recount(node)
	if change.Type == watch.Deleted {
		delete(m.byName, change.name)
		m.changed[node] = time.Now()
		o.settleMaintenances()
		return
	}
	before := m.byName[change.name]
	m.byName[change.name] = after
	if before == nil {
		m.changed[node] = time.Now()
		return
	}
	from, to := rules.PhaseOf(before.NodeMaintenance), rules.PhaseOf(after.NodeMaintenance)
	if after.ending = before.ending; after.DeletionTimestamp != nil && after.ending.IsZero() {
		after.ending, m.changed[node] = time.Now(), time.Now()
	}
	if after.since = before.since; from != to {
		after.since, m.changed[node] = time.Now(), time.Now()
		o.seen[fmt.Sprintf("maintenance %s > %s", from, to)]++
	}
	if !rules.IsUnderWay(before.NodeMaintenance) && rules.IsUnderWay(after.NodeMaintenance) && (from != maintenancev1alpha1.PhasePending || to != maintenancev1alpha1.PhaseScheduled || after.DeletionTimestamp != nil) {
		o.blame("M2", "%s becomes %s, and was %q", change.name, to, from)
	}
	o.settleMaintenances()
}

func (o *oracle) settleMaintenances() {
	nodes := map[string]bool{}
	for _, nm := range o.maintenances.byName {
		// One of a node that is gone has no slot.
		if s := o.machines[nm.Spec.NodeName]; rules.IsUnderWay(nm.NodeMaintenance) && s != nil && s.node != nil {
			nodes[nm.Spec.NodeName] = true
		}
	}
	taken := slices.Sorted(maps.Keys(nodes))
	if v := rules.TooMany(taken, maxParallel); v != nil {
		o.judge(taken[0], v)
	}
	o.maintenances.free = rules.Since(o.maintenances.free, len(taken) == 0, time.Now())
}

// checkMaintainedNode blames what is written on a node of which there is no maintenance, or one that waits.
func (o *oracle) checkMaintainedNode(change *Change, before, after *corev1.Node) {
	if change.By != sidecarName || before == nil || after == nil {
		return
	}
	marks := rules.MarksOfMaintenance(after)
	if nm := o.maintenances.of(after.Name); len(marks) > len(rules.MarksOfMaintenance(before)) && (nm == nil || !nm.hasFinalizer()) {
		o.blame("M2", "the node of %s gets %q, and no maintenance has it", change.name, marks)
	}
	if !before.Spec.Unschedulable && after.Spec.Unschedulable && !slices.Contains(marks, "cordon") {
		o.blame("M3", "the node of %s is cordoned without a record of it", change.name)
	}
}

// owesMaintenance says that a machine must be kept by now as its node is under maintenance (M12).
func (o *oracle) owesMaintenance(name string, s *subject) bool {
	return o.isMaintained(name, s) && o.isCalm(s) && time.Since(o.maintenances.changed[name]) > soon
}

// isMaintained says that a machine is to be kept as its node is under maintenance.
func (o *oracle) isMaintained(name string, s *subject) bool {
	nm := o.maintenances.of(name)
	if !s.editedAt.IsZero() { // what an operator has ended is not begun anew (P6)
		return false
	}
	if nm == nil || o.isRolling(0) || s.GoesOn(rules.Forbidden) || o.GoesOn(rules.Forbidden) || o.GoesOn(rules.Hibernated) || s.maintained.isUsedUp(maxHoldTime) ||
		!old && s.last(rules.Withdrawn).After(s.maintained.longest.first) { // with what is withdrawn, MCM 0.62 ends what it held
		return false
	}
	work := rules.Work{Ending: nm.ending, Anew: later(s.maintained.longest.first, nm.CreationTimestamp.Time)}
	if rules.PhaseOf(nm.NodeMaintenance) == maintenancev1alpha1.PhaseScheduled {
		work.Taken = nm.since
	}
	request := ""
	if s.node != nil {
		request = s.node.Annotations[v1alpha1.AnnotationPreserve]
	}
	return o.world.Unkept(s.record, request, work, time.Now()) == ""
}

// lookAtMaintained blames what is on a node, or is not, because of a maintenance.
func (o *oracle) lookAtMaintained(name string, s *subject) {
	if s.machine == nil || s.machine.DeletionTimestamp != nil || s.node == nil {
		return
	}
	if !s.record.Kept && o.owesMaintenance(name, s) {
		o.blame("M12", "the node of %s is under maintenance, and the machine is not kept", name)
	}
	if !o.isCalm(s) || time.Since(o.maintenances.changed[name]) < calm {
		return
	}
	// While the machine was not healthy, its claim had the health timeout left.
	if _, claimed := s.record.Claims[v1alpha1.CauseMaintenance]; claimed && o.maintenances.of(name) == nil && time.Since(o.maintenances.changed[name]) > healthTimeout+calm && !o.alone {
		o.blame("M13", "%s is kept for a maintenance, and none has its node", name)
	}
	if marks := rules.MarksOfMaintenance(s.node); o.maintenances.of(name) == nil && len(marks) > 0 {
		o.blame("M7", "the node of %s still has %q, and no maintenance has it", name, marks)
	}
	one := slices.ContainsFunc(slices.Collect(maps.Values(o.maintenances.byName)), func(nm *maintained) bool { return nm.Spec.NodeName == name })
	for _, c := range s.node.Status.Conditions {
		if c.Reason == "NodeMaintenance" && !one {
			o.blame("M16", "the node of %s still has condition %s, and there is no maintenance of it", name, c.Type)
		}
	}
}

// lookAtMaintenances blames maintenances that do not go on.
func (o *oracle) lookAtMaintenances() {
	if o.since(rules.Fault) <= calm {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(o.maintenances.byName)) {
		nm := o.maintenances.byName[name]
		s := o.machines[nm.Spec.NodeName]
		if s == nil || s.machine == nil || s.node == nil || !o.isCalm(s) {
			continue
		}
		phase, since := rules.PhaseOf(nm.NodeMaintenance), time.Since(nm.since)
		if phase == maintenancev1alpha1.PhaseReady && nm.ending.IsZero() && ptr.Deref(nm.Spec.Cordon, true) && s.machine.DeletionTimestamp == nil {
			o.judge(nm.Spec.NodeName, o.world.PutBack(s.cordon, nm.since, time.Now(), o.Excuses, s.Excuses))
		}
		switch {
		case !nm.ending.IsZero():
			if time.Since(nm.ending) > calm {
				o.blame("M7", "%s is deleted, and still there", name)
			}
		case phase == maintenancev1alpha1.PhaseReady && since > maxReady+calm && nm.Annotations[maintenancev1alpha1.AnnotationIgnoreGarbageCollector] == "":
			o.blame("M9", "%s is ready for %s", name, since)
		case (phase == maintenancev1alpha1.PhaseScheduled || phase == maintenancev1alpha1.PhaseCordon) && since > calm:
			o.blame("M3", "%s is %s for %s", name, phase, since)
		case (phase == "" || phase == maintenancev1alpha1.PhasePending) && since > calm && o.isFree(s):
			o.blame("M11", "%s waits, and no node is under maintenance for %s", name, time.Since(o.maintenances.free))
		}
	}
}

// isFree says that a maintenance of a machine's node could have begun long ago.
func (o *oracle) isFree(s *subject) bool {
	return !o.maintenances.free.IsZero() && time.Since(o.maintenances.free) > calm && s.machine.DeletionTimestamp == nil &&
		o.since(rules.RollingUpdate) > calm && s.machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning &&
		!s.record.IsCycled()
}

// restOfMaintenances blames what is left of them at the end of a history.
func (o *oracle) restOfMaintenances() {
	for _, name := range slices.Sorted(maps.Keys(o.maintenances.byName)) {
		nm := o.maintenances.byName[name]
		o.blame("rest", "%s is still %s", name, rules.PhaseOf(nm.NodeMaintenance))
	}
}
