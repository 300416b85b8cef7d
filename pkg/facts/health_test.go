// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("H1: whether a machine is healthy, and since when", func(conditions []corev1.NodeCondition, own *string, since int, want bool) {
	node := Node("n", func(n *corev1.Node) { n.Status.Conditions = conditions })
	machine := Machine("m", func(m *machinev1alpha1.Machine) {
		m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{NodeConditions: own}
	})
	from, healthy := HealthySince(Member{Machine: machine, Node: node}, []string{"Bad"})
	Expect(healthy).To(Equal(want))
	Expect(IsHealthy(Member{Machine: machine, Node: node}, []string{"Bad"})).To(Equal(want))
	if want {
		Expect(from).To(BeTemporally("==", at(since)))
	}
},
	Entry("ready", []corev1.NodeCondition{condition("Ready", "True", 1)}, nil, 1, true),
	Entry("not ready", []corev1.NodeCondition{condition("Ready", "Unknown", 1)}, nil, 0, false),
	Entry("nobody knows whether it is ready", []corev1.NodeCondition{condition("Bad", "False", 1)}, nil, 0, false),
	Entry("since the last of its conditions changed", []corev1.NodeCondition{condition("Bad", "False", 3), condition("Ready", "True", 1)}, nil, 3, true),
	Entry("whichever comes first", []corev1.NodeCondition{condition("Ready", "True", 3), condition("Bad", "False", 1)}, nil, 3, true),
	Entry("a condition that makes it unhealthy", []corev1.NodeCondition{condition("Ready", "True", 1), condition("Bad", "True", 2)}, nil, 0, false),
	Entry("or of which nobody knows", []corev1.NodeCondition{condition("Bad", "Unknown", 2), condition("Ready", "True", 1)}, nil, 0, false),
	Entry("one that does not", []corev1.NodeCondition{condition("Ready", "True", 1), condition("Odd", "True", 2)}, nil, 1, true),
	Entry("its own list of them", []corev1.NodeCondition{condition("Ready", "True", 1), condition("Odd", "True", 2)}, new("Worse,Odd"), 0, false),
	Entry("instead of the default", []corev1.NodeCondition{condition("Ready", "True", 1), condition("Bad", "True", 2)}, new("Worse,Odd"), 1, true),
)

var _ = It("H1: should not be healthy without a node", func() {
	Expect(IsHealthy(Member{Machine: Machine("m")}, nil)).To(BeFalse())
})

var _ = It("should know the timeouts of a machine: its own, and else the default", func() {
	Expect(DefaultTimeouts.For(Machine("m"))).To(Equal(DefaultTimeouts))
	Expect(DefaultTimeouts.For(Machine("m", func(m *machinev1alpha1.Machine) {
		m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}}
	}))).To(Equal(Timeouts{Health: time.Minute, Creation: DefaultTimeouts.Creation, Drain: DefaultTimeouts.Drain}))
	Expect(DefaultTimeouts.For(Machine("m", func(m *machinev1alpha1.Machine) {
		m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: time.Minute}, MachineDrainTimeout: &metav1.Duration{Duration: time.Second},
		}
	}))).To(Equal(Timeouts{Health: DefaultTimeouts.Health, Creation: time.Minute, Drain: time.Second}))
})

func condition(t, status string, changed int) corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeConditionType(t), Status: corev1.ConditionStatus(status), LastTransitionTime: metav1.NewTime(at(changed))}
}
