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

// DefaultTimeouts are those of a machine-controller-manager without flags.
var DefaultTimeouts = Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}

// For returns the effective timeouts of a machine: its own, else the receiver's.
func (t Timeouts) For(machine *machinev1alpha1.Machine) Timeouts {
	if c := machine.Spec.MachineConfiguration; c != nil {
		t.Health = ptr.Deref(c.MachineHealthTimeout, metav1.Duration{Duration: t.Health}).Duration
		t.Creation = ptr.Deref(c.MachineCreationTimeout, metav1.Duration{Duration: t.Creation}).Duration
		t.Drain = ptr.Deref(c.MachineDrainTimeout, metav1.Duration{Duration: t.Drain}).Duration
	}
	return t
}

// deadline returns when machine-controller-manager takes a machine for failed that is unhealthy, or has not joined yet,
// and a margin before it: from then on it counts as failed here, so that the hold is there before
// machine-controller-manager acts. For a machine in phase Failed the deadline is now. It is zero for a machine that none
// runs for.
func deadline(machine *machinev1alpha1.Machine, defaults Timeouts, now time.Time) (at time.Time, margin time.Duration) {
	var (
		timeouts = defaults.For(machine)
		status   = machine.Status.CurrentStatus
	)
	switch status.Phase {
	case machinev1alpha1.MachineFailed:
		return now, 0
	case machinev1alpha1.MachineUnknown:
		if c := machine.Spec.MachineConfiguration; c != nil && ptr.Deref(c.DisableHealthTimeout, false) {
			return time.Time{}, 0
		}
		return status.LastUpdateTime.Add(timeouts.Health), min(maxMargin, timeouts.Health/10)
	case machinev1alpha1.MachinePending:
		return machine.CreationTimestamp.Add(timeouts.Creation), min(maxMargin, timeouts.Creation/10)
	default:
		return time.Time{}, 0
	}
}
