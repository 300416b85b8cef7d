// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/metal3"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix    = "machine-preservation.extensions.gardener.cloud/"
	needs     = "host.metal3.io/external-remediation"
	reboot    = "reboot.metal3.io/machine-remediation"
	owner     = prefix + "power-cycle-owner"
	phase     = prefix + "power-cycle-phase"
	settings  = prefix + "power-cycle-settings"
	request   = prefix + "power-cycle"
	kept      = prefix + "remediation"
	finalizer = prefix + "host"
	forbidden = prefix + "forbidden"

	outOfService = "node.kubernetes.io/out-of-service"
)

var (
	request1     = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: builder.Namespace, Name: "pool"}}
	request2     = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: builder.Namespace, Name: "pool-2"}}
	noDeployment = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: builder.Namespace}}
	hostKind     = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
)

// environment is a Reconciler and a Sweeper with the objects of a seed, a shoot and hosts.
type environment struct {
	// c is what the API servers have.
	c     client.WithWatch
	clock *testclock.FakePassiveClock
	// calls are all calls to an API server, in words, and writes those that write.
	mutex         sync.Mutex
	calls, writes []string
	// fail is asked before each call to an API server.
	fail func(call string, isWrite bool) error
	// meanwhile is called before each call to an API server, and cached before each read from a cache.
	meanwhile func(call string)
	cached    func()
	// contents is what is left on nodes.
	contents remediation.NodeContents
	// away says that the shoot's API server is, back since when it is again, and unknown that hosts are not known.
	away, unknown bool
	back          time.Time
	boots         int
	events        []string

	*Reconciler
	*Sweeper
}

// newEnvironment returns one of machines with hosts and nodes that are healthy: those up to an empty name in the first pool, the
// others in the second.
func newEnvironment(names ...string) *environment {
	GinkgoHelper()
	scheme := builder.Scheme()
	var (
		objects []client.Object
		set     *machinev1alpha1.MachineSet
	)
	pool := func(name string) {
		deployment := builder.Deployment(name, builder.DeploymentAnnotation(settings, "{}"))
		set = builder.Set(name+"-set", deployment)
		objects = append(objects, deployment, set)
	}
	pool(request1.Name)
	e := &environment{clock: testclock.NewFakePassiveClock(builder.Start.Add(58 * time.Minute)), fail: func(string, bool) error { return nil }, meanwhile: func(string) {}, cached: func() {}}
	for _, name := range names {
		if name == "" {
			pool(request2.Name)
			continue
		}
		node := builder.Node(name, func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = e.newBootID()
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(builder.Start)
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{ // of the node-problem-detector, which starts after the kubelet
				Type: kernelDeadlock, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(builder.Start.Add(time.Minute)),
			})
		})
		objects = append(objects, builder.Machine(name, builder.Of(set), builder.Annotation("metal3.io/BareMetalHost", "hosts/"+name)), node, newHost(name))
	}
	e.c = builder.NewClientBuilder(scheme).WithObjects(objects...).
		WithStatusSubresource(&machinev1alpha1.Machine{}, &corev1.Node{}).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} }).
		Build()
	e.restart()
	for range 2 { // nobody has asked for anything for a minute
		for _, request := range []reconcile.Request{request1, request2} {
			_, err := e.Reconciler.Reconcile(context.Background(), request)
			Expect(err).NotTo(HaveOccurred())
		}
		e.pass(time.Minute)
	}
	return e
}

func newHost(name string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {namespace: hosts, name: %[1]s, uid: host-%[1]s}
spec:
  online: true
  consumerRef: {apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, namespace: %[2]s, name: %[1]s}
status: {poweredOn: true, operationalStatus: OK, provisioning: {state: provisioned}}
`, name, builder.Namespace), &u.Object)).To(Succeed())
	return u
}

func (e *environment) newBootID() string {
	e.boots++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", e.boots)
}

// restart throws the controllers away and makes new ones.
func (e *environment) restart() {
	cached, direct := e.intercept(false), e.intercept(true)
	driver := &host.Driver{Kind: metal3.Kind{}, Access: host.Access{Namespace: builder.Namespace, HostNamespace: "hosts", Cached: cached, APIReader: direct, Writer: direct}}
	known := func() *host.Driver {
		if e.unknown {
			return nil
		}
		return driver
	}
	e.Reconciler = &Reconciler{
		Source:       cached,
		SourceReader: direct,
		Nodes:        nodes{cached, direct, e},
		Driver:       known,
		ReadNodeContents: func(context.Context, string) (remediation.NodeContents, error) {
			return e.contents, e.called("read what is left", false)
		},
		Seed:           "seed",
		QuietTime:      remediation.DefaultQuietTime,
		Timeouts:       facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
		NodeConditions: facts.DefaultNodeConditions,
		Clock:          e.clock,
		Leading:        &pace.Leading{},
		Counting:       semaphore.NewWeighted(1),
		Recorder:       e,
		ShootRecorder:  e,
	}
	e.Sweeper = &Sweeper{Source: cached, SourceReader: direct, Driver: known, Seed: "seed"}
}

func (e *environment) called(call string, isWrite bool) error {
	e.meanwhile(call)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.calls = append(e.calls, call)
	if isWrite {
		e.writes = append(e.writes, call)
	}
	return e.fail(call, isWrite)
}

// kernelDeadlock is a condition that makes a machine unhealthy (H1).
const kernelDeadlock corev1.NodeConditionType = "KernelDeadlock"

// intercept returns a client whose reads are those of a cache, or of an API server.
func (e *environment) intercept(live bool) client.WithWatch {
	patch := func(obj client.Object, suffix string, do func() error) error {
		call := fmt.Sprintf("patch %s/%s%s", kindOf(obj), obj.GetName(), suffix)
		if err := e.called(call, true); errors.Is(err, errAnswerLost) {
			return errors.Join(err, do())
		} else if err != nil {
			return err
		}
		return do()
	}
	return interceptor.NewClient(e.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if live {
				if err := e.called(fmt.Sprintf("get %s/%s", kindOf(obj), key.Name), false); err != nil {
					return err
				}
			} else {
				e.cached()
			}
			err := c.Get(ctx, key, obj, opts...)
			if node, ok := obj.(*corev1.Node); ok && !live { // the cache leaves away what others say that is not wrong with a node
				node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == kernelDeadlock && c.Status == corev1.ConditionFalse
				})
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if live {
				if err := e.called(fmt.Sprintf("list %T", list), false); err != nil {
					return err
				}
			}
			if o := (&client.ListOptions{}).ApplyOptions(opts); !live && o.Continue != "" {
				return errors.New("continue list option is not supported by the cache")
			}
			err := c.List(ctx, list, opts...)
			if !live {
				list.SetContinue("continue-not-supported")
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return patch(obj, "", func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return patch(obj, "/"+sub, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
	})
}

// errAnswerLost is the error of a write that was made.
var errAnswerLost = errors.New("the answer is lost")

func kindOf(obj client.Object) string {
	switch obj.(type) {
	case *machinev1alpha1.Machine:
		return "Machine"
	case *corev1.Node:
		return "Node"
	case *unstructured.Unstructured:
		return "Host"
	}
	return fmt.Sprintf("%T", obj)
}

type nodes struct {
	client.Client
	direct client.Reader
	e      *environment
}

func (n nodes) GetAPIReader() client.Reader { return n.direct }

func (n nodes) Synced() bool    { return !n.e.away }
func (n nodes) Back() time.Time { return n.e.back }

// Eventf implements events.EventRecorder.
func (e *environment) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	e.events = append(e.events, fmt.Sprintf("%s %s %s: %s", kindOf(regarding.(client.Object)), eventType, reason, fmt.Sprintf(note, args...)))
}

// round lets both controllers look once.
func (e *environment) round(ctx context.Context) (reconcile.Result, error) {
	result, err := e.Reconciler.Reconcile(ctx, request1)
	_, sweepErr := e.Sweeper.Reconcile(ctx, noDeployment)
	e.keep(ctx)
	return result, errors.Join(err, sweepErr)
}

// keep does what keeps machines: it claims those that are to be.
func (e *environment) keep(ctx context.Context) {
	GinkgoHelper()
	list := &machinev1alpha1.MachineList{}
	Expect(e.c.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		m := &list.Items[i]
		until, ok := m.Annotations[kept]
		if ok == metav1.HasAnnotation(m.ObjectMeta, v1alpha1.AnnotationCause) {
			continue
		}
		e.edit(ctx, m, func() {
			delete(m.Annotations, v1alpha1.AnnotationCause)
			delete(m.Annotations, v1alpha1.AnnotationExpiryTime)
			if ok {
				m.Annotations[v1alpha1.AnnotationCause], m.Annotations[v1alpha1.AnnotationExpiryTime] = v1alpha1.CauseRemediation, until
			}
		})
	}
}

// settle lets the controllers look until nothing is written any more, and returns when they look again.
func (e *environment) settle(ctx context.Context) time.Duration {
	GinkgoHelper()
	for range 20 {
		before := len(e.writes)
		result, err := e.round(ctx)
		Expect(err).NotTo(HaveOccurred())
		if len(e.writes) == before {
			return result.RequeueAfter
		}
	}
	Fail("still writing: " + strings.Join(e.writes, ", "))
	return 0
}

func (e *environment) pass(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

func (e *environment) machine(ctx context.Context, name string) *machinev1alpha1.Machine {
	GinkgoHelper()
	machine := &machinev1alpha1.Machine{}
	Expect(e.c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: name}, machine)).To(Succeed())
	return machine
}

func (e *environment) phase(ctx context.Context, name string) string {
	GinkgoHelper()
	return e.machine(ctx, name).Annotations[phase]
}

func (e *environment) node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(e.c.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

func (e *environment) host(ctx context.Context, name string) *unstructured.Unstructured {
	GinkgoHelper()
	u := host.New(hostKind)
	Expect(e.c.Get(ctx, client.ObjectKey{Namespace: "hosts", Name: name}, u)).To(Succeed())
	return u
}

// beReleased matches a host with no request, which may know of cycles that it has had (X20).
func beReleased() gomegatypes.GomegaMatcher {
	return And(
		WithTransform(func(u *unstructured.Unstructured) *remediation.Owner { return host.OwnerOf(u) }, BeNil()),
		WithTransform(func(u *unstructured.Unstructured) []string { return slices.Collect(maps.Keys(u.GetAnnotations())) }, Or(BeEmpty(), ConsistOf(owner))),
	)
}

func (e *environment) edit(ctx context.Context, obj client.Object, edit func()) {
	GinkgoHelper()
	edit()
	Expect(e.c.Update(ctx, obj)).To(Succeed())
}

// ask sets what a health checker does.
func (e *environment) ask(ctx context.Context, name string) {
	GinkgoHelper()
	m := e.machine(ctx, name)
	e.edit(ctx, m, func() { metav1.SetMetaDataAnnotation(&m.ObjectMeta, needs, "") })
}

// hang makes a node not ready.
func (e *environment) hang(ctx context.Context, name string) {
	GinkgoHelper()
	n := e.node(ctx, name)
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(e.clock.Now())
	Expect(e.c.Status().Update(ctx, n)).To(Succeed())
}

// power lets the host do what it is asked for, and its node with it.
func (e *environment) power(ctx context.Context, name string) {
	GinkgoHelper()
	h := e.host(ctx, name)
	_, off := h.GetAnnotations()[reboot]
	if on, _, _ := unstructured.NestedBool(h.Object, "status", "poweredOn"); on == !off {
		return
	}
	e.edit(ctx, h, func() { Expect(unstructured.SetNestedField(h.Object, !off, "status", "poweredOn")).To(Succeed()) })
	n := e.node(ctx, name)
	if off {
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
	} else {
		n.Status.Conditions[0].Status, n.Status.NodeInfo.BootID = corev1.ConditionTrue, e.newBootID()
	}
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(e.clock.Now())
	Expect(e.c.Status().Update(ctx, n)).To(Succeed())
}

func (e *environment) tainted(ctx context.Context, name string) bool {
	GinkgoHelper()
	return slices.ContainsFunc(e.node(ctx, name).Spec.Taints, func(t corev1.Taint) bool { return t.Key == outOfService })
}

// cycle lets a whole cycle go on until nothing happens any more.
func (e *environment) cycle(ctx context.Context, name string) {
	GinkgoHelper()
	for range 6 {
		e.settle(ctx)
		e.power(ctx, name)
	}
	e.settle(ctx)
}

// lagging is a cache that knows an object as it was.
type lagging struct {
	client.Client
	old client.Object
}

// Get implements client.Reader.
func (l lagging) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if key.Name == l.old.GetName() {
		switch obj := obj.(type) {
		case *corev1.Node:
			l.old.(*corev1.Node).DeepCopyInto(obj)
			return nil
		case *unstructured.Unstructured:
			l.old.(*unstructured.Unstructured).DeepCopyInto(obj)
			return nil
		}
	}
	return l.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (l lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := l.Client.List(ctx, list, opts...)
	switch list := list.(type) {
	case *machinev1alpha1.MachineList:
		for i := range list.Items {
			if list.Items[i].Name == l.old.GetName() {
				l.old.(*machinev1alpha1.Machine).DeepCopyInto(&list.Items[i])
			}
		}
	case *unstructured.UnstructuredList:
		for i := range list.Items {
			if list.Items[i].GetName() == l.old.GetName() {
				l.old.(*unstructured.Unstructured).DeepCopyInto(&list.Items[i])
			}
		}
	}
	return err
}
