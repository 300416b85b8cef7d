// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// MachinePredicate selects Machines when they come or go, begin to be deleted, or enter another phase of their power cycle: deadlines
// follow from that.
func MachinePredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationPowerCyclePhase] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationPowerCyclePhase] ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
}

// MachineDeploymentPredicate selects MachineDeployments whose power cycles get other deadlines, or end.
func MachineDeploymentPredicate() predicate.Predicate {
	settings := func(object client.Object) string {
		return object.GetAnnotations()[v1alpha1.AnnotationPowerCycleSettings]
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return settings(e.ObjectOld) != settings(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return settings(e.Object) != "" },
	}
}

// AccessSecretPredicate selects Secrets that say that hosts may be off, when they come: so each control plane is looked at once after
// a start, as nothing else tells of hosts whose machine was gone before.
func AccessSecretPredicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return e.Object.GetName() == preservationcontroller.AccessSecretName && e.Object.GetAnnotations()[preservationcontroller.AnnotationPowerCycleSeed] != ""
		},
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
