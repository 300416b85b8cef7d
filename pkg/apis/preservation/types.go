// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachinePreservationConfig is the provider configuration of the extension: which failed machines of a Shoot are preserved,
// and for how long.
type MachinePreservationConfig struct {
	metav1.TypeMeta

	// MachineControllerManager applies to every worker pool for which nothing else is set.
	MachineControllerManager *MachineControllerManagerSettings
	// Workers are the settings of individual worker pools.
	Workers []Worker
	// DrainStrategies help nodes that are drained because of an update of the workers, nil for none.
	DrainStrategies *DrainStrategies
	// DrainConditions says whether nodes show in conditions of Kubernetes that they are drained, nil for the default, which is false
	// (D13).
	DrainConditions *bool
	// NodeMaintenance lets requestors work on nodes, nil for not at all.
	NodeMaintenance *NodeMaintenance
	// Evidence is what is stored about failed machines, nil for nothing.
	Evidence *Evidence
	// Failures configures the failure history of the shoot, nil for the default, which is enabled.
	Failures *Failures
}

// Failures configures the failure history of the shoot. After decoding, every field is set.
type Failures struct {
	// Enabled says whether failures of machines are recorded in the shoot.
	Enabled *bool
}

// Evidence configures what is stored about failed machines, and for how long. After decoding, every field is set.
type Evidence struct {
	// Enabled says whether evidence is stored.
	Enabled *bool
	// Retention is how long evidence is stored after the machine is gone.
	Retention *metav1.Duration
	// NodeLogs says whether logs of nodes are part of the evidence.
	NodeLogs *bool
}

// DrainStrategies configure when pods are deleted that block the drain of a node. After decoding, every field but
// IgnoredNamespacePatterns is set.
type DrainStrategies struct {
	// Disabled says that all pods are left alone.
	Disabled *bool
	// Timeout is how long a node has to drain before strategies act.
	Timeout *metav1.Duration
	// ExpectedDrainTime is how long the drain of a node takes in the best case.
	ExpectedDrainTime *metav1.Duration
	// PDBForceDrainTimeout is how long after ExpectedDrainTime PodDisruptionBudgets are still respected.
	PDBForceDrainTimeout *metav1.Duration
	// IgnoredNamespacePatterns match whole names of namespaces whose pods are left alone.
	IgnoredNamespacePatterns []string
}

// NodeMaintenance limits how many nodes are given to requestors at a time, and for how long. After decoding, every field but
// MaxUnavailable and Namespaces is set.
type NodeMaintenance struct {
	// MaxParallelOperations is how many nodes are under maintenance at a time, 0 for no limit.
	MaxParallelOperations *intstr.IntOrString
	// MaxUnavailable is the number of unavailable nodes from which on no maintenance begins on an available node, nil for no
	// limit.
	MaxUnavailable *intstr.IntOrString
	// MaxNodeMaintenanceTime is how long a node stays with a requestor.
	MaxNodeMaintenanceTime *metav1.Duration
	// LogLevel is how much is logged about maintenances.
	LogLevel *LogLevel
	// MaxHoldTime is how long the machine of a node under maintenance is preserved.
	MaxHoldTime *metav1.Duration
	// Namespaces are those whose NodeMaintenances are carried out, all if empty.
	Namespaces []string
}

// LogLevel is how much is logged.
type LogLevel string

// Worker configures one worker pool.
type Worker struct {
	// Name is the name of the worker pool in the Shoot.
	Name string
	// MachineControllerManager are the settings of this worker pool.
	MachineControllerManager *MachineControllerManagerSettings
	// PowerCycle is how hosts of failed machines are powered off and on again, nil for not at all.
	PowerCycle *PowerCycle
	// Validation says what proves that a machine works that has recovered, nil if no proof is needed.
	Validation *Validation
}

// Validation says what proves that a machine works. After decoding, every field but Condition and Label is set, and one of these.
type Validation struct {
	// Condition is the type of a condition of the Node that proves it, nil if Label does.
	Condition *string
	// Label is the label of the Node that proves it, as key=value, nil if Condition does.
	Label *string
	// Timeout is how long the node waits for the proof.
	Timeout *metav1.Duration
	// OnTimeout is what happens if there is no proof within the timeout.
	OnTimeout *OnTimeout
}

// OnTimeout is what happens to a machine that is not validated in time.
type OnTimeout string

// PowerCycle configures how the hosts of a worker pool are powered off and on again. After decoding, every field is set.
type PowerCycle struct {
	// Automatic says whether preserved failed machines are power-cycled automatically (X9).
	Automatic *AutomaticPowerCycle
	// Fencing is how a node is made safe while its host is off.
	Fencing *Fencing
	// MaxAttempts is how many power cycles there are at most until the node is settled (X6).
	MaxAttempts *int32
	// MaxConcurrent is how many machines of a MachineDeployment are power-cycled at a time (X8).
	MaxConcurrent *int32
	// PowerOffTimeout is how long it may take until the host is off and its node is safe (X5).
	PowerOffTimeout *metav1.Duration
	// PowerOnTimeout is how long it may take until the host is on again (X5).
	PowerOnTimeout *metav1.Duration
	// NodeStartupTimeout is how long it may take until the node is healthy after that (X5).
	NodeStartupTimeout *metav1.Duration
}

// AutomaticPowerCycle says whether failed machines are power-cycled automatically.
type AutomaticPowerCycle string

// Fencing is how a node is made safe.
type Fencing string

// MachineControllerManagerSettings configure how many failed machines are preserved, for how long, and how their nodes are
// drained.
type MachineControllerManagerSettings struct {
	// AutoPreserveFailedMax is how many failed machines of a worker pool are auto-preserved at a time.
	AutoPreserveFailedMax *int32
	// MachinePreserveTimeout is how long a machine is preserved.
	MachinePreserveTimeout *metav1.Duration
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer.
	ForceDeletePodsWithVolumes *bool
	// PreferNewFailures says that a machine that fails for a reason that no other preserved machine has is preferred to
	// machines that fail for a reason that others already have.
	PreferNewFailures *bool
	// Distribution says who may use the places of AutoPreserveFailedMax (P20).
	Distribution *Distribution
}

// Distribution says who may use the places of a pool.
type Distribution string
