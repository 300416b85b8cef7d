// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Notices", func() {
	var now = Start.Add(time.Hour)

	const (
		invalidRequest = ` Warning InvalidPreserveRequest: Annotation node.machine.sapcloud.io/preserve="yes" is ignored because it is not valid. Valid values: "now", "when-failed", "false" and "true"`
		invalidTimeout = ` Warning InvalidPreserveTimeout: Annotation machine-preservation.extensions.gardener.cloud/timeout="soon" is ignored because it is not valid. A valid value is a duration from 10s to 336h0m0s, for example "36h"`
		refused        = ` Normal MachinePreservationRefused: Machine failed and is replaced because NoPlace`
	)

	for name, holder := range holders {
		Context(name, func() {
			// rounds reconciles five times, and returns all Events.
			rounds := func(ctx SpecContext, e *environment) []string {
				GinkgoHelper()
				for range 5 {
					e.settle(ctx)
					e.pass(time.Second)
				}
				return e.recorder.take()
			}

			It("R3: should warn of an invalid request once, on the node that carries it", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("yes")))
				Expect(rounds(ctx, e)).To(ConsistOf("Node/m" + invalidRequest))
				Expect(e.api.writtenTo("Node/")).To(BeZero())
			})

			It("R3: should warn of an invalid request once, on the machine that carries it", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Annotation(preserve, "yes")), Node("m"))
				Expect(rounds(ctx, e)).To(ConsistOf("Machine/m" + invalidRequest))
				Expect(e.api.written()).To(BeEmpty())
			})

			It("R3: should warn again of another invalid value", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("yes")))
				rounds(ctx, e)
				e.editNode(ctx, "m", with("please"))
				Expect(rounds(ctx, e)).To(ConsistOf(ContainSubstring(`preserve="please" is ignored`)))
			})

			It("R3: should warn again when the same value comes back", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("yes")))
				rounds(ctx, e)
				e.editNode(ctx, "m", without(preserve))
				Expect(rounds(ctx, e)).To(BeEmpty())
				e.editNode(ctx, "m", with("yes"))
				Expect(rounds(ctx, e)).To(ConsistOf("Node/m" + invalidRequest))
			})

			It("R3: should neither stop nor extend a preservation for an invalid value, and end it at its expiry", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
				e.settle(ctx)
				e.recorder.take()
				e.pass(time.Hour)
				e.editNode(ctx, "m", with("yes"))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m"))
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T13:00:00Z"))
				Expect(e.recorder.take()).To(ConsistOf("Node/m" + invalidRequest))
				e.pass(71 * time.Hour)
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
			})

			It("R5: should warn of an invalid timeout once, and take the pool's", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now"), NodeAnnotation(prefix+"timeout", "soon")))
				Expect(rounds(ctx, e)).To(ConsistOf(
					"Node/m"+invalidTimeout,
					HavePrefix("Node/m Normal MachinePreserved: Machine is Running:Preserved until 2026-03-04T13:00:00Z"),
					HavePrefix("Machine/m Normal MachinePreserved: Machine is Running:Preserved until 2026-03-04T13:00:00Z"),
				))
			})

			It("P14: should cut what a user wrote", func(ctx SpecContext) {
				value := strings.Repeat("äb\n\x00", 50)
				e := withMachine(holder, Machine("m", Annotation(preserve, value), Annotation(prefix+"timeout", value)), Node("m"))
				shown := strings.Repeat("äb ", 50)[:128+43] // 43 of the 128 characters take two bytes
				Expect(rounds(ctx, e)).To(ConsistOf(
					ContainSubstring(`preserve="`+shown+`" is ignored`),
					ContainSubstring(`timeout="`+shown+`" is ignored`),
				))
			})

			It("P14 P9: should not warn of what stands in for the request of a node that cannot be read", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Annotation("node.machine.sapcloud.io/last-applied-node-preserve-value", "invalid")), Node("m"))
				e.nodesKnown = false
				Expect(rounds(ctx, e)).To(BeEmpty())
			})

			DescribeTable("R6: should tell once that a request is not heeded, and that a machine is replaced as operators forbid to keep it",
				func(ctx SpecContext, want string, options ...MachineOption) {
					e := withMachine(holder, Machine("m", append(options, Annotation(prefix+"forbidden", "true"))...), Node("m", with("now")))
					want = " Normal MachinePreservationRefused: " + want + " because Forbidden"
					Expect(rounds(ctx, e)).To(ConsistOf("Machine/m"+want, "Node/m"+want))
				},
				Entry("while it is running", "Machine is not preserved"),
				Entry("after it failed", "Machine failed and is replaced", failing(now)),
			)

			It("R3: should warn on the machine of a request on the node where there are no Events in the shoot", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("yes")))
				e.Events.Shoot = nil
				Expect(rounds(ctx, e)).To(ConsistOf("Machine/m" + invalidRequest))
			})

			It("R5: should take the request's own timeout", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now"), NodeAnnotation(prefix+"timeout", "90m")))
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-01T14:30:00Z"))
			})

			It("T6: should tell of a refusal once, on the machine and its node", func(ctx SpecContext) {
				deployment := Deployment("pool", Share("1"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set,
					Machine("first", Of(set), failing(now.Add(-time.Second))), Machine("second", Of(set), failing(now)), Node("second"))
				Expect(rounds(ctx, e)).To(ConsistOf(
					HavePrefix("Machine/first Normal MachinePreserved: "),
					"Machine/second"+refused,
					"Node/second"+refused,
				))
			})

			It("P2: should warn once that a failed machine keeps its pool at its maximum, and again when that comes back", func(ctx SpecContext) {
				const warning = " Warning PoolAtMaximum: The pool is at its maximum of 3 machines in its zone because 1 failed machine is preserved. " +
					"The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised"
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				Expect(rounds(ctx, e)).To(ConsistOf(HavePrefix("Machine/m Normal MachinePreserved:"), HavePrefix("Node/m Normal MachinePreserved:")))
				written := len(e.api.written())
				e.editDeployment(ctx, DeploymentAnnotation(prefix+"maximum", "3"))
				Expect(rounds(ctx, e)).To(ConsistOf("Machine/m"+warning, "Node/m"+warning))
				e.editDeployment(ctx, Replicas(2))
				Expect(rounds(ctx, e)).To(BeEmpty())
				e.editDeployment(ctx, Replicas(3))
				Expect(rounds(ctx, e)).To(ConsistOf("Machine/m"+warning, "Node/m"+warning))
				Expect(e.api.written()).To(HaveLen(written), "nothing is written because of that")
			})

			DescribeTable("P11: should tell of a transition once although a write failed at first", func(ctx SpecContext, what string) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.api.failing(what, faults["409"])
				e.pass(e.failingRound(ctx))
				e.api.write = nil
				Expect(rounds(ctx, e)).To(ConsistOf(HavePrefix("Machine/m Normal MachinePreserved:"), HavePrefix("Node/m Normal MachinePreserved:")))
			},
				Entry("to the node", "Node/"),
				Entry("to the machine's status, after the first one", "Machine/m/status"),
			)

			It("should tell of each machine on its own, and of each MachineDeployment on its own", func(ctx SpecContext) {
				var (
					objects []client.Object
					want    []string
				)
				for _, name := range []string{"pool", "other"} {
					deployment := Deployment(name)
					set := Set(name, deployment)
					objects = append(objects, deployment, set,
						Machine(name+"-1", Of(set), Annotation(preserve, "yes")), Machine(name+"-2", Of(set), Annotation(preserve, "yes")))
					want = append(want, "Machine/"+name+"-1"+invalidRequest, "Machine/"+name+"-2"+invalidRequest)
				}
				e := newEnvironment(holder, objects...)
				for range 3 {
					for _, name := range []string{"pool", "other"} {
						_, err := e.reconcileNamed(ctx, name)
						Expect(err).NotTo(HaveOccurred())
					}
				}
				Expect(e.recorder.take()).To(ConsistOf(want))
			})
		})
	}
})
