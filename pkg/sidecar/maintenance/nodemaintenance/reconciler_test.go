// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// shoot is what the Reconciler sees of a shoot. It can refuse any write.
type shoot struct {
	client.WithWatch
	unknown bool
	// behind is what the cache has instead of what there is; nil for that.
	behind *v1alpha1.NodeMaintenanceList

	pods    []drain.Pod
	watched map[string]bool
	// reads counts the lists of pods.
	reads   int
	evicted []string
	// refused is why no pod is evicted, and refusedEach why one is not.
	refused     error
	refusedEach func(drain.Pod) error
}

func (s *shoot) Known() bool { return !s.unknown }

func (s *shoot) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if maintenances, ok := list.(*v1alpha1.NodeMaintenanceList); ok && s.behind != nil {
		s.behind.DeepCopyInto(maintenances)
		return nil
	}
	return s.WithWatch.List(ctx, list, opts...)
}

func (s *shoot) Of(node string) ([]drain.Pod, bool) {
	s.watched[node] = true
	return s.pods, true
}

func (s *shoot) Forget(node string) { delete(s.watched, node) }

func (s *shoot) Execute(_ context.Context, actions []drain.Action) []error {
	var errs []error
	for _, action := range actions {
		s.evicted = append(s.evicted, action.Pod.Name)
		err := s.refused
		if s.refusedEach != nil {
			err = s.refusedEach(action.Pod)
		}
		errs = append(errs, err)
	}
	return errs
}

type environment struct {
	*Reconciler
	shoot    *shoot
	clock    *testclock.FakePassiveClock
	recorder *events.FakeRecorder
	// fail is asked before each write, which is made even so if it returns errAfter.
	fail func(object client.Object) error
	// writes counts them.
	writes int
	// maxReadySeconds is what the configuration says, nil for nobody knows.
	maxReadySeconds *int32
}

func (e *environment) config(context.Context) (*v1alpha1.MaintenanceOperatorConfig, error) {
	if e.maxReadySeconds == nil {
		return nil, nil
	}
	return &v1alpha1.MaintenanceOperatorConfig{Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxNodeMaintenanceTimeSeconds: e.maxReadySeconds}}, nil
}

// kept is how the machines are kept.
var kept = preservation.Group{
	Holder: preservation.PreserveExpiry{}, MaxTimeout: 336 * time.Hour, Timeouts: facts.DefaultTimeouts, NodeConditions: facts.DefaultNodeConditions,
	Maintenance: preservation.MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
}

var errAfter = errors.New("the connection is lost after the write")

func newEnvironment(objects ...client.Object) *environment {
	GinkgoHelper()
	scheme := Scheme(v1alpha1.AddToScheme)

	e := &environment{
		shoot:    &shoot{watched: map[string]bool{}},
		clock:    testclock.NewFakePassiveClock(Start),
		recorder: events.NewFakeRecorder(1000),
		fail:     func(client.Object) error { return nil },
	}
	write := func(object client.Object, write func() error) error {
		e.writes++
		switch err := e.fail(object); {
		case errors.Is(err, errAfter):
			Expect(write()).To(Succeed())
			return err
		case err != nil:
			return err
		}
		return write()
	}
	e.shoot.WithWatch = fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&corev1.Node{}, &v1alpha1.NodeMaintenance{}).
		WithIndex(&v1alpha1.NodeMaintenance{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1alpha1.NodeMaintenance).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return write(obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return write(obj, func() error { return c.SubResource(name).Patch(ctx, obj, patch, opts...) })
			},
		}).Build()
	e.restart()
	e.Source = withMachine(Machine("n", Of(Set("pool-1", Deployment("pool", Replicas(1)), Revision("1")))))
	return e
}

// withMachine returns a seed with a machine and its pool.
func withMachine(machine *machinev1alpha1.Machine) client.Reader {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
	pool := Deployment("pool", Replicas(1))
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool, Set("pool-1", pool, Revision("1")), machine).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} }).Build()
}

// restart forgets what is not in objects.
func (e *environment) restart() {
	var source client.Reader
	if e.Reconciler != nil {
		source = e.Source
	}
	e.Reconciler = &Reconciler{
		Source: source, Shoot: e.shoot, Config: e.config, Nodes: e.shoot, Live: e.shoot.WithWatch, Pods: e.shoot, Executor: e.shoot, Clock: e.clock, Recorder: e.recorder,
		ReadPods:     func(context.Context, string) ([]drain.Pod, error) { e.shoot.reads++; return e.shoot.pods, nil },
		Preservation: kept,
		Evictions:    flowcontrol.NewBackOff(time.Second, 15*time.Second), Cordons: flowcontrol.NewBackOff(time.Second, time.Minute),
	}
}

func (e *environment) reconcile(ctx context.Context) (time.Duration, error) {
	result, err := e.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "n"}})
	return result.RequeueAfter, err
}

func (e *environment) run(ctx context.Context) time.Duration {
	GinkgoHelper()
	after, err := e.reconcile(ctx)
	Expect(err).NotTo(HaveOccurred())
	return after
}

func (e *environment) get(ctx context.Context, name string) *v1alpha1.NodeMaintenance {
	nm := &v1alpha1.NodeMaintenance{}
	if err := e.shoot.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, nm); err != nil {
		ExpectWithOffset(1, client.IgnoreNotFound(err)).To(Succeed())
		return nil
	}
	return nm
}

func (e *environment) phase(ctx context.Context) string { return domain.PhaseOf(e.get(ctx, "a")) }

func (e *environment) node(ctx context.Context) *corev1.Node {
	node := &corev1.Node{}
	ExpectWithOffset(1, e.shoot.Get(ctx, client.ObjectKey{Name: "n"}, node)).To(Succeed())
	return node
}

// schedule does what the scheduler does.
func (e *environment) schedule(ctx context.Context) {
	GinkgoHelper()
	before := e.fail
	e.fail = func(client.Object) error { return nil }
	nm := e.get(ctx, "a")
	domain.SetPhase(&nm.Status, "Scheduled", "", 0, e.clock.Now())
	Expect(e.shoot.Status().Update(ctx, nm)).To(Succeed())
	e.fail = before
}

func maintenance(name string, edit ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
	nm := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Start)},
		Spec:       v1alpha1.NodeMaintenanceSpec{RequestorID: "acme.com", NodeName: "n", DrainSpec: &v1alpha1.DrainSpec{}, WaitForPodCompletion: &v1alpha1.WaitForPodCompletionSpec{}},
	}
	for _, e := range edit {
		e(nm)
	}
	return nm
}

var _ = Describe("Reconcile", func() {
	It("M2 to M7: should bring a maintenance from one end to the other without a pause, and clean up", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		Expect(e.run(ctx)).To(BeZero())
		Expect(e.phase(ctx)).To(Equal("Pending"))
		e.schedule(ctx)
		Expect(e.run(ctx)).To(BeZero())
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.node(ctx).Spec.Unschedulable).To(BeTrue())
		Expect(e.shoot.reads).To(Equal(1), "M5: looked at once more")
		Expect(e.shoot.watched).To(BeEmpty())
		writes := e.writes
		Expect(e.run(ctx)).To(BeZero())
		Expect(e.writes).To(Equal(writes))

		Expect(e.shoot.Delete(ctx, e.get(ctx, "a"))).To(Succeed())
		e.run(ctx)
		Expect(e.get(ctx, "a")).To(BeNil())
		Expect(domain.IsMarked(e.node(ctx))).To(BeFalse())
		Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
		Expect(e.recorder.Events).To(HaveLen(5), "of the Scheduled one the scheduler tells")
		Expect(e.recorder.Events).To(Receive(Equal("Normal ConditionChanged Pending")))
	})

	DescribeTable("M12: should say before the node is handed over until when its machine is kept, or why it is not", func(ctx SpecContext, want string, edit func(*machinev1alpha1.Machine, *corev1.Node)) {
		machine, node := Machine("n", Of(Set("pool-1", Deployment("pool", Replicas(1)), Revision("1")))), Node("n")
		edit(machine, node)
		e := newEnvironment(node, maintenance("a"))
		e.Source = withMachine(machine)
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p"}}
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("WaitForPodCompletion"))
		Expect(e.get(ctx, "a").Status.Conditions[0].Message).To(HaveSuffix(want))
		e.shoot.pods = nil
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.get(ctx, "a").Status.Conditions[0].Message).To(Equal("The node is ready for the requestor. " + want))
	},
		Entry("for the first time", "If the node fails, its machine is preserved until 2026-03-02T12:00:00Z.", func(*machinev1alpha1.Machine, *corev1.Node) {}),
		Entry("as the record says", "If the node fails, its machine is preserved until 2026-03-01T13:00:00Z.", func(m *machinev1alpha1.Machine, n *corev1.Node) {
			Preserved("Running:Preserved", "maintenance", Start.Add(time.Hour))(m)
			Annotation("machine-preservation.extensions.gardener.cloud/maintained-since", Start.Format(time.RFC3339))(m)
			NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", Start.Format(time.RFC3339))(n)
		}),
		Entry("because a person keeps it", "If the node fails, its machine is preserved until 2026-03-04T12:00:00Z.", func(m *machinev1alpha1.Machine, n *corev1.Node) {
			Annotation("machine-preservation.extensions.gardener.cloud/maintained-since", Start.Add(-24*time.Hour).Format(time.RFC3339)+"/"+Start.Format(time.RFC3339))(m)
			Preserved("Running:Preserved", "now", Start.Add(72*time.Hour))(m)
			NodeAnnotation("node.machine.sapcloud.io/preserve", "now")(n)
		}),
		Entry("when what may be used is used up", "If the node fails, the maintenance does not preserve its machine, because "+preservation.WhyMaintenanceExhausted.Text+".", func(m *machinev1alpha1.Machine, _ *corev1.Node) {
			Annotation("machine-preservation.extensions.gardener.cloud/maintained-since", Start.Add(-24*time.Hour).Format(time.RFC3339)+"/"+Start.Format(time.RFC3339))(m)
		}),
		Entry("when operators forbid it", "If the node fails, the maintenance does not preserve its machine, because "+preservation.WhyForbidden.Text+".", func(m *machinev1alpha1.Machine, _ *corev1.Node) {
			Annotation("machine-preservation.extensions.gardener.cloud/forbidden", "true")(m)
		}),
		Entry("when a person does", "If the node fails, the maintenance does not preserve its machine, because "+preservation.WhyDenied.Text+".", func(_ *machinev1alpha1.Machine, n *corev1.Node) {
			NodeAnnotation("node.machine.sapcloud.io/preserve", "false")(n)
		}),
	)

	It("M2, M3: should come to the same end whichever write is lost, or is not known to have been made, and whoever is restarted then", func(ctx SpecContext) {
		for _, lost := range []error{errors.New("fake"), errAfter} {
			for number := 1; ; number++ {
				e := newEnvironment(Node("n"), maintenance("a"))
				failed := false
				e.fail = func(object client.Object) error {
					if node, isNode := object.(*corev1.Node); isNode && domain.IsMarked(node) && (node.Spec.Unschedulable || len(node.Annotations) > 0) {
						Expect(e.get(ctx, "a").Finalizers).NotTo(BeEmpty(), "M2: nothing is done to the node without the finalizer")
					}
					if e.writes == number {
						failed = true
						return lost
					}
					return nil
				}
				settle := func() {
					for range 4 {
						if _, err := e.reconcile(ctx); err == nil {
							return
						}
						e.restart()
					}
					Fail("it fails for good")
				}
				settle()
				e.schedule(ctx)
				settle()
				Expect(e.phase(ctx)).To(Equal("Ready"), "%s at write %d", lost, number)
				Expect(domain.CordonedFor(e.node(ctx))).To(BeEquivalentTo("uid-a"))
				Expect(e.node(ctx).Spec.Taints).To(BeEmpty())
				Expect(e.shoot.Delete(ctx, e.get(ctx, "a"))).To(Succeed())
				settle()
				Expect(e.get(ctx, "a")).To(BeNil(), "%s at write %d", lost, number)
				Expect(domain.IsMarked(e.node(ctx))).To(BeFalse())
				Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
				if !failed {
					Expect(number).To(BeNumerically(">", 10))
					break
				}
			}
		}
	})

	It("M4: should watch pods while the node waits or drains, and at no other time", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion.TimeoutSeconds = 60 }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		e.run(ctx)
		Expect(e.shoot.watched).To(BeEmpty())
		e.schedule(ctx)
		Expect(e.run(ctx)).To(Equal(time.Minute), "M4: to the second")
		Expect(e.phase(ctx)).To(Equal("WaitForPodCompletion"))
		Expect(e.shoot.watched).To(HaveKey("n"))
		Expect(e.shoot.evicted).To(BeEmpty())
		e.clock.SetTime(Start.Add(time.Minute))
		began := e.writes
		e.fail = func(client.Object) error {
			if e.writes > began+1 {
				return errors.New("refused")
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		Expect(e.phase(ctx)).To(Equal("Draining"))
		Expect(e.shoot.watched).To(HaveKey("n"), "what fails is tried again")
		e.fail = func(client.Object) error { return nil }
		e.run(ctx)
		Expect(e.shoot.watched).To(HaveKey("n"))
		Expect(e.shoot.evicted).To(ConsistOf("p"))
		e.shoot.pods = nil
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.shoot.watched).To(BeEmpty())
	})

	It("M7: should stop evicting and watching when a maintenance is deleted", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = nil }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.shoot.evicted).To(HaveLen(1))
		Expect(e.shoot.Delete(ctx, e.get(ctx, "a"))).To(Succeed())
		e.clock.SetTime(Start.Add(time.Hour))
		e.run(ctx)
		Expect(e.shoot.evicted).To(HaveLen(1))
		Expect(e.shoot.watched).To(BeEmpty())
	})

	It("M5: should try what was refused again, later each time, and say why", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = nil }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		e.shoot.refused = errors.New("the budget web needs it")
		e.run(ctx)
		e.schedule(ctx)
		for i, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
			after := e.run(ctx)
			Expect(after).To(BeNumerically("~", want*time.Second, time.Millisecond))
			Expect(e.shoot.evicted).To(HaveLen(i + 1))
			Expect(e.get(ctx, "a").Status.Conditions[0].Message).To(ContainSubstring(" Blocked by: the budget web needs it."))
			e.run(ctx)
			Expect(e.shoot.evicted).To(HaveLen(i+1), "not before its time")
			e.clock.SetTime(e.clock.Now().Add(after))
		}
	})

	It("M3: should not put a cordon back as often as somebody takes it away", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		put := 0
		for range 600 {
			node := e.node(ctx)
			if node.Spec.Unschedulable {
				put++
				node.Spec.Unschedulable = false
				Expect(e.shoot.Update(ctx, node)).To(Succeed())
			}
			e.run(ctx)
			e.clock.SetTime(e.clock.Now().Add(time.Second))
		}
		Expect(put).To(And(BeNumerically(">=", 12), BeNumerically("<=", 18)))
	})

	It("M3, M4: should evict what got in when a cordon vanished, whichever write is lost and whoever is restarted then, and watch no longer than that", func(ctx SpecContext) {
		for _, lost := range []error{errors.New("fake"), errAfter} {
			for number := 1; ; number++ {
				e := newEnvironment(Node("n"), maintenance("a"))
				e.run(ctx)
				e.schedule(ctx)
				e.run(ctx)
				node := e.node(ctx)
				node.Spec.Unschedulable = false
				Expect(e.shoot.Update(ctx, node)).To(Succeed())
				e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "late", Managed: true}}
				before, failed := e.writes, false
				e.fail = func(client.Object) error {
					if e.writes == before+number {
						failed = true
						return lost
					}
					return nil
				}
				settle := func() time.Duration {
					for {
						after, err := e.reconcile(ctx)
						if err == nil {
							return after
						}
						e.restart()
					}
				}
				settle()
				Expect(e.node(ctx).Spec.Unschedulable).To(BeTrue())
				Expect(e.shoot.evicted).To(ConsistOf("late"), "%s at write %d", lost, number)
				Expect(e.shoot.watched).To(HaveKey("n"))
				e.restart()
				e.shoot.pods = nil
				settle()
				e.clock.SetTime(e.clock.Now().Add(5 * time.Second))
				Expect(settle()).To(BeZero())
				Expect(e.phase(ctx)).To(Equal("Ready"))
				Expect(e.shoot.watched).To(BeEmpty())
				if !failed {
					Expect(number).To(BeNumerically(">", 4))
					break
				}
			}
		}
	})

	It("M3: should look out for pods from when a cordon was put back, and not from when it vanished", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		uncordon := func() {
			node := e.node(ctx)
			node.Spec.Unschedulable = false
			Expect(e.shoot.Update(ctx, node)).To(Succeed())
		}
		for range 4 { // put back after nothing, 1, 2 and 4 seconds
			uncordon()
			for !e.node(ctx).Spec.Unschedulable {
				if after := e.run(ctx); after > 0 && !e.node(ctx).Spec.Unschedulable {
					e.clock.SetTime(e.clock.Now().Add(after))
				}
			}
		}
		Expect(e.run(ctx)).To(Equal(5 * time.Second))
		Expect(e.shoot.watched).To(HaveKey("n"))
	})

	It("M3: should carry on what an earlier version has cordoned, with one write on the node", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		node := e.node(ctx)
		delete(node.Annotations, "machine-preservation.extensions.gardener.cloud/maintenance-cordon")
		node.Spec.Taints = []corev1.Taint{{Key: "machine-preservation.extensions.gardener.cloud/maintenance", Value: "uid-a", Effect: corev1.TaintEffectNoSchedule}}
		Expect(e.shoot.Update(ctx, node)).To(Succeed())
		writes := e.writes
		e.restart()
		e.run(ctx)
		Expect(e.writes).To(Equal(writes + 1))
		Expect(e.node(ctx).Spec).To(And(HaveField("Unschedulable", true), HaveField("Taints", BeEmpty())))
		Expect(domain.CordonedFor(e.node(ctx))).To(BeEquivalentTo("uid-a"))
		Expect(e.shoot.Delete(ctx, e.get(ctx, "a"))).To(Succeed())
		e.run(ctx)
		Expect(domain.IsMarked(e.node(ctx))).To(BeFalse())
		Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
	})

	It("M1: should not keep a maintenance waiting for another one of its node that cannot be written", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"), maintenance("b"))
		e.fail = func(object client.Object) error {
			if object.GetName() == "b" {
				return errors.New("too many conditions")
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("too many conditions")))
		Expect(e.phase(ctx)).To(Equal("Pending"))
		e.schedule(ctx)
		_, err = e.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		Expect(e.phase(ctx)).To(Equal("Ready"))
	})

	It("M4, P12: should look again in time, and end the watch, although another one of the node cannot be written", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("b"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion.TimeoutSeconds = 40 }))
		e.fail = func(object client.Object) error {
			if object.GetName() == "b" {
				return errors.New("too many conditions")
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("too many conditions")))
		e.schedule(ctx)
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		Expect(e.run(ctx)).To(Equal(30*time.Second), "P12: what failed is tried again")
		Expect(e.phase(ctx)).To(Equal("WaitForPodCompletion"))
		e.clock.SetTime(Start.Add(30 * time.Second))
		Expect(e.run(ctx)).To(Equal(10*time.Second), "M4: to the second")
		e.clock.SetTime(Start.Add(40 * time.Second))
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Draining"))
		Expect(e.shoot.watched).To(HaveKey("n"))
		e.shoot.pods = nil
		_, err = e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("too many conditions")))
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.shoot.watched).To(BeEmpty())
	})

	It("M5: should go on watching pods when they cannot be read once more", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.ReadPods = func(context.Context, string) ([]drain.Pod, error) { return nil, errors.New("fake") }
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("fake")), "it is tried again soon")
		Expect(e.phase(ctx)).To(Equal("Draining"))
		Expect(e.get(ctx, "a").Status.Conditions[0].Message).To(ContainSubstring(" It is not known whether pods are left, because they cannot be listed. "))
		Expect(e.shoot.watched).To(HaveKey("n"))
	})

	It("M3, D13: should take nothing back from a node because of a cache that is behind", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = nil }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		e.run(ctx)
		behind := &v1alpha1.NodeMaintenanceList{}
		Expect(e.shoot.List(ctx, behind)).To(Succeed())
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Draining"))
		node := e.node(ctx)

		By("asking the API server, which does not answer")
		e.shoot.behind = behind
		e.Live = interceptor.NewClient(e.shoot.WithWatch, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, isNode := object.(*corev1.Node); !isNode {
					return errors.New("no")
				}
				return c.Get(ctx, key, object, opts...)
			},
		})
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("failed to read a NodeMaintenance: no")))
		Expect(e.node(ctx)).To(Equal(node))

		By("asking it again")
		e.Live = e.shoot.WithWatch
		e.run(ctx)
		Expect(e.node(ctx)).To(Equal(node))
		Expect(e.phase(ctx)).To(Equal("Draining"))

		By("asking it when another one has the name")
		behind.Items[0].UID = "former"
		e.run(ctx)
		Expect(e.node(ctx)).To(Equal(node))
		Expect(e.phase(ctx)).To(Equal("Draining"))

		By("asking it which there are when the cache knows none")
		e.shoot.behind = &v1alpha1.NodeMaintenanceList{}
		e.Live = interceptor.NewClient(e.shoot.WithWatch, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("no")
			},
		})
		_, err = e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("failed to list the NodeMaintenances: no")))
		Expect(e.node(ctx)).To(Equal(node))
		e.Live = e.shoot.WithWatch
		Expect(e.run(ctx)).NotTo(BeZero())
		Expect(e.node(ctx)).To(Equal(node))
		Expect(e.phase(ctx)).To(Equal("Draining"))
		e.shoot.behind = behind

		By("asking it when there is none any more, and none of this node has the name")
		nm := e.get(ctx, "a")
		nm.Finalizers = nil
		Expect(e.shoot.Update(ctx, nm)).To(Succeed())
		Expect(e.shoot.Delete(ctx, nm)).To(Succeed())
		Expect(e.shoot.Create(ctx, maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.NodeName = "elsewhere" }))).To(Succeed())
		e.run(ctx)
		Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
		Expect(e.get(ctx, "a").Status.Conditions).To(BeEmpty())
	})

	DescribeTable("M3, M16: should do nothing to a node that has a maintenance that the cache does not know", func(ctx SpecContext, known func(context.Context, *environment) []v1alpha1.NodeMaintenance) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Ready"))
		behind := known(ctx, e)
		e.run(ctx)
		node := e.node(ctx)

		e.shoot.behind = &v1alpha1.NodeMaintenanceList{Items: behind}
		e.run(ctx)
		Expect(e.node(ctx)).To(Equal(node))
		Expect(e.phase(ctx)).To(Equal("Ready"))
	},
		Entry("and no other one", func(context.Context, *environment) []v1alpha1.NodeMaintenance { return nil }),
		Entry("but one that waits", func(ctx context.Context, e *environment) []v1alpha1.NodeMaintenance {
			Expect(e.shoot.Create(ctx, maintenance("b"))).To(Succeed())
			return []v1alpha1.NodeMaintenance{*e.get(ctx, "b")}
		}),
		Entry("but one that had the node and is gone", func(ctx context.Context, e *environment) []v1alpha1.NodeMaintenance {
			former := e.get(ctx, "a")
			former.Name, former.UID = "b", "former"
			return []v1alpha1.NodeMaintenance{*former}
		}),
	)

	It("M7: should give a node back in time although the cache knows none of its maintenances", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.shoot.Create(ctx, maintenance("b"))).To(Succeed())
		e.run(ctx)
		Expect(e.shoot.Delete(ctx, e.get(ctx, "a"))).To(Succeed())

		e.shoot.behind = &v1alpha1.NodeMaintenanceList{}
		Expect(e.run(ctx)).To(Equal(5*time.Second), "the other one may be scheduled meanwhile")
		e.clock.SetTime(Start.Add(5 * time.Second))
		e.run(ctx)
		Expect(e.get(ctx, "a")).To(BeNil())
		Expect(e.node(ctx).Spec.Unschedulable).To(BeFalse())
	})

	It("M3: should refuse to write on what has changed since it was read", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		once := true
		e.fail = func(object client.Object) error {
			if _, isNode := object.(*corev1.Node); isNode && once && object.GetAnnotations() != nil {
				once = false
				e.fail = func(client.Object) error { return nil }
				node := e.node(ctx)
				node.Spec.Unschedulable = true // somebody cordons it in between
				Expect(e.shoot.Update(ctx, node)).To(Succeed())
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.node(ctx).Spec.Taints).To(BeEmpty(), "it is not ours")
	})

	DescribeTable("M5, M7: should evict nothing for a maintenance that cannot be written as it was read", func(ctx SpecContext, meanwhile func(context.Context, *environment) error, matchErr OmegaMatcher) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = nil }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "p", Managed: true}}
		e.run(ctx)
		e.schedule(ctx)
		reached := false
		e.fail = func(object client.Object) error {
			if nm, ok := object.(*v1alpha1.NodeMaintenance); ok && nm.Status.Drain != nil {
				Expect(e.shoot.evicted).To(BeEmpty())
				reached, e.fail = true, func(client.Object) error { return nil }
				return meanwhile(ctx, e)
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(reached).To(BeTrue())
		Expect(err).To(matchErr)
		Expect(e.shoot.evicted).To(BeEmpty())
	},
		Entry("as its spec has changed", func(ctx context.Context, e *environment) error {
			nm := e.get(ctx, "a")
			nm.Spec.DrainSpec.PodSelector = "app=other"
			return e.shoot.Update(ctx, nm)
		}, MatchError(ContainSubstring("object was modified"))),
		Entry("as it is gone", func(ctx context.Context, e *environment) error {
			nm := e.get(ctx, "a")
			nm.Finalizers = nil
			return errors.Join(e.shoot.Update(ctx, nm), e.shoot.Delete(ctx, nm))
		}, Not(HaveOccurred())),
		Entry("as it cannot be written", func(context.Context, *environment) error { return errors.New("fake") }, MatchError(ContainSubstring("fake"))),
	)

	It("M16: should forget a maintenance that is gone although another one cannot be written", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"), maintenance("b"))
		planned := func() string {
			for _, c := range e.node(ctx).Status.Conditions {
				if c.Type == "MaintenancePlanned" {
					return c.Message
				}
			}
			return ""
		}
		e.run(ctx)
		Expect(planned()).To(ContainSubstring("default/a"))
		for _, name := range []string{"a", "b"} {
			nm := e.get(ctx, name)
			domain.SetPhase(&nm.Status, "Pending", "to be written", 0, Start)
			Expect(e.shoot.Status().Update(ctx, nm)).To(Succeed())
		}
		e.fail = func(object client.Object) error {
			switch object.GetName() {
			case "a":
				return client.IgnoreNotFound(e.shoot.Delete(ctx, maintenance("a")))
			case "b":
				return errors.New("too many conditions")
			}
			return nil
		}
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("too many conditions")))
		Expect(e.get(ctx, "a")).To(BeNil())
		Expect(planned()).To(ContainSubstring("default/b"))
	})

	It("M17: should do nothing as long as nobody knows the objects, and nothing for nodes without any", func(ctx SpecContext) {
		e := newEnvironment(Node("n", NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "2026-03-01T12:00:00Z")))
		e.shoot.unknown = true
		Expect(e.run(ctx)).To(BeZero())
		Expect(e.writes).To(BeZero())
		e.shoot.unknown = false
		e.run(ctx)
		Expect(domain.IsMarked(e.node(ctx))).To(BeFalse(), "M7: nobody else will")
		writes := e.writes
		e.Live = nil // it is not even asked
		e.run(ctx)
		Expect(e.writes).To(Equal(writes))
	})

	DescribeTable("M1, M17: should say of what cannot be the name of a node that there is none", func(ctx SpecContext, name string) {
		e := newEnvironment(maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.NodeName = name }))
		e.Live = interceptor.NewClient(e.shoot, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return fmt.Errorf("invalid resource name %q", key.Name)
		}})
		_, err := e.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.phase(ctx)).To(Equal("Pending"))
		Expect(e.get(ctx, "a").Status.Conditions[0].Message).To(Equal("Node " + name + " does not exist."))
		Expect(e.recorder.Events).To(Receive(Equal("Normal ConditionChanged Pending")))
		Expect(e.recorder.Events).To(Receive(HavePrefix("Warning MaintenanceRefused ")))
	},
		Entry("a path", "a/b"),
		Entry("the folder above", ".."),
		Entry("a percentage", "50%"),
		Entry("nothing", ""),
	)

	It("M7: should let go of a maintenance whose node is gone", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.shoot.Delete(ctx, e.node(ctx))).To(Succeed())
		e.run(ctx)
		Expect(e.get(ctx, "a").Finalizers).To(BeEmpty())
		Expect(e.phase(ctx)).To(Equal("Pending"))
	})

	DescribeTable("M15: which changes of a node are looked at", func(edit NodeOption, want bool) {
		Expect(NodeChangedFor(Node("n"), Node("n", edit))).To(Equal(want))
	},
		Entry("a heartbeat", NodeOption(func(n *corev1.Node) { n.ResourceVersion = "2" }), false),
		Entry("readiness", NodeOption(NotReady), false),
		Entry("a cordon", NodeOption(func(n *corev1.Node) { n.Spec.Unschedulable = true }), true),
		Entry("the record", NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance-cordon", "uid"), true),
		Entry("the record of an earlier version", NodeOption(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "machine-preservation.extensions.gardener.cloud/maintenance", Value: "uid", Effect: corev1.TaintEffectNoSchedule}}
		}), true),
		Entry("another taint", Taint("other", Start), false),
		Entry("an update in place", Condition("InPlaceUpdate", "True", "SelectedForUpdate", ""), true),
		Entry("one whose begin was not seen", Condition("InPlaceUpdate", "True", "ReadyForUpdate", ""), true),
		Entry("the mark", NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "x"), true),
		Entry("a condition of ours", Condition("DrainInProgress", "True", "", ""), true),
		Entry("another condition", Condition("Other", "True", "", ""), false),
		Entry("another node", NodeOption(func(n *corev1.Node) { n.UID = "2" }), true),
	)

	DescribeTable("M15: should set back what is under way on a node that is updated in place", func(ctx SpecContext, reason string) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Ready"))
		Expect(e.Source.(client.Client).Create(ctx, Set("pool-2", Deployment("pool"), Revision("2")))).To(Succeed())
		node := e.node(ctx)
		Condition("InPlaceUpdate", "True", reason, "")(node)
		Expect(e.shoot.Status().Update(ctx, node)).To(Succeed())
		e.run(ctx)
		Expect(e.phase(ctx)).To(Equal("Pending"))
		Expect(e.node(ctx).Spec.Unschedulable).To(BeTrue(), "it is machine-controller-manager's")
	},
		Entry("that is selected", "SelectedForUpdate"),
		Entry("that is drained", "DrainSuccessful"),
		Entry("that the node agent updates", "ReadyForUpdate"),
	)

	It("should bound what is remembered of refusals", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = nil }))
		for i := range 500 {
			e.shoot.pods = append(e.shoot.pods, drain.Pod{Namespace: "shop", Name: fmt.Sprintf("p%d", i), Managed: true})
		}
		e.shoot.refusedEach = func(pod drain.Pod) error { return fmt.Errorf("the budget of %s needs it", pod.Name) }
		e.run(ctx)
		e.schedule(ctx)
		e.run(ctx)
		Expect(RefusedOn(e.Reconciler, "n")).To(HaveLen(100))
		Expect(e.get(ctx, "a").Status.Drain.WaitForEviction).To(HaveLen(100))
		Expect(len(e.get(ctx, "a").Status.Conditions[0].Message)).To(BeNumerically("<", 1024))
	})
})
