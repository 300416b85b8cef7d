// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package clusterautoscaler

import (
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// ShareChangedPredicate selects MachineDeployments when they come or go or get another share.
func ShareChangedPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationAutoPreserveFailedMax] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationAutoPreserveFailedMax]
	}}
}

// ExtensionReconciledPredicate selects our Extensions when they have been reconciled.
func ExtensionReconciledPredicate() predicate.Predicate {
	return predicate.And(
		predicateutils.HasType(v1alpha1.ExtensionType),
		predicateutils.HasClass(extensionsv1alpha1.ExtensionClassShoot),
		predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { return !hasSucceeded(e.ObjectOld) && hasSucceeded(e.ObjectNew) },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		},
	)
}

func hasSucceeded(object client.Object) bool {
	operation := predicateutils.GetExtensionLastOperation(object)
	return operation != nil && operation.State == gardencorev1beta1.LastOperationStateSucceeded
}
