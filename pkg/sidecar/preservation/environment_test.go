// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// environment is a Reconciler with the objects of a seed and a shoot.
type environment struct {
	// seed and shoot are what the API servers have. The Reconciler sees them through the api.
	seed, shoot client.WithWatch
	api         *api
	// nodesKnown is what the shoot's cache says of itself.
	nodesKnown bool
	clock      *testclock.FakePassiveClock
	holder     preservation.Holder
	recorder   *recorder
	// disabled says that preservation is to end.
	disabled bool
	// cache, if set, is what the Reconciler's cached reads return instead of what the seed has.
	cache client.Reader
	// nodeCache, if set, is what the Reconciler's cached reads of nodes return instead of what the shoot has.
	nodeCache client.Reader

	*Reconciler
}

// newEnvironment starts a Reconciler on objects, one hour after Start.
func newEnvironment(holder preservation.Holder, objects ...client.Object) *environment {
	GinkgoHelper()
	scheme := Scheme()

	var nodes, others []client.Object
	for _, object := range objects {
		if _, isNode := object.(*corev1.Node); isNode {
			nodes = append(nodes, object)
		} else {
			others = append(others, object)
		}
	}
	// The default one takes longer than all the rest.
	e := &environment{
		seed: NewClientBuilder(scheme).WithObjects(others...).
			WithStatusSubresource(&machinev1alpha1.Machine{}).
			WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} }).
			Build(),
		shoot:      NewClientBuilder(scheme).WithObjects(nodes...).WithStatusSubresource(&corev1.Node{}).Build(),
		api:        &api{},
		nodesKnown: true,
		clock:      testclock.NewFakePassiveClock(Start.Add(time.Hour)),
		holder:     holder,
		recorder:   &recorder{},
	}
	e.restart()
	return e
}

// withMachine is an environment of one machine "m" in a MachineDeployment "pool" with a share of 1, and its node unless
// it is nil.
func withMachine(holder preservation.Holder, machine *machinev1alpha1.Machine, node *corev1.Node) *environment {
	GinkgoHelper()
	deployment := Deployment("pool", Share("1"))
	set := Set("set", deployment)
	Of(set)(machine)
	objects := []client.Object{deployment, set, machine}
	if node != nil {
		objects = append(objects, node)
	}
	return newEnvironment(holder, objects...)
}

// restart throws the Reconciler away and makes a new one.
func (e *environment) restart() {
	source, direct := e.api.intercept("seed", e.seed), e.api.intercept("seed", e.seed)
	if e.cache != nil {
		source = interceptor.NewClient(source, interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				return e.cache.Get(ctx, key, obj, opts...)
			},
			List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				return e.cache.List(ctx, list, opts...)
			},
		})
	}
	shoot := e.api.intercept("shoot", e.shoot)
	if e.nodeCache != nil {
		shoot = interceptor.NewClient(shoot, interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				return e.nodeCache.Get(ctx, key, obj, opts...)
			},
		})
	}
	e.Reconciler = &Reconciler{
		Source:         source,
		SourceReader:   direct,
		Nodes:          nodes{Client: shoot, known: &e.nodesKnown},
		NodeReader:     e.api.intercept("shoot", e.shoot),
		Holder:         e.holder,
		MaxTimeout:     336 * time.Hour,
		Timeouts:       facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
		NodeConditions: facts.DefaultNodeConditions,
		Maintenance:    preservation.MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
		Remediation:    preservation.RemediationOptions{Enabled: true},
		Clock:          e.clock,
		Events:         Events{Source: e.recorder, Shoot: e.recorder},
	}
}

// strippedNodes reads nodes without their labels, unless they have the taint, as the cache has them.
type strippedNodes struct{ client.Reader }

func (s strippedNodes) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, obj, opts...)
	if node, ok := obj.(*corev1.Node); ok && !v1alpha1.IsTainted(node) {
		node.Labels = nil
	}
	return err
}

func (e *environment) now() time.Time { return e.clock.Now() }

func (e *environment) pass(d time.Duration) { e.clock.SetTime(e.now().Add(d)) }

func (e *environment) reconcile(ctx context.Context) (reconcile.Result, error) {
	if e.disabled {
		return reconcile.Result{}, e.End(ctx, Namespace)
	}
	return e.reconcileNamed(ctx, "pool")
}

func (e *environment) reconcileNamed(ctx context.Context, deployment string) (reconcile.Result, error) {
	return e.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: deployment}})
}

// settle reconciles until nothing is written any more, and returns the last result.
func (e *environment) settle(ctx context.Context) reconcile.Result {
	GinkgoHelper()
	for range 10 {
		before := len(e.api.written())
		result, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		if len(e.api.written()) == before {
			return result
		}
	}
	Fail("still writing after 10 reconciliations: " + strings.Join(e.api.written(), ", "))
	return reconcile.Result{}
}

// machine returns a machine with its notes as annotations of their own. It can be written as well: these are read.
func (e *environment) machine(ctx context.Context, name string) *machinev1alpha1.Machine {
	GinkgoHelper()
	machine := &machinev1alpha1.Machine{}
	Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, machine)).To(Succeed())
	machine.Annotations = Noted(machine)
	return machine
}

func (e *environment) node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(e.shoot.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

// editMachine changes a machine behind the Reconciler's back.
func (e *environment) editMachine(ctx context.Context, name string, opts ...MachineOption) {
	GinkgoHelper()
	editMachine(ctx, e.seed, name, opts...)
}

func editMachine(ctx context.Context, c client.Client, name string, opts ...MachineOption) {
	GinkgoHelper()
	machine := &machinev1alpha1.Machine{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, machine)).To(Succeed())
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	for _, opt := range opts {
		opt(machine)
	}
	status := machine.Status
	Expect(c.Update(ctx, machine)).To(Succeed())
	machine.Status = status
	Expect(c.Status().Update(ctx, machine)).To(Succeed())
}

// editNode changes a node's metadata and spec behind the Reconciler's back.
func (e *environment) editNode(ctx context.Context, name string, opts ...NodeOption) {
	GinkgoHelper()
	node := e.node(ctx, name)
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	for _, opt := range opts {
		opt(node)
	}
	Expect(e.shoot.Update(ctx, node)).To(Succeed())
}

// editNodeStatus changes a node's status behind the Reconciler's back.
func (e *environment) editNodeStatus(ctx context.Context, name string, opts ...NodeOption) {
	GinkgoHelper()
	node := e.node(ctx, name)
	for _, opt := range opts {
		opt(node)
	}
	Expect(e.shoot.Status().Update(ctx, node)).To(Succeed())
}

// heal makes a machine and its node healthy behind the Reconciler's back.
func (e *environment) heal(ctx context.Context, name string) {
	GinkgoHelper()
	e.editMachine(ctx, name, Phase(machinev1alpha1.MachineRunning, e.now()))
	e.editNodeStatus(ctx, name, Condition(corev1.NodeReady, corev1.ConditionTrue, "", ""))
}

// fail makes the machine one whose node has been away for as long as the health timeout.
func (e *environment) fail(ctx context.Context) {
	GinkgoHelper()
	e.editMachine(ctx, "m", failing(e.now()))
	e.editNodeStatus(ctx, "m", NotReady)
	e.settle(ctx)
}

// editSet changes a MachineSet behind the Reconciler's back.
func (e *environment) editSet(ctx context.Context, name string, opts ...SetOption) {
	GinkgoHelper()
	set := &machinev1alpha1.MachineSet{}
	Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, set)).To(Succeed())
	for _, opt := range opts {
		opt(set)
	}
	Expect(e.seed.Update(ctx, set)).To(Succeed())
}

// editDeployment changes the MachineDeployment behind the Reconciler's back.
func (e *environment) editDeployment(ctx context.Context, opts ...DeploymentOption) {
	GinkgoHelper()
	deployment := &machinev1alpha1.MachineDeployment{}
	Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "pool"}, deployment)).To(Succeed())
	for _, opt := range opts {
		opt(deployment)
	}
	Expect(e.seed.Update(ctx, deployment)).To(Succeed())
}

// nodes are the shoot's.
type nodes struct {
	client.Client
	known *bool
}

func (n nodes) Known() bool { return *n.known }

// recorder keeps Events in words, like "Machine/m Normal MachinePreserved: ...", with the reasons of decisions by their IDs, as in
// the Events' actions.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := "Machine"
	if _, isNode := regarding.(*corev1.Node); isNode {
		kind = "Node"
	}
	note = fmt.Sprintf(note, args...)
	if why := preservation.ReasonOf(action); !why.IsZero() {
		note = strings.Replace(note, why.Text, why.ID, 1)
	}
	r.events = append(r.events, fmt.Sprintf("%s/%s %s %s: %s", kind, regarding.(client.Object).GetName(), eventType, reason, note))
}

// take returns the Events since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.events
	r.events = nil
	return taken
}

// expectEvent says that exactly one Event was on the machine, and the same on its node.
func (e *environment) expectEvent(text string) {
	GinkgoHelper()
	Expect(e.recorder.take()).To(ConsistOf("Machine/m Normal "+text, "Node/m Normal "+text))
}

// margin is how long before its health deadline a machine is held (H4).
const margin = 30 * time.Second

// failing is a machine whose health deadline has just come.
func failing(now time.Time) MachineOption {
	return Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute))
}

// near is a machine whose health deadline has just come so near that the machine is to be held.
func near(now time.Time) MachineOption { return failing(now.Add(margin)) }

// with returns a node annotation that carries a request.
func with(request string) NodeOption { return NodeAnnotation(preserve, request) }

// maintainedFrom returns what a maintenance writes on a node that begins then.
func maintainedFrom(t time.Time) NodeOption {
	return NodeAnnotation(maintenance, t.UTC().Format(time.RFC3339))
}

// remediatedUntil is what a power cycle writes on a machine that is to be kept until then.
func remediatedUntil(t time.Time) MachineOption {
	return Annotation(remediation, t.UTC().Format(time.RFC3339))
}

// without removes an annotation from a node.
func without(key string) NodeOption { return func(n *corev1.Node) { delete(n.Annotations, key) } }
