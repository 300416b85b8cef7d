// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// observedHost is what is known of a host, and whether somebody else keeps it off.
type observedHost struct {
	rules.Host

	taken bool
}

// cycled is what the oracle knows of the power cycles of a machine.
type cycled struct {
	// asked is since when a request is on the machine, phase since when it is in its phase.
	asked, phase time.Time
	// off is when its host was last asked to be off, and bootID what its node had then.
	off    time.Time
	bootID string
	// healthy is since when the node is, zero for not, and settled when it last had been for long enough.
	healthy, settled time.Time
}

func (o *oracle) observeHost(change *Change) {
	if o.hosts == nil {
		o.hosts = map[string]*observedHost{}
	}
	before := cmp.Or(o.hosts[change.name], &observedHost{})
	after := &observedHost{Host: before.Host}
	after.See(change.Object, time.Now())
	_, after.taken = change.Object.GetAnnotations()[rebootOther]
	o.hosts[change.name] = after
	if before.Asked.IsZero() && !after.Asked.IsZero() {
		o.seen["host is asked to be off"]++
		o.checkPowerOff(change.name, before, after)
	}
	requested := !after.Asked.IsZero()
	if before.On && !after.On && requested {
		o.seen["host is off"]++
	}
	if requested != (after.Owner != "") {
		o.blame("X2", "%s is asked to be off: %t, by %q", change.name, requested, after.Owner)
	}
}

// checkPowerOff blames a request for a host that there must be none of.
func (o *oracle) checkPowerOff(name string, before, host *observedHost) {
	s := o.machines[host.Machine]
	switch {
	case s == nil || s.machine == nil || s.machine.UID != host.Owner:
		o.blame("X2", "%s is asked to be off for %s, and is the host of %q", name, host.Owner, host.Machine)
		return
	case !before.On:
		o.blame("X1", "%s is asked to be off, and is so already", name)
	case host.taken:
		o.blame("X14", "%s is asked to be off, and is kept off by somebody else", name)
	case s.machine.DeletionTimestamp != nil:
		o.blame("X8", "%s is asked to be off, and its machine %s is being deleted", name, host.Machine)
	case o.isUpdated(s.machine, calm) && o.since(rules.Fault) > calm:
		o.blame("X8", "%s is asked to be off, and the machines are being replaced since %s", name, o.Excuses[rules.RollingUpdate].From.Format(time.TimeOnly))
	case !slices.Contains(s.record.CausesSince(time.Now()), v1alpha1.CauseRemediation):
		o.blame("X10", "%s is asked to be off, and its machine %s is kept for %q", name, host.Machine, s.record.CausesSince(time.Now()))
	case s.node != nil && metav1.HasAnnotation(s.node.ObjectMeta, v1alpha1.AnnotationMaintenance):
		o.blame("X8", "%s is asked to be off, and the node of %s is under maintenance", name, host.Machine)
	case !s.cycled.off.IsZero() && !o.isSettled(s):
		o.blame("X6", "%s is asked to be off again after %s, and its node was not settled", name, time.Since(s.cycled.off))
	}
	for other, h := range o.hosts {
		if other != name && !h.Asked.IsZero() && s.isWith(o.machines[h.Machine]) {
			o.blame("X8", "%s is asked to be off, and so is %s", name, other)
		}
	}
	if s.cycled.off = time.Now(); s.node != nil {
		s.cycled.bootID = s.node.Status.NodeInfo.BootID
	}
}

// isWith says that two machines belong to the same MachineDeployment.
func (s *subject) isWith(t *subject) bool {
	return t != nil && t.machine != nil && t.machine.Labels["name"] == s.machine.Labels["name"]
}

// isSettled says that the node was healthy for long enough since the host was last off.
func (o *oracle) isSettled(s *subject) bool {
	return s.cycled.settled.After(s.cycled.off) ||
		!s.cycled.healthy.IsZero() && time.Since(later(s.cycled.healthy, s.cycled.off)) >= settledTime
}

// observeCycle is called with each change of a machine.
func (o *oracle) observeCycle(name string, s *subject, before *machinev1alpha1.Machine, was rules.Machine) {
	s.cycled.asked = rules.Since(s.cycled.asked, s.record.CycleAsked, time.Now())
	if before == nil {
		return
	}
	from, to := was.Cycle, s.record.Cycle
	if from == to {
		return
	}
	s.cycled.phase, s.changed = time.Now(), time.Now()
	o.seen[fmt.Sprintf("cycle %s > %s", from, to)]++
	if to == v1alpha1.PowerCycleSucceeded && (s.node == nil || s.node.Status.NodeInfo.BootID == s.cycled.bootID || !s.unhealthy.IsZero()) {
		o.blame("X13", "the power cycle of %s is a success, and its node is not back", name)
	}
	if was.IsCycled() || !s.record.IsCycled() {
		return
	}
	if !s.worked { // nobody has asked for it
		o.seen["automatic cycle"]++
		o.countFailing()
		o.judge(name, o.world.BegunInStorm("X21", "is power-cycled automatically", o.stormy, time.Now(), o.Excuses, s.Excuses))
	}
	for other, t := range o.machines {
		if other != name && t.machine != nil && t.record.IsCycled() && s.isWith(t) {
			o.blame("X8", "a power cycle of %s begins while %s has one", name, other)
		}
	}
}

// observeCycledNode is called with each change of a node, before it is known whether that is healthy.
func (o *oracle) observeCycledNode(change *Change, before, after *corev1.Node) {
	if before == nil || change.By != sidecarName || rules.IsOutOfService(before) || !rules.IsOutOfService(after) {
		return
	}
	o.seen["node is out of service"]++
	var host *rules.Host
	for _, h := range o.hosts {
		if h.Machine == change.name {
			host = &h.Host
		}
	}
	o.judge(change.name, o.world.MadeSafe(host, time.Now()))
	if host != nil && host.Asked.IsZero() {
		o.blame("X1", "the node of %s is made safe, and its host is not asked to be off", change.name)
	}
}

// settle follows the health of a node.
func (c *cycled) settle(healthy bool) {
	switch {
	case healthy && c.healthy.IsZero():
		c.healthy = time.Now()
	case !healthy && !c.healthy.IsZero():
		if time.Since(later(c.healthy, c.off)) >= settledTime {
			c.settled = time.Now()
		}
		c.healthy = time.Time{}
	}
}

// lookAtCycle blames what should have become of a power cycle by now.
func (o *oracle) lookAtCycle(name string, s *subject) {
	if s.machine == nil || !o.isCalm(s) {
		return
	}
	if deleted := s.machine.DeletionTimestamp; deleted != nil {
		if slices.Contains(s.machine.Finalizers, v1alpha1.FinalizerHost) && time.Since(deleted.Time) > time.Minute+soon {
			o.blame("X2", "%s is deleted since %s, and waits for its host", name, deleted.Format(time.TimeOnly))
		}
		return
	}
	phase := s.record.Cycle
	switch since := time.Since(s.cycled.phase); {
	case s.record.IsCycled() && !s.record.Kept && !o.isOverruled() && s.since(rules.Vetoed) > calm &&
		s.record.Released.IsZero(): // it is on its way out, however long machine-controller-manager takes for that
		o.blame("X10", "%s is %s, and not kept", name, phase)
	case s.record.IsCycled() && since > stepTime+calm:
		o.blame("X5", "%s is %s for %s", name, phase, since)
	case phase == "" && !s.cycled.asked.IsZero() && time.Since(s.cycled.asked) > calm:
		o.blame("X12", "a power cycle of %s was asked for, and nobody has taken note", name)
	case s.node == nil:
	case phase == "" && rules.IsOutOfService(s.node) && !s.cycled.healthy.IsZero() && time.Since(s.cycled.healthy) > settledTime+calm:
		o.blame("X15", "the node of %s is back, and still out of service", name)
	case phase == "" && slices.ContainsFunc(s.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionPowerCycle }):
		o.blame("X15", "the node of %s still shows a power cycle", name)
	case (phase == v1alpha1.PowerCycleSucceeded || phase == v1alpha1.PowerCycleFailed || phase == v1alpha1.PowerCycleCancelled) &&
		!s.cycled.healthy.IsZero() && time.Since(s.cycled.healthy) > settledTime+calm && since > settledTime+calm:
		o.blame("X15", "%s is settled, and still %s", name, phase)
	}
}

// lookAtHosts blames hosts that are left off.
func (o *oracle) lookAtHosts() {
	for _, name := range slices.Sorted(maps.Keys(o.hosts)) {
		h := o.hosts[name]
		s := o.machines[h.Machine]
		gone := s == nil || s.machine == nil || s.machine.UID != h.Owner
		o.judge(name, o.world.KeptOff(&h.Host, gone, time.Now(), o.Excuses))
	}
}

// restOfCycles blames what is left of power cycles at the end of a history.
func (o *oracle) restOfCycles() {
	for _, name := range slices.Sorted(maps.Keys(o.hosts)) {
		if h := o.hosts[name]; !h.Asked.IsZero() || h.Machine != "" && !h.On {
			o.blame("X2", "%s is still asked to be off, or off", name)
		}
	}
}
