// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("Pool", func() {
	DescribeTable("#Limit",
		func(pool Pool, limit int) { Expect(pool.Limit()).To(BeEquivalentTo(limit)) },
		Entry("without system components", Pool{Maximum: 3}, 3),
		Entry("with system components", Pool{Maximum: 3, SystemComponents: true}, 2),
		Entry("empty pool", Pool{Maximum: 0, SystemComponents: true}, 0),
	)

	It("should be that of the MachineDeployment's label, or of its nodes', where the provider does not write the label", func() {
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(PoolOf(deployment)).To(BeEmpty())
		deployment.Labels = map[string]string{"worker.gardener.cloud/pool": ""}
		deployment.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "of-nodes"}
		Expect(PoolOf(deployment)).To(Equal("of-nodes"))
		deployment.Labels["worker.gardener.cloud/pool"] = "own"
		Expect(PoolOf(deployment)).To(Equal("own"))
	})

	It("should be in the zone of the MachineClass, if that names one", func() {
		Expect(ZoneOf(&machinev1alpha1.MachineClass{})).To(BeEmpty())
		Expect(ZoneOf(&machinev1alpha1.MachineClass{NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "1"}})).To(Equal("1"))
	})

	It("should be the same whether read from the Shoot or from the Worker", func() {
		var (
			zones    = []string{"2", "1"}
			number   = new(int32(0))
			timeout  = &metav1.Duration{Duration: time.Hour}
			settings = &gardencorev1beta1.MachineControllerManagerSettings{AutoPreserveFailedMachineMax: number, MachinePreserveTimeout: timeout, MaxEvictRetries: new(int32(1))}
			labels   = map[string]string{"worker.gardener.cloud/system-components": "true"}
			expected = []Pool{
				{Name: "a", Maximum: 3, SystemComponents: true},
				{Name: "b", Maximum: 4, SystemComponents: true, Zones: zones},
				{Name: "c", Maximum: 5, AutoPreserveFailedMax: number, MachinePreserveTimeout: timeout},
			}
		)

		Expect(PoolsOfShoot([]gardencorev1beta1.Worker{
			{Name: "a", Maximum: 3},
			{Name: "b", Maximum: 4, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: true}, Zones: zones},
			{Name: "c", Maximum: 5, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: false}, MachineControllerManagerSettings: settings},
		})).To(Equal(expected))

		Expect(PoolsOfWorker(&extensionsv1alpha1.Worker{Spec: extensionsv1alpha1.WorkerSpec{Pools: []extensionsv1alpha1.WorkerPool{
			{Name: "a", Maximum: 3, Labels: labels},
			{Name: "b", Maximum: 4, Labels: labels, Zones: zones},
			{Name: "c", Maximum: 5, MachineControllerManagerSettings: settings},
		}}})).To(Equal(expected))
	})
})
