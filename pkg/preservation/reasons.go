// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// reasons are all that there are.
var reasons reason.Table

// The reasons of decisions.
var (
	// Why a machine is kept.
	WhyAskedFor          = reasons.Add("AskedFor", RuleBegin, "it was asked for")
	WhyAskedInCase       = reasons.Add("AskedInCase", RuleWhenFailed, "it was asked for in case the machine fails")
	WhyMachineFailed     = reasons.Add("MachineFailed", RuleAuto, "the machine failed")
	WhyPreservedNatively = reasons.Add("PreservedNatively", RuleAuto, "machine-controller-manager had preserved it")
	WhyUnderMaintenance  = reasons.Add("UnderMaintenance", RuleMaintenance, "its node is under maintenance")
	WhyPowerCycle        = reasons.Add("PowerCycle", RuleRemediation, "a power cycle of its host was asked for")
	WhyPowerCycleFailed  = reasons.Add("PowerCycleFailed", RuleRemediation, "the power cycle of its host did not help")
	WhyAboutToFail       = reasons.Add("AboutToFail", RuleMargin, "the machine is about to fail")
	WhyHealthyAgain      = reasons.Add("HealthyAgain", RuleRecover, "the node is healthy again")

	// Why it is kept no longer. Where no rule is named, it is T8 for a machine that failed and T3 for any other.
	WhyDidNotFail       = reasons.Add("DidNotFail", RuleMargin, "the machine did not fail")
	WhyExpired          = reasons.Add("Expired", "", "the preservation expired")
	WhyRequestWithdrawn = reasons.Add("RequestWithdrawn", "", "the request was withdrawn")
	WhyEndedNatively    = reasons.Add("EndedNatively", "", "machine-controller-manager had ended it")
	WhyStopped          = reasons.Add("Stopped", "", "the preservation was stopped by "+v1alpha1.AnnotationPreserve+"="+v1alpha1.RequestFalse)
	WhyDisabled         = reasons.Add("Disabled", "", "preservation was disabled for the shoot")
	WhyReplaced         = reasons.Add("Replaced", RuleRollout, "the machine failed and its MachineDeployment is being updated")
	WhyDeleted          = reasons.Add("Deleted", RuleDeleted, "the machine is being deleted")
	WhyShareUsedUp      = reasons.Add("ShareUsedUp", RuleShareUsedUp, "the share is used up")
	WhyShareLowered     = reasons.Add("ShareLowered", RuleShareLowered, "the share was lowered")
	WhyNewFailure       = reasons.Add("NewFailure", RuleNewFailure, "another machine failed for a new reason, and others show the same as this one")
	WhyFailedAgain      = reasons.Add("FailedAgain", RuleShareUsedUp, "the machine failed again and the share is used up")
	WhyMaintenanceOver  = reasons.Add("MaintenanceOver", RuleMaintenanceOver, "the maintenance of its node is over")
	WhyPowerCycleOver   = reasons.Add("PowerCycleOver", RuleRemediation, "the power cycle of its host is over")

	// Why it is kept no longer, or is not kept.
	WhyForbidden            = reasons.Add("Forbidden", RuleForbidden, "operators forbid it with "+v1alpha1.AnnotationForbidden)
	WhyKeptForTooLong       = reasons.Add("KeptForTooLong", RuleMaxTimeout, "the machine has been kept for as long as operators allow")
	WhyComponentsNotReady   = reasons.Add("ComponentsNotReady", "H2", "its node is there, and the critical components on it are not ready")
	WhyMaintenanceExhausted = reasons.Add("MaintenanceExhausted", RuleMaintenance, "its node was under maintenance for as long as it is kept for that")

	// Why it is not kept.
	WhyNoPlace        = reasons.Add("NoPlace", RuleShareUsedUp, "the share of its MachineDeployment is used up")
	WhyNoShare        = reasons.Add("NoShare", "T6", "its MachineDeployment has no share")
	WhyShareUnknown   = reasons.Add("ShareUnknown", "T6", "the share of its MachineDeployment is not known")
	WhyUpdating       = reasons.Add("Updating", RuleRollout, "its MachineDeployment is being updated")
	WhyNoReplicas     = reasons.Add("NoReplicas", "P4", "its MachineDeployment is to have no machines")
	WhyDenied         = reasons.Add("Denied", "R4", v1alpha1.AnnotationPreserve+"="+v1alpha1.RequestFalse+" forbids it")
	WhyFailedTooEarly = reasons.Add("FailedTooEarly", "H3", "machine-controller-manager had marked it Failed before it could be held")
	WhyHadItsTime     = reasons.Add("HadItsTime", RuleReleaseFailed, "it has had its time")
	WhyNoVM           = reasons.Add("NoVM", "T6", "it has no VM")
)

// ReasonOf returns the reason with an ID, the zero one if there is none.
func ReasonOf(id string) reason.Reason { return reasons.Of(id) }
