// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failures"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix = "machine-preservation.extensions.gardener.cloud/"
	health = 10 * time.Minute
)

var (
	now      = Start.Add(time.Hour)
	began    = now.Add(-health)
	failed   = Phase(machinev1alpha1.MachineUnknown, began)
	timeouts = facts.Timeouts{Health: health, Creation: 20 * time.Minute, Drain: 2 * time.Hour}
	kept     = func(m *machinev1alpha1.Machine) {
		failed(m)
		Preserved("Failed:Preserved", "auto", now.Add(time.Hour))(m)
	}
	errAway = errors.New("connection refused")
)

// environment is a ledger of a shoot.
type environment struct {
	seed, shoot client.WithWatch
	clock       *testclock.FakePassiveClock
	ledger      *Ledger
	// share is that of the MachineDeployment: as many as are kept.
	share int32
	// queue has the requests that were made, at once or later.
	queue []reconcile.Request
	// writes counts those of entries by their names. Before and after each, refuse says how it fails; nil for not at all.
	writes map[string]int
	refuse func(verb, name string, done bool) error
}

type nodes struct{ client.Reader }

func (nodes) Known() bool { return true }

func newEnvironment(objects ...client.Object) *environment {
	GinkgoHelper()
	seed, shoot := runtime.NewScheme(), runtime.NewScheme()
	Expect(machinev1alpha1.AddToScheme(seed)).To(Succeed())
	Expect(corev1.AddToScheme(shoot)).To(Succeed())
	Expect(metav1.AddMetaToScheme(shoot)).To(Succeed())
	Expect(failuresv1alpha1.AddToScheme(shoot)).To(Succeed())
	var (
		machines, others []client.Object
		share            int32
	)
	for _, obj := range objects {
		if _, isMachine := obj.(*machinev1alpha1.Machine); isMachine {
			machines = append(machines, obj)
			if obj.GetAnnotations()[prefix+"cause"] != "" {
				share++
			}
		} else {
			others = append(others, obj)
		}
	}
	e := &environment{clock: testclock.NewFakePassiveClock(now), writes: map[string]int{}, share: share}
	e.seed = fakeclient.NewClientBuilder().WithScheme(seed).WithObjects(machines...).Build()
	do := func(verb, name string, write func() error) error {
		if e.refuse != nil {
			if err := e.refuse(verb, name, false); err != nil {
				return err
			}
		}
		err := write()
		if err == nil && verb != "list" {
			e.writes[name]++
		}
		if err == nil && e.refuse != nil {
			return e.refuse(verb, name, true)
		}
		return err
	}
	e.shoot = interceptor.NewClient(fakeclient.NewClientBuilder().WithScheme(shoot).WithObjects(others...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }).
		Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, hasDeadline := ctx.Deadline(); !hasDeadline {
				return errors.New("a call may take for ever")
			}
			if pods, ok := list.(*metav1.PartialObjectMetadataList); ok && pods.Kind == "PodList" { // the fake has no index of metadata
				full := &corev1.PodList{}
				if err := c.List(ctx, full, opts...); err != nil {
					return err
				}
				for _, pod := range full.Items {
					pods.Items = append(pods.Items, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
				}
				return nil
			}
			return do("list", "", func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetCreationTimestamp(metav1.NewTime(e.clock.Now()))
			return do("create", obj.GetName(), func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return do("patch", obj.GetName(), func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
	})
	e.restart()
	Failures.Reset()
	return e
}

// restart throws the ledger away and makes a new one, as `kill -9` does.
func (e *environment) restart() {
	e.ledger = &Ledger{
		Namespace: Namespace, Source: e.seed, SourceReader: e.seed, Nodes: nodes{e.shoot}, Shoot: e.shoot,
		Timeouts: timeouts, NodeConditions: facts.DefaultNodeConditions, Clock: e.clock,
	}
	e.queue = nil
	e.ledger.Start(func(request reconcile.Request, _ time.Duration) {
		if !slices.Contains(e.queue, request) {
			e.queue = append(e.queue, request)
		}
	})
}

// observe has the ledger told what is decided on all machines.
func (e *environment) observe(ctx context.Context) {
	GinkgoHelper()
	machines := &machinev1alpha1.MachineList{}
	Expect(e.seed.List(ctx, machines)).To(Succeed())
	group := preservation.Group{
		Holder: preservation.HealthTimer{}, Share: &e.share, Timeout: time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3},
		Timeouts: timeouts, NodeConditions: facts.DefaultNodeConditions,
	}
	for i := range machines.Items {
		m := facts.Member{Machine: &machines.Items[i]}
		node := &corev1.Node{}
		if e.shoot.Get(ctx, client.ObjectKey{Name: m.Machine.Name}, node) == nil {
			m.Node = node
		}
		group.Members = append(group.Members, m)
	}
	deployment := Deployment("pool")
	deployment.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "pool", "topology.kubernetes.io/zone": "z"}
	e.ledger.Observe(deployment, preservation.Decide(group, e.clock.Now()), e.clock.Now())
}

// reconcile looks at a machine, and returns when the ledger wants to look again.
func (e *environment) reconcile(ctx context.Context, name string) time.Duration {
	GinkgoHelper()
	result, err := e.ledger.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: name}})
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// settle handles all requests, and those that these make.
func (e *environment) settle(ctx context.Context) {
	GinkgoHelper()
	for len(e.queue) > 0 {
		request := e.queue[0]
		e.queue = e.queue[1:]
		e.reconcile(ctx, request.Name)
	}
}

func (e *environment) entries(ctx context.Context) []failuresv1alpha1.MachineFailure {
	GinkgoHelper()
	e.refuse = nil
	list := &failuresv1alpha1.MachineFailureList{}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	Expect(e.shoot.List(ctx, list)).To(Succeed())
	return list.Items
}

func (e *environment) entry(ctx context.Context) failuresv1alpha1.MachineFailure {
	GinkgoHelper()
	entries := e.entries(ctx)
	Expect(entries).To(HaveLen(1))
	return entries[0]
}

func (e *environment) update(ctx context.Context, change MachineOption) {
	GinkgoHelper()
	m := &machinev1alpha1.Machine{}
	Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "m"}, m)).To(Succeed())
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	change(m)
	Expect(e.seed.Update(ctx, m)).To(Succeed())
}

var _ = Describe("Ledger", func() {
	ctx := context.Background()
	name := failure.NameOf("m", began)

	It("T6: should write an entry of a machine that is not kept, and complete it when that is gone", func() {
		machine := Machine("m", failed)
		e := newEnvironment(machine, Node("m", NotReady), Pod("p", OnNode("m")), Pod("q", OnNode("other")))
		Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		before := machine.DeepCopy()
		e.observe(ctx)
		e.settle(ctx)
		entry := e.entry(ctx)
		Expect(entry.Name).To(Equal(name))
		Expect(entry.Spec.Reason).To(Equal("Ready"))
		Expect(entry.Spec.Pool).To(Equal("pool"))
		Expect(entry.Spec.Zone).To(Equal("z"))
		Expect(entry.Spec.Pods).To(HaveExactElements(HaveField("Name", "p")))
		Expect(entry.Spec.Decision).To(And(HaveField("Kept", false), HaveField("Reason", "NoShare")))
		Expect(entry.Status).To(BeNil())
		Expect(e.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(machine).To(Equal(before), "nothing is touched")

		By("Looking again and again")
		for range 3 {
			e.observe(ctx)
			Expect(e.reconcile(ctx, "m")).To(Equal(time.Minute))
		}
		Expect(e.writes).To(Equal(map[string]int{name: 1}))

		By("Marking it Failed, which starts its timer anew")
		e.update(ctx, Phase(machinev1alpha1.MachineFailed, now))
		e.observe(ctx)
		Expect(e.reconcile(ctx, "m")).To(Equal(time.Minute))
		Expect(e.seed.Delete(ctx, machine)).To(Succeed())
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.entry(ctx).Status).To(HaveValue(And(HaveField("Outcome", failuresv1alpha1.OutcomeReplaced), HaveField("Reason", "NoShare"))))
		Expect(e.entry(ctx).Labels).To(BeEmpty())
		Expect(e.writes).To(Equal(map[string]int{name: 2}))
		Expect(e.ledger.Len()).To(BeZero())
		Expect(testutil.ToFloat64(Failures.WithLabelValues("pool", "Ready", "replaced"))).To(Equal(1.0))

		By("Looking an hour later, also after a restart")
		entry = e.entry(ctx)
		e.clock.SetTime(now.Add(time.Hour))
		for _, restart := range []func(){func() {}, e.restart} {
			restart()
			e.observe(ctx)
			e.settle(ctx)
			Expect(e.entry(ctx)).To(Equal(entry))
		}
		Expect(e.writes).To(Equal(map[string]int{name: 2}))
	})

	It("T7: should say that a machine has recovered, and begin another entry when it fails again", func() {
		e := newEnvironment(Machine("m", kept), Node("m", NotReady))
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.entry(ctx).Spec.Decision).To(And(HaveField("Kept", true), HaveField("Cause", "auto"), HaveField("Reason", "MachineFailed")))
		Expect(testutil.ToFloat64(Failures.WithLabelValues("pool", "Ready", "kept"))).To(Equal(1.0))
		Expect(e.shoot.Status().Update(ctx, Node("m"))).To(Succeed())
		e.update(ctx, func(m *machinev1alpha1.Machine) {
			Phase(machinev1alpha1.MachineRunning, now)(m)
			m.Annotations = map[string]string{}
		})
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.entry(ctx).Status).To(HaveValue(And(HaveField("Outcome", failuresv1alpha1.OutcomeRecovered), HaveField("Reason", "HealthyAgain"))))

		By("Looking at it as a cache had it before")
		e.update(ctx, kept)
		e.observe(ctx)
		e.update(ctx, func(m *machinev1alpha1.Machine) {
			version := m.ResourceVersion
			*m = *Machine("m")
			m.ResourceVersion = version
		})
		e.settle(ctx)
		Expect(e.writes).To(Equal(map[string]int{name: 2}), "it is the same failure")

		e.clock.SetTime(now.Add(time.Hour))
		Expect(e.shoot.Status().Update(ctx, Node("m", NotReady))).To(Succeed())
		e.update(ctx, Phase(machinev1alpha1.MachineUnknown, now))
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.entries(ctx)).To(HaveLen(2))
	})

	It("T8: should say why a machine was let go of, which is one failure to its end", func() {
		e := newEnvironment(Machine("m", kept), Node("m", NotReady))
		e.observe(ctx)
		e.settle(ctx)
		e.clock.SetTime(now.Add(2 * time.Hour))
		e.observe(ctx) // it has expired
		e.update(ctx, func(m *machinev1alpha1.Machine) {
			m.Annotations = map[string]string{prefix + "released": now.Add(2 * time.Hour).Format(time.RFC3339)}
			Phase(machinev1alpha1.MachineFailed, now.Add(2*time.Hour))(m)
		})
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		e.reconcile(ctx, "m")
		Expect(e.entry(ctx).Status).To(HaveValue(And(HaveField("Outcome", failuresv1alpha1.OutcomeReplaced), HaveField("Reason", "Expired"))))
		Expect(e.entry(ctx).Spec.Decision.Kept).To(BeTrue())
	})

	DescribeTable("P8: one entry, completed once, whatever write a crash comes before or after", func(opts []MachineOption, outcome failuresv1alpha1.Outcome) {
		for crash := range 5 {
			for _, after := range []bool{false, true} {
				e := newEnvironment(Machine("m", opts...), Node("m", NotReady))
				count := 0
				crashing := func(verb, _ string, done bool) error {
					if verb == "list" || done != after {
						return nil
					}
					if count++; count == crash {
						e.restart()
						return errAway
					}
					return nil
				}
				round := func() {
					for range 4 {
						e.refuse = crashing
						e.clock.SetTime(e.clock.Now().Add(time.Minute))
						e.observe(ctx)
						e.reconcile(ctx, "m")
						e.settle(ctx)
					}
				}
				round()
				e.update(ctx, Phase(machinev1alpha1.MachineFailed, now))
				round()
				Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
				round()
				Expect(e.entry(ctx).Status).To(HaveValue(HaveField("Outcome", outcome)), "crash %d, after %t", crash, after)
				Expect(e.writes).To(Equal(map[string]int{name: 2}), "crash %d, after %t", crash, after)
			}
		}
	},
		Entry("not kept", []MachineOption{failed}, failuresv1alpha1.OutcomeReplaced),
		Entry("kept", []MachineOption{kept}, failuresv1alpha1.OutcomeDeleted),
	)

	It("P8: should write nothing again when an answer gets lost", func() {
		e := newEnvironment(Machine("m", failed), Node("m", NotReady))
		lost := func(verb, _ string, done bool) error {
			if done && verb != "list" {
				return errAway
			}
			return nil
		}
		look := func() {
			for range 3 {
				e.clock.SetTime(e.clock.Now().Add(time.Minute))
				e.reconcile(ctx, "m")
				e.refuse = nil
			}
		}
		e.observe(ctx)
		e.refuse = lost
		look()
		Expect(e.writes).To(Equal(map[string]int{name: 1}))
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		e.refuse = lost
		look()
		Expect(e.writes).To(Equal(map[string]int{name: 2}))
		Expect(e.ledger.Len()).To(BeZero())
	})

	It("should leave an entry as another preservation controller completes it at the same time", func() {
		e := newEnvironment(Machine("m", failed), Node("m", NotReady))
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		other := failuresv1alpha1.MachineFailureStatus{Outcome: failuresv1alpha1.OutcomeReplaced, Text: "of the other one"}
		e.refuse = func(verb, _ string, _ bool) error {
			Expect(verb).To(Equal("patch"))
			entry := e.entry(ctx) // nothing is refused from here on
			entry.Status = &other
			return e.shoot.Update(ctx, &entry)
		}
		Expect(e.reconcile(ctx, "m")).To(Equal(time.Second))
		Expect(e.reconcile(ctx, "m")).To(BeZero(), "nothing else waits for that")
		Expect(e.entry(ctx).Status).To(HaveValue(Equal(other)))
		Expect(e.ledger.Len()).To(BeZero())
	})

	It("should complete after a restart what was left open", func() {
		e := newEnvironment(Machine("m", failed), Machine("n", kept), Node("m", NotReady), Node("n", NotReady))
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		Expect(e.seed.Delete(ctx, Machine("n"))).To(Succeed())
		e.restart()
		e.settle(ctx)
		Expect(e.entries(ctx)).To(ConsistOf(
			HaveField("Status", HaveValue(And(HaveField("Outcome", failuresv1alpha1.OutcomeReplaced), HaveField("Reason", "NoPlace")))),
			HaveField("Status", HaveValue(And(HaveField("Outcome", failuresv1alpha1.OutcomeDeleted), HaveField("Reason", "Unseen")))),
		))
	})

	It("should not take a machine for another one that had its name", func() {
		e := newEnvironment(Machine("m", failed), Node("m", NotReady))
		e.observe(ctx)
		e.queue = nil
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		Expect(e.seed.Create(ctx, Machine("m", NeverJoined, func(m *machinev1alpha1.Machine) { m.UID, m.Spec.ProviderID = "other", "other" }))).To(Succeed())
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.entry(ctx)).To(And(HaveField("Spec.MachineUID", "machine-m"), HaveField("Spec.ProviderID", "local:///m"), HaveField("Status", HaveValue(HaveField("Reason", "NoShare")))))
	})

	It("P9: should write later what the shoot cannot take now, and ask it no more often than the back-off lets it", func() {
		e := newEnvironment(Machine("m", failed), Machine("n", failed), Node("m", NotReady), Node("n", NotReady))
		calls := 0
		e.refuse = func(_, _ string, done bool) error {
			if !done {
				calls++
			}
			return errAway
		}
		e.observe(ctx)
		Expect(e.reconcile(ctx, "m")).To(Equal(time.Second))
		Expect(e.reconcile(ctx, "n")).To(Equal(time.Second))
		Expect(e.reconcile(ctx, "")).To(Equal(time.Second))
		Expect(calls).To(Equal(1), "they wait for one another")
		for range 8 {
			e.clock.SetTime(e.clock.Now().Add(30 * time.Second))
			Expect(e.reconcile(ctx, "n")).To(BeNumerically("<=", 30*time.Second))
		}
		Expect(calls).To(Equal(9))
		Expect(e.seed.Delete(ctx, Machine("n"))).To(Succeed())
		Expect(e.shoot.Delete(ctx, Node("n"))).To(Succeed())
		e.refuse = nil
		e.clock.SetTime(e.clock.Now().Add(30 * time.Second))
		e.settle(ctx)
		e.reconcile(ctx, "n")
		Expect(e.entries(ctx)).To(ConsistOf(
			And(HaveField("Spec.Machine", "m"), HaveField("Status", BeNil())),
			And(HaveField("Spec.Machine", "n"), HaveField("Spec.Node", "n"), HaveField("Spec.Reason", "Ready"), HaveField("Spec.ProviderID", "local:///n"), HaveField("Spec.FailedAt.Time", BeTemporally("==", now)), HaveField("Status", HaveValue(HaveField("Reason", "NoShare")))),
		))
	})

	It("should write at most twice for each of 1,000 failures, and keep 200", func() {
		e := newEnvironment()
		for i := range 1000 {
			Expect(e.seed.Create(ctx, Machine(fmt.Sprintf("m-%d", i), failed))).To(Succeed())
		}
		e.observe(ctx)
		e.settle(ctx)
		for i := range 1000 {
			Expect(e.seed.Delete(ctx, Machine(fmt.Sprintf("m-%d", i)))).To(Succeed())
			e.reconcile(ctx, fmt.Sprintf("m-%d", i))
		}
		for range 10 {
			e.reconcile(ctx, "")
		}
		Expect(e.writes).To(HaveLen(1000))
		for _, writes := range e.writes {
			Expect(writes).To(BeNumerically("<=", 2))
		}
		Expect(e.entries(ctx)).To(HaveLen(200))
		Expect(testutil.ToFloat64(Failures.WithLabelValues("pool", "NodeGone", "replaced"))).To(Equal(1000.0))
	})

	It("should count what it has no place for", func() {
		e := newEnvironment()
		for i := range MaxItems + 3 {
			Expect(e.seed.Create(ctx, Machine(fmt.Sprintf("m-%d", i), failed))).To(Succeed())
		}
		before := testutil.ToFloat64(Dropped)
		e.observe(ctx)
		Expect(e.ledger.Len()).To(Equal(MaxItems))
		Expect(testutil.ToFloat64(Dropped) - before).To(Equal(3.0))
	})

	It("should give up a day after the machine is gone what the shoot never takes", func() {
		e := newEnvironment(Machine("m", failed))
		e.observe(ctx)
		e.queue = nil
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		e.refuse = func(verb, _ string, _ bool) error {
			if verb == "create" {
				return apierrors.NewForbidden(failuresv1alpha1.SchemeGroupVersion.WithResource("machinefailures").GroupResource(), name, errors.New("a webhook"))
			}
			return nil
		}
		e.reconcile(ctx, "m")
		e.clock.SetTime(now.Add(24 * time.Hour))
		Expect(e.reconcile(ctx, "m")).NotTo(BeZero())
		before := testutil.ToFloat64(Dropped)
		e.clock.SetTime(now.Add(25 * time.Hour))
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(testutil.ToFloat64(Dropped) - before).To(Equal(1.0))
	})

	Describe("a hostile owner", func() {
		It("P14: who deletes entries has none, and who edits them keeps them so", func() {
			e := newEnvironment(Machine("m", failed), Node("m", NotReady))
			e.observe(ctx)
			e.settle(ctx)
			entry := e.entry(ctx)
			Expect(e.shoot.Delete(ctx, &entry)).To(Succeed())
			e.observe(ctx)
			e.reconcile(ctx, "m")
			Expect(e.entries(ctx)).To(BeEmpty())
			Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
			Expect(e.reconcile(ctx, "m")).To(BeZero())
			Expect(e.entries(ctx)).To(BeEmpty())
			Expect(e.ledger.Len()).To(BeZero())
		})

		It("P14: who completes or forges entries harms nothing else", func() {
			forged := func(machine, uid string, change func(*failuresv1alpha1.MachineFailure)) *failuresv1alpha1.MachineFailure {
				f := (&failure.Entry{Name: "forged-" + machine, UID: types.UID(uid), Since: began, At: now}).New(machine, failure.Found{Machine: Machine("m"), Place: failure.Place{Pool: "evil"}})
				change(f)
				return f
			}
			healthy := Machine("healthy")
			e := newEnvironment(Machine("m", failed), healthy, Node("m", NotReady), Node("healthy"),
				forged("gone", "x", func(f *failuresv1alpha1.MachineFailure) { f.Spec.Decision.Reason = "Evil" }),
				forged("healthy", "machine-healthy", func(*failuresv1alpha1.MachineFailure) {}),
				forged("m", "other", func(*failuresv1alpha1.MachineFailure) {}),
				forged("", "", func(*failuresv1alpha1.MachineFailure) {}),
				forged("done", "x", func(f *failuresv1alpha1.MachineFailure) {
					f.Status = &failuresv1alpha1.MachineFailureStatus{Outcome: "Evil"}
				}),
			)
			e.observe(ctx)
			e.settle(ctx)
			entries := e.entries(ctx)
			Expect(entries).To(ContainElement(And(HaveField("Name", name), HaveField("Spec.Pool", "pool"))), "the true one is there as well")
			Expect(entries).To(ContainElement(And(HaveField("Name", "forged-done"), HaveField("Status.Outcome", BeEquivalentTo("Evil")))))
			Expect(e.ledger.Len()).To(Equal(1))
			Expect(testutil.ToFloat64(Failures.WithLabelValues("pool", "Ready", "replaced"))).To(Equal(1.0))
			Expect(testutil.CollectAndCount(Failures)).To(Equal(2*len(failure.MetricReasons)), "nothing that is forged is counted")
		})
	})

	It("should look for machines that it knows only", func() {
		e := newEnvironment(Machine("m", failed))
		e.observe(ctx)
		Expect(e.ledger.RequestsFor(ctx, Machine("m"))).To(HaveLen(1))
		Expect(e.ledger.RequestsFor(ctx, Machine("n"))).To(BeEmpty())
		update := func(o, n *machinev1alpha1.Machine) bool {
			return MachineChanged().Update(event.UpdateEvent{ObjectOld: o, ObjectNew: n})
		}
		Expect(update(Machine("m"), Machine("m", failed))).To(BeTrue())
		Expect(update(Machine("m"), Machine("m", Deleted(now)))).To(BeTrue())
		Expect(update(Machine("m", Preserved("Failed:Preserved", "auto", now)), Machine("m", Preserved("Running:Preserved", "auto", now)))).To(BeTrue())
		Expect(update(Machine("m", Annotation(prefix+"power-cycle-phase", "Starting")), Machine("m", Annotation(prefix+"power-cycle-phase", "Succeeded")))).To(BeTrue())
		Expect(update(Machine("m"), Machine("m", Annotation("a", "b")))).To(BeFalse())
	})

	It("should have the series of a pool there before anything fails in it", func() {
		Failures.Reset()
		e := newEnvironment(Machine("m"), Node("m"))
		e.observe(ctx)
		Expect(testutil.CollectAndCount(Failures)).To(Equal(2 * len(failure.MetricReasons)))
		Expect(testutil.ToFloat64(Failures.WithLabelValues("pool", "Ready", "kept"))).To(BeZero())
	})

	It("should drop the series of a pool that is gone, and have them there again when it is back", func() {
		Failures.Reset()
		e := newEnvironment(Machine("m"), Node("m"))
		e.observe(ctx)
		e.ledger.Forget("pool-z1", "")
		e.ledger.Forget("other-z1", "other")
		Expect(testutil.CollectAndCount(Failures)).To(Equal(2 * len(failure.MetricReasons)))
		e.ledger.Forget("pool-z2", "pool")
		Expect(testutil.CollectAndCount(Failures)).To(BeZero())
		e.observe(ctx)
		Expect(testutil.CollectAndCount(Failures)).To(Equal(2 * len(failure.MetricReasons)))
	})

	It("should tell of a host that has failed for a week, and of the last failure only", func() {
		HostFailed.Reset()
		h := Hosts{}
		h.Fail("a", began, began)
		h.Fail("b", began.Add(time.Hour), began.Add(time.Hour))
		h.Fail("b", began, began.Add(2*time.Hour))
		Expect(testutil.ToFloat64(HostFailed.WithLabelValues("b"))).To(Equal(float64(began.Add(time.Hour).Unix())))
		h.Fail("c", began.Add(7*24*time.Hour+time.Second), began.Add(7*24*time.Hour+time.Second))
		Expect(testutil.CollectAndCount(HostFailed)).To(Equal(2))
		Expect(h).To(And(HaveKey("b"), HaveKey("c"), HaveLen(2)))
	})

	It("should name the host and the evidence, where there are any", func() {
		e := newEnvironment(Machine("m", kept), Node("m", NotReady))
		e.ledger.HostOf = func(_ context.Context, m *machinev1alpha1.Machine) string { return "host-of-" + m.Name }
		e.ledger.EvidenceOf = func(_ context.Context, machine string, since time.Time) string {
			Expect(since).To(BeTemporally("==", began))
			return "evidence-of-" + machine
		}
		e.observe(ctx)
		e.settle(ctx)
		Expect(e.entry(ctx).Spec.Host).To(Equal("host-of-m"))
		Expect(testutil.ToFloat64(HostFailed.WithLabelValues("host-of-m"))).To(Equal(float64(e.entry(ctx).Spec.FailedAt.Unix())))
		Expect(e.seed.Delete(ctx, Machine("m"))).To(Succeed())
		e.reconcile(ctx, "m")
		Expect(e.entry(ctx).Status.Evidence).To(Equal("evidence-of-m"))
		Expect(e.writes[name]).To(Equal(2))
	})
})

var _ = It("should keep at a restart in a storm what was written of it", func(ctx SpecContext) {
	e := newEnvironment()
	for i := range 500 {
		Expect(e.seed.Create(ctx, Machine(fmt.Sprintf("m-%d", i), failed))).To(Succeed())
	}
	settle := func() {
		e.observe(ctx)
		e.settle(ctx)
		for range 10 {
			e.reconcile(ctx, "")
		}
		Expect(e.entries(ctx)).To(HaveLen(200))
	}
	settle()
	e.clock.SetTime(now.Add(30 * time.Minute)) // they fail still: machine-controller-manager replaces one after the other
	e.restart()
	settle()
	for _, f := range e.entries(ctx) {
		Expect(f.Spec.FailedAt.Time).To(BeTemporally("<=", now))
	}
})
