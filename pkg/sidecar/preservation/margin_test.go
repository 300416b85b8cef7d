// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("H4: margin", func() {
	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			// about is an environment of a machine whose deadline is near. Its request is on its node, and is empty for none.
			about := func(request string) *environment {
				GinkgoHelper()
				node := Node("m", NotReady)
				if request != "" {
					with(request)(node)
				}
				return withMachine(holder, Machine("m", near(now)), node)
			}

			DescribeTable("P11: should only hold before the deadline, and tell of the failure with its cause at the deadline", func(ctx SpecContext, request, cause, reason string) {
				e := about(request)
				Expect(e.settle(ctx).RequeueAfter).To(Equal(margin))
				machine, node := e.machine(ctx, "m"), e.node(ctx, "m")
				Expect(machine.Annotations).To(And(
					HaveKeyWithValue(prefix+"cause", cause),
					HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T13:00:00Z"),
					HaveKeyWithValue(prefix+"fails-at", "2026-03-01T13:00:30Z"),
					Not(HaveKey(prefix+"phase")),
				))
				Expect(node.Annotations).NotTo(Or(HaveKey(disabled), HaveKey(byMCM)))
				Expect(node.Spec.Taints).To(BeEmpty())
				Expect(preservation.PreservedCondition(node)).To(BeNil())
				Expect(e.recorder.take()).To(BeEmpty())

				e.pass(margin)
				Expect(e.settle(ctx).RequeueAfter).To(Equal(72*time.Hour - margin))
				machine, node = e.machine(ctx, "m"), e.node(ctx, "m")
				Expect(machine.Annotations).To(And(
					HaveKeyWithValue(prefix+"phase", "Failed:Preserved"),
					HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T13:00:00Z"),
					Not(HaveKey(prefix+"fails-at")),
				))
				Expect(node.Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
				Expect(node.Spec.Taints).To(ConsistOf(HaveField("TimeAdded.Time", BeTemporally("==", now.Add(margin)))))
				Expect(preservation.PreservedCondition(node)).To(HaveField("Status", corev1.ConditionTrue))
				text := " Normal MachinePreserved: Machine is Failed:Preserved until 2026-03-04T13:00:00Z because " + reason + " (cause " + cause + ")"
				Expect(e.recorder.take()).To(ConsistOf("Machine/m"+text, "Node/m"+text))
			},
				Entry("T5: auto", "", "auto", "MachineFailed"),
				Entry("T4: when-failed", "when-failed", "when-failed", "AskedInCase"),
			)

			It("T1 T2: should tell at once that it does what it is asked to, and of the failure at the deadline", func(ctx SpecContext) {
				e := about("now")
				e.settle(ctx)
				Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m Normal MachinePreserved: Machine is Unknown:Preserved"), HavePrefix("Node/m Normal MachinePreserved: ")))
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
				Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
				e.pass(margin)
				e.settle(ctx)
				Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m Normal PreservedMachineFailed: Machine is Failed:Preserved"), HavePrefix("Node/m Normal PreservedMachineFailed: ")))
				Expect(e.node(ctx, "m").Spec.Taints).To(HaveLen(1))
			})

			DescribeTable("should let go of a machine that is healthy again as if nothing had been, and tell nobody", func(ctx SpecContext, request string) {
				e := about(request)
				node := e.node(ctx, "m")
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("m"))
				e.pass(margin - time.Second)
				e.heal(ctx, "m")
				Expect(e.settle(ctx).RequeueAfter).To(BeZero())
				machine := e.machine(ctx, "m")
				delete(machine.Annotations, "node.machine.sapcloud.io/last-applied-node-preserve-value") // R2
				Expect(machine.Annotations).To(BeEmpty())
				Expect(machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(e.node(ctx, "m").Annotations).To(Equal(node.Annotations))
				Expect(e.node(ctx, "m").Spec).To(Equal(node.Spec))
				Expect(preservation.PreservedCondition(e.node(ctx, "m"))).To(BeNil())
				e.pass(margin)
				Expect(e.settle(ctx).RequeueAfter).To(BeZero())
				Expect(e.recorder.take()).To(BeEmpty())
			},
				Entry("that nobody asked for", ""),
				Entry("that was asked for in case it fails", "when-failed"),
			)

			It("P11: should observe how long before the deadline the hold is made, once", func(ctx SpecContext) {
				pool := "margin-" + name
				deployment := Deployment("pool", Share("1"), in(pool, "z"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set, Machine("m", Of(set), near(now.Add(-5*time.Second))), Node("m", NotReady))
				for _, wait := range []time.Duration{0, 25 * time.Second} {
					e.pass(wait)
					e.settle(ctx)
					Expect(metric("hold_lead_seconds")).To(HaveKeyWithValue("auto "+pool, 1.0))
					Expect(metric("hold_lead_seconds_sum")).To(HaveKeyWithValue("auto "+pool, 25.0))
				}
				Expect(e.held(ctx)).To(ConsistOf("m"))
				Expect(metric("transitions_total")).To(And(HaveKeyWithValue("auto "+pool+" AboutToFail H4", 1.0), HaveKeyWithValue("auto "+pool+" MachineFailed T5", 1.0)))
			})
		})
	}
})
