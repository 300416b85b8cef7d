// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// Keys that people and machine-controller-manager use as well.
const (
	// AnnotationPreserve carries a request on a Node or a Machine (R1, R2). Its values are the Request constants.
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
	// AnnotationLastAppliedNodePreserveValue is written on a Machine: the request of its Node when it was last synced (R2).
	AnnotationLastAppliedNodePreserveValue = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// AnnotationScaleDownDisabled on a Node keeps the cluster-autoscaler from removing it (P5).
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// AnnotationScaleDownDisabledByMCM is the companion of AnnotationScaleDownDisabled. Without it, the protection is a
	// user's and outlives the preservation (P5).
	AnnotationScaleDownDisabledByMCM = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	// AnnotationMachinePriority on a Machine orders a scale-down: lower goes first, absent counts as 3 (P2).
	AnnotationMachinePriority = "machinepriority.machine.sapcloud.io"
	// TaintPreserved is put on the Node of a machine in Failed:Preserved, with effect NoSchedule (P7).
	TaintPreserved = "node.machine.sapcloud.io/preserved"
	// ConditionPreserved is the type of the Node condition that shows a preservation (P11).
	ConditionPreserved = "Preserved"
	// LabelControlPlane is on the Nodes of a shoot that run its own control plane.
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
)

// ConditionNodeDrain is the type of the Node condition that shows, while a node is drained because of an update, what drain
// strategies wait for and until when (D11).
const ConditionNodeDrain = "NodeDrain"

// Reasons of ConditionNodeDrain.
const (
	// ReasonDrainUnderWay says that the drain has time left.
	ReasonDrainUnderWay = "DrainUnderWay"
	// ReasonDrainTimedOut says that the drain has failed (D7).
	ReasonDrainTimedOut = "DrainTimedOut"
)

// Keys of this extension.
const (
	annotationPrefix = GroupName + "/"

	// AnnotationTimeout on a Node or a Machine overrides, beside a request, the pool's timeout for that machine: a Go duration
	// from MinMachinePreserveTimeout to what operators allow (R5).
	AnnotationTimeout = annotationPrefix + "timeout"
	// AnnotationForbidden on a Machine or a MachineDeployment is an operator's veto if it is "true": it ends and forbids
	// every preservation there (R6).
	AnnotationForbidden = annotationPrefix + "forbidden"
	// AnnotationAutoPreserveFailedMax on a MachineDeployment is its share of the pool's autoPreserveFailedMax.
	AnnotationAutoPreserveFailedMax = annotationPrefix + "auto-preserve-failed-max"
	// AnnotationMachinePreserveTimeout on a MachineDeployment is the effective timeout of its pool: a Go duration.
	AnnotationMachinePreserveTimeout = annotationPrefix + "machine-preserve-timeout"
	// AnnotationForceDeletePodsWithVolumes on a MachineDeployment is "true" where pods with volumes may be deleted by force
	// from nodes that do not answer (P7). It is absent otherwise.
	AnnotationForceDeletePodsWithVolumes = annotationPrefix + "force-delete-pods-with-volumes"
	// AnnotationMaxTotalUnreadyPercentage on the pods of the cluster-autoscaler says that the flag of this name is ours.
	AnnotationMaxTotalUnreadyPercentage = annotationPrefix + "max-total-unready-percentage"
	// AnnotationMaintenance on a Node asks for its machine to be kept while somebody works on it: the time since when, in
	// RFC 3339. The controller of node maintenances writes it (M12).
	AnnotationMaintenance = annotationPrefix + "maintenance"
	// AnnotationMaintenanceCordon on a Node is the record that a maintenance has cordoned it: the UID of the NodeMaintenance. It
	// is no taint, because DaemonSets of drivers tolerate none that Kubernetes does not make them tolerate (M3).
	AnnotationMaintenanceCordon = annotationPrefix + "maintenance-cordon"
	// TaintMaintenance on a Node, with effect NoSchedule, is that record as earlier versions left it, with the UID as its value.
	// It is read and removed, and never written. It may go once no version that wrote it is in use.
	TaintMaintenance = annotationPrefix + "maintenance"
	// AnnotationExpiryTime on a preserved Machine is the end of its preservation, in RFC 3339. An operator edits it here
	// where the Machine's status has no field for it (machine-controller-manager < 0.62); else it is a copy.
	AnnotationExpiryTime = annotationPrefix + "expiry-time"
	// AnnotationPhase on a preserved Machine is its phase with the sub-phase, for example "Failed:Preserved" (P11).
	AnnotationPhase = annotationPrefix + "phase"
	// AnnotationCause on a preserved Machine says why it is kept: one of the Cause constants (P11).
	AnnotationCause = annotationPrefix + "cause"
	// AnnotationClaims on a Machine that is kept for several reasons has each of them with its own end: "cause=time", with
	// commas in between. AnnotationCause and AnnotationExpiryTime sum them up. A cause with the suffix "?" is tentative: it is the
	// share's, of a machine that is kept already and about to fail. It stands once the machine has failed, and goes without a
	// trace if that is healthy again before its deadline (T2, H4).
	AnnotationClaims = annotationPrefix + "claims"
	// AnnotationFailsAt on a Machine that is held because its deadline is near is that deadline, in RFC 3339. While it is
	// there without AnnotationPhase, nothing has failed yet (H4).
	AnnotationFailsAt = annotationPrefix + "fails-at"
	// AnnotationShare on an auto-preserved Machine is the share of its MachineDeployment that was last seen, so that a
	// lowered one is noticed, also across a restart (T9).
	AnnotationShare = annotationPrefix + "share"
	// AnnotationRequest on a preserved Machine is the request as a person wrote it, while the hold occupies
	// AnnotationPreserve: the kind of the object that carries the request, a colon, and the value, empty for none.
	AnnotationRequest = annotationPrefix + "request"
	// AnnotationSpentRequest on a Machine is a request on its Node that has had its time and could not be deleted there, as
	// the shoot denied it. It counts for nothing until it is another one.
	AnnotationSpentRequest = annotationPrefix + "spent-request"
	// AnnotationNodeUncleaned on a Machine says that a preservation ended without its traces being removed from the Node, as
	// a webhook of the shoot denied it. It goes once they are removed.
	AnnotationNodeUncleaned = annotationPrefix + "node-uncleaned"
	// AnnotationExpiryInStatus on a preserved Machine is its UID, once the expiry was written into its status. What is
	// there before is what machine-controller-manager made of the hold, and after it an operator's edit (P6). A Machine
	// that is restored after a migration of the control plane has a new UID and an empty status.
	AnnotationExpiryInStatus = annotationPrefix + "expiry-in-status"
	// AnnotationFailedSince on a Machine in Failed:Preserved, or about to be, is when the timer was started that it misses, in
	// RFC 3339: the status.currentStatus.lastUpdateTime of the health timer, which the release puts back, or the creation.
	AnnotationFailedSince = annotationPrefix + "failed-since"
	// AnnotationEvidence on a Machine in Failed:Preserved says that the evidence of a failure is stored: the one with that
	// AnnotationFailedSince. Before, it is EvidenceGathering with the time since when it is being gathered, in RFC 3339.
	AnnotationEvidence = annotationPrefix + "evidence"
	// EvidenceGathering is what AnnotationEvidence begins with before the evidence is stored.
	EvidenceGathering = "gathering since "
	// AnnotationReleased on a failed Machine is when its preservation ended, in RFC 3339: it is on its way out and is not
	// preserved once more for the same failure.
	AnnotationReleased = annotationPrefix + "released"
	// AnnotationPreservedSince on a Machine is when people or the share began to have it preserved, in RFC 3339, and behind a
	// slash when nobody had any more. The longest time for which a machine may be kept is counted from there. It outlives the
	// release, until the machine was healthy, and kept by nobody, for its health timeout (P13).
	AnnotationPreservedSince = annotationPrefix + "preserved-since"
	// AnnotationMaintainedSince on a Machine is what the longest time is counted from for which it is kept because of
	// maintenances, in RFC 3339, and behind a slash when there was none any more. It outlives them, so that a chain of them
	// does not start anew, until the machine was healthy without one for its health timeout (M12). Where that time was cut
	// short, it lies as far back as if all of it had passed.
	AnnotationMaintainedSince = annotationPrefix + "maintained-since"
	// AnnotationMaintenanceOver on a Machine is when the maintenance of its Node ended, in RFC 3339, where the Node was not
	// healthy then and has some time left to become so (M13).
	AnnotationMaintenanceOver = annotationPrefix + "maintenance-over"
	// AnnotationReplacedPriority on a preserved Machine is the value of AnnotationMachinePriority that the release puts
	// back, "" for none.
	AnnotationReplacedPriority = annotationPrefix + "replaced-priority"
)

// MachineAnnotations are the keys of this extension that annotations of a Machine have, NodeAnnotations those that annotations of
// a Node have.
var (
	MachineAnnotations = []string{
		AnnotationTimeout, AnnotationForbidden, AnnotationExpiryTime, AnnotationPhase, AnnotationCause, AnnotationClaims,
		AnnotationFailsAt, AnnotationShare, AnnotationRequest, AnnotationSpentRequest, AnnotationNodeUncleaned,
		AnnotationExpiryInStatus, AnnotationFailedSince, AnnotationEvidence, AnnotationReleased, AnnotationPreservedSince,
		AnnotationMaintainedSince, AnnotationMaintenanceOver, AnnotationReplacedPriority, AnnotationPowerCyclePhase,
		AnnotationPowerCycleAttempt, AnnotationPowerCycleRecord, AnnotationRemediation, AnnotationRemediatedUntil,
		AnnotationPowerCycleGrant,
	}
	NodeAnnotations = []string{AnnotationTimeout, AnnotationMaintenance, AnnotationMaintenanceCordon, AnnotationPowerCycle}
)

// Reasons of ConditionPreserved.
const (
	// ReasonPreserved says that the machine has not failed: its node is protected and takes pods as ever.
	ReasonPreserved = "Preserved"
	// ReasonDraining says that the pods of a failed machine's node are being evicted (P7).
	ReasonDraining = "Draining"
	// ReasonDrainBlocked says that evictions are refused, by a PodDisruptionBudget for example (P7).
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonPodsKept says that all that is left are pods with volumes, which are kept while the node does not answer (P7).
	ReasonPodsKept = "PodsKept"
	// ReasonDrained says that nothing is left to be evicted.
	ReasonDrained = "Drained"
	// ReasonReleased says that the preservation has ended.
	ReasonReleased = "PreservationEnded"
)

// Values of AnnotationPreserve (R1).
const (
	// RequestNow preserves the machine from now on, whatever its phase.
	RequestNow = "now"
	// RequestTrue is an alias of RequestNow.
	RequestTrue = "true"
	// RequestWhenFailed preserves the machine when it fails.
	RequestWhenFailed = "when-failed"
	// RequestFalse forbids auto-preservation and ends a preservation that is under way (R4).
	RequestFalse = "false"
)

// Values of AnnotationCause.
const (
	// CauseAuto says that nobody asked: the machine failed within the share (T5).
	CauseAuto = "auto"
	// CauseNow says that RequestNow is, or was, on the machine or its node (T1).
	CauseNow = "now"
	// CauseWhenFailed says that the machine failed, or is about to fail, with RequestWhenFailed (T4).
	CauseWhenFailed = "when-failed"
	// CauseMaintenance says that AnnotationMaintenance is, or was until just now, on the machine's node (M12).
	CauseMaintenance = "maintenance"
)

// DefaultMachinePreserveTimeout is for how long a machine is preserved where nobody says otherwise.
const DefaultMachinePreserveTimeout = 72 * time.Hour

// MinMachinePreserveTimeout is the shortest time that anybody can set.
const MinMachinePreserveTimeout = 10 * time.Second

// DefaultMaxMachinePreserveTimeout is for how long a machine may be kept, whoever asks, where operators do not say otherwise
// (P13).
const DefaultMaxMachinePreserveTimeout = 14 * 24 * time.Hour

// DefaultMaxHoldTime is for how long the machine of a node under maintenance is kept at most where nobody says otherwise
// (M12).
const DefaultMaxHoldTime = 24 * time.Hour

// DefaultMaxNodeMaintenanceOvertime is for how much longer than it may be Ready a NodeMaintenance keeps its node if its requestor
// has failed, or if it is deleted and additional requestors do not let go of it, where operators do not say otherwise.
const DefaultMaxNodeMaintenanceOvertime = 24 * time.Hour

// DefaultEvidenceRetention is for how long evidence is kept after its machine is gone, where nobody says otherwise, and the
// others are the shortest and the longest time that can be set.
const (
	DefaultEvidenceRetention = 7 * 24 * time.Hour
	MinEvidenceRetention     = time.Hour
	MaxEvidenceRetention     = 30 * 24 * time.Hour
)

// DefaultEvidenceBudget and DefaultEvidenceSeedBudget are how many bytes of evidence a control plane, and all of a seed, have, where
// operators do not say otherwise, and MinEvidenceBudget and MinEvidenceSeedBudget are the least that they can say. The latter has a place
// for one bundle of each of 256 control planes.
const (
	DefaultEvidenceBudget     = 8 << 20
	DefaultEvidenceSeedBudget = 512 << 20
	MinEvidenceBudget         = 1 << 20
	MinEvidenceSeedBudget     = 16 << 20
)
