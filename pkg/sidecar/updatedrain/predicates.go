// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain/update"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// nodeChanged selects changes of what decides on a drain and comes from outside. Whether a node is cordoned does not (D1).
func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	type view struct{ selected, reachable, controlPlane bool }
	return shoot.OnNodeChange(func(node *corev1.Node) view {
		return view{facts.IsSelectedForUpdate(node), facts.IsReady(node), update.IsControlPlane(node)}
	})
}

func machineChanged() predicate.Predicate {
	return shoot.OnUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return o.DeletionTimestamp.IsZero() != n.DeletionTimestamp.IsZero() || o.Labels[machinev1alpha1.NodeLabelKey] != n.Labels[machinev1alpha1.NodeLabelKey]
	})
}

func machineSetChanged() predicate.Predicate { return shoot.OnChange(facts.RevisionOf) }

func deploymentChanged() predicate.Predicate {
	return shoot.OnChange(func(d *machinev1alpha1.MachineDeployment) string {
		return d.Annotations[v1alpha1.AnnotationForceDeletePodsWithVolumes]
	})
}
