// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// MachinePreservationConfig says which failed machines of a Shoot are kept, and for how long, how nodes are helped that do
// not drain, whether nodes are given to those who work on them, whether hosts are power-cycled, whether evidence is stored, and whether failures are told of. It is the `providerConfig` of the extension of type `machine-preservation` in `Shoot.spec.extensions`.
//
// What holds for a worker pool is looked up for each field by itself, in this order: `workers[]` here, the Shoot's
// `spec.provider.workers[].machineControllerManager` (where the Gardener version has these fields),
// `machineControllerManager` here, the defaults of the landscape.
type MachinePreservationConfig struct {
	metav1.TypeMeta `json:",inline"`

	// MachineControllerManager applies to every worker pool for which nothing else is set.
	// +optional
	MachineControllerManager *MachineControllerManagerSettings `json:"machineControllerManager,omitempty"`
	// Workers are the settings of single worker pools.
	// +optional
	Workers []Worker `json:"workers,omitempty"`
	// DrainStrategies help nodes that machine-controller-manager empties because of an update of the workers, and tell of
	// those that it cannot empty. Nothing of the kind happens where this is not set.
	// +optional
	DrainStrategies *DrainStrategies `json:"drainStrategies,omitempty"`
	// NodeMaintenance brings the API maintenance.nvidia.com/v1alpha1 into the shoot, with which requestors have nodes emptied
	// that they want to work on, while the machines are kept. Nothing of the kind happens where this is not set.
	// +optional
	NodeMaintenance *NodeMaintenance `json:"nodeMaintenance,omitempty"`
	// Evidence stores what is known of failed machines that are kept, so that it outlives them. Nothing of the kind happens
	// where this is not set.
	// +optional
	Evidence *Evidence `json:"evidence,omitempty"`
	// Failures has each failure of a machine told of in the shoot by a MachineFailure. That happens where this is not set, too.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
}

// Failures is whether failures of machines are told of in the shoot.
type Failures struct {
	// Enabled says whether they are. All MachineFailures are deleted, with their API, when they no longer are. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// Evidence is what is stored of a machine once it has failed and is kept: the machine and what it belongs to, its node, what was
// on that, and their Events, as the API servers have them. Operators read it in the seed, and those whom the owner lets read it
// in the shoot.
type Evidence struct {
	// Enabled says whether evidence is stored. What was stored is deleted when it no longer is. Defaults to false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Retention is for how long evidence is kept after its machine is gone. Between 1h and 720h. Defaults to 168h.
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
	// NodeLogs says whether logs of the node are part of the evidence. It has all kubelets of the shoot answer queries of logs, and
	// all nodes keep their journal over reboots. Without `enabled` it does nothing. Defaults to false.
	// +optional
	NodeLogs *bool `json:"nodeLogs,omitempty"`
}

// DrainStrategies say when pods are helped that hold up the drain of a node. Times are counted from when the drain began.
// A pod that no PodDisruptionBudget selects is deleted without a grace period after `timeout`, one that a
// PodDisruptionBudget selects after `expectedDrainTime` + `pdbForceDrainTimeout`; from then on, pods that are
// terminating lose their finalizers, or are deleted once more, as soon as their grace period is over.
type DrainStrategies struct {
	// Disabled says that nothing is done with any pod. Nodes that fail to drain within `timeout` are told of all the same.
	// Defaults to false.
	// +optional
	Disabled *bool `json:"disabled,omitempty"`
	// Timeout is how long a node may take to drain by itself. Greater than 0s. Defaults to 45m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// ExpectedDrainTime is how long the drain of a node takes at best. Greater than 0s, at most the timeout. Defaults to
	// 8m.
	// +optional
	ExpectedDrainTime *metav1.Duration `json:"expectedDrainTime,omitempty"`
	// PDBForceDrainTimeout is for how long PodDisruptionBudgets are respected beyond the expected time; 0s is not beyond
	// it. Defaults to 60m.
	// +optional
	PDBForceDrainTimeout *metav1.Duration `json:"pdbForceDrainTimeout,omitempty"`
	// IgnoredNamespacePatterns are regular expressions in the syntax of Go. Nothing is done with pods in namespaces whose
	// whole name matches one of them. At most 32, of at most 256 bytes each.
	// +optional
	IgnoredNamespacePatterns []string `json:"ignoredNamespacePatterns,omitempty"`
}

// NodeMaintenance is how many nodes are given to requestors at a time, and for how long. Percentages are of all nodes.
type NodeMaintenance struct {
	// MaxParallelOperations is how many nodes are under maintenance at a time: a whole number, or a percentage from "0%" to
	// "100%", which is rounded up. 0 is no limit. Defaults to 1.
	// +optional
	MaxParallelOperations *intstr.IntOrString `json:"maxParallelOperations,omitempty"`
	// MaxUnavailable is up to how many unavailable nodes, those under maintenance among them, a maintenance may begin on one
	// that is available: a whole number, or a percentage from "0%" to "100%", which is rounded down, but not below 1. With 0
	// it begins on none. There is no limit where this is not set.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxNodeMaintenanceTime is how long a node that was handed over stays with its requestor before the NodeMaintenance is
	// deleted. A whole number of seconds, at least 1s. Defaults to 1h.
	// +optional
	MaxNodeMaintenanceTime *metav1.Duration `json:"maxNodeMaintenanceTime,omitempty"`
	// LogLevel is what is logged about maintenances. Defaults to info.
	// +optional
	LogLevel *LogLevel `json:"logLevel,omitempty"`
	// MaxHoldTime is how long the machine of a node under maintenance is kept, whatever the NodeMaintenance says. Counted
	// from when the maintenance began. At least 10s, and what operators allow at most. Defaults to 24h.
	// +optional
	MaxHoldTime *metav1.Duration `json:"maxHoldTime,omitempty"`
	// Namespaces are the namespaces of the shoot in which NodeMaintenances count. Whoever may create one there has power over
	// every node. At most 32. All namespaces if there are none.
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
}

// LogLevel is what is logged.
// +kubebuilder:validation:Enum=debug;info;error
type LogLevel string

const (
	// LogLevelDebug logs each step.
	LogLevelDebug LogLevel = "debug"
	// LogLevelInfo logs what becomes of each maintenance.
	LogLevelInfo LogLevel = "info"
	// LogLevelError logs errors only.
	LogLevelError LogLevel = "error"
)

// Worker is the settings of one worker pool.
type Worker struct {
	// Name is the name of the worker pool in the Shoot.
	Name string `json:"name"`
	// MachineControllerManager is what is set for this worker pool.
	// +optional
	MachineControllerManager *MachineControllerManagerSettings `json:"machineControllerManager,omitempty"`
	// PowerCycle has hosts of failed machines of this worker pool powered off and on again, when somebody asks for it. The
	// machines are kept meanwhile. Nothing of the kind happens where this is not set, or where the landscape has no hosts
	// whose power can be switched.
	// +optional
	PowerCycle *PowerCycle `json:"powerCycle,omitempty"`
}

// PowerCycle is how the hosts of a worker pool are powered off and on again. While a host is known to be off, its node is
// made safe: the pods that ran there start elsewhere, and their volumes are detached. All timeouts are between 1m and 1h. The
// first counts from when the cycle begins, which a request may have to wait for, each other one from when the step before it is
// done. A cycle that exceeds one of them has failed, and the host is powered on.
type PowerCycle struct {
	// Automatic says whether failed machines that are kept without being asked for (`autoPreserveFailedMax`) are power-cycled
	// without being asked for as well, where the operators allow it: `true` or `false`. `DryRun` only tells of those that would
	// be, and touches no host. Defaults to false.
	// +optional
	Automatic *AutomaticPowerCycle `json:"automatic,omitempty"`
	// Fencing is how a node is made safe while its host is off. Defaults to OutOfServiceTaint.
	// +optional
	Fencing *Fencing `json:"fencing,omitempty"`
	// MaxAttempts is how many cycles there are of a machine at most until its node was ready for some minutes. Between 1 and
	// 5. Defaults to 1.
	// +optional
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`
	// MaxConcurrent is how many machines of a zone of the pool are power-cycled at a time. At least 1. Defaults to 1.
	// +optional
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`
	// PowerOffTimeout is how long it may take until the host is off and its node safe. Defaults to 10m.
	// +optional
	PowerOffTimeout *metav1.Duration `json:"powerOffTimeout,omitempty"`
	// PowerOnTimeout is how long it may take until the host is on again. Defaults to 10m.
	// +optional
	PowerOnTimeout *metav1.Duration `json:"powerOnTimeout,omitempty"`
	// NodeStartupTimeout is how long it may take until the node is healthy after that. Defaults to 10m.
	// +optional
	NodeStartupTimeout *metav1.Duration `json:"nodeStartupTimeout,omitempty"`
}

// AutomaticPowerCycle says whether failed machines are power-cycled without being asked for. In JSON it is the boolean true or
// false, or the string "DryRun".
type AutomaticPowerCycle string

const (
	// AutomaticTrue has them power-cycled, where the operators allow it.
	AutomaticTrue AutomaticPowerCycle = "true"
	// AutomaticFalse leaves that to those who ask for it.
	AutomaticFalse AutomaticPowerCycle = "false"
	// AutomaticDryRun tells which of them would be power-cycled, and when.
	AutomaticDryRun AutomaticPowerCycle = "DryRun"
)

// Fencing is how a node is made safe.
// +kubebuilder:validation:Enum=OutOfServiceTaint
type Fencing string

// FencingOutOfServiceTaint taints the node with `node.kubernetes.io/out-of-service`: Kubernetes deletes its pods and
// detaches their volumes.
const FencingOutOfServiceTaint Fencing = "OutOfServiceTaint"

// MachineControllerManagerSettings says how many failed machines are kept, for how long, and how they are drained.
type MachineControllerManagerSettings struct {
	// AutoPreserveFailedMax is how many failed machines of a worker pool are kept at a time without being asked for. It
	// is distributed over the zones of the pool as its minimum and maximum are. At most the maximum of the pool, or one
	// less where the pool may run system components.
	// +optional
	AutoPreserveFailedMax *int32 `json:"autoPreserveFailedMax,omitempty"`
	// MachinePreserveTimeout is how long a machine is kept, for example "72h". At least 10s.
	// +optional
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force as well, so that they can start
	// elsewhere, when the drain timeout of a kept machine has passed and its node does not answer. The machine may be
	// alive all the same: then the same pod runs twice, with the same volume, and can destroy its data. False by default:
	// these pods stay. Neither the Shoot's own field nor the defaults of the landscape have it.
	// +optional
	ForceDeletePodsWithVolumes *bool `json:"forceDeletePodsWithVolumes,omitempty"`
	// PreferNewFailures says that a machine that fails for a reason which no kept machine of its zone shows is kept rather than one
	// that shows what others show as well. If there is no place for it, it takes that of such a machine, which nobody asked for. False
	// by default. Neither the Shoot's own field nor the defaults of the landscape have it.
	// +optional
	PreferNewFailures *bool `json:"preferNewFailures,omitempty"`
}
