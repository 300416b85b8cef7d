// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// maxMargin is the longest time before a deadline at which a hold is made.
const maxMargin = 30 * time.Second

// Timeouts are those of machine-controller-manager. A machine may override each.
type Timeouts struct {
	Health, Creation, Drain time.Duration
}

// For returns the effective timeouts of a machine: its own, else the receiver's.
func (t Timeouts) For(machine *machinev1alpha1.Machine) Timeouts {
	if c := machine.Spec.MachineConfiguration; c != nil {
		t.Health = ptr.Deref(c.MachineHealthTimeout, metav1.Duration{Duration: t.Health}).Duration
		t.Creation = ptr.Deref(c.MachineCreationTimeout, metav1.Duration{Duration: t.Creation}).Duration
		t.Drain = ptr.Deref(c.MachineDrainTimeout, metav1.Duration{Duration: t.Drain}).Duration
	}
	return t
}

// holdTime returns when a machine that is unhealthy, or has not joined yet, counts as failed: a margin before its
// deadline, so that the hold is there before machine-controller-manager acts on the deadline. For a machine in phase
// Failed that is now. It returns false for a machine that no deadline runs for.
func holdTime(machine *machinev1alpha1.Machine, defaults Timeouts, now time.Time) (time.Time, bool) {
	var (
		timeouts = defaults.For(machine)
		status   = machine.Status.CurrentStatus
	)
	switch status.Phase {
	case machinev1alpha1.MachineFailed:
		return now, true
	case machinev1alpha1.MachineUnknown:
		if c := machine.Spec.MachineConfiguration; c != nil && ptr.Deref(c.DisableHealthTimeout, false) {
			return time.Time{}, false
		}
		return status.LastUpdateTime.Add(timeouts.Health - margin(timeouts.Health)), true
	case machinev1alpha1.MachinePending:
		return machine.CreationTimestamp.Add(timeouts.Creation - margin(timeouts.Creation)), true
	default:
		return time.Time{}, false
	}
}

func margin(timeout time.Duration) time.Duration {
	return min(maxMargin, timeout/10)
}
