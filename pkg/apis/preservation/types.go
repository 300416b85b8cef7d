// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachinePreservationConfig says which failed machines of a Shoot are kept, and for how long. It is the provider
// configuration of the extension.
type MachinePreservationConfig struct {
	metav1.TypeMeta

	// MachineControllerManager applies to every worker pool for which nothing else is set.
	MachineControllerManager *MachineControllerManagerSettings
	// Workers are the settings of single worker pools.
	Workers []Worker
	// DrainStrategies help nodes that are drained because of an update of the workers, nil for none.
	DrainStrategies *DrainStrategies
	// NodeMaintenance lets requestors have nodes for themselves, nil for nobody.
	NodeMaintenance *NodeMaintenance
}

// DrainStrategies say when pods are helped that hold up the drain of a node. Of one that was decoded, everything is set.
type DrainStrategies struct {
	// Disabled says that nothing is done with any pod.
	Disabled *bool
	// Timeout is how long a node may take to drain by itself.
	Timeout *metav1.Duration
	// ExpectedDrainTime is how long the drain of a node takes at best.
	ExpectedDrainTime *metav1.Duration
	// PDBForceDrainTimeout is for how long PodDisruptionBudgets are respected beyond the expected time.
	PDBForceDrainTimeout *metav1.Duration
	// IgnoredNamespacePatterns match whole names of namespaces that are left alone.
	IgnoredNamespacePatterns []string
}

// NodeMaintenance is how many nodes are given to requestors at a time, and for how long. Of one that was decoded,
// everything but MaxUnavailable and Namespaces is set.
type NodeMaintenance struct {
	// MaxParallelOperations is how many nodes are under maintenance at a time, 0 for as many as are asked for.
	MaxParallelOperations *intstr.IntOrString
	// MaxUnavailable is up to how many unavailable nodes a maintenance may begin on one that is available, nil for any
	// number.
	MaxUnavailable *intstr.IntOrString
	// MaxNodeMaintenanceTime is how long a node stays with a requestor.
	MaxNodeMaintenanceTime *metav1.Duration
	// LogLevel is what is logged about it.
	LogLevel *LogLevel
	// MaxHoldTime is how long the machine of a node under maintenance is kept.
	MaxHoldTime *metav1.Duration
	// Namespaces are those in which maintenances are asked for, none for all.
	Namespaces []string
}

// LogLevel is what is logged.
type LogLevel string

// Worker is the settings of one worker pool.
type Worker struct {
	// Name is the name of the worker pool in the Shoot.
	Name string
	// MachineControllerManager is what is set for this worker pool.
	MachineControllerManager *MachineControllerManagerSettings
}

// MachineControllerManagerSettings says how many failed machines are kept, for how long, and how they are drained.
type MachineControllerManagerSettings struct {
	// AutoPreserveFailedMax is how many failed machines of a worker pool are kept at a time without being asked for.
	AutoPreserveFailedMax *int32
	// MachinePreserveTimeout is how long a machine is kept.
	MachinePreserveTimeout *metav1.Duration
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer.
	ForceDeletePodsWithVolumes *bool
}
