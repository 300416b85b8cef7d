// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package clusterautoscaler_test

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/event"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/clusterautoscaler"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("#ShareChangedPredicate", func() {
	DescribeTable("should select MachineDeployments whose share has changed",
		func(before, after *machinev1alpha1.MachineDeployment, selected bool) {
			Expect(ShareChangedPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(selected))
		},
		Entry("first share", builder.Deployment("a"), builder.Deployment("a", builder.Share("1")), true),
		Entry("another share", builder.Deployment("a", builder.Share("1")), builder.Deployment("a", builder.Share("0")), true),
		Entry("share is taken away", builder.Deployment("a", builder.Share("1")), builder.Deployment("a"), true),
		Entry("replicas", builder.Deployment("a", builder.Share("1")), builder.Deployment("a", builder.Share("1"), builder.Replicas(7)), false),
	)

	It("should select MachineDeployments that come or go", func() {
		Expect(ShareChangedPredicate().Create(event.CreateEvent{Object: builder.Deployment("a")})).To(BeTrue())
		Expect(ShareChangedPredicate().Delete(event.DeleteEvent{Object: builder.Deployment("a")})).To(BeTrue())
	})
})
