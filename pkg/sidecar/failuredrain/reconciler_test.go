// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain_test

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failuredrain"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const until = "Machine preserved until 2026-03-04T13:00:00Z."

var maintained = NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "2026-03-01T12:00:00Z")

// drainer answers with what it is told to, and keeps what it was asked.
type drainer struct {
	progress drain.Progress
	err      error

	steps   int
	options drain.Options
	now     time.Time
	// forgotten are the nodes that it need not know any more.
	forgotten []string
}

func (d *drainer) Step(_ context.Context, _ *corev1.Node, options drain.Options, now time.Time) (drain.Progress, error) {
	d.steps++
	d.options, d.now = options, now
	return d.progress, d.err
}

func (d *drainer) Forget(node string) { d.forgotten = append(d.forgotten, node) }

// environment is a Reconciler of a node "m" and its machine "m".
type environment struct {
	seed, shoot client.WithWatch
	clock       *testclock.FakePassiveClock
	drainer     *drainer
	recorder    *events.FakeRecorder
	// writes counts the writes to the shoot, fault is what they are answered with.
	writes int
	fault  error
	// meanwhile, if set, is called once right before the next write.
	meanwhile func()

	*Reconciler
}

func newEnvironment(machine *machinev1alpha1.Machine, node *corev1.Node) *environment {
	GinkgoHelper()
	scheme := Scheme()
	seed := fakeclient.NewClientBuilder().WithScheme(scheme).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} })
	if machine != nil {
		seed.WithObjects(machine)
	}
	e := &environment{
		seed:     seed.Build(),
		clock:    testclock.NewFakePassiveClock(Start.Add(time.Hour)),
		drainer:  &drainer{progress: drain.Progress{Evicted: 1, Next: 5 * time.Second}},
		recorder: events.NewFakeRecorder(100),
	}
	shoot := fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{})
	if node != nil {
		shoot.WithObjects(node)
	}
	e.shoot = shoot.Build()
	e.restart()
	return e
}

// restart throws the Reconciler away and makes a new one.
func (e *environment) restart() {
	e.Reconciler = &Reconciler{
		Source: e.seed,
		Nodes: interceptor.NewClient(e.shoot, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				e.writes++
				if meanwhile := e.meanwhile; meanwhile != nil {
					e.meanwhile = nil
					meanwhile()
				}
				if e.fault != nil {
					return e.fault
				}
				return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
			},
		}),
		Drainer:  e.drainer,
		Timeouts: facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
		Clock:    e.clock,
		Recorder: e.recorder,
	}
}

func (e *environment) reconcile(ctx context.Context) (reconcile.Result, error) {
	return e.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "m"}})
}

func (e *environment) condition(ctx context.Context) *corev1.NodeCondition {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(e.shoot.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
	return preservation.PreservedCondition(node)
}

// told returns the Events since the last call.
func (e *environment) told() []string {
	var told []string
	for len(e.recorder.Events) > 0 {
		told = append(told, <-e.recorder.Events)
	}
	return told
}

var _ = Describe("Reconciler", func() {
	const forceKey = "machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes"

	var (
		forcing    = DeploymentAnnotation(forceKey, "true")
		deployment = func(opts ...DeploymentOption) *machinev1alpha1.MachineDeployment { return Deployment("pool", opts...) }
		set        = func(opts ...DeploymentOption) *machinev1alpha1.MachineSet { return Set("pool-1", deployment(opts...)) }

		now     = Start.Add(time.Hour)
		kept    = drain.Progress{Kept: 2, Next: 5 * time.Minute}
		blocked = drain.Progress{Waiting: 1, BlockedBy: []string{"namespace a: web"}, Next: 15 * time.Second}
		done    = drain.Progress{Done: true}

		held = func(opts ...MachineOption) *machinev1alpha1.Machine {
			return Machine("m", append([]MachineOption{Preserved("Failed:Preserved", "auto", now.Add(72*time.Hour))}, opts...)...)
		}
		// joined returns the machine, which failed with a health timer that was started then.
		joined = func(since time.Time, opts ...MachineOption) *machinev1alpha1.Machine {
			return held(append([]MachineOption{Annotation("machine-preservation.extensions.gardener.cloud/failed-since", since.Format(time.RFC3339))}, opts...)...)
		}
		at       = func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
		tainted  = Taint("node.machine.sapcloud.io/preserved", Start.Add(50*time.Minute))
		draining = func(opts ...NodeOption) *corev1.Node {
			return Node("m", append([]NodeOption{tainted, Condition("Preserved", corev1.ConditionTrue, "Draining", until)}, opts...)...)
		}
	)

	It("P7: should take a step of a drain that began with the taint, and look again when that says", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
		Expect(e.drainer.steps).To(Equal(1))
		Expect(e.drainer.options.Since).To(BeTemporally("==", Start.Add(50*time.Minute)))
		Expect(e.drainer.now).To(Equal(now))
		Expect(e.drainer.options.Timeout).To(Equal(2 * time.Hour))
	})

	Describe("what others see", func() {
		// said returns the reasons of the conditions by which others see a drain.
		said := func(ctx context.Context, e *environment) (reasons []string) {
			node := &corev1.Node{}
			Expect(e.shoot.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
			for _, c := range node.Status.Conditions {
				if drain.IsCondition(c.Type) {
					reasons = append(reasons, c.Reason)
				}
			}
			return reasons
		}
		run := func(ctx context.Context, e *environment) {
			GinkgoHelper()
			_, err := e.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
		}

		It("D13: should be written once when the drain ends, and nothing that nobody wants", func(ctx SpecContext) {
			e := newEnvironment(held(), draining())
			run(ctx, e)
			Expect(said(ctx, e)).To(BeEmpty())
			e.Conditions = true
			e.drainer.progress = blocked
			run(ctx, e)
			Expect(said(ctx, e)).To(BeEmpty(), "it began before")
			e.drainer.progress = done
			run(ctx, e)
			Expect(said(ctx, e)).To(ConsistOf("MachinePreservation", "MachinePreservation"))
			Expect(e.writes).To(Equal(3))
			run(ctx, e)
			Expect(e.writes).To(Equal(3))
		})

		It("D13: should not be written over what somebody else says meanwhile", func(ctx SpecContext) {
			e := newEnvironment(held(), draining())
			e.Conditions, e.drainer.progress = true, done
			e.meanwhile = func() {
				node := &corev1.Node{}
				Expect(e.shoot.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
				Condition("DrainInProgress", corev1.ConditionTrue, "KubectlDrainStarted", "")(node)
				Condition("Drained", corev1.ConditionFalse, "KubectlDrainStarted", "")(node)
				Expect(e.shoot.Status().Update(ctx, node)).To(Succeed())
			}
			_, err := e.reconcile(ctx)
			Expect(err).To(MatchError(apierrors.IsConflict, "IsConflict"))
			run(ctx, e)
			Expect(said(ctx, e)).To(ConsistOf("KubectlDrainStarted", "KubectlDrainStarted"))
			Expect(e.condition(ctx).Reason).To(Equal("Drained"))
		})

		DescribeTable("D13: should not stay behind", func(ctx SpecContext, conditions, strategies bool, node *corev1.Node, left ...string) {
			e := newEnvironment(nil, node)
			e.Conditions, e.Strategies = conditions, strategies
			run(ctx, e)
			Expect(said(ctx, e)).To(ConsistOf(left))
			writes := e.writes
			run(ctx, e)
			Expect(e.writes).To(Equal(writes))
			Expect(e.drainer.steps).To(BeZero())
		},
			Entry("on a node that nobody preserves", true, true, Node("m", Condition("Drained", corev1.ConditionTrue, "MachinePreservation", ""))),
			Entry("when nobody wants it any more", false, true, Node("m", Condition("Drained", corev1.ConditionTrue, "MachineUpdate", ""), Condition("DrainInProgress", corev1.ConditionTrue, "KubectlDrainStarted", "")), "KubectlDrainStarted"),
			Entry("of an update without strategies", true, false, Node("m", Condition("Drained", corev1.ConditionTrue, "MachineUpdate", ""))),
			Entry("but what is of an update does", true, true, Node("m", Condition("Drained", corev1.ConditionTrue, "MachineUpdate", "")), "MachineUpdate"),
			Entry("but what is of a maintenance is that one's", false, false, Node("m", Condition("Drained", corev1.ConditionTrue, "NodeMaintenance", "")), "NodeMaintenance"),
		)
	})

	DescribeTable("P7: whether pods with volumes may be deleted by force", func(ctx SpecContext, machine *machinev1alpha1.Machine, want bool, known ...client.Object) {
		e := newEnvironment(machine, draining())
		for _, object := range known {
			Expect(e.seed.Create(ctx, object)).To(Succeed())
		}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.steps).To(Equal(1))
		Expect(e.drainer.options.ForceVolumes).To(Equal(want))
	},
		Entry("the MachineDeployment says so", held(Of(set(forcing))), true, set(forcing), deployment(forcing)),
		Entry("it says nothing", held(Of(set())), false, set(), deployment()),
		Entry("it says something else", held(Of(set())), false, set(), deployment(DeploymentAnnotation(forceKey, "false"))),
		Entry("another one says so", held(Of(set())), false, set(), deployment(), Deployment("other", forcing)),
		Entry("the MachineDeployment is not known", held(Of(set(forcing))), false, set(forcing)),
		Entry("the MachineSet is not known", held(Of(set(forcing))), false, deployment(forcing)),
		Entry("the machine has no owner", held(), false, set(forcing), deployment(forcing)),
		Entry("the machine's owner does not control it", held(Of(set(forcing)), func(m *machinev1alpha1.Machine) {
			m.OwnerReferences[0].Controller = nil
		}), false, set(forcing), deployment(forcing)),
	)

	It("P7: should follow a change of whether pods with volumes may be deleted by force", func(ctx SpecContext) {
		e := newEnvironment(held(Of(set())), draining())
		pool := deployment(forcing)
		Expect(e.seed.Create(ctx, set())).To(Succeed())
		Expect(e.seed.Create(ctx, pool)).To(Succeed())
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.options.ForceVolumes).To(BeTrue())

		pool.Annotations = nil
		Expect(e.seed.Update(ctx, pool)).To(Succeed())
		_, err = e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.options.ForceVolumes).To(BeFalse())
	})

	It("P7: should take no step when the owners cannot be read", func(ctx SpecContext) {
		e := newEnvironment(held(Of(set())), draining())
		e.Source = interceptor.NewClient(e.seed, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("no connection")
			},
		})
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError("failed to look up the MachineSet of m: no connection"))
		Expect(e.drainer.steps).To(BeZero())
	})

	It("P7: should take the machine's own drain timeout over the default", func(ctx SpecContext) {
		e := newEnvironment(held(func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: time.Minute}}
		}), draining())
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.options.Timeout).To(Equal(time.Minute))
	})

	DescribeTable("P7: what is not drained", func(ctx SpecContext, machine *machinev1alpha1.Machine, node *corev1.Node) {
		e := newEnvironment(machine, node)
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.steps).To(BeZero())
		Expect(e.writes).To(BeZero())
		Expect(e.told()).To(BeEmpty())
	},
		Entry("a node that is gone", held(), nil),
		Entry("the node of a machine that is not preserved", Machine("m"), draining()),
		Entry("the node of a preserved machine that has not failed", Machine("m", Preserved("Running:Preserved", "now", now.Add(time.Hour))), draining()),
		Entry("the node of a machine that is deleted", held(Deleted(now)), draining()),
		Entry("a node without a machine", nil, draining()),
		Entry("the node of a machine that is deleted, on which pods were kept", held(Deleted(now)), draining(Condition("Preserved", corev1.ConditionTrue, "PodsKept", until))),
		Entry("the node of another machine", held(func(m *machinev1alpha1.Machine) { m.Labels["node"] = "other" }), draining()),
		Entry("a node without the taint", held(), Node("m", Condition("Preserved", corev1.ConditionTrue, "Draining", until))),
		Entry("a node without the condition", held(), Node("m", tainted)),
		Entry("a node whose preservation has ended", held(), draining(Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", ""))),
		Entry("a node whose condition is not true", held(), draining(Condition("Preserved", corev1.ConditionFalse, "Draining", until))),
		Entry("a node that is drained", held(), draining(Condition("Preserved", corev1.ConditionTrue, "Drained", "Preserved node drained successfully. "+until))),
	)

	It("M12: should leave the node to a maintenance that goes on although the machine is kept for it no longer", func(ctx SpecContext) {
		e := newEnvironment(held(), draining(maintained))
		e.Maintenance = true
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{}), "it is looked at when that is over")
		Expect(e.drainer.steps).To(BeZero())
		Expect(e.drainer.forgotten).To(ConsistOf("m"))

		e.Maintenance = false // the feature is disabled, and nobody takes the mark away
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
		Expect(e.drainer.steps).To(Equal(1))
	})

	DescribeTable("P14: a node that says that it was selected for an update in place", func(ctx SpecContext, steps int, newest ...client.Object) {
		e := newEnvironment(held(Of(set())), draining(Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", "")))
		for _, object := range append(newest, deployment(), set()) {
			Expect(e.seed.Create(ctx, object)).To(Succeed())
		}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.steps).To(Equal(steps))
	},
		Entry("is machine-controller-manager's where there is a newer MachineSet", 0, Set("pool-2", deployment(), Revision("2"))),
		Entry("is drained where there is none: the shoot can write that as it likes", 1),
		Entry("is drained where there is one of another MachineDeployment only", 1, Set("other-2", Deployment("other"), Revision("2"))),
	)

	DescribeTable("P11: progress in the condition and in Events", func(ctx SpecContext, progress drain.Progress, reason, message string, told ...string) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = progress
		for range 3 {
			_, err := e.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			e.clock.SetTime(e.clock.Now().Add(15 * time.Second))
		}
		Expect(e.condition(ctx)).To(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", reason), HaveField("Message", message)))
		Expect(e.writes).To(Equal(1), "what has not changed is not written")
		Expect(e.told()).To(ConsistOf(told))
	},
		Entry("evicted", drain.Progress{Evicted: 2, Waiting: 1, Next: time.Second}, "Draining", "Pods: 2 evicted, 1 terminating. "+until),
		Entry("blocked", blocked, "DrainBlocked", "Pods: 1 terminating; blocked: namespace a: web. "+until,
			"Warning PreservedNodeDrainBlocked Pods: 1 terminating; blocked: namespace a: web."),
		Entry("forced", drain.Progress{Forced: 2, Next: time.Second}, "Draining", "Pods: 2 deleted by force. "+until,
			"Warning PreservedNodeDrainForced The drain timeout has passed. Pods: 2 deleted by force."),
		Entry("forced with volumes", drain.Progress{Forced: 2, ForcedWithVolumes: 1, Next: time.Second}, "Draining",
			"Pods: 2 deleted by force, 1 of them with volumes that the VM may still use. "+until,
			"Warning PreservedNodeDrainForced The drain timeout has passed. Pods: 2 deleted by force, 1 of them with volumes that the VM may still use."),
		Entry("done", done, "Drained", "Preserved node drained successfully. "+until,
			"Normal PreservedNodeDrained The node of a preserved machine is drained. Pods: none."),
		Entry("done but for pods with volumes", kept, "PodsKept",
			"Preserved node drained successfully. Pods: 2 kept, because they use volumes and the VM may still run them. "+until,
			"Warning PreservedNodePodsKept The drain timeout has passed. Pods: 2 kept, because they use volumes and the VM may still run them."),
		Entry("kept, and others forced", drain.Progress{Forced: 1, Kept: 2, Next: time.Second}, "Draining",
			"Pods: 1 deleted by force, 2 kept, because they use volumes and the VM may still run them. "+until,
			"Warning PreservedNodeDrainForced The drain timeout has passed. Pods: 1 deleted by force, 2 kept, because they use volumes and the VM may still run them."),
		Entry("D6: kept by finalizers", drain.Progress{Finalizing: []string{"shop/a (acme.com/backup)"}, Next: time.Second}, "Draining",
			"Pods: kept by finalizers: shop/a (acme.com/backup). "+until),
		Entry("D6: deleted again", drain.Progress{Returned: 2, Again: 1, Next: time.Second}, "Draining",
			"Pods: 2 came back after others of their owner were deleted by force. "+until),
		Entry("kept, as far as is known", drain.Progress{Kept: 2, Partial: true, Next: time.Second}, "Draining",
			"Pods: 2 kept, because they use volumes and the VM may still run them; other pods follow. "+until),
	)

	It("D6: should tell once whose pods come back, also when it cannot be written", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = drain.Progress{Returned: 1, Again: 1, NewReturns: []string{"shop/Agent a"}, Next: time.Second}
		e.fault = errors.New("denied")
		_, err := e.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		e.fault, e.drainer.progress.NewReturns = nil, nil
		_, err = e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.told()).To(ConsistOf("Warning PreservedNodePodsCameBack Pods came back after they were deleted by force. They are deleted again, " +
			"with their grace period, at growing intervals of up to 5m0s: pods of shop/Agent a"))
	})

	It("P7: should not forget pods that are kept, nor machine-controller-manager let drain them, until the last is gone", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = kept
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Minute}))
		Expect(e.told()).To(HaveLen(1))

		e.restart()
		e.drainer.progress.Kept = 1
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Minute}))
		Expect(e.drainer.steps).To(Equal(2))
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "PodsKept"), HaveField("Message", And(
			ContainSubstring(machinev1alpha1.PreservedNodeDrainSuccessful), ContainSubstring("Pods: 1 kept, because "), HaveSuffix(" "+until)))))
		Expect(e.told()).To(BeEmpty())

		e.drainer.progress = drain.Progress{Forced: 1, Next: time.Second}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "Draining"), HaveField("Message", "Pods: 1 deleted by force. "+until)))
		e.told()

		e.drainer.progress = done
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{}))
		Expect(e.condition(ctx)).To(And(HaveField("Reason", "Drained"), HaveField("Message", "Preserved node drained successfully. "+until)))
		Expect(e.told()).To(ConsistOf(HavePrefix("Normal PreservedNodeDrained ")))
	})

	DescribeTable("P7: when the drain began, whatever is on the node", func(ctx SpecContext, machine *machinev1alpha1.Machine, added *metav1.Time, transition, want time.Time) {
		node := draining()
		node.Spec.Taints[0].TimeAdded = added
		preservation.PreservedCondition(node).LastTransitionTime = metav1.NewTime(transition)
		e := newEnvironment(machine, node)
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.options.Since).To(BeTemporally("==", want))
	},
		Entry("with the taint", joined(now.Add(-40*time.Minute)), at(now.Add(-20*time.Minute)), time.Time{}, now.Add(-20*time.Minute)),
		Entry("at the deadline of its health when the taint is backdated", joined(now.Add(-40*time.Minute)), at(now.Add(-72*time.Hour)), time.Time{}, now.Add(-30*time.Minute)),
		Entry("at the deadline when the taint is from before that", joined(now.Add(-40*time.Minute)), at(now.Add(-31*time.Minute)), time.Time{}, now.Add(-30*time.Minute)),
		Entry("at the deadline by the machine's own health timeout", joined(now.Add(-40*time.Minute), func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 25 * time.Minute}}
		}), at(now.Add(-72*time.Hour)), time.Time{}, now.Add(-15*time.Minute)),
		Entry("at the deadline of its creation when it never joined", held(), at(now.Add(-72*time.Hour)), time.Time{}, Start.Add(20*time.Minute)),
		Entry("not before now when the deadline is near", joined(now.Add(-10*time.Minute+30*time.Second)), at(now), time.Time{}, now),
		Entry("at the deadline when the taint is of the future", joined(now.Add(-40*time.Minute)), at(now.Add(72*time.Hour)), time.Time{}, now.Add(-30*time.Minute)),
		Entry("now when the clock that the taint is by was ahead", joined(now.Add(-40*time.Minute)), at(now.Add(30*time.Second)), time.Time{}, now),
		Entry("with the condition when the taint has no time", joined(now.Add(-40*time.Minute)), nil, now.Add(-20*time.Minute), now.Add(-20*time.Minute)),
		Entry("at the deadline when neither has", joined(now.Add(-40*time.Minute)), nil, time.Time{}, now.Add(-30*time.Minute)),
		Entry("at the deadline when the condition is of before", joined(now.Add(-40*time.Minute)), nil, now.Add(-72*time.Hour), now.Add(-30*time.Minute)),
		Entry("now when nobody knows", joined(time.Time{}), nil, time.Time{}, now),
	)

	It("P7: should time out although somebody keeps the taint in the future", func(ctx SpecContext) {
		node := draining()
		e := newEnvironment(joined(now.Add(-40*time.Minute)), node)
		for range 10 {
			current := &corev1.Node{}
			Expect(e.shoot.Get(ctx, client.ObjectKeyFromObject(node), current)).To(Succeed())
			current.Spec.Taints[0].TimeAdded = at(e.clock.Now().Add(time.Hour))
			Expect(e.shoot.Update(ctx, current)).To(Succeed())
			_, err := e.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			e.clock.SetTime(e.clock.Now().Add(time.Hour))
		}
		Expect(e.drainer.now).To(BeTemporally(">", e.drainer.options.Since.Add(e.drainer.options.Timeout)))
	})

	DescribeTable("P7: which nodes are forgotten", func(ctx SpecContext, machine *machinev1alpha1.Machine, node *corev1.Node, want ...string) {
		e := newEnvironment(machine, node)
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.drainer.forgotten).To(ConsistOf(want))
	},
		Entry("one that is gone", held(), nil, "m"),
		Entry("one that is not drained any more", held(), Node("m"), "m"),
		Entry("one that machine-controller-manager drains", held(Deleted(now)), draining(), "m"),
		Entry("one that has no machine any more", nil, draining(), "m"),
		Entry("not one that is drained", held(), draining()),
	)

	It("P7: should not wait for a write that is not answered", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.Nodes = interceptor.NewClient(e.shoot, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, _ client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
				deadline, ok := ctx.Deadline()
				Expect(ok).To(BeTrue())
				Expect(time.Until(deadline)).To(BeNumerically("<=", 5*time.Second))
				return context.DeadlineExceeded
			},
		})
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(context.DeadlineExceeded))
	})

	It("P11: should tell no more than an Event can carry", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = drain.Progress{BlockedBy: []string{strings.Repeat("ä", 800)}, Next: time.Second}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		told := e.told()
		Expect(told).To(HaveLen(1))
		note := strings.TrimPrefix(told[0], "Warning PreservedNodeDrainBlocked ")
		Expect(len(note)).To(And(BeNumerically("<=", 1024), BeNumerically(">", 1000)))
		Expect(utf8.ValidString(note)).To(BeTrue())
	})

	It("P7: should take no step after the last, and not look again", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = done
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{}))
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{}))
		Expect(e.drainer.steps).To(Equal(1))
	})

	It("P11: should tell once that it is blocked, and again when it is blocked anew", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		for _, progress := range []drain.Progress{blocked, {Evicted: 1, BlockedBy: []string{"namespace a: web"}, Next: time.Second}, {Evicted: 1, Next: time.Second}, blocked, done} {
			e.drainer.progress = progress
			_, err := e.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(e.told()).To(HaveExactElements(HavePrefix("Warning PreservedNodeDrainBlocked "), HavePrefix("Warning PreservedNodeDrainBlocked "), HavePrefix("Normal PreservedNodeDrained ")))
	})

	It("P8: should carry on after a restart, with the same begin and without telling twice", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = blocked
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		e.told()

		e.restart()
		e.clock.SetTime(now.Add(time.Hour))
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 15 * time.Second}))
		Expect(e.drainer.options.Since).To(BeTemporally("==", Start.Add(50*time.Minute)))
		Expect(e.told()).To(BeEmpty())
		Expect(e.writes).To(Equal(1))
	})

	It("should go on, and show what there is, when a step was incomplete", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress.Incomplete = errors.New("no connection")
		Expect(e.reconcile(ctx)).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
		Expect(e.condition(ctx).Message).To(Equal("Pods: 1 evicted. " + until))
	})

	It("should return the error, and tell nothing, when the progress cannot be written", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.drainer.progress = done
		e.fault = apierrors.NewInternalError(errors.New("etcd is not well"))
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError(e.fault))
		Expect(e.told()).To(BeEmpty())
		e.fault = nil
		_, err = e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.told()).To(HaveLen(1))
	})

	It("should take a node that vanishes for one that needs nothing", func(ctx SpecContext) {
		e := newEnvironment(held(), draining())
		e.fault = apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "m")
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
	})

	It("P11: should not say that there are no pods when they cannot be listed", func(ctx SpecContext) {
		e := newEnvironment(held(), draining(Condition("Preserved", corev1.ConditionTrue, "DrainBlocked", "Pods: 1 terminating; blocked: namespace a: web. "+until)))
		e.drainer.progress, e.drainer.err = drain.Progress{}, errors.New("no connection")
		_, err := e.reconcile(ctx)
		Expect(err).To(MatchError("no connection"))
		Expect(e.condition(ctx).Message).NotTo(ContainSubstring("none"))
	})

	It("P7: should look again when the cache does not know yet that the machine has failed", func(ctx SpecContext) {
		e := newEnvironment(Machine("m"), draining())
		result, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0), "the node's update that brought this about does not come again")
	})

	It("P7: should not take a taint without a time for a drain that has timed out", func(ctx SpecContext) {
		untimed := draining()
		untimed.Spec.Taints[0].TimeAdded = nil // as newer versions of machine-controller-manager may put it on
		e := newEnvironment(held(), untimed)
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		if e.drainer.steps > 0 {
			Expect(e.drainer.options.Since).To(BeTemporally(">", now.Add(-2*time.Hour)))
		}
	})
})

var _ = Describe("Watch", func() {
	var (
		taint     = Taint("node.machine.sapcloud.io/preserved", Start)
		condition = func(reason string) NodeOption { return Condition("Preserved", corev1.ConditionTrue, reason, until) }
		ready     = func(status corev1.ConditionStatus) NodeOption { return Condition("Ready", status, "", "") }
		selected  = Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", "")
		shown     = Condition("Drained", corev1.ConditionTrue, "MachinePreservation", "")
	)

	DescribeTable("P7: a change that a step depends on", func(before, after *corev1.Node, want bool) {
		Expect(DrainChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("with the condition", Node("m", taint), Node("m", taint, condition("Draining")), true),
		Entry("anew", Node("m", condition("Preserved")), Node("m", taint, condition("Draining")), true),
		Entry("not with the taint alone", Node("m"), Node("m", taint), false),
		Entry("not with its own progress, which the requeue follows", Node("m", taint, condition("Draining")), Node("m", taint, condition("DrainBlocked")), false),
		Entry("when the node answers again", Node("m", taint, condition("PodsKept"), ready(corev1.ConditionUnknown)), Node("m", taint, condition("PodsKept"), ready(corev1.ConditionTrue)), true),
		Entry("when the node answers no more", Node("m", taint, condition("Draining")), Node("m", taint, condition("Draining"), ready(corev1.ConditionUnknown)), true),
		Entry("not when it answers as little as before", Node("m", taint, condition("Draining"), ready(corev1.ConditionFalse)), Node("m", taint, condition("Draining"), ready(corev1.ConditionUnknown)), false),
		Entry("not when it is not draining", Node("m", ready(corev1.ConditionUnknown)), Node("m"), false),
		Entry("when it is updated in place", Node("m", taint, condition("Draining")), Node("m", taint, condition("Draining"), selected), true),
		Entry("when it no longer is", Node("m", taint, condition("Draining"), selected), Node("m", taint, condition("Draining")), true),
		Entry("M12: when it is under maintenance", Node("m", taint, condition("Draining")), Node("m", taint, condition("Draining"), maintained), true),
		Entry("M12: when that is over", Node("m", taint, condition("Draining"), maintained), Node("m", taint, condition("Draining")), true),
		Entry("not with pods that are kept", Node("m", taint, condition("Draining")), Node("m", taint, condition("PodsKept")), false),
		Entry("not with its end", Node("m", taint, condition("Draining")), Node("m", taint, condition("Drained")), false),
		Entry("D13: when what others see is left behind", Node("m", taint, condition("Drained"), shown), Node("m", taint, shown), true),
		Entry("D13: when it comes without a drain", Node("m"), Node("m", shown), true),
		Entry("D13: not as long as it is like that", Node("m", shown), Node("m", shown, ready(corev1.ConditionUnknown)), false),
		Entry("D13: not with what somebody else says", Node("m"), Node("m", Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "")), false),
	)

	DescribeTable("P8: a node that is there when the controller starts", func(ctx SpecContext, node *corev1.Node, want int) {
		Expect(RequestOf(ctx, node)).To(HaveLen(want))
	},
		Entry("draining", Node("m", taint, condition("Draining")), 1),
		Entry("blocked", Node("m", taint, condition("DrainBlocked")), 1),
		Entry("with pods that are kept", Node("m", taint, condition("PodsKept")), 1),
		Entry("drained", Node("m", taint, condition("Drained")), 0),
		Entry("preserved, not failed", Node("m", condition("Preserved")), 0),
		Entry("any other", Node("m"), 0),
		Entry("D13: with something that is left behind", Node("m", shown), 1),
		Entry("D13: with something of somebody else's", Node("m", Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "")), 0),
	)
})
