// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("M3, M7: should give a node back that a maintenance has kept for too long, which nobody else lets go of", func(ctx SpecContext, keep func(*environment, *v1alpha1.NodeMaintenance)) {
	e := newEnvironment(Node("n"), maintenance("a"))
	e.run(ctx)
	e.schedule(ctx)
	e.run(ctx)
	Expect(e.node(ctx).Spec.Unschedulable).To(BeTrue())
	nm := e.get(ctx, "a")
	keep(e, nm)
	Expect(e.shoot.Delete(ctx, nm)).To(Succeed())
	e.run(ctx)
	Expect(e.get(ctx, "a")).NotTo(BeNil(), "it is kept")

	nm = e.get(ctx, "a")
	metav1.SetMetaDataAnnotation(&nm.ObjectMeta, "machine-preservation.extensions.gardener.cloud/ended", "true")
	Expect(e.shoot.Update(ctx, nm)).To(Succeed())
	e.restart()
	e.run(ctx)
	Expect(e.get(ctx, "a")).To(BeNil())
	Expect(domain.IsMarked(e.node(ctx))).To(BeFalse())
	Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
},
	Entry("by additional requestors", func(e *environment, nm *v1alpha1.NodeMaintenance) {
		nm.Spec.AdditionalRequestors = []string{"b"}
		Expect(e.shoot.Update(context.Background(), nm)).To(Succeed())
	}),
	Entry("by a requestor that has failed", func(e *environment, nm *v1alpha1.NodeMaintenance) {
		meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "x"})
		Expect(e.shoot.Status().Update(context.Background(), nm)).To(Succeed())
	}),
)

var _ = Describe("Overdue", func() {
	It("M9: should be told of a node from the second on in which its maintenance is over its Ready time, and until it is not", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.maxReadySeconds = new(int32(1800))
		e.run(ctx)
		e.schedule(ctx)
		Expect(e.run(ctx)).To(Equal(30 * time.Minute))
		Expect(overdue()).To(BeEmpty())

		nm := e.get(ctx, "a")
		metav1.SetMetaDataAnnotation(&nm.ObjectMeta, "maintenance.nvidia.com/garbage-collector.ignore", "true")
		Expect(e.shoot.Update(ctx, nm)).To(Succeed())
		meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "x"})
		Expect(e.shoot.Status().Update(ctx, nm)).To(Succeed())
		e.clock.SetTime(Start.Add(30*time.Minute - time.Second))
		Expect(e.run(ctx)).To(Equal(time.Second), "that it has failed does not begin it anew")
		Expect(overdue()).To(BeEmpty())
		e.clock.SetTime(Start.Add(30 * time.Minute))
		Expect(e.run(ctx)).To(BeZero())
		Expect(overdue()).To(ConsistOf("n"), "whoever keeps it")

		e.maxReadySeconds = new(int32(3600))
		Expect(e.run(ctx)).To(Equal(30 * time.Minute))
		Expect(overdue()).To(BeEmpty())
		e.maxReadySeconds = new(int32(0))
		e.run(ctx)
		Expect(overdue()).To(ConsistOf("n"))
		e.maxReadySeconds = nil
		e.run(ctx)
		Expect(overdue()).To(BeEmpty(), "nobody knows")
	})

	It("M9: should be told no longer when the maintenance is gone, or its node", func(ctx SpecContext) {
		for _, gone := range []client.Object{Node("n"), maintenance("a")} {
			e := newEnvironment(Node("n"), maintenance("a"))
			e.maxReadySeconds = new(int32(0))
			e.run(ctx)
			e.schedule(ctx)
			e.run(ctx)
			Expect(overdue()).To(ConsistOf("n"))
			Expect(e.shoot.Delete(ctx, gone)).To(Succeed())
			e.run(ctx)
			Expect(overdue()).To(BeEmpty())
		}
	})

	It("P14: should not be told of nodes that are made up", func(ctx SpecContext) {
		nm := maintenance("a")
		domain.SetPhase(&nm.Status, "Ready", "", 0, Start)
		e := newEnvironment(nm)
		e.maxReadySeconds = new(int32(0))
		e.run(ctx)
		Expect(overdue()).To(BeEmpty())
	})
})

// overdue returns the nodes that are told of.
func overdue() []string {
	GinkgoHelper()
	families, err := metrics.Registry.(prometheus.Gatherer).Gather()
	Expect(err).NotTo(HaveOccurred())
	var nodes []string
	for _, family := range families {
		if family.GetName() != "machine_preservation_node_maintenance_overdue" {
			continue
		}
		for _, metric := range family.GetMetric() {
			Expect(metric.GetGauge().GetValue()).To(Equal(1.))
			nodes = append(nodes, metric.GetLabel()[0].GetValue())
		}
	}
	return nodes
}

var _ = Describe("Conflicts", func() {
	It("P12: should be no errors, whatever was to be written", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		for _, concerns := range []func(client.Object) bool{
			func(object client.Object) bool { _, isNode := object.(*corev1.Node); return isNode },
			func(client.Object) bool { return true },
		} {
			e.fail = func(object client.Object) error {
				if concerns(object) {
					return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("the object has been modified"))
				}
				return nil
			}
			result, err := pace.RetryConflicts(e).Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "n"}})
			Expect(err).NotTo(HaveOccurred())
			Expect(result).NotTo(BeZero())
		}
	})
})

var _ = Describe("A change of what concerns more than one node", func() {
	It("M9: should, of the configuration, be looked at only for nodes that are handed over, because it says nothing of others", func(ctx SpecContext) {
		var all, overdue []reconcile.Request
		e := newEnvironment()
		for _, phase := range domain.Phases {
			name := strings.ToLower(phase)
			nm := maintenance(name)
			nm.Spec.NodeName = name
			Expect(e.shoot.Create(ctx, nm)).To(Succeed())
			domain.SetPhase(&nm.Status, phase, "", 0, Start)
			Expect(e.shoot.Status().Update(ctx, nm)).To(Succeed())
			request := reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
			if all = append(all, request); phase == v1alpha1.PhaseReady || phase == v1alpha1.PhaseRequestorFailed {
				overdue = append(overdue, request)
			}
		}
		Expect(overdue).To(HaveLen(2))
		Expect(OfOwner(e.Reconciler, ctx, nil)).To(ConsistOf(all))
		Expect(OfConfig(e.Reconciler, ctx)).To(ConsistOf(overdue))
		e.shoot.unknown = true
		Expect(OfConfig(e.Reconciler, ctx)).To(BeEmpty(), "it is called when they are known")
	})
})
