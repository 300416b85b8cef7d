// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	. "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("judges of what others see of drains", func() {
	const isTrue, isFalse = corev1.ConditionTrue, corev1.ConditionFalse
	var (
		preserved = func(reason string) builder.NodeOption { return builder.Condition("Preserved", isTrue, reason, "") }
		shown     = func(inProgress, drained corev1.ConditionStatus, reason string) builder.NodeOption {
			return func(n *corev1.Node) {
				builder.Condition("DrainInProgress", inProgress, reason, "")(n)
				builder.Condition("Drained", drained, reason, "")(n)
			}
		}
		underWay = shown(isTrue, isFalse, "MachinePreservation")
		over     = shown(isFalse, isTrue, "MachinePreservation")
		kubectl  = shown(isFalse, isTrue, "KubectlDrainCompleted")
		only     = func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason string) builder.NodeOption {
			return builder.Condition(t, status, reason, "")
		}
		maintained = builder.NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "2000-01-01T00:00:00Z")
		drainedFor = shown(isFalse, isTrue, "NodeMaintenance")
		handedOver = builder.Condition("MaintenanceInProgress", isTrue, "NodeMaintenance", "")

		node   = func(options ...builder.NodeOption) *corev1.Node { return builder.Node("m", options...) }
		phased = func(phase string, drains bool) *maintenancev1alpha1.NodeMaintenance {
			nm := &maintenancev1alpha1.NodeMaintenance{}
			nm.Status.Conditions = append(nm.Status.Conditions, metav1.Condition{Type: maintenancev1alpha1.ConditionReady, Reason: phase})
			if drains {
				nm.Spec.DrainSpec = &maintenancev1alpha1.DrainSpec{}
			}
			return nm
		}
	)

	DescribeTable("D13: what we write", func(before, after *corev1.Node, blamed bool) {
		rule := ""
		if blamed {
			rule = "D13"
		}
		beBlamed(DrainWritten(before, after), rule)
	},
		Entry("the begin of a drain", node(), node(preserved("Draining"), underWay), false),
		Entry("its end", node(preserved("Draining"), underWay), node(preserved("Drained"), over), false),
		Entry("the end of all", node(preserved("Drained"), over), node(), false),
		Entry("something else beside what is somebody else's", node(kubectl), node(kubectl, preserved("Draining")), false),
		Entry("in the place of what is somebody else's", node(kubectl), node(preserved("Draining"), underWay), true),
		Entry("the removal of what is somebody else's", node(kubectl), node(), true),
		Entry("once more what somebody has removed", node(preserved("Draining")), node(preserved("DrainBlocked"), underWay), true),
	)

	DescribeTable("M16: what we write on the node of a maintenance", func(before, after *corev1.Node, blamed bool) {
		rule := ""
		if blamed {
			rule = "M16"
		}
		beBlamed(DrainWritten(before, after), rule)
	},
		Entry("its end", node(maintained, preserved("Draining"), drainedFor, handedOver), node(preserved("Draining"), underWay), false),
		Entry("its end, while the next one waits", node(maintained, preserved("Draining"), drainedFor, handedOver), node(maintained, preserved("Draining"), underWay), false),
		Entry("something else while its requestor has the node", node(maintained, preserved("Draining"), drainedFor, handedOver), node(maintained, preserved("Draining"), underWay, handedOver), true),
		Entry("something else before its requestor has the node", node(maintained, preserved("Draining"), drainedFor), node(maintained, preserved("Draining"), underWay), true),
	)

	DescribeTable("D13: what a node shows", func(n *corev1.Node, shows bool, nm *maintenancev1alpha1.NodeMaintenance, touched, blamed bool) {
		rule := ""
		if blamed {
			rule = "D13"
		}
		beBlamed(DrainShown(n, shows, nm, touched), rule)
	},
		Entry("nothing", node(), true, nil, false, false),
		Entry("a drain under way", node(preserved("PodsKept"), underWay), true, nil, false, false),
		Entry("one that is over", node(preserved("Drained"), over), true, nil, false, false),
		Entry("one that is over as if it was not", node(preserved("Drained"), underWay), true, nil, false, true),
		Entry("one under way as if it was over", node(preserved("Draining"), over), true, nil, false, true),
		Entry("one that there is not", node(preserved("Preserved"), underWay), true, nil, false, true),
		Entry("one that is left behind", node(over), true, nil, false, true),
		Entry("one that is not to be shown", node(preserved("Draining"), underWay), false, nil, false, true),
		Entry("nothing of a drain that is to be shown", node(preserved("Draining")), true, nil, false, true),
		Entry("half of it", node(preserved("Draining"), only("DrainInProgress", isTrue, "MachinePreservation")), true, nil, false, true),
		Entry("nothing of a drain where somebody has removed it", node(preserved("Draining")), true, nil, true, false),
		Entry("nothing of a drain that is not to be shown", node(preserved("Draining")), false, nil, false, false),
		Entry("what is somebody else's", node(preserved("Draining"), kubectl), true, nil, false, false),
		Entry("a drain for an update", node(builder.Condition("NodeDrain", isTrue, "", ""), shown(isTrue, isFalse, "MachineUpdate")), true, nil, false, false),
		Entry("one for an update that is left behind", node(shown(isTrue, isFalse, "MachineUpdate")), true, nil, false, true),
		Entry("that of a maintenance", node(shown(isTrue, isFalse, "NodeMaintenance")), true, phased("Draining", true), false, false),
		Entry("that of a maintenance that is over", node(shown(isFalse, isTrue, "NodeMaintenance")), true, phased("Ready", true), false, false),
		Entry("that of a maintenance as if it was under way", node(shown(isTrue, isFalse, "NodeMaintenance")), true, phased("Ready", true), false, true),
		Entry("that of a maintenance without a drain", node(), true, phased("Ready", false), false, false),
		Entry("nothing of a maintenance that is about to be handed over without a drain", node(), true, phased("Draining", false), false, false),
		Entry("the drain of a maintenance without one", node(only("DrainInProgress", isTrue, "NodeMaintenance")), false, phased("Draining", false), false, true),
		Entry("nothing of that of a maintenance", node(), true, phased("Ready", true), false, true),
		Entry("that of a maintenance in the way of maintenances", node(only("Drained", isTrue, "NodeMaintenance")), false, phased("Ready", true), false, false),
		Entry("more than that", node(shown(isFalse, isTrue, "NodeMaintenance")), false, phased("Ready", true), false, true),
	)
})
