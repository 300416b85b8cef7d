// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validation validates the provider configuration against the worker pools of a Shoot.
package validation

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// MaxErrors is how many errors are reported at a time.
const MaxErrors = 10

// MaxMaintenanceNamespaces is how many namespaces there may be in which maintenances count.
const MaxMaintenanceNamespaces = 32

// percentage matches what the definition of MaintenanceOperatorConfigs has as a pattern.
var percentage = regexp.MustCompile(`^(100|[1-9]?[0-9])%$`)

// Enough says whether there are more errors than are reported, so that it is no use to look for others.
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
			err.Detail = "each worker pool may be named only once"
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
		if worker.PowerCycle != nil {
			allErrs = append(allErrs, ValidatePowerCycle(worker.PowerCycle, workerPath.Child("powerCycle"))...)
		}
		if worker.Validation != nil {
			allErrs = append(allErrs, ValidateValidation(worker.Validation, workerPath.Child("validation"))...)
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

	if strategies := config.DrainStrategies; strategies != nil && !Enough(allErrs) {
		allErrs = append(allErrs, ValidateDrainStrategies(strategies, fldPath.Child("drainStrategies"))...)
	}
	if maintenance := config.NodeMaintenance; maintenance != nil && !Enough(allErrs) {
		allErrs = append(allErrs, ValidateNodeMaintenance(maintenance, fldPath.Child("nodeMaintenance"))...)
	}
	if evidence := config.Evidence; evidence != nil && !Enough(allErrs) {
		allErrs = append(allErrs, ValidateEvidence(evidence, fldPath.Child("evidence"))...)
	}
	return allErrs
}

// ValidateEvidence returns what is wrong with settings of evidence that have their defaults. Each error names the field below
// fldPath, its value and what is valid.
func ValidateEvidence(evidence *preservation.Evidence, fldPath *field.Path) field.ErrorList {
	if retention := evidence.Retention.Duration; retention < v1alpha1.MinEvidenceRetention || retention > v1alpha1.MaxEvidenceRetention {
		detail := fmt.Sprintf("must be between %s and %s", v1alpha1.MinEvidenceRetention, v1alpha1.MaxEvidenceRetention)
		return field.ErrorList{field.Invalid(fldPath.Child("retention"), retention.String(), detail)}
	}
	return nil
}

// ValidateDrainStrategies returns what is wrong with drain strategies that have their defaults. Each error names the field
// below fldPath, its value and what is valid.
func ValidateDrainStrategies(strategies *preservation.DrainStrategies, fldPath *field.Path) field.ErrorList {
	var (
		allErrs           field.ErrorList
		timeout, expected = strategies.Timeout.Duration, strategies.ExpectedDrainTime.Duration
		pdb               = strategies.PDBForceDrainTimeout.Duration
		invalid           = func(name string, value time.Duration, detail string) {
			allErrs = append(allErrs, field.Invalid(fldPath.Child(name), value.String(), detail))
		}
	)
	if timeout <= 0 {
		invalid("timeout", timeout, "must be greater than 0s")
	}
	if expected <= 0 {
		invalid("expectedDrainTime", expected, "must be greater than 0s")
	} else if timeout > 0 && expected > timeout {
		invalid("expectedDrainTime", expected, fmt.Sprintf("must be at most %s, the timeout", timeout))
	}
	if pdb < 0 {
		invalid("pdbForceDrainTimeout", pdb, "must not be negative")
	}
	for _, of := range []struct {
		name  string
		value time.Duration
	}{{"timeout", timeout}, {"expectedDrainTime", expected}, {"pdbForceDrainTimeout", pdb}} {
		if of.value > v1alpha1.MaxDrainStrategyTime {
			invalid(of.name, of.value, fmt.Sprintf("must be at most %s", v1alpha1.MaxDrainStrategyTime))
		}
	}

	patternsPath := fldPath.Child("ignoredNamespacePatterns")
	if count := len(strategies.IgnoredNamespacePatterns); count > drain.MaxNamespacePatterns {
		return append(allErrs, field.TooMany(patternsPath, count, drain.MaxNamespacePatterns))
	}
	for i, pattern := range strategies.IgnoredNamespacePatterns {
		if Enough(allErrs) {
			break
		}
		if _, err := drain.CompileNamespacePattern(pattern); err != nil {
			allErrs = append(allErrs, field.Invalid(patternsPath.Index(i), pattern, "must be a regular expression: "+err.Error()))
		}
	}
	return allErrs
}

// ValidateNodeMaintenance returns what is wrong with settings of node maintenance that have their defaults. Each error names
// the field below fldPath, its value and what is valid.
func ValidateNodeMaintenance(maintenance *preservation.NodeMaintenance, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	allErrs = append(allErrs, validateNumberOfNodes(maintenance.MaxParallelOperations, fldPath.Child("maxParallelOperations"))...)
	if limit := maintenance.MaxUnavailable; limit != nil {
		allErrs = append(allErrs, validateNumberOfNodes(limit, fldPath.Child("maxUnavailable"))...)
	}
	timePath, longest := fldPath.Child("maxNodeMaintenanceTime"), math.MaxInt32*time.Second
	if limit := maintenance.MaxNodeMaintenanceTime.Duration; limit < time.Second || limit > longest {
		allErrs = append(allErrs, field.Invalid(timePath, limit.String(), fmt.Sprintf("must be between 1s and %s", longest)))
	} else if limit%time.Second != 0 {
		allErrs = append(allErrs, field.Invalid(timePath, limit.String(), "must be a whole number of seconds"))
	}
	levels := []v1alpha1.LogLevel{v1alpha1.LogLevelDebug, v1alpha1.LogLevelInfo, v1alpha1.LogLevelError}
	if level := v1alpha1.LogLevel(*maintenance.LogLevel); !sets.New(levels...).Has(level) {
		allErrs = append(allErrs, field.NotSupported(fldPath.Child("logLevel"), level, levels))
	}
	if limit := maintenance.MaxHoldTime.Duration; limit < v1alpha1.MinMachinePreserveTimeout {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxHoldTime"), limit.String(), fmt.Sprintf("must be at least %s", v1alpha1.MinMachinePreserveTimeout)))
	}

	namespacesPath := fldPath.Child("namespaces")
	if count := len(maintenance.Namespaces); count > MaxMaintenanceNamespaces {
		return append(allErrs, field.TooMany(namespacesPath, count, MaxMaintenanceNamespaces))
	}
	seen := sets.New[string]()
	for i, namespace := range maintenance.Namespaces {
		if Enough(allErrs) {
			break
		}
		if problems := apivalidation.ValidateNamespaceName(namespace, false); len(problems) > 0 {
			allErrs = append(allErrs, field.Invalid(namespacesPath.Index(i), namespace, "must be the name of a namespace: "+strings.Join(problems, ", ")))
		} else if seen.Has(namespace) {
			err := field.Duplicate(namespacesPath.Index(i), namespace)
			err.Detail = "each namespace may be named only once"
			allErrs = append(allErrs, err)
		}
		seen.Insert(namespace)
	}
	return allErrs
}

func validateNumberOfNodes(number *intstr.IntOrString, fldPath *field.Path) field.ErrorList {
	if number.Type == intstr.Int && number.IntVal >= 0 {
		return nil
	}
	if number.Type == intstr.String && percentage.MatchString(number.StrVal) {
		return nil
	}
	// The value is shown as it was written.
	var value any = number.StrVal
	if number.Type == intstr.Int {
		value = number.IntVal
	}
	return field.ErrorList{field.Invalid(fldPath, value, `must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`)}
}

// ValidatePowerCycle returns what is wrong with settings of power cycles that have their defaults. Each error names the field
// below fldPath, its value and what is valid.
func ValidatePowerCycle(powerCycle *preservation.PowerCycle, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	fencings := []v1alpha1.Fencing{v1alpha1.FencingOutOfServiceTaint}
	if fencing := v1alpha1.Fencing(*powerCycle.Fencing); !sets.New(fencings...).Has(fencing) {
		allErrs = append(allErrs, field.NotSupported(fldPath.Child("fencing"), fencing, fencings))
	}
	if attempts := *powerCycle.MaxAttempts; attempts < 1 || attempts > v1alpha1.MaxMaxAttempts {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxAttempts"), attempts, fmt.Sprintf("must be between 1 and %d", v1alpha1.MaxMaxAttempts)))
	}
	if machines := *powerCycle.MaxConcurrent; machines < 1 {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxConcurrent"), machines, "must be at least 1"))
	}
	for _, timeout := range []struct {
		field string
		value time.Duration
	}{
		{"powerOffTimeout", powerCycle.PowerOffTimeout.Duration},
		{"powerOnTimeout", powerCycle.PowerOnTimeout.Duration},
		{"nodeStartupTimeout", powerCycle.NodeStartupTimeout.Duration},
	} {
		if timeout.value < v1alpha1.MinPowerCycleTimeout || timeout.value > v1alpha1.MaxPowerCycleTimeout {
			detail := fmt.Sprintf("must be between %s and %s", v1alpha1.MinPowerCycleTimeout, v1alpha1.MaxPowerCycleTimeout)
			allErrs = append(allErrs, field.Invalid(fldPath.Child(timeout.field), timeout.value.String(), detail))
		}
	}
	return allErrs
}

// taken are the types of conditions that mean something else already: those of the kubelet, those of machine-controller-manager, and ours.
// Where operators have machine-controller-manager heed others, a machine with such a condition is not healthy as long as it is True, so
// that it proves nothing.
var taken = sets.New(
	string(corev1.NodeReady), string(corev1.NodeMemoryPressure), string(corev1.NodeDiskPressure), string(corev1.NodePIDPressure), string(corev1.NodeNetworkUnavailable),
	string(machinev1alpha1.NodeInPlaceUpdate), "Terminating",
	v1alpha1.ConditionPreserved, v1alpha1.ConditionNodeDrain, v1alpha1.ConditionPowerCycle,
).Insert(facts.DefaultNodeConditions...)

// ValidateValidation returns what is wrong with the validation of a pool that has its defaults. Each error names the field below
// fldPath, its value and what is valid.
func ValidateValidation(v *preservation.Validation, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	conditionPath, labelPath := fldPath.Child("condition"), fldPath.Child("label")
	switch {
	case v.Condition == nil && v.Label == nil:
		allErrs = append(allErrs, field.Required(conditionPath, "either condition or label must be set"))
	case v.Condition != nil && v.Label != nil:
		allErrs = append(allErrs, field.Invalid(labelPath, *v.Label, "must not be set, because condition is set: only one of them can be the proof"))
	}
	if condition := v.Condition; condition != nil {
		problems := utilvalidation.IsQualifiedName(*condition)
		switch {
		case len(problems) > 0:
			allErrs = append(allErrs, field.Invalid(conditionPath, brief.Cut(*condition), "must be the type of a Node condition, for example \"GPUHealthy\": "+strings.Join(problems, ", ")))
		case len(*condition) > v1alpha1.MaxValidationName:
			allErrs = append(allErrs, field.TooLong(conditionPath, brief.Cut(*condition), v1alpha1.MaxValidationName))
		case taken.Has(*condition) || maintenance.IsNodeCondition(corev1.NodeConditionType(*condition)):
			allErrs = append(allErrs, field.Invalid(conditionPath, *condition, "must be a condition that only proves that a machine works: the kubelet, machine-controller-manager or this extension uses this condition for something else"))
		}
	}
	if label := v.Label; label != nil {
		key, value, ok := strings.Cut(*label, "=")
		problems := append(utilvalidation.IsQualifiedName(key), utilvalidation.IsValidLabelValue(value)...)
		if !ok || len(problems) > 0 {
			allErrs = append(allErrs, field.Invalid(labelPath, brief.Cut(*label), strings.Join(append([]string{"must be a label as key=value, for example \"example.com/gpu=healthy\""}, problems...), ": ")))
		}
	}
	if timeout := v.Timeout.Duration; timeout < v1alpha1.MinValidationTimeout || timeout > v1alpha1.MaxValidationTimeout {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("timeout"), timeout.String(), fmt.Sprintf("must be between %s and %s", v1alpha1.MinValidationTimeout, v1alpha1.MaxValidationTimeout)))
	}
	switch v1alpha1.OnTimeout(*v.OnTimeout) {
	case v1alpha1.OnTimeoutKeep:
	case "Replace":
		allErrs = append(allErrs, field.Invalid(fldPath.Child("onTimeout"), *v.OnTimeout, "must be Keep: machine-controller-manager replaces no machine that is healthy. Delete the Node to have its machine replaced"))
	default:
		allErrs = append(allErrs, field.NotSupported(fldPath.Child("onTimeout"), v1alpha1.OnTimeout(*v.OnTimeout), []v1alpha1.OnTimeout{v1alpha1.OnTimeoutKeep}))
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
	distributions := []v1alpha1.Distribution{v1alpha1.DistributionPool, v1alpha1.DistributionZones}
	if distribution := settings.Distribution; distribution != nil && !slices.Contains(distributions, v1alpha1.Distribution(*distribution)) {
		allErrs = append(allErrs, field.NotSupported(fldPath.Child("distribution"), *distribution, distributions))
	}
	return allErrs
}

func validateLimit(value int32, pool share.Pool, fldPath *field.Path) field.ErrorList {
	if value <= pool.Limit() {
		return nil
	}
	detail := fmt.Sprintf("must be at most %d, the maximum of worker pool %q", pool.Limit(), pool.Name)
	if pool.SystemComponents {
		detail = fmt.Sprintf("must be at most %d, one less than the maximum of worker pool %q, because system components may run there", pool.Limit(), pool.Name)
	}
	return field.ErrorList{field.Invalid(fldPath.Child("autoPreserveFailedMax"), value, detail)}
}
