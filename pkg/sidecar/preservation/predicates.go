// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

func deploymentChanged() predicate.Predicate {
	return onUpdate(func(o, n *machinev1alpha1.MachineDeployment) bool {
		return o.Spec.Replicas != n.Spec.Replicas || !maps.Equal(o.Annotations, n.Annotations)
	})
}

func machineSetChanged() predicate.Predicate {
	return onUpdate(func(o, n *machinev1alpha1.MachineSet) bool {
		return (o.Spec.Replicas > 0 || o.Status.Replicas > 0) != (n.Spec.Replicas > 0 || n.Status.Replicas > 0)
	})
}

func machineChanged() predicate.Predicate {
	return onUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return !apiequality.Semantic.DeepEqual(o.Status.CurrentStatus, n.Status.CurrentStatus) ||
			!maps.Equal(o.Annotations, n.Annotations) ||
			!apiequality.Semantic.DeepEqual(o.Spec.MachineConfiguration, n.Spec.MachineConfiguration) ||
			o.Labels[machinev1alpha1.NodeLabelKey] != n.Labels[machinev1alpha1.NodeLabelKey] ||
			o.DeletionTimestamp.IsZero() != n.DeletionTimestamp.IsZero()
	})
}

func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return !maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) ||
			!apiequality.Semantic.DeepEqual(e.ObjectOld.Spec.Taints, e.ObjectNew.Spec.Taints) ||
			!apiequality.Semantic.DeepEqual(preservation.PreservedCondition(e.ObjectOld), preservation.PreservedCondition(e.ObjectNew))
	}}
}

func onUpdate[T client.Object](changed func(o, n T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return changed(e.ObjectOld.(T), e.ObjectNew.(T))
	}}
}
