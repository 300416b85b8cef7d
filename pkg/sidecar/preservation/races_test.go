// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// meanwhile lets somebody else write right before the Reconciler writes what.
func (e *environment) meanwhile(what string, somebody func()) {
	e.api.write = func(_ int, w string, do func() error) error {
		if w == what {
			e.api.write = nil
			somebody()
		}
		return do()
	}
}

// persist reconciles until nothing is written any more, and lets conflicts pass.
func (e *environment) persist(ctx context.Context) {
	GinkgoHelper()
	_, _ = e.reconcile(ctx)
	e.settle(ctx)
}

var _ = Describe("Races", func() {
	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			It("should not hold a machine that recovers meanwhile", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.meanwhile("Machine/m", func() { e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineRunning, now)) })
				e.persist(ctx)
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(HavePrefix(prefix)))
				Expect(e.machine(ctx, "m").Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
				Expect(e.recorder.take()).To(BeEmpty())
			})

			DescribeTable("H4: should not take the phase back of a machine that recovers before its hold is complete", func(ctx SpecContext, doubted MachineOption) {
				e := withMachine(holder, Machine("m", doubted), Node("m", NotReady))
				e.meanwhile("Machine/m/status", func() { e.heal(ctx, "m") })
				e.persist(ctx)
				Expect(e.machine(ctx, "m").Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
			},
				Entry("and is near its deadline", near(now)),
				Entry("and is overdue", failing(now)),
			)

			It("H4: should not let go of a machine that is doubted anew before its hold has ended", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", near(now)), Node("m", NotReady))
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("m"))
				e.heal(ctx, "m")
				e.meanwhile("Machine/m", func() { e.editMachine(ctx, "m", near(now)) })
				_, _ = e.reconcile(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("m"))
			})

			It("P7: should keep a taint that somebody else adds meanwhile", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.meanwhile("Node/m", func() { e.editNode(ctx, "m", Taint("node.kubernetes.io/unreachable", now)) })
				e.persist(ctx)
				Expect(e.node(ctx, "m").Spec.Taints).To(ConsistOf(HaveField("Key", "node.kubernetes.io/unreachable"), HaveField("Key", "node.machine.sapcloud.io/preserved")))
			})

			It("D13: should not write over what somebody else says of a drain meanwhile, and show the rest in the next round", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.DrainConditions = true
				e.meanwhile("Node/m/status", func() {
					e.editNodeStatus(ctx, "m", Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", ""))
				})
				e.persist(ctx)
				Expect(e.node(ctx, "m").Status.Conditions).To(ConsistOf(
					HaveField("Type", BeEquivalentTo("Ready")),
					And(HaveField("Type", BeEquivalentTo("Preserved")), HaveField("Status", corev1.ConditionTrue)),
					And(HaveField("Type", BeEquivalentTo("DrainInProgress")), HaveField("Reason", "MachinePreservation")),
					And(HaveField("Type", BeEquivalentTo("Drained")), HaveField("Reason", "KubectlDrainCompleted")),
				))
			})

			It("P11: should keep a condition that the kubelet changes meanwhile", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.meanwhile("Node/m/status", func() {
					e.editNodeStatus(ctx, "m", Condition("Ready", corev1.ConditionUnknown, "NodeStatusUnknown", ""), Condition("DiskPressure", corev1.ConditionTrue, "", ""))
				})
				e.persist(ctx)
				Expect(e.node(ctx, "m").Status.Conditions).To(ConsistOf(
					And(HaveField("Type", BeEquivalentTo("Ready")), HaveField("Reason", "NodeStatusUnknown")),
					HaveField("Type", BeEquivalentTo("DiskPressure")),
					And(HaveField("Type", BeEquivalentTo("Preserved")), HaveField("Status", corev1.ConditionTrue)),
				))
			})

			It("T10: should not hold up a machine that is deleted meanwhile", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.meanwhile("Machine/m/status", func() { Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed()) })
				e.persist(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
			})

			It("H3: should not tell of a machine that is terminated before its hold is complete", func(ctx SpecContext) {
				finalizer := func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }
				e := withMachine(holder, Machine("m", failing(now), finalizer), Node("m"))
				e.meanwhile("Machine/m/status", func() { Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed()) })
				e.persist(ctx)
				Expect(e.recorder.take()).NotTo(ContainElement(ContainSubstring("MachinePreserved:")))
			})

			It("T10: should leave a machine alone that is being terminated, which the cache does not know yet", func(ctx SpecContext) {
				finalizer := func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }
				e := withMachine(holder, Machine("m", failing(now), finalizer, Annotation(preserve, "now")), Node("m"))
				e.cache = e.snapshot(ctx)
				e.restart()
				Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
				e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineTerminating, now))
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.api.written()).To(BeEmpty())
				Expect(e.machine(ctx, "m").Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineTerminating))
			})

			DescribeTable("T10: should not take the phase back of a machine that is terminated meanwhile", func(ctx SpecContext, phase machinev1alpha1.MachinePhase) {
				finalizer := func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }
				e := withMachine(holder, Machine("m", Phase(phase, Start), finalizer), Node("m"))
				e.meanwhile("Machine/m/status", func() {
					Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
					e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineTerminating, now))
				})
				e.persist(ctx)
				Expect(e.machine(ctx, "m").Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineTerminating))
			},
				Entry("that waited for its node", machinev1alpha1.MachinePending),
				Entry("that waited for its VM", machinev1alpha1.MachineCrashLoopBackOff),
			)

			It("R4: should not overwrite a false that a user writes on the node meanwhile", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
				e.meanwhile("Machine/m", func() { e.editNode(ctx, "m", with("false")) })
				e.persist(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(preserve, "false"))
				Expect(e.held(ctx)).To(BeEmpty())
			})

			Context("while the expiry is handled", func() {
				var (
					e       *environment
					written int
				)

				BeforeEach(func(ctx SpecContext) {
					finalizer := func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }
					e = withMachine(holder, Machine("m", failing(now), finalizer), Node("m", NotReady))
					e.settle(ctx)
					e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineFailed, now))
					e.settle(ctx)
					e.pass(72 * time.Hour)
					written = len(e.api.written())
				})

				It("T8: should end with the writes that it takes when machine-controller-manager deletes the machine", func(ctx SpecContext) {
					e.meanwhile("Machine/m", func() { Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed()) })
					e.persist(ctx)
					Expect(e.api.written()[written:]).To(Or(
						Equal([]string{"Node/m/status", "Machine/m"}),
						Equal([]string{"Machine/m/status", "Node/m/status", "Machine/m"}),
					))
					Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				})

				It("T8 T10: should end when machine-controller-manager terminates the machine, and clears the expiry with that", func(ctx SpecContext) {
					e.meanwhile("Machine/m", func() {
						Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
						e.editMachine(ctx, "m", func(m *machinev1alpha1.Machine) {
							m.Status.CurrentStatus = machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineTerminating, LastUpdateTime: metav1.NewTime(now)}
						})
					})
					e.persist(ctx)
					Expect(e.api.written()[written:]).To(Or(
						Equal([]string{"Machine/m/status", "Node/m/status", "Machine/m"}),
						// The cleared expiry looks like an edit, in whatever form it is: the next look ends it.
						Equal([]string{"Node/m/status", "Machine/m", "Machine/m", "Node/m", "Machine/m"}),
					))
					Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
					Expect(e.machine(ctx, "m").Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineTerminating))
				})

				It("T7: should clean the node of a machine that recovers", func(ctx SpecContext) {
					e.meanwhile("Machine/m", func() { e.heal(ctx, "m") })
					e.persist(ctx)
					Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
					Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
					Expect(e.node(ctx, "m").Annotations).NotTo(HaveKey("cluster-autoscaler.kubernetes.io/scale-down-disabled"))
				})

				DescribeTable("P6: should obey an operator who puts it off", func(ctx SpecContext, before string) {
					later := e.now().Add(time.Hour)
					e.meanwhile(before, func() {
						if _, inStatus := holder.(preservation.PreserveExpiry); inStatus {
							e.editMachine(ctx, "m", ExpiryInStatus(later))
						} else {
							e.editMachine(ctx, "m", Annotation(prefix+"expiry-time", later.UTC().Format(time.RFC3339)))
						}
					})
					e.persist(ctx)
					Expect(e.held(ctx)).To(ConsistOf("m"))
				},
					Entry("before the node is cleaned", "Node/m/status"),
					Entry("before the record is removed", "Machine/m"),
				)
			})

			It("R4 T8: should not remove a false that a user writes on the node while the expiry is handled", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
				e.settle(ctx)
				e.pass(72 * time.Hour)
				e.meanwhile("Node/m", func() { e.editNode(ctx, "m", with("false")) })
				e.persist(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(preserve, "false"))
			})

			It("R4 T3: should not remove a false that a user writes on the node while the expiry is handled", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				e.settle(ctx)
				e.pass(72 * time.Hour)
				e.meanwhile("Node/m/status", func() { e.editNode(ctx, "m", with("false")) })
				e.persist(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(preserve, "false"))
			})
		})
	}

	DescribeTable("P6: should obey an operator who puts the expiry off before the health timer is put back", func(ctx SpecContext, request func(*corev1.Node)) {
		e := withMachine(preservation.HealthTimer{}, Machine("m", failing(now)), Node("m", NotReady, request))
		e.settle(ctx)
		e.pass(72 * time.Hour)
		later, timer := e.now().Add(time.Hour).UTC().Format(time.RFC3339), e.machine(ctx, "m").Status.CurrentStatus.LastUpdateTime
		e.meanwhile("Machine/m/status", func() { e.editMachine(ctx, "m", Annotation(prefix+"expiry-time", later)) })
		_, _ = e.reconcile(ctx)
		Expect(e.machine(ctx, "m").Status.CurrentStatus.LastUpdateTime).To(Equal(timer), "else the machine fails at once")
		e.persist(ctx)
		Expect(e.held(ctx)).To(ConsistOf("m"))
	},
		Entry("when nobody asked", func(*corev1.Node) {}),
		Entry("when the node carries the request", with("when-failed")),
	)

	PIt("R2 P9: should remember an empty request of the node while the node cannot be read", func(ctx SpecContext) {
		e := withMachine(preservation.HealthTimer{}, Machine("m", Annotation(preserve, "now")), Node("m", with("")))
		e.settle(ctx)
		e.nodesKnown = false
		e.restart()
		e.settle(ctx)
		Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
	})

	It("R5: should not take the expiry for an operator's that machine-controller-manager computes when it sees the annotation first", func(ctx SpecContext) {
		e := withMachine(preservation.PreserveExpiry{}, Machine("m"), Node("m", with("now"), NodeAnnotation(prefix+"timeout", "1h")))
		e.meanwhile("Machine/m/status", func() { e.editMachine(ctx, "m", ExpiryInStatus(now.Add(96*time.Hour))) })
		e.persist(ctx)
		Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now.Add(time.Hour)))
	})
})
