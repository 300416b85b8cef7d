// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// lookoutTime is for how long pods are looked out for, once a cordon was put back, that the scheduler was binding to the node.
const lookoutTime = 5 * time.Second

// isOpen says that the node takes pods although it is not to.
func (d *decision) isOpen(nm *v1alpha1.NodeMaintenance) bool {
	return wantsCordon(nm) && !d.Node.Spec.Unschedulable
}

// drainsAgain says that the node of a maintenance that is ready is being drained once more (M3). The status is the record: it is
// at 100 % once a drain is over, and there is none if nothing was ever drained.
func drainsAgain(nm *v1alpha1.NodeMaintenance) bool {
	return nm.Spec.DrainSpec != nil && nm.Status.Drain != nil && nm.Status.Drain.DrainProgress < 100
}

// reopened begins the drain anew of a node that was drained and is open: pods get in. It returns whether it does. What it
// writes comes before the cordon is put back: nothing else would tell, after a crash in between, that it was away.
func (d *decision) reopened(nm *v1alpha1.NodeMaintenance) bool {
	phase := PhaseOf(nm)
	if !d.isOpen(nm) || phase != v1alpha1.PhaseReady && phase != v1alpha1.PhaseRequestorFailed ||
		nm.Spec.DrainSpec == nil || nm.Status.Drain == nil || drainsAgain(nm) {
		return false
	}
	d.Events = append(d.Events, Event{
		Maintenance: nm, Warning: true, Reason: EventCordonVanished, Note: "Somebody else has uncordoned the node. It is cordoned and drained again.",
	})
	d.startDrain(nm, d.now)
	return true
}

// stay keeps a maintenance in a phase in which its requestor works, whatever is done meanwhile because the node was open.
func (d *decision) stay(nm *v1alpha1.NodeMaintenance, phase, message string) {
	switch {
	case d.isOpen(nm):
		d.setPhase(nm, phase, message+" "+d.opened(), nil)
	case !drainsAgain(nm):
		d.setPhase(nm, phase, message, nil)
	default:
		left, progress, done := d.evict(nm, lookoutTime)
		switch {
		case done:
			d.setPhase(nm, phase, message, progress)
		case left != "":
			d.setPhase(nm, phase, message+" The node was not cordoned for a while, and is drained again. "+left, progress)
		}
	}
}

// handOver makes a node ready that is prepared, but never one that is open.
func (d *decision) handOver(nm *v1alpha1.NodeMaintenance, edit func(*v1alpha1.NodeMaintenanceStatus)) {
	if d.isOpen(nm) {
		d.setPhase(nm, v1alpha1.PhaseDraining, d.opened(), edit)
		return
	}
	d.setPhase(nm, v1alpha1.PhaseReady, messageReady, edit)
}

// opened says that the node is open, and until when.
func (d *decision) opened() string {
	return "Somebody else has uncordoned the node. It is cordoned again at " + formatTime(d.CordonAfter) + "."
}
