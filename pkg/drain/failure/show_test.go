// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failure_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("P11: what a node shows of its drain, and what is told of it", func(shown, message string, progress drain.Progress, reason string, told ...string) {
	node := Node("m", Taint("node.machine.sapcloud.io/preserved", Start), Condition("Preserved", corev1.ConditionTrue, shown, message+until))
	before := node.DeepCopy()
	write, events := Show(node, progress, Start.Add(time.Hour))
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
