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
	// MaxMachinePreserveTimeout is how long a machine is kept at most, counted from when people or the share began to keep it,
	// whatever a Shoot sets and whoever asks. The count begins anew once the machine has been healthy, kept by nobody and
	// without a request now, for its health timeout. Maintenances and power cycles have bounds of their own. It defaults to 336h.
	// +optional
	MaxMachinePreserveTimeout *metav1.Duration `json:"maxMachinePreserveTimeout,omitempty"`
	// MaxAutoPreserveFailed is how many failed machines of a worker pool are kept at a time without being asked for at most,
	// whatever a Shoot sets. There is no limit but the size of the pool unless this is set.
	// +optional
	MaxAutoPreserveFailed *int32 `json:"maxAutoPreserveFailed,omitempty"`
	// MaxNodeMaintenanceOvertime is for how much longer than the Shoot's maxNodeMaintenanceTime a NodeMaintenance keeps its node
	// if its requestor has failed, or if it is deleted and additional requestors do not let go of it. Then it is ended. It
	// defaults to 24h. 0 stands for never.
	// +optional
	MaxNodeMaintenanceOvertime *metav1.Duration `json:"maxNodeMaintenanceOvertime,omitempty"`
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
	// Hosts are what the machines of the landscape run on, if their power can be switched. Nothing is power-cycled unless this
	// is set, whatever a Shoot sets. maxMachinePreserveTimeout must be at least 3h and maxServicing then: a power cycle may take
	// so long.
	// +optional
	Hosts *Hosts `json:"hosts,omitempty"`
	// Evidence is whether Shoots may have evidence of failed machines stored in the seed and the shoot. Nothing is stored unless this is set,
	// whatever a Shoot sets.
	// +optional
	Evidence *Evidence `json:"evidence,omitempty"`
	// Failures is whether Shoots have failures of machines told of by MachineFailures. They have unless this is set.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
}

// Failures is whether Shoots have failures of machines told of.
type Failures struct {
	// Enabled says that they have, unless they set that they do not want to. With false, all MachineFailures of all shoots are deleted.
	Enabled bool `json:"enabled"`
}

// IsEnabled says that Shoots may have failures told of; nil says so, too.
func (f *Failures) IsEnabled() bool { return f == nil || f.Enabled }

// Evidence is what Shoots may have stored of failed machines.
type Evidence struct {
	// Enabled allows Shoots to have evidence stored. Set it to false, and wait for all Shoots to be reconciled, before evidence is
	// taken away: that deletes what was stored.
	Enabled bool `json:"enabled"`
	// Budget is how many bytes of evidence a control plane has at most. What is stored becomes smaller, and then less, within it. At
	// least 1Mi. It defaults to 8Mi.
	// +optional
	Budget *resource.Quantity `json:"budget,omitempty"`
	// SeedBudget is how many bytes all control planes of a seed have. When they use it up, those that have most keep less. At least
	// budget, and 16Mi. It defaults to 512Mi.
	// +optional
	SeedBudget *resource.Quantity `json:"seedBudget,omitempty"`
	// MaxRetention is for how long evidence is kept at most after its machine is gone, whatever a Shoot sets. Between 1h and 720h. It
	// defaults to 720h.
	// +optional
	MaxRetention *metav1.Duration `json:"maxRetention,omitempty"`
}

// IsEnabled says that Shoots may have evidence stored; nil allows none.
func (e *Evidence) IsEnabled() bool { return e != nil && e.Enabled }

// Hosts are what machines run on, and what may be done with them.
type Hosts struct {
	// Disabled says that nothing is power-cycled any more, and that what is in progress is ended. Set it, and wait for all Shoots
	// to be reconciled, before hosts are taken away, or are of another kind, or elsewhere.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Kind is the kind of the objects that hosts are.
	Kind HostKind `json:"kind"`
	// KubeconfigSecretName is the name of a Secret in each control-plane namespace. Its data entry kubeconfig leads to the cluster
	// that the hosts are in, and must reach those of that shoot only. Without it, hosts are in the control-plane namespaces
	// themselves. ServerClaims need it, since the Servers they are bound to are in no namespace: in the seed, each shoot would
	// see all of them.
	// +optional
	KubeconfigSecretName string `json:"kubeconfigSecretName,omitempty"`
	// Automatic allows Shoots to have failed machines power-cycled without being asked for. It defaults to false. A Shoot may be
	// told which machines would be, all the same: nothing is touched for that.
	// +optional
	Automatic bool `json:"automatic,omitempty"`
	// ShootRequests allows those who may annotate the nodes of a shoot to ask for power cycles. It defaults to false.
	// +optional
	ShootRequests bool `json:"shootRequests,omitempty"`
	// MaxPerShoot is how many machines of a shoot are power-cycled at a time, whatever its pools allow. At least 1. There is no
	// limit unless this is set.
	// +optional
	MaxPerShoot *int32 `json:"maxPerShoot,omitempty"`
	// MaxPerSeed is how many machines of all shoots of a seed are power-cycled at a time. At least 1. There is no limit unless
	// this is set.
	// +optional
	MaxPerSeed *int32 `json:"maxPerSeed,omitempty"`
	// MaxServicing is for how long the deadlines of a power cycle stand still, and its machine is kept, while the host's own
	// controller works on it, for a firmware update for example. Between 10m and 24h. It defaults to 2h.
	// +optional
	MaxServicing *metav1.Duration `json:"maxServicing,omitempty"`
	// PXEBootKeepsDisks declares that a Server that boots by PXE keeps what is on its disks, and comes back with it:
	// metal-operator boots one so that it finds off. ServerClaims need that.
	// +optional
	PXEBootKeepsDisks bool `json:"pxeBootKeepsDisks,omitempty"`
	// PowerOffEnforced declares that metal-operator runs with --enforce-power-off. Otherwise a Server stays on whose kernel
	// hangs. ServerClaims need that.
	// +optional
	PowerOffEnforced bool `json:"powerOffEnforced,omitempty"`
	// Quarantine has no machine get a host any more on which machines fail again and again. Only ServerClaims have hosts that can be kept
	// from machines. None is unless this is set.
	// +optional
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Quarantine is when no machine gets a host any more.
type Quarantine struct {
	// Failures is how many times machines fail on the host within the period. At least 2. It defaults to 3.
	// +optional
	Failures *int32 `json:"failures,omitempty"`
	// Period is the time within which they do. Between 24h and 720h. It defaults to 168h.
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`
}

// HostKind is the kind of the objects that hosts are.
// +kubebuilder:validation:Enum=BareMetalHost;ServerClaim
type HostKind string

const (
	// HostKindBareMetalHost is that of metal3.
	HostKindBareMetalHost HostKind = "BareMetalHost"
	// HostKindServerClaim is that of ironcore's metal-operator.
	HostKindServerClaim HostKind = "ServerClaim"
)

// Injection is when preservation controllers are replaced.
type Injection string

const (
	// InjectionInWaves replaces one, then five, then up to 30 a minute, as long as those before get ready.
	InjectionInWaves Injection = "InWaves"
	// InjectionWithNextReconciliation replaces each with the next reconciliation of its Shoot.
	InjectionWithNextReconciliation Injection = "WithNextReconciliation"
)
