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
	// Evidence is what is stored of failed machines, nil for nothing.
	Evidence *Evidence
	// Failures is whether failures of machines are told of in the shoot, nil for yes.
	Failures *Failures
}

// Failures is whether failures of machines are told of in the shoot. Of one that was decoded, everything is set.
type Failures struct {
	// Enabled says that they are.
	Enabled *bool
}

// Evidence is whether what is known of failed machines is stored, and for how long. Of one that was decoded, everything is set.
type Evidence struct {
	// Enabled says that it is.
	Enabled *bool
	// Retention is for how long it is kept after the machine is gone.
	Retention *metav1.Duration
	// NodeLogs says that logs of nodes are part of it.
	NodeLogs *bool
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
	// PowerCycle is how hosts of failed machines are powered off and on again, nil for not at all.
	PowerCycle *PowerCycle
}

// PowerCycle is how the hosts of a worker pool are powered off and on again. Of one that was decoded, everything is set.
type PowerCycle struct {
	// Automatic says whether failed machines that are kept are power-cycled without being asked for (X9).
	Automatic *AutomaticPowerCycle
	// Fencing is how a node is made safe while its host is off.
	Fencing *Fencing
	// MaxAttempts is how many cycles there are at most until the node is settled (X6).
	MaxAttempts *int32
	// MaxConcurrent is how many machines of a MachineDeployment are power-cycled at a time (X8).
	MaxConcurrent *int32
	// PowerOffTimeout is how long it may take until the host is off and its node safe (X5).
	PowerOffTimeout *metav1.Duration
	// PowerOnTimeout is how long it may take until the host is on again (X5).
	PowerOnTimeout *metav1.Duration
	// NodeStartupTimeout is how long it may take until the node is healthy after that (X5).
	NodeStartupTimeout *metav1.Duration
}

// AutomaticPowerCycle says whether failed machines are power-cycled without being asked for.
type AutomaticPowerCycle string

// Fencing is how a node is made safe.
type Fencing string

// MachineControllerManagerSettings says how many failed machines are kept, for how long, and how they are drained.
type MachineControllerManagerSettings struct {
	// AutoPreserveFailedMax is how many failed machines of a worker pool are kept at a time without being asked for.
	AutoPreserveFailedMax *int32
	// MachinePreserveTimeout is how long a machine is kept.
	MachinePreserveTimeout *metav1.Duration
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer.
	ForceDeletePodsWithVolumes *bool
	// PreferNewFailures says that a machine that fails for a reason which no kept machine shows is kept rather than one that shows
	// what others show as well.
	PreferNewFailures *bool
}
