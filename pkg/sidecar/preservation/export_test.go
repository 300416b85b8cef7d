// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

// What the tests look at beside the exported names.
var (
	DeploymentChanged = deploymentChanged
	MachineSetChanged = machineSetChanged
	MachineChanged    = machineChanged
	NodeChanged       = nodeChanged

	MachineToDeployment = (*Reconciler).machineToDeployment
	NodeToDeployment    = (*Reconciler).nodeToDeployment
)
