// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("P10: end", func() {
	for name, holder := range holders {
		Context(name, func() {
			It("should release the failed machines and leave the requests as people wrote them", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(Start.Add(time.Hour))), Node("m", with("when-failed")))
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))
				e.recorder.take()

				Expect(e.End(ctx, Namespace)).To(Succeed())
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(released))
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(e.node(ctx, "m").Annotations).To(Equal(map[string]string{preserve: "when-failed"}))
				Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
				Expect(e.recorder.take()).To(ContainElement(
					"Machine/m Normal MachinePreservationEnded: Machine is no longer preserved because Disabled (cause was when-failed)"))

				writes := len(e.api.written())
				Expect(e.End(ctx, Namespace)).To(Succeed())
				Expect(e.api.written()).To(HaveLen(writes))
			})

			It("should not write to a machine that is not preserved", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(Start.Add(time.Hour))), Node("m"))
				Expect(e.End(ctx, Namespace)).To(Succeed())
				Expect(e.api.written()).To(BeEmpty())
			})

			It("P12: should end the others when a node cannot be read, and that machine once it can be", func(ctx SpecContext) {
				deployment := Deployment("pool", Share("2"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set,
					Machine("m-1", failing(Start.Add(time.Hour)), Of(set)), Node("m-1"),
					Machine("m-2", failing(Start.Add(time.Hour)), Of(set)), Node("m-2"))
				e.settle(ctx)
				before := e.machine(ctx, "m-1")
				Expect(before.Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))

				e.api.readNode = func(name string) error {
					if name == "m-1" {
						return errors.New("no answer")
					}
					return nil
				}
				Expect(e.End(ctx, Namespace)).To(MatchError("failed to read node m-1: no answer"))
				Expect(e.machine(ctx, "m-2").Annotations).To(And(HaveKey(released), Not(HaveKey(prefix+"cause"))))
				Expect(e.node(ctx, "m-2").Spec.Taints).To(BeEmpty())
				Expect(e.machine(ctx, "m-1")).To(Equal(before), "the record of what is on its node goes last, and its expiry goes on")

				e.api.readNode = nil
				Expect(e.End(ctx, Namespace)).To(Succeed())
				Expect(e.machine(ctx, "m-1").Annotations).To(And(HaveKey(released), Not(HaveKey(prefix+"cause"))))
				Expect(e.node(ctx, "m-1").Spec.Taints).To(BeEmpty())
			})

			It("P14: should go on without nodes that are not known, and tell so", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(Start.Add(time.Hour))), Node("m"))
				e.settle(ctx)
				e.recorder.take()
				e.nodesKnown = false
				Expect(e.End(ctx, Namespace)).To(Succeed())
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(e.recorder.take()).To(ContainElement(
					"Machine/m Warning PreservedNodeDenied: Machine is released, but taint, annotations and condition of its preservation may still be on its node: it could not be read for too long"))
			})
		})
	}
})
