// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// Keys that people and machine-controller-manager also use.
const (
	// AnnotationPreserve on a Node or a Machine has a request (R1, R2).
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
	// AnnotationLastAppliedNodePreserveValue on a Machine is the request of its Node when it was last copied (R2).
	AnnotationLastAppliedNodePreserveValue = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// AnnotationScaleDownDisabled on a Node prevents the cluster-autoscaler from removing it (P5).
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// AnnotationScaleDownDisabledByMCM on a Node marks AnnotationScaleDownDisabled as set for a preservation. Without it, a user has set
	// the protection, and it outlives the preservation (P5).
	AnnotationScaleDownDisabledByMCM = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	// AnnotationMachinePriority on a Machine orders a scale-down: lower values are removed first, and an absent value counts as 3 (P2).
	AnnotationMachinePriority = "machinepriority.machine.sapcloud.io"
	// TaintPreserved is on the Node of a machine in Failed:Preserved, or of one that has yet to be validated, with effect NoSchedule (P7, V2).
	TaintPreserved = "node.machine.sapcloud.io/preserved"
	// ConditionPreserved is the type of the Node condition that shows a preservation (P11).
	ConditionPreserved = "Preserved"
	// LabelControlPlane is on the Nodes that run the control plane of a self-hosted shoot.
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
)

// ConditionNodeDrain is the type of the Node condition that shows what drain strategies wait for, and until when, while a node is drained
// because of an update (D11).
const ConditionNodeDrain = "NodeDrain"

// Reasons of ConditionNodeDrain.
const (
	// ReasonDrainUnderWay says that the drain has time left.
	ReasonDrainUnderWay = "DrainUnderWay"
	// ReasonDrainTimedOut says that the drain has failed (D7).
	ReasonDrainTimedOut = "DrainTimedOut"
)

// PlacesLease is the name of the Lease in the control-plane namespace that the places of pools are given away under, where the zones of a
// pool share them (P20).
const PlacesLease = "machine-preservation-controller-places"

// Keys of this extension.
const (
	annotationPrefix = GroupName + "/"

	// AnnotationTimeout on a Node or a Machine with a request overrides the pool's timeout for that machine. It is a Go duration from 10s
	// to what operators allow (R5).
	AnnotationTimeout = annotationPrefix + "timeout"
	// AnnotationForbidden on a Machine or a MachineDeployment is "true" if an operator forbids preservation. It ends and forbids every
	// preservation there (R6).
	AnnotationForbidden = annotationPrefix + "forbidden"
	// AnnotationAutoPreserveFailedMax on a MachineDeployment is its share of the pool's autoPreserveFailedMax, or all of it where
	// AnnotationSharedInPool is set.
	AnnotationAutoPreserveFailedMax = annotationPrefix + "auto-preserve-failed-max"
	// AnnotationMachinePreserveTimeout on a MachineDeployment is the effective timeout of its pool: a Go duration.
	AnnotationMachinePreserveTimeout = annotationPrefix + "machine-preserve-timeout"
	// AnnotationForceDeletePodsWithVolumes on a MachineDeployment is "true" if pods with volumes may be deleted by force from nodes that do
	// not answer (P7). It is absent otherwise.
	AnnotationForceDeletePodsWithVolumes = annotationPrefix + "force-delete-pods-with-volumes"
	// AnnotationPreferNewFailures on a MachineDeployment is "true" if its pool prefers new failures: a machine that fails for a reason that
	// no preserved machine has gets the place of a machine that shares its reason with others (P15). It is absent otherwise.
	AnnotationPreferNewFailures = annotationPrefix + "prefer-new-failures"
	// AnnotationSharedInPool on a MachineDeployment is the name of its pool if all zones of the pool use the same places (P20). It is absent
	// otherwise.
	AnnotationSharedInPool = annotationPrefix + "shared-in-pool"
	// AnnotationGrants on the Lease PlacesLease has the places that were given to machines and are not written on them yet, in JSON (P20).
	AnnotationGrants = annotationPrefix + "grants"
	// AnnotationGrantEnded on a Machine is written and removed at once, so that the Machine gets a new resource version. The machine was
	// given a place that was not written on it in time, and must not be written later (P20).
	AnnotationGrantEnded = annotationPrefix + "grant-ended"
	// AnnotationMaximum on a MachineDeployment is how many machines the cluster-autoscaler lets it have at most: the number in the status
	// of the Worker. It is absent where the cluster-autoscaler changes nothing, because the minimum is the same (P2).
	AnnotationMaximum = annotationPrefix + "maximum"
	// AnnotationMaxTotalUnreadyPercentage on the pods of the cluster-autoscaler says that the extension has set the flag of this name.
	AnnotationMaxTotalUnreadyPercentage = annotationPrefix + "max-total-unready-percentage"
	// AnnotationMaintenance on a Node is the time when somebody began to work on the node, in RFC 3339. While it is there, the machine is
	// preserved. The controller of node maintenances writes it (M12).
	AnnotationMaintenance = annotationPrefix + "maintenance"
	// AnnotationMaintenanceCordon on a Node is the UID of the NodeMaintenance that has cordoned the node. It is not a taint, because
	// DaemonSets of drivers tolerate only taints that Kubernetes makes them tolerate (M3).
	AnnotationMaintenanceCordon = annotationPrefix + "maintenance-cordon"
	// TaintMaintenance on a Node, with effect NoSchedule, is what earlier versions set instead of AnnotationMaintenanceCordon, with the
	// UID as its value. It is read and removed, and never written. The constant may be removed when those versions are not in use any more.
	TaintMaintenance = annotationPrefix + "maintenance"
	// AnnotationExpiryTime on a preserved Machine is its expiry, in RFC 3339. An operator edits it here if the Machine's status has no
	// field for the expiry (machine-controller-manager < 0.62). Otherwise it is a copy of that field.
	AnnotationExpiryTime = annotationPrefix + "expiry-time"
	// AnnotationPhase on a preserved Machine is its phase and its sub-phase, for example "Failed:Preserved" (P11).
	AnnotationPhase = annotationPrefix + "phase"
	// AnnotationCause on a preserved Machine says why it is preserved (P11).
	AnnotationCause = annotationPrefix + "cause"
	// AnnotationPreservationRecord on a Machine is the rest of the state of its preservations, in JSON (P8).
	AnnotationPreservationRecord = annotationPrefix + "preservation-record"
	// AnnotationFailedSince on a failed Machine, or one about to fail, is when its health timeout or its creation timeout began, in RFC 3339:
	// its status.currentStatus.lastUpdateTime, which the release puts back, or its creation.
	AnnotationFailedSince = annotationPrefix + "failed-since"
	// AnnotationEvidence on a Machine in Failed:Preserved is the AnnotationFailedSince of the failure whose evidence is stored. Until it is
	// stored, it is EvidenceGathering with the time when gathering began, in RFC 3339.
	AnnotationEvidence = annotationPrefix + "evidence"
	// AnnotationDeletingSince on an Extension is when this extension first tried to delete it, in RFC 3339. How long it waits counts from there.
	AnnotationDeletingSince = annotationPrefix + "deleting-since"
	// EvidenceGathering is what AnnotationEvidence begins with before the evidence is stored.
	EvidenceGathering = "gathering since "
)

// MachineAnnotations are the keys of this extension's annotations on a Machine. NodeAnnotations are the keys of its annotations on a
// Node.
var (
	MachineAnnotations = []string{
		AnnotationTimeout, AnnotationForbidden, AnnotationExpiryTime, AnnotationPhase, AnnotationCause, AnnotationFailedSince,
		AnnotationEvidence, AnnotationPreservationRecord, AnnotationPowerCyclePhase, AnnotationPowerCycleAttempt,
		AnnotationPowerCycleRecord, AnnotationRemediation, AnnotationPowerCycleGrant, AnnotationGrantEnded,
	}
	NodeAnnotations = []string{AnnotationTimeout, AnnotationMaintenance, AnnotationMaintenanceCordon, AnnotationPowerCycle}
)

// Reasons of ConditionPreserved.
const (
	// ReasonPreserved says that the machine has not failed: its node is protected, and takes new pods as before.
	ReasonPreserved = "Preserved"
	// ReasonAwaitingValidation says that the machine is back and has yet to be validated: its node takes no new pods (V1).
	ReasonAwaitingValidation = "AwaitingValidation"
	// ReasonDraining says that the pods of a failed machine's node are being evicted (P7).
	ReasonDraining = "Draining"
	// ReasonDrainBlocked says that evictions are refused, for example by a PodDisruptionBudget (P7).
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonPodsKept says that only pods with volumes are left, which stay while the node does not answer (P7).
	ReasonPodsKept = "PodsKept"
	// ReasonDrained says that no pod is left to evict.
	ReasonDrained = "Drained"
	// ReasonReleased says that the preservation has ended.
	ReasonReleased = "PreservationEnded"
)

// IsDrainReason says that the reason of ConditionPreserved tells how far a drain is.
func IsDrainReason(reason string) bool {
	switch reason {
	case ReasonDraining, ReasonDrainBlocked, ReasonPodsKept, ReasonDrained:
		return true
	}
	return false
}

// Values of AnnotationPreserve (R1).
const (
	// RequestNow preserves the machine at once, in any phase that is known.
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

// DefaultMachinePreserveTimeout is how long a machine is preserved by default.
const DefaultMachinePreserveTimeout = 72 * time.Hour

// MinMachinePreserveTimeout is the shortest timeout that anybody can set.
const MinMachinePreserveTimeout = 10 * time.Second

// DefaultMaxMachinePreserveTimeout is how long a machine may be preserved for requests and auto-preservation, unless operators set
// another limit (P13).
const DefaultMaxMachinePreserveTimeout = 14 * 24 * time.Hour

// DefaultMaxHoldTime is how long the machine of a node under maintenance is preserved at most by default (M12).
const DefaultMaxHoldTime = 24 * time.Hour

// DefaultMaxNodeMaintenanceOvertime is for how much longer than it may be Ready a NodeMaintenance keeps its node by default, if its
// requestor has failed, or if it is deleted and additional requestors have not released it.
const DefaultMaxNodeMaintenanceOvertime = 24 * time.Hour

// MaxDrainStrategyTime is the longest time that drain strategies can be given. It is longer than any drain, and sums of such times are far
// from the longest duration that there is (D5).
const MaxDrainStrategyTime = 365 * 24 * time.Hour

// DefaultEvidenceRetention is how long evidence is stored by default after its machine is gone. The other constants are the shortest and
// the longest time that can be set.
const (
	DefaultEvidenceRetention = 7 * 24 * time.Hour
	MinEvidenceRetention     = time.Hour
	MaxEvidenceRetention     = 30 * 24 * time.Hour
)

// KernelLogService is the service on nodes that provides the kernel's log, if evidence has logs of nodes.
const KernelLogService = "machine-preservation-kernel"

// DefaultEvidenceBudget and DefaultEvidenceSeedBudget are how many bytes of evidence a control plane, and a whole seed, may have by
// default. MinEvidenceBudget and MinEvidenceSeedBudget are the smallest values that operators can set. MinEvidenceSeedBudget has room for
// one bundle of each of 256 control planes.
const (
	DefaultEvidenceBudget     = 8 << 20
	DefaultEvidenceSeedBudget = 512 << 20
	MinEvidenceBudget         = 1 << 20
	MinEvidenceSeedBudget     = 16 << 20
)
