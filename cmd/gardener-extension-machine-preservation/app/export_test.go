// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

// For tests.
var (
	StripCluster           = stripCluster
	StripExtension         = stripExtension
	StripWorker            = stripWorker
	StripMachineClass      = stripMachineClass
	StripMachineDeployment = stripMachineDeployment
	StripDeployment        = stripDeployment
	CacheOptions           = cacheOptions
)

// NewConfigOptions returns options with a value for --config.
func NewConfigOptions(path string) *configOptions {
	return &configOptions{path: path}
}
