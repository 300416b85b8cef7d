// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// MachinePredicate selects Machines when they come or go, and when what is decided on changes.
func MachinePredicate() predicate.Predicate {
	keys := []string{v1alpha1.AnnotationPowerCyclePhase, v1alpha1.AnnotationPowerCycleRecord, v1alpha1.AnnotationPowerCycleGrant}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return e.ObjectOld.GetAnnotations()[key] != e.ObjectNew.GetAnnotations()[key] })
	}}
}
