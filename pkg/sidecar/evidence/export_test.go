// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

// What the tests look at beside the exported names.
var (
	RequestsFor    = requestsFor
	MachineChanged = machineChanged
	Bundles        = bundles
)
