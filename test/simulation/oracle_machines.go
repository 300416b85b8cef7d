// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// subject is a machine as it was written last.
type subject struct {
	machine *machinev1alpha1.Machine
	record  record
	node    *corev1.Node
	// everKept says that the machine has, or had, a record, asked that a person has asked for something.
	everKept, asked bool
	// expired says that the machine was let go of as its expiry had come.
	expired bool
	// worked says that somebody has asked to work on it.
	worked bool
	cycled cycled
	// keptSince is since when it is kept, placed since when it uses a place.
	keptSince, placed time.Time
	// denied is when a person last asked for the end of the preservation, vetoed for it as an order, askedAt for anything.
	denied, vetoed, askedAt time.Time
	// kept and maintained are from when on the time is counted for which people and the share, and maintenances, may keep it.
	kept, maintained count
	failure          failure
	// unheld says that MCM 0.61 has taken the machine for Running, after an outage, since it was last held.
	unheld bool
	// overwritten is when a person last put something invalid in the place of the hold of a failed machine.
	overwritten time.Time
	// orphaned says that the node was taken away from the machine, which machine-controller-manager terminates then.
	orphaned bool
	// unhealthy is since when the node cannot be healthy (H1); zero if it can.
	unhealthy time.Time
	// disturbed is when something was last done to the machine or its node, changed when it last took another course.
	disturbed, changed time.Time
	// suspicious is a write by us that has no reason until the machine is kept.
	suspicious string
}

// holdsByItself says that MCM 0.62 holds the machine, which has failed, by what is on the Machine alone. What is overwritten there
// on others is put back in time.
func (s *subject) holdsByItself() bool {
	return !old && s.machine != nil && s.machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed &&
		s.machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] == "" &&
		(s.node == nil || s.node.Annotations[v1alpha1.AnnotationPreserve] == "")
}

func (o *oracle) subject(name string) *subject {
	if o.machines[name] == nil {
		o.machines[name] = &subject{}
	}
	return o.machines[name]
}

func (o *oracle) observeMachine(change *Change) {
	s := o.subject(change.name)
	if change.Type == watch.Deleted {
		o.dismiss(change.name, s)
		return
	}
	before, was := s.machine, s.record
	s.machine = fromUnstructured[machinev1alpha1.Machine](change.Object)
	s.machine.Name = change.name
	o.observeCycle(change.name, s, before)
	defer o.recount(change.name)
	if s.record = o.recordOf(s.machine); s.record.kept {
		s.everKept, s.suspicious = true, ""
	}
	if before == nil {
		return
	}
	is := s.machine.Status.CurrentStatus
	switch {
	case change.By == sidecarName && !is.LastUpdateTime.Equal(&before.Status.CurrentStatus.LastUpdateTime):
		s.unheld = false
	case old && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && is.Phase == machinev1alpha1.MachineRunning:
		s.unheld = true
	}
	if before.DeletionTimestamp == nil && s.machine.DeletionTimestamp != nil {
		if s.machine.Spec.Class.Name != o.class {
			o.advanced = time.Now()
		}
		if !s.placed.IsZero() {
			o.freed = time.Now()
		}
	}
	o.observeSets()
	o.observeFailure(change.name, s, before, was, change)
	o.observeFailed(change.name, s, before, was)
	o.checkRecord(s, before, was, change)
	switch {
	case was.kept && !s.record.kept && was.phase == failedPreserved && !was.expiry.After(time.Now()):
		s.expired = true
	case s.expired && s.record.kept && !s.asked && !s.worked:
		o.blame("T8", "%s was let go of at its expiry, and %s keeps it again until %s", change.name, change.By, s.record.expiry.Format(time.DateTime))
	}
	if was.phase != s.record.phase {
		s.changed = time.Now()
		o.seen[cmp.Or(was.phase, "not kept")+" > "+cmp.Or(s.record.phase, "not kept")]++
	}
	if change.By == sidecarName {
		o.checkOurs(s, change)
		if s.machine.DeletionTimestamp == nil {
			o.recount(change.name)
			o.checkCounts(change.name, s, before)
			o.checkWork(change.name, s, was)
		}
	}
	healed := was.phase == failedPreserved && s.record.phase == runningPreserved
	if o.alone {
		healed = change.By == machineControllerName && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && s.machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning
	}
	if healed && !s.unhealthy.IsZero() && time.Since(s.unhealthy) > soon && time.Now().After(o.blind) {
		o.blame("H1", "%s is taken for healthy by %s, and its node is not since %s", change.name, change.By, s.unhealthy.Format(time.TimeOnly))
	}
	if places := o.places(true); len(places) > o.share && (o.alone || change.By == sidecarName) {
		o.blame("P1", "%s use a share of %d", strings.Join(places, ", "), o.share)
	}
	if before.DeletionTimestamp == nil && s.machine.DeletionTimestamp != nil {
		o.seen["terminated"]++
		o.checkTermination(s, before, was, change)
	}
}

// checkOurs blames what we write about a machine that is not kept and that nobody has asked for.
func (o *oracle) checkOurs(s *subject, change *Change) {
	if !s.everKept && !s.asked && !s.worked && s.suspicious == "" {
		s.suspicious = describe(change)
	}
}

func (o *oracle) dismiss(name string, s *subject) {
	if s.machine != nil && s.machine.Spec.Class.Name != o.class {
		o.advanced = time.Now()
	}
	if s.suspicious != "" && time.Since(o.disturbed) > calm {
		o.blame("T6", "%s was never kept, and we have written it: %s", name, s.suspicious)
	}
	o.excuseFailures(name)
	delete(o.machines, name)
	o.replaced = time.Now()
}

// checkRecord blames a preservation that is longer, or shorter, than it must be, and a place that there is not.
func (o *oracle) checkRecord(s *subject, before *machinev1alpha1.Machine, was record, change *Change) {
	now := time.Now()
	switch is := s.record; {
	case !is.kept:
		s.keptSince = time.Time{}
	case s.keptSince.IsZero():
		s.keptSince = now
	}
	isPlace := func(r record, m *machinev1alpha1.Machine) bool {
		return r.kept && r.phase == failedPreserved && !onlyWorkedOn(m)
	}
	switch {
	case !isPlace(s.record, s.machine):
		if !s.placed.IsZero() {
			s.placed, o.freed = time.Time{}, now
		}
	case s.placed.IsZero():
		s.placed = now
		taken := 0
		for _, other := range o.machines {
			// One whose claim has ended may be kept on because somebody works on it.
			if other != s && other.machine != nil && other.machine.DeletionTimestamp == nil && !other.placed.IsZero() && now.Sub(other.placed) > soon && !onlyWorkedOn(other.machine) {
				taken++
			}
		}
		if change.By == sidecarName && s.record.auto && !s.asked && taken >= o.share {
			o.blame("T5", "%s gets a place, and %d others have the share of %d", change.name, taken, o.share)
		}
	}
	if change.By != sidecarName || s.asked || s.worked || workedOn(before) || workedOn(s.machine) || !was.kept || was.phase == "" || s.machine.DeletionTimestamp != nil {
		return
	}
	// One that fails again has a new expiry with its place.
	again := s.record.isFailing() && time.Since(s.failure.near) <= margin+soon || time.Since(o.disturbed) <= calm && s.record.phase == failedPreserved
	switch {
	case s.record.kept && s.record.expiry.After(was.expiry.Add(time.Second)) && !again:
		o.blame("T2", "the expiry of %s becomes %s, and was %s", change.name, s.record.expiry.Format(time.DateTime), was.expiry.Format(time.DateTime))
	case !s.record.kept && was.phase == failedPreserved && was.expiry.After(now.Add(5*time.Second)) && !o.isReplaced():
		o.blame("T8", "%s is let go of, and was to be kept until %s", change.name, was.expiry.Format(time.DateTime))
	}
}

// isSpare says that the machine is there, and that nobody keeps it.
func (s *subject) isSpare() bool {
	return s != nil && s.machine != nil && !s.record.kept && s.machine.DeletionTimestamp == nil
}

// recent says that machine-controller-manager may still act on what was.
func recent(t time.Time) bool { return !t.IsZero() && time.Since(t) < 30*time.Minute }

// places are the machines that failed, or are about to, and are kept: all of them, or only those that are kept by the share.
func (o *oracle) places(byShare bool) []string {
	var places []string
	for name, s := range o.machines {
		if s.machine == nil || s.machine.DeletionTimestamp != nil || !s.record.kept || onlyWorkedOn(s.machine) {
			continue
		}
		// Whom a person keeps that failed again without a place has what is left of an earlier claim of the share.
		_, placed := builder.Noted(s.machine)[builder.NoteShare]
		asked := slices.ContainsFunc([]string{v1alpha1.CauseNow, v1alpha1.CauseWhenFailed}, func(cause string) bool { return s.record.claims[cause].After(time.Now()) })
		if (s.record.auto && (placed || !asked) || !byShare) && (s.record.phase == "" || s.record.phase == failedPreserved) {
			places = append(places, name)
		}
	}
	slices.Sort(places)
	return places
}

// checkTermination blames the end of a machine that is to be kept.
func (o *oracle) checkTermination(s *subject, before *machinev1alpha1.Machine, was record, change *Change) {
	if change.By != user && !s.orphaned {
		o.checkReplaced(s, before, change)
	}
	// MCM 0.62 ends what is asked for by itself, and knows of no other reason.
	withdrawn := recent(s.denied) && (!old || recent(s.vetoed) || !s.failure.promised.After(time.Now()))
	if change.By == user || o.isReplaced() || withdrawn || s.orphaned {
		return
	}
	if recent(o.scaled) {
		if was.kept && was.phase != "" && time.Since(s.keptSince) > calm && time.Since(o.disturbed) > calm {
			for _, name := range slices.Sorted(maps.Keys(o.machines)) {
				if other := o.machines[name]; other.isSpare() && o.isCalm(other) {
					o.outranked = append(o.outranked, outranked{change.name, was.phase, name, time.Now()})
				}
			}
		}
		return
	}
	// What has not failed is held only when its deadline comes near: by MCM 0.61, and if somebody works on it (M12). Who is not
	// there then does not. MCM 0.61 ends a hold when it takes Unknown machines for Running after an outage, and who cannot write
	// until it has failed again does not hold it anew. MCM 0.62 ends one that was overwritten with something invalid.
	unheld := (old || onlyWorkedOn(before)) && was.phase != failedPreserved && time.Since(o.disturbed) <= calm ||
		s.unheld && time.Now().Before(o.mute) || !s.overwritten.IsZero() && time.Since(s.overwritten) <= soon ||
		was.auto && !s.asked && was.phase != "" && was.phase != failedPreserved && len(o.places(false)) >= o.share // it fails again, and has no place any more (T2)
	switch {
	case !was.kept && o.owesMaintenance(change.name, s):
		o.blame("M12", "%s is terminated by %s, and its node is under maintenance", change.name, change.By)
	case was.kept && !unheld && (was.phase != "" || time.Since(o.disturbed) > healthTimeout+calm) && was.expiry.After(time.Now()):
		o.blame("P8", "%s is terminated by %s, and is %s until %s", change.name, change.By, was.phase, was.expiry.Format(time.TimeOnly))
	case !s.everKept && !s.asked && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed && before.Spec.ProviderID != "" &&
		len(o.places(false)) < o.share && time.Since(o.freed) > soon && time.Since(o.disturbed) > healthTimeout+calm:
		o.blame("T5", "%s failed and is terminated by %s, and the share of %d has room beside %q", change.name, change.By, o.share, o.places(false))
	}
}

func (o *oracle) observeNode(change *Change) {
	s := o.machines[change.name]
	if s == nil {
		return
	}
	defer o.recount(change.name)
	before := s.node
	s.node = fromUnstructured[corev1.Node](change.Object)
	// MCM 0.61 takes the protection away whenever it looks at a MachineDeployment that is complete (P5).
	if before != nil && isProtected(before) && !isProtected(s.node) {
		s.changed = time.Now()
	}
	o.checkMaintainedNode(change, before, s.node)
	o.observeCycledNode(change, before, s.node)
	if before != nil && change.By == sidecarName && !slices.Equal(foreignTaints(before), foreignTaints(s.node)) {
		o.blame("P7", "the taints of the node of %s were %v, and are %v", change.name, before.Spec.Taints, s.node.Spec.Taints)
	}
	s.orphaned = s.orphaned || s.node.DeletionTimestamp != nil || change.Type == watch.Deleted
	if change.Type == watch.Deleted {
		s.node = nil
	}
	healthy := s.node != nil && isNodeReady(s.node) && !slices.ContainsFunc(s.node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == kernelDeadlock && c.Status != corev1.ConditionFalse
	})
	s.cycled.settle(healthy)
	if healthy != s.unhealthy.IsZero() {
		s.changed = time.Now()
	}
	switch {
	case healthy:
		s.unhealthy, s.expired = time.Time{}, false
	case s.unhealthy.IsZero():
		s.unhealthy = time.Now()
	}
	if change.By == sidecarName {
		o.checkOurs(s, change)
	}
}

// lookAtMachine blames what is not as it should be with a machine that nothing was done to lately.
func (o *oracle) lookAtMachine(name string, s *subject) {
	o.lookAtRequest(name, s)
	o.lookAtCounts(name, s)
	if !s.record.kept {
		o.lookAtUnkept(name, s)
		o.lookAtUnhealthy(name, s)
		return
	}
	if overdue := time.Since(s.record.expiry); overdue > o.late() {
		o.blame("P10", "%s is kept, and its expiry has passed for %s", name, overdue)
	}
	if !s.asked && !s.worked && !workedOn(s.machine) && s.record.expiry.After(later(s.keptSince, s.failure.near).Add(o.timeout+margin+soon)) && !o.alone {
		o.blame("T5", "%s is kept since %s until %s", name, s.keptSince.Format(time.DateTime), s.record.expiry.Format(time.DateTime))
	}
	failed := s.record.phase == failedPreserved
	if failed && time.Since(o.rolling) > calm && !o.rolling.IsZero() && s.machine.Spec.Class.Name != o.class && !workedOn(s.machine) && !o.alone {
		o.blame("P3", "%s is %s, and is to be replaced by an update since %s", name, failedPreserved, o.rolling.Format(time.TimeOnly))
	}
	if s.node == nil || s.record.phase == "" || !o.rolling.IsZero() {
		return
	}
	if !isProtected(s.node) {
		o.blame("P5", "%s is %s, and its node is not protected", name, s.record.phase)
	}
	tainted := hasTaint(s.node, v1alpha1.TaintPreserved)
	if (failed && !workedOn(s.machine)) != tainted && !o.alone { // MCM 0.62 cordons
		o.blame("P7", "%s is %s, and the taint of its node is %t", name, s.record.phase, tainted)
	}
	if failed && s.unhealthy.IsZero() {
		o.blame("T7", "%s is %s, and its node is healthy", name, failedPreserved)
	}
	o.checkEmpty(name, s)
}

// lookAtRequest blames a request that is not heeded. That of the node counts (R2).
func (o *oracle) lookAtRequest(name string, s *subject) {
	if s.node == nil || o.alone || o.isReplaced() || builder.Noted(s.machine)[builder.NoteReleased] != "" {
		return
	}
	switch request := s.node.Annotations[v1alpha1.AnnotationPreserve]; {
	case request == v1alpha1.RequestNow && !s.record.kept && s.kept.isUsedUp(o.longest): // and it is refused (P13)
	case request == v1alpha1.RequestNow && !s.record.kept:
		o.blame("T1", "%s is asked for, and not kept", name)
	case request == v1alpha1.RequestFalse && s.record.kept && !workedOn(s.machine):
		o.blame("T3", "%s is kept, and nobody may", name)
	}
}

// isCreated says that the machine is still being created, and nobody keeps it: MCM replaces no other one meanwhile.
func (s *subject) isCreated() bool {
	return s.machine != nil && !s.record.kept && slices.Contains([]machinev1alpha1.MachinePhase{"", machinev1alpha1.MachinePending, machinev1alpha1.MachineCrashLoopBackOff}, s.machine.Status.CurrentStatus.Phase)
}

// lookAtUnhealthy blames that nobody replaces a machine that is not kept, while nothing else is to be replaced.
func (o *oracle) lookAtUnhealthy(name string, s *subject) {
	const replaced = healthTimeout + 30*time.Minute
	last := later(later(o.disturbed, s.disturbed), later(later(o.rolled, o.scaled), o.replaced))
	if s.unhealthy.IsZero() || time.Since(later(s.unhealthy, last)) <= replaced || !o.rolling.IsZero() {
		return
	}
	for _, other := range o.machines {
		if other != s && (!other.unhealthy.IsZero() || other.isCreated() || other.machine != nil && other.machine.DeletionTimestamp != nil || time.Since(other.changed) <= replaced) {
			return
		}
	}
	o.blame("T6", "%s is unhealthy since %s, not kept, and not replaced", name, s.unhealthy.Format(time.TimeOnly))
}

// foreignTaints returns the keys of the taints that are not ours, in their order.
func foreignTaints(node *corev1.Node) (keys []string) {
	for _, taint := range node.Spec.Taints {
		if !slices.Contains([]string{v1alpha1.TaintPreserved, corev1.TaintNodeOutOfService}, taint.Key) {
			keys = append(keys, taint.Key)
		}
	}
	return keys
}

// hasTaint says that a node has a taint of a key.
func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// record is what a Machine says of its preservation.
type record struct {
	// kept says that there is one, auto that it is for the share.
	kept, auto bool
	phase      string
	expiry     time.Time
	// claims are until when it is kept, by why, and written is the last of them. failing says that its deadline is near.
	claims  map[string]time.Time
	written time.Time
	failing bool
}

// recordOf returns our record or, where we are not, that of machine-controller-manager.
func (o *oracle) recordOf(machine *machinev1alpha1.Machine) record {
	status, annotations := machine.Status.CurrentStatus, machine.Annotations
	if o.alone {
		r := record{kept: status.PreserveExpiryTime != nil, auto: annotations[v1alpha1.AnnotationPreserve] == machineutils.PreserveMachineAnnotationValueAutoPreserved}
		if r.kept {
			r.expiry, r.phase = status.PreserveExpiryTime.Time, runningPreserved
			if status.Phase == machinev1alpha1.MachineFailed {
				r.phase = failedPreserved
			}
		}
		return r
	}
	r := record{
		kept:  annotations[v1alpha1.AnnotationCause] != "",
		auto:  slices.Contains(causesOf(machine), v1alpha1.CauseAuto),
		phase: annotations[v1alpha1.AnnotationPhase],

		claims:  claimsOf(machine),
		failing: builder.Noted(machine)[builder.NoteFailsAt] != "",
	}
	r.written, _ = time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationExpiryTime])
	if r.expiry, _ = time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationExpiryTime]); status.PreserveExpiryTime != nil {
		r.expiry = status.PreserveExpiryTime.Time
	}
	return r
}

// late is how long after its expiry a machine may be let go of. MCM looks every ten minutes.
func (o *oracle) late() time.Duration {
	if o.alone {
		return calm + 10*time.Minute
	}
	return calm
}

// isProtected says that the cluster-autoscaler leaves a node alone.
func isProtected(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true"
}
