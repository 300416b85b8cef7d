// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// machineChanged is for machines that come and go, that fail, and whose evidence was stored.
func machineChanged() predicate.Predicate {
	return shoot.OnUpdate(func(o, n *machinev1alpha1.Machine) bool {
		return retention.FailureOf(o) != retention.FailureOf(n) || o.Annotations[v1alpha1.AnnotationEvidence] != n.Annotations[v1alpha1.AnnotationEvidence]
	})
}
