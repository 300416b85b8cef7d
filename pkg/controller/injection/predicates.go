// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"maps"
	"slices"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// DeploymentPredicate selects the Deployments of machine-controller-manager, when they come, their specification or their
// labels change, or all of their pods have become ready. By a label, the webhook is called for them.
func DeploymentPredicate() predicate.Predicate {
	return predicate.And(hasName(v1beta1constants.DeploymentNameMachineControllerManager), predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isDeployment := e.ObjectOld.(*appsv1.Deployment)
			if !isDeployment {
				return false
			}
			after, isDeployment := e.ObjectNew.(*appsv1.Deployment)
			return isDeployment && (before.Generation != after.Generation || !maps.Equal(before.Labels, after.Labels) ||
				!machinecontrollermanager.IsComplete(before) && machinecontrollermanager.IsComplete(after))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// AccessSecretPredicate selects Secrets without whose token the preservation controller is not injected, when they or
// their first token come, or it is to begin or end to take care of NodeMaintenances, to store evidence, to tell of failures, or to power-cycle hosts.
func AccessSecretPredicate() predicate.Predicate {
	hasToken := func(object client.Object) bool {
		return object.GetAnnotations()[resourcesv1alpha1.ServiceAccountTokenRenewTimestamp] != ""
	}
	return predicate.And(hasName(preservationcontroller.AccessSecretName), predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
			return !hasToken(e.ObjectOld) && hasToken(e.ObjectNew) ||
				slices.ContainsFunc(preservationcontroller.Marks, func(mark string) bool { return before[mark] != after[mark] })
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

func hasName(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
}
