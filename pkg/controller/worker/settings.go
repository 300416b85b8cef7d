// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"slices"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/validation"
)

// Settings are what holds for a worker pool.
type Settings struct {
	// AutoPreserveFailedMax is how many failed machines of the pool are kept at a time without being asked for.
	AutoPreserveFailedMax int32
	// MachinePreserveTimeout is how long a machine is kept.
	MachinePreserveTimeout time.Duration
	// ForceDeletePodsWithVolumes says whether pods that use volumes are deleted by force from a node that does not answer
	// (P7).
	ForceDeletePodsWithVolumes bool
}

// SettingsFor returns what holds for a worker pool. Each field is looked up by itself: in the provider configuration for
// this pool, in the Shoot's own field as the Worker carries it, in the provider configuration for all pools, in the
// defaults, as far as these have it. A number from the latter is cut to what is valid for the pool.
func SettingsFor(pool *extensionsv1alpha1.WorkerPool, config *preservation.MachinePreservationConfig, defaults *configv1alpha1.ControllerConfiguration) Settings {
	var own preservation.MachineControllerManagerSettings
	if i := slices.IndexFunc(config.Workers, func(w preservation.Worker) bool { return w.Name == pool.Name }); i >= 0 {
		own = ptr.Deref(config.Workers[i].MachineControllerManager, own)
	}
	shoot := ptr.Deref(pool.MachineControllerManagerSettings, gardencorev1beta1.MachineControllerManagerSettings{})
	all := ptr.Deref(config.MachineControllerManager, preservation.MachineControllerManagerSettings{})

	limit := cmp.Or(own.AutoPreserveFailedMax, shoot.AutoPreserveFailedMachineMax, all.AutoPreserveFailedMax, defaults.AutoPreserveFailedMax)
	timeout := cmp.Or(own.MachinePreserveTimeout, shoot.MachinePreserveTimeout, all.MachinePreserveTimeout, defaults.MachinePreserveTimeout)
	return Settings{
		AutoPreserveFailedMax:      min(*limit, validation.PoolOfWorker(pool).Limit()),
		MachinePreserveTimeout:     timeout.Duration,
		ForceDeletePodsWithVolumes: ptr.Deref(cmp.Or(own.ForceDeletePodsWithVolumes, all.ForceDeletePodsWithVolumes), false),
	}
}
