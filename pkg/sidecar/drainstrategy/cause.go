// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// cause is why machine-controller-manager drains a node.
type cause string

const (
	causeNone          cause = ""
	causeRollingUpdate cause = "a rolling update"
	causeInPlaceUpdate cause = "an update in place"
)

// causeOf returns because of which update machine-controller-manager drains a node, if any, and since when (D1, D2). newest
// is the newest MachineSet of the MachineDeployment, nil if that is the machine's own. Not before it was there: what is on
// the node is the shoot's to write, and a time of long ago must not skip PodDisruptionBudgets. Who has cordoned the node,
// and when, is no matter.
func causeOf(machine *machinev1alpha1.Machine, node *corev1.Node, newest *machinev1alpha1.MachineSet) (cause, time.Time) {
	if machine == nil || newest == nil || isControlPlane(node) {
		return causeNone, time.Time{}
	}
	because, since := causeNone, newest.CreationTimestamp.Time
	switch {
	case machine.DeletionTimestamp != nil:
		because, since = causeRollingUpdate, later(since, machine.DeletionTimestamp.Time)
	case preservation.IsSelectedForUpdate(node):
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == machinev1alpha1.NodeInPlaceUpdate })
		because, since = causeInPlaceUpdate, later(since, node.Status.Conditions[i].LastTransitionTime.Time)
	}
	return because, since
}

// isControlPlane says that the node runs the shoot's own control plane.
func isControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels[v1alpha1.LabelControlPlane]
	return ok
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
