// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Watches", func() {
	DescribeTable("of machines", func(change func(*machinev1alpha1.Machine), looks, sweeps bool) {
		before, after := builder.Machine("m"), builder.Machine("m")
		change(after)
		e := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
		Expect(MachineChanged().Update(e)).To(Equal(looks))
		Expect(PhaseChanged().Update(e)).To(Equal(sweeps))
		Expect(PhaseChanged().Delete(event.DeleteEvent{Object: before})).To(BeTrue(), "X2")
		Expect(PhaseChanged().Create(event.CreateEvent{Object: before})).To(BeFalse())
	},
		Entry("nothing", func(m *machinev1alpha1.Machine) { m.ResourceVersion = "2" }, false, false),
		Entry("a request", func(m *machinev1alpha1.Machine) { builder.Annotation(needs, "")(m) }, true, false),
		Entry("a phase", func(m *machinev1alpha1.Machine) { builder.Annotation(phase, "Failed")(m) }, true, true),
		Entry("a finalizer", func(m *machinev1alpha1.Machine) { m.Finalizers = []string{finalizer} }, true, false),
		Entry("a deletion", func(m *machinev1alpha1.Machine) { builder.Deleted(builder.Start)(m) }, true, false),
		Entry("a provider id", func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "x" }, true, false),
		Entry("a node", func(m *machinev1alpha1.Machine) { m.Labels["node"] = "x" }, true, false),
	)

	It("X8: of machines that make room for a cycle", func() {
		failed := builder.Machine("m", builder.Phase("Failed", builder.Start))
		Expect(RoomChanged().Update(event.UpdateEvent{ObjectOld: builder.Machine("m"), ObjectNew: failed})).To(BeTrue())
		Expect(RoomChanged().Update(event.UpdateEvent{ObjectOld: builder.Machine("m"), ObjectNew: builder.Machine("m", builder.Annotation(phase, "Failed"))})).To(BeTrue())
		Expect(RoomChanged().Update(event.UpdateEvent{ObjectOld: builder.Machine("m"), ObjectNew: builder.Machine("m", builder.Phase("Unknown", builder.Start))})).To(BeFalse())
		Expect(RoomChanged().Create(event.CreateEvent{Object: failed})).To(BeFalse())
	})

	It("R6: of MachineDeployments that operators forbid to keep machines of", func() {
		before, after := builder.Deployment("pool"), builder.Deployment("pool", builder.DeploymentAnnotation(forbidden, "true"))
		Expect(shoot.DeploymentChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
		Expect(shoot.DeploymentChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: builder.Deployment("pool")})).To(BeFalse())
	})

	DescribeTable("of nodes", func(change func(*corev1.Node), looks, wakes bool) {
		after := builder.Node("m")
		change(after)
		e := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: builder.Node("m"), ObjectNew: after}
		Expect(NodeChanged().Update(e)).To(Equal(looks))
		Expect(ReadinessChanged().Update(e)).To(Equal(wakes), "X8: of other MachineDeployments")
		Expect(ReadinessChanged().Delete(event.TypedDeleteEvent[*corev1.Node]{Object: after})).To(BeTrue())
	},
		Entry("a heartbeat", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(builder.Start) }, false, false),
		Entry("a boot id", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "x" }, true, false),
		Entry("a taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: outOfService}} }, true, false),
		Entry("a request", func(n *corev1.Node) { n.Annotations[request] = "now" }, true, false),
		Entry("since when it is ready", func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(builder.Start) }, true, false),
		Entry("whether it is ready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true, true),
	)

	It("should find the MachineDeployment of a machine, a node and a host", func(ctx SpecContext) {
		e := newEnvironment("m")
		Expect(MachineToDeployment(e.Reconciler, ctx, e.machine(ctx, "m"))).To(ConsistOf(request1))
		Expect(NodeToDeployment(e.Reconciler, ctx, e.node(ctx, "m"))).To(ConsistOf(request1))
		Expect(NodeToDeployment(e.Reconciler, ctx, builder.Node("other"))).To(BeEmpty())
		Expect(HostToDeployment(e.Reconciler, ctx, nil, e.host(ctx, "m"))).To(ConsistOf(request1))
		Expect(HostToDeployment(e.Reconciler, ctx, newHost("other"), nil)).To(BeEmpty())
		Expect(HostToDeployment(e.Reconciler, ctx, nil, nil)).To(ConsistOf(request1), "hosts are known now")
		e.unknown = true
		Expect(HostToDeployment(e.Reconciler, ctx, nil, e.host(ctx, "m"))).To(BeEmpty())
	})

	It("X2: should look at machines of no MachineDeployment if there is something of ours on them", func(ctx SpecContext) {
		e := newEnvironment("m")
		set := &machinev1alpha1.MachineSet{}
		Expect(e.c.DeleteAllOf(ctx, set, client.InNamespace(builder.Namespace))).To(Succeed())
		m := e.machine(ctx, "m")
		Expect(MachineToDeployment(e.Reconciler, ctx, m)).To(BeEmpty())
		m.Finalizers = []string{finalizer}
		Expect(MachineToDeployment(e.Reconciler, ctx, m)).To(ConsistOf(noDeployment))
	})

	It("X8: should wake who waits, in whatever MachineDeployment, and nobody else", func(ctx SpecContext) {
		e := newEnvironment("a", "", "b", "c")
		Expect(Waiting(e.Reconciler, ctx)).To(BeEmpty())
		for _, name := range []string{"b", "c"} {
			m := e.machine(ctx, name)
			e.edit(ctx, m, func() { builder.Annotation(phase, "Waiting")(m) })
		}
		Expect(Waiting(e.Reconciler, ctx)).To(ConsistOf(request2))
	})
})

var _ = Describe("Hosts", func() {
	It("X12: should have all know of a host where one panics", func(ctx SpecContext) {
		hosts := &Hosts{}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		for _, requestsOf := range []func(context.Context, client.Object, client.Object) []reconcile.Request{
			func(context.Context, client.Object, client.Object) []reconcile.Request { panic("what is this") },
			func(context.Context, client.Object, client.Object) []reconcile.Request {
				return []reconcile.Request{request1}
			},
		} {
			Expect(hosts.Source(requestsOf).Start(ctx, queue)).To(Succeed())
		}
		Notify(hosts, ctx, nil, nil)
		Expect(queue.Len()).To(Equal(1))
	})
})
