// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// PreserveExpiry holds with what machine-controller-manager >= 0.62 has: it leaves a machine alone, in any phase, that
// is annotated "now" and has a status.currentStatus.preserveExpiryTime in the future. The hold ends by itself (P10).
type PreserveExpiry struct{}

func (PreserveExpiry) obeys(d Decision) bool {
	return d.Request.Value == v1alpha1.RequestNow ||
		d.Request.Value == v1alpha1.RequestWhenFailed && d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
}

func (PreserveExpiry) denies(d Decision) bool {
	return d.Request.Templated && d.Request.Value == v1alpha1.RequestFalse
}

// spares says that machine-controller-manager >= 0.62 preserves the machine by itself: it does for a request that it can
// see, which it looks for on the node.
func (h PreserveExpiry) spares(d Decision, now time.Time) bool {
	if expiry := d.Machine.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
		return expiry.After(now)
	}
	return h.obeys(d) && (d.Node != nil || d.NodeUnknown || d.Machine.Labels[machinev1alpha1.NodeLabelKey] == "")
}

// nativePatience is for how long machine-controller-manager is left to do what it does by itself on a request. It needs
// fractions of a second, unless it is not there or frozen.
const nativePatience = 10 * time.Second

// cooperate leaves the expiry, the protection and the condition of a machine that is asked for now to machine-controller-
// manager >= 0.62, which writes them on its own, where its expiry is what ours would be. It does not put the deadline off of
// a machine that is to be Failed to be held.
func (PreserveExpiry) cooperate(d *Decision, g Group, now time.Time) {
	if d.heldOnceFailed() {
		d.overdue = false
	}
	configuration := d.Machine.Spec.MachineConfiguration
	if !d.carriesNow() || d.Request.Timeout > 0 || d.beingCreated() || len(d.Target.Claims) > 1 || d.Target.Failing() || now.Add(g.Timeout).After(d.limit) ||
		configuration == nil || configuration.MachinePreserveTimeout == nil || configuration.MachinePreserveTimeout.Duration != g.Timeout {
		return
	}
	claim, expiry := &d.Target.Claims[0], d.Target.Expiry()
	native := d.Machine.Status.CurrentStatus.PreserveExpiryTime
	if native != nil && d.Current == nil {
		expiry = native.Time
	}
	begun := expiry.Add(-g.Timeout)
	until := begun.Add(nativePatience)
	if now.Before(begun) || !now.Before(until) {
		return
	}
	d.native = true
	d.lookAt(until)
	if native != nil && d.Current == nil { // what was told once stays
		claim.Expiry = native.Time
	}
}

// defaultNativeTimeout is for how long machine-controller-manager >= 0.62 preserves a machine that does not say for how long.
const defaultNativeTimeout = 96 * time.Hour

// isNative says that the expiry in the status is machine-controller-manager's own and no operator's edit of ours: it has
// written both the expiry and the start of the health timer at the same time. It does when a request changes twice, and
// nobody else sees that the preservation was stopped in between (P13).
func isNative(machine *machinev1alpha1.Machine) bool {
	status, timeout := machine.Status.CurrentStatus, defaultNativeTimeout
	if status.PreserveExpiryTime == nil || !IsExpiryInStatus(machine) {
		return false
	}
	if c := machine.Spec.MachineConfiguration; c != nil && c.MachinePreserveTimeout != nil {
		timeout = c.MachinePreserveTimeout.Duration
	}
	return (status.PreserveExpiryTime.Sub(status.LastUpdateTime.Time) - timeout).Abs() <= time.Second
}

// unhold writes the record of a machine that is only protected, and takes the hold back that there may have been: machine-
// controller-manager >= 0.62 uncordons each Running machine's node that has an expiry.
func (PreserveExpiry) unhold(machine *machinev1alpha1.Machine, d Decision) {
	record(machine, d)
	restoreOnMachine(machine)
	note(machine, func(n *Notes) {
		if n.ExpiryInStatus = ""; d.Node == nil {
			n.SetAside = ""
		}
	})
	dropBeatenRequest(machine, d)
	raisePriority(machine)
}

// dropBeatenRequest removes a request on the Machine that machine-controller-manager >= 0.62 would obey, although the empty
// one of the Node beats it (R2).
func dropBeatenRequest(machine *machinev1alpha1.Machine, d Decision) {
	if d.Request.OnNode && d.Request.Value == "" && d.Request.Invalid == "" && machine.Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse {
		delete(machine.Annotations, v1alpha1.AnnotationPreserve)
	}
}

func (PreserveExpiry) annotate(machine *machinev1alpha1.Machine, d Decision) {
	record(machine, d)
	expiry := machine.Status.CurrentStatus.PreserveExpiryTime
	switch {
	case expiry != nil && !expiry.Time.Equal(d.Target.Expiry()) || d.heldOnceFailed() || d.mayBeForged():
		// A claim was added or has gone: until the new expiry is there, the old one must not pass for an operator's edit. Nor
		// must one that machine-controller-manager writes when the machine fails, nor one that it removes with what is forged
		// for one that an operator brought forward.
		note(machine, func(n *Notes) { n.ExpiryInStatus = "" })
	case expiry != nil && !d.withoutExpiry():
		d.markExpiry(machine)
	}
	if d.heldOnceFailed() {
		raisePriority(machine)
	}
	if d.NodeUnknown && d.Request.OnNode {
		return
	}

	carried, onNode := machine.Annotations[v1alpha1.AnnotationPreserve], d.nodeCarries()
	if onNode {
		restoreOnMachine(machine) // what held there is no request
		carried = d.nodeValue()
	} else {
		machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow
		// machine-controller-manager would look for a request on the node, as long as it has not seen that there is none
		// any more.
		delete(machine.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	if carried == ValueAutoPreserved {
		carried = ""
	}
	_, ours := setAside(machine, onNode)
	switch {
	case carried == v1alpha1.RequestNow && ours, isTaken(d.Machine, onNode):
	case carried == v1alpha1.RequestNow, onNode && d.stays():
		note(machine, func(n *Notes) { n.SetAside = "" })
	default:
		note(machine, func(n *Notes) { n.SetAside = carrier(onNode) + carried })
	}
}

// nodeCarries says that machine-controller-manager >= 0.62 reads the annotation from the Node and not from the Machine. Of
// true it reads neither, until that is replaced on the Node or goes.
func (d *Decision) nodeCarries() bool {
	if d.Node == nil || d.stays() && d.nodeValue() == v1alpha1.RequestTrue || d.isUnseen() {
		return false
	}
	return d.forged() || d.Request.OnNode && (d.Request.explicit() || d.Request.Spent != "" || d.Request.Value == v1alpha1.RequestFalse)
}

// isUnseen says that machine-controller-manager >= 0.62 may have yet to see the request on the Node, perhaps long after us. It would end
// what only the Node holds, and terminate a failed machine. So the Machine goes on to hold, or begins to when the machine is about to fail
// and when a hold was ended in that way. When machine-controller-manager sees the request, it notes it on the Machine, and removes what
// is there. Of true it notes nothing, and leaves the machine alone.
func (d *Decision) isUnseen() bool {
	if !d.Request.explicit() || d.stays() || d.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] != "" {
		return false
	}
	_, moved := setAside(d.Machine, true)
	_, holds := setAside(d.Machine, false)
	fails := d.Target.Failing() && (d.Current == nil || !d.Current.Failing())
	return !moved && (holds || fails || isStopped(d.Machine))
}

// heldOnceFailed says that machine-controller-manager >= 0.62 holds the machine by itself from when it has marked it Failed,
// and until then ends whatever holds it: it reads on the Node what has this meaning, and that stays there.
func (d *Decision) heldOnceFailed() bool {
	return d.nodeCarries() && d.stays() && d.nodeValue() != v1alpha1.RequestNow &&
		d.Machine.Status.CurrentStatus.Phase != machinev1alpha1.MachineFailed
}

func (h PreserveExpiry) hold(d Decision, _ facts.Timeouts) []intent.Write {
	if d.unheld(h) {
		return []intent.Write{{Before: d.Machine, Hold: true, Record: true, Lock: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { h.unhold(m, d) })}}
	}
	// The phase may only be replaced if it is still that one.
	replacesPhase := d.overdue || d.Target.Failing() && (d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineCrashLoopBackOff || isMisplaced(d.Machine, d.Target))
	var (
		annotate        = intent.Write{Before: d.Machine, Hold: true, Record: true, Lock: !d.Confirm, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { h.annotate(m, d) })}
		annotateAndMark = intent.Write{Before: d.Machine, Hold: true, Record: true, Lock: !d.Confirm, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { h.annotate(m, d); d.markExpiry(m) })}
		expire          = intent.Write{Before: d.Machine, Hold: true, Status: true, Lock: replacesPhase, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: d.Target.Expiry()}
			if !d.Target.Failing() {
				return
			}
			// What is tried to be created is failed with a status without expiry; what waits for its node is not (H3). The
			// other holder, or an outage, left what never joined in other phases (H2).
			if phase := m.Status.CurrentStatus.Phase; phase == machinev1alpha1.MachineCrashLoopBackOff || isMisplaced(m, d.Target) {
				m.Status.CurrentStatus.Phase = machinev1alpha1.MachinePending
			}
			// machine-controller-manager restarts the health timer when it sees the annotation before the expiry, and
			// the other holder shifts it. Left so, the machine would look healthy-to-be and never get to Failed.
			restoreTimer(m, d.Target)
		})}
	)
	switch {
	case d.withoutExpiry():
		return []intent.Write{annotate}
	case d.native && d.Machine.Status.CurrentStatus.PreserveExpiryTime.Time.Equal(d.Target.Expiry()):
		return []intent.Write{annotateAndMark}
	case d.carriesNow() && (d.Current == nil || d.Current.Expiry().Equal(d.Target.Expiry())): // else it would pass for an edit
		// The annotation that the expiry must not be without is there already: the mark needs no write of its own.
		return []intent.Write{expire, annotateAndMark}
	case d.nodeCarries() && !d.stays():
		setNow := intent.Write{Before: d.Node, Hold: true, Lock: true, Edit: intent.Edit(func(node *corev1.Node) { node.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow })}
		return []intent.Write{annotate, setNow, expire}
	default:
		return []intent.Write{annotate, expire}
	}
}

func (h PreserveExpiry) settle(d Decision) []intent.Write {
	if d.unheld(h) {
		// As in a release, the annotation goes before the expiry.
		return append(restoreRequest(d), intent.Write{Before: d.Machine, AfterAll: true, Status: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = nil
		})})
	}
	if d.withoutExpiry() || d.mayBeForged() {
		return nil
	}
	return []intent.Write{{Before: d.Machine, Lock: true, Edit: intent.Edit(d.markExpiry)}}
}

// withoutExpiry says that no expiry is to be written into the status: it would not stay there, or machine-controller-manager
// is about to write it.
func (d *Decision) withoutExpiry() bool {
	return d.beingCreated() || d.heldOnceFailed() || d.native && d.Machine.Status.CurrentStatus.PreserveExpiryTime == nil
}

// markExpiry notes that the expiry in the status is ours. Until the deadline nobody is told of one that could be edited (H4): then the
// mark comes with what is written at the deadline, and not in a write of its own.
func (d *Decision) markExpiry(machine *machinev1alpha1.Machine) {
	if !d.Target.Provisional {
		note(machine, func(n *Notes) { n.ExpiryInStatus = machine.UID })
	}
}

// beingCreated says that machine-controller-manager has given the machine no phase yet, or tries to create its VM: what it
// writes then drops the expiry.
func (d *Decision) beingCreated() bool {
	phase := d.Machine.Status.CurrentStatus.Phase
	return phase == "" || phase == machinev1alpha1.MachineCrashLoopBackOff && !d.Target.Failing()
}

// carriesNow says that machine-controller-manager >= 0.62 sees the annotation that makes it hold without our doing.
func (d *Decision) carriesNow() bool {
	switch {
	case d.Request.Value != v1alpha1.RequestNow || d.NodeUnknown:
		return false
	case d.nodeCarries():
		return d.nodeValue() == v1alpha1.RequestNow
	default:
		return !d.Request.OnNode && d.Machine.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.RequestNow &&
			d.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] == ""
	}
}

func restoreTimer(machine *machinev1alpha1.Machine, record *Record) {
	if machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && !record.FailedSince.IsZero() {
		machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(record.FailedSince)
	}
}

func (h PreserveExpiry) release(d Decision, clean []intent.Write, timeouts facts.Timeouts, now time.Time) []intent.Write {
	return append(clean,
		// Without the record nobody knows what the timer was.
		intent.Write{Before: d.Machine, AfterAll: true, Status: true, LockEdits: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
			putBack(m, d, timeouts, now)
		})},
		// The annotation goes before the expiry: with the annotation alone, machine-controller-manager would begin anew.
		d.forget(func(m *machinev1alpha1.Machine) {
			finish(m, d, now)
			if d.Current == nil && m.Status.CurrentStatus.PreserveExpiryTime != nil && m.Annotations[v1alpha1.AnnotationPreserve] == ValueAutoPreserved {
				delete(m.Annotations, v1alpha1.AnnotationPreserve) // else machine-controller-manager begins anew at once
			}
			dropBeatenRequest(m, d)
		}),
		intent.Write{Before: d.Machine, AfterAll: true, Status: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
			switch {
			case m.DeletionTimestamp != nil:
				return // it goes, whatever its expiry
			case !d.outlast.IsZero():
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: d.outlast}
				return
			case h.obeys(d) && !d.ConsumeRequest:
				return // what is left is machine-controller-manager's own doing
			}
			// A failed machine is terminated at its expiry whether or not that is cleared. Without one, machine-controller-
			// manager would begin anew with a request that cannot be deleted.
			expiry, spent := m.Status.CurrentStatus.PreserveExpiryTime, d.unconsumed() != ""
			switch {
			case expiry != nil && !expiry.After(now) && (spent || m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed):
			case spent, expiry != nil && (d.Verdict == Refused || d.forged() || d.Current == nil && d.autoPreservedNatively()) && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed:
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: now.Truncate(time.Second)}
			default:
				m.Status.CurrentStatus.PreserveExpiryTime = nil
			}
		})},
	)
}
