// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// A machine-controller-manager to come has phases of which nobody knows here what they mean.
var _ = Describe("A phase that is not known", func() {
	var (
		now      = Start.Add(time.Hour)
		later    = now.Add(20 * time.Hour)
		failing  = Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute))
		near     = Phase(machinev1alpha1.MachineUnknown, now.Add(-580*time.Second))
		maintain = NodeAnnotation(maintenance, stamp(now))
		cycle    = Annotation(remediation, stamp(later))
		// foreign has machine-controller-manager put the machine into such a phase, and its node falls silent.
		foreign = func(m *facts.Member, at time.Time) {
			m.Machine = m.Machine.DeepCopy()
			Phase("Rebooting", at)(m.Machine)
			if m.Node != nil {
				m.Node = m.Node.DeepCopy()
				NotReady(m.Node)
			}
		}
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		group := func(m facts.Member) *Group {
			return &Group{
				Holder:         holder,
				Share:          new(int32(1)),
				Timeout:        72 * time.Hour,
				MaxTimeout:     336 * time.Hour,
				Pool:           facts.Pool{Replicas: 3},
				Timeouts:       facts.DefaultTimeouts,
				NodeConditions: facts.DefaultNodeConditions,
				Maintenance:    MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
				Remediation:    RemediationOptions{Enabled: true},
				Members:        []facts.Member{m},
			}
		}
		// settle looks until there is nothing more to be done, and returns the last decision.
		settle := func(g *Group, now time.Time) Decision {
			GinkgoHelper()
			for range 6 {
				decisions, changed := round(*g, now)
				if !changed {
					Expect(decisions[0].Next.IsZero() || decisions[0].Next.After(now)).To(BeTrue(), "it does not look again at once")
					return decisions[0]
				}
			}
			Fail("it does not come to rest")
			return Decision{}
		}
		member := func(node []NodeOption, opts ...MachineOption) facts.Member {
			return facts.Member{Machine: Machine("m", opts...), Node: Node("m", node...)}
		}

		Context(fmt.Sprintf("%T", holder), func() {
			DescribeTable("should begin nothing, and touch nothing that is not ours", func(m facts.Member, changes ...func(*Group)) {
				foreign(&m, now)
				g := group(m)
				for _, change := range changes {
					change(g)
				}
				m = g.Members[0]
				for _, at := range []time.Duration{0, time.Hour, 100 * time.Hour, 1000 * time.Hour} {
					decision := settle(g, now.Add(at))
					Expect(decision.Target).To(BeNil())
					Expect(equal(g.Members[0].Machine, m.Machine)).To(BeTrue(), "%v became %v", m.Machine, g.Members[0].Machine)
					Expect(equal(g.Members[0].Node, m.Node)).To(BeTrue())
				}
			},
				Entry("a machine", member(nil)),
				Entry("a candidate for the share", member(nil, failing)),
				Entry("one that never joined", facts.Member{Machine: Machine("m", NeverJoined)}),
				Entry("one whose node is not known", facts.Member{Machine: Machine("m"), NodeUnknown: true}),
				Entry("now is asked for", member([]NodeOption{NodeAnnotation(preserve, "now")})),
				Entry("now is asked for on the Machine", member(nil, Annotation(preserve, "now"))),
				Entry("when-failed is asked for", member([]NodeOption{NodeAnnotation(preserve, "when-failed")})),
				Entry("it may not be kept", member([]NodeOption{NodeAnnotation(preserve, "false")})),
				Entry("what is asked for is not valid", member([]NodeOption{NodeAnnotation(preserve, "soon")})),
				Entry("operators forbid it", member([]NodeOption{NodeAnnotation(preserve, "now")}, Annotation(prefix+"forbidden", "true"))),
				Entry("its node is under maintenance", member([]NodeOption{maintain})),
				Entry("its host is to be power-cycled", member(nil, cycle)),
				Entry("machine-controller-manager preserves it at a request", member([]NodeOption{NodeAnnotation(preserve, "now")}, Native(later))),
				Entry("machine-controller-manager preserves it by itself", member(nil, Native(later), Annotation(preserve, "auto-preserved"))),
				Entry("machine-controller-manager preserves it, and nobody knows why", member(nil, Native(later))),
				Entry("machine-controller-manager has preserved it", member(nil, Native(now.Add(-time.Hour)))),
				Entry("it has had its time", member(nil, Annotation(released, stamp(now.Add(-time.Hour))))),
				Entry("it was kept for as long as it may be", member(nil, Annotation(preservedSince, stamp(now.Add(-400*time.Hour))))),
				Entry("its pool is updated", member(nil), func(g *Group) { g.Rollout = true }),
				Entry("its pool is removed", member(nil, Native(later)), func(g *Group) { g.Replicas = 0 }),
				Entry("the share is not known", member(nil, Native(later)), func(g *Group) { g.Share = nil }),
				Entry("the extension is disabled", member(nil, Native(later)), func(g *Group) { g.Disabled = true }),
			)

			It("should tell people whose request waits for the phase, and heed it after that", func() {
				g := group(member([]NodeOption{NodeAnnotation(preserve, "now")}))
				foreign(&g.Members[0], now)
				decision := settle(g, now)
				Expect(decision.Verdict).To(Equal(Ignored))
				Expect(decision.Why).To(Equal(WhyPhaseNotKnown))
				g.Members[0].Machine = g.Members[0].Machine.DeepCopy()
				Phase(machinev1alpha1.MachineRunning, now.Add(time.Hour))(g.Members[0].Machine)
				settle(g, now.Add(time.Hour))
				Expect(ReadRecord(g.Members[0].Machine).Cause()).To(Equal("now"))
			})

			It("M12: should say that a maintenance does not keep the machine, and why", func() {
				g := group(member([]NodeOption{maintain}))
				foreign(&g.Members[0], now)
				until, why := MaintainedUntil(*g, g.Members[0], now)
				Expect(until).To(BeZero())
				Expect(why).To(Equal(WhyPhaseNotKnown))
			})

			DescribeTable("should take nothing away that is promised, and keep nothing beyond its expiry", func(m facts.Member, failed bool) {
				g := group(m)
				settle(g, now)
				before := ReadRecord(g.Members[0].Machine)
				Expect(before).NotTo(BeNil(), "it is preserved")
				Expect(before.Failed).To(Equal(failed))

				foreign(&g.Members[0], now)
				expiry, status := before.Expiry(), g.Members[0].Machine.Status.CurrentStatus
				protection := g.Members[0].Node.Annotations
				for at := now; at.Before(expiry); at = at.Add(11 * time.Minute) {
					settle(g, at)
					record := ReadRecord(g.Members[0].Machine)
					Expect(record).NotTo(BeNil(), "at %s", at)
					Expect(record.Claims).To(Equal(slices.DeleteFunc(slices.Clone(before.Claims), func(c Claim) bool { return !at.Before(c.Expiry) })), "each ends by itself")
					Expect(record.Failed).To(Equal(failed), "nothing fails, and nothing recovers")
					Expect(record.Expiry()).To(BeTemporally("==", expiry))
					Expect(g.Members[0].Machine.Status.CurrentStatus).To(Equal(status))
					Expect(g.Members[0].Node.Annotations).To(Equal(protection))
					_, tainted := TaintedSince(g.Members[0].Node)
					Expect(tainted).To(Equal(before.Drains()))
				}

				settle(g, expiry)
				Expect(ReadRecord(g.Members[0].Machine)).To(BeNil())
				settle(g, expiry.Add(time.Hour)) // its node was to go with it, and does not
				machine, node := g.Members[0].Machine, g.Members[0].Node
				Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachinePhase("Rebooting")))
				Expect(machine.Status.CurrentStatus.PreserveExpiryTime == nil || !machine.Status.CurrentStatus.PreserveExpiryTime.After(expiry)).To(BeTrue())
				Expect(machine.Annotations).NotTo(HaveKey(preserve))
				Expect(node.Annotations).NotTo(Or(HaveKey(preserve), HaveKey(disabled), HaveKey(byMCM)))
				Expect(node.Spec.Taints).To(BeEmpty())
				Expect(conditionTrue(node)).To(BeFalse())
			},
				Entry("now", member([]NodeOption{NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "20h")}), false),
				Entry("now, and it has failed", member([]NodeOption{NodeAnnotation(preserve, "now"), NotReady}, failing), true),
				Entry("when-failed", member([]NodeOption{NodeAnnotation(preserve, "when-failed"), NotReady}, failing), true),
				Entry("auto", member([]NodeOption{NotReady}, failing), true),
				Entry("auto, and it is about to fail", member([]NodeOption{NotReady}, near), false),
				Entry("now, and it is about to fail", member([]NodeOption{NodeAnnotation(preserve, "now"), NotReady}, near), false),
				Entry("maintenance and now", member([]NodeOption{NodeAnnotation(preserve, "now"), maintain}), false),
				Entry("maintenance, and it has failed", member([]NodeOption{maintain, NotReady}, failing), true),
				Entry("maintenance", member([]NodeOption{maintain}), false),
				Entry("a power cycle", member([]NodeOption{NotReady}, cycle, failing), true),
				Entry("a power cycle of a machine that is well", member(nil, cycle), false),
			)

			DescribeTable("should go on once the phase is known again", func(node []NodeOption, phase MachineOption, rules ...any) {
				g := group(member([]NodeOption{NotReady}, near))
				settle(g, now)
				foreign(&g.Members[0], now)
				settle(g, now.Add(time.Hour))
				g.Members[0].Machine = g.Members[0].Machine.DeepCopy()
				g.Members[0].Node = Node("m", node...)
				phase(g.Members[0].Machine)
				decisions, _ := round(*g, now.Add(2*time.Hour))
				Expect(decisions[0].Rule).To(BeElementOf(rules...))
			},
				Entry("it has rebooted: it did not fail", nil, Phase(machinev1alpha1.MachineRunning, now.Add(2*time.Hour)), RuleMargin),
				Entry("it has not", []NodeOption{NotReady}, Phase(machinev1alpha1.MachineUnknown, now.Add(2*time.Hour)), RuleAuto),
			)

			It("P8: should finish a release that was interrupted", func() {
				m := member([]NodeOption{NodeAnnotation(preserve, "when-failed"), NotReady}, failing)
				g := group(m)
				settle(g, now)
				expiry := ReadRecord(g.Members[0].Machine).Expiry()
				kept := g.Members[0]
				steps := len(Steps(holder, Decide(*g, expiry)[0], g.Timeouts, expiry))
				for done := range steps {
					g := group(kept)
					for _, step := range Steps(holder, Decide(*g, expiry)[0], g.Timeouts, expiry)[:done] {
						Make(step, &g.Members[0])
					}
					foreign(&g.Members[0], expiry)
					settle(g, expiry)
					settle(g, expiry.Add(time.Hour))
					Expect(ReadRecord(g.Members[0].Machine)).To(BeNil(), "after %d steps", done)
					Expect(g.Members[0].Node.Annotations).NotTo(HaveKey(disabled))
					Expect(g.Members[0].Node.Spec.Taints).To(BeEmpty())
				}
			})
		})
	}
})
