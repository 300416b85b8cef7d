// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"regexp"
)

// EventAction is the action of the Events about the preservation of a machine.
const EventAction = "Preserve"

// Reasons of the Events on Machines and Nodes (P11).
const (
	// EventPreserved says that a preservation has begun.
	EventPreserved = "MachinePreserved"
	// EventFailed says that a preserved machine failed.
	EventFailed = "PreservedMachineFailed"
	// EventRecovered says that a machine in Failed:Preserved is healthy again.
	EventRecovered = "PreservedMachineRecovered"
	// EventReleased says that a preservation has ended.
	EventReleased = "MachinePreservationEnded"
	// EventNodeDenied says that the end of a preservation did not wait any longer for its traces to be removed from the Node,
	// and why they could not be (P14).
	EventNodeDenied = "PreservedNodeDenied"
	// EventRefused says that a machine failed and is not preserved, or that a request is not heeded, and why not.
	EventRefused = "MachinePreservationRefused"
	// EventInvalidRequest says that a request is not a valid one (R3).
	EventInvalidRequest = "InvalidPreserveRequest"
	// EventInvalidTimeout says that the timeout beside a request is not a valid one (R5).
	EventInvalidTimeout = "InvalidPreserveTimeout"
)

// reasonsTold are those of the transitions that people are told of. A hold in the margin is none of them: nothing has
// happened yet (H4). Nor is the end of a maintenance (M13), or of a remediation.
var reasonsTold = map[Rule]string{
	RuleBegin:         EventPreserved,
	RuleWhenFailed:    EventPreserved,
	RuleAuto:          EventPreserved,
	RuleMaintenance:   EventPreserved,
	RuleRemediation:   EventPreserved,
	RuleClaims:        EventPreserved,
	RuleFail:          EventFailed,
	RuleRecover:       EventRecovered,
	RuleRelease:       EventReleased,
	RuleReleaseFailed: EventReleased,
	RuleShareLowered:  EventReleased,
	RuleDeleted:       EventReleased,
	RuleShareUsedUp:   EventReleased,
	RuleRollout:       EventReleased,
	RuleForbidden:     EventReleased,
	RuleMaxTimeout:    EventReleased,
}

// Told returns the reason and the note of the Event by which people are told of the decision; empty if they are not.
func (d *Decision) Told() (reason, note string) {
	reason, told := reasonsTold[d.Rule]
	switch {
	case !told:
		return "", ""
	case d.Target != nil:
		return reason, fmt.Sprintf("Machine is %s until %s as %s (cause %s)",
			d.Target.Phase(d.Machine.Status.CurrentStatus.Phase), formatTime(d.Target.Expiry()), d.Reason, d.Target.Cause())
	}
	return reason, fmt.Sprintf("Machine is no longer preserved as %s (cause was %s)", d.Reason, d.Current.Cause())
}

// Refusal returns the note of the Event with reason EventRefused, empty if nothing is refused.
func (d *Decision) Refusal() string {
	switch {
	case d.Refused:
		return "Machine failed and is replaced as " + d.Reason
	case d.Ignored:
		return "Machine is not preserved as " + d.Reason
	}
	return ""
}

var noteFormat = regexp.MustCompile(`^Machine .*? as (.*?)(?: \(cause (?:was )?([a-z-]+)\))?$`)

// ReadNote returns the reason and the cause in the note of an Event, as Told and Refusal write it; empty for what it does not
// say.
func ReadNote(note string) (reason, cause string) {
	if match := noteFormat.FindStringSubmatch(note); match != nil {
		return match[1], match[2]
	}
	return "", ""
}
