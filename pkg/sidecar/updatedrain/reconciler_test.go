// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/updatedrain"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// began is when the Machine was deleted.
var began = Start.Add(time.Hour)

func at(minutes float64) time.Time { return began.Add(time.Duration(minutes * float64(time.Minute))) }

// cluster is what the Reconciler sees of the pods, and does with them.
type cluster struct {
	pods    []drain.Pod
	unknown bool
	// watched are the nodes whose pods are watched.
	watched map[string]bool

	// budgets select pods by the label app, by namespace. denied are namespaces whose budgets cannot be listed.
	budgets map[string]string
	denied  []string
	// listed are the namespaces whose budgets were listed.
	listed []string

	// removed, if set, is called with a pod that was deleted, and left with one that has its grace period.
	removed, left func(drain.Pod)

	// done are the actions in words. refuse is the answer to those on a pod of that name.
	done   []string
	refuse map[string]error
}

func (s *cluster) Of(node string) ([]drain.Pod, bool) {
	s.watched[node] = true
	return s.pods, !s.unknown
}

func (s *cluster) Forget(node string) { delete(s.watched, node) }

func (s *cluster) Budgets(_ context.Context, namespaces []string) (drain.Budgets, error) {
	s.listed = append(s.listed, namespaces...)
	budgets := drain.Budgets{}
	for _, namespace := range namespaces {
		if slices.Contains(s.denied, namespace) {
			continue
		}
		var list []policyv1.PodDisruptionBudget
		if app, ok := s.budgets[namespace]; ok {
			list = append(list, policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}})
		}
		budgets.Know(namespace, list)
	}
	if len(s.denied) > 0 {
		return budgets, errors.New("no budgets")
	}
	return budgets, nil
}

func (s *cluster) Execute(_ context.Context, actions []drain.Action) []error {
	var errs []error
	for _, action := range actions {
		s.done = append(s.done, action.Stage.Name+" "+action.Pod.Key())
		errs = append(errs, s.refuse[action.Pod.Name])
		if s.refuse[action.Pod.Name] == nil && action.Verb == drain.Delete {
			s.pods = slices.DeleteFunc(s.pods, func(p drain.Pod) bool { return p.Key() == action.Pod.Key() && len(p.Finalizers) == 0 })
			if s.removed != nil {
				s.removed(action.Pod)
			}
		}
		if action.Verb == drain.Terminate {
			s.left(action.Pod)
		}
	}
	return errs
}

// environment is a Reconciler of a node "m", whose machine "m" is deleted by a rolling update.
type environment struct {
	seed     client.Client
	nodes    client.WithWatch
	shoot    *cluster
	clock    *testclock.FakePassiveClock
	recorder *events.FakeRecorder
	// writes counts the writes to the node, deny is the answer to them.
	writes int
	deny   error

	*Reconciler
}

var (
	pool     = Deployment("pool")
	oldSet   = Set("pool-1", pool, Revision("1"))
	newSet   = Set("pool-2", pool, Revision("2"), func(s *machinev1alpha1.MachineSet) { s.CreationTimestamp = metav1.NewTime(began.Add(-time.Minute)) })
	rolling  = Machine("m", Of(oldSet), Deleted(began))
	plain    = drain.Pod{Namespace: "shop", Name: "plain", UID: "1"}
	web      = drain.Pod{Namespace: "shop", Name: "web", UID: "2", Labels: map[string]string{"app": "web"}}
	finalize = drain.Pod{Namespace: "shop", Name: "stays", UID: "3", GraceEnds: began, Finalizers: []string{"example.com/finalizer"}}
)

func newEnvironment(strategies drain.Strategies, objects ...client.Object) *environment {
	GinkgoHelper()
	scheme := Scheme()
	seed := fakeclient.NewClientBuilder().WithScheme(scheme).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} })
	nodes := fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{})
	for _, object := range objects {
		if _, ok := object.(*corev1.Node); ok {
			nodes.WithObjects(object.DeepCopyObject().(client.Object))
		} else {
			seed.WithObjects(object.DeepCopyObject().(client.Object))
		}
	}
	e := &environment{
		seed:     seed.Build(),
		clock:    testclock.NewFakePassiveClock(began),
		recorder: events.NewFakeRecorder(5000), // it blocks when it is full
		shoot:    &cluster{watched: map[string]bool{}, budgets: map[string]string{"shop": "web"}, refuse: map[string]error{}},
	}
	e.nodes = interceptor.NewClient(nodes.Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			e.writes++
			if e.deny != nil {
				return e.deny
			}
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
	})
	e.restart(strategies)
	TimedOut.Reset()
	return e
}

// restart throws the Reconciler away and makes a new one.
func (e *environment) restart(strategies drain.Strategies) {
	e.Reconciler = &Reconciler{
		Source: e.seed, Nodes: e.nodes, Pods: e.shoot, Executor: e.shoot, Strategies: strategies,
		Clock: e.clock, Recorder: e.recorder, Backoff: flowcontrol.NewBackOff(time.Second, 30*time.Second),
	}
}

// reconcile looks at the node that many minutes after the drain began, and returns when to look again.
func (e *environment) reconcile(ctx context.Context, minutes float64) time.Duration {
	GinkgoHelper()
	e.clock.SetTime(at(minutes))
	result, err := e.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "m"}})
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

func (e *environment) condition(ctx context.Context) *corev1.NodeCondition {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(e.nodes.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == "NodeDrain" {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// told returns the Events since the last call.
func (e *environment) told() []string {
	var told []string
	for len(e.recorder.Events) > 0 {
		told = append(told, <-e.recorder.Events)
	}
	return told
}

// failed returns how many nodes have failed to drain as the metric says.
func failed() int { return testutil.CollectAndCount(TimedOut) }

var _ = Describe("Reconciler", func() {
	var defaults = drain.Strategies{Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute, PDBForceDrainTimeout: time.Hour}
	drained := func(strategies drain.Strategies, pods ...drain.Pod) *environment {
		GinkgoHelper()
		e := newEnvironment(strategies, pool, oldSet, newSet, rolling, Node("m"))
		e.shoot.pods = pods
		return e
	}

	It("D5, D8, D11: should act at the deadlines to the moment, say what it waits for and until when, and forget the node when it is drained", func(ctx SpecContext) {
		e := drained(defaults, plain, web, finalize)
		Expect(e.reconcile(ctx, 0)).To(Equal(45 * time.Minute))
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainUnderWay"), HaveField("LastTransitionTime.Time", BeTemporally("==", began)),
			HaveField("Message", And(ContainSubstring("2026-03-01T13:45:00Z"), ContainSubstring("2026-03-01T14:08:00Z")))))
		before := e.condition(ctx).Message
		Expect(e.shoot.done).To(BeEmpty())
		Expect(e.shoot.listed).To(BeEmpty(), "nobody needs to know which are protected")

		Expect(e.reconcile(ctx, 45)).To(BeNumerically("<=", 23*time.Minute))
		Expect(e.shoot.done).To(Equal([]string{"delete shop/plain", "finalizers shop/stays"}))
		Expect(e.told()).To(ConsistOf(
			`Warning DeletedByForce Deleted without a grace period by drain strategy "delete", because the pod blocked the drain of node m, which began at 2026-03-01T13:00:00Z`,
			`Warning FinalizersRemoved Finalizers removed by drain strategy "finalizers", because the pod blocked the drain of node m, which began at 2026-03-01T13:00:00Z`,
			`Normal DrainStrategyActed Drain strategy "delete" deleted 1 pod(s) by force 45m0s after machine-controller-manager began to drain the node for a rolling update: shop/plain`,
			`Normal DrainStrategyActed Drain strategy "finalizers" removed the finalizers of 1 pod(s) 45m0s after machine-controller-manager began to drain the node for a rolling update: shop/stays`,
		))
		Expect(e.condition(ctx).Message).NotTo(Equal(before))

		e.shoot.pods = []drain.Pod{web}
		Expect(e.reconcile(ctx, 46)).To(Equal(22 * time.Minute))
		e.shoot.done = nil
		Expect(e.reconcile(ctx, 68)).To(Equal(8*time.Minute + time.Nanosecond))
		Expect(e.shoot.done).To(Equal([]string{"PDB delete shop/web"}))
		Expect(failed()).To(BeZero())
		Expect(e.writes).To(Equal(3))

		Expect(e.reconcile(ctx, 69)).To(BeZero())
		Expect(e.condition(ctx)).To(BeNil())
		Expect(e.shoot.watched).To(HaveKey("m"), "D3: until the drain is over")

		Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(rolling), rolling.DeepCopy())).To(Succeed())
		machine := rolling.DeepCopy()
		Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		machine.Finalizers = nil
		Expect(e.seed.Update(ctx, machine)).To(Succeed())
		Expect(e.reconcile(ctx, 70)).To(BeZero())
		Expect(e.shoot.watched).To(BeEmpty())
	})

	It("D3: should do nothing before the pods are known, and nothing with those that belong to the node or have ended", func(ctx SpecContext) {
		e := drained(defaults, drain.Pod{Name: "agent", DaemonSet: "agent"}, drain.Pod{Name: "static", Mirror: true}, drain.Pod{Name: "job", Finished: true})
		e.shoot.unknown = true
		Expect(e.reconcile(ctx, 100)).To(BeZero())
		Expect(e.shoot.watched).To(HaveKey("m"))
		Expect(e.writes).To(BeZero())
		e.shoot.unknown = false
		Expect(e.reconcile(ctx, 100)).To(BeZero())
		Expect(e.shoot.done).To(BeEmpty())
		Expect(failed()).To(BeZero())
	})

	It("D7, D8: should tell once that a drain has failed, also across a restart, until the drain ends", func(ctx SpecContext) {
		e := drained(defaults, plain)
		e.shoot.refuse["plain"] = errors.New("denied")
		e.reconcile(ctx, 53)
		Expect(failed()).To(BeZero())
		e.told()
		e.reconcile(ctx, 53.01)
		Expect(failed()).To(Equal(1))
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainTimedOut"), HaveField("Message", ContainSubstring("shop/plain"))))
		Expect(e.told()).To(ContainElement(And(HavePrefix("Warning DrainTimedOut "), ContainSubstring("shop/plain"))))

		TimedOut.Reset()
		e.restart(defaults)
		writes := e.writes
		e.reconcile(ctx, 60)
		Expect(failed()).To(Equal(1))
		Expect(e.writes).To(Equal(writes))
		e.shoot.pods = append(e.shoot.pods, web)
		e.reconcile(ctx, 60)
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainTimedOut"), HaveField("Message", And(ContainSubstring("shop/plain"), ContainSubstring("shop/web")))))
		Expect(e.told()).NotTo(ContainElement(ContainSubstring("DrainTimedOut")))

		e.shoot.pods = nil
		e.reconcile(ctx, 61)
		Expect(failed()).To(BeZero())
		Expect(e.condition(ctx)).To(BeNil())
	})

	DescribeTable("D8: should not go on telling of a node", func(ctx SpecContext, end func(context.Context, *environment)) {
		e := drained(defaults, plain)
		e.shoot.refuse["plain"] = errors.New("denied")
		e.reconcile(ctx, 100)
		Expect(failed()).To(Equal(1))
		end(ctx, e)
		Expect(e.reconcile(ctx, 101)).To(BeZero())
		Expect(failed()).To(BeZero())
		Expect(e.shoot.watched).To(BeEmpty())
		nodes := &corev1.NodeList{}
		Expect(e.nodes.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).NotTo(ContainElement(HaveField("Status.Conditions", ContainElement(HaveField("Type", BeEquivalentTo("NodeDrain"))))))
	},
		Entry("that is gone", func(ctx context.Context, e *environment) { Expect(e.nodes.Delete(ctx, Node("m"))).To(Succeed()) }),
		Entry("whose machine is gone", func(ctx context.Context, e *environment) {
			Expect(e.seed.Patch(ctx, rolling.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		}),
		Entry("whose machine is of the newest MachineSet", func(ctx context.Context, e *environment) { Expect(e.seed.Delete(ctx, newSet.DeepCopy())).To(Succeed()) }),
	)

	It("D9: should do nothing with pods while the strategies are disabled, and tell that the drain has failed", func(ctx SpecContext) {
		strategies := defaults
		strategies.Disabled = true
		e := drained(strategies, plain, web, finalize)
		Expect(e.reconcile(ctx, 0)).To(Equal(45*time.Minute + time.Nanosecond))
		Expect(e.condition(ctx)).To(HaveField("Reason", "DrainUnderWay"))
		e.reconcile(ctx, 45.01)
		Expect(failed()).To(Equal(1))
		e.reconcile(ctx, 1000)
		Expect(e.shoot.done).To(BeEmpty())
		Expect(e.shoot.listed).To(BeEmpty())
	})

	It("D3: should leave pods of ignored namespaces alone, and count them", func(ctx SpecContext) {
		strategies := defaults
		pattern, err := drain.CompileNamespacePattern("sh.p")
		Expect(err).NotTo(HaveOccurred())
		strategies.IgnoredNamespaces = append(strategies.IgnoredNamespaces, pattern)
		other := plain
		other.Namespace = "shop2"
		e := drained(strategies, plain, web, finalize, other)
		e.reconcile(ctx, 1000)
		Expect(e.shoot.done).To(Equal([]string{"delete shop2/plain"}))
		Expect(e.shoot.listed).To(ConsistOf("shop2"))
		Expect(failed()).To(Equal(1))
	})

	It("D6: should go on with others when one fails, say which, and try again after 30s at most, and at the next deadline", func(ctx SpecContext) {
		e := drained(defaults, plain, drain.Pod{Namespace: "shop", Name: "other"}, web)
		e.shoot.refuse["plain"] = errors.New("failed to remove pod shop/plain: denied")
		var waits []time.Duration
		minutes := 45.0
		for range 8 {
			wait := e.reconcile(ctx, minutes)
			waits = append(waits, wait)
			minutes += wait.Minutes()
		}
		Expect(waits[:5]).To(HaveExactElements(time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second))
		Expect(waits[5:]).To(HaveEach(30 * time.Second))
		Expect(e.shoot.done[:2]).To(ConsistOf("delete shop/other", "delete shop/plain"))
		Expect(e.told()).To(ContainElement("Warning DrainStrategyFailed failed to remove pod shop/plain: denied"))
		Expect(e.reconcile(ctx, 68-1.0/60)).To(BeNumerically("~", time.Second, time.Millisecond))

		delete(e.shoot.refuse, "plain")
		e.reconcile(ctx, 67.99)
		Expect(e.shoot.pods).To(ConsistOf(web))
	})

	DescribeTable("D6: should delete pods ever more rarely that come back each time, and tell once for all", func(ctx SpecContext, stops time.Duration, each int) {
		e := drained(defaults, plain)
		number, again, ends := 0, 0, time.Time{}
		start := func() {
			number++
			e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: fmt.Sprint(number), UID: types.UID(fmt.Sprint(number)), Owner: "shop/Agent a", Created: e.clock.Now().Truncate(time.Second)}}
		}
		start()
		e.shoot.removed = func(drain.Pod) { start() }
		e.shoot.left = func(drain.Pod) {
			again++
			e.shoot.pods[0].GraceEnds, ends = e.clock.Now().Add(30*time.Second), e.clock.Now().Add(stops)
		}
		for second := 0; second < 3600; second += 5 {
			if now := at(45 + float64(second)/60); !ends.IsZero() && now.After(ends) && !e.shoot.pods[0].GraceEnds.IsZero() {
				start()
			}
			e.reconcile(ctx, 45+float64(second)/60)
		}
		// After 1, 2, 4 ... 256 seconds, which are 511, and every 300 from then on.
		Expect(again).To(And(BeNumerically(">=", 10), BeNumerically("<=", 9+(3600-511)/300)))
		Expect(len(e.shoot.done)).To(BeNumerically("~", 1+each*again, 1), "by force at first, and where the pod does not stop in its grace period")
		told := e.told()
		Expect(told).To(ContainElement(And(HavePrefix("Warning PodsCameBack Pods came back after they were deleted by force"), HaveSuffix(": pods of shop/Agent a"))))
		Expect(told).To(HaveLen(4), "with the first deletion on pod and node, and that the drain has failed: %s", told)
	},
		Entry("and stop at once", time.Second, 1),
		Entry("and do not stop", time.Hour, 2),
	)

	It("D6, D7: should name a pod that is left with the finalizers that keep it", func(ctx SpecContext) {
		strategies := defaults
		strategies.Disabled = true
		e := drained(strategies, plain, finalize)
		e.reconcile(ctx, 45.01)
		Expect(e.condition(ctx).Message).To(ContainSubstring("shop/plain, shop/stays (example.com/finalizer)"))
	})

	It("D6: should begin with the pods that hang least often, so that the others have their turn", func(ctx SpecContext) {
		pod := func(name string) drain.Pod { return drain.Pod{Namespace: "shop", Name: name, UID: types.UID(name)} }
		e := drained(defaults, pod("a"), pod("b"), pod("c"))
		e.shoot.refuse = map[string]error{"a": errors.New("no answer"), "b": drain.ErrNotReached, "c": drain.ErrNotReached}
		e.reconcile(ctx, 45)
		Expect(e.shoot.done).To(Equal([]string{"delete shop/a", "delete shop/b", "delete shop/c"}))
		e.shoot.done, e.shoot.refuse["b"] = nil, errors.New("no answer")
		e.reconcile(ctx, 45.1)
		Expect(e.shoot.done).To(Equal([]string{"delete shop/b", "delete shop/c", "delete shop/a"}))
		e.shoot.done = nil
		delete(e.shoot.refuse, "c")
		Expect(e.reconcile(ctx, 45.2)).To(Equal(time.Second), "there was progress")
		Expect(e.shoot.done).To(Equal([]string{"delete shop/c", "delete shop/b", "delete shop/a"}))
	})

	It("D4: should take pods for protected as long as their budgets cannot be listed", func(ctx SpecContext) {
		e := drained(defaults, plain, drain.Pod{Namespace: "free", Name: "p"})
		e.shoot.denied = []string{"shop"}
		Expect(e.reconcile(ctx, 45)).To(Equal(time.Second))
		Expect(e.shoot.done).To(Equal([]string{"delete free/p"}))
		e.shoot.denied = nil
		e.reconcile(ctx, 45.1)
		Expect(e.shoot.pods).To(BeEmpty())
	})

	DescribeTable("D10: pods with volumes on a node that does not answer", func(ctx SpecContext, ready, force bool) {
		node, deployment := Node("m"), pool
		if !ready {
			NotReady(node)
		}
		if force {
			deployment = Deployment("pool", DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes", "true"))
		}
		e := newEnvironment(defaults, deployment, oldSet, newSet, rolling, node)
		risky := plain
		risky.Volumes = true
		e.shoot.pods = []drain.Pod{risky, {Namespace: "shop", Name: "stateless"}}
		e.reconcile(ctx, 45)
		if ready || force {
			Expect(e.shoot.done).To(HaveLen(2))
			return
		}
		Expect(e.shoot.done).To(Equal([]string{"delete shop/stateless"}))
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainUnderWay"), HaveField("Message", ContainSubstring("shop/plain"))), "as a pod that is kept")
		for _, minutes := range []float64{54, 55} {
			e.reconcile(ctx, minutes)
			Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainTimedOut"), HaveField("Message", MatchRegexp("shop/plain.*shop/plain"))), "as one that is left, and kept")
		}
		Expect(failed()).To(Equal(1))
	},
		Entry("are kept, and named", false, false),
		Entry("are not where the pool is set to risk it", false, true),
		Entry("are not when it answers", true, false),
	)

	It("D11: should name five pods, and count the others", func(ctx SpecContext) {
		e := drained(defaults)
		for i := range 40 {
			e.shoot.pods = append(e.shoot.pods, drain.Pod{Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%0253d", i)})
		}
		e.shoot.refuse = map[string]error{}
		for _, pod := range e.shoot.pods {
			e.shoot.refuse[pod.Name] = errors.New(strings.Repeat("ä", 600))
		}
		e.reconcile(ctx, 100)
		Expect(e.condition(ctx).Message).To(HaveSuffix(", and 35 more."))
		for _, note := range e.told() {
			Expect(len(note)).To(BeNumerically("<", 1100))
		}
	})

	It("D2: should have the times of the first cordon after the node was uncordoned and cordoned again, and after a restart", func(ctx SpecContext) {
		e := drained(defaults, plain)
		Expect(e.reconcile(ctx, 30)).To(Equal(15 * time.Minute))
		for _, unschedulable := range []bool{true, false, true} {
			node := &corev1.Node{}
			Expect(e.nodes.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
			node.Spec.Unschedulable = unschedulable
			Expect(e.nodes.Update(ctx, node)).To(Succeed())
			e.restart(defaults)
			Expect(e.reconcile(ctx, 40)).To(Equal(5 * time.Minute))
		}
		Expect(e.writes).To(Equal(1))
	})

	Context("D2: a selection that is dated ahead, as the shoot can do", func() {
		inPlace := Machine("m", Of(oldSet))
		ahead := func(since time.Time) *environment {
			GinkgoHelper()
			e := newEnvironment(defaults, pool, oldSet, newSet, inPlace, Node("m", selected(since)))
			e.shoot.pods = []drain.Pod{plain}
			e.shoot.refuse["plain"] = errors.New("denied")
			return e
		}
		forge := func(ctx context.Context, e *environment, since time.Time) {
			GinkgoHelper()
			node := &corev1.Node{}
			Expect(e.nodes.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
			i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "InPlaceUpdate" })
			node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(since)
			Expect(e.nodes.Status().Update(ctx, node)).To(Succeed())
		}

		DescribeTable("should count from when it was seen first: neither stall strategies and alert, nor skip a budget", func(ctx SpecContext, minutes float64, meanwhile func(context.Context, *environment)) {
			e := ahead(at(minutes))
			// The update is hours old, and it is this node's turn.
			Expect(e.reconcile(ctx, 200)).To(Equal(45 * time.Minute))
			Expect(e.shoot.done).To(BeEmpty())
			e.reconcile(ctx, 220)
			meanwhile(ctx, e)
			Expect(e.reconcile(ctx, 230)).To(Equal(15 * time.Minute))
			Expect(e.condition(ctx).LastTransitionTime.Time).To(BeTemporally("==", at(200)))
			Expect(e.shoot.done).To(BeEmpty())
			e.reconcile(ctx, 245)
			Expect(e.shoot.done).To(Equal([]string{"delete shop/plain"}))
			e.reconcile(ctx, 253.01)
			Expect(failed()).To(Equal(1))
		},
			Entry("by years", 1e6, func(context.Context, *environment) {}),
			Entry("by seconds", 200.5, func(context.Context, *environment) {}),
			Entry("so that its time comes meanwhile", 225.0, func(context.Context, *environment) {}),
			Entry("again and again", 300.0, func(ctx context.Context, e *environment) { forge(ctx, e, at(10000)) }),
			Entry("across a restart", 1e6, func(_ context.Context, e *environment) { e.restart(defaults) }),
		)

		It("should count anew for a selection that comes after it", func(ctx SpecContext) {
			e := ahead(at(1e6))
			e.reconcile(ctx, 200)
			forge(ctx, e, at(220))
			Expect(e.reconcile(ctx, 230)).To(Equal(35 * time.Minute))
		})

		It("should not stall where the shoot denies that anything is written on the node", func(ctx SpecContext) {
			e := ahead(at(1e6))
			e.deny = errors.New("denied")
			for _, minutes := range []float64{200, 220, 245} {
				e.clock.SetTime(at(minutes))
				_, err := e.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "m"}})
				Expect(err).To(MatchError(ContainSubstring("denied")))
			}
			Expect(e.shoot.done).To(Equal([]string{"delete shop/plain"}))
		})

		It("should not take from the node what would skip a budget", func(ctx SpecContext) {
			e := ahead(at(1e6))
			node := &corev1.Node{}
			Expect(e.nodes.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
			shown := corev1.NodeCondition{Type: "NodeDrain", Status: corev1.ConditionTrue, Reason: "DrainUnderWay", LastTransitionTime: metav1.NewTime(began.AddDate(0, -1, 0))}
			node.Status.Conditions = append(node.Status.Conditions, shown)
			Expect(e.nodes.Status().Update(ctx, node)).To(Succeed())
			Expect(e.reconcile(ctx, 0)).To(Equal(45 * time.Minute))
		})
	})

	It("D7, D8: should not take the condition of an earlier drain for the failure of this one", func(ctx SpecContext) {
		before := corev1.NodeCondition{Type: "NodeDrain", Status: corev1.ConditionTrue, Reason: "DrainTimedOut", LastTransitionTime: metav1.NewTime(began.AddDate(0, -1, 0)), Message: "Pods left: shop/old."}
		e := newEnvironment(defaults, pool, oldSet, newSet, rolling, Node("m", func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, before) }))
		e.shoot.pods = []drain.Pod{{Namespace: "shop", Name: "plain", UID: "plain"}}
		e.reconcile(ctx, 1)
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "DrainUnderWay"), HaveField("Message", Not(ContainSubstring("shop/old")))))
	})

	It("P9: should look at all nodes of machines again, without the shoot, when a MachineSet or a MachineDeployment changes", func(ctx SpecContext) {
		e := newEnvironment(defaults, pool, oldSet, newSet, rolling, Node("m"), Machine("healthy", Of(oldSet)), Node("healthy"),
			Machine("selected", Of(oldSet)), Node("selected", Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", "")), Machine("none", Deleted(began)))
		e.Nodes = nil // else the watch would wait for a shoot that is away
		Expect(e.NodeNames(ctx)).To(ConsistOf("m", "healthy", "selected", "none"))
	})
})
