// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain

import "context"

// What the tests look at beside the exported names.
var (
	NodeChanged       = nodeChanged
	MachineChanged    = machineChanged
	MachineSetChanged = machineSetChanged
	DeploymentChanged = deploymentChanged
	TimedOut          = timedOut
)

// NodeNames returns the names of the nodes that a new MachineSet may concern.
func (r *Reconciler) NodeNames(ctx context.Context) []string {
	var names []string
	for _, request := range r.nodesOfMachines(ctx, nil) {
		names = append(names, request.Name)
	}
	return names
}
