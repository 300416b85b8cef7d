// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// ControllerConfiguration is the configuration of the extension: the defaults for worker pools for which a Shoot sets nothing,
// and settings that apply to all Shoots.
type ControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// AutoPreserveFailedMax is how many failed machines of a worker pool are auto-preserved at a time. In a smaller pool, as
	// many are auto-preserved as its Shoot owner could set. Defaults to 0.
	// +optional
	AutoPreserveFailedMax *int32 `json:"autoPreserveFailedMax,omitempty"`
	// MachinePreserveTimeout is how long a machine is preserved. Defaults to 72h.
	// +optional
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// MaxMachinePreserveTimeout is the longest time for which a machine is preserved, whatever a Shoot or a request sets. It
	// counts from when a request or the share first preserved the machine. The count starts again once the machine has been
	// healthy, not preserved and without a request `now` for its health timeout. Maintenances and power cycles have limits of
	// their own. Defaults to 336h.
	// +optional
	MaxMachinePreserveTimeout *metav1.Duration `json:"maxMachinePreserveTimeout,omitempty"`
	// MaxAutoPreserveFailed is the largest number of failed machines of a worker pool that are auto-preserved at a time,
	// whatever a Shoot sets. If it is not set, only the size of the pool limits the number.
	// +optional
	MaxAutoPreserveFailed *int32 `json:"maxAutoPreserveFailed,omitempty"`
	// MaxMachineHours is how many machine-hours in a calendar month (UTC) requests and the share preserve machines of a Shoot, all
	// its pools together. When they are used up, preserved machines are released, and no others are preserved until the month is
	// over. Maintenances, power cycles and validations do not count. At least 1. If it is not set, machine-hours are neither
	// counted nor limited.
	// +optional
	MaxMachineHours *int32 `json:"maxMachineHours,omitempty"`
	// MaxNodeMaintenanceOvertime is how much longer than the Shoot's maxNodeMaintenanceTime a NodeMaintenance keeps its node
	// if its requestor has failed, or if it is deleted and additional requestors have not released it. Then the maintenance is
	// ended. 0 means never. Defaults to 24h.
	// +optional
	MaxNodeMaintenanceOvertime *metav1.Duration `json:"maxNodeMaintenanceOvertime,omitempty"`
	// Injection says when the preservation controllers of running control planes are replaced after an upgrade of the
	// extension. Defaults to InWaves.
	// +optional
	Injection *Injection `json:"injection,omitempty"`
	// InjectionMaxFailed is how many control planes whose preservation controller was replaced may fail to become ready within
	// five minutes before the replacement stops. The lower of this limit and InjectionMaxFailedPercent applies. Defaults to 3.
	// +optional
	InjectionMaxFailed *int32 `json:"injectionMaxFailed,omitempty"`
	// InjectionMaxFailedPercent is the same limit as a percentage of all control planes whose preservation controller was
	// replaced, rounded down. Defaults to 10.
	// +optional
	InjectionMaxFailedPercent *int32 `json:"injectionMaxFailedPercent,omitempty"`
	// Hosts are the hosts of the machines of the landscape, if these can be power-cycled. If it is not set, no host is
	// power-cycled, whatever a Shoot sets. If it is set, maxMachinePreserveTimeout must be at least 3h plus maxServicing,
	// because a power cycle may take that long.
	// +optional
	Hosts *Hosts `json:"hosts,omitempty"`
	// Evidence says whether Shoots may have evidence of failed machines stored in the seed and the shoot. If it is not set,
	// nothing is stored, whatever a Shoot sets.
	// +optional
	Evidence *Evidence `json:"evidence,omitempty"`
	// Failures says whether failures of machines are recorded in the shoots as MachineFailures. If it is not set, they are
	// recorded.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
	// Storm says when too many machines of a shoot fail at the same time. During such a storm no machine is auto-preserved
	// and no machine is power-cycled automatically. If it is not set, machines are not counted.
	// +optional
	Storm *Storm `json:"storm,omitempty"`
}

// Storm says when too many machines of a shoot fail at the same time: when more of them are failing than the lower of the
// limits that are set. At least one of them must be set.
type Storm struct {
	// MaxFailing is how many machines of a shoot may fail at the same time. At least 1. If it is not set, only
	// maxFailingPercent counts.
	// +optional
	MaxFailing *int32 `json:"maxFailing,omitempty"`
	// MaxFailingPercent is the same limit as a percentage of the machines of the shoot that have joined and are not being deleted,
	// rounded up. Between 1 and 100. If it is not set, only maxFailing counts.
	// +optional
	MaxFailingPercent *int32 `json:"maxFailingPercent,omitempty"`
	// SettlingTime is how long a machine still counts as failing after its Node has become Ready again. Between 10s and 6h.
	// Defaults to 10m.
	// +optional
	SettlingTime *metav1.Duration `json:"settlingTime,omitempty"`
}

// Failures configures the failure history of Shoots.
type Failures struct {
	// Enabled says whether failures are recorded, unless a Shoot disables it. If it is set to false, all MachineFailures of
	// all shoots are deleted.
	Enabled bool `json:"enabled"`
}

// IsEnabled says that Shoots may have failures told of; nil says so, too.
func (f *Failures) IsEnabled() bool { return f == nil || f.Enabled }

// Evidence configures the evidence of failed machines that Shoots may have stored.
type Evidence struct {
	// Enabled says whether Shoots may have evidence stored. Before you remove evidence from the configuration, set this to
	// false and wait until all Shoots have been reconciled: that deletes stored evidence.
	Enabled bool `json:"enabled"`
	// Budget is how many bytes of evidence a control plane stores at most. To stay within it, the evidence of each machine
	// becomes smaller, and then evidence of fewer machines is stored. At least 1Mi. Defaults to 8Mi.
	// +optional
	Budget *resource.Quantity `json:"budget,omitempty"`
	// SeedBudget is how many bytes of evidence all control planes of a seed store at most. When it is used up, the control
	// planes with the most evidence store less. At least budget, and at least 16Mi. Defaults to 512Mi.
	// +optional
	SeedBudget *resource.Quantity `json:"seedBudget,omitempty"`
	// MaxRetention is the longest time for which evidence is stored after its machine is gone, whatever a Shoot sets. Between
	// 1h and 720h. Defaults to 720h.
	// +optional
	MaxRetention *metav1.Duration `json:"maxRetention,omitempty"`
}

// IsEnabled says that Shoots may have evidence stored; nil allows none.
func (e *Evidence) IsEnabled() bool { return e != nil && e.Enabled }

// Hosts configures the hosts of machines, and what may be done with them.
type Hosts struct {
	// Disabled says that no host is power-cycled any more, and that power cycles in progress are ended. Before you remove
	// hosts from the configuration, or change their kind or cluster, set this to true and wait until all Shoots have been
	// reconciled.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Kind is the kind of the host objects.
	Kind HostKind `json:"kind"`
	// KubeconfigSecretName is the name of a Secret in each control-plane namespace. Its data entry kubeconfig leads to the
	// cluster with the hosts, and must give access to the hosts of that shoot only. If it is not set, the hosts are in the
	// control-plane namespaces. It is required for ServerClaims, because their Servers are in no namespace: in the seed, each
	// shoot would see all Servers.
	// +optional
	KubeconfigSecretName string `json:"kubeconfigSecretName,omitempty"`
	// Automatic says whether Shoots may have failed machines power-cycled automatically. Even if it is false, a Shoot may have
	// it reported which machines would be power-cycled, without touching a host. Defaults to false.
	// +optional
	Automatic bool `json:"automatic,omitempty"`
	// ShootRequests says whether users who may annotate the nodes of a shoot may request power cycles. Defaults to false.
	// +optional
	ShootRequests bool `json:"shootRequests,omitempty"`
	// MaxPerShoot is how many machines of a shoot are power-cycled at a time, whatever its pools allow. At least 1. If it is
	// not set, there is no limit.
	// +optional
	MaxPerShoot *int32 `json:"maxPerShoot,omitempty"`
	// MaxPerSeed is how many machines of all shoots of a seed are power-cycled at a time. At least 1. If it is not set, there
	// is no limit.
	// +optional
	MaxPerSeed *int32 `json:"maxPerSeed,omitempty"`
	// MaxServicing is how long the deadlines of a power cycle are paused, and its machine is preserved, while the controller
	// of the host works on it, for example to update its firmware. Between 10m and 24h. Defaults to 2h.
	// +optional
	MaxServicing *metav1.Duration `json:"maxServicing,omitempty"`
	// PXEBootKeepsDisks declares that a Server that boots by PXE keeps the content of its disks and comes back with it. This
	// is required for ServerClaims, because metal-operator boots Servers by PXE that it finds off.
	// +optional
	PXEBootKeepsDisks bool `json:"pxeBootKeepsDisks,omitempty"`
	// PowerOffEnforced declares that metal-operator runs with --enforce-power-off. Without that flag, a Server whose kernel
	// hangs is not powered off. This is required for ServerClaims.
	// +optional
	PowerOffEnforced bool `json:"powerOffEnforced,omitempty"`
	// Quarantine puts hosts on which machines fail again and again into quarantine, so that no other machine gets them. This
	// is supported for ServerClaims only. If it is not set, no host is put into quarantine.
	// +optional
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Quarantine says when a host is put into quarantine.
type Quarantine struct {
	// Failures is how many failures of machines on the host within the period put it into quarantine. At least 2. Defaults to
	// 3.
	// +optional
	Failures *int32 `json:"failures,omitempty"`
	// Period is the time within which failures are counted. Between 24h and 720h. Defaults to 168h.
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`
}

// HostKind is the kind of the host objects.
// +kubebuilder:validation:Enum=BareMetalHost;ServerClaim
type HostKind string

const (
	// HostKindBareMetalHost is the kind of metal3.
	HostKindBareMetalHost HostKind = "BareMetalHost"
	// HostKindServerClaim is the kind of ironcore metal-operator.
	HostKindServerClaim HostKind = "ServerClaim"
)

// Injection says when preservation controllers are replaced.
type Injection string

const (
	// InjectionInWaves replaces one preservation controller, then five, then up to 30 a minute, as long as the ones before
	// become ready.
	InjectionInWaves Injection = "InWaves"
	// InjectionWithNextReconciliation replaces each preservation controller with the next reconciliation of its Shoot.
	InjectionWithNextReconciliation Injection = "WithNextReconciliation"
)
