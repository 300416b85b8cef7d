// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys on a NodeMaintenance.
const (
	keyPrefix = GroupName + "/"

	// Finalizer is there from before anything is done to the node until all of it is undone (M2, M7).
	Finalizer = keyPrefix + "finalizer"
	// AnnotationReadyTime is since when the node is ready for the requestor, in RFC 3339.
	AnnotationReadyTime = keyPrefix + "ready-time"
	// AnnotationWaitStartTime is since when pods are waited for, in RFC 3339.
	AnnotationWaitStartTime = keyPrefix + "wait-pod-completion-start-time"
	// AnnotationInitiallyUnschedulable is "true" or "false": whether the node was cordoned before the maintenance.
	AnnotationInitiallyUnschedulable = keyPrefix + "node-initial-state.unschedulable"
	// AnnotationIgnoreGarbageCollector keeps a NodeMaintenance, however old, if it is "true" (M9).
	AnnotationIgnoreGarbageCollector = keyPrefix + "garbage-collector.ignore"
	// AnnotationDrainStartTime is since when the node is drained, and since when anew, in RFC 3339 with a slash in between.
	AnnotationDrainStartTime = "machine-preservation.extensions.gardener.cloud/drain-start-time"
	// AnnotationEnded on a NodeMaintenance that is deleted says that it waits for nobody any more: for neither additional
	// requestors nor one that has failed. Those who may write it can remove the others as well. It has no effect on an object
	// that is not deleted.
	AnnotationEnded = "machine-preservation.extensions.gardener.cloud/ended"
)

// Types of the conditions of a NodeMaintenance.
const (
	// ConditionReady is True when the node is ready for the requestor. Its reason is the phase.
	ConditionReady = "Ready"
	// ConditionRequestorFailed is set by the requestor: its work on the node has failed.
	ConditionRequestorFailed = "RequestorFailed"
)

// Phases of a NodeMaintenance: the reasons of ConditionReady.
const (
	// PhasePending waits for its turn.
	PhasePending = "Pending"
	// PhaseScheduled has a slot.
	PhaseScheduled = "Scheduled"
	// PhaseCordon is about to cordon the node.
	PhaseCordon = "Cordon"
	// PhaseWaitForPodCompletion waits for pods to end by themselves.
	PhaseWaitForPodCompletion = "WaitForPodCompletion"
	// PhaseDraining evicts pods.
	PhaseDraining = "Draining"
	// PhaseReady is ready for the requestor.
	PhaseReady = "Ready"
	// PhaseRequestorFailed waits for the requestor, or somebody else, to clear ConditionRequestorFailed.
	PhaseRequestorFailed = "RequestorFailed"
)

// ConditionUsed on a MaintenanceOperatorConfig says whether its limits count.
const ConditionUsed = "Used"

// Reasons of ConditionUsed.
const (
	// ReasonUsed says that the limits count.
	ReasonUsed = "Used"
	// ReasonElsewhere says that nobody reads limits in this namespace or under this name.
	ReasonElsewhere = "Elsewhere"
	// ReasonInvalid says that the limits cannot be read.
	ReasonInvalid = "Invalid"
)

const (
	// ConfigName is the name of the only MaintenanceOperatorConfig that counts.
	ConfigName = "default"
	// ConfigNamespace is its namespace.
	ConfigNamespace = "kube-system"

	// DefaultMaxNodeMaintenanceTimeSeconds is after how many seconds in PhaseReady a NodeMaintenance is deleted.
	DefaultMaxNodeMaintenanceTimeSeconds = 3600
	// DefaultDrainTimeoutSeconds is after how many seconds a drain begins anew.
	DefaultDrainTimeoutSeconds = 300
)

const (
	// MaxPodEvictionFilters is how many filters a NodeMaintenance can have.
	MaxPodEvictionFilters = 32
	// MaxAdditionalRequestors is how many requestors can share a NodeMaintenance with the one that created it.
	MaxAdditionalRequestors = 100
	// MaxNamesInStatus is how many pods a list in the status names.
	MaxNamesInStatus = 100
)
