// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package quarantine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/quarantine"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	health = 10 * time.Minute
	settle = 30 * time.Second
)

var timeouts = facts.Timeouts{Health: health, Creation: 20 * time.Minute, Drain: 2 * time.Hour}

// environment is a shoot with ten Servers, the first of which is that of its machine.
type environment struct {
	hosts client.WithWatch
	// cache is nil where it is as new as the hosts.
	cache      client.Reader
	clock      *testclock.FakePassiveClock
	recorder   *events.FakeRecorder
	reconciler *Reconciler
	known      bool
	// alone says that no other machine of the shoot runs.
	alone   bool
	patches int
	// refuse says how a write fails, before it is made, or after; nil for not at all.
	refuse func(object client.Object, done bool) error
}

func object(manifest string, args ...any) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(fmt.Appendf(nil, manifest, args...), &u.Object)).To(Succeed())
	return u
}

func claimOf(machine, server string) *unstructured.Unstructured {
	return object(`
apiVersion: metal.ironcore.dev/v1alpha1
kind: ServerClaim
metadata: {namespace: metal, name: %s, uid: claim-%[1]s}
spec: {power: "On", serverRef: {name: %s}}
`, machine, server)
}

func newEnvironment() *environment {
	e := &environment{clock: testclock.NewFakePassiveClock(Start), recorder: events.NewFakeRecorder(100), known: true}
	builder := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if e.refuse != nil {
				if err := e.refuse(obj, false); err != nil {
					return err
				}
			}
			options := (&client.PatchOptions{}).ApplyOptions(opts)
			Expect(options.Raw).To(BeNil())
			e.patches++
			err := c.Patch(ctx, obj, patch)
			if err == nil && e.refuse != nil {
				return e.refuse(obj, true)
			}
			return err
		},
	})
	for i := range 10 {
		builder.WithObjects(object(`{apiVersion: metal.ironcore.dev/v1alpha1, kind: Server, metadata: {name: s%d}, spec: {}}`, i))
	}
	e.hosts = builder.Build()
	e.restart()
	return e
}

// restart throws the Reconciler away and makes a new one, as `kill -9` does.
func (e *environment) restart() {
	driver := &host.Driver{Kind: ironcore.Kind{}, Access: host.Access{Namespace: Namespace, HostNamespace: "metal", Cached: cmp.Or[client.Reader](e.cache, e.hosts), APIReader: e.hosts, Writer: e.hosts}}
	e.reconciler = &Reconciler{
		Settings: quarantine.Settings{Failures: 3, Period: 7 * 24 * time.Hour}, Seed: "seed", Namespace: Namespace, Kind: ironcore.Kind{}, Timeouts: timeouts,
		Clock: e.clock, Recorder: e.recorder,
		Driver: func() *host.Driver {
			if e.known {
				return driver
			}
			return nil
		},
	}
}

// claims has a machine get a Server.
func (e *environment) claims(ctx context.Context, machine, name string) {
	GinkgoHelper()
	Expect(e.hosts.Create(ctx, claimOf(machine, name))).To(Succeed())
	s := e.server(ctx, name)
	Expect(unstructured.SetNestedMap(s.Object, map[string]any{"namespace": "metal", "name": machine}, "spec", "serverClaimRef")).To(Succeed())
	Expect(e.hosts.Update(ctx, s)).To(Succeed())
}

func (e *environment) server(ctx context.Context, name string) *unstructured.Unstructured {
	GinkgoHelper()
	s := object(`{apiVersion: metal.ironcore.dev/v1alpha1, kind: Server}`)
	Expect(e.hosts.Get(ctx, client.ObjectKey{Name: name}, s)).To(Succeed())
	return s
}

// decide returns what is decided on machines, whose nodes are not ready.
func (e *environment) decide(machines ...*machinev1alpha1.Machine) []preservation.Decision {
	group := preservation.Group{
		Holder: preservation.HealthTimer{}, Share: new(int32(0)), Timeout: time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3},
		Timeouts: timeouts, NodeConditions: facts.DefaultNodeConditions,
	}
	for _, m := range machines {
		group.Members = append(group.Members, facts.Member{Machine: m, Node: Node(m.Name, NotReady)})
	}
	return preservation.Decide(group, e.clock.Now())
}

// observe has the Reconciler told what is decided on machines, and that another one of the shoot runs.
func (e *environment) observe(machines ...*machinev1alpha1.Machine) {
	other := Machine("other")
	if e.alone {
		other.Status.CurrentStatus.Phase = machinev1alpha1.MachinePending
	}
	e.reconciler.Observe(Deployment("other"), e.decide(other), e.clock.Now())
	e.reconciler.Observe(Deployment("pool"), e.decide(machines...), e.clock.Now())
}

func (e *environment) reconcile(ctx context.Context, machine string) (reconcile.Result, error) {
	return e.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: machine}})
}

// failing returns a machine on a Server of its own claim, whose health timeout has passed.
func (e *environment) failing(name string, opts ...MachineOption) *machinev1alpha1.Machine {
	m := Machine(name, append([]MachineOption{Phase(machinev1alpha1.MachineUnknown, e.clock.Now().Add(-health))}, opts...)...)
	m.Spec.ProviderID = "ironcore-metal://metal/" + name
	return m
}

// fail has a machine fail that has just got a Server. If it is not decided at once what comes of that, there is a restart in between.
func (e *environment) fail(ctx context.Context, name, server string) {
	GinkgoHelper()
	e.claims(ctx, name, server)
	m := e.failing(name)
	e.observe(m)
	result, err := e.reconcile(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	if result.RequeueAfter > 0 {
		Expect(result.RequeueAfter).To(Equal(settle))
		e.clock.SetTime(e.clock.Now().Add(settle))
		e.restart()
		e.observe(m)
		Expect(e.reconcile(ctx, name)).To(Equal(reconcile.Result{}))
	}
}

func (e *environment) told() []string {
	var told []string
	for len(e.recorder.Events) > 0 {
		told = append(told, <-e.recorder.Events)
	}
	return told
}

// old returns what the hosts are now as a cache has them that learns nothing more of Servers.
func old(ctx context.Context, hosts client.WithWatch) client.Reader {
	GinkgoHelper()
	servers := &unstructured.UnstructuredList{}
	servers.SetAPIVersion("metal.ironcore.dev/v1alpha1")
	servers.SetKind("ServerList")
	Expect(hosts.List(ctx, servers)).To(Succeed())
	return interceptor.NewClient(hosts, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			servers.DeepCopyInto(list.(*unstructured.UnstructuredList))
			return nil
		},
	})
}

func isQuarantined(s *unstructured.Unstructured) bool {
	return ironcore.Kind{}.IsQuarantined(s)
}

var _ = Describe("Quarantine", func() {
	const day = 24 * time.Hour
	var e *environment

	BeforeEach(func() { e = newEnvironment() })

	step := func(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }
	failures := func(ctx context.Context, name string) int {
		GinkgoHelper()
		return len(quarantine.ReadRecord(e.server(ctx, name)).Failures)
	}

	It("should keep a Server from machines after the third failure on it, across restarts, and tell", func(ctx SpecContext) {
		for i := range 3 {
			Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())
			Expect(e.told()).To(BeEmpty())
			e.fail(ctx, fmt.Sprint("m", i), "s0")
			step(day)
			e.restart()
		}
		s := e.server(ctx, "s0")
		Expect(isQuarantined(s)).To(BeTrue())
		record := quarantine.ReadRecord(s)
		Expect(record.Failures).To(HaveLen(3))
		Expect(record.Quarantined).To(Equal(&quarantine.Mark{Seed: "seed", Namespace: Namespace, At: Start.Add(2*day + settle)}))
		Expect(e.told()).To(ConsistOf("Warning HostQuarantined Machines have failed on host s0 3 times within 168h0m0s. The host was put into quarantine: no other machine gets it until somebody takes it out."))
		Expect(e.patches).To(Equal(4), "one for each failure, and one more")

		By("Letting it out")
		Expect(e.hosts.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unclaimable":false}}`)))).To(Succeed())
		e.fail(ctx, "m3", "s0")
		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())
		Expect(failures(ctx, "s0")).To(Equal(4))
		Expect(e.told()).To(BeEmpty())
	})

	It("should say why not, if that is one too many", func(ctx SpecContext) {
		taken := e.server(ctx, "s9")
		Expect(ironcore.Kind{}.Quarantine(taken)).To(Succeed())
		Expect(e.hosts.Update(ctx, taken)).To(Succeed())
		for i := range 3 {
			e.fail(ctx, fmt.Sprint("m", i), "s0")
			step(day)
		}
		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())
		Expect(e.told()).To(ConsistOf("Warning HostNotQuarantined Machines have failed on host s0 3 times within 168h0m0s. The host was not put into quarantine, because at most one of 10 hosts may be out of use, and 1 of 10 already are."))
	})

	It("should note a failure once, however often it is told of", func(ctx SpecContext) {
		e.fail(ctx, "m", "s0")
		for range 3 {
			e.observe(e.failing("m"))
			Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		}
		e.restart()
		e.observe(e.failing("m"))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(e.patches).To(Equal(1))

		By("Failing again after it has recovered")
		e.observe(Machine("m"))
		step(time.Hour)
		e.observe(e.failing("m"))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(failures(ctx, "s0")).To(Equal(2))
	})

	// twice has machines fail on two Servers, each for the third time but together for the first.
	twice := func(ctx context.Context, then ...string) {
		GinkgoHelper()
		for _, name := range []string{"s0", "s1"} {
			for i := range 2 {
				e.fail(ctx, fmt.Sprint(name, "-", i), name)
				step(day)
			}
		}
		var machines []*machinev1alpha1.Machine
		for i, name := range then {
			machine := fmt.Sprint("m", i)
			e.claims(ctx, machine, name)
			machines = append(machines, e.failing(machine))
		}
		e.observe(machines...)
		for i := range then {
			_, err := e.reconcile(ctx, fmt.Sprint("m", i))
			Expect(err).NotTo(HaveOccurred())
		}
		step(settle)
		for i := range then {
			Expect(e.reconcile(ctx, fmt.Sprint("m", i))).To(Equal(reconcile.Result{}))
		}
	}

	It("should put one Server into quarantine in a day, also while the cache does not know of that", func(ctx SpecContext) {
		for i := range 20 {
			Expect(e.hosts.Create(ctx, object(`{apiVersion: metal.ironcore.dev/v1alpha1, kind: Server, metadata: {name: more%d}, spec: {}}`, i))).To(Succeed())
		}
		e.cache = old(ctx, e.hosts)
		e.restart()
		twice(ctx, "s0", "s1")
		Expect([]bool{isQuarantined(e.server(ctx, "s0")), isQuarantined(e.server(ctx, "s1"))}).To(Equal([]bool{true, false}))
		Expect(e.told()).To(ConsistOf(HavePrefix("Warning HostQuarantined"), HaveSuffix("host s0 was put into quarantine for this shoot less than 24h0m0s ago.")))
	})

	It("should put none into quarantine when several machines fail at once, the first of them included", func(ctx SpecContext) {
		twice(ctx, "s0", "s1", "s2")
		for _, name := range []string{"s0", "s1", "s2"} {
			Expect(isQuarantined(e.server(ctx, name))).To(BeFalse(), name)
		}
		Expect(e.told()).To(BeEmpty())
	})

	It("should put none into quarantine because of a shoot whose machines fail everywhere, one after the other", func(ctx SpecContext) {
		for i := range 40 {
			e.fail(ctx, fmt.Sprint("m", i), fmt.Sprint("s", i%4))
			step(90 * time.Minute)
		}
		for i := range 4 {
			Expect(isQuarantined(e.server(ctx, fmt.Sprint("s", i)))).To(BeFalse())
		}
		Expect(e.told()).To(BeEmpty())
	})

	It("should decide on the host of a machine that is being deleted meanwhile, and remember none that is gone", func(ctx SpecContext) {
		e.fail(ctx, "m0", "s0")
		e.fail(ctx, "m1", "s0")
		e.claims(ctx, "m2", "s0")
		e.observe(e.failing("m2"))
		Expect(e.reconcile(ctx, "m2")).To(Equal(reconcile.Result{RequeueAfter: settle}))
		e.observe(e.failing("m2", Deleted(e.clock.Now())))
		step(settle)
		Expect(e.reconcile(ctx, "m2")).To(Equal(reconcile.Result{}))
		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeTrue())
		Expect(e.reconciler.Remembers()).To(Equal(1))
		e.observe()
		Expect(e.reconciler.Remembers()).To(BeZero())

		By("Its MachineDeployment being gone")
		e.fail(ctx, "m3", "s1")
		e.reconciler.Forget("other", "")
		Expect(e.reconciler.Remembers()).To(Equal(1))
		e.reconciler.Forget("pool", "")
		Expect(e.reconciler.Remembers()).To(BeZero())
	})

	It("should not put a Server into quarantine whose machine is healthy again", func(ctx SpecContext) {
		e.fail(ctx, "m0", "s0")
		e.fail(ctx, "m1", "s0")
		e.claims(ctx, "m2", "s0")
		e.observe(e.failing("m2"))
		Expect(e.reconcile(ctx, "m2")).To(Equal(reconcile.Result{RequeueAfter: settle}))
		e.observe(Machine("m2"))
		step(settle)
		Expect(e.reconcile(ctx, "m2")).To(Equal(reconcile.Result{}))
		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())
	})

	DescribeTable("should end the same way if it crashes", func(ctx SpecContext, after bool) {
		e.claims(ctx, "m", "s0")
		e.refuse = func(_ client.Object, done bool) error {
			if done == after {
				return errors.New("crash")
			}
			return nil
		}
		e.observe(e.failing("m"))
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(MatchError(ContainSubstring("crash")))
		e.refuse = nil
		e.restart()
		e.observe(e.failing("m"))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(e.patches).To(Equal(1))
		Expect(failures(ctx, "s0")).To(Equal(1))
	}, Entry("before the write", false), Entry("after the write", true))

	It("should decide anew if the Server has changed meanwhile", func(ctx SpecContext) {
		e.claims(ctx, "m", "s0")
		e.refuse = func(client.Object, bool) error {
			e.refuse = nil
			s := e.server(ctx, "s0")
			s.SetLabels(map[string]string{"a": "b"})
			return e.hosts.Update(ctx, s)
		}
		e.observe(e.failing("m"))
		_, err := e.reconcile(ctx, "m")
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(failures(ctx, "s0")).To(Equal(1))
	})

	DescribeTable("should say that it cannot, and note the failure all the same", func(ctx SpecContext, refusal error) {
		e.refuse = func(obj client.Object, done bool) error {
			if isQuarantined(obj.(*unstructured.Unstructured)) && !done {
				return refusal
			}
			return nil
		}
		for i := range 3 {
			e.fail(ctx, fmt.Sprint("m", i), "s0")
			step(day)
		}
		record := quarantine.ReadRecord(e.server(ctx, "s0"))
		Expect(record.Failures).To(HaveLen(3))
		Expect(record.Quarantined).To(BeNil())
		Expect(e.told()).To(ConsistOf(And(HavePrefix("Warning HostNotQuarantined"), ContainSubstring("spec.unclaimable"))))
	},
		Entry("because metal-operator does not know of it", apierrors.NewBadRequest(`unknown field "spec.unclaimable"`)),
		Entry("because metal-operator does not know of it, as the API server says after the whole object", apierrors.NewInvalid(schema.GroupKind{}, "",
			field.ErrorList{field.Invalid(field.NewPath("patch"), strings.Repeat("x", 2000), `strict decoding error: unknown field "spec.unclaimable"`)})),
		Entry("because it may not", apierrors.NewForbidden(schema.GroupResource{Resource: "servers"}, "s0", errors.New("this account may only power-cycle the host, not change spec.unclaimable"))),
	)

	It("should not count what fails on a Server that somebody works on, or in whose machine somebody does", func(ctx SpecContext) {
		e.fail(ctx, "m0", "s0")
		e.fail(ctx, "m1", "s0")

		e.claims(ctx, "m2", "s0")
		m := e.failing("m2", Annotation("machine-preservation.extensions.gardener.cloud/power-cycle-phase", "Starting"),
			Annotation("machine-preservation.extensions.gardener.cloud/power-cycle-record", `{"began":"2026-03-01T00:00:00Z"}`))
		e.observe(m)
		Expect(e.reconcile(ctx, "m2")).To(Equal(reconcile.Result{}))
		Expect(failures(ctx, "s0")).To(Equal(3))

		e.claims(ctx, "m3", "s0")
		s := e.server(ctx, "s0")
		Expect(unstructured.SetNestedField(s.Object, "Maintenance", "status", "state")).To(Succeed())
		Expect(e.hosts.Update(ctx, s)).To(Succeed())
		e.observe(e.failing("m3"))
		Expect(e.reconcile(ctx, "m3")).To(Equal(reconcile.Result{}))
		Expect(failures(ctx, "s0")).To(Equal(4))

		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())
	})

	It("should not count what fails while no other machine of the shoot runs", func(ctx SpecContext) {
		e.alone = true
		for i := range 4 {
			e.fail(ctx, fmt.Sprint("m", i), "s0")
			step(day)
		}
		Expect(failures(ctx, "s0")).To(Equal(4))
		Expect(isQuarantined(e.server(ctx, "s0"))).To(BeFalse())

		By("Others having run that are gone with their MachineDeployment")
		e.alone = false
		e.observe()
		e.reconciler.Forget("other", "")
		e.claims(ctx, "m", "s1")
		e.reconciler.Observe(Deployment("pool"), e.decide(e.failing("m")), e.clock.Now())
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(quarantine.ReadRecord(e.server(ctx, "s1")).Failures).To(ConsistOf(HaveField("Excused", true)))
	})

	DescribeTable("should note nothing on a Server that is not the machine's", func(ctx SpecContext, edit func(claim, server *unstructured.Unstructured)) {
		e.claims(ctx, "m", "s0")
		claim := claimOf("m", "s0")
		Expect(e.hosts.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		s := e.server(ctx, "s0")
		edit(claim, s)
		Expect(e.hosts.Update(ctx, claim)).To(Succeed())
		Expect(e.hosts.Update(ctx, s)).To(Succeed())
		e.observe(e.failing("m"))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(e.patches).To(BeZero())
	},
		Entry("of another claim", func(_, s *unstructured.Unstructured) {
			Expect(unstructured.SetNestedField(s.Object, "n", "spec", "serverClaimRef", "name")).To(Succeed())
		}),
		Entry("of a claim of another namespace", func(_, s *unstructured.Unstructured) {
			Expect(unstructured.SetNestedField(s.Object, "other", "spec", "serverClaimRef", "namespace")).To(Succeed())
		}),
		Entry("of none", func(claim, _ *unstructured.Unstructured) {
			unstructured.RemoveNestedField(claim.Object, "spec", "serverRef")
		}),
	)

	DescribeTable("should not count what is no failure", func(ctx SpecContext, edit MachineOption) {
		e.claims(ctx, "m", "s0")
		e.observe(e.failing("m", edit))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(e.patches).To(BeZero())
	},
		Entry("a machine that is not unhealthy for long enough", func(m *machinev1alpha1.Machine) {
			m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(Start.Add(-health + time.Second))
		}),
		Entry("one that is being deleted", Deleted(Start)),
	)

	It("should wait for the hosts, and not for ever", func(ctx SpecContext) {
		e.claims(ctx, "m", "s0")
		e.known = false
		e.observe(e.failing("m"))
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
		e.known = true
		Expect(e.reconcile(ctx, "m")).To(Equal(reconcile.Result{}))
		Expect(e.patches).To(Equal(1))

		e.known = false
		e.observe(e.failing("n"))
		step(time.Hour)
		Expect(e.reconcile(ctx, "n")).To(Equal(reconcile.Result{}))
	})
})
