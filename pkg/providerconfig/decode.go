// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package providerconfig reads the provider configuration.
package providerconfig

import (
	"encoding/json"
	"fmt"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/install"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig/validation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var decoder runtime.Decoder

func init() {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	decoder = serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(preservation.SchemeGroupVersion)
}

// maxSize is how many bytes of a provider configuration are read. One that sets everything for a hundred worker pools has a
// quarter of them.
const maxSize = 64 << 10

// ReadProviderConfig returns the internal version of a provider configuration, which is empty if there is none. An error
// names the first fields below fldPath that are not valid for the given worker pools, their values and what is valid.
//
// It is where a shoot owner's input comes in, for the admission component and all of the extension: time and memory grow
// with the size of the input only, and what an error shows of it is cut.
func ReadProviderConfig(raw *runtime.RawExtension, pools []share.Pool, fldPath *field.Path) (*preservation.MachinePreservationConfig, error) {
	config, err := decode(raw, fldPath)
	if err != nil {
		return nil, err
	}
	if err := aggregate(validation.ValidateMachinePreservationConfig(config, pools, fldPath), fldPath); err != nil {
		return nil, err
	}
	return config, nil
}

// ReadExtension returns the provider configuration of an Extension. An error names fields that are not valid for the given
// worker pools, their values and what is valid.
func ReadExtension(extension *extensionsv1alpha1.Extension, pools []share.Pool) (*preservation.MachinePreservationConfig, error) {
	return ReadProviderConfig(extension.Spec.ProviderConfig, pools, field.NewPath("spec", "providerConfig"))
}

// ReadDrainStrategies returns the drain strategies of an Extension, nil if it has none. It does not depend on what else of
// the configuration is not valid for the worker pools.
func ReadDrainStrategies(extension *extensionsv1alpha1.Extension) (*preservation.DrainStrategies, error) {
	fldPath := field.NewPath("spec", "providerConfig")
	config, err := decode(extension.Spec.ProviderConfig, fldPath)
	if err != nil || config.DrainStrategies == nil {
		return nil, err
	}
	if err := aggregate(validation.ValidateDrainStrategies(config.DrainStrategies, fldPath.Child("drainStrategies")), fldPath); err != nil {
		return nil, err
	}
	return config.DrainStrategies, nil
}

// ReadDrainConditions returns whether an Extension has nodes show in conditions that they are drained. It does not depend on what else of the
// configuration is not valid for the worker pools.
func ReadDrainConditions(extension *extensionsv1alpha1.Extension) (bool, error) {
	config, err := decode(extension.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if err != nil {
		return false, err
	}
	return ptr.Deref(config.DrainConditions, false), nil
}

// ReadNodeMaintenance returns the settings of node maintenance of an Extension, nil if it has none. It does not depend on what
// else of the configuration is not valid for the worker pools.
func ReadNodeMaintenance(extension *extensionsv1alpha1.Extension) (*preservation.NodeMaintenance, error) {
	fldPath := field.NewPath("spec", "providerConfig")
	config, err := decode(extension.Spec.ProviderConfig, fldPath)
	if err != nil || config.NodeMaintenance == nil {
		return nil, err
	}
	if err := aggregate(validation.ValidateNodeMaintenance(config.NodeMaintenance, fldPath.Child("nodeMaintenance")), fldPath); err != nil {
		return nil, err
	}
	return config.NodeMaintenance, nil
}

// ReadEvidence returns what an Extension says of evidence, nil if none is to be stored. It does not depend on what else of the
// configuration is not valid for the worker pools.
func ReadEvidence(extension *extensionsv1alpha1.Extension) (*preservation.Evidence, error) {
	fldPath := field.NewPath("spec", "providerConfig")
	config, err := decode(extension.Spec.ProviderConfig, fldPath)
	if err != nil || config.Evidence == nil || !*config.Evidence.Enabled {
		return nil, err
	}
	if err := aggregate(validation.ValidateEvidence(config.Evidence, fldPath.Child("evidence")), fldPath); err != nil {
		return nil, err
	}
	return config.Evidence, nil
}

// ReadFailures returns whether an Extension has failures recorded. It does not depend on what else of the configuration is not valid for
// the worker pools.
func ReadFailures(extension *extensionsv1alpha1.Extension) (bool, error) {
	config, err := decode(extension.Spec.ProviderConfig, field.NewPath("spec", "providerConfig"))
	if err != nil {
		return false, err
	}
	return config.Failures == nil || *config.Failures.Enabled, nil
}

// HasPowerCycle returns whether hosts of a worker pool of an Extension are to be power-cycled. It does not depend on what else of
// the configuration is not valid for the worker pools.
func HasPowerCycle(extension *extensionsv1alpha1.Extension) (bool, error) {
	fldPath := field.NewPath("spec", "providerConfig")
	config, err := decode(extension.Spec.ProviderConfig, fldPath)
	if err != nil {
		return false, err
	}
	var (
		allErrs field.ErrorList
		has     bool
	)
	for i, worker := range config.Workers {
		if worker.PowerCycle != nil && !validation.Enough(allErrs) {
			has = true
			allErrs = append(allErrs, validation.ValidatePowerCycle(worker.PowerCycle, fldPath.Child("workers").Index(i).Child("powerCycle"))...)
		}
	}
	return has, aggregate(allErrs, fldPath)
}

func decode(raw *runtime.RawExtension, fldPath *field.Path) (*preservation.MachinePreservationConfig, error) {
	config := &preservation.MachinePreservationConfig{}
	if raw == nil || len(raw.Raw) == 0 {
		return config, nil
	}
	if size := len(raw.Raw); size > maxSize {
		err := field.TooLong(fldPath, nil, maxSize)
		err.Detail = fmt.Sprintf("has %d bytes, must have at most %d", size, maxSize)
		return nil, err
	}

	// The decoder knows neither the paths of malformed values nor which fields it would have known. It takes the internal
	// version as well, with the names of the fields in Go.
	var document any
	if err := json.Unmarshal(raw.Raw, &document); err != nil {
		return nil, cutError(err, fldPath)
	}
	if err := aggregate(checkConfig(document, fldPath), fldPath); err != nil {
		return nil, err
	}

	// What it refuses now are fields that are set twice.
	if err := runtime.DecodeInto(decoder, raw.Raw, config); err != nil {
		return nil, cutError(err, fldPath)
	}
	return config, nil
}
