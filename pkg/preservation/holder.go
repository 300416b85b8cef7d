// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Holder is the way in which a generation of machine-controller-manager is told to keep its hands off a machine.
type Holder interface {
	// obeys says that machine-controller-manager holds the machine by itself because of the request.
	obeys(d Decision) bool
	// denies says that machine-controller-manager ends whatever holds the machine because of the request, which comes back
	// when it is replaced.
	denies(d Decision) bool
	// spares says that machine-controller-manager does not terminate the machine although it is Failed and we have not
	// held it.
	spares(d Decision, now time.Time) bool
	// cooperate takes over what machine-controller-manager does by itself because of the request.
	cooperate(d *Decision, g Group, now time.Time)
	// hold returns the steps that write the record and put the hold in place.
	hold(d Decision, timeouts facts.Timeouts) []intent.Write
	// settle returns the steps that can wait until the node is protected.
	settle(d Decision) []intent.Write
	// release returns the steps that end the hold and remove what is on the Machine, with those that clean its node among them. They
	// also clean a machine that is not preserved but carries leftovers of a preservation.
	release(d Decision, clean []intent.Write, timeouts facts.Timeouts, now time.Time) []intent.Write
}

// finish removes the preservation from the Machine's metadata, and leaves a mark if the machine is to be terminated.
func finish(machine *machinev1alpha1.Machine, d Decision, now time.Time) {
	aside, onNode := setAside(machine, true)
	dropRecord(machine)
	if d.ConsumeRequest {
		consume(machine.Annotations)
		delete(machine.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	note(machine, func(n *Notes) {
		n.spend(d)
		n.Spent.Request = d.unconsumed()
		n.NodeUncleaned = (d.NodeDenied || d.nodeGoes) && d.Node != nil // of one that is not known, nobody says that it could not be cleaned
		if onNode && d.NodeDenied {                                     // what is on the Node is still the hold's, and nobody's request
			n.SetAside = carrier(true) + aside
		}
		switch {
		case machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && d.healthy: // the phase alone proves nothing (H1)
			n.Spent.Released = time.Time{}
		case d.Current != nil && (d.Current.Failed || (d.Current.Failing() || d.Rule == RuleRollout) && d.due && !d.healthy):
			n.Spent.Released = now.Truncate(time.Second).UTC()
		}
	})
}
