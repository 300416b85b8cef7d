// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The conditions by which others see a drain", func() {
	const by = Writer("MachinePreservation")
	var (
		began = builder.Start.Add(time.Hour)
		ended = began.Add(time.Minute)
		// is a condition as it was written at a time.
		is = func(t corev1.NodeConditionType, status corev1.ConditionStatus, message string, since, heartbeat time.Time) corev1.NodeCondition {
			return corev1.NodeCondition{Type: t, Status: status, Reason: string(by), Message: message, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(heartbeat)}
		}
		node *corev1.Node
		// shown are the conditions besides Ready.
		shown = func() []corev1.NodeCondition { return node.Status.Conditions[1:] }
		// kubectl writes what kubectl drain does with --report-node-conditions.
		kubectl = func(inProgress, drained corev1.ConditionStatus, reason string) {
			builder.Condition("DrainInProgress", inProgress, reason, "kubectl")(node)
			builder.Condition("Drained", drained, reason, "kubectl")(node)
		}
	)
	BeforeEach(func() { node = builder.Node("n") })

	It("D13: should say that a drain has begun, that it has ended, and nothing any more", func() {
		by.Show(node, NoDrain, UnderWay, "It drains.", began)
		Expect(shown()).To(HaveExactElements(is("DrainInProgress", "True", "It drains.", began, began), is("Drained", "False", "It drains.", began, began)))
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		Expect(shown()).To(HaveExactElements(is("DrainInProgress", "False", "It has drained.", ended, ended), is("Drained", "True", "It has drained.", ended, ended)))
		by.Show(node, Over, UnderWay, "It drains again.", ended.Add(time.Minute))
		Expect(shown()).To(HaveExactElements(HaveField("Status", corev1.ConditionTrue), HaveField("Status", corev1.ConditionFalse)))
		by.Show(node, UnderWay, NoDrain, "", ended)
		Expect(shown()).To(BeEmpty())
	})

	It("D13: should say at the end what was not said at the begin, because it was not to be", func() {
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		Expect(shown()).To(HaveLen(2))
	})

	DescribeTable("D13: should write nothing while the drain is as far as it was, whatever somebody does", func(somebody func()) {
		by.Show(node, NoDrain, UnderWay, "It drains.", began)
		somebody()
		theirs := node.DeepCopy().Status.Conditions
		by.Show(node, UnderWay, UnderWay, "It drains on.", ended)
		Expect(node.Status.Conditions).To(Equal(theirs))
	},
		Entry("nothing", func() {}),
		Entry("one is removed", func() { node.Status.Conditions = node.Status.Conditions[:2] }),
		Entry("both are removed", func() { node.Status.Conditions = node.Status.Conditions[:1] }),
		Entry("another drain is reported", func() { kubectl("True", "False", "KubectlDrainStarted") }),
	)

	DescribeTable("D13: should leave what somebody else has written, at the begin, at the end, and after it", func(status, other corev1.ConditionStatus, reason string, first bool) {
		if !first {
			by.Show(node, NoDrain, UnderWay, "It drains.", began)
		}
		kubectl(status, other, reason)
		theirs := node.DeepCopy().Status.Conditions
		if first {
			by.Show(node, NoDrain, UnderWay, "It drains.", began)
		}
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		by.Say(node, "It has drained more.")
		Expect(by.HasWritten(node)).To(BeFalse())
		by.Show(node, Over, NoDrain, "", ended)
		ClearAll(node)
		Expect(node.Status.Conditions).To(Equal(theirs))
	},
		Entry("their drain has ended before", corev1.ConditionFalse, corev1.ConditionTrue, "KubectlDrainCompleted", true),
		Entry("their drain is under way", corev1.ConditionTrue, corev1.ConditionFalse, "KubectlDrainStarted", true),
		Entry("their drain begins meanwhile", corev1.ConditionTrue, corev1.ConditionFalse, "KubectlDrainStarted", false),
		Entry("their drain ends meanwhile", corev1.ConditionFalse, corev1.ConditionTrue, "KubectlDrainCompleted", false),
	)

	It("D13: should go on with the one that is nobody else's", func() {
		by.Show(node, NoDrain, UnderWay, "It drains.", began)
		builder.Condition("Drained", corev1.ConditionUnknown, "AdminRequested", "")(node)
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		Expect(shown()).To(HaveExactElements(HaveField("Status", corev1.ConditionFalse), And(HaveField("Status", corev1.ConditionUnknown), HaveField("Reason", "AdminRequested"))))
		by.Clear(node)
		Expect(shown()).To(HaveExactElements(HaveField("Reason", "AdminRequested")))
	})

	DescribeTable("D13: should go from one of ours to another", func(before, after Writer) {
		before.Show(node, NoDrain, UnderWay, "It drains.", began)
		after.Show(node, NoDrain, UnderWay, "It drains for something else.", ended)
		before.Clear(node)
		Expect(shown()).To(HaveEach(HaveField("Reason", string(after))))
		Expect(shown()[0].LastTransitionTime.Time).To(Equal(began), "it was so before")
		ClearAll(node)
		Expect(shown()).To(BeEmpty())
	},
		Entry("a maintenance of a machine that failed before", WriterPreservation, WriterMaintenance),
		Entry("an update", WriterMaintenance, WriterUpdate),
	)

	DescribeTable("D13, M16: should leave what is said of a maintenance until that hands over", func(reason string, shows bool, said ...corev1.ConditionStatus) {
		WriterMaintenance.Show(node, UnderWay, Over, "It is drained for a maintenance.", began)
		theirs := node.DeepCopy().Status.Conditions
		by.Show(node, NoDrain, UnderWay, "It drains.", ended)
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		by.Show(node, Over, NoDrain, "", ended)
		Expect(node.Status.Conditions).To(Equal(theirs))

		builder.Condition("Preserved", corev1.ConditionTrue, reason, "")(node)
		HandOver(node, shows, ended)
		Expect(WriterMaintenance.HasWritten(node)).To(BeFalse())
		is := []corev1.ConditionStatus{}
		for _, t := range []corev1.NodeConditionType{ConditionDrainInProgress, ConditionDrained} {
			if i := slices.IndexFunc(shown(), func(c corev1.NodeCondition) bool { return c.Type == t && c.Reason == string(by) }); i >= 0 {
				is = append(is, shown()[i].Status)
			}
		}
		Expect(is).To(Equal(said))

		by.Clear(node)
		HandOver(node, shows, ended)
		Expect(by.HasWritten(node)).To(BeFalse(), "somebody has removed it, and there is no maintenance any more")
	},
		Entry("the preservation drains", "DrainBlocked", true, corev1.ConditionTrue, corev1.ConditionFalse),
		Entry("the preservation has drained", "Drained", true, corev1.ConditionFalse, corev1.ConditionTrue),
		Entry("the preservation does not drain", "Preserved", true),
		Entry("nobody is to see it", "Draining", false),
	)

	It("D13: should change the text of what it has said, and remove a single one", func() {
		by.Show(node, UnderWay, Over, "It has drained.", ended)
		by.Say(node, "It drains again.")
		Expect(shown()).To(HaveExactElements(is("DrainInProgress", "False", "It drains again.", ended, ended), is("Drained", "True", "It drains again.", ended, ended)))
		by.Clear(node, ConditionDrainInProgress)
		Expect(shown()).To(HaveExactElements(HaveField("Type", ConditionDrained)))
	})

	DescribeTable("D13: whether somebody else could have written meanwhile what is changed", func(edit func(), touches bool) {
		builder.Condition("Drained", corev1.ConditionTrue, "MachinePreservation", "a")(node)
		before := node.DeepCopy()
		edit()
		Expect(Touches(before, node)).To(Equal(touches))
	},
		Entry("nothing", func() {}, false),
		Entry("another condition", func() { builder.Condition("Preserved", "", "", "")(node) }, false),
		Entry("one comes", func() { builder.Condition("DrainInProgress", "", "", "")(node) }, true),
		Entry("one goes", func() { by.Clear(node) }, true),
		Entry("one says something else", func() { by.Say(node, "b") }, true),
	)

	It("D13, M16: what is not said because of a maintenance could be said by now", func() {
		WriterMaintenance.Show(node, UnderWay, Over, "It is drained for a maintenance.", began)
		before := node.DeepCopy()
		builder.Condition("KernelDeadlock", corev1.ConditionTrue, "", "")(node)
		Expect(Touches(before, node)).To(BeFalse())
		builder.Condition("Preserved", corev1.ConditionTrue, "Draining", "")(node)
		Expect(Touches(before, node)).To(BeTrue())
	})
})
