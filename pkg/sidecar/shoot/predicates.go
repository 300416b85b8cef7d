// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"maps"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// OnUpdate selects objects that are added or removed, and of the updates those by which something has changed.
func OnUpdate[T client.Object](changed func(o, n T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return changed(e.ObjectOld.(T), e.ObjectNew.(T))
	}}
}

// OnChange is OnUpdate for the updates by which what is seen of an object becomes something else.
func OnChange[T client.Object, V comparable](seen func(T) V) predicate.Predicate {
	return OnUpdate(func(o, n T) bool { return seen(o) != seen(n) })
}

// OnNodeChange is OnChange for a source of nodes.
func OnNodeChange[V comparable](seen func(*corev1.Node) V) predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return seen(e.ObjectOld) != seen(e.ObjectNew)
	}}
}

// DeploymentChanged is for MachineDeployments that want other machines, or other things of them.
func DeploymentChanged() predicate.Predicate {
	return OnUpdate(func(o, n *machinev1alpha1.MachineDeployment) bool {
		return o.Spec.Replicas != n.Spec.Replicas || o.Spec.Strategy.Type != n.Spec.Strategy.Type || !maps.Equal(o.Annotations, n.Annotations)
	})
}

// MachineSetChanged is for MachineSets by which a rollout begins, or does not go on (P3). It ends with machines.
func MachineSetChanged() predicate.Predicate {
	return OnUpdate(func(o, n *machinev1alpha1.MachineSet) bool {
		return (o.Spec.Replicas > 0) != (n.Spec.Replicas > 0) || facts.RevisionOf(o) != facts.RevisionOf(n)
	})
}
