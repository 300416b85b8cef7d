// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package install adds all versions of the API to a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

var (
	schemeBuilder = runtime.NewSchemeBuilder(preservation.AddToScheme, v1alpha1.AddToScheme)

	// AddToScheme adds all versions of the API to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)
