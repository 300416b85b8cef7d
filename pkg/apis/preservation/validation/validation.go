// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validation validates the provider configuration against the worker pools of a Shoot.
package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// ValidateMachinePreservationConfig returns what is wrong with a provider configuration for the given worker pools. Each
// error names the field below fldPath, its value and what is valid.
func ValidateMachinePreservationConfig(config *preservation.MachinePreservationConfig, pools []share.Pool, fldPath *field.Path) field.ErrorList {
	var (
		allErrs field.ErrorList
		names   = poolNames(pools)
		seen    = sets.New[string]()
	)

	for i, worker := range config.Workers {
		workerPath := fldPath.Child("workers").Index(i)
		namePath := workerPath.Child("name")

		index := slices.IndexFunc(pools, func(pool share.Pool) bool { return pool.Name == worker.Name })
		switch {
		case worker.Name == "":
			err := field.Required(namePath, "must be the name of a worker pool")
			allErrs = append(allErrs, err)
		case seen.Has(worker.Name):
			err := field.Duplicate(namePath, worker.Name)
			err.Detail = "each worker pool may be named once"
			allErrs = append(allErrs, err)
		case len(pools) == 0:
			allErrs = append(allErrs, field.Invalid(namePath, worker.Name, "the Shoot has no worker pools"))
		case index < 0:
			allErrs = append(allErrs, field.NotSupported(namePath, worker.Name, names))
		}
		seen.Insert(worker.Name)

		if settings := worker.MachineControllerManager; settings != nil {
			settingsPath := workerPath.Child("machineControllerManager")
			allErrs = append(allErrs, validateSettings(settings, settingsPath)...)
			if settings.AutoPreserveFailedMax != nil && index >= 0 {
				allErrs = append(allErrs, validateLimit(*settings.AutoPreserveFailedMax, pools[index], settingsPath)...)
			}
		}
	}

	if settings := config.MachineControllerManager; settings != nil {
		settingsPath := fldPath.Child("machineControllerManager")
		allErrs = append(allErrs, validateSettings(settings, settingsPath)...)
		for _, pool := range pools {
			if number := share.ValuesFor(pool, nil, config, fldPath, nil).AutoPreserveFailedMax.Effective(); number.Source == share.SourceAllPools {
				allErrs = append(allErrs, validateLimit(number.Value, pool, settingsPath)...)
			}
		}
	}

	return allErrs
}

// validateSettings validates what can be said without a worker pool.
func validateSettings(settings *preservation.MachineControllerManagerSettings, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if limit := settings.AutoPreserveFailedMax; limit != nil && *limit < 0 {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("autoPreserveFailedMax"), *limit, "must not be negative"))
	}
	if timeout := settings.MachinePreserveTimeout; timeout != nil && timeout.Duration <= 0 {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("machinePreserveTimeout"), timeout.Duration.String(), "must be longer than 0s"))
	}
	return allErrs
}

func validateLimit(value int32, pool share.Pool, fldPath *field.Path) field.ErrorList {
	if value <= pool.Limit() {
		return nil
	}
	reason := "its maximum"
	if pool.SystemComponents {
		reason = "one less than its maximum because system components may run there"
	}
	detail := fmt.Sprintf("must be at most %d for worker pool %q, which is %s", pool.Limit(), pool.Name, reason)
	return field.ErrorList{field.Invalid(fldPath.Child("autoPreserveFailedMax"), value, detail)}
}

func poolNames(pools []share.Pool) []string {
	names := make([]string, 0, len(pools))
	for _, pool := range pools {
		names = append(names, pool.Name)
	}
	return names
}
