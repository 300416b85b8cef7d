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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// quietTime is for how long a machine was healthy, and nothing claimed it, when its time counts anew: a health timeout, from when the end of the
// preservation is certain to be written (P13).
const quietTime = 11 * time.Minute

var _ = Describe("Limits", func() {
	const (
		day     = 24 * time.Hour
		lasts   = 72 * time.Hour
		longest = 336 * time.Hour
	)
	var (
		now       = Start.Add(time.Hour)
		later     = now.Add(time.Hour)
		forbidden = Annotation(prefix+"forbidden", "true")
		// worn makes the machine one that has been kept for as long as it may be.
		worn  = Annotation(preservedSince, now.Add(-longest).Format(time.RFC3339))
		asked = NodeAnnotation(preserve, "now")
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		_, native := holder.(PreserveExpiry)

		group := func(m facts.Member) *world { return worldOf(holder, m) }

		Context(fmt.Sprintf("%T", holder), func() {
			DescribeTable("P13: should let go of a machine in the end whose request comes back again and again",
				func(own string, opts ...MachineOption) {
					g := group(facts.Member{Machine: Machine("m", opts...), Node: Node("m")})
					asks := func(at time.Time) *Record {
						asked(node(g))
						NodeAnnotation(timeout, own)(node(g))
						settle(g, at)
						return g.last.Target
					}
					var last time.Time
					g.MaxTimeout = day
					for at := now; at.Before(now.Add(day)); at = at.Add(5 * time.Minute) {
						if asks(at) != nil {
							last = at
						}
					}
					Expect(last).To(BeTemporally("~", now.Add(day), 10*time.Minute))
					for at := now.Add(day); at.Before(now.Add(day + facts.DefaultTimeouts.Health)); at = at.Add(time.Minute) {
						Expect(asks(at)).To(BeNil())
					}
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(node(g).Spec.Taints).To(BeEmpty())
					Expect(node(g).Annotations).NotTo(HaveKey(disabled))
					Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime).To(Or(BeNil(), HaveField("Time", BeTemporally("<=", now.Add(2*day)))))
				},
				Entry("for the pool's time", ""),
				Entry("for its own", "5h"),
				Entry("for the longest time", "336h"),
				Entry("for ever", "2562047h"),
				Entry("and that has failed", "", failing(now)),
			)

			It("P13: should say why a machine is let go that has been kept for the longest time, and why it is not kept again", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now), worn, Preserved("Failed:Preserved", "now", now), worn), Node: Node("m", NotReady, asked)})
				decisions, _ := round(g.Group, now)
				Expect(decisions[0]).To(And(HaveField("Rule", RuleMaxTimeout), HaveField("Why", WhyKeptForTooLong), HaveField("ConsumeRequest", true)))
				Expect(Noted(machine(g))).To(And(HaveKey(released), HaveKey(preservedSince)))

				for _, request := range []string{"now", "when-failed"} {
					d := Decide(group(facts.Member{Machine: Machine("m", failing(now), worn), Node: Node("m", NotReady, NodeAnnotation(preserve, request))}).Group, now)[0]
					Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Verdict", Refused), HaveField("Why", WhyKeptForTooLong)))
				}
				d := Decide(group(facts.Member{Machine: Machine("m", failing(now), worn), Node: Node("m", NotReady)}).Group, now)[0]
				Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Verdict", Refused), HaveField("ConsumeRequest", false)))
			})

			It("P13: should count anew once the machine was healthy, and nobody kept it, for its health timeout", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(timeout, "1h"))})
				settle(g, now)
				d, _ := round(g.Group, now.Add(time.Hour))
				Expect(d[0].Next).To(Equal(now.Add(time.Hour + quietTime)))
				settle(g, now.Add(time.Hour+quietTime-time.Second))
				Expect(Noted(machine(g))).To(HaveKeyWithValue(preservedSince, stamp(now)+"/"+stamp(now.Add(time.Hour))))
				settle(g, now.Add(time.Hour+quietTime))
				Expect(Noted(machine(g))).NotTo(HaveKey(preservedSince))

				failed := now.Add(20 * 24 * time.Hour)
				Phase(machinev1alpha1.MachineUnknown, failed.Add(-facts.DefaultTimeouts.Health))(machine(g))
				NotReady(node(g))
				settle(g, failed)
				Expect(ReadRecord(machine(g))).To(And(HaveField("Claims", ConsistOf(Claim{Cause: "auto", Expiry: failed.Add(lasts)})), HaveField("Failed", true)))
			})

			DescribeTable("P13: should not count anew", func(at time.Time, m facts.Member) {
				Phase(machinev1alpha1.MachineRunning, now.Add(-time.Hour))(m.Machine)
				Annotation(preservedSince, stamp(now.Add(-longest))+"/"+stamp(now))(m.Machine)
				g := group(m)
				settle(g, at)
				Expect(Noted(machine(g))).To(HaveKeyWithValue(preservedSince, HavePrefix(stamp(now.Add(-longest)))))
			},
				Entry("before that time is over", now.Add(quietTime-time.Second), facts.Member{Machine: Machine("m"), Node: Node("m")}),
				Entry("of a machine that is not healthy", now.Add(time.Hour), facts.Member{Machine: Machine("m"), Node: Node("m", NotReady)}),
				Entry("of one whose node nobody knows", now.Add(time.Hour), facts.Member{Machine: Machine("m"), NodeUnknown: true}),
				Entry("of one that has no node", now.Add(time.Hour), facts.Member{Machine: Machine("m")}),
			)

			It("P13: should count anew from when the machine recovered, if that was later", func() {
				g := group(facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineRunning, now.Add(time.Minute)), Annotation(preservedSince, stamp(now.Add(-longest))+"/"+stamp(now))), Node: Node("m")})
				d, _ := round(g.Group, now.Add(2*time.Minute))
				Expect(d[0].Next).To(Equal(now.Add(time.Minute + facts.DefaultTimeouts.Health)))
			})

			It("P13, M12: should count anew although machine-controller-manager restarts its timer with a preservation", func() {
				g := group(facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineRunning, now.Add(5*time.Minute)), Annotation(preservedSince, stamp(now.Add(-longest))+"/"+stamp(now))), Node: Node("m")})
				machine(g).Status.LastOperation.LastUpdateTime = metav1.NewTime(now.Add(2 * time.Minute))
				d, _ := round(g.Group, now.Add(6*time.Minute))
				Expect(d[0].Next).To(Equal(now.Add(2*time.Minute + facts.DefaultTimeouts.Health)))
			})

			It("P13: should read what the version before has written, which did not say when it ended", func() {
				g := group(facts.Member{Machine: Machine("m", worn), Node: Node("m")})
				settle(g, now)
				Expect(Noted(machine(g))).To(HaveKeyWithValue(preservedSince, stamp(now.Add(-longest))+"/"+stamp(now)))
				_, changed := round(g.Group, now.Add(time.Minute))
				Expect(changed).To(BeFalse())
				settle(g, now.Add(quietTime))
				Expect(Noted(machine(g))).NotTo(HaveKey(preservedSince))
			})

			if !native { // else the request is deleted
				It("P13: should not count anew for a request that is not heeded", func() {
					g := group(facts.Member{Machine: Machine("m", worn), Node: Node("m", asked)})
					for at := now; at.Before(now.Add(24 * time.Hour)); at = at.Add(time.Minute) {
						settle(g, at)
						Expect(g.last.Target).To(BeNil())
					}
					delete(node(g).Annotations, preserve)
					settle(g, now.Add(24*time.Hour))
					asked(node(g))
					settle(g, now.Add(24*time.Hour+quietTime))
					Expect(g.last.Target).NotTo(BeNil())
				})
			}

			if native { // else the request stays, and is not heeded
				It("P13: should not count anew while a request that is deleted is put back again and again", func() {
					g := group(facts.Member{Machine: Machine("m", worn), Node: Node("m")})
					for at := now; at.Before(now.Add(time.Hour)); at = at.Add(time.Minute) {
						asked(node(g))
						settle(g, at)
						Expect(g.last.Target).To(BeNil(), "at %s", at)
					}
					settle(g, now.Add(time.Hour+quietTime))
					asked(node(g))
					settle(g, now.Add(time.Hour+quietTime))
					Expect(g.last.Target).NotTo(BeNil())
				})
			}

			It("T2 H4: should leave no trace of a failure that did not happen", func() {
				ends := now.Add(time.Hour)
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(timeout, "1h"))})
				settle(g, now)
				Phase(machinev1alpha1.MachineUnknown, ends.Add(-facts.DefaultTimeouts.Health-10*time.Second))(machine(g))
				NotReady(node(g))
				near := ends.Add(-20 * time.Second)
				settle(g, near)
				Expect(ReadRecord(machine(g)).Expiry()).To(Equal(near.Add(lasts)))

				Phase(machinev1alpha1.MachineRunning, near)(machine(g))
				Condition("Ready", "True", "", "")(node(g))
				settle(g, near)
				Expect(ReadRecord(machine(g)).Claims).To(ConsistOf(Claim{Cause: "now", Expiry: ends}))
				settle(g, ends)
				Expect(ReadRecord(machine(g))).To(BeNil())
			})

			It("T2 T3: should delete a request whose time is over when the machine is healthy again before its deadline", func() {
				ends := now.Add(time.Hour)
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(timeout, "1h"))})
				settle(g, now)
				Phase(machinev1alpha1.MachineUnknown, ends.Add(-facts.DefaultTimeouts.Health+10*time.Second))(machine(g))
				NotReady(node(g))
				settle(g, ends.Add(-15*time.Second))
				settle(g, ends)
				Phase(machinev1alpha1.MachineRunning, ends.Add(5*time.Second))(machine(g))
				Condition("Ready", "True", "", "")(node(g))
				settle(g, ends.Add(5*time.Second))
				Expect(ReadRecord(machine(g))).To(BeNil())
				Expect(node(g).Annotations).NotTo(HaveKey(preserve))
			})

			It("T2 P1: should give the free places to as many as there are of those that are asked for and fail together", func() {
				g := group(facts.Member{})
				g.Share, g.Members = new(int32(2)), nil
				for _, name := range []string{"c", "a", "b"} {
					g.Members = append(g.Members, facts.Member{Machine: Machine(name, failing(now), Preserved("Running:Preserved", "now", later)), Node: Node(name, asked, NotReady)})
				}
				for range 3 {
					round(g.Group, now)
				}
				for _, m := range g.Members {
					record := ReadRecord(m.Machine)
					Expect(record.Failed).To(BeTrue())
					if m.Machine.Name == "c" {
						Expect(record.Expiry()).To(Equal(later))
					} else {
						Expect(record.Expiry()).To(Equal(now.Add(lasts)))
					}
				}
			})

			It("T2 X10: should keep a machine that a power cycle did not help for as long as if nobody had asked", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(timeout, "1h"))})
				settle(g, now)
				Annotation(prefix+"remediation", stamp(now.Add(40*time.Minute)))(machine(g))
				Phase(machinev1alpha1.MachineUnknown, now.Add(10*time.Minute))(machine(g))
				NotReady(node(g))
				for at := now; at.Before(now.Add(2 * time.Hour)); at = at.Add(10 * time.Second) {
					settle(g, at)
				}
				Expect(ReadRecord(machine(g)).Expiry()).To(BeTemporally("~", now.Add(40*time.Minute+lasts), time.Minute))
			})

			It("P3: should tell of the place that a machine loses which an update reaches before its deadline", func() {
				deadline := now.Add(10 * time.Second)
				g := group(facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineUnknown, deadline.Add(-facts.DefaultTimeouts.Health))), Node: Node("m", NotReady)})
				settle(g, now)
				g.Rollout = true
				d, _ := round(g.Group, deadline)
				Expect(d[0]).To(And(HaveField("Verdict", Refused), HaveField("Why", WhyUpdating)))
			})

			It("P3: should leave the protection of machine-controller-manager as long as machines of the old MachineSet are on their way out", func() {
				of := func(set string) MachineOption { return Of(Set(set, Deployment("d"))) }
				g := group(facts.Member{Machine: Machine("m", of("new"), Preserved("Running:Preserved", "now", now)), Node: Node("m", NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"))})
				g.Members = append(g.Members, facts.Member{Machine: Machine("old", of("old"), Deleted(now))})
				settle(g, now)
				Expect(ReadRecord(machine(g))).To(BeNil())
				Expect(node(g).Annotations).To(HaveKey(byMCM))

				g.Members = append(g.Members, facts.Member{Machine: Machine("other", of("old"))}) // both MachineSets stay, as with updates in place
				Preserved("Running:Preserved", "now", now)(machine(g))
				settle(g, now)
				Expect(node(g).Annotations).NotTo(HaveKey(byMCM))
			})

			It("P10: should leave nothing behind where the extension is switched off", func() {
				g := group(facts.Member{Machine: Machine("m", Annotation(prefix+"maintained-since", stamp(now))), Node: Node("m", asked)})
				settle(g, now)
				g.Disabled = true
				settle(g, now.Add(time.Minute))
				Expect(Noted(machine(g))).NotTo(Or(HaveKey(preservedSince), HaveKey(prefix+"maintained-since")))
			})

			It("P13: should heed the limit with each claim that comes later", func() {
				begun := now.Add(-longest + 2*time.Hour)
				g := group(facts.Member{Machine: Machine("m", failing(now), Preserved("Failed:Preserved", "auto", later), Annotation(preservedSince, begun.Format(time.RFC3339))), Node: Node("m", NotReady, asked)})
				settle(g, now)
				Expect(g.last.Target.Claims).To(ConsistOf(Claim{Cause: "auto", Expiry: later}, Claim{Cause: "now", Expiry: now.Add(2 * time.Hour)}))
			})

			It("P13: should begin to count with the preservation, and not with a hold before the deadline", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady)})
				settle(g, now.Add(-10*time.Second))
				Expect(ReadRecord(machine(g)).Provisional).To(BeTrue())
				Expect(Noted(machine(g))).NotTo(HaveKey(preservedSince))
				settle(g, now)
				Expect(Noted(machine(g))).To(HaveKeyWithValue(preservedSince, now.Format(time.RFC3339)))
				Expect(g.told.Target.Since).To(BeTemporally("==", now), "P11: people are told")
			})

			It("P13: should count from now where nobody has counted yet, whatever was written then", func() {
				g := group(facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", now.Add(2562047*time.Hour))), Node: Node("m", asked)})
				delete(machine(g).Annotations, preservedSince)
				settle(g, now)
				Expect(ReadRecord(machine(g)).Expiry()).To(BeTemporally("==", now.Add(longest)))
				Expect(Noted(machine(g))).To(HaveKeyWithValue(preservedSince, now.Format(time.RFC3339)))
			})

			It("P13 P6: should obey an operator who edits the expiry, also beyond the limit", func() {
				edited := now.Add(2 * longest)
				g := group(facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", edited)), Node: Node("m", asked)})
				if native {
					ExpiryInStatus(edited)(machine(g))
				}
				for _, at := range []time.Time{now, edited.Add(-time.Second)} {
					settle(g, at)
					Expect(g.last.Target.Expiry()).To(BeTemporally("==", edited))
				}
				d, _ := round(g.Group, edited)
				Expect(d[0].Rule).To(Equal(RuleMaxTimeout))
			})

			DescribeTable("R6: should end a preservation that operators forbid",
				func(m facts.Member, forbid func(*world)) {
					g := group(m)
					forbid(g)
					decisions, _ := round(g.Group, now)
					Expect(decisions[0]).To(And(HaveField("Rule", RuleForbidden), HaveField("Why", WhyForbidden), HaveField("ConsumeRequest", true)))
					settle(g, now)
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
					Expect(node(g).Spec.Taints).To(BeEmpty())
					Expect(node(g).Annotations).NotTo(HaveKey(disabled))
				},
				Entry("of the machine", facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", later), forbidden), Node: Node("m", asked)}, func(*world) {}),
				Entry("of its MachineDeployment", facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", later)), Node: Node("m", asked)}, func(g *world) { g.Forbidden = true }),
				Entry("of a failed machine", facts.Member{Machine: Machine("m", failing(now), Preserved("Failed:Preserved", "auto", later), forbidden), Node: Node("m", NotReady)}, func(*world) {}),
			)

			DescribeTable("R6: should begin none that operators forbid",
				func(m facts.Member, want Verdict) {
					d := Decide(group(m).Group, now)[0]
					Expect(d.Target).To(BeNil())
					Expect(d.Verdict).To(Equal(want))
					g := group(m)
					settle(g, now)
					Expect(ReadRecord(machine(g))).To(BeNil())
				},
				Entry("now", facts.Member{Machine: Machine("m", forbidden), Node: Node("m", asked)}, Ignored),
				Entry("now on a machine that failed", facts.Member{Machine: Machine("m", failing(now), forbidden), Node: Node("m", NotReady, asked)}, Refused),
				Entry("when-failed", facts.Member{Machine: Machine("m", failing(now), forbidden), Node: Node("m", NotReady, NodeAnnotation(preserve, "when-failed"))}, Refused),
				Entry("auto", facts.Member{Machine: Machine("m", failing(now), forbidden), Node: Node("m", NotReady)}, Refused),
				Entry("false", facts.Member{Machine: Machine("m", failing(now), forbidden), Node: Node("m", NotReady, NodeAnnotation(preserve, "false"))}, Untold),
				Entry("nothing", facts.Member{Machine: Machine("m", forbidden), Node: Node("m")}, Untold),
			)

			It("R6: should take nothing but true for a veto", func() {
				Expect(Decide(group(facts.Member{Machine: Machine("m", Annotation(prefix+"forbidden", "false")), Node: Node("m", asked)}).Group, now)[0].Rule).To(Equal(RuleBegin))
			})

			DescribeTable("R6 P13: should delete a request only where machine-controller-manager obeys it by itself", func(opt MachineOption) {
				g := group(facts.Member{Machine: Machine("m", opt), Node: Node("m", asked)})
				settle(g, now)
				if native {
					Expect(node(g).Annotations).NotTo(HaveKey(preserve))
				} else {
					Expect(node(g).Annotations).To(Equal(map[string]string{preserve: "now"}))
				}
			},
				Entry("forbidden", forbidden),
				Entry("kept for the longest time", worn),
			)

			It("P14: should treat what the node says of machine-controller-manager's own as invalid, and leave it while that means nothing", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "auto-preserved"))})
				decisions, changed := round(g.Group, now)
				Expect(decisions[0].Request.Invalid).To(Equal("auto-preserved"))
				Expect(decisions[0].Target).To(BeNil())
				Expect(changed).To(Equal(!native), "R2: a sync at most")
				Expect(node(g).Annotations).To(Equal(map[string]string{preserve: "auto-preserved"}))
			})

			It("P14 T6: should delete what the node says of machine-controller-manager's own from one that has failed, and let it go", func() {
				g := group(facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineFailed, now), Annotation(lastApplied, "auto-preserved"), Native(later)),
					Node: Node("m", NodeAnnotation(preserve, "auto-preserved"))})
				g.Share = new(int32(0))
				round(g.Group, now)
				Expect(machine(g).Annotations[lastApplied]).NotTo(Equal("invalid"))
				settle(g, now)
				Expect(node(g).Annotations).To(BeEmpty())
				if native {
					Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now))
				}
			})
		})
	}

	Describe("PreserveExpiry", func() {
		// left is what remains of the longest time.
		const left = 2 * time.Hour
		begun := Annotation(preservedSince, now.Add(left-longest).Format(time.RFC3339))
		pools := func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachinePreserveTimeout: duration(lasts)}
		}

		DescribeTable("P13: should cut what machine-controller-manager began by itself", func(opts ...MachineOption) {
			m := facts.Member{Machine: Machine("m", opts...), Node: Node("m")}
			if m.Machine.Annotations[preserve] == "" {
				asked(m.Node)
			}
			g := worldOf(PreserveExpiry{}, m)
			decisions, _ := round(g.Group, now)
			Expect(decisions[0].Target.Expiry()).To(BeTemporally("==", now.Add(left)))
			round(g.Group, now.Add(time.Minute))
			Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now.Add(left)))
		},
			Entry("while nobody else was there", begun, Native(now.Add(50*time.Hour))),
			Entry("a moment ago, for as long as the pool's machines are kept", begun, Phase(machinev1alpha1.MachineRunning, now), Native(now.Add(lasts)), pools),
			Entry("for a failed machine, without being asked", begun, Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), Native(now.Add(50*time.Hour))),
			Entry("anew when a request changed twice: that is no operator's edit",
				Preserved("Running:Preserved", "now", later), begun, Phase(machinev1alpha1.MachineRunning, now), ExpiryInStatus(now.Add(96*time.Hour))),
			Entry("anew, for the time that the machine says",
				Preserved("Running:Preserved", "now", later), begun, Phase(machinev1alpha1.MachineRunning, now), ExpiryInStatus(now.Add(lasts+time.Second)), pools),
		)
	})

	Describe("PreserveExpiry, of a pool whose machines all have a request that is refused", func() {
		DescribeTable("P13: should make what machine-controller-manager holds last until it has marked the machine Failed, and look again before it ends",
			func(since, native, want, next time.Time, edits ...func(*world)) {
				g := worldOf(PreserveExpiry{}, facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineUnknown, since), worn, Templated("now"), Native(native)), Node: Node("m", NotReady, asked)})
				for _, edit := range edits {
					edit(g)
				}
				d, _ := round(g.Group, now)
				Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", want))
				Expect(d[0].Next).To(BeTemporally("==", next))
			},
			Entry("it lasts", now.Add(-time.Hour), later, later, later.Add(-time.Minute)),
			Entry("it ends before the deadline", now.Add(-5*time.Minute), now.Add(4*time.Minute), now.Add(15*time.Minute), now.Add(4*time.Minute+30*time.Second)),
			Entry("it ends less than a minute after the deadline", now.Add(-5*time.Minute), now.Add(6*time.Minute-time.Second), now.Add(15*time.Minute), now.Add(4*time.Minute+30*time.Second)),
			Entry("it ends a minute after that", now.Add(-5*time.Minute), now.Add(6*time.Minute), now.Add(6*time.Minute), now.Add(4*time.Minute+30*time.Second)),
			Entry("it ends now, and the deadline is past", now.Add(-time.Hour), now.Add(time.Second), now.Add(10*time.Minute), time.Time{}),
			Entry("P4: no machine is wanted", now.Add(-time.Hour), now.Add(time.Second), now.Add(time.Second), time.Time{}, func(g *world) { g.Replicas = 0 }),
		)
	})

	Describe("PreserveExpiry, in a shoot that lets no request go", func() {
		It("P13 P14: should bring the expiry of a failed machine forward that is kept no more, for machine-controller-manager to end it", func() {
			g := worldOf(PreserveExpiry{}, facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineFailed, now), worn, Native(now.Add(lasts))), Node: Node("m", NotReady, asked)})
			for range 3 {
				round(g.Group, now)
				asked(node(g))
				Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now))
			}
		})
	})

	Describe("HealthTimer", func() {
		DescribeTable("P14 R2: should sync nothing to the machine but what is valid", func(value, want string) {
			g := worldOf(HealthTimer{}, facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, value))})
			round(g.Group, now)
			Expect(machine(g).Annotations).To(HaveKeyWithValue(lastApplied, want))
		},
			Entry("now", "now", "now"),
			Entry("true", "true", "true"),
			Entry("when-failed", "when-failed", "when-failed"),
			Entry("false", "false", "false"),
			Entry("invalid", "<script>", "invalid"),
		)

		It("P14 R2 P9: should have an invalid request of a node beat the machine's, also while the node cannot be read", func() {
			machine := Machine("m", Annotation(preserve, "now"), Annotation(lastApplied, "invalid"))
			d := Decide(worldOf(HealthTimer{}, facts.Member{Machine: machine, NodeUnknown: true}).Group, now)[0]
			Expect(d.Target).To(BeNil())
			Expect(d.Request).To(Equal(Request{Invalid: "invalid", OnNode: true}))
		})
	})
})
