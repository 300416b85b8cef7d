// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// maxMargin is the longest time before a deadline at which a hold is made.
const maxMargin = 30 * time.Second

// deadline returns when machine-controller-manager takes a machine for failed that is unhealthy, or has not joined yet,
// and the margin before it from which on the machine is held, so that the hold is there before machine-controller-manager
// acts. For a machine in phase Failed the deadline is now. It is zero for a machine that none runs for: one whose update in
// place has failed counts itself as being replaced, so that machine-controller-manager marks it by no timeout.
func deadline(machine *machinev1alpha1.Machine, defaults facts.Timeouts, now time.Time) (at time.Time, margin time.Duration) {
	var (
		timeouts = defaults.For(machine)
		status   = machine.Status.CurrentStatus
	)
	switch status.Phase {
	case machinev1alpha1.MachineFailed:
		return now, 0
	case machinev1alpha1.MachineUnknown:
		if !hasHealthTimeout(machine) {
			return time.Time{}, 0
		}
		return status.LastUpdateTime.Add(timeouts.Health), min(maxMargin, timeouts.Health/10)
	case machinev1alpha1.MachineCrashLoopBackOff:
		if machine.Spec.ProviderID == "" { // no VM, no evidence; and a hold would end the attempts to create one
			return time.Time{}, 0
		}
		fallthrough
	case machinev1alpha1.MachinePending:
		return machine.CreationTimestamp.Add(timeouts.Creation), min(maxMargin, timeouts.Creation/10)
	default:
		return time.Time{}, 0
	}
}

// hasHealthTimeout says that machine-controller-manager marks the machine Failed when it has been Unknown for long enough.
func hasHealthTimeout(machine *machinev1alpha1.Machine) bool {
	c := machine.Spec.MachineConfiguration
	return c == nil || !ptr.Deref(c.DisableHealthTimeout, false)
}

// recoveredAt returns when machine-controller-manager found a Running machine healthy. The last operation tells that as well, and still does when
// >= 0.62 begins or ends a preservation by itself, which sets the time of the status anew.
func recoveredAt(machine *machinev1alpha1.Machine) time.Time {
	at := machine.Status.CurrentStatus.LastUpdateTime.Time
	if operation := machine.Status.LastOperation.LastUpdateTime; !operation.IsZero() {
		at = earlier(at, operation.Time)
	}
	return at
}

// failedSince returns when the timer was started whose deadline the machine misses.
func failedSince(machine *machinev1alpha1.Machine) time.Time {
	switch machine.Status.CurrentStatus.Phase {
	case machinev1alpha1.MachinePending, machinev1alpha1.MachineCrashLoopBackOff:
		return machine.CreationTimestamp.Time
	}
	return machine.Status.CurrentStatus.LastUpdateTime.Time
}

// taintCriticalComponents is on a node as long as Gardener's components on it are not ready.
const taintCriticalComponents = "node.gardener.cloud/critical-components-not-ready"

// cannotBeHeld says that the machine waits for nothing but components on its node, in the phase for that. In each phase in
// which it could be held, machine-controller-manager would take it for joined, and would never replace it (H2).
func cannotBeHeld(d *Decision) bool {
	phase := d.Machine.Status.CurrentStatus.Phase
	return (phase == machinev1alpha1.MachinePending || phase == machinev1alpha1.MachineCrashLoopBackOff) && d.healthy &&
		slices.ContainsFunc(d.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintCriticalComponents })
}

// neverJoined says that machine-controller-manager has never seen the machine's node: it copies the conditions of each.
func neverJoined(machine *machinev1alpha1.Machine) bool { return len(machine.Status.Conditions) == 0 }

// isGhost says that machine-controller-manager takes a machine for Running that never joined. It does so after an outage
// of the shoot's API server with a machine that was held in Unknown, and never looks at it again (H2).
func isGhost(machine *machinev1alpha1.Machine) bool {
	return machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && neverJoined(machine)
}
