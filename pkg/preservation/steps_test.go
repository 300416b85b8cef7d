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
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix      = "machine-preservation.extensions.gardener.cloud/"
	lastApplied = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	priority    = "machinepriority.machine.sapcloud.io"
	disabled    = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM       = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	taintKey    = "node.machine.sapcloud.io/preserved"
)

var _ = Describe("Steps", func() {
	var (
		now      = Start.Add(time.Hour)
		since    = now.Add(-10 * time.Minute)
		expiry   = now.Add(72 * time.Hour)
		later    = now.Add(time.Hour)
		timeouts = facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}
		failing  = Phase(machinev1alpha1.MachineUnknown, since)
	)

	failed := Preserved("Failed:Preserved", "auto", later)
	failedSince := func(t time.Time) MachineOption { return Annotation(prefix+"failed-since", stamp(t)) }
	// stops is a node on which a person stops the preservation.
	stops := func(opts ...NodeOption) *corev1.Node {
		return Node("m", append(opts, NodeAnnotation(preserve, "false"))...)
	}

	drainConditions := false
	decideAt := func(holder Holder, m facts.Member, now time.Time) Decision {
		return Decide(Group{DrainConditions: drainConditions, Holder: holder, Share: new(int32(1)), Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3}, Timeouts: timeouts, Members: []facts.Member{m}}, now)[0]
	}

	// carryOut applies the steps the way a reconciler does, and returns what was written, in order.
	carryOut := func(holder Holder, m *facts.Member, now time.Time) (written []string) {
		d := decideAt(holder, *m, now)
		for _, step := range Steps(holder, d, timeouts, now) {
			machine, node := m.Machine, m.Node
			Make(step, m)
			if equal(machine, m.Machine) && equal(node, m.Node) {
				continue
			}
			kind := "node"
			if machine != m.Machine {
				kind = "machine"
			}
			if step.Status {
				kind += "/status"
			}
			written = append(written, kind)
		}
		return written
	}

	for holder, after := range map[Holder][]string{
		HealthTimer{}: nil,
		// It says that the expiry in the status is to be believed.
		PreserveExpiry{}: {"machine"},
	} {
		respite, hold := []string{"machine/status"}, []string{"machine", "machine/status"}
		Context(fmt.Sprintf("%T", holder), func() {
			// deny applies the steps to a machine whose node cannot be written to any more.
			deny := func(m *facts.Member, d Decision) {
				GinkgoHelper()
				d.NodeDenied = true
				for _, step := range Steps(holder, d, timeouts, now) {
					Expect(step.AfterAll).To(BeFalse())
					if _, ok := step.Before.(*machinev1alpha1.Machine); ok {
						Make(step, m)
					}
				}
			}

			It("P14: should end a preservation without its node, and not begin anew with the request that is left there", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "true"))}
				carryOut(holder, &m, now)
				deny(&m, decideAt(holder, m, expiry))
				Expect(ReadRecord(m.Machine)).To(BeNil())
				Expect(Noted(m.Machine)).To(HaveKeyWithValue(prefix+"spent-request", "now"))

				d := decideAt(holder, m, expiry)
				Expect(d.Target).To(BeNil())
				Expect(d.Request).To(Equal(Request{OnNode: true, Spent: "now"}))
				before := m.Machine
				deny(&m, d)
				Expect(m.Machine).To(Equal(before), "nothing the second time")

				carryOut(holder, &m, expiry)
				Expect(m.Node.Annotations).To(BeEmpty())
				Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "spent-request"))
			})

			It("P20: should remove what the end of a grant has left on the Machine", func() {
				m := facts.Member{Machine: Machine("m", Annotation(prefix+"grant-ended", "2026-03-01T12:00:00Z")), Node: Node("m", NodeAnnotation(preserve, "now"))}
				carryOut(holder, &m, now)
				Expect(m.Machine.Annotations).NotTo(HaveKey(prefix + "grant-ended"))
			})

			It("P14: should listen to another request than the one that is left", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"))}
				carryOut(holder, &m, now)
				deny(&m, decideAt(holder, m, expiry))
				m.Node.Annotations[preserve] = "when-failed"
				Expect(decideAt(holder, m, expiry).Request).To(Equal(Request{OnNode: true, Value: "when-failed"}))
			})

			It("P14: should take the protection off a node later that could not be cleaned, although it never got the condition", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "true"))}
				carryOut(holder, &m, now)
				m.Node.Status.Conditions = nil // nor could its status be written
				m.Node.Annotations[preserve] = "false"
				deny(&m, decideAt(holder, m, later))
				Expect(ReadRecord(m.Machine)).To(BeNil())
				Expect(m.Node.Annotations).To(HaveKey(disabled))

				carryOut(holder, &m, later)
				Expect(m.Node.Annotations).To(Equal(map[string]string{preserve: "false"}))
				Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "node-uncleaned"))
				Expect(carryOut(holder, &m, later)).To(BeEmpty())
			})

			It("P10: should leave no mark when it ends without knowing the nodes, and nothing the second time", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"))}
				carryOut(holder, &m, now)
				m.Node, m.NodeUnknown = nil, true
				for range 2 {
					d := Decide(Group{Holder: holder, Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3}, Timeouts: timeouts, Disabled: true, Members: []facts.Member{m}}, later)[0]
					deny(&m, d)
					Expect(ReadRecord(m.Machine)).To(BeNil())
					Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "node-uncleaned"))
				}
			})

			It("P14: should not take for a request what the hold has left on a node", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
				carryOut(holder, &m, now)
				d := decideAt(holder, m, expiry)
				d.ConsumeRequest = false
				deny(&m, d)
				Expect(RequestOf(m, 336*time.Hour).Value).To(Equal("when-failed"))
			})

			It("P8 T5: should write the hold and the expiry before it marks the node, and nothing the second time", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				Expect(carryOut(holder, &m, now)).To(Equal(slices.Concat(respite, hold, []string{"node"}, after, []string{"node/status"})))
				Expect(carryOut(holder, &m, now)).To(BeEmpty())
				Expect(m.Machine.Annotations).To(And(
					HaveKeyWithValue(prefix+"cause", "auto"),
					HaveKeyWithValue(prefix+"phase", "Failed:Preserved"),
					HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T13:00:00Z"),
				))
				Expect(m.Node.Spec.Taints).To(ConsistOf(And(HaveField("Key", taintKey), HaveField("Effect", corev1.TaintEffectNoSchedule))))
				Expect(m.Node.Spec.Unschedulable).To(BeFalse())
				Expect(PreservedCondition(m.Node)).To(And(
					HaveField("Status", corev1.ConditionTrue),
					HaveField("Reason", "Draining"),
					HaveField("Message", "Machine preserved until 2026-03-04T13:00:00Z (cause auto, reason MachineFailed)."),
				))
			})

			It("H4: should write nothing but the hold before the deadline, and the rest at the deadline", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
				Expect(carryOut(holder, &m, now.Add(-time.Second))).To(Equal(hold))
				Expect(carryOut(holder, &m, now.Add(-time.Second))).To(BeEmpty())
				Expect(m.Node).To(Equal(Node("m", NotReady)))
				Expect(carryOut(holder, &m, now)).To(Equal([]string{"machine", "node", "node/status"}))
			})

			DescribeTable("H4, P6: should refuse the end of a hold before the deadline", func(ends MachineOption, byAnyChange bool) {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
				carryOut(holder, &m, now.Add(-time.Second))
				ends(m.Machine)
				m.Node = Node("m")
				last := slices.DeleteFunc(Steps(holder, decideAt(holder, m, now.Add(-time.Second)), timeouts, now), func(w intent.Write) bool { return !w.Record })
				Expect(last).To(ConsistOf(And(HaveField("Lock", byAnyChange), HaveField("LockEdits", !byAnyChange))))
			},
				Entry("for any change if the machine is healthy again", Phase(machinev1alpha1.MachineRunning, now), true),
				Entry("for edits if it is deleted", MachineOption(func(m *machinev1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: now} }), false),
			)

			It("P9: should hold a machine that has no node", func() {
				m := facts.Member{Machine: Machine("m", failing)}
				Expect(carryOut(holder, &m, now)).To(Equal(slices.Concat(respite, hold, after)))
			})

			DescribeTable("H3: should put the deadline off of a machine that is overdue, before anything else makes machine-controller-manager look",
				func(overdue MachineOption) {
					m := facts.Member{Machine: Machine("m", overdue)}
					first := Steps(holder, decideAt(holder, m, now), facts.DefaultTimeouts, now)[0]
					Expect(first).To(And(HaveField("Hold", true), HaveField("Lock", true), HaveField("Status", true)))
					Make(first, &m)
					Expect(m.Machine.Status.CurrentStatus).To(Equal(machinev1alpha1.CurrentStatus{
						Phase: machinev1alpha1.MachineUnknown, LastUpdateTime: metav1.NewTime(now.Add(-9 * time.Minute)),
					}))

					m.Machine = Machine("m", overdue)
					carryOut(holder, &m, now)
					Expect(ReadRecord(m.Machine).FailedSince).To(BeTemporally("<", now.Add(-9*time.Minute)))
				},
				Entry("and doubted", failing),
				Entry("and waited for", Phase(machinev1alpha1.MachinePending, now.Add(-time.Hour))),
				Entry("and cannot be initialised", Phase(machinev1alpha1.MachineCrashLoopBackOff, now.Add(-time.Minute))),
			)

			It("H2: should not put the deadline off of a machine that would have none then", func() {
				m := facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachinePending, now.Add(-time.Hour)), func(m *machinev1alpha1.Machine) {
					m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{DisableHealthTimeout: new(true)}
				})}
				Expect(carryOut(holder, &m, now)).To(Equal(slices.Concat(hold, after)))
			})

			It("T7: should take the taint off and keep the protection when the node is healthy again", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				carryOut(holder, &m, now)
				Phase(machinev1alpha1.MachineRunning, now)(m.Machine)
				carryOut(holder, &m, now.Add(time.Minute))
				Expect(m.Node.Spec.Taints).To(BeEmpty())
				Expect(m.Node.Annotations).To(HaveKeyWithValue(disabled, "true"))
				Expect(m.Machine.Annotations).To(HaveKeyWithValue(prefix+"phase", "Running:Preserved"))
				Expect(PreservedCondition(m.Node).Reason).To(Equal("Preserved"))
			})

			It("T8: should clean the node, then end the hold, and leave nothing behind but the mark", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				carryOut(holder, &m, now)
				Annotation(prefix+"evidence", stamp(since))(m.Machine)
				written := carryOut(holder, &m, expiry)
				Expect(written[:2]).To(Equal([]string{"node", "node/status"}))
				Expect(written[2:]).To(ConsistOf("machine", "machine/status"))
				Expect(carryOut(holder, &m, expiry)).To(BeEmpty())
				Expect(Noted(m.Machine)).To(Equal(map[string]string{released: "2026-03-04T13:00:00Z", preservedSince: "2026-03-01T13:00:00Z/2026-03-04T13:00:00Z"}))
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(m.Node.Annotations).To(BeEmpty())
				Expect(m.Node.Spec.Taints).To(BeEmpty())
				Expect(PreservedCondition(m.Node)).To(HaveField("Status", corev1.ConditionFalse))
			})

			Describe("T8: a failed machine that has had its time", func() {
				var m facts.Member
				BeforeEach(func() {
					m = facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady, NodeAnnotation(preserve, "when-failed"))}
					carryOut(holder, &m, now)
					Phase(machinev1alpha1.MachineFailed, now)(m.Machine)
					Expect(carryOut(holder, &m, expiry)).To(Equal([]string{"node/status", "machine"}))
				})

				It("should leave its node tainted for machine-controller-manager to take away, and tell that it is released", func() {
					Expect(carryOut(holder, &m, expiry.Add(time.Minute))).To(BeEmpty())
					Expect(ReadRecord(m.Machine)).To(BeNil())
					Expect(m.Node.Spec.Taints).To(HaveLen(1))
					Expect(PreservedCondition(m.Node)).To(HaveField("Status", corev1.ConditionFalse))
					Expect(m.Node.Annotations).NotTo(HaveKey(preserve), "the request has had its time, too")
					Deleted(expiry)(m.Machine)
					Expect(carryOut(holder, &m, expiry)).To(BeEmpty())
				})

				DescribeTable("should have its node cleaned all the same", func(change func(), after time.Duration) {
					change()
					Expect(carryOut(holder, &m, expiry.Add(after))).To(ContainElement("node"))
					Expect(m.Node.Spec.Taints).To(BeEmpty())
					Expect(m.Node.Annotations).NotTo(HaveKey(disabled))
					Expect(carryOut(holder, &m, expiry.Add(after))).To(BeEmpty())
				},
					Entry("when it gets well first", func() {
						m.Node.Status.Conditions = Node("m").Status.Conditions
						Phase(machinev1alpha1.MachineRunning, expiry)(m.Machine)
					}, time.Minute),
					Entry("when somebody asks anew", func() { m.Node.Annotations[preserve] = "true" }, time.Minute),
					Entry("when it does not go", func() {}, 5*time.Minute),
					Entry("when the machine is deleted, and it does not go", func() { Deleted(expiry)(m.Machine) }, 5*time.Minute),
				)

				It("should be looked at when its node is to be gone", func() {
					Expect(decideAt(holder, m, expiry.Add(time.Minute)).Next).To(Equal(expiry.Add(5 * time.Minute)))
				})
			})

			It("T8: should write nothing on the node of one that nobody asked for", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
				carryOut(holder, &m, now)
				Phase(machinev1alpha1.MachineFailed, now)(m.Machine)
				Expect(carryOut(holder, &m, expiry)).To(Equal([]string{"node/status", "machine"}))
			})

			Describe("T8: while the node is left to go", func() {
				var m facts.Member
				BeforeEach(func() {
					m = facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady, NodeAnnotation(preserve, "now"))}
					carryOut(holder, &m, now)
					carryOut(holder, &m, expiry)
					Expect(ReadRecord(m.Machine)).To(BeNil())
				})

				It("T1: should hear who asks anew, also the same, on the node", func() {
					m.Machine.Status.CurrentStatus.PreserveExpiryTime = nil
					carryOut(holder, &m, expiry.Add(10*time.Second))
					m.Node.Annotations[preserve] = "now"
					Expect(decideAt(holder, m, expiry.Add(time.Minute)).Target).NotTo(BeNil())
				})

				It("R2: should hear an operator who asks on the Machine", func() {
					metav1.SetMetaDataAnnotation(&m.Machine.ObjectMeta, preserve, "now")
					Expect(decideAt(holder, m, expiry.Add(time.Minute)).Target).NotTo(BeNil())
				})
			})

			It("T8: should clean the node of a failed machine that is let go of before its time", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
				carryOut(holder, &m, now)
				m.Node.Annotations[preserve] = "false"
				carryOut(holder, &m, now.Add(time.Minute))
				Expect(m.Node.Spec.Taints).To(BeEmpty())
			})

			It("P10: should clean the node of a machine that has had its time where the extension is disabled", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
				carryOut(holder, &m, now)
				carryOut(holder, &m, expiry)
				Expect(m.Node.Spec.Taints).To(HaveLen(1))
				g := Group{Holder: holder, Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3}, Timeouts: timeouts, Disabled: true, Members: []facts.Member{m}}
				for _, step := range Steps(holder, Decide(g, expiry)[0], timeouts, expiry) {
					Make(step, &m)
				}
				Expect(m.Node.Spec.Taints).To(BeEmpty())
			})

			It("T3: should delete the request from the node and the machine on expiry", func() {
				m := facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "1h"))}
				carryOut(holder, &m, now)
				carryOut(holder, &m, now.Add(time.Hour))
				Expect(m.Node.Annotations).To(BeEmpty())
				Expect(Noted(m.Machine)).To(Equal(map[string]string{preservedSince: "2026-03-01T13:00:00Z/2026-03-01T14:00:00Z"}))
				Expect(carryOut(holder, &m, now.Add(time.Hour))).To(BeEmpty())
			})

			It("R4: should never remove false, also when the time is over", func() {
				for _, at := range []time.Time{now.Add(time.Minute), expiry} {
					m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
					carryOut(holder, &m, now)
					m.Node.Annotations[preserve] = "false"
					carryOut(holder, &m, at)
					Expect(m.Node.Annotations).To(Equal(map[string]string{preserve: "false"}))
				}
				m := facts.Member{Machine: Machine("m", Annotation(preserve, "false")), Node: Node("m", NodeAnnotation(preserve, "now"))}
				carryOut(holder, &m, now)
				carryOut(holder, &m, expiry)
				Expect(Noted(m.Machine)).To(Equal(map[string]string{preserve: "false", preservedSince: "2026-03-01T13:00:00Z/2026-03-04T13:00:00Z"}))
			})

			It("P5: should leave a user's protection when the preservation ends", func() {
				m := facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m", NodeAnnotation(disabled, "true"))}
				carryOut(holder, &m, now)
				Expect(m.Node.Annotations).NotTo(HaveKey(byMCM))
				carryOut(holder, &m, expiry)
				Expect(m.Node.Annotations).To(Equal(map[string]string{disabled: "true"}))
			})

			DescribeTable("P5: should put the protection back", func(change func(map[string]string)) {
				m := facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m")}
				carryOut(holder, &m, now)
				change(m.Node.Annotations)
				Expect(carryOut(holder, &m, now)).To(Equal([]string{"node"}))
				Expect(m.Node.Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
			},
				Entry("when it is changed", func(a map[string]string) { a[disabled] = "false" }),
				Entry("when it is deleted", func(a map[string]string) { delete(a, disabled) }),
			)

			It("P7: should not touch a user's cordon", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m", func(n *corev1.Node) { n.Spec.Unschedulable = true })}
				carryOut(holder, &m, now)
				carryOut(holder, &m, expiry)
				Expect(m.Node.Spec.Unschedulable).To(BeTrue())
			})

			It("P11: should keep the progress of the drain in the condition", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				carryOut(holder, &m, now)
				SetDrainProgress(m.Node, "Drained", "", false, now)
				Expect(carryOut(holder, &m, now)).To(BeEmpty())
				Expect(PreservedCondition(m.Node).Message).To(Equal("Preserved node drained successfully. Machine preserved until 2026-03-04T13:00:00Z (cause auto, reason MachineFailed)."))
			})

			Describe("what others see of the drain", func() {
				var m facts.Member
				// shows checks the status of the conditions, empty for none, and their reason.
				shows := func(inProgress, drained, reason string) {
					GinkgoHelper()
					for t, status := range map[corev1.NodeConditionType]string{"DrainInProgress": inProgress, "Drained": drained} {
						c := v1alpha1.ConditionOf(m.Node, t)
						if status == "" {
							Expect(c).To(BeNil())
							continue
						}
						Expect(c).To(HaveValue(And(HaveField("Status", BeEquivalentTo(status)), HaveField("Reason", reason), HaveField("Message", Not(BeEmpty())))))
					}
				}
				BeforeEach(func() {
					m = facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
					drainConditions = true
					DeferCleanup(func() { drainConditions = false })
				})

				It("D13: should say so in the writes that say it of the preservation", func() {
					Expect(carryOut(holder, &m, now)).To(ContainElement("node/status"))
					shows("True", "False", "MachinePreservation")
					for _, reason := range []string{"DrainBlocked", "Draining", "PodsKept"} {
						SetDrainProgress(m.Node, reason, "Pods: 1.", true, now)
						shows("True", "False", "MachinePreservation")
					}
					SetDrainProgress(m.Node, "Drained", "", true, now)
					shows("False", "True", "MachinePreservation")
					Expect(carryOut(holder, &m, now)).To(BeEmpty())
					carryOut(holder, &m, expiry)
					shows("", "", "")
				})
				It("D13: should be refused if somebody else has written meanwhile, and only then", func() {
					locks := func(at time.Time) (locks []bool) {
						for _, step := range Steps(holder, decideAt(holder, m, at), timeouts, at) {
							if _, ok := step.Before.(*corev1.Node); ok && step.Status {
								locks = append(locks, step.Lock)
							}
						}
						return locks
					}
					Expect(locks(now)).To(Equal([]bool{true}))
					carryOut(holder, &m, now)
					Expect(locks(now)).To(Equal([]bool{false}))
					Expect(locks(expiry)).To(Equal([]bool{true}))
					drainConditions = false
					Expect(locks(now)).To(Equal([]bool{true}))
					m.Node = Node("m", NotReady)
					Expect(locks(now)).To(Equal([]bool{false}), "it costs nothing")
				})
				It("D13: should say nothing that nobody wants, and nothing any more", func() {
					drainConditions = false
					carryOut(holder, &m, now)
					shows("", "", "")
					SetDrainProgress(m.Node, "DrainBlocked", "Pods: 1.", false, now)
					shows("", "", "")
					m = facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady)}
					drainConditions = true
					carryOut(holder, &m, now)
					drainConditions = false
					Expect(carryOut(holder, &m, now)).To(Equal([]string{"node/status"}))
					shows("", "", "")
				})
				It("D13: should say what began before it was to be said from the end of the drain on", func() {
					drainConditions = false
					carryOut(holder, &m, now)
					drainConditions = true
					Expect(carryOut(holder, &m, now)).To(BeEmpty())
					SetDrainProgress(m.Node, "Drained", "", true, now)
					shows("False", "True", "MachinePreservation")
				})
				It("D13: should say it anew on a node that is made anew", func() {
					carryOut(holder, &m, now)
					m.Node = Node("m", NotReady)
					carryOut(holder, &m, now)
					shows("True", "False", "MachinePreservation")
				})
				It("D13: should say nothing of a machine that has not failed", func() {
					m = facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m")}
					carryOut(holder, &m, now)
					shows("", "", "")
				})
				It("T7, D13: should say nothing any more of a machine that is healthy again", func() {
					carryOut(holder, &m, now)
					Phase(machinev1alpha1.MachineRunning, now.Add(time.Minute))(m.Machine)
					Condition(corev1.NodeReady, corev1.ConditionTrue, "", "")(m.Node)
					carryOut(holder, &m, now.Add(time.Minute))
					Expect(ReadRecord(m.Machine).Failed).To(BeFalse())
					shows("", "", "")
				})
				It("T10, D13: should say nothing any more of a machine that is deleted", func() {
					carryOut(holder, &m, now)
					Deleted(now)(m.Machine)
					carryOut(holder, &m, now)
					shows("", "", "")
				})
				It("D13: should leave what somebody else says who drains the node, too", func() {
					carryOut(holder, &m, now)
					Condition("DrainInProgress", corev1.ConditionFalse, "KubectlDrainCompleted", "a")(m.Node)
					Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "a")(m.Node)
					Expect(carryOut(holder, &m, now.Add(time.Minute))).To(BeEmpty())
					SetDrainProgress(m.Node, "DrainBlocked", "Pods: 1.", true, now)
					shows("False", "True", "KubectlDrainCompleted")
					SetDrainProgress(m.Node, "Drained", "", true, now)
					shows("False", "True", "KubectlDrainCompleted")
					carryOut(holder, &m, expiry)
					shows("False", "True", "KubectlDrainCompleted")
				})
				It("D13: should not insist where somebody takes away what it says", func() {
					carryOut(holder, &m, now)
					v1alpha1.RemoveCondition(m.Node, "DrainInProgress")
					v1alpha1.RemoveCondition(m.Node, "Drained")
					Expect(carryOut(holder, &m, now.Add(time.Minute))).To(BeEmpty())
					SetDrainProgress(m.Node, "DrainBlocked", "Pods: 1.", true, now)
					shows("", "", "")
				})
			})

			It("T10: should remove its traces from a machine that is being deleted", func() {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				carryOut(holder, &m, now)
				Deleted(now)(m.Machine)
				carryOut(holder, &m, now)
				Expect(m.Node.Annotations).To(BeEmpty())
				Expect(Noted(m.Machine)).To(Equal(map[string]string{preservedSince: "2026-03-01T13:00:00Z"}))
				Expect(carryOut(holder, &m, now)).To(BeEmpty())
			})
		})
	}

	Describe("HealthTimer", func() {
		It("should make the machine's own health timer run out at the expiry", func() {
			m := facts.Member{Machine: Machine("m", failing)}
			m.Machine.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: duration(time.Minute)}
			carryOut(HealthTimer{}, &m, now)
			Expect(m.Machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", expiry.Add(-time.Minute)))
		})

		It("should make the health timer run out at the expiry, and put it back on release", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(HealthTimer{}, &m, now)
			Expect(m.Machine.Status.CurrentStatus).To(And(
				HaveField("Phase", machinev1alpha1.MachineUnknown),
				HaveField("LastUpdateTime.Time", BeTemporally("==", expiry.Add(-10*time.Minute))),
			))
			m.Node.Annotations[preserve] = "false"
			carryOut(HealthTimer{}, &m, now.Add(time.Minute))
			Expect(m.Machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", since))
		})

		It("H2 T4: should give a machine that never joined a timer that ends at the expiry, and on release the creation timeout", func() {
			m := facts.Member{Machine: Machine("m", NeverJoined, Phase(machinev1alpha1.MachinePending, Start), Annotation(preserve, "when-failed"), Annotation(timeout, "1h"))}
			m.Machine.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineCreationTimeout: duration(time.Minute)}
			at := Start.Add(time.Minute)
			carryOut(HealthTimer{}, &m, at)
			Expect(m.Machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineUnknown))
			Expect(m.Machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", at.Add(50*time.Minute)))
			m.Machine.Annotations[preserve] = "false"
			carryOut(HealthTimer{}, &m, at.Add(time.Second))
			Expect(m.Machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachinePending))
		})

		It("P6: should follow an expiry that an operator edits", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(HealthTimer{}, &m, now)
			m.Machine.Annotations[prefix+"expiry-time"] = "2026-03-02T00:00:00Z"
			Expect(carryOut(HealthTimer{}, &m, now)).To(Equal([]string{"machine/status", "node/status"}))
			Expect(m.Machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", time.Date(2026, time.March, 1, 23, 50, 0, 0, time.UTC)))
		})

		DescribeTable("P2: scale-down priority", func(before string, during, after gomegatypes.GomegaMatcher) {
			m := facts.Member{Machine: Machine("m", Annotation(preserve, "now"))}
			if before != "" {
				m.Machine.Annotations[priority] = before
			}
			carryOut(HealthTimer{}, &m, now)
			Expect(m.Machine.Annotations).To(during)
			carryOut(HealthTimer{}, &m, expiry)
			Expect(m.Machine.Annotations).To(after)
		},
			Entry("none", "", HaveKeyWithValue(priority, "4"), Not(HaveKey(priority))),
			Entry("the default is put back", "3", HaveKeyWithValue(priority, "4"), HaveKeyWithValue(priority, "3")),
			Entry("a lower one is put back", "2", HaveKeyWithValue(priority, "4"), HaveKeyWithValue(priority, "2")),
			Entry("a higher one stays", "7", HaveKeyWithValue(priority, "7"), HaveKeyWithValue(priority, "7")),
			Entry("chosen by the autoscaler", "1", HaveKeyWithValue(priority, "1"), HaveKeyWithValue(priority, "1")),
		)

		It("R2: should sync the node's request to the machine, and its withdrawal", func() {
			m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
			Expect(carryOut(HealthTimer{}, &m, now)).To(Equal([]string{"machine"}))
			Expect(m.Machine.Annotations).To(Equal(map[string]string{lastApplied: "when-failed"}))
			delete(m.Node.Annotations, preserve)
			carryOut(HealthTimer{}, &m, now)
			Expect(m.Machine.Annotations).To(BeEmpty())
		})

		It("should take a machine over that the other holder left in phase Failed", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Phase(machinev1alpha1.MachineFailed, now)(m.Machine)
			m.Machine.Status.CurrentStatus.PreserveExpiryTime = nil // pruned by the older CRD
			carryOut(HealthTimer{}, &m, now.Add(time.Minute))
			Expect(m.Machine.Status.CurrentStatus).To(And(
				HaveField("Phase", machinev1alpha1.MachineUnknown),
				HaveField("LastUpdateTime.Time", BeTemporally("==", expiry.Add(-10*time.Minute))),
			))
			Expect(Noted(m.Machine)).To(And(HaveKeyWithValue(prefix+"cause", "auto"), Not(HaveKey(preserve)), Not(HaveKey(prefix+"expiry-in-status"))))
		})

		It("R2: should sync what a person asked for, and not the hold of the other holder in its place", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
			carryOut(PreserveExpiry{}, &m, now)
			carryOut(HealthTimer{}, &m, now.Add(time.Minute))
			Expect(m.Machine.Annotations).To(HaveKeyWithValue(lastApplied, "when-failed"))
		})

		DescribeTable("H1 H2: should give a failed machine a timer that ends at the expiry, in the phase for that, unless it has joined", func(held bool, opts ...MachineOption) {
			m := facts.Member{Machine: Machine("m", append(opts, Preserved("Failed:Preserved", "auto", later))...)}
			before := m.Machine.Status.CurrentStatus
			if held {
				before = machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineUnknown, LastUpdateTime: metav1.NewTime(later.Add(-10 * time.Minute))}
			}
			carryOut(HealthTimer{}, &m, now)
			Expect(m.Machine.Status.CurrentStatus).To(Equal(before))
		},
			Entry("it is doubted", true, failing),
			Entry("it is taken for running, and never joined", true, NeverJoined),
			Entry("it is taken for running after an outage", false),
			Entry("it is Failed", true, Phase(machinev1alpha1.MachineFailed, since)),
			Entry("its update in place failed", false, Phase(machinev1alpha1.MachineInPlaceUpdateFailed, since)),
		)

		DescribeTable("H2 T8: should have machine-controller-manager's own timeouts end a machine that is let go", func(phase machinev1alpha1.MachinePhase, updated time.Time, opts ...MachineOption) {
			for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
				m := facts.Member{Machine: Machine("m", append(opts, Annotation(preserve, "false"))...)}
				carryOut(holder, &m, now)
				Expect(ReadRecord(m.Machine)).To(BeNil())
				Expect(m.Machine.Status.CurrentStatus).To(Equal(machinev1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(updated)}))
			}
		},
			Entry("that of its health", machinev1alpha1.MachineUnknown, Start, Phase(machinev1alpha1.MachineUnknown, later), failed, failedSince(Start), Created(Start.Add(-time.Hour))),
			Entry("at once, although that was raised meanwhile", machinev1alpha1.MachineUnknown, now.Add(-601*time.Second), Phase(machinev1alpha1.MachineUnknown, later), failed, failedSince(now.Add(-5*time.Minute))),
			Entry("at once, although nobody knows since when it has failed", machinev1alpha1.MachineUnknown, now.Add(-601*time.Second), Phase(machinev1alpha1.MachineUnknown, later), failed, Annotation(prefix+"failed-since", "")),
			Entry("that of its health, which it has not missed yet", machinev1alpha1.MachineUnknown, now.Add(-5*time.Minute), Phase(machinev1alpha1.MachineUnknown, later), HeldUntil(later, "auto", expiry), failedSince(now.Add(-5*time.Minute))),
			Entry("that of its creation, when it never joined", machinev1alpha1.MachinePending, Start, Phase(machinev1alpha1.MachineUnknown, later), NeverJoined, failed, failedSince(since)),
			Entry("that of its creation, when it joined too late", machinev1alpha1.MachinePending, Start, Phase(machinev1alpha1.MachineUnknown, later), failed, failedSince(Start)),
			Entry("that of its creation, when it is taken for running and never joined", machinev1alpha1.MachinePending, Start, Phase(machinev1alpha1.MachineRunning, later), NeverJoined, failed, failedSince(since)),
			Entry("that of its creation, when nobody has noted that it was held", machinev1alpha1.MachinePending, Start, Phase(machinev1alpha1.MachineRunning, later), NeverJoined),
			Entry("none, because it is running", machinev1alpha1.MachineRunning, later, Phase(machinev1alpha1.MachineRunning, later), failed),
			Entry("its own, because it was not held", machinev1alpha1.MachineUnknown, now, Phase(machinev1alpha1.MachineUnknown, now), Preserved("Running:Preserved", "now", later)),
		)

		It("H2: should leave a running machine alone that has a node, although machine-controller-manager has yet to see it", func() {
			m := facts.Member{Machine: Machine("m", NeverJoined), Node: Node("m")}
			Expect(carryOut(HealthTimer{}, &m, now)).To(BeEmpty())
		})
	})

	DescribeTable("T8 P3: should mark a machine that is let go only if it is to be terminated", func(marked, rollout bool, node *corev1.Node, opts ...MachineOption) {
		g := Group{Holder: HealthTimer{}, Share: new(int32(1)), Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3, Rollout: rollout}, Timeouts: timeouts,
			Members: []facts.Member{{Machine: Machine("m", opts...), Node: node}}}
		round(g, now)
		Expect(ReadRecord(g.Members[0].Machine)).To(BeNil())
		Expect(Noted(g.Members[0].Machine)).To(map[bool]gomegatypes.GomegaMatcher{true: HaveKey(released), false: Not(HaveKey(released))}[marked])
	},
		Entry("it had failed", true, false, stops(NotReady), failing, failed),
		Entry("it fails in this moment", true, false, stops(NotReady), failing, HeldUntil(now, "auto", later)),
		Entry("it has not failed yet", false, false, stops(NotReady), failing, HeldUntil(later, "auto", later)),
		Entry("it is healthy, which machine-controller-manager has yet to see", false, false, stops(), failing, HeldUntil(now, "auto", later)),
		Entry("an update replaces it", true, true, Node("m", NotReady), failing, Preserved("Running:Preserved", "auto", later)),
		Entry("nobody has held it", false, false, stops(NotReady), failing, Preserved("Running:Preserved", "auto", later)),
	)

	It("T8 T1: should forget that a machine had its time when it is kept anew", func() {
		m := facts.Member{Machine: Machine("m", failing, Annotation(released, stamp(Start))), Node: Node("m", NodeAnnotation(preserve, "now"))}
		carryOut(HealthTimer{}, &m, now)
		Expect(ReadRecord(m.Machine)).NotTo(BeNil())
		Expect(Noted(m.Machine)).NotTo(HaveKey(released))
	})

	It("T8 P6: should put the health timer back before the request goes from a node that goes with its machine", func() {
		m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady, NodeAnnotation(preserve, "when-failed"))}
		carryOut(HealthTimer{}, &m, now)
		Expect(carryOut(HealthTimer{}, &m, expiry)).To(Equal([]string{"machine/status", "node/status", "machine"}))
		Expect(m.Node.Annotations).NotTo(HaveKey(preserve))
	})

	DescribeTable("T8: should not forget a machine before the health timer has its time, which machine-controller-manager begins anew where it sees now", func(request string, locks bool) {
		m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NotReady, NodeAnnotation(preserve, request))}
		carryOut(HealthTimer{}, &m, now)
		steps := Steps(HealthTimer{}, decideAt(HealthTimer{}, m, expiry), timeouts, expiry)
		Expect(steps[len(steps)-1]).To(And(HaveField("Record", true), HaveField("Lock", locks), HaveField("LockEdits", true)))
	},
		Entry("which it may", "now", true),
		Entry("which it does not", "when-failed", false),
	)

	It("R2: should forget the request on the node with its preservation, also where nobody syncs it", func() {
		m := facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", now), Annotation(lastApplied, "now")), NodeUnknown: true}
		carryOut(PreserveExpiry{}, &m, now)
		Expect(m.Machine.Annotations).NotTo(HaveKey(lastApplied))
	})

	It("should set nothing aside any more when the hold is over", func() {
		m := facts.Member{Machine: Machine("m", failing), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
		carryOut(PreserveExpiry{}, &m, now)
		carryOut(PreserveExpiry{}, &m, expiry)
		Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "request"))
	})

	Describe("PreserveExpiry", func() {
		It("should annotate the machine and write the expiry for an auto-preservation", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(Noted(m.Machine)).To(And(HaveKeyWithValue(preserve, "now"), HaveKeyWithValue(prefix+"request", "Machine:")))
			Expect(m.Machine.Status.CurrentStatus).To(And(
				HaveField("Phase", machinev1alpha1.MachineUnknown),
				HaveField("LastUpdateTime.Time", BeTemporally("==", since)),
				HaveField("PreserveExpiryTime.Time", BeTemporally("==", expiry)),
			))
		})

		It("should not take its own annotation for a request", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			d := decideAt(PreserveExpiry{}, m, now)
			Expect(d.Request.Value).To(BeEmpty())
			Expect(d.Target.Cause()).To(Equal("auto"))
		})

		It("should put the annotation on the node where that one carries the request, and remember what was asked for", func() {
			m := facts.Member{Machine: Machine("m", failing, Annotation(lastApplied, "when-failed")), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
			Expect(carryOut(PreserveExpiry{}, &m, now)).To(Equal([]string{"machine/status", "machine", "node", "machine/status", "node", "machine", "node/status"}))
			Expect(m.Node.Annotations).To(HaveKeyWithValue(preserve, "now"))
			Expect(Noted(m.Machine)).To(And(Not(HaveKey(preserve)), HaveKeyWithValue(prefix+"request", "Node:when-failed")))
			Expect(decideAt(PreserveExpiry{}, m, now).Target.Cause()).To(Equal("when-failed"))
			Expect(carryOut(PreserveExpiry{}, &m, now)).To(BeEmpty())
		})

		It("should undo the restart of the health timer by machine-controller-manager", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Phase(machinev1alpha1.MachineUnknown, now)(m.Machine)
			Expect(carryOut(PreserveExpiry{}, &m, now)).To(Equal([]string{"machine/status"}))
			Expect(m.Machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", since))
		})

		DescribeTable("P14: should not write a request anew that machine-controller-manager puts back, or that could not be deleted",
			func(value string, on MachineOption, inMargin, onceFailed bool) {
				var (
					margin    = now.Add(-10 * time.Second)
					hasExpiry = map[bool]gomegatypes.GomegaMatcher{true: Not(BeNil()), false: BeNil()}
					m         = facts.Member{Machine: Machine("m", failing, on), Node: Node("m", NodeAnnotation(preserve, value))}
					unchanged = func(at time.Time) {
						GinkgoHelper()
						Expect(m.Node.Annotations).To(HaveKeyWithValue(preserve, value))
						Expect(m.Machine.Annotations[preserve]).NotTo(Equal("when-failed"))
						Expect(ReadRecord(m.Machine)).NotTo(BeNil())
						Expect(carryOut(PreserveExpiry{}, &m, at)).To(BeEmpty())
					}
				)
				carryOut(PreserveExpiry{}, &m, margin)
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime).To(hasExpiry[inMargin])
				unchanged(margin)

				m.Machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineFailed
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime).To(hasExpiry[onceFailed])
				unchanged(now)
			},
			Entry("when-failed of the pool: held by machine-controller-manager as soon as it is Failed", "when-failed", Templated("when-failed"), false, true),
			Entry("true of the pool: held as machine-controller-manager looks away", "true", Templated("true"), true, true),
			Entry("now that is spent: it holds for the share", "now", Annotation(prefix+"spent-request", "now"), true, true),
			Entry("when-failed that is spent", "when-failed", Annotation(prefix+"spent-request", "when-failed"), false, true),
		)

		DescribeTable("H3: should not put the deadline off of a machine that is held as soon as it is Failed", func(stays MachineOption) {
			m := facts.Member{Machine: Machine("m", failing, stays), Node: Node("m", NotReady, NodeAnnotation(preserve, "when-failed"))}
			timer := m.Machine.Status.CurrentStatus.LastUpdateTime
			for _, at := range []time.Time{now.Add(-10 * time.Second), now, now.Add(30 * time.Second), now.Add(time.Minute)} {
				carryOut(PreserveExpiry{}, &m, at)
				Expect(m.Machine.Status.CurrentStatus.LastUpdateTime).To(Equal(timer))
			}
			Expect(ReadRecord(m.Machine).Failed).To(BeTrue())
		},
			Entry("by the pool's request", Templated("when-failed")),
			Entry("by a spent one", Annotation(prefix+"spent-request", "when-failed")),
		)

		It("P2: should make a machine the last to go that machine-controller-manager does not see to be held", func() {
			m := facts.Member{Machine: Machine("m", failing, Templated("when-failed")), Node: Node("m", NodeAnnotation(preserve, "when-failed"))}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(m.Machine.Annotations).To(HaveKeyWithValue(priority, "4"))
			m.Machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineFailed
			carryOut(PreserveExpiry{}, &m, expiry)
			Expect(m.Machine.Annotations).NotTo(HaveKey(priority))
		})

		DescribeTable("P13 R6: should leave a refused request of the pool alone until it can be refused for good",
			func(refused MachineOption) {
				m := facts.Member{Machine: Machine("m", refused, Templated("now"), Native(expiry)),
					Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"), Condition("Preserved", corev1.ConditionTrue, "", ""))}
				Expect(carryOut(PreserveExpiry{}, &m, now)).To(BeEmpty())
				Expect(decideAt(PreserveExpiry{}, m, now).Verdict).To(Equal(Ignored))
				failing(m.Machine)
				Expect(carryOut(PreserveExpiry{}, &m, now)).To(BeEmpty(), "machine-controller-manager would restart the timer")

				m.Machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineFailed
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("<=", now))
			},
			Entry("kept for as long as it may be", Annotation(preservedSince, now.Add(-336*time.Hour).Format(time.RFC3339))),
			Entry("forbidden by operators", Annotation(prefix+"forbidden", "true")),
		)

		DescribeTable("should put a hold back that somebody removed", func(remove func(*machinev1alpha1.Machine)) {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			remove(m.Machine)
			carryOut(PreserveExpiry{}, &m, now.Add(time.Minute))
			Expect(m.Machine.Annotations).To(HaveKeyWithValue(preserve, "now"))
			Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", expiry))
		},
			Entry("annotation", func(m *machinev1alpha1.Machine) { delete(m.Annotations, preserve) }),
			Entry("expiry", func(m *machinev1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = nil }),
		)

		DescribeTable("P6: should end what machine-controller-manager has ended while nobody looked", func(cause string) {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			m.Machine.Annotations[prefix+"cause"] = cause
			delete(m.Machine.Annotations, preserve)
			m.Machine.Status.CurrentStatus.PreserveExpiryTime = nil
			carryOut(PreserveExpiry{}, &m, now.Add(time.Minute))
			Expect(Noted(m.Machine)).To(And(HaveLen(2), HaveKey(released), HaveKey(preservedSince)))
			Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
		},
			Entry("of the share", "auto"),
			Entry("of who asks in a version to come", "quarantine"),
		)

		It("T1: should write the expiry first where machine-controller-manager holds at a person's request", func() {
			m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"))}
			Expect(carryOut(PreserveExpiry{}, &m, now)).To(Equal([]string{"machine/status", "machine", "node", "node/status"}))
			Expect(Noted(m.Machine)).To(HaveKeyWithValue(prefix+"expiry-in-status", "machine-m"))
		})

		DescribeTable("H2 H3: should hold in Pending what waits for its node, and any other machine in its phase", func(phase machinev1alpha1.MachinePhase, opts ...MachineOption) {
			m := facts.Member{Machine: Machine("m", append(opts, Preserved("Failed:Preserved", "auto", later))...)}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(m.Machine.Status.CurrentStatus).To(And(HaveField("Phase", phase), HaveField("PreserveExpiryTime.Time", BeTemporally("==", later))))
		},
			Entry("it is initialised in vain", machinev1alpha1.MachinePending, Phase(machinev1alpha1.MachineCrashLoopBackOff, since), Created(now.Add(-19*time.Minute))),
			Entry("it was held in the other way, and never joined", machinev1alpha1.MachinePending, NeverJoined, failing),
			Entry("it is taken for running, and never joined", machinev1alpha1.MachinePending, NeverJoined),
			Entry("it is doubted", machinev1alpha1.MachineUnknown, failing),
			Entry("it is taken for running after an outage", machinev1alpha1.MachineRunning),
		)

		Context("a request on the node that machine-controller-manager may not have seen yet", func() {
			// sees is what it writes when it has seen the request.
			sees := func(m *machinev1alpha1.Machine, request string) {
				delete(m.Annotations, preserve)
				m.Annotations[lastApplied] = request
			}
			held := func(on, request string) facts.Member {
				m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
				if on == "machine" {
					carryOut(PreserveExpiry{}, &m, now)
				}
				NodeAnnotation(preserve, request)(m.Node)
				carryOut(PreserveExpiry{}, &m, now)
				return m
			}

			DescribeTable("R2 P8: should not be what holds before that", func(on, request string) {
				m := held(on, request)
				Expect(Noted(m.Machine)).To(And(HaveKeyWithValue(preserve, "now"), HaveKeyWithValue(prefix+"request", "Machine:")))
				Expect(m.Node.Annotations).To(HaveKeyWithValue(preserve, request))
				Expect(decideAt(PreserveExpiry{}, m, now).Target.Cause()).To(Equal(request))
				Expect(carryOut(PreserveExpiry{}, &m, now)).To(BeEmpty())

				sees(m.Machine, request)
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Annotations).NotTo(HaveKey(preserve))
				Expect(m.Node.Annotations).To(HaveKeyWithValue(preserve, "now"))
				Expect(decideAt(PreserveExpiry{}, m, now).Target.Cause()).To(Equal(request))
			},
				Entry("when-failed, of a machine that is held", "machine", "when-failed"),
				Entry("now, of a machine that is held", "machine", "now"),
				Entry("when-failed, of a machine that is not", "", "when-failed"),
				Entry("now, of a machine that is not", "", "now"),
			)

			DescribeTable("R1 P8: should not be what holds either if it is never noted", func(on string) {
				m := held(on, "true")
				Expect(m.Machine.Annotations).To(HaveKeyWithValue(preserve, "now"))
				Expect(m.Node.Annotations).To(HaveKeyWithValue(preserve, "true"))
				Expect(decideAt(PreserveExpiry{}, m, now).Target.Cause()).To(Equal("now"))
			},
				Entry("of a machine that is held", "machine"),
				Entry("of a machine that is not", ""),
			)

			It("should be what holds a healthy machine, until machine-controller-manager has ended that", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(prefix+"timeout", "24h"))}
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Annotations).NotTo(HaveKey(preserve))
				m.Machine.Status.CurrentStatus.PreserveExpiryTime = nil
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Annotations).To(HaveKeyWithValue(preserve, "now"))
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime).NotTo(BeNil())
				Expect(decideAt(PreserveExpiry{}, m, now).Request.Value).To(Equal("now"))
			})

			It("H4: should not be what holds a preserved machine that is about to fail", func() {
				m := facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(prefix+"timeout", "24h"))}
				carryOut(PreserveExpiry{}, &m, now.Add(-time.Minute))
				failing(m.Machine)
				carryOut(PreserveExpiry{}, &m, now)
				Expect(m.Machine.Annotations).To(HaveKeyWithValue(preserve, "now"))
			})

			It("R4: should leave nothing on the machine when the preservation ends before that", func() {
				m := held("machine", "now")
				later := now.Add(400 * time.Hour)
				carryOut(PreserveExpiry{}, &m, later)
				Expect(m.Machine.Annotations).NotTo(HaveKey(preserve))
				Expect(m.Node.Annotations).NotTo(HaveKey(preserve))
			})
		})

		It("R2: should put nothing on the node that was set aside for a hold on another one", func() {
			m := facts.Member{Machine: Machine("m", Annotation(preserve, "now"), Annotation(prefix+"request", "Node:when-failed")), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "request"))
			m = facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "maintenance", later), Annotation(prefix+"request", "Node:when-failed"))}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(Noted(m.Machine)).NotTo(HaveKey(prefix + "request"))
		})

		DescribeTable("T5 P14: should not have machine-controller-manager begin anew with what it has auto-preserved", func(m facts.Member, at time.Time, then ...NodeOption) {
			carryOut(PreserveExpiry{}, &m, now)
			for _, opt := range then {
				opt(m.Node)
			}
			carryOut(PreserveExpiry{}, &m, at)
			Expect(ReadRecord(m.Machine)).To(BeNil())
			Expect(m.Machine.Annotations).NotTo(HaveKey(preserve))
		},
			Entry("it was kept for its time", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), Native(later))}, later),
			Entry("R4: a person has stopped it", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), Native(later)), Node: Node("m", NotReady)}, now, NodeAnnotation(preserve, "false")),
			Entry("R6: it may not be kept", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), Annotation(prefix+"forbidden", "true"), Native(later))}, now),
		)

		DescribeTable("R4: should put on the node what was set aside, unless the person wrote anew since, or withdrew it", func(aside string, ended bool, want string, on ...NodeOption) {
			m := facts.Member{Machine: Machine("m", failing, failed, Annotation(prefix+"request", aside), ExpiryInStatus(later)), Node: Node("m", on...)}
			if ended {
				m.Machine.Status.CurrentStatus.PreserveExpiryTime = nil
			}
			d := Decision{Member: m, Current: ReadRecord(m.Machine)}
			for _, step := range Steps(PreserveExpiry{}, d, timeouts, now) {
				Make(step, &m)
			}
			Expect(m.Node.Annotations[preserve]).To(Equal(want))
		},
			Entry("it is as the hold left it", "Node:when-failed", false, "when-failed", NodeAnnotation(preserve, "now")),
			Entry("false was taken away with the hold", "Node:false", true, "false"),
			Entry("false was taken away, and the person wrote anew", "Node:false", true, "when-failed", NodeAnnotation(preserve, "when-failed")),
			Entry("the person withdrew it", "Node:when-failed", false, ""),
		)

		DescribeTable("P6 P14: should believe an expiry in the status only if nobody else ends it there", func(believed bool, m facts.Member) {
			failing(m.Machine)
			for range 2 {
				carryOut(PreserveExpiry{}, &m, now)
			}
			_, is := Noted(m.Machine)[prefix+"expiry-in-status"]
			Expect(is).To(Equal(believed))
		},
			Entry("the node says nothing", true, facts.Member{Machine: Machine("m"), Node: Node("m")}),
			Entry("the node says something that nobody can read", true, facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "yes"))}),
			Entry("the node says what is machine-controller-manager's own", false, facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(preserve, "auto-preserved"))}),
			Entry("the node may say that", false, facts.Member{Machine: Machine("m", Annotation(lastApplied, "invalid")), NodeUnknown: true}),
			Entry("the node cannot say that", true, facts.Member{Machine: Machine("m", Annotation(lastApplied, "when-failed")), NodeUnknown: true}),
		)

		It("T3: should take it for a withdrawal if the request of a person is gone, also together with the hold", func() {
			m := facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", later), Annotation(prefix+"expiry-in-status", "machine-m")), Node: Node("m")}
			Expect(decideAt(PreserveExpiry{}, m, now)).To(And(HaveField("Why", WhyRequestWithdrawn), HaveField("ConsumeRequest", false)))
		})

		DescribeTable("R2 R4: should remove a request on the Machine that the empty one of the node beats, and no other", func(removed bool, value string, node NodeOption) {
			m := facts.Member{Machine: Machine("m", Preserved("Running:Preserved", "now", later), Annotation(preserve, value)), Node: Node("m", node)}
			carryOut(PreserveExpiry{}, &m, now)
			_, there := m.Machine.Annotations[preserve]
			Expect(there).To(Equal(!removed))
		},
			Entry("it would be obeyed", true, "now", NodeAnnotation(preserve, "")),
			Entry("R4: false is the person's", false, "false", NodeAnnotation(preserve, "")),
			Entry("R3: one that nobody can read withdraws nothing", false, "now", NodeAnnotation(preserve, "yes")),
			Entry("that of the node forbids", false, "now", NodeAnnotation(preserve, "false")),
			Entry("there is none on the node", false, "when-failed", func(*corev1.Node) {}),
		)

		DescribeTable("T1: should leave all but the record to machine-controller-manager for a moment, where that does the same by itself", func(same bool, node *corev1.Node, opts ...MachineOption) {
			pools := func(m *machinev1alpha1.Machine) {
				m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachinePreserveTimeout: duration(72 * time.Hour)}
			}
			m := facts.Member{Machine: Machine("m", append([]MachineOption{pools}, opts...)...), Node: node, NodeUnknown: node == nil}
			d := decideAt(PreserveExpiry{}, m, now)
			Expect(d.Next.Equal(now.Add(10*time.Second))).To(Equal(same), "then it should have")
			written := carryOut(PreserveExpiry{}, &m, now)
			Expect(slices.Equal(written, []string{"machine"})).To(Equal(same), "%s", written)
		},
			Entry("on the node", true, Node("m", NodeAnnotation(preserve, "now"))),
			Entry("on the Machine", true, Node("m"), Annotation(preserve, "now")),
			Entry("not on the Machine while it remembers another one of the node", false, Node("m"), Annotation(preserve, "now"), Annotation(lastApplied, "when-failed")),
			Entry("not of a pool with another time", false, Node("m", NodeAnnotation(preserve, "now")), func(m *machinev1alpha1.Machine) {
				m.Spec.MachineConfiguration.MachinePreserveTimeout = duration(71 * time.Hour)
			}),
			Entry("not of a pool with no time", false, Node("m", NodeAnnotation(preserve, "now")), func(m *machinev1alpha1.Machine) { m.Spec.MachineConfiguration.MachinePreserveTimeout = nil }),
			Entry("not of a machine that says nothing", false, Node("m", NodeAnnotation(preserve, "now")), func(m *machinev1alpha1.Machine) { m.Spec.MachineConfiguration = nil }),
			Entry("R5: not for a time of its own", false, Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "1h"))),
			Entry("R1: not for true on the Machine", false, Node("m"), Annotation(preserve, "true")),
			Entry("R1: not for true", false, Node("m", NodeAnnotation(preserve, "true"))),
			Entry("not of one that fails", false, Node("m", NodeAnnotation(preserve, "now"), NotReady), failing),
			Entry("P9: not where nobody knows what is on the node", false, nil, Annotation(preserve, "now")),
			Entry("R2: not where the node's beats it", false, Node("m", NodeAnnotation(preserve, "true")), Annotation(preserve, "now")),
			Entry("P13: not for longer than operators allow", false, Node("m", NodeAnnotation(preserve, "now")), Annotation(preservedSince, stamp(now.Add(-265*time.Hour)))),
		)

		It("T1: should follow the expiry of machine-controller-manager for that moment, and write what it has not", func() {
			for _, native := range []bool{true, false} {
				m := facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineRunning, now)), Node: Node("m", NodeAnnotation(preserve, "now"))}
				m.Machine.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachinePreserveTimeout: duration(72 * time.Hour)}
				if native {
					Native(expiry.Add(time.Second))(m.Machine)
				}
				next := decideAt(PreserveExpiry{}, m, now.Add(2*time.Second)).Next
				carryOut(PreserveExpiry{}, &m, now.Add(2*time.Second))
				began := now.Add(2 * time.Second)
				if native {
					began = now.Add(time.Second)
				}
				Expect(next).To(BeTemporally("==", began.Add(10*time.Second)))
				Expect(ReadRecord(m.Machine).Expiry()).To(BeTemporally("==", began.Add(72*time.Hour)))
				Expect(m.Node.Annotations).NotTo(HaveKey(disabled))
				Expect(carryOut(PreserveExpiry{}, &m, began.Add(10*time.Second-time.Nanosecond))).To(BeEmpty())
				Expect(carryOut(PreserveExpiry{}, &m, began.Add(10*time.Second))).To(ContainElements("node", "node/status"))
				Expect(m.Machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", began.Add(72*time.Hour)))
				Expect(ReadRecord(m.Machine).Expiry()).To(BeTemporally("==", began.Add(72*time.Hour)))
			}
		})

		It("T1: should not write an expiry that machine-controller-manager drops with the first phase", func() {
			for phase, shown := range map[machinev1alpha1.MachinePhase]string{"": "Pending:Preserved", machinev1alpha1.MachineCrashLoopBackOff: "CrashLoopBackOff:Preserved"} {
				m := facts.Member{Machine: Machine("m", Created(now), Phase(phase, now), Annotation(preserve, "now"))}
				Expect(carryOut(PreserveExpiry{}, &m, now)).To(Equal([]string{"machine"}))
				Expect(m.Machine.Annotations).To(HaveKeyWithValue(prefix+"phase", shown))
			}
		})

		It("T8: should leave the expiry of a failed machine to machine-controller-manager once it is reached", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Phase(machinev1alpha1.MachineFailed, now)(m.Machine)
			Expect(carryOut(PreserveExpiry{}, &m, expiry)).To(Equal([]string{"node", "node/status", "machine"}))

			Phase(machinev1alpha1.MachineRunning, expiry)(m.Machine)
			Expect(carryOut(PreserveExpiry{}, &m, expiry)).To(Equal([]string{"machine", "machine/status"}))
		})

		It("P8: should not leave it to machine-controller-manager when it has seen that the request on the node is gone", func() {
			m := facts.Member{Machine: Machine("m", failing, Annotation(lastApplied, "when-failed")), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(m.Machine.Annotations).NotTo(HaveKey(lastApplied))
		})

		It("should take a preservation over that the other holder began", func() {
			m := facts.Member{Machine: Machine("m", failing), Node: Node("m")}
			carryOut(HealthTimer{}, &m, now)
			carryOut(PreserveExpiry{}, &m, now.Add(time.Minute))
			Expect(m.Machine.Status.CurrentStatus).To(And(
				HaveField("LastUpdateTime.Time", BeTemporally("==", since)),
				HaveField("PreserveExpiryTime.Time", BeTemporally("==", expiry)),
			))
		})

		It("T3: should end the hold in the order that does not make machine-controller-manager begin anew", func() {
			m := facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m")}
			carryOut(PreserveExpiry{}, &m, now)
			Expect(carryOut(PreserveExpiry{}, &m, expiry)).To(Equal([]string{"node/status", "machine", "machine/status"}))
		})
	})
})
