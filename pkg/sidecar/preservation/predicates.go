// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

func machineChanged() predicate.Predicate {
	return shoot.OnUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return !apiequality.Semantic.DeepEqual(o.Status.CurrentStatus, n.Status.CurrentStatus) ||
			!maps.Equal(o.Annotations, n.Annotations) ||
			(len(o.Status.Conditions) == 0) != (len(n.Status.Conditions) == 0) ||
			!apiequality.Semantic.DeepEqual(o.Spec.MachineConfiguration, n.Spec.MachineConfiguration) ||
			o.Labels[machinev1alpha1.NodeLabelKey] != n.Labels[machinev1alpha1.NodeLabelKey] ||
			o.DeletionTimestamp.IsZero() != n.DeletionTimestamp.IsZero()
	})
}

func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return !maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) ||
			!apiequality.Semantic.DeepEqual(e.ObjectOld.Spec.Taints, e.ObjectNew.Spec.Taints) ||
			!apiequality.Semantic.DeepEqual(preservation.PreservedCondition(e.ObjectOld), preservation.PreservedCondition(e.ObjectNew)) ||
			!health(e.ObjectOld).Equal(health(e.ObjectNew)) ||
			mayProve(e.ObjectNew) && (!maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) || !slices.Equal(reports(e.ObjectOld), reports(e.ObjectNew)))
	}}
}

// mayProve says that a proof may be waited for that the machine of a node works (V3): the node has the taint, and its machine has not
// failed. It does not depend on what the condition says but where a drain does.
func mayProve(node *corev1.Node) bool {
	c := preservation.PreservedCondition(node)
	return v1alpha1.IsTainted(node) && (c == nil || !v1alpha1.IsDrainReason(c.Reason))
}

// reports returns when the conditions of a node were reported that may be a proof.
func reports(node *corev1.Node) (times []int64) {
	for _, c := range node.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Type != v1alpha1.ConditionPreserved && c.Type != corev1.NodeReady {
			times = append(times, c.LastHeartbeatTime.Unix(), c.LastTransitionTime.Unix())
		}
	}
	return times
}

// health returns what a machine may be unhealthy by (H1): the status of Ready, and the conditions that are not False; of
// the one that tells how its update in place goes, the reason as well (P3).
func health(node *corev1.Node) sets.Set[string] {
	result := sets.New[string]()
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == v1alpha1.ConditionPreserved:
		case c.Type == machinev1alpha1.NodeInPlaceUpdate:
			result.Insert(string(c.Type) + "=" + c.Reason)
		case c.Type == corev1.NodeReady:
			result.Insert(string(c.Type) + "=" + string(c.Status))
		case c.Status != corev1.ConditionFalse:
			result.Insert(string(c.Type))
		}
	}
	return result
}
