// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// handoverTime is how long a node that is given back is kept for the next maintenance of it to be scheduled (M3).
const handoverTime = 5 * time.Second

// Machine is what is known of the machine of a node.
type Machine struct {
	// Missing says that there is none (M17).
	Missing bool
	// Terminating says that it is on its way out, and UpdatedInPlace that it is, which its node shows and its MachineSet confirms:
	// machine-controller-manager empties the node.
	Terminating, UpdatedInPlace bool
	// PhaseNotKnown says that machine-controller-manager has it in a phase that is not known here.
	PhaseNotKnown bool
	// Hold says until when it is kept if its node fails meanwhile.
	Hold Hold
	// Rolling says that its pool is, Hibernating that the shoot is, or its pool is removed, and PowerCycled that its host is,
	// or is about to be.
	Rolling, Hibernating, PowerCycled bool
	// Validated says that its pool wants a proof that the machine works when the maintenance is over (V1), and Unvalidated that there was to
	// be one before it began.
	Validated, Unvalidated bool
}

// Hold says until when the machine of a node under maintenance is kept if that fails (M12).
type Hold struct {
	// Until is zero if it is not kept.
	Until time.Time
	// Why says why it is not; empty if nobody knows.
	Why string
}

// describe says it in a sentence, with a space before it; empty if nobody knows.
func (h Hold) describe() string {
	switch {
	case !h.Until.IsZero():
		return " If the node fails, its machine is preserved until " + formatTime(h.Until) + "."
	case h.Why != "":
		return " If the node fails, the maintenance does not preserve its machine, because " + h.Why + "."
	}
	return ""
}

// obstacle returns why no maintenance may begin, or why the one that is under way may not go on; empty for nothing (M15).
func (m Machine) obstacle(underWay bool) string {
	switch {
	case m.Terminating:
		return "The machine of the node is being terminated."
	case m.UpdatedInPlace:
		return "The node is being updated in place."
	case m.Hibernating:
		return "The machines of the node's pool are being removed."
	case m.PowerCycled:
		return "The host of the node is being power-cycled."
	case m.Rolling && !underWay: // the machine goes
		return "The machines of the node's pool are being replaced."
	case m.PhaseNotKnown && !underWay:
		return "Machine-controller-manager has the machine of the node in a phase that the preservation controller does not know."
	case m.Missing && !underWay:
		return "The node has no Machine."
	}
	return ""
}

// Excludes says that no maintenance may begin on the machine's node.
func (m Machine) Excludes() bool { return m.obstacle(false) != "" }

// Facts are what is known of a node and of all that is asked for it.
type Facts struct {
	// Node is nil if there is none.
	Node    *corev1.Node
	Machine Machine
	// Maintenances are those of the node, and Namespaces from where they are taken. MaintenancesLive says that the former are what the API
	// server has, and not what a cache has that may be behind.
	Maintenances     []*v1alpha1.NodeMaintenance
	MaintenancesLive bool
	Namespaces       Namespaces
	// Pods are those on the node, if PodsKnown. PodsLive says that they are what the API server has.
	Pods                []drain.Pod
	PodsKnown, PodsLive bool
	// PodsUnread says that the API server was asked for them, and did not list them.
	PodsUnread bool
	// DrainConditions says that others see in conditions of the node how its drain goes, and not only by those of a maintenance (D13).
	DrainConditions bool
	Memory
}

// Memory is what is remembered of a node from one decision to the next. Nothing is lost with it but a little time.
type Memory struct {
	// Refused says in words why pods could not be evicted last, and EvictAfter when to try again.
	Refused    []string
	EvictAfter time.Time
	// CordonedAt is when a cordon was put back last that had vanished, and CordonAfter before when none is put back again.
	CordonedAt, CordonAfter time.Time
	// EndingSince is what the last Outcome says.
	EndingSince time.Time
}

// Event is something to be told once the writes have succeeded.
type Event struct {
	Maintenance *v1alpha1.NodeMaintenance
	Warning     bool
	Reason      string
	Note        string
}

// Reasons of Events.
const (
	// EventConditionChanged says which phase has begun.
	EventConditionChanged = "ConditionChanged"
	// EventRefused says why a maintenance cannot be scheduled as it is (M1).
	EventRefused = "MaintenanceRefused"
	// EventSetBack says why a maintenance that was under way is pending again (M15).
	EventSetBack = "MaintenanceSetBack"
	// EventDrainTimedOut says which pods are left when the drain timeout has passed and the drain begins anew (M5).
	EventDrainTimedOut = "MaintenanceDrainTimedOut"
	// EventCordonVanished says that a node that is ready is drained again because it was uncordoned (M3).
	EventCordonVanished = "MaintenanceCordonVanished"
)

// Outcome is what is due. After its writes, and after its actions, it is to be decided again, with what was written.
type Outcome struct {
	// Writes are what is to be written.
	Writes []intent.Write
	// PutBack says that they put a cordon back that had vanished.
	PutBack bool
	// Events are to be told after the writes.
	Events []Event
	// ReadMaintenances says that the Maintenances are to be read from the API server before anything else is decided.
	ReadMaintenances bool
	// WatchPods says that the pods of the node must be known, ReadPods that they are to be read from the API server.
	WatchPods, ReadPods bool
	// Actions are to be carried out on pods, if there was nothing to write.
	Actions []drain.Action
	// EndingSince is since when the node could have been given back; zero if it cannot be.
	EndingSince time.Time
	// Next is when to look again even if nothing changes; zero for never.
	Next time.Time
}

func (o *Outcome) wake(t time.Time) {
	if o.Next.IsZero() || t.Before(o.Next) {
		o.Next = t
	}
}

// decision is one that is being taken.
type decision struct {
	Facts
	Outcome
	now time.Time
}

// Decide returns what is due now for the maintenances of a node. Given the same it returns the same: it can be asked again
// at any time, also after a crash in between two writes.
func Decide(f Facts, now time.Time) Outcome {
	d := &decision{Facts: f, now: now}
	d.Maintenances = slices.SortedFunc(slices.Values(f.Maintenances), func(a, b *v1alpha1.NodeMaintenance) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	d.decide()
	return d.Outcome
}

func (d *decision) decide() {
	var (
		current, ending *v1alpha1.NodeMaintenance
		planned, others []*v1alpha1.NodeMaintenance
	)
	for _, nm := range d.Maintenances {
		switch {
		case d.Node == nil, !ownedBy(nm, d.Node), !d.Namespaces.take(nm.Namespace), !InProgress(nm):
			others = append(others, nm)
			if PhaseOf(nm) == v1alpha1.PhasePending && nm.DeletionTimestamp == nil && d.refusal(nm, false) == "" {
				planned = append(planned, nm)
			}
		case IsEnding(nm):
			if ending == nil {
				ending = nm
			}
		case current == nil || d.holds(nm):
			current = nm
		}
	}
	if d.Node != nil {
		d.proceed(current, ending, planned)
	}
	// These wait for what is written because of the node's maintenance: what cannot be written of them must not keep that waiting.
	if len(d.Writes) == 0 && !d.ReadMaintenances {
		for _, nm := range others {
			d.settle(nm)
		}
	}
}

// proceed goes on with the maintenance that is under way, the one that is ending, and their node.
func (d *decision) proceed(current, ending *v1alpha1.NodeMaintenance, planned []*v1alpha1.NodeMaintenance) {
	if ending != nil {
		d.Outcome.EndingSince = d.Memory.EndingSince
		if d.Outcome.EndingSince.IsZero() {
			d.Outcome.EndingSince = d.now
		}
	}
	taken := d.Outcome.EndingSince.Add(handoverTime)
	if current != nil {
		if reason := d.refusal(current, true); reason != "" {
			if !d.mark(nil, planned) {
				d.refuse(current, reason)
			}
			return
		}
		if d.prepare(current) || d.reopened(current) {
			return
		}
	} else if ending != nil && slices.ContainsFunc(planned, wantsCordon) && isRecorded(d.Node) && d.now.Before(taken) {
		d.wake(taken)
		return
	}
	if d.mark(current, planned) {
		return
	}
	if ending != nil {
		d.release(ending)
	} else if current != nil {
		d.advance(current)
	}
}

// holds says that the cordon of the node is that of a maintenance.
func (d *decision) holds(nm *v1alpha1.NodeMaintenance) bool { return CordonedFor(d.Node) == nm.UID }

// refusal returns why a maintenance may not be scheduled, or not go on, empty for nothing.
func (d *decision) refusal(nm *v1alpha1.NodeMaintenance, underWay bool) string {
	if d.Node == nil || !ownedBy(nm, d.Node) {
		return "Node " + brief.Cut(nm.Spec.NodeName) + " does not exist."
	}
	if !d.Namespaces.take(nm.Namespace) {
		return "NodeMaintenances in this namespace have no effect, because nodeMaintenance.namespaces of the Shoot does not name it."
	}
	if !underWay {
		if err := Validate(&nm.Spec); err != nil {
			return "Nothing is done, because the spec is not valid: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "."
		}
	}
	return d.Machine.obstacle(underWay)
}

// settle makes a maintenance a pending one that is not under way (M1), or says why it cannot be scheduled. What it has from
// before is taken from it.
func (d *decision) settle(nm *v1alpha1.NodeMaintenance) {
	if nm.DeletionTimestamp == nil {
		if reason := d.refusal(nm, false); reason != "" {
			d.refuse(nm, reason)
		} else {
			d.setPhase(nm, v1alpha1.PhasePending, "Waiting for a slot.", clearProgress)
		}
	}
	if slices.Contains(nm.Finalizers, v1alpha1.Finalizer) {
		d.release(nm)
	} else {
		d.editMaintenance(nm, d.own)
	}
}

// own makes a maintenance go with its node (M8).
func (d *decision) own(nm *v1alpha1.NodeMaintenance) {
	if d.Node != nil && nm.DeletionTimestamp == nil && !slices.ContainsFunc(nm.OwnerReferences, isNode) {
		nm.OwnerReferences = append(nm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: d.Node.Name, UID: d.Node.UID})
	}
}

// refuse keeps a maintenance pending, or makes it so, and says why.
func (d *decision) refuse(nm *v1alpha1.NodeMaintenance, reason string) {
	before := len(d.Writes)
	event := Event{Maintenance: nm, Warning: true, Reason: EventRefused, Note: reason}
	if InProgress(nm) {
		event.Reason = EventSetBack
	}
	d.setPhase(nm, v1alpha1.PhasePending, reason, clearProgress)
	if len(d.Writes) > before {
		d.Events = append(d.Events, event)
	}
}

// release takes from a maintenance what it had while it was under way. One that is deleted is gone with that.
func (d *decision) release(nm *v1alpha1.NodeMaintenance) { d.editMaintenance(nm, release) }

// prepare writes on a maintenance what must be there before something is done to its node (M2, M3). It returns whether
// there was something to write.
func (d *decision) prepare(nm *v1alpha1.NodeMaintenance) bool {
	return d.editMaintenance(nm, func(nm *v1alpha1.NodeMaintenance) {
		d.own(nm)
		if nm.DeletionTimestamp == nil && !slices.Contains(nm.Finalizers, v1alpha1.Finalizer) {
			nm.Finalizers = append(nm.Finalizers, v1alpha1.Finalizer)
		}
		if _, recorded := nm.Annotations[v1alpha1.AnnotationInitiallyUnschedulable]; !recorded && wantsCordon(nm) && PhaseOf(nm) != v1alpha1.PhaseScheduled {
			// A cordon of the maintenance before is no state to go back to.
			value := fmt.Sprint(d.Node.Spec.Unschedulable && !isRecorded(d.Node))
			metav1.SetMetaDataAnnotation(&nm.ObjectMeta, v1alpha1.AnnotationInitiallyUnschedulable, value)
		}
	})
}

func wantsCordon(nm *v1alpha1.NodeMaintenance) bool { return ptr.Deref(nm.Spec.Cordon, true) }

// mark makes the node what it is to be for the maintenance that is under way, nil for none, and for those that are planned.
// It returns whether there was something to write, or to be read before.
func (d *decision) mark(current *v1alpha1.NodeMaintenance, planned []*v1alpha1.NodeMaintenance) bool {
	conditions := map[corev1.NodeConditionType]string{}
	if len(planned) > 0 {
		conditions[ConditionMaintenancePlanned] = describe(planned[0]) + " waits to begin."
	}
	phase := ""
	if current != nil {
		phase = PhaseOf(current)
		switch name := describe(current); phase {
		case v1alpha1.PhaseScheduled, v1alpha1.PhaseCordon, v1alpha1.PhaseWaitForPodCompletion:
			conditions[ConditionMaintenancePlanned] = name + " prepares the node."
		case v1alpha1.PhaseDraining:
			if current.Spec.DrainSpec == nil { // the phase is only passed, unless the node is open
				conditions[ConditionMaintenancePlanned] = name + " prepares the node."
			}
		default:
			conditions[ConditionMaintenanceInProgress] = name + " has the node."
		}
	}

	return d.editNode(func(node *corev1.Node) {
		if current == nil {
			emptied := d.Machine.Terminating || d.Machine.UpdatedInPlace
			if !emptied && d.Machine.owesProof(node) {
				// In one write with the end of the cordon: no pod comes in between.
				preservationv1alpha1.Taint(node, d.now)
			}
			giveBack(node, emptied)
			return
		}
		annotate(node, d.now)
		translateRecord(node)
		switch cordoned := isRecorded(node) && node.Spec.Unschedulable; {
		case phase == v1alpha1.PhaseScheduled: // what there is may be that of the maintenance before
		case !wantsCordon(current):
			uncordon(node)
		case cordoned && d.holds(current):
		case !isRecorded(node) && node.Spec.Unschedulable: // somebody else's
		case !cordoned && phase != v1alpha1.PhaseCordon && d.now.Before(d.CordonAfter):
			d.wake(d.CordonAfter)
		default:
			d.PutBack = !cordoned && phase != v1alpha1.PhaseCordon
			cordon(node, current)
		}
	}, func(node *corev1.Node) {
		showDrain(node, current, d.DrainConditions, d.now)
		setConditions(node, conditions, d.now)
	})
}

// advance goes on with a maintenance whose node is as its phase has it.
func (d *decision) advance(nm *v1alpha1.NodeMaintenance) {
	switch PhaseOf(nm) {
	case v1alpha1.PhaseScheduled:
		d.setPhase(nm, v1alpha1.PhaseCordon, "Cordoning the node.", nil)
	case v1alpha1.PhaseCordon:
		d.setPhase(nm, v1alpha1.PhaseWaitForPodCompletion, "Looking for pods to wait for.", nil)
	case v1alpha1.PhaseWaitForPodCompletion:
		d.wait(nm)
	case v1alpha1.PhaseDraining:
		d.drain(nm)
	case v1alpha1.PhaseReady:
		if _, known := nm.Annotations[v1alpha1.AnnotationReadyTime]; !known {
			// It may come late: a node that cannot be written to is waited for before (M6).
			became := meta.FindStatusCondition(nm.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime.Time
			d.editMaintenance(nm, func(nm *v1alpha1.NodeMaintenance) {
				metav1.SetMetaDataAnnotation(&nm.ObjectMeta, v1alpha1.AnnotationReadyTime, formatTime(became))
			})
		}
		if RequestorFailed(nm) {
			d.setPhase(nm, v1alpha1.PhaseRequestorFailed, messageFailed, nil)
		} else if nm.DeletionTimestamp != nil {
			d.stay(nm, v1alpha1.PhaseReady, "Waiting for the additional requestors: "+first(cut(nm.Spec.AdditionalRequestors))+".")
		} else {
			d.stay(nm, v1alpha1.PhaseReady, messageReady)
		}
	case v1alpha1.PhaseRequestorFailed:
		if !RequestorFailed(nm) {
			d.setPhase(nm, v1alpha1.PhaseReady, messageReady, nil)
		} else {
			d.stay(nm, v1alpha1.PhaseRequestorFailed, messageFailed)
		}
	}
}

const (
	messageReady  = "The node is ready for the requestor."
	messageFailed = "The requestor has failed. The node stays under maintenance until the condition RequestorFailed is cleared, or for as long as the operators allow."
)

// setPhase writes a phase with a message, and the status as edited.
func (d *decision) setPhase(nm *v1alpha1.NodeMaintenance, phase, message string, edit func(*v1alpha1.NodeMaintenanceStatus)) {
	if PhaseOf(nm) != phase {
		d.Events = append(d.Events, Event{Maintenance: nm, Reason: EventConditionChanged, Note: phase})
	}
	if phase != v1alpha1.PhasePending {
		message += d.Machine.Hold.describe()
	}
	d.editStatus(nm, func(s *v1alpha1.NodeMaintenanceStatus) {
		if edit != nil {
			edit(s)
		}
		SetPhase(s, phase, message, nm.Generation, d.now)
	})
}

// editMaintenance and its neighbours add a write if an object changes by an edit, and return whether it does.
func (d *decision) editMaintenance(nm *v1alpha1.NodeMaintenance, edit func(*v1alpha1.NodeMaintenance)) bool {
	after := nm.DeepCopy()
	edit(after)
	return d.write(intent.Write{Before: nm, After: after, Lock: true})
}

func (d *decision) editStatus(nm *v1alpha1.NodeMaintenance, edit func(*v1alpha1.NodeMaintenanceStatus)) bool {
	after := nm.DeepCopy()
	edit(&after.Status)
	return d.write(intent.Write{Before: nm, After: after, Status: true, Lock: true})
}

func (d *decision) editNode(spec, status func(*corev1.Node)) bool {
	writes := nodeWrites(d.Node, spec, status)
	// The node is read live. Maintenances from a cache that is behind must neither take back from it what was done since, nor its cordon from
	// the maintenance that has it (M3, D13, M16).
	if !d.MaintenancesLive && slices.ContainsFunc(writes, func(w intent.Write) bool {
		after := w.After.(*corev1.Node)
		return stageOf(after) < stageOf(d.Node) || isRecorded(d.Node) && CordonedFor(after) != CordonedFor(d.Node)
	}) {
		d.ReadMaintenances = true
		return true
	}
	d.Writes = append(d.Writes, writes...)
	return len(writes) > 0
}

func (d *decision) write(w intent.Write) bool {
	if !w.Changes() {
		return false
	}
	d.Writes = append(d.Writes, w)
	return true
}

func namespacedName(nm *v1alpha1.NodeMaintenance) types.NamespacedName {
	return types.NamespacedName{Namespace: nm.Namespace, Name: nm.Name}
}
