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

// NodeMaintenance asks for a node to work on: it is to be scheduled, cordoned, waited for, drained, and handed over. It is
// deleted when the work is done.
type NodeMaintenance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +required
	Spec NodeMaintenanceSpec `json:"spec"`
	// Status is how far it is.
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

// NodeMaintenanceSpec is what is asked for.
type NodeMaintenanceSpec struct {
	// RequestorID is who asks. It cannot be changed.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?(\.[a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?)*)$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Value is immutable"
	RequestorID string `json:"requestorID"`
	// AdditionalRequestors share the maintenance: a NodeMaintenance that is deleted while it is Ready stays until the list is
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
	// Cordon says that no further pods are to be scheduled on the node. It defaults to true.
	// +optional
	// +kubebuilder:default=true
	Cordon *bool `json:"cordon,omitempty"`
	// WaitForPodCompletion says which pods may end by themselves before the node is drained. Without it, none are waited
	// for.
	// +optional
	WaitForPodCompletion *WaitForPodCompletionSpec `json:"waitForPodCompletion,omitempty"`
	// DrainSpec says how the node is drained. Without it, it is not.
	// +optional
	DrainSpec *DrainSpec `json:"drainSpec,omitempty"`
}

// WaitForPodCompletionSpec says which pods may end by themselves.
type WaitForPodCompletionSpec struct {
	// PodSelector selects them by their labels. An empty one selects all.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PodSelector string `json:"podSelector,omitempty"`
	// TimeoutSeconds is how long they are waited for. 0, the default, stands for as long as it takes.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// DrainSpec says how the node is drained.
type DrainSpec struct {
	// Force says to evict also pods without a controller, which nobody starts again.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`
	// PodSelector selects the pods to evict by their labels. An empty one selects all.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PodSelector string `json:"podSelector,omitempty"`
	// TimeoutSeconds is after how long the drain begins anew. It defaults to 300. 0 stands for never, and what is less than 30
	// for 30.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// DeleteEmptyDir says to evict also pods with emptyDir volumes, whose content is lost.
	// +optional
	// +kubebuilder:default=false
	DeleteEmptyDir bool `json:"deleteEmptyDir,omitempty"`
	// PodEvictionFilters select the pods to evict further. A pod is selected if one of them selects it; without any, all are.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	PodEvictionFilters []PodEvictionFilterEntry `json:"podEvictionFilters,omitempty"`
}

// PodEvictionFilterEntry selects pods.
type PodEvictionFilterEntry struct {
	// ByResourceNameRegex is a regular expression. It selects pods that request or limit a resource in whose name it is found.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ByResourceNameRegex string `json:"byResourceNameRegex,omitempty"`
}

// NodeMaintenanceStatus is how far a maintenance is.
type NodeMaintenanceStatus struct {
	// Conditions are Ready, whose reason is the phase, and RequestorFailed, which the requestor sets.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// WaitForCompletion are the pods that are waited for, as namespace/name, the first 100.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	WaitForCompletion []string `json:"waitForCompletion,omitempty"`
	// Drain is how far the drain is.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`
}

// DrainStatus is how far a drain is.
type DrainStatus struct {
	// TotalPods is how many pods were on the node when the drain began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TotalPods int32 `json:"totalPods"`
	// EvictionPods is how many of them were to be evicted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	EvictionPods int32 `json:"evictionPods"`
	// DrainProgress is how many percent of these are gone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	DrainProgress int32 `json:"drainProgress"`
	// WaitForEviction are the pods that are still to go, as namespace/name, the first 100.
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

// MaintenanceOperatorConfig limits the maintenances of a cluster. The one of the name "default" in the namespace
// "kube-system" counts. It is put back to what the Shoot says.
type MaintenanceOperatorConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec are the limits.
	// +optional
	Spec MaintenanceOperatorConfigSpec `json:"spec,omitempty"`
	// Status is whether they count.
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
	// is rounded up. 0 stands for no limit. It defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 2147483647)",message="must be an integer of at least 0, or a percentage"
	MaxParallelOperations *intstr.IntOrString `json:"maxParallelOperations,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable, because of a maintenance or not, for a further one to become so: a
	// number, or a percentage of all nodes, which is rounded down but not to 0. There is no limit unless it is set.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (self >= 0 && self <= 2147483647)",message="must be an integer of at least 0, or a percentage"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// LogLevel is from which level on the controller of maintenances logs. It defaults to info.
	// +optional
	// +kubebuilder:default=info
	// +kubebuilder:validation:Enum=debug;info;error
	LogLevel LogLevel `json:"logLevel,omitempty"`
	// MaxNodeMaintenanceTimeSeconds is after how many seconds in phase Ready a NodeMaintenance is deleted. It defaults to
	// 3600.
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

// MaintenanceOperatorConfigStatus is whether the limits count.
type MaintenanceOperatorConfigStatus struct {
	// Conditions are Used: whether the limits count, and why they do not.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
