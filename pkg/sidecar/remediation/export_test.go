// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

// What the tests look at beside the exported names.
var (
	MachineChanged   = machineChanged
	NodeChanged      = nodeChanged
	ReadinessChanged = readinessChanged
	PhaseChanged     = phaseChanged
	RoomChanged      = roomChanged

	MachineToDeployment = (*Reconciler).machineToDeployment
	NodeToDeployment    = (*Reconciler).nodeToDeployment
	HostToDeployment    = (*Reconciler).hostToDeployment
	Waiting             = (*Reconciler).waiting
	Notify              = (*Hosts).notify
)
