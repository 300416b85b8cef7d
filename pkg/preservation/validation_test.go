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
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Validation", func() {
	const (
		lasts   = 72 * time.Hour
		timeout = 15 * time.Minute
	)
	var (
		now     = Start.Add(time.Hour)
		running = Phase(machinev1alpha1.MachineRunning, now)
		ready   = Condition("Ready", "True", "", "")
		// reported is the proof as it was reported at a time, and has been True since another.
		reported = func(status corev1.ConditionStatus, heartbeat, transition time.Time) NodeOption {
			return func(n *corev1.Node) {
				Condition("GPUHealthy", status, "", "")(n)
				c := v1alpha1.ConditionOf(n, "GPUHealthy")
				c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(heartbeat), metav1.NewTime(transition)
			}
		}
		labelled = func(value string) NodeOption {
			return func(n *corev1.Node) { n.Labels = map[string]string{"example.com/gpu": value} }
		}
	)

	for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
		_, native := holder.(PreserveExpiry)

		group := func(members ...facts.Member) *world {
			g := worldOf(holder, members...)
			g.Validation = &Validation{Condition: "GPUHealthy", Timeout: timeout}
			return g
		}
		// failed is a machine that has failed, with what is on its node.
		failed := func(opts ...NodeOption) *world {
			GinkgoHelper()
			g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", append(opts, NotReady)...)})
			Expect(settle(g, now)).To(ContainElement(RuleAuto))
			Expect(tainted(g)).To(BeTrue())
			return g
		}
		recovers := func(g *world, at time.Time) []Rule {
			GinkgoHelper()
			edit(g, Phase(machinev1alpha1.MachineRunning, at), ready)
			return settle(g, at)
		}
		// back is a machine that has recovered, and has yet to be validated.
		back := func(opts ...NodeOption) *world {
			GinkgoHelper()
			g := failed(opts...)
			Expect(recovers(g, now)).To(ConsistOf(RuleUnvalidated))
			return g
		}
		expectGated := func(g *world, until time.Time, want ...string) {
			GinkgoHelper()
			Expect(causes(g)).To(ConsistOf(want))
			Expect(tainted(g)).To(BeTrue())
			Expect(AwaitsValidation(node(g))).To(BeTrue())
			Expect(node(g).Annotations).To(HaveKeyWithValue(disabled, "true"))
			Expect(ReadRecord(machine(g)).Claims).To(ContainElement(Claim{Cause: "validation", Expiry: until}))
			Expect(ReadRecord(machine(g)).HasPlace(now)).To(BeFalse())
			Expect(ReadRecord(machine(g)).Drains()).To(BeFalse())
			if native {
				Expect(machine(g).Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally(">=", until))
			}
		}
		Context(fmt.Sprintf("%T", holder), func() {
			It("V1 V2: should keep the taint when the machine recovers, drain nothing, and take no place", func() {
				g := back()
				expectGated(g, now.Add(timeout), "auto", "validation")
				Expect(Decide(g.Group, now)[0].Next).To(BeTemporally("==", now.Add(timeout)))
				Expect(machine(g).Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Running:Preserved"), HaveKeyWithValue(prefix+"cause", "auto"), HaveKeyWithValue(prefix+"expiry-time", stamp(now.Add(lasts)))))
				event, note := g.told.Event()
				Expect(event).To(Equal(EventUnvalidated))
				Expect(note).To(And(ContainSubstring("Node takes no new pods until it is validated, or until "+stamp(now.Add(timeout))), ContainSubstring("Machine is Running:Preserved until "+stamp(now.Add(lasts)))))
				Expect(g.told.Warns()).To(BeFalse())

				g.Members = append(g.Members, facts.Member{Machine: Machine("other", failing(now)), Node: Node("other", NotReady)})
				settle(g, now)
				Expect(ReadRecord(g.Members[1].Machine).HasPlace(now)).To(BeTrue())
			})

			It("V1: should take the taint off at once where the pool needs no proof", func() {
				g := failed()
				g.Validation = nil
				Expect(recovers(g, now)).To(ConsistOf(RuleRecover))
				Expect(tainted(g)).To(BeFalse())
			})

			It("V1: should write nothing more until something happens", func() {
				g := back()
				for _, at := range []time.Duration{time.Second, 14 * time.Minute} {
					Expect(settle(g, now.Add(at))).To(BeEmpty())
				}
			})

			It("V1 H4: should not begin for a machine that is healthy before its deadline, nor for one that never failed", func() {
				g := group(facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineUnknown, now.Add(-9*time.Minute-45*time.Second))), Node: Node("m", NotReady)})
				settle(g, now)
				Expect(recovers(g, now)).To(ConsistOf(RuleMargin))
				expectFree(g)
				Expect(settle(group(facts.Member{Machine: Machine("m"), Node: Node("m")}), now)).To(BeEmpty())
			})

			It("V1 P9: should taint a node that appears when its machine recovers", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now))})
				for range 4 {
					round(g.Group, now)
				}
				g.Members[0].Node = Node("m")
				recovers(g, now)
				expectGated(g, now.Add(timeout), "auto", "validation")
			})

			DescribeTable("V3: what counts as the proof", func(proof NodeOption, proven bool) {
				g := back(reported("True", now.Add(-time.Minute), now.Add(-time.Hour)))
				later := now.Add(5 * time.Minute)
				edit(g, proof)
				if !proven {
					Expect(settle(g, later)).To(BeEmpty())
					expectGated(g, now.Add(timeout), "auto", "validation")
					return
				}
				Expect(settle(g, later)).To(ConsistOf(RuleValidated))
				Expect(ReadRecord(machine(g)).ValidatingSince).To(BeZero())
				Expect(tainted(g)).To(BeFalse())
				Expect(causes(g)).To(ConsistOf("auto"))
				Expect(node(g).Annotations).To(HaveKeyWithValue(disabled, "true"), "T7")
				event, note := g.told.Event()
				Expect(event).To(Equal(EventValidated))
				Expect(note).To(ContainSubstring("Node takes pods again because the machine was validated. Machine is Running:Preserved"))
			},
				Entry("nothing new", NodeOption(func(*corev1.Node) {}), false),
				Entry("a report since", reported("True", now.Add(time.Minute), now.Add(-time.Hour)), true),
				Entry("a report at the same time", reported("True", now, now.Add(-time.Hour)), true),
				Entry("a report of before", reported("True", now.Add(-time.Second), now.Add(-time.Hour)), false),
				Entry("without a report, but True since", reported("True", time.Time{}, now.Add(time.Minute)), true),
				Entry("without any time", reported("True", time.Time{}, time.Time{}), false),
				Entry("P14: a report of the future", reported("True", now.Add(1000*time.Hour), now), true),
				Entry("a report that it does not work", reported("False", now.Add(time.Minute), now.Add(time.Minute)), false),
				Entry("a report that nobody knows", reported("Unknown", now.Add(time.Minute), now.Add(time.Minute)), false),
			)

			It("V3: should not count what is reported while the node is not healthy", func() {
				g := back()
				edit(g, NodeOption(NotReady), reported("True", now.Add(time.Minute), now.Add(time.Minute)))
				Expect(settle(g, now.Add(time.Minute))).To(BeEmpty())
				Expect(tainted(g)).To(BeTrue())
			})

			It("V3: should not begin anew when the proof goes away", func() {
				g := back()
				edit(g, reported("True", now.Add(time.Minute), now.Add(time.Minute)))
				settle(g, now.Add(time.Minute))
				edit(g, reported("False", now.Add(2*time.Minute), now.Add(2*time.Minute)))
				Expect(settle(g, now.Add(2*time.Minute))).To(BeEmpty())
				Expect(tainted(g)).To(BeFalse())
			})

			It("V3: should take a label with the value for the proof, and no other", func() {
				g := failed(labelled("broken"))
				g.Validation = &Validation{Key: "example.com/gpu", Value: "healthy", Timeout: timeout}
				Expect(recovers(g, now)).To(ConsistOf(RuleUnvalidated))
				edit(g, labelled("healthy"))
				Expect(settle(g, now.Add(time.Minute))).To(ConsistOf(RuleValidated))
				Expect(tainted(g)).To(BeFalse())

				g = failed(labelled("healthy"))
				g.Validation = &Validation{Key: "example.com/gpu", Value: "healthy", Timeout: timeout}
				Expect(recovers(g, now)).To(ConsistOf(RuleRecover), "nobody sees how old a label is")
			})

			It("V3: should say for which nodes the label that is the proof is missing", func() {
				g := failed(labelled("broken"))
				g.Validation = &Validation{Key: "example.com/gpu", Value: "healthy", Timeout: timeout}
				Expect(recovers(g, now)).To(ConsistOf(RuleUnvalidated))
				m := g.Members[0]
				Expect(g.MissesLabels(m)).To(BeFalse(), "it has the taint")
				m.Node = Node("m")
				Expect(g.MissesLabels(m)).To(BeTrue())
				edit(g, labelled("healthy"))
				settle(g, now.Add(time.Minute))
				Expect(causes(g)).To(ConsistOf("auto"))
				m.Machine = machine(g)
				Expect(g.MissesLabels(m)).To(BeFalse(), "it was validated")
				m.Machine = Machine("m")
				Expect(g.MissesLabels(m)).To(BeFalse(), "it is not preserved")
				g.Validation = nil
				Expect(g.MissesLabels(m)).To(BeFalse())
			})

			It("V4: should let the node take pods after the timeout, and warn", func() {
				g := back()
				Expect(settle(g, now.Add(timeout-time.Second))).To(BeEmpty())
				Expect(settle(g, now.Add(timeout))).To(ConsistOf(RuleNotValidated))
				Expect(tainted(g)).To(BeFalse())
				Expect(causes(g)).To(ConsistOf("auto"))
				event, note := g.told.Event()
				Expect(event).To(Equal(EventNotValidated))
				Expect(note).To(ContainSubstring("Node takes pods again although the machine was not validated in time. Machine is Running:Preserved"))
				Expect(g.told.Warns()).To(BeTrue())
			})

			It("V2 V4: should keep the machine for the validation when all else is over, and end that at its time", func() {
				end := now.Add(lasts)
				at := end.Add(-time.Minute)
				for proven, rule := range map[bool]Rule{true: RuleRelease, false: RuleRelease} {
					g := failed()
					edit(g, Phase(machinev1alpha1.MachineRunning, at), ready)
					Expect(settle(g, at)).To(ConsistOf(RuleUnvalidated))
					Expect(machine(g).Annotations).To(HaveKeyWithValue(prefix+"expiry-time", stamp(at.Add(timeout))))
					Expect(settle(g, end)).To(BeEmpty())
					expectGated(g, at.Add(timeout), "auto", "validation")
					over, event := at.Add(timeout), EventNotValidated
					if proven {
						over, event = end.Add(time.Minute), EventValidated
						edit(g, reported("True", over, over))
					}
					Expect(settle(g, over)).To(ConsistOf(rule))
					expectFree(g)
					told, note := g.told.Event()
					Expect(told).To(Equal(event))
					Expect(note).To(ContainSubstring("Machine is no longer preserved"))
					Expect(g.told.Warns()).To(Equal(!proven))
				}
			})

			It("V5: should count a machine that fails again as a new failure", func() {
				g := back()
				again := now.Add(5 * time.Minute)
				edit(g, failing(again), NodeOption(NotReady))
				settle(g, again)
				Expect(causes(g)).To(ConsistOf("auto"))
				Expect(machine(g).Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"), HaveKeyWithValue(prefix+"expiry-time", stamp(again.Add(lasts)))))
				Expect(ReadRecord(machine(g)).Drains()).To(BeTrue())
				Expect(recovers(g, again.Add(time.Minute))).To(ConsistOf(RuleUnvalidated))
				expectGated(g, again.Add(time.Minute+timeout), "auto", "validation")
			})

			It("V5: should go on with the validation of a machine that only almost fails", func() {
				g := back()
				again := now.Add(5 * time.Minute)
				edit(g, Phase(machinev1alpha1.MachineUnknown, again.Add(-9*time.Minute-45*time.Second)), NodeOption(NotReady))
				settle(g, again)
				Expect(tainted(g)).To(BeTrue())
				recovers(g, again)
				expectGated(g, now.Add(timeout), "auto", "validation")
			})

			DescribeTable("V5: when nothing else keeps a machine that fails", func(share int32, kept bool, opts ...MachineOption) {
				g := group(facts.Member{Machine: Machine("m", running, Preserved("Running:Preserved", "validation", now.Add(timeout))), Node: Node("m")})
				settle(g, now)
				expectGated(g, now.Add(timeout), "validation")
				g.Share = &share
				at := now.Add(time.Minute)
				edit(g, Phase(machinev1alpha1.MachineUnknown, at.Add(-9*time.Minute-45*time.Second)), NodeOption(NotReady))
				settle(g, at)
				Expect(tainted(g)).To(BeTrue())
				Expect(causes(g)).To(ConsistOf("validation"))
				at = at.Add(15 * time.Second)
				for _, opt := range opts {
					edit(g, opt)
				}
				settle(g, at)
				if kept {
					Expect(causes(g)).To(ConsistOf("auto"))
					Expect(machine(g).Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"), HaveKeyWithValue(prefix+"expiry-time", stamp(at.Add(lasts)))))
					Expect(tainted(g)).To(BeTrue())
					return
				}
				Expect(ReadRecord(machine(g))).To(BeNil())
				Expect(g.told.Why).To(Equal(WhyFailedUnvalidated))
				Expect(Decide(g.Group, at)[0].Target).To(BeNil())
			},
				Entry("and there is a place", int32(1), true),
				Entry("and there is none", int32(0), false),
				Entry("and nobody knows its VM", int32(1), false, MachineOption(func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" })),
			)

			DescribeTable("V5: what ends the validation", func(change func(*world), kept bool) {
				g := back()
				change(g)
				settle(g, now)
				Expect(tainted(g)).To(BeFalse())
				Expect(causes(g)).NotTo(ContainElement("validation"))
				if !kept {
					expectFree(g)
				}
			},
				Entry("R4: false on the Node", func(g *world) { edit(g, NodeAnnotation(preserve, "false")) }, false),
				Entry("R6: a veto of operators", func(g *world) { edit(g, Annotation(prefix+"forbidden", "true")) }, false),
				Entry("P3: a rolling update", func(g *world) { g.Rollout = true }, true),
				Entry("P10: the extension is disabled", func(g *world) { g.Disabled = true }, false),
				Entry("the pool needs no proof any more", func(g *world) { g.Validation = nil }, true),
				Entry("M12: a maintenance begins", func(g *world) { edit(g, NodeAnnotation(maintenance, stamp(now))) }, true),
			)

			It("V1: should wait no longer for the proof when somebody removes the time", func() {
				g := back()
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) {
					Note(m, func(n *Notes) { n.Claims = nil })
					m.Annotations[prefix+"cause"] = "validation"
					delete(m.Annotations, prefix+"expiry-time")
					m.Status.CurrentStatus.PreserveExpiryTime = nil
				}))
				settle(g, now.Add(5*time.Minute))
				Expect(ReadRecord(machine(g)).Claims).To(ContainElement(Claim{Cause: "validation", Expiry: now.Add(timeout)}))
			})

			It("V5: should tell that none is wanted any more", func() {
				g := back()
				g.Validation = nil
				settle(g, now)
				event, note := g.told.Event()
				Expect(event).To(Equal(EventValidationWaived))
				Expect(note).To(HavePrefix("Node takes pods again because "))
			})

			It("V1: should be owed to whoever works on the node, and after that only if it was due before", func() {
				owes := func(g *world) (owes []bool) {
					after, before := OwesProof(machine(g))
					return []bool{after, before}
				}
				g := back()
				Expect(owes(g)).To(Equal([]bool{false, false}), "nobody works on it")
				edit(g, NodeAnnotation(maintenance, stamp(now)))
				settle(g, now)
				Expect(owes(g)).To(Equal([]bool{true, true}))

				g = group(facts.Member{Machine: Machine("m", running), Node: Node("m", NodeAnnotation(maintenance, stamp(now)))})
				settle(g, now)
				Expect(owes(g)).To(Equal([]bool{true, false}))
				Expect(owes(group(facts.Member{Machine: Machine("m")}))).To(Equal([]bool{false, false}))
			})

			It("V5 T10: should leave nothing on a machine that is deleted", func() {
				g := back()
				edit(g, Deleted(now))
				settle(g, now)
				Expect(tainted(g)).To(BeFalse())
				Expect(ReadRecord(machine(g))).To(BeNil())
			})

			It("V5 P6: should obey an operator who ends it", func() {
				g := back()
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) {
					m.Annotations[prefix+"expiry-time"] = stamp(now.Add(time.Minute))
					if native {
						m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: now.Add(time.Minute)}
					}
				}))
				settle(g, now.Add(time.Minute))
				expectFree(g)
			})

			It("V1 M13: should begin when a node is given back with the taint, and not when it is given back without", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, stamp(now)))})
				settle(g, now)
				Expect(tainted(g)).To(BeFalse())
				over := NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) })
				later := now.Add(time.Hour)
				edit(g, over, Taint("node.machine.sapcloud.io/preserved", later))
				Expect(settle(g, later)).To(ConsistOf(RuleUnvalidated))
				expectGated(g, later.Add(timeout), "validation")
				edit(g, reported("True", later, later))
				Expect(settle(g, later)).To(ConsistOf(RuleRelease))
				expectFree(g)

				g = group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, stamp(now)))})
				settle(g, now)
				edit(g, over, Taint("example.com/own", later))
				Expect(settle(g, later)).To(ConsistOf(RuleMaintenanceOver))
				Expect(node(g).Spec.Taints).To(ConsistOf(HaveField("Key", "example.com/own")))
				node(g).Spec.Taints = nil
				expectFree(g)
			})

			It("V1 M13: should wait for a node that is not healthy yet when it is given back, and keep it tainted", func() {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(maintenance, stamp(now)), NotReady)})
				settle(g, now)
				later := now.Add(time.Hour)
				edit(g, Phase(machinev1alpha1.MachineUnknown, later), NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }), Taint("node.machine.sapcloud.io/preserved", later))
				settle(g, later)
				Expect(tainted(g)).To(BeTrue())
				edit(g, reported("True", later, later))
				settle(g, later)
				Expect(tainted(g)).To(BeTrue(), "it is not healthy")
				later = later.Add(9 * time.Minute)
				edit(g, Phase(machinev1alpha1.MachineRunning, later), ready)
				settle(g, later)
				expectGated(g, later.Add(timeout), "validation")
				edit(g, reported("True", later, later))
				settle(g, later)
				expectFree(g)
			})

			It("V1 M13: should wait until a failed machine that something else keeps has recovered", func() {
				g := failed()
				edit(g, NodeAnnotation(maintenance, stamp(now)))
				settle(g, now)
				later := now.Add(time.Hour)
				edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }), Taint("node.machine.sapcloud.io/preserved", later))
				Expect(settle(g, later)).To(ConsistOf(RuleMaintenanceOver), "it does not fail anew")
				Expect(tainted(g)).To(BeTrue())
				Expect(causes(g)).To(ConsistOf("auto", "maintenance"))
				edit(g, Phase(machinev1alpha1.MachineRunning, later), ready)
				settle(g, later)
				expectGated(g, later.Add(timeout), "auto", "validation")
			})

			It("V1 X10: should keep the taint through a power cycle, and begin when that is over", func() {
				g := failed()
				edit(g, Annotation(remediation, stamp(now.Add(time.Hour))))
				settle(g, now)
				Expect(tainted(g)).To(BeTrue())
				Expect(ReadRecord(machine(g)).Drains()).To(BeFalse())
				later := now.Add(20 * time.Minute)
				edit(g, Phase(machinev1alpha1.MachineRunning, later), ready)
				settle(g, later)
				Expect(tainted(g)).To(BeTrue())
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) }))
				Expect(settle(g, later.Add(time.Minute))).To(ConsistOf(RuleUnvalidated))
				expectGated(g, later.Add(time.Minute+timeout), "auto", "validation")
			})

			It("V2 P1: should go on with the validation of a machine that fails, as long as it waits for a place that is being given back", func() {
				g := back()
				at := now.Add(5 * time.Minute)
				edit(g, failing(at), NodeOption(NotReady))
				g.Members = append(g.Members, facts.Member{
					Machine: Machine("leaves", Phase(machinev1alpha1.MachineUnknown, now), Preserved("Failed:Preserved", "auto", at)),
					Node:    Node("leaves", NotReady, Taint("node.machine.sapcloud.io/preserved", now)),
				})
				decisions, _ := round(g.Group, at)
				Expect(decisions[1].Target).To(BeNil())
				Expect(machine(g).Annotations).To(HaveKeyWithValue(prefix+"phase", "Unknown:Preserved"), "it waits")
				expectGated(g, now.Add(timeout), "auto", "validation")
				settle(g, at)
				Expect(causes(g)).To(ConsistOf("auto"))
				Expect(machine(g).Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))
			})

			It("P7 X10: should count the time of the drain from the end of a power cycle, although the taint stays", func() {
				g := failed()
				edit(g, Annotation(remediation, stamp(now.Add(time.Hour))))
				settle(g, now)
				Expect(tainted(g)).To(BeTrue())
				later := now.Add(50 * time.Minute)
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) }))
				settle(g, later)
				record := ReadRecord(machine(g))
				Expect(record.Drains()).To(BeTrue())
				began := func(at time.Time) time.Time {
					return DrainBegan(node(g), record.FailedAt(machine(g), g.Timeouts), at)
				}
				Expect(began(later)).To(Equal(later))
				settle(g, later.Add(time.Minute))
				Expect(began(later.Add(time.Minute))).To(Equal(later))
			})

			It("V1 X10: should not begin for a power cycle that never was", func() {
				g := group(facts.Member{Machine: Machine("m", Annotation(remediation, stamp(now.Add(time.Hour)))), Node: Node("m")})
				settle(g, now)
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) }))
				Expect(settle(g, now)).To(ConsistOf(RuleRemediation))
				expectFree(g)
			})

			It("V1 M15: should keep the taint of a failed machine whose maintenance was called off before it was handed over", func() {
				g := failed()
				edit(g, NodeAnnotation(maintenance, stamp(now)))
				settle(g, now)
				Expect(tainted(g)).To(BeFalse(), "M12")
				later := now.Add(5 * time.Minute)
				edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }))
				settle(g, later)
				Expect(tainted(g)).To(BeTrue())
				Expect(recovers(g, later.Add(time.Minute))).To(ContainElement(RuleUnvalidated))
				expectGated(g, later.Add(time.Minute+timeout), "auto", "validation")
			})

			It("V1 V5 M15: should begin anew when a maintenance is called off before it was handed over", func() {
				g := back()
				edit(g, NodeAnnotation(maintenance, stamp(now)))
				settle(g, now)
				Expect(tainted(g)).To(BeFalse(), "M12")
				later := now.Add(5 * time.Minute)
				edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }))
				Expect(settle(g, later)).To(ContainElement(RuleUnvalidated))
				expectGated(g, later.Add(timeout), "auto", "validation")
			})

			It("V1 M15: should begin when a maintenance is called off during which a failed machine has recovered", func() {
				g := failed()
				edit(g, NodeAnnotation(maintenance, stamp(now)))
				settle(g, now)
				later := now.Add(5 * time.Minute)
				recovers(g, later)
				Expect(tainted(g)).To(BeFalse(), "M12")
				edit(g, NodeOption(func(n *corev1.Node) { delete(n.Annotations, maintenance) }))
				later = later.Add(time.Minute)
				Expect(settle(g, later)).To(ContainElement(RuleUnvalidated))
				expectGated(g, later.Add(timeout), "auto", "validation")
			})

			It("V1 X10: should taint a machine that fails while its power cycle waits, and begin when it comes back", func() {
				g := group(facts.Member{Machine: Machine("m", Annotation(remediation, stamp(now.Add(time.Hour)))), Node: Node("m")})
				settle(g, now)
				Expect(tainted(g)).To(BeFalse())
				later := now.Add(20 * time.Minute)
				edit(g, failing(later), NodeOption(NotReady))
				settle(g, later)
				Expect(machine(g).Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))
				Expect(ReadRecord(machine(g)).Drains()).To(BeFalse())
				Expect(tainted(g)).To(BeTrue())
				later = later.Add(time.Minute)
				recovers(g, later)
				Expect(tainted(g)).To(BeTrue())
				edit(g, MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) }))
				Expect(settle(g, later)).To(ConsistOf(RuleUnvalidated))
				expectGated(g, later.Add(timeout), "validation")
			})

			It("P1 V5: should give nobody the place of a machine that asks for one while it has another, before its release is written", func() {
				claims := fmt.Sprintf("now=%s,validation=%s", stamp(now.Add(timeout)), stamp(now.Add(timeout)))
				withdrawn := facts.Member{Node: Node("m", NotReady), Machine: Machine("m", failing(now), Preserved("Unknown:Preserved", "now", now.Add(timeout)),
					Annotation(NoteClaims, claims), Annotation(NoteFailsAt, stamp(now)))}
				g := group(withdrawn, facts.Member{Node: Node("other", NotReady), Machine: Machine("other", failing(now.Add(-time.Second)))})
				decisions := Decide(g.Group, now)
				Expect(decisions[0].Current.HasPlace(now)).To(BeTrue())
				Expect(decisions[1].Target).To(BeNil())
			})

			DescribeTable("V5: when the request for a machine that fails has expired", func(share int32, longest time.Duration, kept bool) {
				g := group(facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(prefix+"timeout", "20m"))})
				g.Share, g.MaxTimeout = new(int32(0)), longest
				settle(g, now)
				at := now.Add(10 * time.Minute)
				edit(g, failing(at), NodeOption(NotReady))
				settle(g, at)
				at = now.Add(18 * time.Minute)
				recovers(g, at)
				expectGated(g, at.Add(timeout), "now", "validation")
				at = now.Add(30 * time.Minute)
				settle(g, at)
				g.Share = &share
				edit(g, failing(at), NodeOption(NotReady))
				if !kept {
					round(g.Group, at)
					Expect(ReadRecord(machine(g))).To(BeNil())
					Expect(node(g).Annotations).NotTo(HaveKey(preserve))
					return
				}
				settle(g, at)
				Expect(causes(g)).To(ConsistOf("now", "auto"))
				Expect(ReadRecord(machine(g)).HasPlace(at)).To(BeTrue())
				Expect(tainted(g)).To(BeTrue())
				settle(g, at.Add(lasts-time.Second))
				Expect(causes(g)).To(ConsistOf("now", "auto"))
				round(g.Group, at.Add(lasts))
				Expect(ReadRecord(machine(g))).To(BeNil())
				Expect(node(g).Annotations).NotTo(HaveKey(preserve))
			},
				Entry("and there is a place", int32(1), 336*time.Hour, true),
				Entry("and there is none", int32(0), 336*time.Hour, false),
				Entry("P13: and operators do not allow more", int32(1), 30*time.Minute, false),
			)

			It("T7: should go on to preserve for when-failed a machine that only almost fails while it is validated", func() {
				g := group(facts.Member{Machine: Machine("m", failing(now)), Node: Node("m", NotReady, NodeAnnotation(preserve, "when-failed"))})
				g.Share = new(int32(0))
				settle(g, now)
				Expect(causes(g)).To(ConsistOf("when-failed"))
				recovers(g, now)
				expectGated(g, now.Add(timeout), "when-failed", "validation")
				again := now.Add(5 * time.Minute)
				edit(g, Phase(machinev1alpha1.MachineUnknown, again.Add(-9*time.Minute-45*time.Second)), NodeOption(NotReady))
				settle(g, again)
				recovers(g, again)
				expectGated(g, now.Add(timeout), "when-failed", "validation")
			})

			It("H4: should let a request of when-failed go that came for a deadline only while the machine was validated", func() {
				g := group(facts.Member{Machine: Machine("m", running, Preserved("Running:Preserved", "validation", now.Add(timeout))), Node: Node("m", NodeAnnotation(preserve, "when-failed"))})
				settle(g, now)
				at := now.Add(time.Minute)
				edit(g, Phase(machinev1alpha1.MachineUnknown, at.Add(-9*time.Minute-45*time.Second)), NodeOption(NotReady))
				settle(g, at)
				Expect(causes(g)).To(ContainElement("when-failed"))
				recovers(g, at)
				expectGated(g, now.Add(timeout), "validation")
			})
		})
	}
})
