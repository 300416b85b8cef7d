// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Source says who sets a value.
type Source string

// The sources in the order of precedence.
const (
	// SourcePool is providerConfig.workers[], which sets something for one pool.
	SourcePool Source = "pool"
	// SourceShoot is the field of the pool in the Shoot, which Gardener has since 1.147.
	SourceShoot Source = "shoot"
	// SourceAllPools is providerConfig itself, which sets something for all pools.
	SourceAllPools Source = "all-pools"
	// SourceDefaults is the extension's component configuration.
	SourceDefaults Source = "defaults"
)

// Value is what a source sets for a field.
type Value[T any] struct {
	// Value is what is set.
	Value T
	// Source says who sets it.
	Source Source
	// Path is the field that sets it, nil for a default.
	Path *field.Path
}

// Ranked are the values that are set for a field, in the order of precedence.
type Ranked[T any] []Value[T]

// Effective returns the value that counts. If none is set, it is zero and has no source.
func (r Ranked[T]) Effective() Value[T] {
	if len(r) == 0 {
		return Value[T]{}
	}
	return r[0]
}

// Values are what is set for a worker pool. Each field is ranked separately.
type Values struct {
	// AutoPreserveFailedMax is how many failed machines of the pool may be auto-preserved at a time.
	AutoPreserveFailedMax Ranked[int32]
	// MachinePreserveTimeout is how long a machine is preserved.
	MachinePreserveTimeout Ranked[time.Duration]
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer
	// (P7).
	ForceDeletePodsWithVolumes Ranked[bool]
	// PreferNewFailures says that machines that fail for a new reason get places before others (P15).
	PreferNewFailures Ranked[bool]
	// Distribution says who may use the places of the pool (P20).
	Distribution Ranked[preservation.Distribution]
}

// ValuesFor returns what is set for a worker pool, valid or not, and which sources set it. The paths of the pool in the Shoot and of the
// provider configuration may be nil if the caller names no fields. The defaults may be nil if they are not known.
func ValuesFor(pool Pool, poolPath *field.Path, config *preservation.MachinePreservationConfig, configPath *field.Path, defaults *configv1alpha1.ControllerConfiguration) Values {
	const child = "machineControllerManager"
	var v Values
	for i, worker := range config.Workers {
		if worker.Name == pool.Name {
			v.add(SourcePool, worker.MachineControllerManager, configPath.Child("workers").Index(i).Child(child))
		}
	}
	v.add(SourceShoot, &preservation.MachineControllerManagerSettings{
		AutoPreserveFailedMax:  pool.AutoPreserveFailedMax,
		MachinePreserveTimeout: pool.MachinePreserveTimeout,
	}, poolPath.Child(child))
	v.add(SourceAllPools, config.MachineControllerManager, configPath.Child(child))
	if defaults != nil {
		v.add(SourceDefaults, &preservation.MachineControllerManagerSettings{
			AutoPreserveFailedMax:  defaults.AutoPreserveFailedMax,
			MachinePreserveTimeout: defaults.MachinePreserveTimeout,
		}, nil)
	}
	return v
}

// add ranks what a source sets behind the values that are there.
func (v *Values) add(source Source, settings *preservation.MachineControllerManagerSettings, fldPath *field.Path) {
	if settings == nil {
		return
	}
	number := "autoPreserveFailedMax"
	if source == SourceShoot {
		number = "autoPreserveFailedMachineMax"
	}
	v.AutoPreserveFailedMax = rank(v.AutoPreserveFailedMax, settings.AutoPreserveFailedMax, source, fldPath, number)
	if timeout := settings.MachinePreserveTimeout; timeout != nil {
		v.MachinePreserveTimeout = rank(v.MachinePreserveTimeout, &timeout.Duration, source, fldPath, "machinePreserveTimeout")
	}
	v.ForceDeletePodsWithVolumes = rank(v.ForceDeletePodsWithVolumes, settings.ForceDeletePodsWithVolumes, source, fldPath, "forceDeletePodsWithVolumes")
	v.PreferNewFailures = rank(v.PreferNewFailures, settings.PreferNewFailures, source, fldPath, "preferNewFailures")
	v.Distribution = rank(v.Distribution, settings.Distribution, source, fldPath, "distribution")
}

func rank[T any](ranked Ranked[T], value *T, source Source, fldPath *field.Path, name string) Ranked[T] {
	if value == nil {
		return ranked
	}
	if source != SourceDefaults {
		fldPath = fldPath.Child(name)
	}
	return append(ranked, Value[T]{Value: *value, Source: source, Path: fldPath})
}

// Settings are what applies to a worker pool, or to one of its MachineDeployments. Only the numbers differ between the pool and its
// MachineDeployments, and not even these if the places are shared.
type Settings struct {
	// AutoPreserveFailedMax is how many failed machines may be auto-preserved at a time. For a MachineDeployment, it is the share of
	// the pool's number, or all of it: see SharedIn.
	AutoPreserveFailedMax int32
	// MachinePreserveTimeout is how long a machine is preserved.
	MachinePreserveTimeout time.Duration
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer
	// (P7).
	ForceDeletePodsWithVolumes bool
	// PreferNewFailures says that machines that fail for a new reason get places before others (P15).
	PreferNewFailures bool
	// SharedIn is the name of the pool if all its MachineDeployments use the same places: then the number of each is that of the pool
	// (P20). It is empty if each has its own share.
	SharedIn string
	// PowerCycle is how hosts are powered off and on again, with defaults; nil if they are not.
	PowerCycle *v1alpha1.PowerCycle
	// Validation is what proves that a machine works that is back, with defaults; nil if no proof is needed (V1).
	Validation *v1alpha1.Validation
	// Maximum is how many machines the cluster-autoscaler lets a MachineDeployment have at most, 0 where it adds and removes none. It is
	// not known for the pool as a whole (P2).
	Maximum int32
}

// SettingsFor returns what applies to a worker pool: the values that count, and false and 0 if nothing is set. It limits the number to
// what is valid for the pool, because a default is for pools of all sizes. It limits the number and the timeout (P13) to what operators
// allow. Hosts are power-cycled if the landscape has hosts, and automatically if operators allow it (X9).
func SettingsFor(pool Pool, config *preservation.MachinePreservationConfig, defaults *configv1alpha1.ControllerConfiguration) Settings {
	values := ValuesFor(pool, nil, config, nil, defaults)
	settings := Settings{
		AutoPreserveFailedMax:      min(values.AutoPreserveFailedMax.Effective().Value, pool.Limit()),
		MachinePreserveTimeout:     values.MachinePreserveTimeout.Effective().Value,
		ForceDeletePodsWithVolumes: values.ForceDeletePodsWithVolumes.Effective().Value,
		PreferNewFailures:          values.PreferNewFailures.Effective().Value,
	}
	if values.Distribution.Effective().Value == preservation.Distribution(v1alpha1.DistributionPool) {
		settings.SharedIn = pool.Name
	}
	if defaults != nil && defaults.MaxAutoPreserveFailed != nil {
		settings.AutoPreserveFailedMax = min(settings.AutoPreserveFailedMax, *defaults.MaxAutoPreserveFailed)
	}
	if defaults != nil && defaults.MaxMachinePreserveTimeout != nil {
		settings.MachinePreserveTimeout = min(settings.MachinePreserveTimeout, defaults.MaxMachinePreserveTimeout.Duration)
	}
	settings.Validation = validationFor(pool, config)
	if defaults != nil && defaults.Hosts != nil && !defaults.Hosts.Disabled {
		settings.PowerCycle = powerCycleFor(pool, config, defaults.Hosts)
	}
	return settings
}

func powerCycleFor(pool Pool, config *preservation.MachinePreservationConfig, hosts *configv1alpha1.Hosts) *v1alpha1.PowerCycle {
	i := slices.IndexFunc(config.Workers, func(w preservation.Worker) bool { return w.Name == pool.Name })
	if i < 0 || config.Workers[i].PowerCycle == nil {
		return nil
	}
	powerCycle := &v1alpha1.PowerCycle{}
	// It has nothing that could fail to be converted.
	utilruntime.Must(v1alpha1.Convert_preservation_PowerCycle_To_v1alpha1_PowerCycle(config.Workers[i].PowerCycle.DeepCopy(), powerCycle, nil))
	// Operators forbid power cycles. A dry run touches no host.
	if ptr.Deref(powerCycle.Automatic, "") == v1alpha1.AutomaticTrue && !hosts.Automatic {
		powerCycle.Automatic = new(v1alpha1.AutomaticFalse)
	}
	return powerCycle
}

func validationFor(pool Pool, config *preservation.MachinePreservationConfig) *v1alpha1.Validation {
	i := slices.IndexFunc(config.Workers, func(w preservation.Worker) bool { return w.Name == pool.Name })
	if i < 0 || config.Workers[i].Validation == nil {
		return nil
	}
	validation := &v1alpha1.Validation{}
	// It has nothing that could fail to be converted.
	utilruntime.Must(v1alpha1.Convert_preservation_Validation_To_v1alpha1_Validation(config.Workers[i].Validation.DeepCopy(), validation, nil))
	return validation
}
