// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

// nodeChanged selects changes of what decides on a maintenance, or of what it has put on the node.
func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		o, n := e.ObjectOld, e.ObjectNew
		return o.UID != n.UID || o.Spec.Unschedulable != n.Spec.Unschedulable ||
			facts.IsUpdatedInPlace(o) != facts.IsUpdatedInPlace(n) ||
			o.Annotations[preservationv1alpha1.AnnotationMaintenance] != n.Annotations[preservationv1alpha1.AnnotationMaintenance] ||
			domain.CordonedFor(o) != domain.CordonedFor(n) || !slices.Equal(conditionsOf(o), conditionsOf(n))
	}}
}

func conditionsOf(node *corev1.Node) []corev1.NodeConditionType {
	var types []corev1.NodeConditionType
	for _, c := range node.Status.Conditions {
		if domain.IsNodeCondition(c.Type) {
			types = append(types, c.Type)
		}
	}
	return types
}
