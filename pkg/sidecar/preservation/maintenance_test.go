// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Maintenance", func() {
	const until = "2026-03-02T13:00:00Z" // 24 hours

	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			maintained := func(ctx SpecContext, opts ...DeploymentOption) *environment {
				GinkgoHelper()
				e := withMachine(holder, Machine("m"), Node("m", maintainedFrom(now)))
				e.editDeployment(ctx, opts...)
				e.settle(ctx)
				return e
			}

			It("M12: should protect a machine at once in two writes, tell so, and look again at its end", func(ctx SpecContext) {
				e := maintained(ctx)
				Expect(e.api.written()).To(HaveLen(2))
				Expect(e.machine(ctx, "m").Annotations).To(And(
					HaveKeyWithValue(prefix+"cause", "maintenance"),
					HaveKeyWithValue(prefix+"phase", "Running:Preserved"),
					HaveKeyWithValue(prefix+"expiry-time", until),
					HaveKeyWithValue(maintainedSince, "2026-03-01T13:00:00Z"),
				))
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(preserve))
				Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(e.node(ctx, "m").Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
				e.expectEvent("MachinePreserved: Machine is Running:Preserved until " + until + " because UnderMaintenance (cause maintenance)")
				Expect(e.settle(ctx).RequeueAfter).To(Equal(24 * time.Hour))
			})

			It("M12: should hold a machine whose reboot takes longer than the health timeout, and take the hold back afterwards", func(ctx SpecContext) {
				e := maintained(ctx)
				e.recorder.take()
				e.fail(ctx)
				e.expectEvent("PreservedMachineFailed: Machine is Failed:Preserved until " + until + " because MachineFailed (cause maintenance)")
				status := e.machine(ctx, "m").Status.CurrentStatus
				if name == "PreserveExpiry" {
					Expect(status.PreserveExpiryTime.UTC().Format(time.RFC3339)).To(Equal(until))
				} else {
					Expect(status.LastUpdateTime.Add(10 * time.Minute).UTC().Format(time.RFC3339)).To(Equal(until))
				}
				Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
				Expect(preservation.PreservedCondition(e.node(ctx, "m"))).To(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "Preserved")))

				e.heal(ctx, "m")
				e.settle(ctx)
				e.expectEvent("PreservedMachineRecovered: Machine is Running:Preserved until " + until + " because HealthyAgain (cause maintenance)")
				machine := e.machine(ctx, "m")
				Expect(machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				Expect(machine.Annotations).NotTo(HaveKey(preserve))
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
			})

			It("M12: should tell when the claim ends although the maintenance goes on", func(ctx SpecContext) {
				e := maintained(ctx)
				e.recorder.take()
				e.pass(24 * time.Hour)
				e.settle(ctx)
				e.expectEvent("MachinePreservationEnded: Machine is no longer preserved because Expired (cause was maintenance)")
				Expect(e.machine(ctx, "m").Annotations).To(Equal(map[string]string{maintainedSince: "2026-03-01T13:00:00Z"}))
				Expect(e.node(ctx, "m").Annotations).To(Equal(map[string]string{maintenance: "2026-03-01T13:00:00Z"}))
				e.settle(ctx)
				Expect(e.recorder.take()).To(BeEmpty())
			})

			It("M12: should tell once that another maintenance is no reason to keep the machine, as the time of all of them is used up", func(ctx SpecContext) {
				e := maintained(ctx)
				e.pass(24 * time.Hour)
				e.settle(ctx)
				e.recorder.take()
				e.editNode(ctx, "m", maintainedFrom(e.now()))
				e.settle(ctx)
				e.expectEvent("MachinePreservationRefused: Machine is not preserved because MaintenanceExhausted")
				Expect(e.machine(ctx, "m").Annotations).To(Equal(map[string]string{maintainedSince: "2026-03-01T13:00:00Z"}))
				e.settle(ctx)
				Expect(e.recorder.take()).To(BeEmpty())
			})

			It("M13: should tell nobody when the maintenance of a healthy machine is over", func(ctx SpecContext) {
				e := maintained(ctx)
				e.recorder.take()
				e.editNode(ctx, "m", without(maintenance))
				e.settle(ctx)
				Expect(e.recorder.take()).To(BeEmpty())
				Expect(e.machine(ctx, "m").Annotations).To(Equal(map[string]string{maintainedSince: "2026-03-01T13:00:00Z/2026-03-01T13:00:00Z"}))
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
			})

			It("M13 P5: should take the protection off that the cache of nodes does not know yet", func(ctx SpecContext) {
				e := maintained(ctx)
				protected := e.node(ctx, "m")
				e.editNode(ctx, "m", without(maintenance), without(disabled), without(byMCM))
				e.nodeCache = e.snapshotNodes(ctx)
				e.editNode(ctx, "m", func(n *corev1.Node) { n.Annotations = protected.Annotations }, without(maintenance))
				e.restart()
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
			})

			It("P8 M12: should protect no node for a record that was removed, which the cache of machines does not know yet", func(ctx SpecContext) {
				e := maintained(ctx)
				recorded := e.snapshot(ctx)
				e.editNode(ctx, "m", without(maintenance))
				e.settle(ctx)
				// The next maintenance begins, and is over again before the cache of machines is up to date.
				e.editNode(ctx, "m", maintainedFrom(e.now()))
				e.cache = recorded
				e.restart()
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				e.editNode(ctx, "m", without(maintenance))
				e.cache = nil
				e.restart()
				e.settle(ctx)
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
			})

			It("M13: should not prolong the time after a maintenance with a restart", func(ctx SpecContext) {
				e := maintained(ctx)
				e.fail(ctx)
				e.editNode(ctx, "m", without(maintenance))
				e.settle(ctx)
				for range 3 {
					e.pass(3 * time.Minute)
					e.restart()
					e.settle(ctx)
					Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-01T13:10:00Z"))
				}
				e.pass(time.Minute)
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(released))
			})

			It("M12 P9: should keep what it keeps for a maintenance while the shoot cannot be read", func(ctx SpecContext) {
				e := maintained(ctx)
				e.nodesKnown = false
				e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineUnknown, e.now().Add(-10*time.Minute)))
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"), HaveKeyWithValue(prefix+"expiry-time", until)))
			})

			It("M12 P11: should be counted by its cause, and not as using up the share", func(ctx SpecContext) {
				pool := "maintained-" + name
				e := maintained(ctx, in(pool, "z"))
				Expect(metric("machines")).To(HaveKeyWithValue("maintenance pool Running:Preserved "+pool+" z", 1.0))
				Expect(metric("transitions_total")).To(HaveKeyWithValue("maintenance "+pool+" UnderMaintenance M12", 1.0))
				e.fail(ctx)
				Expect(metric("machines")).To(HaveKeyWithValue("maintenance pool Failed:Preserved "+pool+" z", 1.0))
				Expect(metric("share_used")).To(HaveKeyWithValue("pool "+pool+" z", 0.0))
			})

			It("M12: should do nothing where maintenances are not enabled", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", maintainedFrom(now)))
				e.Maintenance = preservation.MaintenanceOptions{}
				e.settle(ctx)
				Expect(e.api.written()).To(BeEmpty())
			})
		})
	}
})
