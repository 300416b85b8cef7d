// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// What the tests look at beside the exported names.
var (
	MachineChanged = machineChanged
	NodeChanged    = nodeChanged

	Patience = &patience

	NewQueue = newQueue

	MachineToDeployment = (*Reconciler).machineToDeployment
	NodeToDeployment    = (*Reconciler).nodeToDeployment
)

// OnEnqueue has f called when the Reconciler wants to look at a MachineDeployment again.
func (r *Reconciler) OnEnqueue(f func(reconcile.Request)) { r.enqueue = f }

// RequestsFor returns the requests for a MachineDeployment that something has happened to.
func (r *Reconciler) RequestsFor(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) []reconcile.Request {
	return r.requestsFor(ctx, deployment)
}

// Hold runs those of the steps that make the hold, and returns how many are left.
func Hold(ctx context.Context, steps []intent.Write) int {
	r := &task{Reconciler: &Reconciler{}, decision: &preservation.Decision{}, steps: steps}
	r.hold(ctx)
	return len(r.steps)
}
