// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validation validates the component configuration.
package validation

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

var hostKinds = sets.New(configv1alpha1.HostKindBareMetalHost, configv1alpha1.HostKindServerClaim)

var injections = sets.New(configv1alpha1.InjectionInWaves, configv1alpha1.InjectionWithNextReconciliation)

// ValidateControllerConfiguration returns what is wrong with a configuration that has been defaulted.
func ValidateControllerConfiguration(config *configv1alpha1.ControllerConfiguration) field.ErrorList {
	var allErrs field.ErrorList

	if limit := config.AutoPreserveFailedMax; limit != nil && *limit < 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("autoPreserveFailedMax"), *limit, "must not be negative"))
	}
	if limit := config.MaxAutoPreserveFailed; limit != nil {
		switch number := config.AutoPreserveFailedMax; {
		case *limit < 0:
			allErrs = append(allErrs, field.Invalid(field.NewPath("maxAutoPreserveFailed"), *limit, "must not be negative"))
		case number != nil && *number > *limit:
			allErrs = append(allErrs, field.Invalid(field.NewPath("autoPreserveFailedMax"), *number, fmt.Sprintf("must not be greater than maxAutoPreserveFailed, which is %d", *limit)))
		}
	}
	minimum := fmt.Sprintf("must be at least %s", v1alpha1.MinMachinePreserveTimeout)
	longest := config.MaxMachinePreserveTimeout
	if longest != nil && longest.Duration < v1alpha1.MinMachinePreserveTimeout {
		allErrs = append(allErrs, field.Invalid(field.NewPath("maxMachinePreserveTimeout"), longest.Duration.String(), minimum))
	}
	if timeout := config.MachinePreserveTimeout; timeout != nil {
		fldPath := field.NewPath("machinePreserveTimeout")
		switch {
		case timeout.Duration < v1alpha1.MinMachinePreserveTimeout:
			allErrs = append(allErrs, field.Invalid(fldPath, timeout.Duration.String(), minimum))
		case longest != nil && timeout.Duration > longest.Duration:
			allErrs = append(allErrs, field.Invalid(fldPath, timeout.Duration.String(), fmt.Sprintf("must not be longer than maxMachinePreserveTimeout, which is %s", longest.Duration)))
		}
	}
	if limit := config.MaxMachineHours; limit != nil && *limit < 1 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("maxMachineHours"), *limit, "must be at least 1"))
	}
	if overtime := config.MaxNodeMaintenanceOvertime; overtime != nil && overtime.Duration < 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("maxNodeMaintenanceOvertime"), overtime.Duration.String(), "must not be negative"))
	}
	if injection := config.Injection; injection != nil && !injections.Has(*injection) {
		allErrs = append(allErrs, field.NotSupported(field.NewPath("injection"), *injection, sets.List(injections)))
	}
	if limit := config.InjectionMaxFailed; limit != nil && *limit < 0 {
		allErrs = append(allErrs, field.Invalid(field.NewPath("injectionMaxFailed"), *limit, "must not be negative"))
	}
	if percent := config.InjectionMaxFailedPercent; percent != nil && (*percent < 0 || *percent > 100) {
		allErrs = append(allErrs, field.Invalid(field.NewPath("injectionMaxFailedPercent"), *percent, "must be between 0 and 100"))
	}

	if config.Evidence != nil {
		allErrs = append(allErrs, validateEvidence(config.Evidence, field.NewPath("evidence"))...)
	}

	if config.Storm != nil {
		allErrs = append(allErrs, validateStorm(config.Storm, field.NewPath("storm"))...)
	}

	if config.Hosts != nil {
		allErrs = append(allErrs, validateHosts(config.Hosts, field.NewPath("hosts"))...)
		// A claim of a power cycle lasts no longer than that, either.
		if servicing := config.Hosts.MaxServicing.Duration; longest != nil && isValidServicing(servicing) && longest.Duration < v1alpha1.MaxPowerCycleDuration+servicing {
			allErrs = append(allErrs, field.Invalid(field.NewPath("maxMachinePreserveTimeout"), longest.Duration.String(),
				fmt.Sprintf("must be at least %s if hosts are configured: a power cycle may take %s, and hosts.maxServicing adds %s",
					v1alpha1.MaxPowerCycleDuration+servicing, v1alpha1.MaxPowerCycleDuration, servicing)))
		}
	}

	return allErrs
}

func validateEvidence(evidence *configv1alpha1.Evidence, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if evidence.Budget.Value() < v1alpha1.MinEvidenceBudget {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("budget"), evidence.Budget.String(), fmt.Sprintf("must be at least %s", resource.NewQuantity(v1alpha1.MinEvidenceBudget, resource.BinarySI))))
	}
	if evidence.SeedBudget.Value() < v1alpha1.MinEvidenceSeedBudget {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("seedBudget"), evidence.SeedBudget.String(),
			fmt.Sprintf("must be at least %s, because each control plane on the seed may store at least 64Ki", resource.NewQuantity(v1alpha1.MinEvidenceSeedBudget, resource.BinarySI))))
	} else if evidence.SeedBudget.Cmp(*evidence.Budget) < 0 {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("seedBudget"), evidence.SeedBudget.String(), fmt.Sprintf("must not be less than budget, which is %s", evidence.Budget)))
	}
	if retention := evidence.MaxRetention.Duration; retention < v1alpha1.MinEvidenceRetention || retention > v1alpha1.MaxEvidenceRetention {
		detail := fmt.Sprintf("must be between %s and %s", v1alpha1.MinEvidenceRetention, v1alpha1.MaxEvidenceRetention)
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxRetention"), retention.String(), detail))
	}
	return allErrs
}

func validateStorm(storm *configv1alpha1.Storm, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if storm.MaxFailing == nil && storm.MaxFailingPercent == nil {
		allErrs = append(allErrs, field.Required(fldPath.Child("maxFailing"), "maxFailing or maxFailingPercent must be set. To count no machines, omit storm"))
	}
	if limit := storm.MaxFailing; limit != nil && *limit < 1 {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxFailing"), *limit, "must be at least 1. To have only a percentage as the limit, omit the field"))
	}
	if percent := storm.MaxFailingPercent; percent != nil && (*percent < 1 || *percent > 100) {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxFailingPercent"), *percent, "must be between 1 and 100. To have only a number as the limit, omit the field"))
	}
	if settling := storm.SettlingTime.Duration; settling < v1alpha1.MinStormSettlingTime || settling > v1alpha1.MaxStormSettlingTime {
		detail := fmt.Sprintf("must be between %s and %s", v1alpha1.MinStormSettlingTime, v1alpha1.MaxStormSettlingTime)
		allErrs = append(allErrs, field.Invalid(fldPath.Child("settlingTime"), settling.String(), detail))
	}
	return allErrs
}

func isValidServicing(servicing time.Duration) bool {
	return servicing >= v1alpha1.MinMaxServicing && servicing <= v1alpha1.MaxMaxServicing
}

func validateHosts(hosts *configv1alpha1.Hosts, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if hosts.Kind == "" {
		allErrs = append(allErrs, field.Required(fldPath.Child("kind"), fmt.Sprintf("must be one of %q", sets.List(hostKinds))))
	} else if !hostKinds.Has(hosts.Kind) {
		allErrs = append(allErrs, field.NotSupported(fldPath.Child("kind"), hosts.Kind, sets.List(hostKinds)))
	}
	if name := hosts.KubeconfigSecretName; name != "" {
		if problems := apivalidation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
			allErrs = append(allErrs, field.Invalid(fldPath.Child("kubeconfigSecretName"), name, "must be the name of a Secret: "+strings.Join(problems, ", ")))
		}
	}
	for _, limit := range []struct {
		field string
		value *int32
	}{
		{"maxPerShoot", hosts.MaxPerShoot},
		{"maxPerSeed", hosts.MaxPerSeed},
	} {
		if limit.value != nil && *limit.value < 1 {
			allErrs = append(allErrs, field.Invalid(fldPath.Child(limit.field), *limit.value, "must be at least 1. To have no limit, omit the field"))
		}
	}
	if servicing := hosts.MaxServicing.Duration; !isValidServicing(servicing) {
		detail := fmt.Sprintf("must be between %s and %s", v1alpha1.MinMaxServicing, v1alpha1.MaxMaxServicing)
		allErrs = append(allErrs, field.Invalid(fldPath.Child("maxServicing"), servicing.String(), detail))
	}
	if hosts.Quarantine != nil {
		allErrs = append(allErrs, validateQuarantine(hosts, fldPath.Child("quarantine"))...)
	}
	if hosts.Kind != configv1alpha1.HostKindServerClaim {
		return allErrs
	}
	if hosts.KubeconfigSecretName == "" {
		allErrs = append(allErrs, field.Required(fldPath.Child("kubeconfigSecretName"), "must be set for ServerClaims, because each shoot would see all Servers of the seed otherwise"))
	}
	if !hosts.PXEBootKeepsDisks {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("pxeBootKeepsDisks"), false, "must be true for ServerClaims, because metal-operator boots Servers that it finds off by PXE"))
	}
	if !hosts.PowerOffEnforced {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("powerOffEnforced"), false, "must be true for ServerClaims, because without --enforce-power-off metal-operator does not power off Servers that hang"))
	}
	return allErrs
}

func validateQuarantine(hosts *configv1alpha1.Hosts, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	if hosts.Kind != configv1alpha1.HostKindServerClaim {
		allErrs = append(allErrs, field.Forbidden(fldPath, "is supported for ServerClaims only: nothing prevents that another machine gets a BareMetalHost"))
	}
	if failures := *hosts.Quarantine.Failures; failures < minQuarantineFailures {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("failures"), failures, fmt.Sprintf("must be at least %d. To put no hosts into quarantine, omit quarantine", minQuarantineFailures)))
	}
	if period := hosts.Quarantine.Period.Duration; period < minQuarantinePeriod || period > maxQuarantinePeriod {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("period"), period.String(), fmt.Sprintf("must be between %s and %s", minQuarantinePeriod, maxQuarantinePeriod)))
	}
	return allErrs
}

const (
	minQuarantineFailures = 2
	minQuarantinePeriod   = 24 * time.Hour
	maxQuarantinePeriod   = 720 * time.Hour
)
