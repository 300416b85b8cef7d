// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Steps returns the writes that carry a decision out, in their order: the hold and the expiry come first when a
// preservation begins and are cleared last when it ends, so that a crash in between loses nothing (P8). Of a machine whose node goes with
// it, the health timer is put back first: from then on, machine-controller-manager ends the machine (T8). A decision that
// is carried out already has none, or steps that change nothing.
func Steps(holder Holder, d Decision, timeouts facts.Timeouts, now time.Time) []intent.Write {
	timeouts = timeouts.For(d.Machine)
	var steps []intent.Write
	switch {
	case d.Target != nil:
		marks := d.Node != nil && !d.Target.Provisional && !d.native
		if d.overdue {
			steps = append(steps, reprieve(d, timeouts, now))
		}
		steps = append(steps, holder.hold(d, timeouts)...)
		if marks {
			steps = append(steps, protection(d, now))
		}
		steps = append(steps, holder.settle(d)...)
		if marks {
			steps = append(steps, condition(holder, d, now))
		}
		return steps
	case d.left:
		return nil
	case d.Machine.DeletionTimestamp != nil:
		steps = append(cleanNode(d, now), d.forget(dropRecord))
	case d.Current == nil && holder.obeys(d) && !d.ConsumeRequest:
		// What is on the node may be machine-controller-manager's: it would put it back.
		steps = holder.release(d, nil, timeouts, now)
	default:
		steps = holder.release(d, cleanNode(d, now), timeouts, now)
	}
	for i := range steps {
		steps[i].AfterAll = steps[i].AfterAll && !d.NodeDenied
	}
	if d.Current == nil && !slices.ContainsFunc(steps, Changes) {
		return nil
	}
	return steps
}

// Changes says that a write would change its object as it was decided on. It compares no more than what is edited here: this is asked for
// all machines each time, and next to none are written to.
func Changes(write intent.Write) bool {
	switch before := write.Before.(type) {
	case *machinev1alpha1.Machine:
		after := *before
		after.Annotations = maps.Clone(before.Annotations)
		write.Edit(&after)
		return !maps.Equal(after.Annotations, before.Annotations) ||
			!apiequality.Semantic.DeepEqual(after.Status.CurrentStatus, before.Status.CurrentStatus)
	case *corev1.Node:
		after := *before
		after.Annotations = maps.Clone(before.Annotations)
		after.Status.Conditions = slices.Clone(before.Status.Conditions)
		write.Edit(&after)
		return !maps.Equal(after.Annotations, before.Annotations) ||
			len(after.Spec.Taints) != len(before.Spec.Taints) ||
			!slices.Equal(after.Status.Conditions, before.Status.Conditions)
	}
	return write.Changes()
}

// Make makes a write in copies of the objects of a member.
func Make(write intent.Write, m *facts.Member) {
	switch write.Before.(type) {
	case *machinev1alpha1.Machine:
		m.Machine = m.Machine.DeepCopy()
		write.Edit(m.Machine)
	case *corev1.Node:
		if m.Node != nil {
			m.Node = m.Node.DeepCopy()
			write.Edit(m.Node)
		}
	}
}

// respite is how far away the deadline is put of a machine that is overdue.
const respite = time.Minute

// reprieve puts the deadline off of a machine that has missed it and was not held (H3). machine-controller-manager looks
// at the machine with our first write, and would have it terminated before the hold is complete.
func reprieve(d Decision, timeouts facts.Timeouts, now time.Time) intent.Write {
	return intent.Write{Before: d.Machine, Hold: true, Lock: true, Status: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = machinev1alpha1.MachineUnknown // the phase whose timer can be shifted
		m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(now.Add(respite - timeouts.Health).Truncate(time.Second))
	})}
}

// record writes the preservation that is to be on the Machine.
func record(machine *machinev1alpha1.Machine, d Decision) {
	setAnnotations(machine, recordKeys, d.Target.annotations(machine.Status.CurrentStatus.Phase))
	delete(machine.Annotations, v1alpha1.AnnotationGrantEnded) // where it could not be removed at once
	note(machine, func(n *Notes) {
		n.note(d.Target)
		n.spend(d)
		n.Spent.Released = time.Time{}
	})
}

// protection returns the write that protects the node from the autoscaler (P5), and puts its taint on or takes it off.
func protection(d Decision, now time.Time) intent.Write {
	begins := d.beginsDrain()
	return intent.Write{
		Before: d.Node,
		Lock:   begins || isTainted(d.Node) != d.Taints(), // the list of taints is replaced as a whole
		Edit: intent.Edit(func(node *corev1.Node) {
			protect(node)
			if begins { // from now on, and not from when the taint was put on
				taint(node, false, now)
			}
			taint(node, d.Taints(), now)
		}),
	}
}

// condition shows the hold on the Node (P11). What is only protected needs none.
func condition(holder Holder, d Decision, now time.Time) intent.Write {
	return d.tell(func(node *corev1.Node) {
		if d.unheld(holder) {
			setReleased(node, now)
			return
		}
		setPreserved(node, d.Target, d.gated, d.showsDrain, now)
	})
}

// tell writes the conditions of the node. Where they tell of its drain to others, somebody else may have written them meanwhile (D13).
func (d *Decision) tell(edit func(*corev1.Node)) intent.Write {
	write := intent.Write{Before: d.Node, Status: true, Edit: intent.Edit(edit)}
	if d.showsDrain || drain.WriterPreservation.HasWritten(d.Node) {
		after := d.Node.DeepCopy()
		edit(after)
		write.Lock = drain.Touches(d.Node, after)
	}
	return write
}

// cleanNode removes all traces of a preservation from the Node.
func cleanNode(d Decision, now time.Time) []intent.Write {
	if d.Node == nil {
		return nil
	}
	// A request may have been written anew, and the list of taints is replaced as a whole.
	_, restores := setAside(d.Machine, true)
	lock := isTainted(d.Node) || d.ConsumeRequest || restores || d.forgedFailed()
	tell := d.tell(func(node *corev1.Node) { setReleased(node, now) })
	if d.nodeGoes && !d.ConsumeRequest && !restores {
		return []intent.Write{tell}
	}
	rest := func(node *corev1.Node) {
		// During an update of the MachineDeployment the protection is machine-controller-manager's, which removes it from
		// all nodes in the end (P3). One that was never preserved has no condition.
		if !d.nodeGoes && !d.mcmProtects && (d.Current != nil || PreservedCondition(node) != nil || d.notes.NodeUncleaned) {
			unprotect(node)
		}
		restoreOnNode(d.Machine, node)
		if d.ConsumeRequest || d.forgedFailed() {
			consume(node.Annotations)
		}
	}
	untaints := isTainted(d.Node) && !d.nodeGoes
	if untaints || d.NodeDenied { // what is denied may be the status alone
		return []intent.Write{{Before: d.Node, Lock: lock, Edit: intent.Edit(func(node *corev1.Node) {
			rest(node)
			if untaints {
				taint(node, false, now)
			}
		})}, tell}
	}
	// The API server takes the annotations of a Node with its status: the kubelet writes them in that way, too.
	tell.Lock = tell.Lock || lock
	tell.Edit = intent.Edit(func(node *corev1.Node) { rest(node); setReleased(node, now) })
	return []intent.Write{tell}
}

// unconsumed returns the request on the Node that is used up and cannot be deleted there, empty for none.
func (d *Decision) unconsumed() string {
	switch {
	case !d.NodeDenied:
		return ""
	case d.ConsumeRequest && d.Request.OnNode && d.Request.explicit():
		return d.Request.Value
	}
	return d.Request.Spent
}

// forget returns the write that ends a preservation. Where a hold is called off because its machine is healthy again, that must still be so: any
// change refuses the write (H4). All other ends are refused only by an edit.
func (d *Decision) forget(edit func(*machinev1alpha1.Machine)) intent.Write {
	calledOff := d.Current != nil && d.Current.Provisional && d.Machine.DeletionTimestamp == nil
	return intent.Write{Before: d.Machine, AfterAll: true, Record: true, Lock: calledOff, LockEdits: !calledOff, Edit: intent.Edit(edit)}
}

// dropRecord removes all that the preservation has written on the Machine's metadata, but not the request.
func dropRecord(machine *machinev1alpha1.Machine) {
	setAnnotations(machine, recordKeys, nil)
	restoreOnMachine(machine)
	delete(machine.Annotations, v1alpha1.AnnotationEvidence)
	delete(machine.Annotations, v1alpha1.AnnotationGrantEnded)
	restorePriority(machine)
	note(machine, func(n *Notes) {
		n.note(nil)
		n.ExpiryInStatus, n.SetAside, n.RemediatedUntil = "", "", time.Time{}
	})
}

// consume deletes a request that is used up. false is nobody's to remove but the person's (R4).
func consume(annotations map[string]string) {
	if annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse {
		delete(annotations, v1alpha1.AnnotationPreserve)
	}
	delete(annotations, v1alpha1.AnnotationTimeout)
}

// setAnnotations replaces the values of keys by values.
func setAnnotations(machine *machinev1alpha1.Machine, keys []string, values map[string]string) {
	for _, key := range keys {
		delete(machine.Annotations, key)
	}
	for key, value := range values {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, value)
	}
}

func setOrDelete(machine *machinev1alpha1.Machine, key, value string) {
	if value == "" {
		delete(machine.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, value)
}
