// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelOpen on a MachineFailure says that its outcome is not known yet.
const LabelOpen = GroupName + "/open"

// The bounds of what a MachineFailure has.
const (
	// MaxName is the maximum length of a name in bytes.
	MaxName = 253
	// MaxText is the maximum length of any other text in characters.
	MaxText = 256
	// MaxPods is how many pods are listed at most.
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
// +kubebuilder:printcolumn:name="Preserved",type="boolean",JSONPath=`.spec.decision.kept`
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=`.spec.decision.reason`
// +kubebuilder:printcolumn:name="Outcome",type="string",JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name="Failed",type="date",JSONPath=`.spec.failedAt`
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=`.spec.zone`,priority=1
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=`.spec.host`,priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=`.spec.condition.message`,priority=1

// MachineFailure records one failure of a machine in the failure history of a shoot. It is written when the machine has
// failed, and again when the failure has ended. Nothing is decided because of it.
type MachineFailure struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what failed, and what was decided.
	// +required
	Spec MachineFailureSpec `json:"spec"`
	// Status is how the failure ended. It is not set before that.
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
	// Machine is the name of the machine. MachineUID distinguishes it from other machines of the same name.
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	MachineUID string `json:"machineUID,omitempty"`
	// Node is the name of the node of the machine. It is not set if the machine has no node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// Pool is the worker pool of the machine, and Zone its zone.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`
	// ProviderID identifies the machine at the infrastructure. It is not set if the machine had none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ProviderID string `json:"providerID,omitempty"`
	// Host is the host of the machine, if hosts can be power-cycled.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`
	// Reason is why the machine is regarded as failed: the type of the first bad condition of its node, or NeverJoined,
	// NodeGone, PowerCycled, InPlaceUpdateFailed, or Unknown.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// Condition is the first bad condition of the node.
	// +optional
	Condition *BadCondition `json:"condition,omitempty"`
	// FailedSince is the time from which the timeout that has passed is counted: when the machine was first seen unhealthy, or
	// was created.
	FailedSince metav1.Time `json:"failedSince"`
	// FailedAt is the time when the machine was seen to have failed.
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
	// Pods are pods that were on the node. At most 50 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Pods []Pod `json:"pods,omitempty"`
	// MorePods says that there were more pods than are listed.
	// +optional
	MorePods bool `json:"morePods,omitempty"`
	// Decision is the latest decision on the machine.
	Decision Decision `json:"decision"`
}

// BadCondition is a condition of a node that makes its machine unhealthy.
type BadCondition struct {
	// Type is the type of the condition.
	// +kubebuilder:validation:MaxLength=256
	Type string `json:"type"`
	// Status is the status of the condition.
	Status corev1.ConditionStatus `json:"status"`
	// Reason is the reason of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// Message is the beginning of the message of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// Since is the time when the condition got this status.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// Pod is a pod that was on the node.
type Pod struct {
	// Namespace is the namespace of the pod.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Owner is the kind and the name of the controller of the pod. It is not set if the pod has none.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Owner string `json:"owner,omitempty"`
}

// Decision is what was decided on a failed machine.
type Decision struct {
	// Kept says whether the machine was preserved.
	Kept bool `json:"kept"`
	// Cause is the cause of the preservation: auto, now, when-failed, maintenance, remediation or validation.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Cause string `json:"cause,omitempty"`
	// Reason is the ID of the reason for the decision. Text says it in words.
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
	// OutcomeRecovered says that the machine became healthy again.
	OutcomeRecovered Outcome = "Recovered"
	// OutcomeReplaced says that the machine was deleted because it had failed.
	OutcomeReplaced Outcome = "Replaced"
	// OutcomeDeleted says that the machine was deleted although it was preserved: it was deleted by a user, or scaled down.
	OutcomeDeleted Outcome = "Deleted"
)

// MachineFailureStatus is how a failure ended.
type MachineFailureStatus struct {
	// Outcome is how the failure ended.
	Outcome Outcome `json:"outcome"`
	// Reason is the ID of the reason for the outcome. Text says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Text string `json:"text,omitempty"`
	// EndedAt is the time when the end of the failure was seen.
	EndedAt metav1.Time `json:"endedAt"`
	// PowerCycled says whether the host was power-cycled before the failure ended.
	// +optional
	PowerCycled bool `json:"powerCycled,omitempty"`
	// Evidence is the name of the ConfigMap in the seed with the evidence of the failure. The Secret in the shoot with the
	// part of the evidence that the shoot owner may share has the same name. When the evidence is deleted, its name is used again: the
	// annotations evidence-machine and evidence-failed-since of both say of which machine and failure the evidence is.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Evidence string `json:"evidence,omitempty"`
}
