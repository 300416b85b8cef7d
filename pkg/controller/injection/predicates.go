// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"maps"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// DeploymentPredicate selects the Deployments of machine-controller-manager, when they come or their specification or
// their labels change. By a label, the webhook is called for them.
func DeploymentPredicate() predicate.Predicate {
	return predicate.And(hasName(v1beta1constants.DeploymentNameMachineControllerManager), predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// AccessSecretPredicate selects Secrets without which the preservation controller is not injected, when they come.
func AccessSecretPredicate() predicate.Predicate {
	return predicate.And(hasName(preservationcontroller.AccessSecretName), predicate.Funcs{
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

func hasName(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
}
