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
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// cause is why machine-controller-manager drains a node.
type cause string

const (
	causeNone          cause = ""
	causeRollingUpdate cause = "a rolling update"
	causeInPlaceUpdate cause = "an update in place"
)

// causeOf returns because of which update machine-controller-manager drains a node, if any, and since when (D1, D2). That is
// not before the first update came that the machine has missed: what is on the node is the shoot's to write, and a time of
// long ago must not skip PodDisruptionBudgets. A deletion cannot be taken back, so a return to the machine's own MachineSet
// ends no drain. Who has cordoned the node, and when, is no matter.
func causeOf(machine *machinev1alpha1.Machine, node *corev1.Node, update shoot.Update) (cause, time.Time) {
	if machine == nil || isControlPlane(node) {
		return causeNone, time.Time{}
	}
	switch deleted := machine.DeletionTimestamp; {
	case deleted != nil && deleted.Before(&node.CreationTimestamp): // it is another machine's by now
	case deleted != nil && (update.Outdated || !update.Since.IsZero() && !update.Since.After(deleted.Time)):
		return causeRollingUpdate, later(update.Since, deleted.Time)
	case deleted == nil && update.Outdated && preservation.IsSelectedForUpdate(node):
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == machinev1alpha1.NodeInPlaceUpdate })
		return causeInPlaceUpdate, later(later(update.Since, machine.CreationTimestamp.Time), node.Status.Conditions[i].LastTransitionTime.Time)
	}
	return causeNone, time.Time{}
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
