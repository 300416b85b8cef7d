// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The conditions by which others see a drain", func() {
	var (
		began = builder.Start.Add(time.Hour)
		ended = began.Add(time.Minute)
		// is a condition as it was written at a time.
		is = func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, since, heartbeat time.Time) corev1.NodeCondition {
			return corev1.NodeCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(heartbeat)}
		}
		node *corev1.Node
		// shown are the conditions besides Ready.
		shown = func() []corev1.NodeCondition { return node.Status.Conditions[1:] }
		// kubectl writes what kubectl drain does with --report-node-conditions.
		kubectl = func(inProgress, drained corev1.ConditionStatus, reason string) {
			for t, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{"DrainInProgress": inProgress, "Drained": drained} {
				builder.Condition(t, status, reason, "kubectl")(node)
			}
		}
		by = Writer("MachinePreservation")
	)
	BeforeEach(func() { node = builder.Node("n") })

	It("should say that a drain has begun, and that it has ended", func() {
		by.Begin(node, "It drains.", began)
		Expect(shown()).To(HaveExactElements(
			is("DrainInProgress", "True", "MachinePreservation", "It drains.", began, began), is("Drained", "False", "MachinePreservation", "It drains.", began, began)))
		by.End(node, "It has drained.", ended)
		Expect(shown()).To(HaveExactElements(
			is("DrainInProgress", "False", "MachinePreservation", "It has drained.", ended, ended), is("Drained", "True", "MachinePreservation", "It has drained.", ended, ended)))
		by.Begin(node, "It drains.", ended.Add(time.Minute))
		Expect(shown()[1].Status).To(Equal(corev1.ConditionFalse), "what a drain before has said is over")
		by.Clear(node)
		Expect(shown()).To(BeEmpty())
	})

	It("should say at the end what nobody has said at the begin, because it began in an earlier version", func() {
		by.End(node, "It has drained.", ended)
		Expect(shown()).To(HaveLen(2))
	})

	It("should take the place of what a drain by somebody else has said that is over", func() {
		kubectl("False", "True", "KubectlDrainCompleted")
		by.Begin(node, "It drains.", began)
		Expect(shown()).To(ConsistOf(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "MachinePreservation")), And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "MachinePreservation"))))
	})

	DescribeTable("should leave what somebody else says of a drain of theirs", func(status corev1.ConditionStatus, reason string, first bool) {
		if !first {
			by.Begin(node, "It drains.", began)
		}
		kubectl(status, map[corev1.ConditionStatus]corev1.ConditionStatus{"True": "False", "False": "True"}[status], reason)
		theirs := node.DeepCopy().Status.Conditions
		if first {
			by.Begin(node, "It drains.", began)
		}
		by.End(node, "It has drained.", ended)
		by.Clear(node)
		Expect(node.Status.Conditions).To(Equal(theirs))
	},
		Entry("it is under way when ours begins", corev1.ConditionTrue, "KubectlDrainStarted", true),
		Entry("it begins meanwhile", corev1.ConditionTrue, "KubectlDrainStarted", false),
		Entry("it ends meanwhile", corev1.ConditionFalse, "KubectlDrainCompleted", false),
	)

	It("should leave at the end the one that somebody else has written meanwhile", func() {
		by.Begin(node, "It drains.", began)
		builder.Condition("Drained", corev1.ConditionUnknown, "AdminRequested", "")(node)
		by.End(node, "It has drained.", ended)
		Expect(shown()).To(HaveExactElements(HaveField("Status", corev1.ConditionFalse), And(HaveField("Status", corev1.ConditionUnknown), HaveField("Reason", "AdminRequested"))))
	})

	It("should go from one of ours to another", func() {
		Writer("NodeMaintenance").Begin(node, "It is under maintenance.", began)
		by.Begin(node, "It drains.", ended)
		Writer("NodeMaintenance").Clear(node)
		Expect(shown()).To(HaveEach(HaveField("Reason", "MachinePreservation")))
		Expect(shown()[0].LastTransitionTime.Time).To(Equal(began), "it was so before")
	})

	It("should change the text of what it has said, and nothing else", func() {
		by.Say(node, "It drains again.")
		Expect(shown()).To(BeEmpty())
		kubectl("True", "False", "KubectlDrainStarted")
		by.Say(node, "It drains again.")
		Expect(shown()).To(HaveEach(HaveField("Message", "kubectl")))
		node = builder.Node("n")
		by.End(node, "It has drained.", ended)
		by.Say(node, "It drains again.")
		Expect(shown()).To(HaveExactElements(
			is("DrainInProgress", "False", "MachinePreservation", "It drains again.", ended, ended), is("Drained", "True", "MachinePreservation", "It drains again.", ended, ended)))
	})
})
