// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package helper reads the provider configuration.
package helper

import (
	"encoding/json"
	"fmt"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/install"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/validation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var decoder runtime.Decoder

func init() {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	decoder = serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(preservation.SchemeGroupVersion)
}

// DecodeProviderConfig returns the internal version of a provider configuration, which is empty if there is none. An
// error names the field below fldPath, its value and what is valid.
func DecodeProviderConfig(raw *runtime.RawExtension, fldPath *field.Path) (*preservation.MachinePreservationConfig, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return &preservation.MachinePreservationConfig{}, nil
	}

	object, kind, err := decoder.Decode(raw.Raw, nil, nil)
	// The decoder takes the internal version as well, with the names of the fields in Go.
	if config, ok := object.(*preservation.MachinePreservationConfig); ok && err == nil && kind.Version != runtime.APIVersionInternal {
		return config, nil
	}

	// The decoder knows neither the paths of malformed values nor which fields it would have known.
	var document any
	if json.Unmarshal(raw.Raw, &document) == nil {
		if allErrs := checkConfig(document, fldPath); len(allErrs) > 0 {
			return nil, allErrs.ToAggregate()
		}
	}
	return nil, fmt.Errorf("%s: %w", fldPath, err)
}

// ReadExtension returns the provider configuration of an Extension. An error names each field that is not valid for the
// given worker pools, its value and what is valid.
func ReadExtension(extension *extensionsv1alpha1.Extension, pools []share.Pool) (*preservation.MachinePreservationConfig, error) {
	fldPath := field.NewPath("spec", "providerConfig")
	config, err := DecodeProviderConfig(extension.Spec.ProviderConfig, fldPath)
	if err != nil {
		return nil, err
	}
	if err := validation.ValidateMachinePreservationConfig(config, pools, fldPath).ToAggregate(); err != nil {
		return nil, err
	}
	return config, nil
}
