// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// HealthTimer holds with what machine-controller-manager < 0.62 has: it marks an Unknown machine Failed when
// status.currentStatus.lastUpdateTime is longer ago than the health timeout, so that time is set such that this happens
// at the expiry. The hold ends by itself (P10).
type HealthTimer struct{}

func (HealthTimer) obeys(Decision) bool                   { return false }
func (HealthTimer) denies(Decision) bool                  { return false }
func (HealthTimer) spares(Decision, time.Time) bool       { return false }
func (HealthTimer) cooperate(*Decision, Group, time.Time) {}

func (HealthTimer) annotate(machine *machinev1alpha1.Machine, d Decision) {
	record(machine, d)
	// What the other holder left there when machine-controller-manager was downgraded.
	restoreOnMachine(machine)
	note(machine, func(n *Notes) { n.ExpiryInStatus = "" })
	syncNodeRequest(machine, d)
	raisePriority(machine)
}

func (h HealthTimer) hold(d Decision, timeouts facts.Timeouts) []intent.Write {
	steps := []intent.Write{{Before: d.Machine, Hold: true, Record: true, Lock: !d.Confirm, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { h.annotate(m, d) })}}
	if d.Target.Failing() {
		// The record has been written on this very machine. Its phase may only be replaced if it is still that one.
		lock := d.Machine.Status.CurrentStatus.Phase != machinev1alpha1.MachineUnknown
		steps = append(steps, intent.Write{Before: d.Machine, Hold: true, Status: true, Lock: lock, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
			status := &m.Status.CurrentStatus
			if status.Phase != machinev1alpha1.MachineUnknown {
				if !isGhost(m) && !slices.Contains(untimed, status.Phase) {
					return
				}
				status.Phase = machinev1alpha1.MachineUnknown
			}
			status.LastUpdateTime = metav1.NewTime(d.Target.Expiry().Add(-timeouts.Health))
		})})
	}
	return steps
}

// untimed are the phases that are replaced by the one that the health timer runs in. A machine in Failed is one that
// machine-controller-manager >= 0.62 left there before it was downgraded.
var untimed = []machinev1alpha1.MachinePhase{machinev1alpha1.MachinePending, machinev1alpha1.MachineCrashLoopBackOff, machinev1alpha1.MachineFailed}

func (HealthTimer) settle(d Decision) []intent.Write { return restoreRequest(d) }

// restoreRequest puts the request on the Node back where it was replaced by the hold of machine-controller-manager >= 0.62.
func restoreRequest(d Decision) []intent.Write {
	if _, ok := setAside(d.Machine, true); !ok || d.Node == nil {
		return nil
	}
	return []intent.Write{
		{Before: d.Node, Lock: true, Edit: intent.Edit(func(node *corev1.Node) { restoreOnNode(d.Machine, node) })},
		{Before: d.Machine, AfterAll: true, Lock: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { note(m, func(n *Notes) { n.SetAside = "" }) })},
	}
}

func (HealthTimer) release(d Decision, clean []intent.Write, timeouts facts.Timeouts, now time.Time) []intent.Write {
	// What an operator does now must not be too late: the timer is what ends the machine (P6).
	timer := intent.Write{Before: d.Machine, Status: true, LockEdits: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { putBack(m, d, timeouts, now) })}
	forget := d.forget(func(m *machinev1alpha1.Machine) {
		finish(m, d, now)
		syncNodeRequest(m, d)
	})
	if d.nodeGoes { // an edit that refuses the timer finds the request on the node, without which nobody would ask for the machine any more
		// machine-controller-manager >= 0.62 obeys the timer as well, and begins it anew as long as it sees now.
		forget.Lock = d.Request.OnNode && d.Request.Value == v1alpha1.RequestNow
		return append(append([]intent.Write{timer}, clean...), forget)
	}
	return append(clean, timer, forget)
}

// putBack lets machine-controller-manager's own timeouts end a machine that was held: the health timer is what it was, and
// what waited for its node when it was held waits again, until its creation deadline (H2).
func putBack(machine *machinev1alpha1.Machine, d Decision, timeouts facts.Timeouts, now time.Time) {
	status := &machine.Status.CurrentStatus
	held := d.Current != nil && d.Current.Failing()
	switch {
	case held && isMisplaced(machine, d.Current), d.Node == nil && isMisplaced(machine, nil): // only we bring it there
		status.Phase = machinev1alpha1.MachinePending
		status.LastUpdateTime = machine.CreationTimestamp
	case held && status.Phase == machinev1alpha1.MachineUnknown:
		since := d.Current.FailedSince
		if latest := now.Add(-timeouts.Health - time.Second).Truncate(time.Second); d.Current.Failed && since.After(latest) || since.IsZero() {
			since = latest // a failed machine is to go now, whatever became of the timeout since
		}
		status.LastUpdateTime = metav1.NewTime(since)
	}
}

// isMisplaced says that a machine is in a phase that none gets to which waits for its node: the health timer's, or Running
// (H2).
func isMisplaced(machine *machinev1alpha1.Machine, record *Record) bool {
	waited := neverJoined(machine) || record != nil && record.FailedSince.Equal(machine.CreationTimestamp.Time)
	return isGhost(machine) || waited && machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown
}

// syncNodeRequest writes the Node's request on the Machine (R2), where machine-controller-manager does not do it.
func syncNodeRequest(machine *machinev1alpha1.Machine, d Decision) {
	if d.Node != nil {
		value := d.Node.Annotations[v1alpha1.AnnotationPreserve]
		if original, ok := setAside(d.Machine, true); ok && value == v1alpha1.RequestNow {
			value = original
		}
		switch {
		case d.ConsumeRequest && value != v1alpha1.RequestFalse, d.Target == nil && d.forgedFailed():
			value = ""
		case !isRequest(value):
			value = requestInvalid
		}
		setOrDelete(machine, v1alpha1.AnnotationLastAppliedNodePreserveValue, value)
	}
}
