// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package clusterautoscaler_test

import (
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
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

var _ = Describe("#ExtensionReconciledPredicate", func() {
	extension := func(extensionType string, state gardencorev1beta1.LastOperationState) *extensionsv1alpha1.Extension {
		extension := &extensionsv1alpha1.Extension{}
		extension.Spec.Type = extensionType
		if state != "" {
			extension.Status.LastOperation = &gardencorev1beta1.LastOperation{State: state}
		}
		return extension
	}

	DescribeTable("should select our Extensions that have been reconciled",
		func(extensionType string, before, after gardencorev1beta1.LastOperationState, selected bool) {
			Expect(ExtensionReconciledPredicate().Update(event.UpdateEvent{ObjectOld: extension(extensionType, before), ObjectNew: extension(extensionType, after)})).To(Equal(selected))
		},
		Entry("first", "machine-preservation", gardencorev1beta1.LastOperationState(""), gardencorev1beta1.LastOperationStateSucceeded, true),
		Entry("again", "machine-preservation", gardencorev1beta1.LastOperationStateProcessing, gardencorev1beta1.LastOperationStateSucceeded, true),
		Entry("beginning", "machine-preservation", gardencorev1beta1.LastOperationStateSucceeded, gardencorev1beta1.LastOperationStateProcessing, false),
		Entry("failed", "machine-preservation", gardencorev1beta1.LastOperationStateProcessing, gardencorev1beta1.LastOperationStateError, false),
		Entry("another change", "machine-preservation", gardencorev1beta1.LastOperationStateSucceeded, gardencorev1beta1.LastOperationStateSucceeded, false),
		Entry("another type", "foo", gardencorev1beta1.LastOperationStateProcessing, gardencorev1beta1.LastOperationStateSucceeded, false),
	)

	It("should leave out Extensions that come or go", func() {
		object := extension("machine-preservation", gardencorev1beta1.LastOperationStateSucceeded)
		Expect(ExtensionReconciledPredicate().Create(event.CreateEvent{Object: object})).To(BeFalse())
		Expect(ExtensionReconciledPredicate().Delete(event.DeleteEvent{Object: object})).To(BeFalse())
	})
})
