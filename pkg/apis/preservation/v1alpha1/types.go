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

// MachinePreservationConfig is the `providerConfig` of the extension of type `machine-preservation` in
// `Shoot.spec.extensions`. It configures which failed machines of a Shoot are preserved and for how long, drain strategies for
// nodes that do not drain, node maintenance, power cycles of hosts, evidence, and the failure history.
//
// For each field of a worker pool, the first of these that sets it applies: `workers[]` here, the Shoot's
// `spec.provider.workers[].machineControllerManager` (if the Gardener version has these fields), `machineControllerManager`
// here, the defaults of the landscape.
type MachinePreservationConfig struct {
	metav1.TypeMeta `json:",inline"`

	// MachineControllerManager applies to every worker pool for which nothing else is set.
	// +optional
	MachineControllerManager *MachineControllerManagerSettings `json:"machineControllerManager,omitempty"`
	// Workers are the settings of individual worker pools.
	// +optional
	Workers []Worker `json:"workers,omitempty"`
	// DrainStrategies help nodes to drain that machine-controller-manager drains because of an update of the workers, and
	// report nodes that it cannot drain. If it is not set, neither happens.
	// +optional
	DrainStrategies *DrainStrategies `json:"drainStrategies,omitempty"`
	// DrainConditions says whether nodes show in the conditions `DrainInProgress` and `Drained` of Kubernetes (KEP-5683) that they
	// are drained: for a NodeMaintenance, because a preserved machine failed, or for an update of the workers with
	// `drainStrategies`. Conditions that somebody else has written, such as kubectl drain, stay as they are. If it is false, only
	// NodeMaintenances show their drains, and only while these conditions are true. Defaults to false.
	// +optional
	DrainConditions *bool `json:"drainConditions,omitempty"`
	// NodeMaintenance brings the API maintenance.nvidia.com/v1alpha1 into the shoot. With it, requestors can have a node
	// drained to work on it, while its machine is preserved. If it is not set, the API does not exist.
	// +optional
	NodeMaintenance *NodeMaintenance `json:"nodeMaintenance,omitempty"`
	// Evidence stores what is known about failed machines that are preserved, so that it outlives them. If it is not set,
	// nothing is stored.
	// +optional
	Evidence *Evidence `json:"evidence,omitempty"`
	// Failures has each failure of a machine recorded in the shoot as a MachineFailure. If it is not set, failures are
	// recorded.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
}

// Failures configures the failure history of the shoot.
type Failures struct {
	// Enabled says whether failures of machines are recorded as MachineFailures in the shoot. If it is set to false, all
	// MachineFailures and their API are deleted. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// Evidence is what is stored about a machine that has failed and is preserved: the machine and the objects that it belongs to,
// its node, the pods and other objects on the node, and their Events, in the form in which the API servers return them.
// Operators read evidence in the seed. Users whom the shoot owner allows to do so read it in the shoot.
type Evidence struct {
	// Enabled says whether evidence is stored. If it is set to false, stored evidence is deleted. Defaults to false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Retention is how long evidence is stored after its machine is gone. Between 1h and 720h. Defaults to 168h.
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
	// NodeLogs says whether logs of the node are part of the evidence. It makes all kubelets of the shoot answer log queries,
	// and all nodes keep their journal over reboots. Without `enabled` it has no effect. Defaults to false.
	// +optional
	NodeLogs *bool `json:"nodeLogs,omitempty"`
}

// DrainStrategies configure when pods are deleted that block the drain of a node. All times count from when the drain began. A
// pod that no PodDisruptionBudget selects is deleted without a grace period after `timeout`. A pod that a PodDisruptionBudget
// selects is deleted after `expectedDrainTime` + `pdbForceDrainTimeout`. From then on, pods that are terminating lose their
// finalizers or are deleted again as soon as their grace period is over.
type DrainStrategies struct {
	// Disabled says that drain strategies leave all pods alone. Nodes that do not drain within `timeout` are still reported.
	// Defaults to false.
	// +optional
	Disabled *bool `json:"disabled,omitempty"`
	// Timeout is how long a node has to drain before strategies act on pods that no PodDisruptionBudget selects. Greater than
	// 0s, at most 8760h. Defaults to 45m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// ExpectedDrainTime is how long the drain of a node takes in the best case. Greater than 0s, at most `timeout`, and so
	// at most 8760h. Defaults to 8m.
	// +optional
	ExpectedDrainTime *metav1.Duration `json:"expectedDrainTime,omitempty"`
	// PDBForceDrainTimeout is how long after `expectedDrainTime` PodDisruptionBudgets are still respected. 0s means that they
	// are respected until `expectedDrainTime` only. At most 8760h. Defaults to 60m.
	// +optional
	PDBForceDrainTimeout *metav1.Duration `json:"pdbForceDrainTimeout,omitempty"`
	// IgnoredNamespacePatterns are regular expressions in Go syntax. Pods are left alone if a pattern matches the whole name
	// of their namespace. At most 32 patterns of at most 256 bytes each.
	// +optional
	IgnoredNamespacePatterns []string `json:"ignoredNamespacePatterns,omitempty"`
}

// NodeMaintenance limits how many nodes are given to requestors at a time, and for how long. Percentages are of all nodes.
type NodeMaintenance struct {
	// MaxParallelOperations is how many nodes are under maintenance at a time: a whole number, or a percentage from "0%" to
	// "100%", which is rounded up. 0 means no limit. Defaults to 1.
	// +optional
	MaxParallelOperations *intstr.IntOrString `json:"maxParallelOperations,omitempty"`
	// MaxUnavailable is the number of unavailable nodes, including nodes under maintenance, from which on no maintenance
	// begins on an available node: a whole number, or a percentage from "0%" to "100%", which is rounded down, but not below
	// 1. With 0, no maintenance begins on an available node. If it is not set, there is no limit.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxNodeMaintenanceTime is how long a node stays with its requestor after it was handed over. Then the NodeMaintenance is
	// deleted. A whole number of seconds, at least 1s. Defaults to 1h.
	// +optional
	MaxNodeMaintenanceTime *metav1.Duration `json:"maxNodeMaintenanceTime,omitempty"`
	// LogLevel is how much is logged about maintenances. Defaults to info.
	// +optional
	LogLevel *LogLevel `json:"logLevel,omitempty"`
	// MaxHoldTime is how long the machine of a node under maintenance is preserved, whatever the NodeMaintenance says. It
	// counts from when the maintenance began. At least 10s, and limited by the maximum that the operators allow. Defaults to
	// 24h.
	// +optional
	MaxHoldTime *metav1.Duration `json:"maxHoldTime,omitempty"`
	// Namespaces are the namespaces of the shoot whose NodeMaintenances are carried out. Users who may create NodeMaintenances
	// there have power over every node. At most 32. If it is empty, all namespaces.
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

// Worker configures one worker pool.
type Worker struct {
	// Name is the name of the worker pool in the Shoot.
	Name string `json:"name"`
	// MachineControllerManager are the settings of this worker pool.
	// +optional
	MachineControllerManager *MachineControllerManagerSettings `json:"machineControllerManager,omitempty"`
	// PowerCycle lets hosts of failed machines of this worker pool be powered off and on again on request. The machines are
	// preserved meanwhile. If it is not set, or the landscape has no hosts that can be power-cycled, no host is power-cycled.
	// +optional
	PowerCycle *PowerCycle `json:"powerCycle,omitempty"`
	// Validation keeps new pods away from the node of a machine that has recovered, or that comes back from a maintenance or a
	// power cycle, until there is proof that the machine works. If it is not set, the node takes pods as soon as it is healthy.
	// +optional
	Validation *Validation `json:"validation,omitempty"`
}

// Validation says what proves that a machine works. Exactly one of `condition` and `label` must be set. The owner of the shoot
// has something running that sets it, and that tolerates the taint `node.machine.sapcloud.io/preserved`.
type Validation struct {
	// Condition is the type of a condition of the Node. It proves that the machine works if it is True, and was reported after
	// the machine came back. It must be neither a condition by which a machine is unhealthy, nor one of the kubelet, nor one of
	// this extension.
	// +optional
	Condition *string `json:"condition,omitempty"`
	// Label is a label of the Node, as `key=value`. It proves that the machine works if it has this value. Whoever sets it must
	// remove it when the machine fails, because nobody can see how old a label is.
	// +optional
	Label *string `json:"label,omitempty"`
	// Timeout is how long the node waits for the proof. Between 1m and 24h. Defaults to 15m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// OnTimeout is what happens if there is no proof within the timeout. With Keep, the node takes pods again, and a Warning
	// Event says that it was not validated. Defaults to Keep, which is the only valid value.
	// +optional
	OnTimeout *OnTimeout `json:"onTimeout,omitempty"`
}

// OnTimeout is what happens to a machine that is not validated in time.
// +kubebuilder:validation:Enum=Keep
type OnTimeout string

// OnTimeoutKeep lets the node take pods again.
const OnTimeoutKeep OnTimeout = "Keep"

// PowerCycle configures how the hosts of a worker pool are powered off and on again. While a host is known to be off, its node
// is made safe: the pods that ran on it start on other nodes, and their volumes are detached. All timeouts are between 1m and
// 1h. The first timeout counts from when the power cycle begins, which can be later than the request. Each other timeout
// counts from when the step before it is done. A power cycle that exceeds a timeout has failed, and the host is powered on.
type PowerCycle struct {
	// Automatic says whether auto-preserved failed machines (`autoPreserveFailedMax`) are power-cycled automatically, if the
	// operators allow it: `true` or `false`. With `DryRun`, Events say which machines would be power-cycled, and no host is
	// touched. Defaults to false.
	// +optional
	Automatic *AutomaticPowerCycle `json:"automatic,omitempty"`
	// Fencing is how a node is made safe while its host is off. Defaults to OutOfServiceTaint.
	// +optional
	Fencing *Fencing `json:"fencing,omitempty"`
	// MaxAttempts is how many times a host is power-cycled before its node has been ready for some minutes. Between 1 and 5.
	// Defaults to 1.
	// +optional
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`
	// MaxConcurrent is how many machines of the pool in one zone are power-cycled at a time. At least 1. Defaults to 1.
	// +optional
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`
	// PowerOffTimeout is how long it may take until the host is off and its node is safe. Defaults to 10m.
	// +optional
	PowerOffTimeout *metav1.Duration `json:"powerOffTimeout,omitempty"`
	// PowerOnTimeout is how long it may take until the host is on again. Defaults to 10m.
	// +optional
	PowerOnTimeout *metav1.Duration `json:"powerOnTimeout,omitempty"`
	// NodeStartupTimeout is how long it may take until the node is healthy after the host is on. Defaults to 10m.
	// +optional
	NodeStartupTimeout *metav1.Duration `json:"nodeStartupTimeout,omitempty"`
}

// AutomaticPowerCycle says whether failed machines are power-cycled automatically. In JSON it is the boolean true or false, or
// the string "DryRun".
type AutomaticPowerCycle string

const (
	// AutomaticTrue power-cycles machines automatically, if the operators allow it.
	AutomaticTrue AutomaticPowerCycle = "true"
	// AutomaticFalse power-cycles machines on request only.
	AutomaticFalse AutomaticPowerCycle = "false"
	// AutomaticDryRun reports which machines would be power-cycled, and when.
	AutomaticDryRun AutomaticPowerCycle = "DryRun"
)

// Fencing is how a node is made safe.
// +kubebuilder:validation:Enum=OutOfServiceTaint
type Fencing string

// FencingOutOfServiceTaint taints the node with `node.kubernetes.io/out-of-service`: Kubernetes deletes its pods and
// detaches their volumes.
const FencingOutOfServiceTaint Fencing = "OutOfServiceTaint"

// MachineControllerManagerSettings configure how many failed machines are preserved, for how long, and how their nodes are
// drained.
type MachineControllerManagerSettings struct {
	// AutoPreserveFailedMax is how many failed machines of a worker pool are auto-preserved at a time. The number is
	// distributed over the zones of the pool like its minimum and maximum, unless Distribution is Pool. At most the maximum of the pool, or one less if
	// system components may run in the pool.
	// +optional
	AutoPreserveFailedMax *int32 `json:"autoPreserveFailedMax,omitempty"`
	// MachinePreserveTimeout is how long a machine is preserved, for example "72h". At least 10s.
	// +optional
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force too, so that they can start on other
	// nodes, when the drain timeout of a preserved machine has passed and its node does not answer. Such a machine may still
	// run: then the same pod runs twice with the same volume and can destroy its data. Defaults to false: these pods stay.
	// This setting exists neither in the fields of the Shoot itself nor in the defaults of the landscape.
	// +optional
	ForceDeletePodsWithVolumes *bool `json:"forceDeletePodsWithVolumes,omitempty"`
	// PreferNewFailures says that a machine that fails for a reason that no other preserved machine of its zone (with distribution Pool: of its pool) has is
	// preferred to machines that fail for a reason that others already have. If no place is free, it takes the place of an
	// auto-preserved machine whose reason others have too. Defaults to false. This setting exists neither in the fields of the
	// Shoot itself nor in the defaults of the landscape.
	// +optional
	PreferNewFailures *bool `json:"preferNewFailures,omitempty"`
	// Distribution says who may use the places of AutoPreserveFailedMax: with Zones, each zone of the pool has its own share of
	// them, and with Pool, any zone may use any place, and all zones together never more. Defaults to Zones. This setting exists
	// neither in the fields of the Shoot itself nor in the defaults of the landscape.
	// +optional
	Distribution *Distribution `json:"distribution,omitempty"`
}

// Distribution says who may use the places of a pool.
// +kubebuilder:validation:Enum=Zones;Pool
type Distribution string

const (
	// DistributionZones distributes the places over the zones of the pool.
	DistributionZones Distribution = "Zones"
	// DistributionPool lets any zone of the pool use any place.
	DistributionPool Distribution = "Pool"
)
