// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// What the tests look at beside the exported names.
var (
	CauseOf           = causeOf
	NodeChanged       = nodeChanged
	MachineChanged    = machineChanged
	MachineSetChanged = machineSetChanged
	DeploymentChanged = deploymentChanged
	TimedOut          = timedOut
)

// NewPodWatches returns Pods that watch by a client, and call a function with each node on which something has changed.
func NewPodWatches(ctx context.Context, c kubernetes.Interface, changed func(node string)) Pods {
	return shoot.NewPods(ctx, c, changed, changed)
}

// NodeNames returns the names of the nodes that a new MachineSet may concern.
func (r *Reconciler) NodeNames(ctx context.Context) []string {
	var names []string
	for _, request := range r.nodesOfMachines(ctx, nil) {
		names = append(names, request.Name)
	}
	return names
}
