// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation/failuredrain"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("P11: what a node shows of its drain, and what is told of it", func(shown, message string, progress drain.Progress, reason string, told ...string) {
	node := Node("m", Taint("node.machine.sapcloud.io/preserved", Start), Condition("Preserved", corev1.ConditionTrue, shown, message+until))
	before := node.DeepCopy()
	write, events := Show(node, progress, false, Start.Add(time.Hour))
	Expect(node).To(Equal(before), "it is a copy that is edited")
	Expect(write.Changes()).To(Equal(reason != ""))
	Expect(write.Status).To(BeTrue())
	if reason != "" {
		Expect(preservation.PreservedCondition(write.After.(*corev1.Node)).Reason).To(Equal(reason))
	}
	var reasons []string
	for _, event := range events {
		reasons = append(reasons, event.Type+" "+event.Reason)
	}
	Expect(reasons).To(HaveExactElements(told))
},
	Entry("progress", "Draining", "", drain.Progress{Evicted: 1}, "Draining"),
	Entry("the same again", "Draining", "Pods: 1 evicted. ", drain.Progress{Evicted: 1}, ""),
	Entry("that it is blocked", "Draining", "", drain.Progress{BlockedBy: []string{"namespace a: web"}}, "DrainBlocked", "Warning PreservedNodeDrainBlocked"),
	Entry("that it is blocked by another budget", "DrainBlocked", "", drain.Progress{BlockedBy: []string{"namespace a: db"}}, "DrainBlocked"),
	Entry("that it goes on", "DrainBlocked", "", drain.Progress{Evicted: 1}, "Draining"),
	Entry("that it forces", "Draining", "", drain.Progress{Forced: 1}, "Draining", "Warning PreservedNodeDrainForced"),
	Entry("that it forces and is blocked", "Draining", "", drain.Progress{Forced: 1, BlockedBy: []string{"namespace a: web"}}, "DrainBlocked", "Warning PreservedNodeDrainForced", "Warning PreservedNodeDrainBlocked"),
	Entry("that pods are kept", "Draining", "", drain.Progress{Kept: 1}, "PodsKept", "Warning PreservedNodePodsKept"),
	Entry("its end", "PodsKept", "", drain.Progress{Done: true}, "Drained", "Normal PreservedNodeDrained"),
)

var _ = Describe("what others see of the drain of a failed machine's node", func() {
	var (
		underWay  = Condition("Preserved", corev1.ConditionTrue, "Draining", until)
		preserved = func(options ...NodeOption) *corev1.Node {
			return Node("m", append(options, Taint("node.machine.sapcloud.io/preserved", Start))...)
		}
		of       = func(reason string) NodeOption { return Condition("DrainInProgress", corev1.ConditionTrue, reason, "") }
		timedOut = Condition("NodeDrain", corev1.ConditionTrue, "DrainTimedOut", "")
		// said are the reasons of the conditions that are left.
		said = func(node *corev1.Node) (reasons []string) {
			for _, c := range node.Status.Conditions {
				if drain.IsCondition(c.Type) || c.Type == "NodeDrain" {
					reasons = append(reasons, c.Reason)
				}
			}
			return reasons
		}
	)

	It("D13: should be written with the progress, and refused if somebody else has written meanwhile", func() {
		write, _ := Show(preserved(underWay, of("MachinePreservation")), drain.Progress{Done: true}, true, Start)
		Expect(write.Lock).To(BeTrue())
		Expect(said(write.After.(*corev1.Node))).To(ConsistOf("MachinePreservation", "MachinePreservation"))
		write, _ = Show(preserved(underWay), drain.Progress{Done: true}, false, Start)
		Expect(write.Lock).To(BeFalse())
		Expect(said(write.After.(*corev1.Node))).To(BeEmpty())
	})

	DescribeTable("D13: what is swept from a node", func(node *corev1.Node, conditions, strategies, stray bool, left ...string) {
		Expect(IsStray(node)).To(Equal(stray))
		write := Sweep(node, conditions, strategies)
		Expect(said(write.After.(*corev1.Node))).To(ConsistOf(left))
		Expect(write.Changes()).To(Equal(len(left) < len(said(node))))
		Expect(write.Status && write.Lock).To(BeTrue())
	},
		Entry("nothing", preserved(underWay), false, false, false),
		Entry("nothing while it is drained", preserved(underWay, of("MachinePreservation")), true, false, false, "MachinePreservation"),
		Entry("what is left of a preservation", Node("m", of("MachinePreservation")), true, true, true),
		Entry("what is left of one that machine-controller-manager has ended", preserved(Condition("Preserved", corev1.ConditionFalse, "PreservationStopped", ""), of("MachinePreservation")), true, true, true),
		Entry("nothing that is said of a node that is drained", preserved(Condition("Preserved", corev1.ConditionTrue, "Drained", until), of("MachinePreservation")), true, true, true, "MachinePreservation"),
		Entry("that as well when nobody wants it any more", preserved(Condition("Preserved", corev1.ConditionTrue, "Drained", until), of("MachinePreservation")), false, true, true),
		Entry("nothing of an update", Node("m", of("MachineUpdate")), true, true, true, "MachineUpdate"),
		Entry("what is of an update without strategies", Node("m", of("MachineUpdate")), true, false, true),
		Entry("what is of an update when nobody wants it any more", Node("m", of("MachineUpdate")), false, true, true),
		Entry("D11: nothing that strategies say", Node("m", timedOut), false, true, true, "DrainTimedOut"),
		Entry("D11: what they have said", Node("m", timedOut, of("MachineUpdate")), true, false, true),
		Entry("nothing of a maintenance, which sees to that", Node("m", of("NodeMaintenance")), false, false, false, "NodeMaintenance"),
		Entry("nothing of somebody else", Node("m", of("KubectlDrainStarted")), false, false, false, "KubectlDrainStarted"),
	)
})
