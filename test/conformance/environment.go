// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
)

// Fault is what befalls a machine.
type Fault string

// The faults that scenarios need.
const (
	// NoFault lets the machine recover.
	NoFault Fault = ""
	// KubeletDead makes the machine's kubelet fall silent. Where the environment cannot do that, NodeCondition takes its
	// place.
	KubeletDead Fault = "kubelet-dead"
	// NodeCondition makes the machine's node report a condition that machine-controller-manager heeds, while its kubelet
	// is well. It needs nothing of the environment.
	NodeCondition Fault = "node-condition"
	// NeverJoins keeps a machine from getting a node.
	NeverJoins Fault = "never-joins"
	// KernelHang makes all of a machine stand still until it has no power.
	KernelHang Fault = "kernel-hang"
)

// HostFault is what a host does instead of what it is asked for.
type HostFault string

// The faults of hosts that scenarios need.
const (
	// NoHostFault lets a host do what it is asked for.
	NoHostFault HostFault = ""
	// NeverOff keeps a host on.
	NeverOff HostFault = "never-off"
	// NeverOn keeps a host off as soon as it is.
	NeverOn HostFault = "never-on"
	// OldBootID lets a machine come back as if it had not been off.
	OldBootID HostFault = "old-boot-id"
	// LateReport makes a host report much later than it is switched.
	LateReport HostFault = "late-report"
	// Servicing has the host's own controller service it when it is off next, once and for some time in which it stays off.
	Servicing HostFault = "servicing"
	// PowerError lets a host neither switch off nor on, and report that as an error.
	PowerError HostFault = "power-error"
)

// Host is what a host tells of itself.
type Host struct {
	// On says that it reports that it is on, and Off that it is off; neither is said for certain in between.
	On, Off bool
	// Annotations are those of the object that power is asked for with.
	Annotations map[string]string
}

// Owned says that the host has a request of the sidecar's, and not only a history of such.
func (h *Host) Owned() bool {
	return host.OwnerOf(&metav1.ObjectMeta{Annotations: h.Annotations}) != nil
}

// Hosts are what machines run on.
type Hosts struct {
	// Of returns the host of a machine, nil if it is gone with the machine.
	Of func(ctx context.Context, machine *machinev1alpha1.Machine) (*Host, error)
	// Inject makes the host of a machine misbehave, or behave with NoHostFault.
	Inject func(ctx context.Context, machine *machinev1alpha1.Machine, fault HostFault) error
	// Annotate sets an annotation of the object that power is asked for with, and removes it for an empty value.
	Annotate func(ctx context.Context, machine *machinev1alpha1.Machine, key, value string) error
	// KeepOff lets somebody else keep the host of a machine off, by an annotation with the returned key, until the returned
	// function is called. It is optional.
	KeepOff func(ctx context.Context, machine *machinev1alpha1.Machine) (key string, undo func(ctx context.Context) error, err error)
}

// ShootScheme has the kinds that scenarios need in the shoot.
var ShootScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(kubernetesscheme.AddToScheme(scheme))
	utilruntime.Must(maintenancev1alpha1.AddToScheme(scheme))
	return scheme
}()

// Environment is a shoot to try the rules on. What it cannot do makes scenarios not applicable.
type Environment struct {
	// Seed and Shoot are clients that read from the API servers.
	Seed, Shoot client.WithWatch
	// Namespace is the shoot's control-plane namespace on the seed.
	Namespace string
	// Pools are the worker pools that the scenarios share; empty for all that the shoot has.
	Pools []string
	// Inject makes a machine fail by KubeletDead, or recover. It is optional.
	Inject func(ctx context.Context, machine *machinev1alpha1.Machine, fault Fault) error
	// InjectNext makes the next machine fail by NeverJoins whose MachineDeployment is the given one. Inject lets it
	// recover. It is optional.
	InjectNext func(ctx context.Context, machineDeployment string, fault Fault) error
	// CrashLoop makes the provider fail to tell about a machine that has a VM and no node, so that it is in phase
	// CrashLoopBackOff until its creation timeout, and until the returned function is called. It is optional.
	CrashLoop func(ctx context.Context, machine *machinev1alpha1.Machine) (undo func(ctx context.Context) error, err error)
	// RefuseEvictions answers each eviction of a pod in namespace default that has the label with 429 and a Retry-After of
	// hours, until the returned function is called. It is optional.
	RefuseEvictions func(ctx context.Context, key, value string) (undo func(ctx context.Context) error, err error)
	// ShootAway takes the shoot's API server away until the returned function is called. It is optional.
	ShootAway func() (back func() error, err error)
	// LimitStorm sets how many machines of the shoot may fail at the same time, and for how long they count when they are back, in the
	// component configuration, until the returned function is called. It is optional.
	LimitStorm func(ctx context.Context, maxFailing int32, settlingTime time.Duration) (undo func(ctx context.Context) error, err error)
	// LimitMachineHours sets how many machine-hours of a month requests and auto-preservation may use, in the component configuration; 0
	// for any number. It is optional.
	LimitMachineHours func(ctx context.Context, hours int32) error
	// Hosts are what the machines run on, which are to be in the component configuration, with all that it allows. They are
	// optional, and need Inject.
	Hosts *Hosts
	// KillSidecar ends the preservation controller as a crash does. It is optional.
	KillSidecar func(ctx context.Context) error
	// Plugin is kubectl preserve. It is optional, and needs Inject.
	Plugin *Plugin
	// Select says which scenarios are run; nil for all.
	Select func(Scenario) bool
}

func needsNeverJoins(e *Environment) string {
	if e.InjectNext == nil {
		return "machines cannot be kept from joining through the APIs alone"
	}
	return ""
}

func needsInject(e *Environment) string {
	if e.Inject == nil {
		return "machines can be made to fail for one reason only through the APIs alone"
	}
	return ""
}

func needsShootAway(e *Environment) string {
	if e.ShootAway == nil {
		return "the shoot's API server cannot be taken away through the APIs alone"
	}
	return ""
}

func needsStormLimits(e *Environment) string {
	if e.LimitStorm == nil || e.Inject == nil || e.InjectNext == nil {
		return "the component configuration cannot be changed through the APIs of a seed and a shoot alone"
	}
	return ""
}

func needsMachineHours(e *Environment) string {
	if e.LimitMachineHours == nil || e.KillSidecar == nil {
		return "the component configuration cannot be changed through the APIs of a seed and a shoot alone"
	}
	return ""
}

func needsCrashLoop(e *Environment) string {
	if e.CrashLoop == nil || e.InjectNext == nil {
		return "the provider cannot be made to fail through the APIs alone"
	}
	return ""
}

func needsRefuseEvictions(e *Environment) string {
	if e.RefuseEvictions == nil {
		return "evictions cannot be refused for hours through the APIs alone"
	}
	return ""
}

func needsNeverJoinsAndShootAway(e *Environment) string {
	return cmp.Or(needsNeverJoins(e), needsShootAway(e))
}

func needsHosts(e *Environment) string {
	if e.Hosts == nil || e.Inject == nil {
		return "hosts cannot be looked at, nor made to misbehave, through the APIs of a seed and a shoot alone"
	}
	return ""
}

func needsKeptOffHosts(e *Environment) string {
	if reason := cmp.Or(needsHosts(e), needsMaintenance(e)); reason != "" {
		return reason
	}
	if e.Hosts.KeepOff == nil {
		return "nobody else keeps hosts of this kind off with an annotation"
	}
	return ""
}

func needsMaintenanceAndNeverJoins(e *Environment) string {
	return cmp.Or(needsMaintenance(e), needsNeverJoins(e))
}

func needsStormLimitsAndHosts(e *Environment) string {
	return cmp.Or(needsStormLimits(e), needsHosts(e))
}
