// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Maintenance", func() {
	const (
		longest = 336 * time.Hour
		hold    = 24 * time.Hour
	)
	var (
		now     = Start.Add(time.Hour)
		since   = func(t time.Time) NodeOption { return NodeAnnotation(maintenance, stamp(t)) }
		running = Phase(machinev1alpha1.MachineRunning, now)
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		_, native := holder.(PreserveExpiry)

		group := func(members ...facts.Member) *world { return worldOf(holder, members...) }
		over := NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) })
		// maintained is a running machine whose node has been under maintenance from now on.
		maintained := func(opts ...NodeOption) *world {
			GinkgoHelper()
			g := group(facts.Member{Machine: Machine("m"), Node: Node("m", append(opts, since(now))...)})
			Expect(settle(g, now)).To(ConsistOf(RuleMaintenance))
			return g
		}
		expectClaim := func(g *world, phase string, expiry time.Time) {
			GinkgoHelper()
			Expect(machine(g).Annotations).To(And(
				HaveKeyWithValue(prefix+"cause", "maintenance"),
				HaveKeyWithValue(prefix+"phase", phase),
				HaveKeyWithValue(prefix+"expiry-time", stamp(expiry)),
			))
			Expect(node(g).Annotations).To(HaveKeyWithValue(disabled, "true"))
			Expect(node(g).Spec.Taints).To(BeEmpty())
		}
		expectUnheld := func(g *world) {
			GinkgoHelper()
			Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
			Expect(machine(g).Annotations).NotTo(HaveKeyWithValue(preserve, "now"))
			Expect(Noted(machine(g))).NotTo(HaveKey(prefix + "request"))
			Expect(node(g).Annotations).NotTo(HaveKeyWithValue(preserve, "now"))
			Expect(conditionTrue(node(g))).To(BeFalse())
		}
		expectHeld := func(g *world, expiry time.Time) {
			GinkgoHelper()
			if native {
				Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", expiry))
			} else {
				Expect(machine(g).Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", expiry.Add(-10*time.Minute)))
			}
			Expect(conditionTrue(node(g))).To(BeTrue())
		}
		Context(fmt.Sprintf("%T", holder), func() {
			It("M12: should protect the machine at once, and not hold it before its deadline is near", func() {
				g := maintained()
				expectClaim(g, "Running:Preserved", now.Add(hold))
				expectUnheld(g)
				Expect(Noted(machine(g))).NotTo(HaveKey(preservedSince))

				down := now.Add(time.Hour)
				edit(g, Phase(machinev1alpha1.MachineUnknown, down), NodeOption(NotReady))
				settle(g, down.Add(9*time.Minute+29*time.Second))
				expectUnheld(g)
				Expect(settle(g, down.Add(9*time.Minute+30*time.Second))).To(ConsistOf(RuleMargin))
				expectHeld(g, now.Add(hold))
			})

			It("M12: should write nothing but the record and the protection, and nothing when neither changes", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", since(now))})
				var written int
				for _, step := range Steps(holder, Decide(g.Group, now)[0], g.Timeouts, now) {
					if Changes(step) {
						written++
					}
				}
				Expect(written).To(Equal(2))
				settle(g, now)
				for _, at := range []time.Duration{time.Second, time.Hour, hold - time.Second} {
					Expect(settle(g, now.Add(at))).To(BeEmpty())
				}
				Expect(Decide(g.Group, now)[0].Next).To(BeTemporally("==", now.Add(hold)))
			})

			It("M12: should leave a machine alone whose node is not under maintenance, or where nobody has enabled that", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m")})
				Expect(settle(g, now)).To(BeEmpty())
				Expect(Steps(holder, Decide(g.Group, now)[0], g.Timeouts, now)).To(BeEmpty())
				edit(g, since(now))
				g.Maintenance.Enabled = false
				Expect(Steps(holder, Decide(g.Group, now)[0], g.Timeouts, now)).To(BeEmpty())
			})

			It("M12: should take the hold back when a reboot is over, and put the request back that the hold has replaced", func() {
				for _, request := range []NodeOption{func(*corev1.Node) {}, NodeAnnotation(preserve, "when-failed")} {
					g := maintained(request)
					up := now.Add(time.Hour)
					edit(g, Phase(machinev1alpha1.MachineUnknown, up.Add(-9*time.Minute-45*time.Second)), NodeOption(NotReady))
					settle(g, up)
					Expect(conditionTrue(node(g))).To(BeTrue())
					edit(g, running, Condition("Ready", "True", "", ""))
					settle(g, up)
					expectClaim(g, "Running:Preserved", now.Add(hold))
					expectUnheld(g)
				}
			})

			It("M12: should neither taint nor drain the node of a machine that fails, nor count it towards the share", func() {
				g := maintained()
				g.Members = append(g.Members, facts.Member{Machine: Machine("other", failing(now)), Node: Node("other", NotReady)})
				edit(g, failing(now), NodeOption(NotReady))
				settle(g, now)
				expectClaim(g, "Failed:Preserved", now.Add(hold))
				expectHeld(g, now.Add(hold))
				Expect(PreservedCondition(node(g)).Reason).To(Equal("Preserved"))
				Expect(ReadRecord(machine(g)).HasPlace(now)).To(BeFalse())
				Expect(ReadRecord(g.Members[1].Machine).HasPlace(now)).To(BeTrue())
			})

			It("M12 M14: should suspend the drain of an auto-preserved machine, which goes on counting, and resume it afterwards", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady)}, facts.Member{Machine: Machine("other"), Node: Node("other")})
				settle(g, now)
				Expect(tainted(g)).To(BeTrue())

				edit(g, since(now))
				Expect(settle(g, now)).To(ConsistOf(RuleMaintenance))
				Expect(tainted(g)).To(BeFalse())
				Expect(PreservedCondition(node(g)).Reason).To(Equal("Preserved"))
				Expect(machine(g).Annotations).To(And(HaveKeyWithValue(prefix+"cause", "auto"), HaveKeyWithValue(prefix+"phase", "Failed:Preserved")))
				Expect(ReadRecord(machine(g)).Drains()).To(BeFalse())
				failing(now)(g.Members[1].Machine)
				NotReady(g.Members[1].Node)
				Expect(Decide(g.Group, now)[1]).To(And(HaveField("Target", BeNil()), HaveField("Verdict", Refused)), "P1: the place is taken")

				edit(g, over)
				settle(g, now)
				Expect(tainted(g)).To(BeFalse(), "M13: it may be on its way back")
				settle(g, now.Add(10*time.Minute))
				Expect(tainted(g)).To(BeTrue())
				Expect(ReadRecord(machine(g)).Claims).To(ConsistOf(HaveField("Cause", "auto")))
			})

			It("M12 P1: should keep a machine that fails again without a place, for the maintenance alone", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady)})
				settle(g, now)
				edit(g, running, Condition("Ready", "True", "", ""), since(now))
				settle(g, now)
				g.Share = new(int32(0))
				edit(g, failing(now), NodeOption(NotReady))
				settle(g, now)
				expectClaim(g, "Failed:Preserved", now.Add(hold))
			})

			It("M12 T9: should drop the place of a machine under maintenance when the share is lowered, and not the machine", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady, since(now))})
				g.Maintenance.Enabled = false
				settle(g, now)
				g.Maintenance.Enabled = true
				settle(g, now)
				g.Share = new(int32(0))
				Expect(settle(g, now)).To(ConsistOf(RuleClaims), "P11: people are told")
				expectClaim(g, "Failed:Preserved", now.Add(hold))
			})

			DescribeTable("M12: should count from when the maintenance began, but not from a time that cannot be",
				func(value string, want time.Time) {
					g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, value))})
					settle(g, now)
					if want.IsZero() {
						Expect(machine(g)).To(Equal(Machine("m")))
						return
					}
					expectClaim(g, "Running:Preserved", want)
				},
				Entry("an hour ago", stamp(now.Add(-time.Hour)), now.Add(23*time.Hour)),
				Entry("as long ago as a machine is kept for it", stamp(now.Add(-hold)), time.Time{}),
				Entry("long ago", "0001-01-01T00:00:01Z", time.Time{}),
				Entry("in the future", stamp(now.Add(time.Hour)), now.Add(hold)),
				Entry("in a far future", "9999-12-31T23:59:59Z", now.Add(hold)),
				Entry("nonsense", "yesterday", now.Add(hold)),
				Entry("nothing", "", now.Add(hold)),
			)

			It("M12 P13: should be bound by what operators allow at all, and not begin where that is used up", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", since(now))})
				g.MaxTimeout = time.Hour
				settle(g, now)
				expectClaim(g, "Running:Preserved", now.Add(time.Hour))

				g = group(facts.Member{Machine: Machine("m", Annotation(preservedSince, stamp(now.Add(-longest)))), Node: Node("m", since(now))})
				settle(g, now)
				expectClaim(g, "Running:Preserved", now.Add(hold))
			})

			It("M12: should hold a maintenance that comes a day, or two weeks, after another one like the first", func() {
				g := maintained()
				begins := now
				for _, pause := range []time.Duration{time.Hour, 24 * time.Hour, 14 * 24 * time.Hour, 28 * 24 * time.Hour} {
					ends := begins.Add(20 * time.Hour)
					edit(g, over)
					Expect(settle(g, ends)).To(ConsistOf(RuleMaintenanceOver))
					expectFree(g)
					settle(g, ends.Add(quietTime))
					Expect(machine(g).Annotations).To(BeEmpty())
					begins = ends.Add(pause)
					edit(g, since(begins))
					settle(g, begins)
					expectClaim(g, "Running:Preserved", begins.Add(hold))
				}
			})

			It("M12: should count a maintenance anew also while a person keeps the machine all the time", func() {
				g := maintained()
				edit(g, NodeAnnotation(preserve, "now"))
				settle(g, now)
				edit(g, over)
				settle(g, now.Add(20*time.Hour))
				settle(g, now.Add(20*time.Hour+quietTime))
				Expect(Noted(machine(g))).NotTo(HaveKey(prefix + "maintained-since"))
				edit(g, since(now.Add(30*time.Hour)))
				settle(g, now.Add(30*time.Hour))
				Expect(ReadRecord(machine(g)).Claims).To(ContainElement(Claim{Cause: "maintenance", Expiry: now.Add(30 * time.Hour).Add(hold)}))
			})

			It("M12: should let go of the machine when its time is over, whatever is on the node then", func() {
				for _, request := range []string{"yes", "when-failed"} {
					g := maintained(NodeAnnotation(preserve, request))
					Expect(settle(g, now.Add(hold))).To(ConsistOf(RuleRelease))
					expectFree(g)
					Expect(node(g).Annotations).To(HaveKeyWithValue(preserve, request), "it has not had its time")
					for at := hold; at < 2*longest; at += 5 * time.Hour {
						Expect(settle(g, now.Add(at))).To(BeEmpty())
					}
				}
			})

			It("M12: should count a chain of maintenances of one machine together, however the objects change", func() {
				g := maintained()
				edit(g, over)
				Expect(settle(g, now.Add(20*time.Hour))).To(ConsistOf(RuleMaintenanceOver))
				expectFree(g)
				begins := now.Add(20*time.Hour + facts.DefaultTimeouts.Health - time.Second)
				edit(g, since(begins))
				settle(g, begins)
				expectClaim(g, "Running:Preserved", now.Add(hold))
				settle(g, now.Add(hold))
				Expect(Decide(g.Group, now.Add(hold))[0].Verdict).To(Equal(Untold), "the end was told")
				edit(g, since(now.Add(30*time.Hour)))
				Expect(Decide(g.Group, now.Add(30*time.Hour))[0]).To(And(HaveField("Verdict", Ignored), HaveField("Why", WhyMaintenanceExhausted)))
				g.Maintenance.Enabled = false
				Expect(Decide(g.Group, now.Add(30*time.Hour))[0].Verdict).To(Equal(Untold))
				g.Maintenance.Enabled = true
				Expect(settle(g, now.Add(30*time.Hour))).To(BeEmpty())
				Expect(settle(g, now.Add(longest+time.Hour))).To(BeEmpty(), "it is still that one")

				edit(g, over)
				settle(g, now.Add(longest+time.Hour))
				begins = now.Add(longest + time.Hour + time.Second)
				edit(g, since(begins))
				Expect(settle(g, begins)).To(BeEmpty(), "a new object for it does not make it another one")
				Expect(settle(g, begins.Add(time.Hour))).To(BeEmpty())
			})

			It("M12 P6: should obey an operator who cuts it short, although the maintenance goes on", func() {
				g := maintained()
				edit(g, Annotation(prefix+"expiry-time", stamp(now.Add(time.Hour))))
				Expect(settle(g, now.Add(time.Hour-time.Second))).To(BeEmpty())
				settle(g, now.Add(time.Hour))
				expectFree(g)
				Expect(settle(g, now.Add(2*time.Hour))).To(BeEmpty())
			})

			DescribeTable("M12: should end and not begin where somebody forbids it",
				func(rule Rule, opt any) {
					g := maintained()
					edit(g, opt)
					Expect(settle(g, now)).To(ConsistOf(rule))
					expectFree(g)
					Expect(settle(g, now.Add(time.Hour))).To(BeEmpty())
				},
				Entry("R4: a person, with false", RuleRelease, NodeAnnotation(preserve, "false")),
				Entry("R6: operators", RuleForbidden, Annotation(prefix+"forbidden", "true")),
			)

			It("M13: should end in silence when the maintenance is over and the machine is healthy", func() {
				g := maintained()
				edit(g, over)
				Expect(settle(g, now)).To(ConsistOf(RuleMaintenanceOver))
				expectFree(g)
				Expect(PreservedCondition(node(g))).To(BeNil())
				Expect(Noted(machine(g))).To(Equal(map[string]string{maintainedSince: stamp(now) + "/" + stamp(now)}))
			})

			It("M13: should leave the health timeout to a machine that is not healthy when the maintenance is over, and not more", func() {
				g := maintained()
				edit(g, failing(now), NodeOption(NotReady))
				settle(g, now)
				edit(g, over)
				Expect(settle(g, now)).To(ConsistOf(RuleMaintenanceOver))
				for at := time.Duration(0); at < 10*time.Minute; at += time.Minute {
					Expect(settle(g, now.Add(at))).To(BeEmpty())
					expectClaim(g, "Failed:Preserved", now.Add(10*time.Minute))
					expectHeld(g, now.Add(10*time.Minute))
				}
				Expect(settle(g, now.Add(10*time.Minute))).To(ConsistOf(RuleReleaseFailed))
				Expect(Noted(machine(g))).To(And(HaveKey(released), HaveKeyWithValue(maintainedSince, HavePrefix(stamp(now)))), "no more than that is used up")
			})

			It("M13 H1: should not end before machine-controller-manager has seen that the machine is healthy, if it is to end it otherwise", func() {
				g := maintained()
				edit(g, failing(now), NodeOption(NotReady))
				settle(g, now)
				edit(g, over, Condition("Ready", "True", "", ""))
				settle(g, now)
				expectClaim(g, "Failed:Preserved", now.Add(10*time.Minute))

				g = maintained()
				edit(g, Phase(machinev1alpha1.MachineUnknown, now), over)
				Expect(settle(g, now)).To(ConsistOf(RuleMaintenanceOver))
				expectFree(g)
			})

			DescribeTable("M12: should count the time as used up of which people have kept more, and the maintenance goes on",
				func(claims string, rules []Rule, want []string, opts ...any) {
					g := group(facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", now.Add(hold))), Node: Node("m", since(now.Add(-time.Hour)))})
					edit(g, append(opts, Annotation(prefix+"claims", strings.NewReplacer("PAST", stamp(now), "LATER", stamp(now.Add(hold))).Replace(claims)))...)
					Expect(settle(g, now)).To(Equal(rules))
					Expect(causes(g)).To(Equal(want))
				},
				Entry("P6: an operator has cut it short", "now=LATER,maintenance=PAST", []Rule{RuleClaims}, []string{"now"}, NodeAnnotation(preserve, "now")),
				Entry("P1: a place is free when its own time is over", "auto=PAST,maintenance=LATER", nil, []string{"maintenance"}),
				Entry("P1 X10: not before a power cycle is over", "auto=PAST,maintenance=LATER,remediation=LATER", nil, []string{"auto", "maintenance", "remediation"}, Annotation(remediation, stamp(now.Add(hold)))),
			)

			It("M12 P10: should count from when it began if an expiry was made unreadable, and nothing else is known", func() {
				g := group(facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "maintenance", now), Annotation(prefix+"expiry-time", "soon")), Node: Node("m", since(now.Add(-time.Hour)))})
				settle(g, now)
				expectClaim(g, "Running:Preserved", now.Add(hold-time.Hour))
				Expect(Noted(machine(g))).To(HaveKeyWithValue(maintainedSince, stamp(now.Add(-time.Hour))))
			})

			It("M12 T3: should delete the request whose time was over while the maintenance went on", func() {
				g := maintained()
				edit(g, NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "1h"))
				settle(g, now)
				settle(g, now.Add(2*time.Hour))
				edit(g, over)
				settle(g, now.Add(2*time.Hour))
				expectFree(g)
				Expect(node(g).Annotations).NotTo(HaveKey(preserve))
			})

			It("M12: should look again when one begins that was announced too early, after the time of others was used up", func() {
				used := Annotation(maintainedSince, stamp(now.Add(-hold))+"/"+stamp(now.Add(-time.Minute)))
				g := group(facts.Member{Machine: Machine("m", used), Node: Node("m", since(now.Add(5*time.Minute)))})
				Expect(Decide(g.Group, now)[0]).To(And(HaveField("Target", BeNil()), HaveField("Next", now.Add(5*time.Minute))))
			})

			It("M12 P1: should leave the place to another machine that fails in the same moment", func() {
				g := maintained()
				g.Members = append(g.Members, facts.Member{Machine: Machine("other", failing(now)), Node: Node("other", NotReady)})
				edit(g, failing(now), NodeOption(NotReady))
				Expect(Decide(g.Group, now)[1].TakesPlace()).To(BeTrue())
			})

			DescribeTable("M12: should say until when a machine is kept, or why not", func(until time.Time, why reason.Reason, opts ...any) {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", since(now))})
				edit(g, opts...)
				m := g.Members[0]
				g.Members = []facts.Member{{Machine: Machine("other"), Node: Node("other")}}
				at, because := MaintainedUntil(g.Group, m, now)
				Expect([]any{at, because}).To(Equal([]any{until, why}))
			},
				Entry("it is kept", now.Add(hold), reason.Reason{}),
				Entry("operators forbid it", time.Time{}, WhyForbidden, Annotation(prefix+"forbidden", "true")),
				Entry("it has had its time", time.Time{}, WhyMaintenanceExhausted, since(now.Add(-hold))),
				Entry("the end of its time was told", time.Time{}, WhyMaintenanceExhausted, since(now.Add(-hold-time.Hour)), Annotation(maintainedSince, stamp(now.Add(-hold-time.Minute)))),
			)

			if native {
				It("M12 P6: should count as used up what machine-controller-manager has ended", func() {
					g := maintained()
					edit(g, failing(now), NodeOption(NotReady))
					settle(g, now)
					edit(g, MachineOption(func(m *machinev1alpha1.Machine) {
						delete(m.Annotations, preserve)
						m.Status.CurrentStatus.PreserveExpiryTime = nil
					}))
					settle(g, now.Add(time.Minute))
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(Noted(machine(g))).To(HaveKeyWithValue(maintainedSince, HavePrefix(stamp(now.Add(time.Minute-hold)))))
				})

				It("M12 P9: should keep the hold as long as the request that it has replaced on the node cannot be put back", func() {
					g := group(facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "maintenance", now.Add(hold)), ExpiryInStatus(now.Add(hold)), Annotation(prefix+"request", "Node:when-failed"), Annotation(lastApplied, "when-failed")), NodeUnknown: true})
					settle(g, now)
					Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime).NotTo(BeNil())
					Expect(Noted(machine(g))).To(HaveKey(prefix + "expiry-in-status"))
				})

				It("M12 R2 P2: should leave no hold of a machine that is only protected, and make it the last to go", func() {
					g := group(facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m", since(now), NodeAnnotation(preserve, ""))})
					settle(g, now)
					expectClaim(g, "Running:Preserved", now.Add(hold))
					expectUnheld(g)
					Expect(machine(g).Annotations).To(HaveKeyWithValue(priority, "4"))
				})
			}

			It("M13: should go on for another maintenance that begins before the machine is healthy, in the time that was left", func() {
				g := maintained()
				edit(g, failing(now), NodeOption(NotReady), over)
				settle(g, now)
				expectClaim(g, "Failed:Preserved", now.Add(10*time.Minute))
				edit(g, since(now.Add(time.Minute)))
				settle(g, now.Add(time.Minute))
				expectClaim(g, "Failed:Preserved", now.Add(hold))
			})

			It("M13: should end as if the maintenance was over when nobody enables it any more", func() {
				g := maintained()
				g.Maintenance.Enabled = false
				Expect(settle(g, now)).To(ConsistOf(RuleMaintenanceOver))
				expectFree(g)
			})

			It("M12 P10: should end when the extension is disabled", func() {
				g := maintained()
				g.Disabled, g.Maintenance = true, MaintenanceOptions{}
				settle(g, now)
				expectFree(g)
			})

			It("M12 P9: should neither end nor change because the node cannot be read", func() {
				g := maintained()
				edit(g, failing(now), NodeOption(NotReady))
				settle(g, now)
				node := node(g)
				g.Members[0].Node, g.Members[0].NodeUnknown = nil, true
				Expect(settle(g, now.Add(time.Hour))).To(BeEmpty())
				g.Members[0].Node = node
				expectClaim(g, "Failed:Preserved", now.Add(hold))
			})

			It("M15 P3: should not keep a machine that fails while its MachineDeployment is being updated", func() {
				g := maintained()
				g.Rollout = true
				edit(g, failing(now), NodeOption(NotReady))
				Expect(settle(g, now)).To(ConsistOf(RuleRollout))
				Expect(ReadRecord(machine(g))).To(BeNil())
			})

			It("M12: should add up with the claim of a person, which holds", func() {
				g := maintained()
				edit(g, NodeAnnotation(preserve, "now"))
				settle(g, now)
				Expect(machine(g).Annotations).To(And(HaveKeyWithValue(prefix+"cause", "now"), HaveKeyWithValue(prefix+"expiry-time", stamp(now.Add(72*time.Hour)))))
				edit(g, over)
				settle(g, now)
				Expect(Noted(machine(g))).NotTo(HaveKey(prefix + "claims"))
				edit(g, since(now), NodeOption(func(n *corev1.Node) { delete(n.Annotations, preserve) }))
				settle(g, now)
				expectClaim(g, "Running:Preserved", now.Add(hold))
				expectUnheld(g)
			})
		})
	}
})
