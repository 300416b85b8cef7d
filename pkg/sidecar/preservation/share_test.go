// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// held returns the names of the machines that are in Failed:Preserved.
func (e *environment) held(ctx context.Context) []string {
	GinkgoHelper()
	return e.named(ctx, func(machine *machinev1alpha1.Machine) bool {
		return machine.Annotations[prefix+"phase"] == "Failed:Preserved"
	})
}

// placed returns the names of the machines that have a place: those in Failed:Preserved, and those whose deadline is near.
func (e *environment) placed(ctx context.Context) []string {
	GinkgoHelper()
	return e.named(ctx, func(machine *machinev1alpha1.Machine) bool {
		_, near := Noted(machine)[NoteFailsAt]
		return near || machine.Annotations[prefix+"phase"] == "Failed:Preserved"
	})
}

func (e *environment) named(ctx context.Context, wanted func(*machinev1alpha1.Machine) bool) []string {
	GinkgoHelper()
	machines := &machinev1alpha1.MachineList{}
	Expect(e.seed.List(ctx, machines)).To(Succeed())
	var names []string
	for i := range machines.Items {
		if wanted(&machines.Items[i]) {
			names = append(names, machines.Items[i].Name)
		}
	}
	return names
}

// snapshot copies what the seed has now, as a cache does that is late.
func (e *environment) snapshot(ctx context.Context) client.Client {
	GinkgoHelper()
	builder := NewClientBuilder(e.seed.Scheme()).WithStatusSubresource(&machinev1alpha1.Machine{})
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
	return NewClientBuilder(e.shoot.Scheme()).WithLists(nodes).Build()
}

var _ = Describe("Share", func() {
	var (
		now        = Start.Add(time.Hour)
		deployment = Deployment("pool", Share("2"), Replicas(8))
		set        = Set("set", deployment, Revision("9"))

		// failed returns a machine whose deadline was so long ago.
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

			DescribeTable("P1: should decide on what the API server has when the cache is late", func(ctx SpecContext, state func(time.Time) MachineOption) {
				e := newEnvironment(holder, deployment, set, Machine("m1", Of(set), state(now)))
				cache := e.snapshot(ctx)
				e.cache = cache
				e.restart()
				// Each new failure is seen at once; what was written on the earlier ones is not.
				for i := 2; i <= 6; i++ {
					_, _ = e.reconcile(ctx) // conflicts are retried
					for _, c := range []client.Client{e.seed, cache} {
						Expect(c.Create(ctx, Machine(fmt.Sprintf("m%d", i), Of(set), state(now.Add(-time.Duration(i)*time.Second))))).To(Succeed())
					}
				}
				_, _ = e.reconcile(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("m1", "m2"))

				e.cache = nil
				e.restart()
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("m1", "m2"))
			},
				Entry("for machines that have failed", failing),
				Entry("H4: for machines that are about to", near),
			)

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

			It("P16: should serve nobody while too many machines of the shoot fail, say so once, and look again until it is over", func(ctx SpecContext) {
				other := Deployment("other", Share("1"))
				otherSet := Set("other-set", other)
				silentSince := func(t time.Time) NodeOption {
					return func(n *corev1.Node) {
						NotReady(n)
						n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(t)
					}
				}
				e := newEnvironment(holder, deployment, set, other, otherSet,
					failed("a", 0), Node("a", silentSince(now.Add(-11*time.Minute))),
					Machine("b", Of(otherSet), failing(now)), Node("b", silentSince(now.Add(-11*time.Minute))))
				e.Storm = facts.StormLimits{MaxFailing: 1, SettlingTime: 10 * time.Minute}
				result := e.settle(ctx)
				Expect(result.RequeueAfter).To(BeNumerically("<=", 10*time.Second))
				Expect(e.held(ctx)).To(BeEmpty())
				Expect(e.api.written()).To(BeEmpty())
				Expect(e.recorder.take()).To(ConsistOf(
					HavePrefix("Machine/a Normal MachinePreservationRefused: Machine failed and is not preserved for now because Storm: 2 of 2, and at most 1 may."),
					HavePrefix("Node/a Normal MachinePreservationRefused: ")))
				Expect(metric("storm")).To(Equal(map[string]float64{"": 1}))
				Expect(metric("machines_failing")).To(Equal(map[string]float64{"": 2}))

				Expect(e.seed.Create(ctx, Machine("c", Of(otherSet), failing(now)))).To(Succeed()) // another number is no news
				e.pass(10 * time.Second)
				e.settle(ctx)
				Expect(e.recorder.take()).To(BeEmpty())
				Expect(e.seed.Delete(ctx, e.machine(ctx, "c"))).To(Succeed())

				e.heal(ctx, "b")
				e.editNodeStatus(ctx, "b", func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(e.now()) })
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				e.pass(10 * time.Minute)
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a"))
				Expect(metric("storm")).To(Equal(map[string]float64{"": 0}))
			})

			It("P16: should read nothing of other MachineDeployments where nobody counts", func(ctx SpecContext) {
				other := Deployment("other", Share("1"))
				otherSet := Set("other-set", other)
				e := newEnvironment(holder, deployment, set, other, otherSet, Machine("a", Of(set)), Node("a"), Machine("b", Of(otherSet)), Node("b"))
				var read atomic.Int32
				e.api.readNode = func(name string) error {
					if name == "b" {
						read.Add(1)
					}
					return nil
				}
				e.settle(ctx)
				Expect(read.Load()).To(BeZero())
				e.Storm = facts.StormLimits{MaxFailing: 1, SettlingTime: 10 * time.Minute}
				e.settle(ctx)
				Expect(read.Load()).To(BeNumerically(">", 0))
			})

			It("P1: should not read from the API server when nothing is to be auto-preserved", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("asked", 0, Annotation(preserve, "when-failed")), Machine("m", Of(set)))
				e.settle(ctx)
				e.SourceReader = nil
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("asked"))
			})

			It("P1 H4: should count those that are about to fail, also when it is restarted, and until they are healthy again", func(ctx SpecContext) {
				e := newEnvironment(holder, Deployment("pool", Share("1")), set, Machine("a", Of(set), near(now)), Node("a", NotReady))
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("a"))
				e.restart()
				Expect(e.seed.Create(ctx, Machine("b", Of(set), near(now.Add(-time.Second))))).To(Succeed())
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("a"))
				e.heal(ctx, "a")
				e.settle(ctx)
				Expect(e.placed(ctx)).To(ConsistOf("b"))
			})

			It("P1 H4: should not read from the API server at the deadline: the place is taken", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, Machine("a", Of(set), near(now)), Node("a", NotReady))
				e.settle(ctx)
				e.SourceReader = nil
				e.pass(margin)
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a"))
			})

			It("P3: should preserve nothing while a rolling update is under way, and again when it is over", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, Set("new", deployment, Revision("10"), SetReplicas(1, 0)),
					failed("a", 0), failed("asked", 0, Annotation(preserve, "when-failed")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				Expect(e.machine(ctx, "asked").Annotations).NotTo(HaveKey(preserve))
				refused := " Normal MachinePreservationRefused: Machine failed and is replaced because Updating"
				Expect(e.recorder.take()).To(ConsistOf("Machine/a"+refused, "Machine/asked"+refused), "a place is free for it")

				e.editSet(ctx, "new", SetReplicas(0, 0))
				e.editSet(ctx, "set", Revision("11")) // it is taken back
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("a", "asked"))
			})

			It("P3: should release failed machines when a rolling update begins, and the others when they fail", func(ctx SpecContext) {
				e := newEnvironment(holder, deployment, set, failed("a", 0), Node("a", NotReady), Machine("running", Of(set), Annotation(preserve, "now")))
				e.settle(ctx)
				e.recorder.take()
				Expect(e.seed.Create(ctx, Set("new", deployment, Revision("10"), SetReplicas(1, 0)))).To(Succeed())
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				ended := "MachinePreservationEnded: Machine is no longer preserved because Replaced"
				Expect(e.recorder.take()).To(ConsistOf("Machine/a Normal "+ended+" (cause was auto)", "Node/a Normal "+ended+" (cause was auto)"))
				Expect(e.node(ctx, "a").Spec.Taints).To(BeEmpty())
				Expect(e.node(ctx, "a").Annotations).To(HaveKeyWithValue(disabled, "true"), "it is machine-controller-manager's now")
				Expect(e.machine(ctx, "running").Annotations).To(HaveKeyWithValue(prefix+"phase", "Running:Preserved"))

				e.editMachine(ctx, "running", near(e.now()))
				e.settle(ctx)
				Expect(e.placed(ctx)).To(BeEmpty())
				e.pass(margin)
				e.settle(ctx)
				Expect(e.machine(ctx, "running").Annotations).NotTo(Or(HaveKey(prefix+"cause"), HaveKey(preserve)))
				Expect(e.recorder.take()).To(ConsistOf("Machine/running Normal " + ended + " (cause was now)"))
			})

			It("P3: should leave machine-controller-manager's protection on the nodes of a rolling update", func(ctx SpecContext) {
				node := Node("m", NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"), Taint("deployment.machine.sapcloud.io/prefer-no-schedule", Start))
				e := newEnvironment(holder, deployment, set, Set("new", deployment, Revision("10"), SetReplicas(1, 0)),
					Machine("m", Of(set), failing(now)), node)
				e.settle(ctx)
				Expect(e.api.written()).To(BeEmpty())
			})

			It("T6 P4: should preserve for the pool's time what is asked for, touch nothing where there is no share, and preserve nothing anew where no machine is wanted", func(ctx SpecContext) {
				own := DeploymentAnnotation(prefix+"machine-preserve-timeout", "24h")
				asked := failed("asked", 0, Annotation(preserve, "when-failed"))
				e := newEnvironment(holder, Deployment("pool", own), set, failed("a", 0), asked)
				e.settle(ctx)
				Expect(e.machine(ctx, "asked").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-02T13:00:00Z"))
				Expect(e.held(ctx)).To(ConsistOf("asked"))
				Expect(e.machine(ctx, "a").ResourceVersion).To(Equal("999"))

				e = newEnvironment(holder, Deployment("pool", Share("2"), Replicas(0)), set, failed("a", 0), asked)
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
			})

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
