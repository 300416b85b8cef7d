// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelOpen on a MachineFailure says that it has yet to be told how it ends.
const LabelOpen = GroupName + "/open"

// The bounds of what a MachineFailure has.
const (
	// MaxName is how many bytes a name has at most.
	MaxName = 253
	// MaxText is how many characters any other text has at most.
	MaxText = 256
	// MaxPods is how many pods are named at most.
	MaxPods = 50
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mf
// +kubebuilder:selectablefield:JSONPath=`.spec.machine`
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Pool",type="string",JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Failure",type="string",JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Kept",type="boolean",JSONPath=`.spec.decision.kept`
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=`.spec.decision.reason`
// +kubebuilder:printcolumn:name="Outcome",type="string",JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name="Failed",type="date",JSONPath=`.spec.failedAt`
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=`.spec.zone`,priority=1
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=`.spec.host`,priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=`.spec.condition.message`,priority=1

// MachineFailure is the entry of one failure of a machine in the ledger of a shoot. It is written once when the machine has failed, and
// once more when that is over. Nobody decides by it.
type MachineFailure struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what failed, and what was decided.
	// +required
	Spec MachineFailureSpec `json:"spec"`
	// Status is how it ended. It is not there before that.
	// +optional
	Status *MachineFailureStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// MachineFailureList is a list of MachineFailures.
type MachineFailureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineFailure `json:"items"`
}

// MachineFailureSpec is what failed, and what was decided.
type MachineFailureSpec struct {
	// Machine is the name of the machine, and MachineUID tells it from another one of that name.
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	MachineUID string `json:"machineUID,omitempty"`
	// Node is the name of its node. It is not there if the machine has none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// Pool is the worker pool, and Zone the zone that the machine is in.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`
	// ProviderID is how the infrastructure calls the machine. It is not there if there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ProviderID string `json:"providerID,omitempty"`
	// Host is the host that the machine runs on, where hosts can be power-cycled.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`
	// Reason is why the machine counts as failed: the type of the first bad condition of its node, or NeverJoined, NodeGone,
	// PowerCycled, InPlaceUpdateFailed, or Unknown.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// Condition is the first bad condition of the node.
	// +optional
	Condition *BadCondition `json:"condition,omitempty"`
	// FailedSince is when the timer was started that ran out: when the machine was first seen unhealthy, or was created.
	FailedSince metav1.Time `json:"failedSince"`
	// FailedAt is when the machine was seen to have failed.
	FailedAt metav1.Time `json:"failedAt"`
	// BootID, KubeletVersion, OSImage and KernelVersion are those of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	BootID string `json:"bootID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	OSImage string `json:"osImage,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	KernelVersion string `json:"kernelVersion,omitempty"`
	// Pods are the first pods that were on the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Pods []Pod `json:"pods,omitempty"`
	// MorePods says that there were more.
	// +optional
	MorePods bool `json:"morePods,omitempty"`
	// Decision is what was decided last.
	Decision Decision `json:"decision"`
}

// BadCondition is a condition of a node that makes its machine unhealthy.
type BadCondition struct {
	// Type is its type.
	// +kubebuilder:validation:MaxLength=256
	Type string `json:"type"`
	// Status is its status.
	Status corev1.ConditionStatus `json:"status"`
	// Reason is what the node says for it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// Message is the begin of what the node says beside that.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// Since is when it came.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// Pod is a pod that was on the node.
type Pod struct {
	// Namespace is its namespace.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// Name is its name.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Owner is the kind and the name of what controls it. It is not there if nothing does.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Owner string `json:"owner,omitempty"`
}

// Decision is what was decided on a failed machine.
type Decision struct {
	// Kept says that the machine was kept.
	Kept bool `json:"kept"`
	// Cause is what it was kept for: auto, now, when-failed, maintenance or remediation.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Cause string `json:"cause,omitempty"`
	// Reason is the ID of the reason for that, and Text says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Text string `json:"text,omitempty"`
}

// Outcome is how a failure ended.
// +kubebuilder:validation:Enum=Recovered;Replaced;Deleted
type Outcome string

const (
	// OutcomeRecovered says that the machine was healthy again.
	OutcomeRecovered Outcome = "Recovered"
	// OutcomeReplaced says that the machine was deleted because it had failed.
	OutcomeReplaced Outcome = "Replaced"
	// OutcomeDeleted says that the machine was deleted although it was kept: somebody deleted it, or scaled down.
	OutcomeDeleted Outcome = "Deleted"
)

// MachineFailureStatus is how a failure ended.
type MachineFailureStatus struct {
	// Outcome is how it ended.
	Outcome Outcome `json:"outcome"`
	// Reason is the ID of the reason for that, and Text says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Text string `json:"text,omitempty"`
	// EndedAt is when that was seen.
	EndedAt metav1.Time `json:"endedAt"`
	// PowerCycled says that the host was power-cycled meanwhile.
	// +optional
	PowerCycled bool `json:"powerCycled,omitempty"`
	// Evidence is the name of the ConfigMap in the seed with the evidence of the failure, and of the Secret in the shoot with what of it is
	// for those whom the owner lets read it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Evidence string `json:"evidence,omitempty"`
}
