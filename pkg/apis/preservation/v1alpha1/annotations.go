// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// Keys that people and machine-controller-manager use as well.
const (
	// AnnotationPreserve carries a request on a Node or a Machine (R1, R2).
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
	// from 10s to what operators allow (R5).
	AnnotationTimeout = annotationPrefix + "timeout"
	// AnnotationForbidden on a Machine or a MachineDeployment is "true" if an operator forbids preservation: it ends and forbids
	// every preservation there (R6).
	AnnotationForbidden = annotationPrefix + "forbidden"
	// AnnotationAutoPreserveFailedMax on a MachineDeployment is its share of the pool's autoPreserveFailedMax.
	AnnotationAutoPreserveFailedMax = annotationPrefix + "auto-preserve-failed-max"
	// AnnotationMachinePreserveTimeout on a MachineDeployment is the effective timeout of its pool: a Go duration.
	AnnotationMachinePreserveTimeout = annotationPrefix + "machine-preserve-timeout"
	// AnnotationForceDeletePodsWithVolumes on a MachineDeployment is "true" where pods with volumes may be deleted by force
	// from nodes that do not answer (P7). It is absent otherwise.
	AnnotationForceDeletePodsWithVolumes = annotationPrefix + "force-delete-pods-with-volumes"
	// AnnotationPreferNewFailures on a MachineDeployment is "true" where a machine that fails for a reason that no preserved machine has
	// takes the place of one whose reason another one has too (P15). It is absent otherwise.
	AnnotationPreferNewFailures = annotationPrefix + "prefer-new-failures"
	// AnnotationMaxTotalUnreadyPercentage on the pods of the cluster-autoscaler says that the flag of this name is ours.
	AnnotationMaxTotalUnreadyPercentage = annotationPrefix + "max-total-unready-percentage"
	// AnnotationMaintenance on a Node has its machine preserved while somebody works on the node: it is the time when that began, in
	// RFC 3339. The controller of node maintenances writes it (M12).
	AnnotationMaintenance = annotationPrefix + "maintenance"
	// AnnotationMaintenanceCordon on a Node is the record that a maintenance has cordoned it: the UID of the NodeMaintenance. It
	// is no taint, because DaemonSets of drivers tolerate none that Kubernetes does not make them tolerate (M3).
	AnnotationMaintenanceCordon = annotationPrefix + "maintenance-cordon"
	// TaintMaintenance on a Node, with effect NoSchedule, is AnnotationMaintenanceCordon as earlier versions left it, with the UID as its value.
	// It is read and removed, and never written. It may go once no version that wrote it is in use.
	TaintMaintenance = annotationPrefix + "maintenance"
	// AnnotationExpiryTime on a preserved Machine is the end of its preservation, in RFC 3339. An operator edits it here
	// where the Machine's status has no field for it (machine-controller-manager < 0.62); else it is a copy.
	AnnotationExpiryTime = annotationPrefix + "expiry-time"
	// AnnotationPhase on a preserved Machine is its phase with the sub-phase, for example "Failed:Preserved" (P11).
	AnnotationPhase = annotationPrefix + "phase"
	// AnnotationCause on a preserved Machine says why it is preserved (P11).
	AnnotationCause = annotationPrefix + "cause"
	// AnnotationPreservationRecord on a Machine is all else that is remembered of its preservations, in JSON (P8).
	AnnotationPreservationRecord = annotationPrefix + "preservation-record"
	// AnnotationFailedSince on a Machine in Failed:Preserved, or about to be, is when its health timeout or its creation timeout began, in
	// RFC 3339: the status.currentStatus.lastUpdateTime, which the release puts back, or the creation.
	AnnotationFailedSince = annotationPrefix + "failed-since"
	// AnnotationEvidence on a Machine in Failed:Preserved says that the evidence of a failure is stored: the one with that
	// AnnotationFailedSince. Before, it is EvidenceGathering with the time since when it is being gathered, in RFC 3339.
	AnnotationEvidence = annotationPrefix + "evidence"
	// EvidenceGathering is what AnnotationEvidence begins with before the evidence is stored.
	EvidenceGathering = "gathering since "
)

// MachineAnnotations are the keys of this extension that annotations of a Machine have, NodeAnnotations those that annotations of
// a Node have.
var (
	MachineAnnotations = []string{
		AnnotationTimeout, AnnotationForbidden, AnnotationExpiryTime, AnnotationPhase, AnnotationCause, AnnotationFailedSince,
		AnnotationEvidence, AnnotationPreservationRecord, AnnotationPowerCyclePhase, AnnotationPowerCycleAttempt,
		AnnotationPowerCycleRecord, AnnotationRemediation, AnnotationPowerCycleGrant,
	}
	NodeAnnotations = []string{AnnotationTimeout, AnnotationMaintenance, AnnotationMaintenanceCordon, AnnotationPowerCycle}
)

// Reasons of ConditionPreserved.
const (
	// ReasonPreserved says that the machine has not failed: its node is protected, and takes new pods as before.
	ReasonPreserved = "Preserved"
	// ReasonDraining says that the pods of a failed machine's node are being evicted (P7).
	ReasonDraining = "Draining"
	// ReasonDrainBlocked says that evictions are refused, by a PodDisruptionBudget for example (P7).
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonPodsKept says that only pods with volumes are left, which stay while the node does not answer (P7).
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
	// CauseAuto says that the machine failed without a request, and a place was free (T5).
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
// has failed, or if it is deleted and additional requestors have not released it, where operators do not say otherwise.
const DefaultMaxNodeMaintenanceOvertime = 24 * time.Hour

// DefaultEvidenceRetention is for how long evidence is kept after its machine is gone, where nobody says otherwise, and the
// others are the shortest and the longest time that can be set.
const (
	DefaultEvidenceRetention = 7 * 24 * time.Hour
	MinEvidenceRetention     = time.Hour
	MaxEvidenceRetention     = 30 * 24 * time.Hour
)

// KernelLogService is the service of nodes that says what the kernel says, where evidence is to have logs of nodes.
const KernelLogService = "machine-preservation-kernel"

// DefaultEvidenceBudget and DefaultEvidenceSeedBudget are how many bytes of evidence a control plane, and all of a seed, have, where
// operators do not say otherwise, and MinEvidenceBudget and MinEvidenceSeedBudget are the least that they can say. The latter has a place
// for one bundle of each of 256 control planes.
const (
	DefaultEvidenceBudget     = 8 << 20
	DefaultEvidenceSeedBudget = 512 << 20
	MinEvidenceBudget         = 1 << 20
	MinEvidenceSeedBudget     = 16 << 20
)
