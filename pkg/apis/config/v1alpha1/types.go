// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// ControllerConfiguration is the configuration of the extension: the defaults of worker pools for which a Shoot sets
// nothing, and what holds for all.
type ControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// AutoPreserveFailedMax is how many failed machines of a worker pool are kept at a time without being asked for. It
	// defaults to 0. A pool that is smaller keeps as many as a Shoot owner could set for it.
	// +optional
	AutoPreserveFailedMax *int32 `json:"autoPreserveFailedMax,omitempty"`
	// MachinePreserveTimeout is how long a machine is kept. It defaults to 72h.
	// +optional
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// MaxMachinePreserveTimeout is how long a machine is kept at most, counted from when it was kept for the first time,
	// whatever a Shoot sets and whoever asks. It defaults to 336h.
	// +optional
	MaxMachinePreserveTimeout *metav1.Duration `json:"maxMachinePreserveTimeout,omitempty"`
	// MaxAutoPreserveFailed is how many failed machines of a worker pool are kept at a time without being asked for at most,
	// whatever a Shoot sets. There is no limit but the size of the pool unless this is set.
	// +optional
	MaxAutoPreserveFailed *int32 `json:"maxAutoPreserveFailed,omitempty"`
	// Injection is when the preservation controllers of running control planes are replaced after an upgrade of the
	// extension. It defaults to InWaves.
	// +optional
	Injection *Injection `json:"injection,omitempty"`
	// InjectionMaxFailed is how many of the control planes whose preservation controller was replaced may not get ready
	// within five minutes until no more follow. It defaults to 3. What this and InjectionMaxFailedPercent allow, whichever
	// is less, counts.
	// +optional
	InjectionMaxFailed *int32 `json:"injectionMaxFailed,omitempty"`
	// InjectionMaxFailedPercent is the same as a share of all control planes whose preservation controller was replaced,
	// rounded down. It defaults to 10.
	// +optional
	InjectionMaxFailedPercent *int32 `json:"injectionMaxFailedPercent,omitempty"`
}

// Injection is when preservation controllers are replaced.
type Injection string

const (
	// InjectionInWaves replaces one, then five, then up to 30 a minute, as long as those before get ready.
	InjectionInWaves Injection = "InWaves"
	// InjectionWithNextReconciliation replaces each with the next reconciliation of its Shoot.
	InjectionWithNextReconciliation Injection = "WithNextReconciliation"
)
