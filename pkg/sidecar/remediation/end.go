// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// End removes from all nodes of a shoot what power cycles have left there: the conditions, and the taint from those of machines
// that say it is ours (X15). It is to be called before that is forgotten of the machines. It returns the errors of all nodes,
// which do not keep others waiting: some are left then, and it may be called again.
func End(ctx context.Context, c client.Client, machines []machinev1alpha1.Machine) error {
	tainted := sets.New[string]()
	for i := range machines {
		if remediation.Tainted(&machines[i]) {
			tainted.Insert(machines[i].Labels[machinev1alpha1.NodeLabelKey])
		}
	}
	return shoot.EndEach(ctx, c, &corev1.NodeList{}, func(obj client.Object) ([]intent.Write, error) {
		return remediation.Clean(obj.(*corev1.Node), tainted.Has(obj.GetName())), nil
	})
}
