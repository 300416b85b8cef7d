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
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.requestorID`
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Requestor",type="string",JSONPath=`.spec.requestorID`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Failed",type="string",JSONPath=`.status.conditions[?(@.type=='RequestorFailed')].status`
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=`.status.conditions[?(@.type=='Ready')].message`

// NodeMaintenance requests a node to work on: the maintenance is scheduled, its node is cordoned and drained, and handed over
// to the requestor. The requestor deletes the NodeMaintenance when the work is done.
type NodeMaintenance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is requested.
	// +required
	Spec NodeMaintenanceSpec `json:"spec"`
	// Status is the progress of the maintenance.
	// +optional
	Status NodeMaintenanceStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// NodeMaintenanceList is a list of NodeMaintenances.
type NodeMaintenanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeMaintenance `json:"items"`
}

// NodeMaintenanceSpec is what is requested.
type NodeMaintenanceSpec struct {
	// RequestorID identifies the requestor. It cannot be changed.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?(\.[a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?)*)$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Value is immutable"
	RequestorID string `json:"requestorID"`
	// AdditionalRequestors share the maintenance: a NodeMaintenance that is deleted while it is Ready stays until this list is
	// empty.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	AdditionalRequestors []string `json:"additionalRequestors,omitempty"`
	// NodeName is the node to work on. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Value is immutable"
	NodeName string `json:"nodeName"`
	// Cordon says whether the node is cordoned, so that no further pods are scheduled on it. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	Cordon *bool `json:"cordon,omitempty"`
	// WaitForPodCompletion says which pods are waited for to complete before the node is drained. If it is not set, no pods
	// are waited for.
	// +optional
	WaitForPodCompletion *WaitForPodCompletionSpec `json:"waitForPodCompletion,omitempty"`
	// DrainSpec says how the node is drained. If it is not set, the node is not drained.
	// +optional
	DrainSpec *DrainSpec `json:"drainSpec,omitempty"`
}

// WaitForPodCompletionSpec says which pods are waited for.
type WaitForPodCompletionSpec struct {
	// PodSelector selects the pods by their labels. An empty selector selects all pods.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PodSelector string `json:"podSelector,omitempty"`
	// TimeoutSeconds is how long the pods are waited for. Defaults to 0, which means no limit.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// DrainSpec says how the node is drained.
type DrainSpec struct {
	// Force says whether pods without a controller are evicted too. Nothing starts these pods again.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`
	// PodSelector selects the pods to evict by their labels. An empty selector selects all pods.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PodSelector string `json:"podSelector,omitempty"`
	// TimeoutSeconds is after how many seconds the drain is retried. Defaults to 300. 0 means never, and values from 1 to 29
	// mean 30.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir says whether pods with emptyDir volumes are evicted too. The content of these volumes is lost.
	// +optional
	// +kubebuilder:default=false
	DeleteEmptyDir bool `json:"deleteEmptyDir,omitempty"`
	// PodEvictionFilters further restrict the pods to evict. A pod is selected if one of the filters selects it. Without
	// filters, all pods are selected.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	PodEvictionFilters []PodEvictionFilterEntry `json:"podEvictionFilters,omitempty"`
}

// PodEvictionFilterEntry selects pods.
type PodEvictionFilterEntry struct {
	// ByResourceNameRegex is a regular expression. It selects pods that request or limit a resource whose name it matches,
	// also in part.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ByResourceNameRegex string `json:"byResourceNameRegex,omitempty"`
}

// NodeMaintenanceStatus is the progress of a maintenance.
type NodeMaintenanceStatus struct {
	// Conditions are Ready, whose reason is the phase, and RequestorFailed, which the requestor sets.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// WaitForCompletion are the pods that are waited for, as namespace/name. At most 100 are listed.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	WaitForCompletion []string `json:"waitForCompletion,omitempty"`
	// Drain is the progress of the drain.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`
}

// DrainStatus is the progress of a drain.
type DrainStatus struct {
	// TotalPods is the number of pods that were on the node when the drain began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TotalPods int32 `json:"totalPods"`
	// EvictionPods is the number of these pods that had to be evicted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	EvictionPods int32 `json:"evictionPods"`
	// DrainProgress is the percentage of the pods to evict that are gone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	DrainProgress int32 `json:"drainProgress"`
	// WaitForEviction are the pods that still have to go, as namespace/name. At most 100 are listed.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	WaitForEviction []string `json:"waitForEviction,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Parallel",type="string",JSONPath=`.spec.maxParallelOperations`
// +kubebuilder:printcolumn:name="Unavailable",type="string",JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Used",type="string",JSONPath=`.status.conditions[?(@.type=='Used')].status`
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=`.status.conditions[?(@.type=='Used')].message`

// MaintenanceOperatorConfig limits the maintenances of a cluster. Only the object with the name "default" in the namespace
// "kube-system" has an effect. Its limits are set in the Shoot, and changes made here are reverted.
type MaintenanceOperatorConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec are the limits.
	// +optional
	Spec MaintenanceOperatorConfigSpec `json:"spec,omitempty"`
	// Status says whether the limits apply.
	// +optional
	Status MaintenanceOperatorConfigStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// MaintenanceOperatorConfigList is a list of MaintenanceOperatorConfigs.
type MaintenanceOperatorConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MaintenanceOperatorConfig `json:"items"`
}

// MaintenanceOperatorConfigSpec are the limits.
type MaintenanceOperatorConfigSpec struct {
	// MaxParallelOperations is how many nodes are under maintenance at a time: a number, or a percentage of all nodes, which
	// is rounded up. 0 means no limit. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 2147483647)",message="must be an integer of at least 0, or a percentage"
	MaxParallelOperations *intstr.IntOrString `json:"maxParallelOperations,omitempty"`
	// MaxUnavailable is the number of unavailable nodes, under maintenance or not, from which on no maintenance begins on an
	// available node: a number, or a percentage of all nodes, which is rounded down but not to 0. If it is not set, there is
	// no limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 2147483647)",message="must be an integer of at least 0, or a percentage"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// LogLevel is the lowest level of messages about maintenances that are logged. Defaults to info.
	// +optional
	// +kubebuilder:default=info
	// +kubebuilder:validation:Enum=debug;info;error
	LogLevel LogLevel `json:"logLevel,omitempty"`
	// MaxNodeMaintenanceTimeSeconds is after how many seconds in phase Ready a NodeMaintenance is deleted. Defaults to 3600.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	MaxNodeMaintenanceTimeSeconds *int32 `json:"maxNodeMaintenanceTimeSeconds,omitempty"`
}

// LogLevel is a level of logs.
type LogLevel string

const (
	// LogLevelDebug logs everything.
	LogLevelDebug LogLevel = "debug"
	// LogLevelInfo logs what happens.
	LogLevelInfo LogLevel = "info"
	// LogLevelError logs what goes wrong.
	LogLevelError LogLevel = "error"
)

// MaintenanceOperatorConfigStatus says whether the limits apply.
type MaintenanceOperatorConfigStatus struct {
	// Conditions has the condition Used, which says whether the limits apply, and if they do not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
