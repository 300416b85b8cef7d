// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"maps"
	"slices"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// WorkerPredicate selects Workers whose specification changes, or what the cluster-autoscaler is told of their MachineDeployments.
func WorkerPredicate() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			oldWorker, ok := e.ObjectOld.(*extensionsv1alpha1.Worker)
			if !ok {
				return false
			}
			newWorker, ok := e.ObjectNew.(*extensionsv1alpha1.Worker)
			return ok && !slices.EqualFunc(oldWorker.Status.MachineDeployments, newWorker.Status.MachineDeployments, sameSizes)
		}},
	)
}

func sameSizes(a, b extensionsv1alpha1.MachineDeployment) bool {
	return a.Name == b.Name && a.Minimum == b.Minimum && a.Maximum == b.Maximum
}

// ExtensionPredicate selects Extensions that enable preservation, when their specification changes or they come or go.
func ExtensionPredicate() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(object client.Object) bool {
			extension, ok := object.(*extensionsv1alpha1.Extension)
			return ok && controlplane.EnablesPreservation(extension)
		}),
		predicate.GenerationChangedPredicate{},
	)
}

// MachineDeploymentPredicate selects MachineDeployments, unless only their status has changed.
func MachineDeploymentPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// MachineClassPredicate selects MachineClasses whose zone is new.
func MachineClassPredicate() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			oldClass, ok := e.ObjectOld.(*machinev1alpha1.MachineClass)
			if !ok {
				return false
			}
			newClass, ok := e.ObjectNew.(*machinev1alpha1.MachineClass)
			return ok && share.ZoneOf(oldClass) != share.ZoneOf(newClass)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
