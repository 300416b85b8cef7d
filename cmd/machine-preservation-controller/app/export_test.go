// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

// What the tests look at beside the exported names.
var (
	StripMachineDeployment = stripMachineDeployment
	StripMachineSet        = stripMachineSet
	StripMachine           = stripMachine
	StripNode              = stripNode
)
