// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys on a NodeMaintenance.
const (
	keyPrefix = GroupName + "/"

	// Finalizer is on a NodeMaintenance from before its node is changed until all changes are undone (M2, M7).
	Finalizer = keyPrefix + "finalizer"
	// AnnotationReadyTime is the time when the node became ready for the requestor, in RFC 3339.
	AnnotationReadyTime = keyPrefix + "ready-time"
	// AnnotationWaitStartTime is the time when the wait for pods began, in RFC 3339.
	AnnotationWaitStartTime = keyPrefix + "wait-pod-completion-start-time"
	// AnnotationInitiallyUnschedulable is "true" or "false": whether the node was cordoned before the maintenance.
	AnnotationInitiallyUnschedulable = keyPrefix + "node-initial-state.unschedulable"
	// AnnotationIgnoreGarbageCollector prevents a NodeMaintenance from being deleted because of its age, if it is "true" (M9).
	AnnotationIgnoreGarbageCollector = keyPrefix + "garbage-collector.ignore"
	// AnnotationDrainStartTime is the time when the drain began, and the time when it was last retried, in RFC 3339 with a
	// slash in between.
	AnnotationDrainStartTime = "machine-preservation.extensions.gardener.cloud/drain-start-time"
	// AnnotationEnded on a deleted NodeMaintenance says that it no longer waits for additional requestors or for a requestor
	// that has failed. It gives no new power: those who may write it may also remove what the object waits for. It has no
	// effect on an object that is not deleted.
	AnnotationEnded = "machine-preservation.extensions.gardener.cloud/ended"
)

// Types of the conditions of a NodeMaintenance.
const (
	// ConditionReady on a NodeMaintenance is True when the node is ready for the requestor. Its reason is the phase.
	ConditionReady = "Ready"
	// ConditionRequestorFailed on a NodeMaintenance says that the work on the node has failed. The requestor sets it.
	ConditionRequestorFailed = "RequestorFailed"
)

// Phases of a NodeMaintenance: the reasons of ConditionReady.
const (
	// PhasePending waits to begin.
	PhasePending = "Pending"
	// PhaseScheduled has a slot.
	PhaseScheduled = "Scheduled"
	// PhaseCordon is about to cordon the node.
	PhaseCordon = "Cordon"
	// PhaseWaitForPodCompletion waits for pods to complete.
	PhaseWaitForPodCompletion = "WaitForPodCompletion"
	// PhaseDraining evicts pods.
	PhaseDraining = "Draining"
	// PhaseReady is ready for the requestor.
	PhaseReady = "Ready"
	// PhaseRequestorFailed waits for the requestor, or somebody else, to clear ConditionRequestorFailed.
	PhaseRequestorFailed = "RequestorFailed"
)

// ConditionUsed on a MaintenanceOperatorConfig says whether its limits apply.
const ConditionUsed = "Used"

// Reasons of ConditionUsed.
const (
	// ReasonUsed says that the limits apply.
	ReasonUsed = "Used"
	// ReasonElsewhere says that the object has no effect, because the limits are in another object.
	ReasonElsewhere = "Elsewhere"
	// ReasonInvalid says that the limits are not valid.
	ReasonInvalid = "Invalid"
)

const (
	// ConfigName is the name of the only MaintenanceOperatorConfig that has an effect.
	ConfigName = "default"
	// ConfigNamespace is its namespace.
	ConfigNamespace = "kube-system"

	// DefaultMaxNodeMaintenanceTimeSeconds is after how many seconds in PhaseReady a NodeMaintenance is deleted.
	DefaultMaxNodeMaintenanceTimeSeconds = 3600
	// DefaultDrainTimeoutSeconds is after how many seconds a drain is retried.
	DefaultDrainTimeoutSeconds = 300
)

const (
	// MaxPodEvictionFilters is how many filters a NodeMaintenance can have.
	MaxPodEvictionFilters = 32
	// MaxAdditionalRequestors is how many requestors can share a NodeMaintenance with the requestor that created it.
	MaxAdditionalRequestors = 100
	// MaxNamesInStatus is how many pods are named in a list of the status.
	MaxNamesInStatus = 100
)
