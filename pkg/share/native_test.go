// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = DescribeTable("How many machines machine-controller-manager may preserve by itself",
	func(current, share int32, known bool, preserved int, atWork time.Duration, want int32) {
		Expect(NativeMax(current, Settings{AutoPreserveFailedMax: share}, known, preserved, atWork)).To(Equal(want))
	},
	Entry("as many as until now, when it has preserved so many and nobody else is at work", int32(2), int32(2), true, 2, time.Duration(0), int32(2)),
	Entry("as many as until now, while nobody else is at work who would preserve what fails", int32(2), int32(2), true, 0, time.Duration(0), int32(2)),
	Entry("as many as until now, when it has preserved fewer: a lower number costs more than one of them", int32(3), int32(3), true, 2, time.Duration(0), int32(3)),
	Entry("as many as until now, when it has preserved more, and gives them up already", int32(1), int32(2), true, 2, time.Duration(0), int32(1)),
	Entry("as many as until now, when there are not places for all of them", int32(3), int32(1), true, 3, time.Duration(0), int32(3)),
	Entry("none, when there is no place for any", int32(3), int32(0), true, 3, time.Duration(0), int32(0)),
	Entry("as many as until now, while the preservation controller is taking over", int32(2), int32(2), true, 1, 59*time.Second, int32(2)),
	Entry("as many as until now, while the preservation controller does not know the share", int32(2), int32(2), false, 2, time.Hour, int32(2)),
	Entry("none, when the preservation controller has taken over all", int32(2), int32(2), true, 0, time.Second, int32(0)),
	Entry("none, when the preservation controller has left some", int32(2), int32(2), true, 1, time.Minute, int32(0)),
	Entry("none, when it may preserve none already", int32(0), int32(2), true, 2, time.Duration(0), int32(0)),
)

var _ = It("P20: machine-controller-manager may never preserve more by itself because the zones of a pool share the places", func() {
	settings := Settings{AutoPreserveFailedMax: 5, SharedIn: "worker"}
	for _, current := range []int32{0, 1, 5} {
		for _, atWork := range []time.Duration{0, time.Second, time.Hour} {
			native := NativeMax(current, settings, true, 1, atWork)
			Expect(native).To(BeNumerically("<=", current))
			deployment := &machinev1alpha1.MachineDeployment{Spec: machinev1alpha1.MachineDeploymentSpec{AutoPreserveFailedMachineMax: current}}
			Apply(deployment, settings, true, native)
			Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(Equal(native))
		}
	}
})
