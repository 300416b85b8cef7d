// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Remediation", func() {
	const longest = 336 * time.Hour
	var (
		now       = Start.Add(time.Hour)
		until     = now.Add(time.Hour)
		asks      = func(t time.Time) MachineOption { return Annotation(remediation, stamp(t)) }
		running   = Phase(machinev1alpha1.MachineRunning, now)
		ready     = Condition("Ready", "True", "", "")
		over      = MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) })
		forbidden = func(annotations map[string]string) bool { return annotations[preserve] == "false" }
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		_, native := holder.(PreserveExpiry)

		group := func(members ...facts.Member) *world {
			g := worldOf(holder, members...)
			g.Share = new(int32(0))
			return g
		}
		fails := func(g *world) { edit(g, failing(now), NodeOption(NotReady)) }
		// remediated is a running machine whose host is to be power-cycled from now on.
		remediated := func(opts ...NodeOption) *world {
			GinkgoHelper()
			g := group(facts.Member{Machine: Machine("m", asks(until)), Node: Node("m", opts...)})
			Expect(settle(g, now)).To(ContainElement(RuleRemediation))
			return g
		}
		expectHeld := func(g *world, phase string, expiry time.Time) {
			GinkgoHelper()
			Expect(machine(g).Annotations).To(And(
				HaveKeyWithValue(prefix+"cause", "remediation"),
				HaveKeyWithValue(prefix+"phase", phase),
				HaveKeyWithValue(prefix+"expiry-time", stamp(expiry)),
			))
			node := node(g)
			Expect(node.Annotations).To(HaveKeyWithValue(disabled, "true"))
			Expect(node.Spec.Taints).To(BeEmpty())
			Expect(PreservedCondition(node)).To(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "Preserved")))
			switch status := machine(g).Status.CurrentStatus; {
			case native:
				Expect(status.PreserveExpiryTime.Time).To(BeTemporally("==", expiry))
				Expect([]string{machine(g).Annotations[preserve], node.Annotations[preserve]}).To(ContainElement("now"))
			case status.Phase == machinev1alpha1.MachineUnknown && ReadRecord(machine(g)).Failing():
				Expect(status.LastUpdateTime.Time).To(BeTemporally("==", expiry.Add(-10*time.Minute)))
			}
		}
		Context(fmt.Sprintf("%T", holder), func() {
			It("X10: should hold and protect a machine from the request on, and not drain it when it fails", func() {
				g := remediated()
				expectHeld(g, "Running:Preserved", until)
				Expect(Noted(machine(g))).NotTo(HaveKey(preservedSince), "P13 bounds what people and the share ask for")
				Expect(Decide(g.Group, now)[0].Next).To(BeTemporally("==", until))
				fails(g)
				settle(g, now)
				expectHeld(g, "Failed:Preserved", until)
				Expect(ReadRecord(machine(g)).Drains()).To(BeFalse())
				Expect(ReadRecord(machine(g)).HasPlace(now)).To(BeFalse())
			})

			It("X10: should leave a machine alone that nobody asks for, or where nobody has enabled that", func() {
				g := group(facts.Member{Machine: Machine("m", asks(until)), Node: Node("m")})
				g.Remediation.Enabled = false
				Expect(Steps(holder, Decide(g.Group, now)[0], g.Timeouts, now)).To(BeEmpty())
				edit(g, over)
				g.Remediation.Enabled = true
				Expect(Steps(holder, Decide(g.Group, now)[0], g.Timeouts, now)).To(BeEmpty())
			})

			DescribeTable("X10 P13: should end when it was asked for, but not after what operators allow, and not begin with what cannot be",
				func(value string, want time.Time) {
					g := group(facts.Member{Machine: Machine("m", Annotation(remediation, value)), Node: Node("m")})
					settle(g, now)
					if want.IsZero() {
						Expect(machine(g)).To(Equal(Machine("m", Annotation(remediation, value))))
						return
					}
					expectHeld(g, "Running:Preserved", want)
				},
				Entry("in an hour", stamp(until), until),
				Entry("in a far future", "9999-12-31T23:59:59Z", now.Add(longest)),
				Entry("now", stamp(now), time.Time{}),
				Entry("in the past", stamp(now.Add(-time.Hour)), time.Time{}),
				Entry("nonsense", "soon", time.Time{}),
				Entry("nothing", "", time.Time{}),
			)

			It("X10 P13: should keep a machine that people and the share have kept for as long as operators allow", func() {
				g := group(facts.Member{Machine: Machine("m", asks(until), Annotation(preservedSince, stamp(now.Add(-longest)))), Node: Node("m")})
				settle(g, now)
				expectHeld(g, "Running:Preserved", until)
			})

			It("X10: should follow what is asked for, without telling, and go on if that becomes nonsense", func() {
				g := remediated()
				for _, until := range []time.Time{until.Add(time.Hour), now.Add(10 * time.Minute)} {
					edit(g, asks(until))
					Expect(settle(g, now)).To(BeEmpty())
					expectHeld(g, "Running:Preserved", until)
				}
				edit(g, Annotation(remediation, "soon"))
				Expect(settle(g, now)).To(BeEmpty())
				expectHeld(g, "Running:Preserved", now.Add(10*time.Minute))
				Expect(settle(g, now.Add(10*time.Minute))).To(ConsistOf(RuleRemediation))
				Expect(g.told).To(And(HaveField("Why", WhyPowerCycleOver), HaveField("Verdict", Untold)))
				expectFree(g)
			})

			It("X10 P6: should obey an operator's edit until something else is asked for", func() {
				g := remediated()
				cut := now.Add(time.Minute)
				edit(g, Annotation(prefix+"expiry-time", stamp(cut)), MachineOption(func(m *machinev1alpha1.Machine) {
					if native {
						m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: cut}
					}
				}))
				settle(g, now)
				expectHeld(g, "Running:Preserved", cut)
				settle(g, cut)
				expectFree(g)
				Expect(settle(g, cut.Add(time.Minute))).To(BeEmpty())
				edit(g, asks(until.Add(time.Second)))
				Expect(settle(g, cut.Add(time.Minute))).To(ConsistOf(RuleRemediation))
				edit(g, over)
				settle(g, cut.Add(time.Minute))
				Expect(machine(g).Annotations).To(BeEmpty())
			})

			DescribeTable("X10: should end in silence when the machine is healthy",
				func(end func(*world) time.Time) {
					g := remediated()
					g.Share = new(int32(1))
					fails(g)
					settle(g, now)
					edit(g, running, ready)
					settle(g, now)
					expectHeld(g, "Running:Preserved", until)
					Expect(settle(g, end(g))).To(ConsistOf(RuleRemediation))
					Expect(g.told).To(And(HaveField("Why", WhyPowerCycleOver), HaveField("Verdict", Untold)))
					expectFree(g)
					Expect(Noted(machine(g))).NotTo(Or(HaveKey(released), HaveKey(remediatedUntil)))
				},
				Entry("removed", func(g *world) time.Time { edit(g, over); return now }),
				Entry("past", func(*world) time.Time { return until }),
				Entry("switched off", func(g *world) time.Time { g.Remediation.Enabled = false; return now }),
			)

			It("X10 H1: should keep a healthy machine until machine-controller-manager has seen it", func() {
				g := remediated()
				fails(g)
				settle(g, now)
				edit(g, over, ready)
				Expect(settle(g, now)).To(BeEmpty())
				expectHeld(g, "Failed:Preserved", until)
				edit(g, running)
				settle(g, now)
				expectFree(g)
			})

			DescribeTable("X10 T8: should let go of a machine that is still failed, if there is no place within the share",
				func(end func(*world) time.Time) {
					g := remediated()
					fails(g)
					settle(g, now)
					at := end(g)
					Expect(Decide(g.Group, at)[0].Next).To(BeZero(), "there is nothing to wait for")
					Expect(settle(g, at)).To(ConsistOf(RuleReleaseFailed))
					Expect(Noted(machine(g))).To(HaveKey(released))
					Expect(ReadRecord(machine(g))).To(BeNil())
				},
				Entry("removed", func(g *world) time.Time { edit(g, over); return now }),
				Entry("past", func(g *world) time.Time { settle(g, until.Add(-time.Second)); return until }),
				Entry("nobody has said the share", func(g *world) time.Time { g.Share = nil; edit(g, over); return now }),
			)

			It("X10 T5: should auto-preserve a machine that is still failed, and then drain it", func() {
				g := remediated()
				g.Share = new(int32(1))
				fails(g)
				settle(g, now)
				edit(g, over)
				Expect(Decide(g.Group, now)[0].TakesPlace()).To(BeTrue())
				Expect(settle(g, now)).To(ConsistOf(RuleAuto))
				Expect(causes(g)).To(ConsistOf("auto"))
				Expect(ReadRecord(machine(g)).Expiry()).To(BeTemporally("==", now.Add(72*time.Hour)))
				Expect(tainted(g)).To(BeTrue())
			})

			It("X10 M12 T5: should auto-preserve a machine that is still failed when its maintenance has had its time at once", func() {
				g := remediated(NodeAnnotation(maintenance, stamp(now.Add(-23*time.Hour-30*time.Minute))))
				g.Share = new(int32(1))
				fails(g)
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("maintenance", "remediation"))
				edit(g, over)
				Expect(settle(g, now.Add(30*time.Minute))).To(ConsistOf(RuleAuto))
				Expect(causes(g)).To(ConsistOf("auto"))
			})

			It("X10 T5: should ask for the place before the hold ends", func() {
				g := remediated()
				g.Share = new(int32(1))
				fails(g)
				settle(g, now)
				before := until.Add(-30 * time.Second)
				Expect(Decide(g.Group, now)[0].Next).To(BeTemporally("==", before))
				settle(g, before.Add(-time.Second))
				Expect(causes(g)).To(ConsistOf("remediation"))
				Expect(settle(g, before)).To(ConsistOf(RuleAuto))
				Expect(causes(g)).To(ConsistOf("remediation", "auto"))
				Expect(tainted(g)).To(BeFalse())
				settle(g, until)
				Expect(causes(g)).To(ConsistOf("auto"))
				Expect(tainted(g)).To(BeTrue())
			})

			It("X10 P1: should not exceed the share by that, nor count a machine before", func() {
				g := remediated()
				g.Share = new(int32(1))
				fails(g)
				g.Members = append(g.Members, facts.Member{Machine: Machine("other", failing(now)), Node: Node("other", NotReady)})
				settle(g, now)
				Expect(ReadRecord(g.Members[1].Machine).HasPlace(now)).To(BeTrue())
				edit(g, over)
				settle(g, now)
				Expect(ReadRecord(machine(g))).To(BeNil())
			})

			It("X10 T4: should be outlived by when-failed", func() {
				g := remediated(NodeAnnotation(preserve, "when-failed"))
				fails(g)
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("remediation", "when-failed"))
				Expect(tainted(g)).To(BeFalse())
				edit(g, over)
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("when-failed"))
				Expect(tainted(g)).To(BeTrue())
			})

			It("X10: should suspend the drain of an auto-preserved machine, which goes on counting until its own expiry", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady)})
				g.Share = new(int32(1))
				settle(g, now)
				Expect(tainted(g)).To(BeTrue())
				end := now.Add(72 * time.Hour)
				edit(g, asks(end.Add(time.Hour)))
				Expect(settle(g, now)).To(ConsistOf(RuleRemediation))
				Expect(tainted(g)).To(BeFalse())
				Expect(ReadRecord(machine(g)).HasPlace(end.Add(-time.Second))).To(BeTrue())
				Expect(ReadRecord(machine(g)).HasPlace(end)).To(BeFalse())
				Expect(settle(g, end)).To(BeEmpty())
				settle(g, end.Add(time.Hour))
				Expect(ReadRecord(machine(g))).To(BeNil(), "it has had its time within the share")
			})

			DescribeTable("X10 R4: should outlive false, which ends the others at once, and end once the host is released",
				func(failed, onNode bool) {
					g := remediated(NodeAnnotation(preserve, "now"))
					Expect(causes(g)).To(ConsistOf("now", "remediation"))
					if !onNode {
						edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, preserve) }))
						settle(g, now)
					}
					if failed {
						fails(g)
						settle(g, now)
					}
					if onNode {
						edit(g, NodeAnnotation(preserve, "false"))
					} else {
						edit(g, Annotation(preserve, "false"))
					}
					if rules := settle(g, now); onNode { // else the claim was withdrawn before
						Expect(rules).To(ConsistOf(RuleClaims))
						Expect(g.told.Why).To(Equal(WhyPowerCycle), "P11: it is what still keeps it")
					}
					Expect(Decide(g.Group, now)[0].Verdict).To(Equal(Untold), "P11: people are told once")
					Expect(causes(g)).To(ConsistOf("remediation"))
					Expect(RequestOf(g.Members[0], longest).Value).To(Equal("false"))
					phase := "Running:Preserved"
					if failed {
						phase = "Failed:Preserved"
					}
					expectHeld(g, phase, until)
					Expect(settle(g, now.Add(time.Minute))).To(BeEmpty())
					edit(g, over)
					settle(g, now.Add(time.Minute))
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(forbidden(node(g).Annotations)).To(Equal(onNode))
					Expect(forbidden(machine(g).Annotations)).To(Equal(!onNode))
				},
				Entry("of a running machine, on its node", false, true),
				Entry("of a running machine", false, false),
				Entry("of a failed machine, on its node", true, true),
				Entry("of a failed machine", true, false),
			)

			It("X10 R4 M12: should outlive false, unlike a maintenance", func() {
				g := remediated(NodeAnnotation(maintenance, stamp(now)))
				Expect(causes(g)).To(ConsistOf("maintenance", "remediation"))
				edit(g, NodeAnnotation(preserve, "false"))
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("remediation"))
				edit(g, over)
				settle(g, now)
				expectFree(g)
			})

			It("X10: should leave the claim of a person alone when it is prolonged", func() {
				g := remediated(NodeAnnotation(preserve, "now"))
				edit(g, asks(until.Add(time.Hour)))
				Expect(settle(g, now)).To(BeEmpty())
				Expect(causes(g)).To(ConsistOf("now", "remediation"))
			})

			It("X10 T2: should need no place beside it, also not one for a failure to come", func() {
				m := Machine("m", Phase(machinev1alpha1.MachineUnknown, now.Add(-9*time.Minute-50*time.Second)))
				g := group(facts.Member{Machine: m, Node: Node("m", NotReady, NodeAnnotation(preserve, "now"))})
				g.Share = new(int32(1))
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("now", "auto"))
				edit(g, asks(until))
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("now", "remediation"))
			})

			DescribeTable("X10: should remember what was asked for as long as it is asked for", func(asked, want string) {
				g := group(facts.Member{Machine: Machine("m", Annotation(remediatedUntil, stamp(until))), Node: Node("m")})
				if asked != "" {
					edit(g, Annotation(remediation, asked))
				}
				settle(g, now)
				Expect(Noted(machine(g))[remediatedUntil]).To(Equal(want))
			},
				Entry("no more", "", ""),
				Entry("as before, which has ended", stamp(until), stamp(until)),
				Entry("for another time", stamp(until.Add(time.Minute)), stamp(until.Add(time.Minute))),
			)

			It("X10: should end at once on a machine that is healthy and not held for a deadline", func() {
				g := remediated()
				edit(g, Phase(machinev1alpha1.MachineUnknown, now), over)
				Expect(settle(g, now)).To(ConsistOf(RuleRemediation))
				expectFree(g)
			})

			It("X10 M12 P11: should end in silence, but for what is told of a maintenance that ends in the same look", func() {
				g := remediated(NodeAnnotation(maintenance, stamp(now)))
				Expect(causes(g)).To(ConsistOf("maintenance", "remediation"))
				exhausted := now.Add(24 * time.Hour)
				edit(g, asks(exhausted.Add(time.Hour)))
				settle(g, now)
				edit(g, over)
				Expect(settle(g, exhausted)).To(ConsistOf(RuleRelease))
				Expect(g.told).To(And(HaveField("Verdict", Told), HaveField("Why", WhyMaintenanceExhausted)))
				expectFree(g)
			})

			It("X10 T5: should ask for the place with a tenth of the machine's own health timeout left, at most", func() {
				g := remediated()
				g.Share = new(int32(1))
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) {
					m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: duration(time.Minute)}
				}))
				fails(g)
				settle(g, now)
				settle(g, until.Add(-7*time.Second))
				Expect(causes(g)).To(ConsistOf("remediation"))
				settle(g, until.Add(-6*time.Second))
				Expect(causes(g)).To(ConsistOf("remediation", "auto"))
			})

			It("X10 P11: should tell nobody that it asks for a place in vain, as long as it is kept", func() {
				g := remediated()
				fails(g)
				settle(g, now)
				Expect(Decide(g.Group, until.Add(-time.Second))[0]).To(And(HaveField("Rule", BeEmpty()), HaveField("Verdict", Untold), HaveField("Target", Not(BeNil()))))
			})

			It("X10 P1: should come before those that have failed later", func() {
				g := remediated()
				g.Share = new(int32(1))
				fails(g)
				settle(g, now)
				at := now.Add(5 * time.Minute)
				g.Members = append(g.Members, facts.Member{Machine: Machine("a", failing(at)), Node: Node("a", NotReady)})
				edit(g, over)
				decisions := Decide(g.Group, at)
				Expect([]bool{decisions[0].TakesPlace(), decisions[1].TakesPlace()}).To(Equal([]bool{true, false}))
			})

			DescribeTable("X10 T5 H4: should go over to the share at the deadline for which the machine is held, if it has failed then",
				func(fails time.Time, node NodeOption, want ...string) {
					g := group(facts.Member{Machine: Machine("m", failing(now), HeldUntil(fails, "remediation", until), Annotation(prefix+"phase", "Unknown:Preserved")), Node: Node("m", node)})
					g.Share = new(int32(1))
					round(g.Group, now)
					Expect(causes(g)).To(ConsistOf(want))
				},
				Entry("it has", now, NodeOption(NotReady), "auto"),
				Entry("it is healthy, which has yet to be seen", now, ready, "remediation"),
				Entry("it has not yet", now.Add(time.Second), NodeOption(NotReady)),
			)

			It("X10 R4: should begin against false", func() {
				g := group(facts.Member{Machine: Machine("m", asks(until)), Node: Node("m", NodeAnnotation(preserve, "false"))})
				Expect(settle(g, now)).To(ConsistOf(RuleRemediation))
				expectHeld(g, "Running:Preserved", until)
			})

			It("X10 R4: should not claim what machine-controller-manager would end: the false of the pool comes back", func() {
				m := Machine("m", asks(until))
				m.Spec.NodeTemplateSpec.Annotations = map[string]string{preserve: "false"}
				g := group(facts.Member{Machine: m, Node: Node("m", NodeAnnotation(preserve, "false"))})
				if rules := settle(g, now); native {
					Expect(rules).To(BeEmpty())
				} else {
					Expect(rules).To(ConsistOf(RuleRemediation))
				}
				g = remediated()
				edit(g, Templated("false"), NodeAnnotation(preserve, "false"))
				settle(g, now)
				Expect(ReadRecord(machine(g)) == nil).To(Equal(native))
			})

			DescribeTable("X10: should end, and not begin, with what ends every claim",
				func(rules []Rule, end func(*world)) {
					g := remediated()
					fails(g)
					end(g)
					Expect(settle(g, now)).To(BeComparableTo(rules))
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(settle(g, now.Add(time.Minute))).To(BeEmpty())
				},
				Entry("R6: the veto", []Rule{RuleForbidden}, func(g *world) { edit(g, Annotation(prefix+"forbidden", "true")) }),
				Entry("P3: a rolling update", []Rule{RuleRollout}, func(g *world) { g.Rollout = true }),
				Entry("T10: a deletion", []Rule{RuleDeleted}, func(g *world) { edit(g, Deleted(now)) }),
				Entry("P10: the extension is disabled", []Rule{RuleRelease}, func(g *world) { g.Disabled = true }),
			)

			It("X10 P4 H3: should not begin where the shoot hibernates, or too late", func() {
				g := group(facts.Member{Machine: Machine("m", asks(until)), Node: Node("m")})
				g.Replicas = 0
				Expect(settle(g, now)).To(BeEmpty())
				g.Replicas = 3
				edit(g, Phase(machinev1alpha1.MachineFailed, now), NodeOption(NotReady))
				Expect(settle(g, now)).To(BeEmpty())
			})

			It("X10 M12: should leave a maintenance its cordon while it waits for that, and hold when that is over", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, stamp(now)))})
				settle(g, now)
				edit(g, asks(until))
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("maintenance", "remediation"))
				Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(conditionTrue(node(g))).To(BeFalse())
				fails(g)
				settle(g, now)
				Expect(conditionTrue(node(g))).To(BeTrue())
				Expect(tainted(g)).To(BeFalse())
				edit(g, running, ready, NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }))
				settle(g, now)
				expectHeld(g, "Running:Preserved", until)
			})

			It("X10 P9: should neither begin nor end the worse because the node cannot be read", func() {
				g := remediated()
				fails(g)
				settle(g, now)
				node := node(g)
				g.Members[0].Node, g.Members[0].NodeUnknown = nil, true
				Expect(settle(g, now.Add(time.Minute))).To(BeEmpty())
				over(machine(g))
				Expect(settle(g, now.Add(time.Minute))).To(BeEmpty(), "it may be healthy")
				g.Members[0].Node, g.Members[0].NodeUnknown = node, false
				expectHeld(g, "Failed:Preserved", until)
			})

			if native {
				It("X10 R4: should put false back that machine-controller-manager took for what has had its time", func() {
					for _, onNode := range []bool{true, false} {
						g := remediated()
						if onNode {
							edit(g, NodeAnnotation(preserve, "false"))
						} else {
							edit(g, Annotation(preserve, "false"))
						}
						settle(g, now)
						edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, preserve) }), MachineOption(func(m *machinev1alpha1.Machine) {
							delete(m.Annotations, preserve)
							m.Status.CurrentStatus.PreserveExpiryTime = nil
						}))
						settle(g, until)
						expectFree(g)
						Expect(forbidden(node(g).Annotations)).To(Equal(onNode))
						Expect(forbidden(machine(g).Annotations)).To(Equal(!onNode))
					}
				})

				It("X10 R2: should lose no false of the node to what a person writes on the Machine before anybody has seen that it is gone", func() {
					g := remediated()
					edit(g, NodeAnnotation(preserve, "false"))
					settle(g, now)
					edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, preserve) }), Annotation(preserve, "true"), MachineOption(func(m *machinev1alpha1.Machine) {
						m.Status.CurrentStatus.PreserveExpiryTime = nil
					}))
					settle(g, now)
					Expect(causes(g)).To(ConsistOf("remediation"))
					Expect(RequestOf(g.Members[0], longest).Value).To(Equal("false"))
					edit(g, over)
					settle(g, now)
					expectFree(g)
					Expect(forbidden(node(g).Annotations)).To(BeTrue())
				})

				DescribeTable("X10 P6: should count an expiry brought forward that machine-controller-manager has seen first",
					func(phase machinev1alpha1.MachinePhase, rules []Rule, want []string) {
						g := remediated()
						g.Share = new(int32(1))
						fails(g)
						settle(g, now)
						edit(g, Phase(phase, now), MachineOption(func(m *machinev1alpha1.Machine) {
							delete(m.Annotations, preserve)
							m.Status.CurrentStatus.PreserveExpiryTime = nil
						}))
						Expect(settle(g, now)).To(Equal(rules))
						Expect(causes(g)).To(Equal(want))
					},
					Entry("T5: the machine is still failed", machinev1alpha1.MachineUnknown, []Rule{RuleAuto}, []string{"auto"}),
					Entry("H3: it is being terminated", machinev1alpha1.MachineFailed, []Rule{RuleReleaseFailed}, nil),
				)

				It("X10 M12: should count the maintenance as used up that machine-controller-manager ended while the power cycle was prolonged", func() {
					g := remediated(NodeAnnotation(maintenance, stamp(now)))
					fails(g)
					settle(g, now)
					Expect(causes(g)).To(ConsistOf("maintenance", "remediation"))
					later := until.Add(time.Hour)
					edit(g, asks(later), MachineOption(func(m *machinev1alpha1.Machine) {
						delete(m.Annotations, preserve)
						m.Status.CurrentStatus.PreserveExpiryTime = nil
					}))
					settle(g, now.Add(time.Minute))
					Expect(causes(g)).To(ConsistOf("remediation"))
					expectHeld(g, "Failed:Preserved", later)
				})

				It("X10: should hold anew what was prolonged while machine-controller-manager ended it", func() {
					g := remediated()
					later := until.Add(time.Hour)
					edit(g, asks(later), MachineOption(func(m *machinev1alpha1.Machine) {
						delete(m.Annotations, preserve)
						m.Status.CurrentStatus.PreserveExpiryTime = nil
					}))
					settle(g, until)
					expectHeld(g, "Running:Preserved", later)
					Expect(Noted(machine(g))).NotTo(HaveKey(maintainedSince), "M12: there was none")
				})
			}
		})
	}
})
