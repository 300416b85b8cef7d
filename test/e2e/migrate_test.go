// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// restoredEndurance is for how long preservations must hold after a migration: machine-controller-manager takes a
// restored Machine for a new one, which has failed if it does not get Running within its creation timeout of two
// minutes.
const restoredEndurance = 150 * time.Second

// migrate moves the control plane to another seed. Machines are restored without their status and with another UID;
// what they stand for is not touched, and what is preserved stays so.
func (s *switching) migrate(all, preserved []*preserved) {
	s.t.Helper()
	s.Expect(seed.WaitForShoot(s.ctx, s.landscape.Seed.Config, shootName)).To(Succeed())
	before := s.virtualMachinesAndNodes()

	start := time.Now()
	s.Expect(seed.MigrateShoot(s.ctx, s.landscape.Seed.Config, shootName)).To(Succeed())
	s.until = time.Now().Add(restoredEndurance)
	for _, p := range all {
		for _, machine := range []*machinev1alpha1.Machine{p.machine, p.bystander} {
			s.Eventually(func(g Gomega) {
				restored := &machinev1alpha1.Machine{}
				g.Expect(s.Seed.Get(s.ctx, client.ObjectKeyFromObject(machine), restored)).To(Succeed())
				g.Expect(restored.UID).NotTo(Equal(machine.UID))
				machine.UID = restored.UID
			}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
		}
	}
	s.t.Logf("Migrated with machine-controller-manager %s in %s", s.generation, time.Since(start).Round(time.Second))

	s.endure(preserved)
	s.Expect(s.virtualMachinesAndNodes()).To(Equal(before))
}

// virtualMachinesAndNodes returns the names of what Machines stand for, by UID.
func (s *switching) virtualMachinesAndNodes() map[types.UID]string {
	s.t.Helper()
	names := map[types.UID]string{}
	pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
	s.Expect(s.Seed.List(s.ctx, pods, client.InNamespace(seed.MachineNamespace(shootName)))).To(Succeed())
	for _, pod := range pods.Items {
		names[pod.UID] = "Pod " + pod.Name
	}
	s.Expect(s.Shoot.List(s.ctx, nodes)).To(Succeed())
	for _, node := range nodes.Items {
		names[node.UID] = "Node " + node.Name
	}
	return names
}
