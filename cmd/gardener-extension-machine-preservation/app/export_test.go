// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"

// For tests.
var (
	StripCluster           = stripCluster
	StripExtension         = shoot.Strip(stripExtension)
	StripWorker            = shoot.Strip(stripWorker)
	StripMachineClass      = shoot.Strip(stripMachineClass)
	StripMachineDeployment = shoot.Strip(stripMachineDeployment)
	StripDeployment        = shoot.Strip(stripDeployment)
	CacheOptions           = cacheOptions
)

// NewConfigOptions returns options with a value for --config.
func NewConfigOptions(path string) *configOptions {
	return &configOptions{path: path}
}
