// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/validation"
)

var _ = Describe("Pool", func() {
	DescribeTable("#Limit",
		func(pool Pool, limit int) { Expect(pool.Limit()).To(BeEquivalentTo(limit)) },
		Entry("without system components", Pool{Maximum: 3}, 3),
		Entry("with system components", Pool{Maximum: 3, SystemComponents: true}, 2),
		Entry("empty pool", Pool{Maximum: 0, SystemComponents: true}, 0),
	)

	It("should be the same whether read from the Shoot or from the Worker", func() {
		expected := []Pool{
			{Name: "a", Maximum: 3, SystemComponents: true},
			{Name: "b", Maximum: 4, SystemComponents: true},
			{Name: "c", Maximum: 5, OwnNumber: true},
			{Name: "d", Maximum: 6},
		}
		number := &gardencorev1beta1.MachineControllerManagerSettings{AutoPreserveFailedMachineMax: new(int32(0))}
		timeout := &gardencorev1beta1.MachineControllerManagerSettings{MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour}}

		Expect(PoolsOfShoot([]gardencorev1beta1.Worker{
			{Name: "a", Maximum: 3},
			{Name: "b", Maximum: 4, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: true}},
			{Name: "c", Maximum: 5, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: false}, MachineControllerManagerSettings: number},
			{Name: "d", Maximum: 6, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: false}, MachineControllerManagerSettings: timeout},
		})).To(Equal(expected))

		labels := map[string]string{"worker.gardener.cloud/system-components": "true"}
		Expect(PoolsOfWorker(&extensionsv1alpha1.Worker{Spec: extensionsv1alpha1.WorkerSpec{Pools: []extensionsv1alpha1.WorkerPool{
			{Name: "a", Maximum: 3, Labels: labels},
			{Name: "b", Maximum: 4, Labels: labels},
			{Name: "c", Maximum: 5, MachineControllerManagerSettings: number},
			{Name: "d", Maximum: 6, MachineControllerManagerSettings: timeout},
		}}})).To(Equal(expected))
	})
})
