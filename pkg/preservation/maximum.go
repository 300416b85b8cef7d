// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// FailedAtMaximum returns how many machines of a MachineDeployment are in Failed:Preserved while it has as many machines as the
// cluster-autoscaler lets it have: they count as replicas and take no pods, so that pods may wait for a machine that is not added. It is
// 0 while the MachineDeployment may have more (P2).
func (g Group) FailedAtMaximum() (failed int) {
	if !g.AtMaximum() {
		return 0
	}
	for _, m := range g.Members {
		if record := ReadRecord(m.Machine); record != nil && record.Failed && m.Machine.DeletionTimestamp == nil {
			failed++
		}
	}
	return failed
}

// AtMaximum says in words that failed machines keep the pool of a MachineDeployment at its maximum in a zone. Not every provider
// names the zone.
func AtMaximum(deployment *machinev1alpha1.MachineDeployment, failed int) string {
	labels := deployment.Spec.Template.Spec.NodeTemplateSpec.Labels
	pool, zone := "The pool", "its zone"
	if name := labels[facts.LabelPool]; name != "" {
		pool = "Pool " + name
	}
	if name := labels[corev1.LabelTopologyZone]; name != "" {
		zone = "zone " + name
	}
	are := "are"
	if failed == 1 {
		are = "is"
	}
	return fmt.Sprintf("%s is at its maximum of %s in %s because %s %s preserved. The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised",
		pool, brief.Count(facts.PoolOf(deployment).Maximum, "machine"), zone, brief.Count(failed, "failed machine"), are)
}
