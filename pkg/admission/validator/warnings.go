// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	extensionsworkercontroller "github.com/gardener/gardener/extensions/pkg/controller/worker"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/validation"
)

// warnings returns what the owner of a Shoot should know about a valid configuration. Each names the field, its value where
// there is one, and what it does not do.
func warnings(workers []gardencorev1beta1.Worker, config *preservation.MachinePreservationConfig, extensionPath *field.Path) admission.Warnings {
	w := &collector{
		workers:     workers,
		pools:       validation.PoolsOfShoot(workers),
		config:      config,
		configPath:  extensionPath.Child("providerConfig"),
		workersPath: field.NewPath("spec", "provider", "workers"),
	}
	if len(workers) == 0 {
		w.add(extensionPath, "the Shoot has no workers, no machine is preserved")
	}
	for i := range config.Workers {
		w.ofWorker(i)
	}
	w.ofForce(config.MachineControllerManager, settingsPath(w.configPath))
	for i := range workers {
		w.ofZones(i)
	}
	return w.warnings
}

type collector struct {
	workers                 []gardencorev1beta1.Worker
	pools                   []validation.Pool
	config                  *preservation.MachinePreservationConfig
	configPath, workersPath *field.Path

	warnings admission.Warnings
}

func (w *collector) add(fldPath *field.Path, format string, arguments ...any) {
	w.warnings = append(w.warnings, fldPath.String()+": "+fmt.Sprintf(format, arguments...))
}

// ofWorker warns of what is set for one worker pool.
func (w *collector) ofWorker(index int) {
	settings := w.config.Workers[index].MachineControllerManager
	if settings == nil {
		return
	}
	poolIndex := slices.IndexFunc(w.pools, func(p validation.Pool) bool { return p.Name == w.config.Workers[index].Name })
	own, ownPath := settingsOf(&w.workers[poolIndex]), settingsPath(w.workersPath.Index(poolIndex))
	fldPath := settingsPath(w.configPath.Child("workers").Index(index))

	const wins = "%v wins over %v in %s"
	if ours, theirs := settings.AutoPreserveFailedMax, own.AutoPreserveFailedMachineMax; ours != nil && theirs != nil {
		w.add(fldPath.Child("autoPreserveFailedMax"), wins, *ours, *theirs, ownPath.Child("autoPreserveFailedMachineMax"))
	}
	if ours, theirs := settings.MachinePreserveTimeout, own.MachinePreserveTimeout; ours != nil && theirs != nil {
		w.add(fldPath.Child("machinePreserveTimeout"), wins, ours.Duration, theirs.Duration, ownPath.Child("machinePreserveTimeout"))
	}

	// autoPreserveFailedMax can only be 0 there, and must be set where the one for all pools is greater.
	if pool := w.pools[poolIndex]; pool.Limit() == 0 && (settings.MachinePreserveTimeout != nil || settings.ForceDeletePodsWithVolumes != nil) {
		if pool.Maximum == 0 {
			w.add(fldPath, "has no effect while the maximum of worker pool %q is 0", pool.Name)
		} else {
			w.add(fldPath, "counts only for machines that are asked for: worker pool %q keeps none by itself, because its only machine may run system components", pool.Name)
		}
	}

	w.ofForce(settings, fldPath)
}

func (w *collector) ofForce(settings *preservation.MachineControllerManagerSettings, fldPath *field.Path) {
	if settings != nil && ptr.Deref(settings.ForceDeletePodsWithVolumes, false) {
		w.add(fldPath.Child("forceDeletePodsWithVolumes"), "if the machine of a node that does not answer is alive, pods run twice with the same volume and can destroy its data")
	}
}

// ofZones warns if zones of a worker pool get nothing of the number that holds for it.
func (w *collector) ofZones(index int) {
	number, fldPath := w.numberFor(index)
	zones := w.workers[index].Zones
	if ptr.Deref(number, 0) == 0 {
		return
	}

	var shares, without []string
	for i, zone := range zones {
		share := extensionsworkercontroller.DistributeOverZones(int32(i), *number, int32(len(zones))) // #nosec G115 -- a pool has a handful of zones
		shares = append(shares, strconv.Itoa(int(share)))
		if share == 0 {
			without = append(without, strconv.Quote(zone))
		}
	}
	if len(without) > 0 {
		w.add(fldPath, "%d is distributed over the zones of worker pool %q as %s: nothing is left for %s",
			*number, w.workers[index].Name, strings.Join(shares, ", "), strings.Join(without, ", "))
	}
}

// numberFor returns how many failed machines of a worker pool are kept and which field says so, nil if none of the Shoot's
// does.
func (w *collector) numberFor(index int) (*int32, *field.Path) {
	for i, worker := range w.config.Workers {
		if settings := worker.MachineControllerManager; worker.Name == w.workers[index].Name && settings != nil && settings.AutoPreserveFailedMax != nil {
			return settings.AutoPreserveFailedMax, settingsPath(w.configPath.Child("workers").Index(i)).Child("autoPreserveFailedMax")
		}
	}
	if number := settingsOf(&w.workers[index]).AutoPreserveFailedMachineMax; number != nil {
		return number, settingsPath(w.workersPath.Index(index)).Child("autoPreserveFailedMachineMax")
	}
	if settings := w.config.MachineControllerManager; settings != nil {
		return settings.AutoPreserveFailedMax, settingsPath(w.configPath).Child("autoPreserveFailedMax")
	}
	return nil, nil
}

// settingsOf returns what the Shoot's own fields set for a worker pool.
func settingsOf(worker *gardencorev1beta1.Worker) gardencorev1beta1.MachineControllerManagerSettings {
	return ptr.Deref(worker.MachineControllerManagerSettings, gardencorev1beta1.MachineControllerManagerSettings{})
}

// settingsPath returns the path of the settings below that of what has them. It is the same in the configuration and in the
// Shoot.
func settingsPath(fldPath *field.Path) *field.Path {
	return fldPath.Child("machineControllerManager")
}
