// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// subject is a machine as it was written last.
type subject struct {
	machine *machinev1alpha1.Machine
	record  rules.Machine
	node    *corev1.Node
	cordon  rules.Cordon
	// everKept says that the machine has, or had, a record, asked that a person has asked for something.
	everKept, asked bool
	// expired says that the machine was let go of as its expiry had come.
	expired bool
	// worked says that somebody has asked to work on it.
	worked bool
	cycled cycled
	// keptSince is since when it is kept, placed since when it uses a place.
	keptSince, placed time.Time
	// askedAt is when a person has last asked for anything.
	askedAt time.Time
	// onMachine says that a person has asked for something on the Machine, withdrawn that what was asked for last is withdrawn.
	onMachine, withdrawn bool
	// kept and maintained are from when on the time is counted for which people and the share, and maintenances, may keep it.
	kept, maintained count
	failure          failure
	// gate is the validation of the machine, proven since when there is a proof, and provenOnce when there was one last.
	gate               rules.Gate
	proven, provenOnce time.Time
	excuses
	// unhealthy is since when the node cannot be healthy (H1); zero if it can. From when until when it was before is in lately.
	unhealthy time.Time
	lately    rules.Failing
	// changed is when it last took another course.
	changed time.Time
	// suspicious is a write by us that has no reason until the machine is kept.
	suspicious string
	// edited is until when an operator has let the machine be kept at editedAt.
	edited, editedAt time.Time
	// begun is when we last began to keep it, told when an Event last said so, and ended when what a person asked for had its time.
	begun, told, ended time.Time
	// nativeSince is since when machine-controller-manager keeps it by itself; zero for not.
	nativeSince time.Time
	// drainTouched says that its node need not show its drain (D13).
	drainTouched bool
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
	defer o.recount(change.name)
	if before != nil && before.DeletionTimestamp == nil && s.machine.DeletionTimestamp != nil && was.Phase != "" {
		o.loseHours(s)
	}
	if s.record = o.recordOf(s.machine); s.record.Kept {
		s.everKept, s.suspicious = true, ""
	}
	o.observeCycle(change.name, s, before, was)
	o.followGate(change.name, s, was)
	o.observeProof(s)
	if before == nil {
		return
	}
	is := s.machine.Status.CurrentStatus
	switch {
	case change.By == sidecarName && !is.LastUpdateTime.Equal(&before.Status.CurrentStatus.LastUpdateTime):
		delete(s.Excuses, rules.Unheld)
	case old && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && is.Phase == machinev1alpha1.MachineRunning:
		s.Add(rules.Excuse{Kind: rules.Unheld, From: time.Now()})
	}
	if before.DeletionTimestamp == nil && s.machine.DeletionTimestamp != nil {
		if s.machine.Spec.Class.Name != o.class {
			o.happens(rules.Slow)
		}
		if !s.placed.IsZero() {
			o.happens(rules.PlaceFreed)
		}
	}
	o.observeSets()
	o.observeFailure(change.name, s, before, was, change)
	o.observeFailed(change.name, s, before, was)
	o.checkRecord(s, was, change)
	switch {
	case was.Kept && !s.record.Kept && was.Phase == rules.FailedPreserved && !was.Expiry.After(time.Now()):
		s.expired = true
	case s.expired && s.record.Kept && !s.asked && !s.worked:
		o.blame("T8", "%s was let go of at its expiry, and %s keeps it again until %s", change.name, change.By, s.record.Expiry.Format(time.DateTime))
	}
	if was.Phase != s.record.Phase {
		s.changed = time.Now()
		o.seen[cmp.Or(was.Phase, "not kept")+" > "+cmp.Or(s.record.Phase, "not kept")]++
	}
	if change.By == sidecarName {
		o.checkOurs(s, change)
		o.checkOwnWrite(change.name, s, before, was)
		o.checkStorm(change.name, s, was)
		if s.machine.DeletionTimestamp == nil {
			o.recount(change.name)
			o.checkCounts(change.name, s, before)
			o.checkWork(change.name, s, was)
		}
	}
	switch native := is.PreserveExpiryTime != nil && !s.record.Kept; {
	case !native:
		s.nativeSince = time.Time{}
	case s.nativeSince.IsZero():
		s.nativeSince = time.Now()
	}
	failed, healed := was, s.record
	if o.alone && was.Status == machinev1alpha1.MachineUnknown && healed.Status == machinev1alpha1.MachineRunning {
		failed.Phase, healed.Phase, healed.Kept = rules.FailedPreserved, rules.RunningPreserved, true
	}
	o.judge(change.name, o.world.TakenForHealthy(failed, healed, s.unhealthy, time.Now(), o.Excuses))
	if o.alone || change.By == sidecarName {
		over := rules.OverShare
		if o.shared {
			over = rules.OverPool
		}
		o.judge(change.name, over(o.places(true), max(o.mostShare(), o.asked())))
	}
	if before.DeletionTimestamp == nil && s.machine.DeletionTimestamp != nil {
		o.seen["terminated"]++
		if _, orphaned := s.Excuses[rules.Orphaned]; was.Kept && change.By != user && !orphaned {
			o.checkEdited(change.name, s)
		}
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
		o.happens(rules.Slow)
	}
	if s.suspicious != "" && o.since(rules.Fault) > calm {
		o.blame("T6", "%s was never kept, and we have written it: %s", name, s.suspicious)
	}
	o.excuseFailures(name)
	delete(o.machines, name)
	o.happens(rules.Replaced)
}

// checkRecord blames a preservation that is longer, or shorter, than it must be, and a place that there is not.
func (o *oracle) checkRecord(s *subject, was rules.Machine, change *Change) {
	now := time.Now()
	if !s.record.Terminating { // else it is asked how long it was kept
		s.keptSince = rules.Since(s.keptSince, s.record.Kept, now)
	}
	switch {
	case !s.record.Kept || s.record.Phase != rules.FailedPreserved || s.record.IsOnlyWorkedOn(now):
		if !s.placed.IsZero() {
			s.placed = time.Time{}
			o.happens(rules.PlaceFreed)
		}
	case s.placed.IsZero():
		s.placed = now
		taken := 0
		for _, other := range o.machines {
			// One whose claim has ended may be kept on because somebody works on it.
			if other != s && other.machine != nil && other.machine.DeletionTimestamp == nil && !other.placed.IsZero() && now.Sub(other.placed) > soon && !other.record.IsOnlyWorkedOn(time.Now()) {
				taken++
			}
		}
		if change.By == sidecarName && s.record.IsAuto(time.Now()) && !s.asked && taken >= o.mostShare() {
			o.blame("T5", "%s gets a place, and %d others have the share of %d", change.name, taken, o.share)
		}
	}
	if change.By != sidecarName || s.asked || s.worked || was.IsWorkedOn(time.Now().Add(-soon)) || s.record.IsWorkedOn(time.Now().Add(-soon)) || !was.Kept || was.Phase == "" || s.machine.DeletionTimestamp != nil {
		return
	}
	// One that fails again has a new expiry with its place.
	again := s.record.IsFailing() && time.Since(s.failure.near) <= margin+soon || o.since(rules.Fault) <= calm && s.record.Phase == rules.FailedPreserved
	switch {
	case s.record.Kept && s.record.Expiry.After(was.Expiry.Add(time.Second)) && !again && !s.record.IsValidated():
		o.blame("T2", "the expiry of %s becomes %s, and was %s", change.name, s.record.Expiry.Format(time.DateTime), was.Expiry.Format(time.DateTime))
	case !s.record.Kept:
		_, v := o.world.Ended(rules.End{Was: was, Is: s.record, At: now, Early: 5 * time.Second, Full: len(o.places(false)) >= o.share, Repeats: o.repeats(s)}, o.But(rules.ScaledDown)) // that takes machines, and lets none go
		o.judge(change.name, v)
	}
}

// isSpare says that the machine is there, and that nobody keeps it.
func (s *subject) isSpare() bool {
	return s != nil && s.machine != nil && !s.record.Kept && s.machine.DeletionTimestamp == nil
}

// asked is how many machines had a place before the share was lowered, and are kept for a person: a lower share does not end those (T9).
func (o *oracle) asked() int {
	asked, now := 0, time.Now()
	for name, s := range o.machines {
		if slices.Contains(o.operators.had, name) && s.record.UsesShare(now) && s.record.IsPersonal(now) && !s.placed.IsZero() && now.Sub(s.placed) > o.since(rules.ShareLowered) {
			asked++
		}
	}
	return asked
}

// places are the machines that failed, or are about to, and are kept: all of them, or only those that are kept by the share.
func (o *oracle) places(byShare bool) []string {
	var places []string
	now := time.Now()
	for name, s := range o.machines {
		failed := s.record.Kept && !s.record.IsOnlyWorkedOn(now) && (s.record.Phase == "" || s.record.Phase == rules.FailedPreserved)
		if s.record.UsesShare(now) || !byShare && failed {
			places = append(places, name)
		}
	}
	slices.Sort(places)
	return places
}

// checkTermination blames the end of a machine that is to be kept.
func (o *oracle) checkTermination(s *subject, before *machinev1alpha1.Machine, was rules.Machine, change *Change) {
	_, orphaned := s.Excuses[rules.Orphaned]
	if change.By != user && !orphaned {
		o.checkReplaced(s, before, change)
	}
	// MCM 0.62 ends what is asked for by itself, and knows of no other reason.
	withdrawn := s.since(rules.Withdrawn) < recently && (!old || s.since(rules.Vetoed) < recently || !s.failure.promised.After(time.Now()))
	if change.By == user || o.isOverruled() || withdrawn || orphaned {
		return
	}
	if o.since(rules.ScaledDown) < recently {
		if was.Kept && was.Phase != "" && was.Expiry.After(time.Now().Add(time.Second)) && time.Since(s.keptSince) > calm && o.since(rules.Fault) > calm {
			for _, name := range slices.Sorted(maps.Keys(o.machines)) {
				if other := o.machines[name]; other.isSpare() && o.isCalm(other) && other.machine.Labels["name"] == s.machine.Labels["name"] {
					o.outranked = append(o.outranked, outranked{change.name, was.Phase, name, time.Now()})
				}
			}
		}
		return
	}
	// MCM 0.61 ends a hold when it takes Unknown machines for Running after an outage, and who cannot write until it has failed again
	// does not hold it anew. What is held before its deadline may not have been seen before it.
	mute := o.world.Excused(time.Now(), nil, []rules.Kind{rules.Mute}, o.Excuses) != ""
	unheld := s.GoesOn(rules.Unheld) && mute || was.Phase == "" && o.since(rules.Fault) <= healthTimeout+calm
	o.checkWhenFailed(change.name, s, before)
	o.checkNew(change.name, s, before)
	switch {
	case !was.Kept && o.owesMaintenance(change.name, s):
		o.blame("M12", "%s is terminated by %s, and its node is under maintenance", change.name, change.By)
	case was.Kept && !unheld:
		// What was withdrawn or scaled down is no reason here, see above.
		end := rules.End{Was: was, Is: s.record, At: time.Now(), Full: !s.asked && len(o.places(false)) >= o.share, Repeats: o.repeats(s)}
		_, v := o.world.Ended(end, o.Excuses, s.But(rules.Withdrawn))
		o.judge(change.name, v)
	case !s.everKept && !s.asked && before.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed && before.Spec.ProviderID != "" &&
		len(o.places(false)) < o.share && o.since(rules.PlaceFreed, rules.Storm) > soon && o.since(rules.Fault) > healthTimeout+calm:
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
	if before != nil && rules.IsProtected(before) && !rules.IsProtected(s.node) {
		s.changed = time.Now()
	}
	o.checkMaintainedNode(change, before, s.node)
	o.checkShownDrain(change, before, s.node)
	o.observeCycledNode(change, before, s.node)
	if before != nil && change.By == sidecarName && !slices.Equal(foreignTaints(before), foreignTaints(s.node)) {
		o.blame("P7", "the taints of the node of %s were %v, and are %v", change.name, before.Spec.Taints, s.node.Spec.Taints)
	}
	if s.node.DeletionTimestamp != nil || change.Type == watch.Deleted {
		s.happens(rules.Orphaned)
	}
	s.cordon.See(s.node, time.Now())
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
	if healthy && !s.unhealthy.IsZero() {
		s.lately = rules.Failing{From: s.unhealthy, Until: time.Now()}
	}
	s.unhealthy, s.expired = rules.Since(s.unhealthy, !healthy, time.Now()), s.expired && !healthy
	o.observeProof(s)
	if change.By == sidecarName {
		o.checkOurs(s, change)
		if before != nil && s.node != nil {
			o.checkGate(change.name, s, before, s.node)
			o.checkRemoved("the node of "+change.name, before.Annotations, s.node.Annotations)
		}
	}
}

// lookAtMachine blames what is not as it should be with a machine that nothing was done to lately.
func (o *oracle) lookAtMachine(name string, s *subject) {
	o.lookAtRequest(name, s)
	o.lookAtCounts(name, s)
	if !s.record.Kept {
		o.lookAtUnkept(name, s)
		o.lookAtUnhealthy(name, s)
		return
	}
	o.judge(name, o.world.Overdue(s.record, time.Now()))
	o.judge(name, o.world.Closed(s.record, s.gate, s.proven, time.Now(), o.Excuses, s.Excuses))
	if !s.asked && !s.record.IsValidated() && !s.worked && !s.record.IsWorkedOn(time.Now().Add(-soon)) && s.record.Expiry.After(later(s.keptSince, s.failure.near).Add(o.operators.most+margin+soon)) && !o.alone {
		o.blame("T5", "%s is kept since %s until %s", name, s.keptSince.Format(time.DateTime), s.record.Expiry.Format(time.DateTime))
	}
	failed := s.record.Phase == rules.FailedPreserved
	if failed && o.isRolling(calm) && s.machine.Spec.Class.Name != o.class && !s.record.IsWorkedOn(time.Now().Add(-soon)) && !o.alone {
		o.blame("P3", "%s is %s, and is to be replaced by an update since %s", name, rules.FailedPreserved, o.Excuses[rules.RollingUpdate].From.Format(time.TimeOnly))
	}
	if s.node == nil || s.record.Phase == "" || o.isRolling(0) {
		return
	}
	if !rules.IsProtected(s.node) {
		o.blame("P5", "%s is %s, and its node is not protected", name, s.record.Phase)
	}
	tainted := rules.HasTaint(s.node, v1alpha1.TaintPreserved)
	worked := s.record.IsWorkedOn(time.Now().Add(-soon))
	// Where a proof is needed, the taint stays until a power cycle is over (V2).
	if ((failed || s.record.IsValidated()) && !worked) != tainted && !o.alone && (o.proof == "" || !worked) { // MCM 0.62 cordons
		o.blame("P7", "%s is %s, and the taint of its node is %t", name, s.record.Phase, tainted)
	}
	if failed && s.unhealthy.IsZero() {
		o.blame("T7", "%s is %s, and its node is healthy", name, rules.FailedPreserved)
	}
	o.checkEmpty(name, s)
}

// lookAtRequest blames a request that is not heeded. That of the node counts (R2).
func (o *oracle) lookAtRequest(name string, s *subject) {
	if s.node == nil || o.alone || o.isOverruled() || s.GoesOn(rules.Forbidden) || !s.record.Released.IsZero() {
		return
	}
	switch request := s.node.Annotations[v1alpha1.AnnotationPreserve]; {
	case request == v1alpha1.RequestNow && !s.record.Kept && s.kept.isUsedUp(o.longest): // and it is refused (P13)
	case request == v1alpha1.RequestNow && !s.record.Kept:
		o.blame("T1", "%s is asked for, and not kept", name)
	case request == v1alpha1.RequestFalse && s.record.Kept && !s.record.IsWorkedOn(time.Now().Add(-soon)):
		o.blame("T3", "%s is kept, and nobody may", name)
	case s.withdrawn && !s.onMachine && len(s.record.Claims) == 1 && !s.record.Claims[v1alpha1.CauseNow].IsZero():
		o.blame("T3", "%s is kept because somebody asks for it, who has withdrawn that", name)
	}
}

// isCreated says that the machine is still being created, and nobody keeps it: MCM replaces no other one meanwhile.
func (s *subject) isCreated() bool {
	return s.machine != nil && !s.record.Kept && slices.Contains(beingCreated, s.machine.Status.CurrentStatus.Phase)
}

// beingCreated are the phases of machines that are still being created.
var beingCreated = []machinev1alpha1.MachinePhase{"", machinev1alpha1.MachinePending, machinev1alpha1.MachineCrashLoopBackOff}

// lookAtUnhealthy blames that nobody replaces a machine that is not kept, while nothing else is to be replaced.
func (o *oracle) lookAtUnhealthy(name string, s *subject) {
	const replaced = healthTimeout + 30*time.Minute
	last := later(o.last(rules.Fault, rules.RollingUpdate, rules.ScaledDown, rules.Replaced), s.last(rules.Touched))
	if s.unhealthy.IsZero() || time.Since(later(s.unhealthy, last)) <= replaced || o.isRolling(0) {
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

// recordOf returns our record or, where we are not, that of machine-controller-manager.
func (o *oracle) recordOf(machine *machinev1alpha1.Machine) rules.Machine {
	if o.alone {
		return rules.ReadManagers(machine)
	}
	return rules.ReadMachine(machine)
}
