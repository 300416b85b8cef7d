// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"maps"
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

func machineChanged() predicate.Predicate {
	return shoot.OnUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return !apiequality.Semantic.DeepEqual(o.Status.CurrentStatus, n.Status.CurrentStatus) ||
			!maps.Equal(o.Annotations, n.Annotations) ||
			!slices.Equal(o.Finalizers, n.Finalizers) ||
			!apiequality.Semantic.DeepEqual(o.Spec.MachineConfiguration, n.Spec.MachineConfiguration) ||
			o.Spec.ProviderID != n.Spec.ProviderID ||
			o.Labels[machinev1alpha1.NodeLabelKey] != n.Labels[machinev1alpha1.NodeLabelKey] ||
			o.DeletionTimestamp.IsZero() != n.DeletionTimestamp.IsZero()
	})
}

func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		o, n := e.ObjectOld, e.ObjectNew
		return !maps.Equal(o.Annotations, n.Annotations) ||
			!apiequality.Semantic.DeepEqual(o.Spec.Taints, n.Spec.Taints) ||
			o.Status.NodeInfo.BootID != n.Status.NodeInfo.BootID ||
			!slices.EqualFunc(o.Status.Conditions, n.Status.Conditions, func(o, n corev1.NodeCondition) bool {
				return o.Type == n.Type && o.Status == n.Status && o.Reason == n.Reason && o.LastTransitionTime.Equal(&n.LastTransitionTime)
			})
	}}
}

// readinessChanged is for nodes that begin or cease to be ready, or to be there.
func readinessChanged() predicate.TypedPredicate[*corev1.Node] {
	return shoot.OnNodeChange(facts.IsReady)
}

// phaseChanged is for machines that there are no more, and for those whose cycle has gone on.
func phaseChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationPowerCyclePhase] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationPowerCyclePhase]
		},
	}
}

// roomChanged is for machines that may make room for a power cycle of another: those of phaseChanged, and those whose node dependency-
// watchdog begins or ceases to look at.
func roomChanged() predicate.Predicate {
	other := phaseChanged()
	return predicate.Funcs{CreateFunc: other.Create, DeleteFunc: other.Delete, GenericFunc: other.Generic, UpdateFunc: func(e event.UpdateEvent) bool {
		o, n := e.ObjectOld.(*machinev1alpha1.Machine), e.ObjectNew.(*machinev1alpha1.Machine)
		return other.Update(e) || remediation.IsUnwatched(o) != remediation.IsUnwatched(n)
	}}
}
