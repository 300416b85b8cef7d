// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Remediation", func() {
	const until = "2026-03-01T14:00:00Z" // an hour

	var (
		now  = Start.Add(time.Hour)
		asks = remediatedUntil(now.Add(time.Hour))
		over = MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) })
	)

	for name, holder := range holders {
		Context(name, func() {
			remediated := func(ctx SpecContext, opts ...DeploymentOption) *environment {
				GinkgoHelper()
				e := withMachine(holder, Machine("m", asks), Node("m"))
				e.editDeployment(ctx, opts...)
				e.settle(ctx)
				e.expectEvent("MachinePreserved: Machine is Running:Preserved until " + until + " because PowerCycle (cause remediation)")
				return e
			}

			It("X10: should hold a machine from the request on, neither taint nor drain it, and end in silence", func(ctx SpecContext) {
				e := remediated(ctx)
				if name == "PreserveExpiry" {
					Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime.UTC().Format(time.RFC3339)).To(Equal(until))
				}
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
				Expect(e.settle(ctx).RequeueAfter).To(Equal(time.Hour))
				e.fail(ctx)
				e.expectEvent("PreservedMachineFailed: Machine is Failed:Preserved until " + until + " because MachineFailed (cause remediation)")
				Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
				e.heal(ctx, "m")
				e.settle(ctx)
				e.recorder.take()
				e.editMachine(ctx, "m", over)
				e.settle(ctx)
				Expect(e.recorder.take()).To(BeEmpty())
				Expect(e.machine(ctx, "m").Annotations).To(BeEmpty())
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
			})

			It("X10 T5: should tell that a machine which the power cycle did not help is auto-preserved", func(ctx SpecContext) {
				e := remediated(ctx)
				e.fail(ctx)
				e.recorder.take()
				e.editMachine(ctx, "m", over)
				e.settle(ctx)
				e.expectEvent("MachinePreserved: Machine is Failed:Preserved until 2026-03-04T13:00:00Z because PowerCycleFailed (cause auto)")
				Expect(e.node(ctx, "m").Spec.Taints).To(HaveLen(1))
			})

			It("X10 T8: should tell that it is replaced without a share", func(ctx SpecContext) {
				e := remediated(ctx, Share("0"))
				e.fail(ctx)
				e.recorder.take()
				e.editMachine(ctx, "m", over)
				e.settle(ctx)
				e.expectEvent("MachinePreservationEnded: Machine is no longer preserved because PowerCycleFailed (cause was remediation)")
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(released))
			})

			It("X10 P11: should be counted by its cause, and not as using up the share", func(ctx SpecContext) {
				pool := "remediated-" + name
				e := remediated(ctx, in(pool, "z"))
				Expect(metric("transitions_total")).To(HaveKeyWithValue("remediation "+pool+" PowerCycle X10", 1.0))
				e.fail(ctx)
				Expect(metric("machines")).To(HaveKeyWithValue("remediation pool Failed:Preserved "+pool+" z", 1.0))
				Expect(metric("share_used")).To(HaveKeyWithValue("pool "+pool+" z", 0.0))
			})

			It("X10: should do nothing where remediations are not enabled", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", asks), Node("m"))
				e.Remediation = preservation.RemediationOptions{}
				e.settle(ctx)
				Expect(e.api.written()).To(BeEmpty())
			})
		})
	}
})
