// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validation validates the provider configuration against the worker pools of a Shoot.
package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// MaxErrors is of how many errors somebody is told at a time.
const MaxErrors = 10

// Enough says whether there are more errors than somebody is told of, so that it is of no use to look for others.
func Enough(allErrs field.ErrorList) bool {
	return len(allErrs) > MaxErrors
}

// ValidateMachinePreservationConfig returns what is wrong with a provider configuration for the given worker pools, as far
// as there is not Enough. Each error names the field below fldPath, its value and what is valid.
//
// More workers than there are pools are never valid: one of them is a duplicate, or names no pool.
func ValidateMachinePreservationConfig(config *preservation.MachinePreservationConfig, pools []share.Pool, fldPath *field.Path) field.ErrorList {
	var (
		allErrs field.ErrorList
		byName  = make(map[string]*share.Pool, len(pools))
		names   = make([]string, 0, len(pools))
		seen    = sets.New[string]()
	)
	for i := range pools {
		byName[pools[i].Name] = &pools[i]
		names = append(names, pools[i].Name)
	}

	for i, worker := range config.Workers {
		if Enough(allErrs) {
			return allErrs
		}
		workerPath := fldPath.Child("workers").Index(i)
		namePath := workerPath.Child("name")

		pool := byName[worker.Name]
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
		case pool == nil:
			allErrs = append(allErrs, field.NotSupported(namePath, worker.Name, names))
		}
		seen.Insert(worker.Name)

		if settings := worker.MachineControllerManager; settings != nil {
			settingsPath := workerPath.Child("machineControllerManager")
			allErrs = append(allErrs, validateSettings(settings, settingsPath)...)
			if settings.AutoPreserveFailedMax != nil && pool != nil {
				allErrs = append(allErrs, validateLimit(*settings.AutoPreserveFailedMax, *pool, settingsPath)...)
			}
		}
	}

	if settings := config.MachineControllerManager; settings != nil {
		settingsPath := fldPath.Child("machineControllerManager")
		allErrs = append(allErrs, validateSettings(settings, settingsPath)...)
		for _, pool := range pools {
			if Enough(allErrs) {
				break
			}
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
	if timeout := settings.MachinePreserveTimeout; timeout != nil && timeout.Duration < v1alpha1.MinMachinePreserveTimeout {
		detail := fmt.Sprintf("must be at least %s", v1alpha1.MinMachinePreserveTimeout)
		allErrs = append(allErrs, field.Invalid(fldPath.Child("machinePreserveTimeout"), timeout.Duration.String(), detail))
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
