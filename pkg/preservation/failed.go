// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// HasFailed returns whether the machine has failed, kept or not, and since when the timer ran whose deadline it missed. A machine that
// failed before is not counted as having failed again while it is on its way out. One that is healthy again has failed until that is
// written: nobody may have looked since. The time is another one once machine-controller-manager has marked a machine Failed that is not
// kept: that writes over the start of the timer.
func (d *Decision) HasFailed() (since time.Time, failed bool) {
	phase := d.Machine.Status.CurrentStatus.Phase
	switch {
	case d.Machine.DeletionTimestamp != nil:
		return time.Time{}, false
	case d.Target != nil && !d.Target.Failed && d.Current != nil && d.Current.Failed:
		return d.Current.FailedSince, true
	case d.Target != nil:
		return d.Target.FailedSince, d.Target.Failed
	case d.Current != nil: // it is released at its deadline, or after that
		since = d.Current.FailedSince
		if since.IsZero() {
			since = failedSince(d.Machine)
		}
		return since, d.Current.Failed || d.due && !d.healthy
	case d.hadItsTime():
		return time.Time{}, false
	case phase == machinev1alpha1.MachineInPlaceUpdateFailed:
		return failedSince(d.Machine), true
	}
	// Of one that is healthy by now, machine-controller-manager has yet to see it.
	return failedSince(d.Machine), d.due && (!d.healthy || phase == machinev1alpha1.MachineFailed || cannotBeHeld(d))
}

// FailedSince returns since when the timer runs, or ran, whose deadline a preserved machine misses; zero for one that is not preserved,
// or does not fail. Holding the machine does not change it.
func FailedSince(machine *machinev1alpha1.Machine) time.Time {
	if record := ReadRecord(machine); record != nil {
		return record.FailedSince
	}
	return time.Time{}
}

// WaitsForStorm says that the machine gets no place before fewer machines of the shoot fail (P16). Not every change that ends a storm is
// one of the machine's own MachineDeployment.
func (d *Decision) WaitsForStorm() bool { return d.storm.IsOn() }

// IsReleased says that the decision ends a preservation, of a machine that is not being deleted.
func (d *Decision) IsReleased() bool {
	return d.Current != nil && d.Target == nil && d.Rule != RuleDeleted
}
