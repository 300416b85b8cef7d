// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig/validation"
)

// check returns what is wrong with the JSON value of a field.
type check func(value any, fldPath *field.Path) field.ErrorList

func checkConfig(value any, fldPath *field.Path) field.ErrorList {
	version, kind := v1alpha1.SchemeGroupVersion.String(), "MachinePreservationConfig"
	allErrs := checkObject(value, fldPath, map[string]check{
		"apiVersion":               checkOneOf(version),
		"kind":                     checkOneOf(kind),
		"machineControllerManager": checkSettings,
		"workers":                  checkWorkers,
		"drainStrategies":          checkDrainStrategies,
		"nodeMaintenance":          checkNodeMaintenance,
		"evidence":                 checkEvidence,
	})
	if object, ok := value.(map[string]any); ok {
		if object["apiVersion"] == nil {
			allErrs = append(allErrs, field.Required(fldPath.Child("apiVersion"), fmt.Sprintf("must be %q", version)))
		}
		if object["kind"] == nil {
			allErrs = append(allErrs, field.Required(fldPath.Child("kind"), fmt.Sprintf("must be %q", kind)))
		}
	}
	return allErrs
}

func checkWorkers(value any, fldPath *field.Path) field.ErrorList {
	items, ok := value.([]any)
	if !ok {
		return invalid(value, fldPath, "must be a list")
	}

	var allErrs field.ErrorList
	for i, item := range items {
		if validation.Enough(allErrs) {
			break
		}
		allErrs = append(allErrs, checkObject(item, fldPath.Index(i), map[string]check{
			"name":                     checkString,
			"machineControllerManager": checkSettings,
			"powerCycle":               checkPowerCycle,
		})...)
	}
	return allErrs
}

func checkSettings(value any, fldPath *field.Path) field.ErrorList {
	return checkObject(value, fldPath, map[string]check{
		"autoPreserveFailedMax":      checkNumber,
		"machinePreserveTimeout":     checkDuration,
		"forceDeletePodsWithVolumes": checkBool,
	})
}

func checkPowerCycle(value any, fldPath *field.Path) field.ErrorList {
	return checkObject(value, fldPath, map[string]check{
		"automatic":          checkAutomatic,
		"fencing":            checkString,
		"maxAttempts":        checkNumber,
		"maxConcurrent":      checkNumber,
		"powerOffTimeout":    checkDuration,
		"powerOnTimeout":     checkDuration,
		"nodeStartupTimeout": checkDuration,
	})
}

func checkDrainStrategies(value any, fldPath *field.Path) field.ErrorList {
	return checkObject(value, fldPath, map[string]check{
		"disabled":                 checkBool,
		"timeout":                  checkDuration,
		"expectedDrainTime":        checkDuration,
		"pdbForceDrainTimeout":     checkDuration,
		"ignoredNamespacePatterns": checkStrings,
	})
}

func checkNodeMaintenance(value any, fldPath *field.Path) field.ErrorList {
	return checkObject(value, fldPath, map[string]check{
		"maxParallelOperations":  checkNumberOfNodes,
		"maxUnavailable":         checkNumberOfNodes,
		"maxNodeMaintenanceTime": checkDuration,
		"logLevel":               checkString,
		"maxHoldTime":            checkDuration,
		"namespaces":             checkStrings,
	})
}

func checkEvidence(value any, fldPath *field.Path) field.ErrorList {
	return checkObject(value, fldPath, map[string]check{
		"enabled":   checkBool,
		"retention": checkDuration,
	})
}

// checkObject checks the fields of an object. A null is as good as an absent field.
func checkObject(value any, fldPath *field.Path, known map[string]check) field.ErrorList {
	object, ok := value.(map[string]any)
	if !ok {
		return invalid(value, fldPath, "must be an object")
	}

	var allErrs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if validation.Enough(allErrs) {
			break
		}
		child := fldPath.Child(name)
		if checkField, ok := known[name]; !ok {
			valid := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			allErrs = append(allErrs, invalid(object[name], child, "unknown field, valid fields are "+valid)...)
		} else if object[name] != nil {
			allErrs = append(allErrs, checkField(object[name], child)...)
		}
	}
	return allErrs
}

func checkString(value any, fldPath *field.Path) field.ErrorList {
	if _, ok := value.(string); !ok {
		return invalid(value, fldPath, "must be a string")
	}
	return nil
}

func checkStrings(value any, fldPath *field.Path) field.ErrorList {
	items, ok := value.([]any)
	if !ok {
		return invalid(value, fldPath, "must be a list")
	}

	var allErrs field.ErrorList
	for i, item := range items {
		if validation.Enough(allErrs) {
			break
		}
		allErrs = append(allErrs, checkString(item, fldPath.Index(i))...)
	}
	return allErrs
}

func checkOneOf(valid ...string) check {
	return func(value any, fldPath *field.Path) field.ErrorList {
		if text, ok := value.(string); ok && !slices.Contains(valid, text) {
			return field.ErrorList{field.NotSupported(fldPath, text, valid)}
		}
		return checkString(value, fldPath)
	}
}

func checkNumber(value any, fldPath *field.Path) field.ErrorList {
	if number, ok := value.(float64); !ok || number != math.Trunc(number) || number < math.MinInt32 || number > math.MaxInt32 {
		return invalid(value, fldPath, fmt.Sprintf("must be a whole number between 0 and %d", math.MaxInt32))
	}
	return nil
}

// checkNumberOfNodes lets any string pass: which are percentages is said where numbers are validated.
func checkNumberOfNodes(value any, fldPath *field.Path) field.ErrorList {
	if _, ok := value.(string); ok || len(checkNumber(value, fldPath)) == 0 {
		return nil
	}
	return invalid(value, fldPath, fmt.Sprintf(`must be a whole number between 0 and %d, or a percentage from "0%%" to "100%%"`, math.MaxInt32))
}

func checkBool(value any, fldPath *field.Path) field.ErrorList {
	if _, ok := value.(bool); !ok {
		return invalid(value, fldPath, "must be true or false")
	}
	return nil
}

func checkAutomatic(value any, fldPath *field.Path) field.ErrorList {
	if _, ok := value.(bool); !ok && value != string(v1alpha1.AutomaticDryRun) {
		return invalid(value, fldPath, "must be "+v1alpha1.ValidAutomatic)
	}
	return nil
}

func checkDuration(value any, fldPath *field.Path) field.ErrorList {
	text, ok := value.(string)
	if ok {
		if _, err := time.ParseDuration(text); err == nil {
			return nil
		}
	}
	return invalid(value, fldPath, `must be a positive duration with units, for example "72h" or "90m"`)
}

// invalid shows the value as it was written, not as Go prints it.
func invalid(value any, fldPath *field.Path, detail string) field.ErrorList {
	if raw, err := json.Marshal(value); err == nil {
		value = json.RawMessage(raw)
	}
	return field.ErrorList{field.Invalid(fldPath, value, detail)}
}
