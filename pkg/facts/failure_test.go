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

var _ = Describe("Why a machine has failed", func() {
	DescribeTable("P15: the first of the bad conditions", func(want string, conditions ...corev1.NodeCondition) {
		m := Member{Machine: Machine("m"), Node: Node("m", func(n *corev1.Node) { n.Status.Conditions = conditions })}
		Expect(FailureReason(m, []string{"Bad", "Worse"})).To(Equal(want))
		bad := FirstBad(m, []string{"Bad", "Worse"})
		if want == ReasonUnknown {
			Expect(bad).To(BeNil())
		} else {
			Expect(bad.Type).To(BeEquivalentTo(want))
		}
	},
		Entry("of those that make it unhealthy", "Bad", condition("Ready", "Unknown", 3), condition("Bad", "True", 2), condition("Worse", "False", 1), condition("Odd", "True", 1)),
		Entry("in any order", "Bad", condition("Bad", "True", 2), condition("Ready", "False", 3)),
		Entry("by name, of two that came together", "Bad", condition("Worse", "True", 2), condition("Bad", "True", 2)),
		Entry("Ready, of a kubelet that fell silent, of which nobody knows any", "Ready", condition("Bad", "Unknown", 3), condition("Ready", "Unknown", 3)),
		Entry("one of which nobody knows, though the kubelet answers", "Bad", condition("Bad", "Unknown", 3), condition("Ready", "True", 1)),
		Entry("what a kubelet said before it fell silent", "Bad", condition("Bad", "True", 1), condition("Ready", "Unknown", 3)),
		Entry("none, of a healthy node", ReasonUnknown, condition("Bad", "False", 1), condition("Ready", "True", 3)),
	)

	DescribeTable("where no condition of its node says it", func(want string, node *corev1.Node, opts ...MachineOption) {
		Expect(FailureReason(Member{Machine: Machine("m", opts...), Node: node}, []string{"Bad"})).To(Equal(want))
	},
		Entry("it never joined", ReasonNeverJoined, nil, NeverJoined),
		Entry("its node is gone", ReasonNodeGone, nil),
		Entry("what the Machine says of the node that is gone", "Ready", nil, func(m *machinev1alpha1.Machine) {
			m.Status.Conditions = []corev1.NodeCondition{condition("Ready", "False", 1)}
		}),
		Entry("its update in place, whatever else is bad", ReasonInPlaceUpdateFailed, Node("m", NotReady), Phase(machinev1alpha1.MachineInPlaceUpdateFailed, Start)),
		Entry("a condition of its own list", "GPUBroken", Node("m", Condition("GPUBroken", "True", "", "")), func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{NodeConditions: new("GPUBroken")}
		}),
		Entry("nobody knows", ReasonUnknown, Node("m")),
	)
})
