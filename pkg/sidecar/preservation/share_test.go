// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// held returns the names of the machines that are in Failed:Preserved.
func (e *environment) held(ctx context.Context) []string {
	GinkgoHelper()
	machines := &machinev1alpha1.MachineList{}
	Expect(e.seed.List(ctx, machines)).To(Succeed())
	var names []string
	for _, machine := range machines.Items {
		if machine.Annotations[prefix+"phase"] == "Failed:Preserved" {
			names = append(names, machine.Name)
		}
	}
	return names
}

// snapshot copies what the seed has now, as a cache does that is late.
func (e *environment) snapshot(ctx context.Context) client.Client {
	GinkgoHelper()
	builder := fakeclient.NewClientBuilder().WithScheme(e.seed.Scheme()).WithStatusSubresource(&machinev1alpha1.Machine{})
	for _, list := range []client.ObjectList{&machinev1alpha1.MachineDeploymentList{}, &machinev1alpha1.MachineSetList{}, &machinev1alpha1.MachineList{}} {
		Expect(e.seed.List(ctx, list)).To(Succeed())
		builder.WithLists(list)
	}
	return builder.Build()
}

// snapshotNodes copies what the shoot has now, as a cache does that is late.
func (e *environment) snapshotNodes(ctx context.Context) client.Client {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(e.shoot.List(ctx, nodes)).To(Succeed())
	return fakeclient.NewClientBuilder().WithScheme(e.shoot.Scheme()).WithLists(nodes).Build()
}

var _ = Describe("Share", func() {
	var (
		now        = Start.Add(time.Hour)
		deployment = Deployment("pool", Share("2"), Replicas(8))
		set        = Set("set", deployment)

		// failed returns a machine whose timer was started at now - 570s - ago.
		failed = func(name string, ago time.Duration, opts ...MachineOption) *machinev1alpha1.Machine {
			return Machine(name, append([]MachineOption{Of(set), failing(now.Add(-ago))}, opts...)...)
		}
	)

	for name, holder := range holders {
		Context(name, func() {
			It("P1 T5 T6: should preserve as many as the share says, those that failed first, and not touch the others", func(ctx SpecContext) {
				objects := []client.Object{deployment, set}
				for i := range 8 {
					machine := failed(fmt.Sprintf("m%d", i), time.Duration(i)*time.Second)
					objects = append(objects, machine, Node(machine.Name))
				}
				e := newEnvironment(holder, objects...)
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m6", "m7"))
				for i := range 6 {
					Expect(e.machine(ctx, fmt.Sprintf("m%d", i)).ResourceVersion).To(Equal("999"))
					Expect(e.node(ctx, fmt.Sprintf("m%d", i)).ResourceVersion).To(Equal("999"))
				}
			})

			It("P1: should count those that were asked for, but not limit them", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("a", 0), failed("b", time.Second),
					failed("asked", 0, Annotation(preserve, "when-failed")), failed("asked-too", 0, Annotation(preserve, "now")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("asked", "asked-too"))
			})

			It("P1: should not count preserved machines that have not failed", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("a", 0), failed("b", 0),
					Machine("healthy", Of(set), Annotation(preserve, "now")), Machine("healthy-too", Of(set), Annotation(preserve, "now")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a", "b"))
			})

			It("T8: should give a place that became free to the next failure", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("a", 0), failed("b", 0))
				e.settle(ctx)
				e.editMachine(ctx, "a", Annotation(preserve, "false"))
				e.settle(ctx)
				Expect(e.seed.Create(ctx, failed("c", 0))).To(Succeed())
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("b", "c"))
			})

			It("T9: should release the oldest when the share is lowered, and only as many as needed", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("young", 0, Created(now)), failed("old", 0, Created(Start)))
				e.settle(ctx)
				e.editDeployment(ctx, Share("1"))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("young"))
			})

			It("P1: should not count machines of another MachineDeployment, and none without one", func(ctx SpecContext) {
				other := Deployment("other", Share("2"))
				otherSet := Set("other-set", other)
				stray := Set("stray", Deployment("gone"))
				preserved := Preserved("Failed:Preserved", "auto", now.Add(time.Hour))
				e := newEnvironment(holder, deployment, set, other, otherSet, stray,
					failed("a", 0), failed("b", 0),
					failed("others", 0, Of(otherSet), preserved),
					failed("strays", 0, Of(stray), preserved),
					failed("orphan", 0, preserved, func(m *machinev1alpha1.Machine) { m.OwnerReferences = nil }))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a", "b", "others", "strays", "orphan"))
				for _, name := range []string{"others", "strays", "orphan"} {
					Expect(e.machine(ctx, name).ResourceVersion).To(Equal("999"), name)
				}
			})

			It("P1: should not preserve machines of another MachineDeployment, nor those without one", func(ctx SpecContext) {
				other := Deployment("other", Share("2"))
				e := newEnvironment(holder, deployment, set, other, Set("other-set", other),
					failed("others", 0, Of(Set("other-set", other))),
					failed("orphan", 0, func(m *machinev1alpha1.Machine) { m.OwnerReferences = nil }))
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				Expect(e.api.written()).To(BeEmpty())
			})

			It("P1: should decide on what the API server has when the cache is late", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("m1", 0))
				cache := e.snapshot(ctx)
				e.cache = cache
				e.restart()
				// Each new failure is seen at once; what was written on the earlier ones is not.
				for i := 2; i <= 6; i++ {
					_, _ = e.reconcile(ctx) // conflicts are retried
					for _, c := range []client.Client{e.seed, cache} {
						Expect(c.Create(ctx, failed(fmt.Sprintf("m%d", i), time.Duration(i)*time.Second))).To(Succeed())
					}
				}
				_, _ = e.reconcile(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m1", "m2"))

				e.cache = nil
				e.restart()
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m1", "m2"))
			})

			It("P1 T2: should not exceed the share when preserved machines fail again and the cache is late", func(ctx SpecContext) {
				recovered := Preserved("Running:Preserved", "auto", now.Add(time.Hour))
				e := newEnvironment(holder, Deployment("pool", Share("1")), set,
					Machine("a", Of(set), recovered, Annotation(prefix+"share", "1")),
					Machine("z", Of(set), recovered, Annotation(prefix+"share", "1")))
				e.settle(ctx)
				failedPhase := Phase(machinev1alpha1.MachineFailed, now)
				e.editMachine(ctx, "z", failedPhase)
				cache := e.snapshot(ctx)
				e.cache = cache
				e.restart()
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.held(ctx)).To(ConsistOf("z"))

				for _, c := range []client.Client{e.seed, cache} {
					editMachine(ctx, c, "a", failedPhase)
				}
				_, _ = e.reconcile(ctx)
				Expect(e.held(ctx)).To(ConsistOf("z"))
			})

			It("P1: should not read from the API server when nothing is to be auto-preserved", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("asked", 0, Annotation(preserve, "when-failed")), Machine("m", Of(set)))
				e.settle(ctx)
				e.SourceReader = nil
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("asked"))
			})

			It("P3: should preserve nothing anew while a rolling update is under way, and again when it is over", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, Set("new", deployment),
					failed("a", 0), failed("asked", 0, Annotation(preserve, "when-failed")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())

				retired := &machinev1alpha1.MachineSet{}
				Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "new"}, retired)).To(Succeed())
				retired.Spec.Replicas, retired.Status.Replicas = 0, 0
				Expect(e.seed.Update(ctx, retired)).To(Succeed())
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a", "asked"))
			})

			DescribeTable("P3: what is a rolling update", func(ctx SpecContext, change func(*machinev1alpha1.MachineSet), held []string) {
				second := Set("second", deployment)
				second.Spec.Replicas, second.Status.Replicas = 0, 0
				change(second)
				e := newEnvironment(holder, deployment, set, second, failed("a", 0))
				e.settle(ctx)
				Expect(e.held(ctx)).To(Equal(held))
			},
				Entry("a MachineSet that has machines but wants none", func(s *machinev1alpha1.MachineSet) { s.Status.Replicas = 1 }, []string(nil)),
				Entry("a MachineSet that wants machines but has none", func(s *machinev1alpha1.MachineSet) { s.Spec.Replicas = 1 }, []string(nil)),
				Entry("not a MachineSet that is only history", func(*machinev1alpha1.MachineSet) {}, []string{"a"}),
				Entry("not a MachineSet of another MachineDeployment", func(s *machinev1alpha1.MachineSet) {
					s.Status.Replicas = 1
					s.OwnerReferences = Set("any", Deployment("other")).OwnerReferences
				}, []string{"a"}),
			)

			It("P4: should preserve nothing anew when no machine is wanted", func(ctx SpecContext) {
				e := newEnvironment(holder, Deployment("pool", Share("2"), Replicas(0)), set, failed("a", 0), failed("asked", 0, Annotation(preserve, "now")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
			})

			DescribeTable("what is written on the MachineDeployment", func(ctx SpecContext, options []DeploymentOption, expiry string) {
				e := newEnvironment(holder, Deployment("pool", options...), set, failed("a", 0), failed("asked", 0, Annotation(preserve, "when-failed")))
				e.settle(ctx)
				Expect(e.machine(ctx, "asked").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", expiry))
				Expect(e.held(ctx)).To(ConsistOf("asked"))
				Expect(e.machine(ctx, "a").ResourceVersion).To(Equal("999"))
			},
				Entry("nothing: no share, and the default timeout", nil, "2026-03-04T13:00:00Z"),
				Entry("a timeout", []DeploymentOption{DeploymentAnnotation(prefix+"machine-preserve-timeout", "24h")}, "2026-03-02T13:00:00Z"),
				Entry("garbled values count as absent", []DeploymentOption{Share("two"), DeploymentAnnotation(prefix+"machine-preserve-timeout", "soon")}, "2026-03-04T13:00:00Z"),
				Entry("negative values count as absent", []DeploymentOption{Share("-1"), DeploymentAnnotation(prefix+"machine-preserve-timeout", "-1h")}, "2026-03-04T13:00:00Z"),
				Entry("too large a share counts as absent", []DeploymentOption{Share("4294967296")}, "2026-03-04T13:00:00Z"),
				Entry("a timeout of 0 counts as absent", []DeploymentOption{DeploymentAnnotation(prefix+"machine-preserve-timeout", "0s")}, "2026-03-04T13:00:00Z"),
			)

			DescribeTable("should release nothing when the share cannot be read any more", func(ctx SpecContext, share string) {
				e := newEnvironment(holder, deployment, set, failed("a", 0))
				e.settle(ctx)
				e.editDeployment(ctx, Share(share))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a"))
			},
				Entry("as it is garbled", "?"),
				Entry("as it is negative", "-1"),
			)

			It("P6: should leave the expiry of one under way alone when the timeout changes", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("a", 0))
				e.settle(ctx)
				e.editDeployment(ctx, DeploymentAnnotation(prefix+"machine-preserve-timeout", "1h"))
				e.settle(ctx)
				Expect(e.machine(ctx, "a").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T13:00:00Z"))
			})
		})
	}

	It("should do nothing for a MachineDeployment that is gone", func(ctx SpecContext) {
		e := newEnvironment(holders["HealthTimer"])
		Expect(e.settle(ctx).RequeueAfter).To(BeZero())
	})
})
