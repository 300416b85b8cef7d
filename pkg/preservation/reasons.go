// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// reasons are all reasons of this domain.
var reasons reason.Table

// The reasons of decisions.
var (
	// Why a machine is preserved.
	WhyAskedFor          = reasons.Add("AskedFor", RuleBegin, "it was requested")
	WhyAskedInCase       = reasons.Add("AskedInCase", RuleWhenFailed, "it was requested in case the machine fails")
	WhyMachineFailed     = reasons.Add("MachineFailed", RuleAuto, "the machine failed")
	WhyPreservedNatively = reasons.Add("PreservedNatively", RuleAuto, "machine-controller-manager had already preserved it")
	WhyUnderMaintenance  = reasons.Add("UnderMaintenance", RuleMaintenance, "its node is under maintenance")
	WhyPowerCycle        = reasons.Add("PowerCycle", RuleRemediation, "a power cycle of its host was requested")
	WhyPowerCycleFailed  = reasons.Add("PowerCycleFailed", RuleRemediation, "the power cycle of its host did not help")
	WhyAboutToFail       = reasons.Add("AboutToFail", RuleMargin, "the machine is about to fail")
	WhyHealthyAgain      = reasons.Add("HealthyAgain", RuleRecover, "the node is healthy again")
	WhyUnvalidated       = reasons.Add("Unvalidated", RuleUnvalidated, "the machine is back and has yet to be validated")
	WhyValidationWaived  = reasons.Add("ValidationWaived", RuleValidationWaived, "its pool needs no validation now")

	// Why it is preserved no longer. Where no rule is named, it is T8 for a machine that failed and T3 for any other.
	WhyDidNotFail        = reasons.Add("DidNotFail", RuleMargin, "the machine did not fail")
	WhyExpired           = reasons.Add("Expired", "", "its preservation expired")
	WhyRequestWithdrawn  = reasons.Add("RequestWithdrawn", "", "the request that preserved it was withdrawn")
	WhyEndedNatively     = reasons.Add("EndedNatively", "", "machine-controller-manager ended its preservation")
	WhyStopped           = reasons.Add("Stopped", "", "annotation "+v1alpha1.AnnotationPreserve+"="+v1alpha1.RequestFalse+" was set")
	WhyDisabled          = reasons.Add("Disabled", "", "machine preservation was disabled for the shoot")
	WhyReplaced          = reasons.Add("Replaced", RuleRollout, "the machine failed and its pool is being updated")
	WhyDeleted           = reasons.Add("Deleted", RuleDeleted, "the machine is being deleted")
	WhyShareUsedUp       = reasons.Add("ShareUsedUp", RuleShareUsedUp, "all places of its pool in its zone are taken")
	WhyShareLowered      = reasons.Add("ShareLowered", RuleShareLowered, "its pool has fewer places in its zone than before")
	WhyNewFailure        = reasons.Add("NewFailure", RuleNewFailure, "its place went to a machine that failed for another reason, and other preserved machines failed for the same reason as this one")
	WhyFailedAgain       = reasons.Add("FailedAgain", RuleShareUsedUp, "the machine failed again and its pool has no free place in its zone")
	WhyMaintenanceOver   = reasons.Add("MaintenanceOver", RuleMaintenanceOver, "the maintenance of its node is over")
	WhyPowerCycleOver    = reasons.Add("PowerCycleOver", RuleRemediation, "the power cycle of its host is over")
	WhyValidated         = reasons.Add("Validated", RuleValidated, "the machine was validated")
	WhyNotValidated      = reasons.Add("NotValidated", RuleNotValidated, "the machine was not validated in time")
	WhyFailedUnvalidated = reasons.Add("FailedUnvalidated", RuleValidationWaived, "the machine failed before it was validated")

	// Why it is preserved no longer, or is not preserved.
	WhyForbidden            = reasons.Add("Forbidden", RuleForbidden, "operators forbid preserving it with annotation "+v1alpha1.AnnotationForbidden)
	WhyKeptForTooLong       = reasons.Add("KeptForTooLong", RuleMaxTimeout, "it has been preserved for as long as operators allow")
	WhyHoursUsedUp          = reasons.Add("HoursUsedUp", RuleMaxHours, "machines of the shoot have been preserved for as many machine-hours this month as operators allow")
	WhyComponentsNotReady   = reasons.Add("ComponentsNotReady", "H2", "its node exists, but the critical components on it are not ready")
	WhyMaintenanceExhausted = reasons.Add("MaintenanceExhausted", RuleMaintenance, "its node has been under maintenance for as long as nodeMaintenance.maxHoldTime allows")

	// Why it is not preserved.
	WhyNoPlace        = reasons.Add("NoPlace", RuleShareUsedUp, "its pool has no free place in its zone")
	WhyStorm          = reasons.Add("Storm", RuleStorm, "too many machines of the shoot fail at the same time")
	WhyNoShare        = reasons.Add("NoShare", "T6", "its pool has no places in its zone")
	WhyPlacesUnknown  = reasons.Add("PlacesUnknown", RulePool, "the places of its pool could not be locked, so it is not known whether one is free")
	WhyShareUnknown   = reasons.Add("ShareUnknown", "T6", "it is not known how many places its pool has in its zone")
	WhyUpdating       = reasons.Add("Updating", RuleRollout, "its pool is being updated")
	WhyNoReplicas     = reasons.Add("NoReplicas", "P4", "its pool is scaled to zero in its zone")
	WhyDenied         = reasons.Add("Denied", "R4", "annotation "+v1alpha1.AnnotationPreserve+"="+v1alpha1.RequestFalse+" forbids preserving it")
	WhyFailedTooEarly = reasons.Add("FailedTooEarly", "H3", "machine-controller-manager marked it Failed before it could be preserved")
	WhyHadItsTime     = reasons.Add("HadItsTime", RuleReleaseFailed, "it was already preserved and released after this failure")
	WhyNoVM           = reasons.Add("NoVM", "T6", "it has no VM")
	WhyPhaseNotKnown  = reasons.Add("PhaseNotKnown", RuleBegin, "machine-controller-manager has it in a phase that the preservation controller does not know")
)

// ReasonOf returns the reason with an ID, the zero Reason if there is none.
func ReasonOf(id string) reason.Reason { return reasons.Of(id) }

// poolTexts are the texts of the reasons that speak of the places in a zone, where the zones of a pool share the places (P20).
var poolTexts = map[string]string{
	WhyShareUsedUp.ID:  "all places of its pool are taken",
	WhyShareLowered.ID: "its pool has fewer places than before",
	WhyFailedAgain.ID:  "the machine failed again and its pool has no free place",
	WhyNoPlace.ID:      "its pool has no free place",
	WhyNoShare.ID:      "its pool has no places",
	WhyShareUnknown.ID: "it is not known how many places its pool has",
}

// inPool returns a reason with the text that it has where the zones of the pool share the places.
func inPool(why reason.Reason) reason.Reason {
	if text := poolTexts[why.ID]; text != "" {
		why.Text = text
	}
	return why
}
