// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	sidecarshoot "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

type shoot struct {
	client.WithWatch
	unknown bool
}

func (s *shoot) Known() bool { return !s.unknown }

// environment is a shoot with nodes n0 to n9 and a pending maintenance of each.
type environment struct {
	seed  client.Client
	shoot *shoot
	// before is called before each write.
	before func(client.Object) error
	lists  int
	// lookups counts the lists of the seed by kind.
	lookups map[string]int
}

func newEnvironment(maintenances int, spec v1alpha1.MaintenanceOperatorConfigSpec) *environment {
	GinkgoHelper()
	scheme := Scheme(v1alpha1.AddToScheme)
	e := &environment{before: func(client.Object) error { return nil }, lookups: map[string]int{}}
	pool := Deployment("pool", Replicas(10))
	set := Set("pool-1", pool, Revision("1"))
	seed := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool, set).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			e.lookups[fmt.Sprintf("%T", list)]++
			return c.List(ctx, list, opts...)
		}}).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} })
	objects := fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NodeMaintenance{}).
		WithObjects(&v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}, Spec: spec})
	for i := range 10 {
		name := fmt.Sprintf("n%d", i)
		seed.WithObjects(Machine(name, Of(set)))
		objects.WithObjects(Node(name))
	}
	for i := range maintenances {
		nm := &v1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("m%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), CreationTimestamp: metav1.NewTime(Start.Add(time.Duration(i) * time.Second))},
			Spec:       v1alpha1.NodeMaintenanceSpec{RequestorID: "acme.com", NodeName: fmt.Sprintf("n%d", i)},
		}
		domain.SetPhase(&nm.Status, "Pending", "", 0, Start)
		objects.WithObjects(nm)
	}
	e.seed = seed.Build()
	e.shoot = &shoot{WithWatch: objects.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			e.lists++
			// As the cache does it.
			const token = "continue-not-supported"
			options := (&client.ListOptions{}).ApplyOptions(opts)
			if options.Continue == token {
				return errors.New("continue list option is not supported by the cache")
			}
			err := c.List(ctx, list, opts...)
			if options.Limit == 0 {
				list.SetContinue(token)
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := e.before(obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := e.before(obj); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, obj, patch, opts...)
		},
	}).Build()}
	return e
}

func (e *environment) replica() *Reconciler {
	// Pages are of the API server: it is another reader than the cache.
	live := struct{ client.Reader }{e.shoot}
	return &Reconciler{Source: e.seed, Shoot: e.shoot, Nodes: e.shoot, Live: live, Clock: testclock.NewFakePassiveClock(Start), Recorder: events.NewFakeRecorder(1000)}
}

func round(ctx context.Context, r *Reconciler) error {
	_, err := r.Reconcile(ctx, reconcile.Request{})
	return err
}

func (e *environment) inPhase(ctx context.Context, phase string) []string {
	list := &v1alpha1.NodeMaintenanceList{}
	ExpectWithOffset(1, e.shoot.List(ctx, list)).To(Succeed())
	names := []string{}
	for i := range list.Items {
		if domain.PhaseOf(&list.Items[i]) == phase {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func (e *environment) edit(ctx context.Context, name string, edit func(*v1alpha1.NodeMaintenance)) {
	GinkgoHelper()
	nm := &v1alpha1.NodeMaintenance{}
	Expect(e.shoot.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, nm)).To(Succeed())
	before := nm.DeepCopy()
	edit(nm)
	Expect(e.shoot.Update(ctx, nm.DeepCopy())).To(Succeed())
	before.ResourceVersion = ""
	Expect(e.shoot.Get(ctx, client.ObjectKeyFromObject(nm), before)).To(Succeed())
	before.Status = nm.Status
	Expect(e.shoot.Status().Update(ctx, before)).To(Succeed())
}

func parallel(value string) v1alpha1.MaintenanceOperatorConfigSpec {
	return v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: new(intstr.Parse(value))}
}

var _ = Describe("Reconcile", func() {
	It("M2, M10: should schedule as many as the limits say, tell so, and ask nobody once there is nothing to do", func(ctx SpecContext) {
		e := newEnvironment(5, parallel("20%"))
		r := e.replica()
		Expect(round(ctx, r)).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m0", "m1"))
		Expect(r.Recorder.(*events.FakeRecorder).Events).To(Receive(Equal("Normal ConditionChanged Scheduled")))
		e.lists = 0
		Expect(round(ctx, r)).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(HaveLen(2))
		Expect(e.lists).To(Equal(3), "the cache, and the test")
		Expect(testutil.ToFloat64(Slots.WithLabelValues("used"))).To(Equal(2.0))
		Expect(testutil.ToFloat64(Slots.WithLabelValues("free"))).To(BeZero())
		Expect(testutil.ToFloat64(ByPhase.WithLabelValues("Pending"))).To(Equal(3.0))
		Expect(testutil.ToFloat64(ByPhase.WithLabelValues("Scheduled"))).To(Equal(2.0))
	})

	It("M10: should not exceed the limits with two replicas, wherever the other one comes in between", func(ctx SpecContext) {
		for at := 1; ; at++ {
			e := newEnvironment(6, parallel("2"))
			first, second := e.replica(), e.replica()
			writes, intervened := 0, false
			e.before = func(client.Object) error {
				if writes++; writes == at && !intervened {
					intervened = true
					// Another one is asked for that would come first.
					e.before = func(client.Object) error { return nil }
					e.edit(ctx, "m5", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.RequestorID = "first.com" })
					Expect(round(ctx, second)).To(Succeed())
				}
				return nil
			}
			_ = round(ctx, first)
			Expect(len(e.inPhase(ctx, "Scheduled"))).To(BeNumerically("<=", 2), "at write %d", at)
			Expect(round(ctx, first)).To(Succeed())
			Expect(e.inPhase(ctx, "Scheduled")).To(HaveLen(2), "at write %d", at)
			if !intervened {
				Expect(at).To(Equal(4))
				break
			}
		}
	})

	It("M10: should not exceed the limits after a restart in between, and carry out what was chosen", func(ctx SpecContext) {
		for at := 1; at <= 3; at++ {
			e := newEnvironment(6, parallel("2"))
			writes := 0
			e.before = func(client.Object) error {
				if writes++; writes >= at {
					return errors.New("fake")
				}
				return nil
			}
			Expect(round(ctx, e.replica())).NotTo(Succeed())
			e.before = func(client.Object) error { return nil }
			Expect(round(ctx, e.replica())).To(Succeed())
			Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m0", "m1"))
		}
	})

	It("M10: should take no promise for one that has changed since", func(ctx SpecContext) {
		e := newEnvironment(3, parallel("1"))
		e.before = func(object client.Object) error {
			if _, ok := object.(*v1alpha1.NodeMaintenance); ok {
				return errors.New("fake")
			}
			return nil
		}
		Expect(round(ctx, e.replica())).NotTo(Succeed())
		e.before = func(client.Object) error { return nil }
		e.edit(ctx, "m0", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodSelector: "!"} })
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m1"))
	})

	It("M10: should not schedule what has changed since it was chosen", func(ctx SpecContext) {
		e := newEnvironment(3, parallel("1"))
		e.before = func(client.Object) error {
			e.before = func(client.Object) error { return nil }
			e.edit(ctx, "m0", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodSelector: "!"} })
			return nil
		}
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(BeEmpty())
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m1"))
	})

	It("M2, M14, M15, M17: should leave out what must not be scheduled, and count what is unavailable already", func(ctx SpecContext) {
		e := newEnvironment(6, v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(1))})
		deleting := func(nm *v1alpha1.NodeMaintenance) { nm.Finalizers = []string{"example.com/foreign"} }
		e.edit(ctx, "m0", deleting)
		Expect(e.shoot.Delete(ctx, &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m0"}})).To(Succeed())
		Expect(e.seed.Delete(ctx, Machine("n1"))).To(Succeed())
		e.edit(ctx, "m2", func(nm *v1alpha1.NodeMaintenance) { nm.Status.Conditions = nil })
		e.edit(ctx, "m3", func(nm *v1alpha1.NodeMaintenance) { nm.Finalizers = []string{"maintenance.nvidia.com/finalizer"} })
		node := Node("n5", Taint("node.machine.sapcloud.io/preserved", Start))
		Expect(e.shoot.Update(ctx, node)).To(Succeed())
		r := e.replica()
		Expect(round(ctx, r)).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m5"), "n5 is unavailable already, and there is no room for n4")
		r.Namespaces = domain.Namespaces{"ops"}
		e = newEnvironment(2, parallel("0"))
		r = e.replica()
		r.Namespaces = domain.Namespaces{"ops"}
		Expect(round(ctx, r)).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(BeEmpty())
	})

	It("M17: should schedule nothing without a configuration that can be read, and nothing as long as nobody knows the objects", func(ctx SpecContext) {
		e := newEnvironment(2, parallel("abc"))
		Expect(round(ctx, e.replica())).To(MatchError(HavePrefix("terminal error: nothing is scheduled with this configuration: maxParallelOperations: ")))
		e.shoot.unknown = true
		Expect(round(ctx, e.replica())).To(Succeed())
		e.shoot.unknown = false
		Expect(e.shoot.Delete(ctx, &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}})).To(Succeed())
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(BeEmpty())
	})

	It("M17: should bound what is written on the configuration, and survive what others write there", func(ctx SpecContext) {
		e := newEnvironment(10, parallel("0"))
		config := &v1alpha1.MaintenanceOperatorConfig{}
		key := client.ObjectKey{Namespace: "kube-system", Name: "default"}
		Expect(e.shoot.Get(ctx, key, config)).To(Succeed())
		config.Annotations = map[string]string{domain.AnnotationRound: strings.Repeat(",:x", 1000)}
		Expect(e.shoot.Update(ctx, config)).To(Succeed())
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(HaveLen(10))
		Expect(e.shoot.Get(ctx, key, config)).To(Succeed())
		Expect(len(config.Annotations[domain.AnnotationRound])).To(BeNumerically("<", 200))
	})

	It("M10 P12: should give the other slots away where a webhook denies that a promise is taken back, and go on counting it", func(ctx SpecContext) {
		e := newEnvironment(5, parallel("2"))
		e.before = func(object client.Object) error {
			if object.GetName() == "m0" {
				return errors.New("denied")
			}
			return nil
		}
		Expect(round(ctx, e.replica())).NotTo(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m1"))
		Expect(e.seed.Delete(ctx, Machine("n0"))).To(Succeed())
		for _, done := range []string{"m1", "m2"} {
			Expect(e.shoot.Delete(ctx, &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: done}})).To(Succeed())
			for range 3 {
				Expect(round(ctx, e.replica())).NotTo(Succeed())
			}
			Expect(e.inPhase(ctx, "Scheduled")).To(HaveLen(1), "and not two")
		}
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf("m3"))
	})

	DescribeTable("M10, M15: should take a promise back that a crash has left, and not keep it", func(ctx SpecContext, spoil func(context.Context, *environment), want ...string) {
		e := newEnvironment(3, parallel("2"))
		e.before = func(object client.Object) error {
			if _, ok := object.(*v1alpha1.NodeMaintenance); ok {
				return errors.New("fake")
			}
			return nil
		}
		other := e.replica()
		Expect(round(ctx, other)).NotTo(Succeed(), "m0 and m1 are promised")
		// Another replica goes on as slowly as can be: what was promised cannot be scheduled any more when it is its turn.
		stale := map[string]*v1alpha1.NodeMaintenance{}
		for _, name := range []string{"m0", "m1"} {
			stale[name] = &v1alpha1.NodeMaintenance{}
			Expect(e.shoot.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, stale[name])).To(Succeed())
		}
		e.before = func(client.Object) error { return nil }
		spoil(ctx, e)
		Expect(round(ctx, e.replica())).To(Succeed())
		scheduled := e.inPhase(ctx, "Scheduled")
		Expect(scheduled).NotTo(ContainElement("m2"), "what is not void yet counts")
		for name, nm := range stale {
			after := nm.DeepCopy()
			domain.SetPhase(&after.Status, "Scheduled", "", 0, Start)
			Expect(e.shoot.Status().Patch(ctx, after, client.MergeFromWithOptions(nm, client.MergeFromWithOptimisticLock{}))).NotTo(Succeed(), name)
		}
		for range 2 {
			Expect(round(ctx, e.replica())).To(Succeed())
		}
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf(want))
	},
		Entry("of a node that is terminated", func(ctx context.Context, e *environment) {
			machine := &machinev1alpha1.Machine{}
			Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(Machine("n0")), machine)).To(Succeed())
			machine.Finalizers = []string{"machine.sapcloud.io/machine-controller"}
			Expect(e.seed.Update(ctx, machine)).To(Succeed())
			Expect(e.seed.Delete(ctx, machine)).To(Succeed())
		}, "m1", "m2"),
		Entry("of a limit that is lower now", func(ctx context.Context, e *environment) {
			config := &v1alpha1.MaintenanceOperatorConfig{}
			Expect(e.shoot.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "default"}, config)).To(Succeed())
			config.Spec = parallel("1")
			Expect(e.shoot.Update(ctx, config)).To(Succeed())
		}, "m0"),
	)

	It("M11: should look at the MachineSets once a round, and at no machine without a slot", func(ctx SpecContext) {
		e := newEnvironment(5, parallel("2"))
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.lookups).To(Equal(map[string]int{"*v1alpha1.MachineSetList": 2, "*v1alpha1.MachineList": 10}), "of the caches, and live")
		clear(e.lookups)
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.lookups).To(BeEmpty())
	})

	DescribeTable("M15: should schedule nothing on a node that is updated in place", func(ctx SpecContext, reason string, want ...string) {
		e := newEnvironment(2, parallel("1"))
		pool := Deployment("pool")
		Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		InPlace(pool)
		Expect(e.seed.Update(ctx, pool)).To(Succeed())
		Expect(e.seed.Create(ctx, Set("pool-2", Deployment("pool"), Revision("2")))).To(Succeed())
		Expect(e.shoot.Status().Update(ctx, Node("n0", Condition("InPlaceUpdate", "True", reason, "")))).To(Succeed())
		Expect(round(ctx, e.replica())).To(Succeed())
		Expect(e.inPhase(ctx, "Scheduled")).To(ConsistOf(want))
	},
		Entry("that is selected", "SelectedForUpdate", "m1"),
		Entry("that is drained", "DrainSuccessful", "m1"),
		Entry("that the node agent updates", "ReadyForUpdate", "m1"),
		Entry("but where that has failed", "UpdateFailed", "m0"),
	)

	DescribeTable("M11: which changes of a node are looked at", func(edit NodeOption, want bool) {
		Expect(NodeChangedFor(Node("n"), Node("n", edit))).To(Equal(want))
	},
		Entry("a heartbeat", NodeOption(func(n *corev1.Node) { n.ResourceVersion = "2" }), false),
		Entry("readiness", NodeOption(NotReady), true),
		Entry("a cordon", NodeOption(func(n *corev1.Node) { n.Spec.Unschedulable = true }), true),
		Entry("an update in place", Condition("InPlaceUpdate", "True", "SelectedForUpdate", ""), true),
		Entry("one whose begin was not seen", Condition("InPlaceUpdate", "True", "ReadyForUpdate", ""), true),
	)
})

// endless is an API server that an APIService of the shoot names: it has always one more page.
type endless struct {
	client.Reader
	perPage, objects, pages int
}

var errEndless = errors.New("it would go on without end")

func (e *endless) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	maintenances, ok := list.(*v1alpha1.NodeMaintenanceList)
	if !ok {
		return e.Reader.List(ctx, list, opts...)
	}
	if e.pages++; e.objects > 2*sidecarshoot.MaxListed || e.pages > sidecarshoot.MaxListed {
		return errEndless
	}
	for range e.perPage {
		e.objects++
		maintenances.Items = append(maintenances.Items, v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("x", e.objects)}})
	}
	maintenances.Continue = "more"
	return nil
}

var _ = DescribeTable("P14: should not read pages without an end", func(ctx SpecContext, perPage int) {
	e := newEnvironment(1, parallel("20%"))
	r := e.replica()
	r.Live = &endless{Reader: r.Live, perPage: perPage}
	err := round(ctx, r)
	Expect(err).To(HaveOccurred())
	Expect(err).NotTo(MatchError(errEndless))
},
	Entry("of more and more objects", 1000),
	Entry("without objects", 0),
)

// outdated is an API server that has forgotten a list of Nodes when it is asked for the next page.
type outdated struct {
	client.Reader
	pages int
}

func (o *outdated) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	nodes, ok := list.(*corev1.NodeList)
	if !ok {
		return o.Reader.List(ctx, list, opts...)
	}
	if o.pages++; o.pages == 2 {
		return apierrors.NewResourceExpired("too old")
	}
	err := o.Reader.List(ctx, list)
	if nodes.Continue = ""; o.pages == 1 {
		nodes.Continue = "more"
	}
	return err
}

var _ = It("M10: should count each node once although their list begins once more", func(ctx SpecContext) {
	e := newEnvironment(5, parallel("20%"))
	r := e.replica()
	live := &outdated{Reader: r.Live}
	r.Live = live
	Expect(round(ctx, r)).To(Succeed())
	Expect(live.pages).To(Equal(3))
	Expect(e.inPhase(ctx, v1alpha1.PhaseScheduled)).To(HaveLen(2))
})
