// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"

// The reasons of decisions, for people.
const (
	reasonNow        = "it was asked for"
	reasonWhenFailed = "it was asked for in case the machine fails"
	reasonAuto       = "the machine failed"
	reasonNative     = "machine-controller-manager had preserved it"
	reasonMargin     = "the machine is about to fail"
	reasonHealthy    = "the node is healthy again"

	reasonNotFailed  = "the machine did not fail"
	reasonExpired    = "the preservation expired"
	reasonWithdrawn  = "the request was withdrawn"
	reasonStopped    = "machine-controller-manager had ended it"
	reasonFalse      = "the preservation was stopped by " + v1alpha1.AnnotationPreserve + "=" + v1alpha1.RequestFalse
	reasonReplaced   = "the machine failed and its MachineDeployment is being updated"
	reasonDisabled   = "preservation was disabled for the shoot"
	reasonDeleted    = "the machine is being deleted"
	reasonForbidden  = "operators forbid it with " + v1alpha1.AnnotationForbidden
	reasonMaxTimeout = "the machine has been kept for as long as operators allow"

	reasonNoPlace      = "the share of its MachineDeployment is used up"
	reasonShareUsedUp  = "the share is used up"
	reasonShareLowered = "the share was lowered"
	reasonFailedAgain  = "the machine failed again and the share is used up"
	reasonNoShare      = "its MachineDeployment has no share"
	reasonShareUnknown = "the share of its MachineDeployment is not known"

	reasonUpdate     = "its MachineDeployment is being updated"
	reasonNoReplicas = "its MachineDeployment is to have no machines"
	reasonDenied     = v1alpha1.AnnotationPreserve + "=" + v1alpha1.RequestFalse + " forbids it"
	reasonComponents = "its node is there, and the critical components on it are not ready"
	reasonLate       = "machine-controller-manager had marked it Failed before it could be held"
	reasonSpent      = "it has had its time"
	reasonNoVM       = "it has no VM"

	reasonMaintenance          = "its node is under maintenance"
	reasonMaintenanceOver      = "the maintenance of its node is over"
	reasonMaintenanceExhausted = "its node was under maintenance for as long as it is kept for that"

	reasonRemediation       = "a power cycle of its host was asked for"
	reasonRemediationOver   = "the power cycle of its host is over"
	reasonRemediationFailed = "the power cycle of its host did not help"
)

// WhyBegun returns the rule by which a machine is preserved for a cause, and the reason in words; nothing for a cause that is
// not known.
func WhyBegun(cause string) (Rule, string) {
	switch cause {
	case v1alpha1.CauseNow:
		return RuleBegin, reasonNow
	case v1alpha1.CauseWhenFailed:
		return RuleWhenFailed, reasonWhenFailed
	case v1alpha1.CauseAuto:
		return RuleAuto, reasonAuto
	case v1alpha1.CauseMaintenance:
		return RuleMaintenance, reasonMaintenance
	case v1alpha1.CauseRemediation:
		return RuleRemediation, reasonRemediation
	}
	return "", ""
}

// RuleOf returns the rule that a reason rests on; nothing for one that is not known, or that rests on one rule for a machine that
// failed and on another for one that did not.
func RuleOf(reason string) Rule { return rulesOf[reason] }

var rulesOf = map[string]Rule{
	reasonNow:          RuleBegin,
	reasonWhenFailed:   RuleWhenFailed,
	reasonNative:       RuleAuto,
	reasonHealthy:      RuleRecover,
	reasonReplaced:     RuleRollout,
	reasonDeleted:      RuleDeleted,
	reasonShareUsedUp:  RuleShareUsedUp,
	reasonFailedAgain:  RuleShareUsedUp,
	reasonShareLowered: RuleShareLowered,
	reasonForbidden:    RuleForbidden,
	reasonMaxTimeout:   RuleMaxTimeout,

	reasonUpdate:               RuleRollout,
	reasonNoReplicas:           "P4",
	reasonDenied:               "R4",
	reasonComponents:           "H3",
	reasonLate:                 "H3",
	reasonNoVM:                 "T6",
	reasonSpent:                RuleReleaseFailed,
	reasonNoPlace:              RuleShareUsedUp,
	reasonNoShare:              "T6",
	reasonShareUnknown:         "T6",
	reasonMaintenance:          RuleMaintenance,
	reasonMaintenanceExhausted: RuleMaintenance,
	reasonMaintenanceOver:      RuleMaintenanceOver,
	reasonRemediation:          RuleRemediation,
	reasonRemediationOver:      RuleRemediation,
	reasonRemediationFailed:    RuleRemediation,
}
