// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("P3, M15: what a node says of an update in place", func(reason string, selected, updated bool) {
	node := Node("n", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "InPlaceUpdate", Status: corev1.ConditionTrue, Reason: reason})
	})
	Expect(IsSelectedForUpdate(node)).To(Equal(selected))
	Expect(IsUpdatedInPlace(node)).To(Equal(updated))
},
	Entry("it may be updated", "CandidateForUpdate", false, false),
	Entry("it is selected", "SelectedForUpdate", true, true),
	Entry("it is drained", "DrainSuccessful", false, true),
	Entry("it may be updated now", "ReadyForUpdate", false, true),
	Entry("it was updated", "UpdateSuccessful", false, false),
	Entry("it was not", "UpdateFailed", false, false),
)

var _ = It("should know the phases of machine-controller-manager, and no others", func() {
	for _, phase := range []machinev1alpha1.MachinePhase{"", "Pending", "Available", "Running", "Unknown", "Failed", "Terminating", "CrashLoopBackOff",
		"InPlaceUpdating", "InPlaceUpdateSuccessful", "InPlaceUpdateFailed"} {
		Expect(IsPhaseKnown(Machine("m", Phase(phase, Start)))).To(BeTrue(), string(phase))
	}
	for _, phase := range []machinev1alpha1.MachinePhase{"Rebooting", "Maintenance", "running"} {
		Expect(IsPhaseKnown(Machine("m", Phase(phase, Start)))).To(BeFalse(), string(phase))
	}
})

var _ = It("should say nothing of an update in place without a node", func() {
	Expect(IsSelectedForUpdate(nil) || IsUpdatedInPlace(nil)).To(BeFalse())
})

var _ = It("should know a node that is ready, and one that is maintained", func() {
	Expect(IsReady(Node("n"))).To(BeTrue())
	Expect(IsReady(Node("n", NotReady))).To(BeFalse())
	Expect(IsReady(&corev1.Node{})).To(BeFalse())
	Expect(IsMaintained(Node("n"))).To(BeFalse())
	Expect(IsMaintained(Node("n", NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "")))).To(BeTrue())
})
