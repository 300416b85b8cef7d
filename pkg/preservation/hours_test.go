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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Machine-hours", func() {
	var (
		now     = Start.Add(time.Hour)
		spentAt = now.Add(2 * time.Hour)
		over    = now.Add(10 * 24 * time.Hour)
		asked   = NodeAnnotation(preserve, "now")
		// worn makes the machine one that has been preserved for as long as it may be.
		worn = Annotation(preservedSince, now.Add(-336*time.Hour).Format(time.RFC3339))
	)

	DescribeTable("P17: when people and the share begin to preserve a machine", func(current, target *Record, begins bool) {
		until := time.Time{}
		if begins {
			until = over
		}
		Expect((&Decision{Current: current, Target: target}).BeginsUntil()).To(Equal(until))
	},
		Entry("nobody does", nil, nil, false),
		Entry("a person begins to", nil, &Record{Claims: []Claim{{Cause: "now", Expiry: over}}}, true),
		Entry("the share begins to, and has held it until now", &Record{Claims: []Claim{{Cause: "auto", Expiry: over}}, Provisional: true}, &Record{Claims: []Claim{{Cause: "auto", Expiry: over}}}, true),
		Entry("the share is about to hold it", nil, &Record{Claims: []Claim{{Cause: "auto", Expiry: over}}, Provisional: true}, false),
		Entry("a person begins to, while its node is under maintenance",
			&Record{Claims: []Claim{{Cause: "maintenance", Expiry: over}}}, &Record{Claims: []Claim{{Cause: "maintenance", Expiry: over}, {Cause: "now", Expiry: over}}}, true),
		Entry("a maintenance begins to", nil, &Record{Claims: []Claim{{Cause: "maintenance", Expiry: over}}}, false),
		Entry("they go on", &Record{Claims: []Claim{{Cause: "now", Expiry: now}}}, &Record{Claims: []Claim{{Cause: "now", Expiry: over}}}, false),
		Entry("they end", &Record{Claims: []Claim{{Cause: "now", Expiry: over}}}, nil, false),
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		_, native := holder.(PreserveExpiry)
		group := func(spentAt time.Time, m facts.Member) *world {
			g := worldOf(holder, m)
			g.Hours = &Hours{SpentAt: spentAt, Until: over}
			return g
		}
		editExpiry := func(m *machinev1alpha1.Machine, at time.Time) {
			m.Annotations[prefix+"expiry-time"] = at.Format(time.RFC3339)
			if native {
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: at}
			}
		}

		Context(fmt.Sprintf("%T", holder), func() {
			DescribeTable("P18: should release what people and the share preserve when they are used up, and look again then",
				func(rule Rule, onNode []NodeOption, opts ...MachineOption) {
					g := group(spentAt, facts.Member{Machine: Machine("m", opts...), Node: Node("m", onNode...)})
					settle(g, now)
					record := ReadRecord(machine(g))
					Expect(record).NotTo(BeNil())
					Expect(record.Expiry()).To(Equal(now.Add(72 * time.Hour)))
					Expect(Decide(g.Group, now.Add(time.Minute))[0].Next).To(BeTemporally("<=", spentAt))
					settle(g, spentAt.Add(-time.Second))
					Expect(ReadRecord(machine(g))).NotTo(BeNil())

					decisions, _ := round(g.Group, spentAt)
					Expect(decisions[0]).To(And(HaveField("Rule", rule), HaveField("Why", WhyHoursUsedUp), HaveField("Verdict", Told), HaveField("ConsumeRequest", true)))
					settle(g, spentAt)
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(node(g).Annotations).NotTo(HaveKey(preserve))
				},
				Entry("Failed, for the share", RuleMaxHours, []NodeOption{NotReady}, failing(now)),
				Entry("Failed, on request", RuleMaxHours, []NodeOption{NotReady, asked}, failing(now)),
				Entry("Running", RuleMaxHours, []NodeOption{asked}),
			)

			It("P18: should release nothing whose own expiry comes first for that reason", func() {
				g := group(now.Add(100*time.Hour), facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				settle(g, now)
				decisions, _ := round(g.Group, now.Add(72*time.Hour))
				Expect(decisions[0].Why).To(Equal(WhyExpired))
			})

			DescribeTable("P18: should preserve nothing anew until the month is over", func(verdict Verdict, onNode []NodeOption, opts ...MachineOption) {
				g := group(now.Add(-time.Hour), facts.Member{Machine: Machine("m", opts...), Node: Node("m", onNode...)})
				d := Decide(g.Group, now)[0]
				Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyHoursUsedUp), HaveField("Verdict", verdict)))
				if verdict == Ignored {
					Expect(d.Next).To(Equal(over))
				}
				Expect(Decide(g.Group, over)[0].Target).NotTo(BeNil())
			},
				Entry("Failed, for the share", Refused, []NodeOption{NotReady}, failing(now)),
				Entry("Failed, on request", Refused, []NodeOption{NotReady, NodeAnnotation(preserve, "when-failed")}, failing(now)),
				Entry("Running", Ignored, []NodeOption{asked}),
			)

			It("P18: should not concern maintenances", func() {
				g := group(now.Add(-time.Hour), facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, now.Format(time.RFC3339)))})
				for _, at := range []time.Time{now, now.Add(time.Hour)} {
					settle(g, at)
					Expect(g.last.Target).NotTo(BeNil())
				}
				Expect(ReadRecord(machine(g)).Cause()).To(Equal("maintenance"))

				By("Ending what people have asked for beside it")
				g = group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(maintenance, now.Format(time.RFC3339)))})
				settle(g, now)
				settle(g, spentAt)
				record := ReadRecord(machine(g))
				Expect(record).NotTo(BeNil())
				_, counted := Counted(machine(g))
				Expect(counted).To(BeTemporally("<=", spentAt))
				Expect(Decide(g.Group, now.Add(24*time.Hour))[0].Target).To(BeNil())
			})

			DescribeTable("P18 P6: should let an operator who edits the expiry decide", func(edit time.Duration, node ...NodeOption) {
				g := group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", node...)})
				settle(g, now)
				editExpiry(machine(g), now.Add(edit))
				settle(g, now.Add(time.Minute))
				settle(g, spentAt)
				settle(g, spentAt.Add(time.Hour))
				Expect(ReadRecord(machine(g))).NotTo(BeNil())
				Expect(ReadRecord(machine(g)).Expiry()).To(Equal(now.Add(edit)))
				decisions, _ := round(g.Group, now.Add(edit))
				Expect(decisions[0].Target).To(BeNil())
			},
				Entry("to later", 100*time.Hour, asked),
				Entry("to earlier, but after they are used up", 10*time.Hour, asked),
			)

			It("P18: should release what a longest time that was lowered meanwhile let go on", func() {
				g := group(time.Time{}, facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				settle(g, now)
				g.MaxTimeout = time.Hour
				settle(g, spentAt)
				Expect(ReadRecord(machine(g)).Expiry()).To(Equal(now.Add(72*time.Hour)), "it concerns only what begins (P13)")
				g.Hours = &Hours{SpentAt: spentAt, Until: over}
				decisions, _ := round(g.Group, spentAt)
				Expect(decisions[0]).To(And(HaveField("Target", BeNil()), HaveField("Rule", RuleMaxHours), HaveField("Why", WhyHoursUsedUp)))
			})

			DescribeTable("P18 P6: should still know an edit after something else has preserved the machine for longer", func(begin, end func(*facts.Member)) {
				g := group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				settle(g, now)
				editExpiry(machine(g), now.Add(10*time.Hour))
				settle(g, now.Add(time.Minute))
				begin(&g.Members[0])
				settle(g, now.Add(2*time.Minute))
				Expect(ReadRecord(machine(g)).Expiry()).To(BeTemporally(">", now.Add(10*time.Hour)))
				end(&g.Members[0])
				settle(g, now.Add(3*time.Minute))
				settle(g, spentAt)
				record := ReadRecord(machine(g))
				Expect(record).NotTo(BeNil())
				Expect(record.Expiry()).To(Equal(now.Add(10 * time.Hour)))
				decisions, _ := round(g.Group, now.Add(10*time.Hour))
				Expect(decisions[0].Target).To(BeNil())
			},
				Entry("a maintenance that is over",
					func(m *facts.Member) { m.Node.Annotations[maintenance] = now.Format(time.RFC3339) },
					func(m *facts.Member) { delete(m.Node.Annotations, maintenance) }),
				Entry("the share, because the machine has failed, which ends with the machine-hours",
					func(m *facts.Member) {
						failing(now)(m.Machine)
						NotReady(m.Node)
					}, func(*facts.Member) {}),
			)

			It("P18: should not take what machine-controller-manager has begun anew for an edit", func() {
				if !native {
					return
				}
				g := group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				settle(g, now)
				anew := now.Add(time.Minute)
				status := &machine(g).Status.CurrentStatus
				status.LastUpdateTime, status.PreserveExpiryTime = metav1.NewTime(anew), &metav1.Time{Time: anew.Add(96 * time.Hour)}
				settle(g, anew)
				By("Restarting the timer that shows it")
				status = &machine(g).Status.CurrentStatus
				status.LastUpdateTime = metav1.NewTime(anew.Add(time.Minute))
				settle(g, anew.Add(time.Minute))
				decisions, _ := round(g.Group, spentAt)
				Expect(decisions[0]).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyHoursUsedUp)))
			})

			It("should note nothing where machine-hours are not limited, and begin with what is there", func() {
				g := group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				hours := g.Hours
				g.Hours = nil
				settle(g, now)
				Expect(ReadNotes(machine(g)).Written).To(BeZero())
				g.Hours = hours
				settle(g, now)
				Expect(ReadNotes(machine(g)).Written).To(Equal(now.Add(72 * time.Hour)))
				_, changed := round(g.Group, now.Add(time.Hour))
				Expect(changed).To(BeFalse())
				g.Hours = nil
				settle(g, now)
				Expect(ReadNotes(machine(g)).Written).To(BeZero())
			})

			DescribeTable("M12: should tell of a maintenance that has had its time", func(spentAt time.Time, want reason.Reason, opts ...MachineOption) {
				had := Annotation(maintainedSince, now.Add(-24*time.Hour).Format(time.RFC3339))
				g := group(spentAt, facts.Member{Machine: Machine("m", append(opts, had)...), Node: Node("m", NodeAnnotation(maintenance, now.Format(time.RFC3339)))})
				Expect(Decide(g.Group, now)[0]).To(And(HaveField("Verdict", Ignored), HaveField("Why", want)))
			},
				Entry("P18: also when machine-hours are used up", now.Add(-time.Hour), WhyMaintenanceExhausted),
				Entry("P13: also when the machine has been preserved for as long as it may be", time.Time{}, WhyMaintenanceExhausted, worn),
				Entry("P13: but rather of the request that is not heeded", time.Time{}, WhyKeptForTooLong, worn, Annotation(preserve, "now")),
			)

			It("P17: should count for people and the share, and not what is held before a deadline", func() {
				near := Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute+10*time.Second))
				g := group(time.Time{}, facts.Member{Machine: Machine("m", near), Node: Node("m", NotReady)})
				settle(g, now)
				Expect(ReadRecord(machine(g)).Provisional).To(BeTrue())
				_, until := Counted(machine(g))
				Expect(until).To(BeZero())
				settle(g, now.Add(10*time.Second))
				kept, until := Counted(machine(g))
				Expect(kept).To(Equal(Span{Since: now.Add(10 * time.Second)}))
				Expect(until).To(Equal(ReadRecord(machine(g)).Expiry()))

				By("Deleting it")
				machine := machine(g).DeepCopy()
				machine.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Minute)}
				kept, until = Counted(machine)
				Expect(kept).To(Equal(Span{Since: now.Add(10 * time.Second), Until: now.Add(time.Minute)}))
				Expect(until).To(BeZero())
			})

			It("P17: should tell when a preservation was over", func() {
				g := group(time.Time{}, facts.Member{Machine: Machine("m"), Node: Node("m", asked)})
				settle(g, now)
				delete(node(g).Annotations, preserve)
				settle(g, now.Add(time.Hour))
				kept, until := Counted(machine(g))
				Expect(kept).To(Equal(Span{Since: now, Until: now.Add(time.Hour)}))
				Expect(until).To(BeZero())
			})

			It("P17: should not count a validation, nor end it when the hours are used up", func() {
				g := group(spentAt, facts.Member{Machine: Machine("m"), Node: Node("m", asked, NodeAnnotation(maintenance, now.Format(time.RFC3339)))})
				g.Validation = &Validation{Condition: "Proven", Timeout: time.Hour}
				settle(g, now)
				delete(node(g).Annotations, maintenance)
				node(g).Spec.Taints = append(node(g).Spec.Taints, corev1.Taint{Key: v1alpha1.TaintPreserved, Effect: corev1.TaintEffectNoSchedule})
				settle(g, spentAt.Add(-time.Minute))
				Expect(machine(g).Annotations).To(HaveKeyWithValue(prefix+"cause", "now"))

				settle(g, spentAt)
				Expect(ReadRecord(machine(g)).Expiry()).To(Equal(spentAt.Add(59 * time.Minute)))
				_, counted := Counted(machine(g))
				Expect(counted).To(Equal(spentAt))
				settle(g, spentAt.Add(time.Hour))
				Expect(ReadRecord(machine(g))).To(BeNil())
			})
		})
	}
})
