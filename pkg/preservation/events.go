// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"slices"
)

// EventAction is the action of the Events about requests and timeouts that are not valid (R3, R5), about a pool at its maximum (P2), and
// about machine-hours (P18): they tell of no decision. The action of all other Events is the ID of the reason.
const EventAction = "Preserve"

// Reasons of the Events on Machines and Nodes (P11).
const (
	// EventPreserved says that a preservation has begun.
	EventPreserved = "MachinePreserved"
	// EventFailed says that a preserved machine failed.
	EventFailed = "PreservedMachineFailed"
	// EventRecovered says that a machine in Failed:Preserved is healthy again.
	EventRecovered = "PreservedMachineRecovered"
	// EventUnvalidated says that the node of a machine that is back takes no new pods until the machine is validated (V1).
	EventUnvalidated = "MachineAwaitsValidation"
	// EventValidated says that there is proof that a machine works that is back: its node takes pods again (V3).
	EventValidated = "MachineValidated"
	// EventNotValidated says that there was no proof in time: the node takes pods again (V4).
	EventNotValidated = "MachineNotValidated"
	// EventValidationWaived says that no proof is needed any more: the node takes pods again (V5).
	EventValidationWaived = "MachineValidationWaived"
	// EventReleased says that a preservation has ended.
	EventReleased = "MachinePreservationEnded"
	// EventNodeDenied says why the taint, the annotations and the condition of a preservation that ended may still be on the Node (P14).
	EventNodeDenied = "PreservedNodeDenied"
	// EventRefused says why a machine that failed is not preserved, or why a request is refused.
	EventRefused = "MachinePreservationRefused"
	// EventInvalidRequest says that a request is not valid (R3).
	EventInvalidRequest = "InvalidPreserveRequest"
	// EventInvalidTimeout says that the timeout beside a request is not valid (R5).
	EventInvalidTimeout = "InvalidPreserveTimeout"
	// EventPoolAtMaximum says that preserved machines keep their pool at its maximum (P2).
	EventPoolAtMaximum = "PoolAtMaximum"
	// EventMachineHours says that the machine-hours of the month are used up, or nearly (P18).
	EventMachineHours = "MachineHoursUsed"
)

// Event returns the reason and the note of the Event that tells people of the decision; empty if no Event does. The Event's action is
// the ID of the reason for the decision.
func (d *Decision) Event() (reason, note string) {
	switch {
	case d.Verdict == Untold:
		return "", ""
	case d.Verdict == Refused && d.storm.IsOn() && d.Why.Is(WhyStorm):
		return EventRefused, fmt.Sprintf("Machine failed and is not preserved for now because %s: %d of %d, and at most %d may. It can still be preserved if it has not been replaced when fewer fail",
			d.Why.Text, d.storm.Failing, d.storm.Machines, d.storm.Limit)
	case d.Verdict == Refused:
		return EventRefused, "Machine failed and is replaced because " + d.Why.Text
	case d.Verdict == Ignored:
		return EventRefused, "Machine is not preserved because " + d.Why.Text
	}
	validation, takes := d.validationEvent()
	switch {
	case validation != "" && d.Target != nil:
		return validation, fmt.Sprintf("%s. Machine is %s until %s (cause %s)", takes, d.Target.Phase(d.Machine.Status.CurrentStatus.Phase), formatTime(d.Target.Expiry()), d.Target.Cause())
	case validation != "":
		return validation, fmt.Sprintf("%s. Machine is no longer preserved (cause was %s)", takes, d.Current.Cause())
	case d.Target != nil:
		reason = EventPreserved
		switch d.Rule {
		case RuleFail:
			reason = EventFailed
		case RuleRecover:
			reason = EventRecovered
		}
		conjunction := "because"
		if d.GoesOn() {
			conjunction = "although"
		}
		return reason, fmt.Sprintf("Machine is %s until %s %s %s (cause %s)",
			d.Target.Phase(d.Machine.Status.CurrentStatus.Phase), formatTime(d.Target.Expiry()), conjunction, d.Why.Text, d.Target.Cause())
	}
	return EventReleased, fmt.Sprintf("Machine is no longer preserved because %s (cause was %s)", d.Why.Text, d.Current.Cause())
}

// GoesOn says that the machine stays preserved although the reason of the decision ended one of its claims.
func (d *Decision) GoesOn() bool {
	return d.Rule == RuleClaims && d.Target != nil && !d.Target.has(func(c Claim) bool { return WhyBegun(c.Cause).Is(d.Why) })
}

// IsEvent says that an Event with this reason is about the preservation of a machine.
func IsEvent(reason string) bool {
	return slices.Contains([]string{EventPreserved, EventFailed, EventRecovered, EventUnvalidated, EventValidated, EventNotValidated, EventValidationWaived, EventReleased, EventNodeDenied, EventRefused, EventInvalidRequest, EventInvalidTimeout, EventPoolAtMaximum, EventMachineHours}, reason)
}

// RuleTold returns the rule that an Event with this reason and action tells of. It is empty for an Event of another version, and where
// the rule depends on whether the machine had failed.
func RuleTold(event, action string) Rule {
	switch event {
	case EventInvalidRequest:
		return "R3"
	case EventInvalidTimeout:
		return "R5"
	case EventNodeDenied:
		return "P14"
	case EventPoolAtMaximum:
		return RuleMaximum
	case EventMachineHours:
		return RuleMaxHours
	case EventFailed:
		return RuleFail
	}
	return ReasonOf(action).Rule
}
