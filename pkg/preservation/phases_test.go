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
		group := func(m facts.Member) *world { return worldOf(holder, m) }
		member := func(node []NodeOption, opts ...MachineOption) facts.Member {
			return facts.Member{Machine: Machine("m", opts...), Node: Node("m", node...)}
		}

		Context(fmt.Sprintf("%T", holder), func() {
			DescribeTable("should begin nothing, and touch nothing that is not ours", func(m facts.Member, changes ...func(*world)) {
				foreign(&m, now)
				g := group(m)
				for _, change := range changes {
					change(g)
				}
				m = g.Members[0]
				for _, at := range []time.Duration{0, time.Hour, 100 * time.Hour, 1000 * time.Hour} {
					settle(g, now.Add(at))
					Expect(g.last.Target).To(BeNil())
					Expect(equal(machine(g), m.Machine)).To(BeTrue(), "%v became %v", m.Machine, machine(g))
					Expect(equal(node(g), m.Node)).To(BeTrue())
				}
			},
				Entry("a machine", member(nil)),
				Entry("a candidate for the share", member(nil, failing(now))),
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
				Entry("its pool is updated", member(nil), func(g *world) { g.Rollout = true }),
				Entry("its pool is removed", member(nil, Native(later)), func(g *world) { g.Replicas = 0 }),
				Entry("the share is not known", member(nil, Native(later)), func(g *world) { g.Share = nil }),
				Entry("the extension is disabled", member(nil, Native(later)), func(g *world) { g.Disabled = true }),
			)

			It("should tell people whose request waits for the phase, and heed it after that", func() {
				g := group(member([]NodeOption{NodeAnnotation(preserve, "now")}))
				foreign(&g.Members[0], now)
				settle(g, now)
				Expect(g.last.Verdict).To(Equal(Ignored))
				Expect(g.last.Why).To(Equal(WhyPhaseNotKnown))
				g.Members[0].Machine = machine(g).DeepCopy()
				Phase(machinev1alpha1.MachineRunning, now.Add(time.Hour))(machine(g))
				settle(g, now.Add(time.Hour))
				Expect(ReadRecord(machine(g)).Cause()).To(Equal("now"))
			})

			It("M12: should say that a maintenance does not keep the machine, and why", func() {
				g := group(member([]NodeOption{maintain}))
				foreign(&g.Members[0], now)
				until, why := MaintainedUntil(g.Group, g.Members[0], now)
				Expect(until).To(BeZero())
				Expect(why).To(Equal(WhyPhaseNotKnown))
			})

			DescribeTable("should take nothing away that is promised, and keep nothing beyond its expiry", func(m facts.Member, failed bool) {
				g := group(m)
				settle(g, now)
				before := ReadRecord(machine(g))
				Expect(before).NotTo(BeNil(), "it is preserved")
				Expect(before.Failed).To(Equal(failed))

				foreign(&g.Members[0], now)
				expiry, status := before.Expiry(), machine(g).Status.CurrentStatus
				protection := node(g).Annotations
				for at := now; at.Before(expiry); at = at.Add(11 * time.Minute) {
					settle(g, at)
					record := ReadRecord(machine(g))
					Expect(record).NotTo(BeNil(), "at %s", at)
					Expect(record.Claims).To(Equal(slices.DeleteFunc(slices.Clone(before.Claims), func(c Claim) bool { return !at.Before(c.Expiry) })), "each ends by itself")
					Expect(record.Failed).To(Equal(failed), "nothing fails, and nothing recovers")
					Expect(record.Expiry()).To(BeTemporally("==", expiry))
					Expect(machine(g).Status.CurrentStatus).To(Equal(status))
					Expect(node(g).Annotations).To(Equal(protection))
					Expect(tainted(g)).To(Equal(before.Drains()))
				}

				settle(g, expiry)
				Expect(ReadRecord(machine(g))).To(BeNil())
				settle(g, expiry.Add(time.Hour)) // its node was to go with it, and does not
				machine, node := machine(g), node(g)
				Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachinePhase("Rebooting")))
				Expect(machine.Status.CurrentStatus.PreserveExpiryTime == nil || !machine.Status.CurrentStatus.PreserveExpiryTime.After(expiry)).To(BeTrue())
				Expect(machine.Annotations).NotTo(HaveKey(preserve))
				Expect(node.Annotations).NotTo(Or(HaveKey(preserve), HaveKey(disabled), HaveKey(byMCM)))
				Expect(node.Spec.Taints).To(BeEmpty())
				Expect(conditionTrue(node)).To(BeFalse())
			},
				Entry("now", member([]NodeOption{NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "20h")}), false),
				Entry("now, and it has failed", member([]NodeOption{NodeAnnotation(preserve, "now"), NotReady}, failing(now)), true),
				Entry("when-failed", member([]NodeOption{NodeAnnotation(preserve, "when-failed"), NotReady}, failing(now)), true),
				Entry("auto", member([]NodeOption{NotReady}, failing(now)), true),
				Entry("auto, and it is about to fail", member([]NodeOption{NotReady}, near), false),
				Entry("now, and it is about to fail", member([]NodeOption{NodeAnnotation(preserve, "now"), NotReady}, near), false),
				Entry("maintenance and now", member([]NodeOption{NodeAnnotation(preserve, "now"), maintain}), false),
				Entry("maintenance, and it has failed", member([]NodeOption{maintain, NotReady}, failing(now)), true),
				Entry("maintenance", member([]NodeOption{maintain}), false),
				Entry("a power cycle", member([]NodeOption{NotReady}, cycle, failing(now)), true),
				Entry("a power cycle of a machine that is well", member(nil, cycle), false),
			)

			DescribeTable("should go on once the phase is known again", func(node []NodeOption, phase MachineOption, rules ...any) {
				g := group(member([]NodeOption{NotReady}, near))
				settle(g, now)
				foreign(&g.Members[0], now)
				settle(g, now.Add(time.Hour))
				g.Members[0].Machine = machine(g).DeepCopy()
				g.Members[0].Node = Node("m", node...)
				phase(machine(g))
				decisions, _ := round(g.Group, now.Add(2*time.Hour))
				Expect(decisions[0].Rule).To(BeElementOf(rules...))
			},
				Entry("it has rebooted: it did not fail", nil, Phase(machinev1alpha1.MachineRunning, now.Add(2*time.Hour)), RuleMargin),
				Entry("it has not", []NodeOption{NotReady}, Phase(machinev1alpha1.MachineUnknown, now.Add(2*time.Hour)), RuleAuto),
			)

			It("P8: should finish a release that was interrupted", func() {
				m := member([]NodeOption{NodeAnnotation(preserve, "when-failed"), NotReady}, failing(now))
				g := group(m)
				settle(g, now)
				expiry := ReadRecord(machine(g)).Expiry()
				kept := g.Members[0]
				steps := len(Steps(holder, Decide(g.Group, expiry)[0], g.Timeouts, expiry))
				for done := range steps {
					g := group(kept)
					for _, step := range Steps(holder, Decide(g.Group, expiry)[0], g.Timeouts, expiry)[:done] {
						Make(step, &g.Members[0])
					}
					foreign(&g.Members[0], expiry)
					settle(g, expiry)
					settle(g, expiry.Add(time.Hour))
					Expect(ReadRecord(machine(g))).To(BeNil(), "after %d steps", done)
					Expect(node(g).Annotations).NotTo(HaveKey(disabled))
					Expect(node(g).Spec.Taints).To(BeEmpty())
				}
			})
		})
	}
})
