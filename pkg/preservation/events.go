// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"slices"
)

// EventAction is the action of those Events about the preservation of a machine that tell of no decision, but of what nobody can
// read (R3, R5). That of all others is the ID of the reason.
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

// Event returns the reason and the note of the Event by which people are told of the decision; empty if they are not. Its action is
// the ID of the reason for the decision.
func (d *Decision) Event() (reason, note string) {
	switch {
	case d.Verdict == Untold:
		return "", ""
	case d.Verdict == Refused:
		return EventRefused, "Machine failed and is replaced as " + d.Why.Text
	case d.Verdict == Ignored:
		return EventRefused, "Machine is not preserved as " + d.Why.Text
	case d.Target != nil:
		reason = EventPreserved
		switch d.Rule {
		case RuleFail:
			reason = EventFailed
		case RuleRecover:
			reason = EventRecovered
		}
		return reason, fmt.Sprintf("Machine is %s until %s as %s (cause %s)",
			d.Target.Phase(d.Machine.Status.CurrentStatus.Phase), formatTime(d.Target.Expiry()), d.Why.Text, d.Target.Cause())
	}
	return EventReleased, fmt.Sprintf("Machine is no longer preserved as %s (cause was %s)", d.Why.Text, d.Current.Cause())
}

// IsEvent says that an Event with this reason is about the preservation of a machine.
func IsEvent(reason string) bool {
	return slices.Contains([]string{EventPreserved, EventFailed, EventRecovered, EventReleased, EventNodeDenied, EventRefused, EventInvalidRequest, EventInvalidTimeout}, reason)
}

// RuleTold returns the rule that an Event with this reason and action tells of; empty for one that another version wrote, or that
// rests on one rule for a machine that failed and on another for one that did not.
func RuleTold(event, action string) Rule {
	switch event {
	case EventInvalidRequest:
		return "R3"
	case EventInvalidTimeout:
		return "R5"
	case EventNodeDenied:
		return "P14"
	case EventFailed:
		return RuleFail
	}
	return ReasonOf(action).Rule
}
