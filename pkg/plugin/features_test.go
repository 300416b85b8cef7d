// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var _ = Describe("maintenance", func() {
	get := func(p *person, name string) error {
		return p.options.shoot.Get(context.Background(), client.ObjectKey{Namespace: "operators", Name: name}, &maintenancev1alpha1.NodeMaintenance{})
	}

	It("should be listed", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("maintenance list")).To(Succeed())
		golden.Expect("maintenance-list.txt", p.out.String())
	})

	It("should start, once", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("maintenance start over -n operators --delete-emptydir-data")).To(Succeed())
		golden.Expect("maintenance-start.txt", p.out.String())
		nm := &maintenancev1alpha1.NodeMaintenance{}
		Expect(p.options.shoot.Get(context.Background(), client.ObjectKey{Namespace: "operators", Name: "kubectl-preserve-over"}, nm)).To(Succeed())
		Expect(nm.Spec).To(Equal(maintenancev1alpha1.NodeMaintenanceSpec{
			NodeName: "over", RequestorID: "kubectl-preserve", Cordon: new(true), DrainSpec: &maintenancev1alpha1.DrainSpec{DeleteEmptyDir: true}}))
		Expect(p.runs("maintenance start over -n operators")).To(MatchError(ContainSubstring("kubectl-preserve already works on node over")))
	})

	It("should not be asked for on a node that does not exist", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("maintenance start nobody -n operators")).To(MatchError(ContainSubstring(`node "nobody" does not exist: see 'kubectl get nodes', and 'kubectl preserve list'`)))
		Expect(apierrors.IsNotFound(get(p, "kubectl-preserve-nobody"))).To(BeTrue())
	})

	It("should wait until it is ready, and tell the phases", func() {
		p := newPerson(append(shootObjects(), maintenanceOf("over", "me", "Draining")), nil)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
		})
		Expect(p.runs("maintenance start over -n operators --requestor me --wait --timeout 500ms")).To(
			MatchError("after 500ms, still waiting until the node is ready to be worked on: Draining Waits for 2 pods."))
	})

	It("should end what is one's own only", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("maintenance done works")).To(MatchError("--requestor=kubectl-preserve: does not work on node works, but firmware does. End only your own maintenances"))
		Expect(p.runs("maintenance done over")).To(MatchError(ContainSubstring("nobody works on node over")))
		Expect(get(p, "firmware-works")).To(Succeed())
		Expect(p.runs("maintenance done works --requestor firmware --dry-run=client")).To(Succeed())
		Expect(get(p, "firmware-works")).To(Succeed())
		Expect(p.runs("maintenance done works --requestor firmware --wait")).To(Succeed())
		Expect(apierrors.IsNotFound(get(p, "firmware-works"))).To(BeTrue())
	})

	It("should ask before it ends what may be a colleague's", func() {
		p := newPerson(append(shootObjects(), maintenanceOf("over", "kubectl-preserve", "Ready")), nil)
		Expect(p.runs("maintenance done over")).To(MatchError(ContainSubstring("and may be somebody else than you (nodemaintenance/kubectl-preserve-over in namespace operators")))
		Expect(get(p, "kubectl-preserve-over")).To(Succeed())
		Expect(p.runs("maintenance done over --yes")).To(Succeed())
		Expect(apierrors.IsNotFound(get(p, "kubectl-preserve-over"))).To(BeTrue())
	})

	DescribeTable("should say what it needs where there is none", func(args string) {
		p := newPerson(shootObjects(), nil)
		missing := apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			List:   func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return missing },
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return missing },
		})
		Expect(p.runs("maintenance " + args)).To(MatchError(errNoMaintenance))
	}, Entry("list", "list"), Entry("start", "start over"), Entry("done", "done over"))
})

var _ = Describe("power-cycle", func() {
	const key = ours + "power-cycle"
	phase := func(phase string, status corev1.ConditionStatus) NodeOption {
		return func(n *corev1.Node) {
			Condition("PowerCycle", status, phase, "")(n)
			n.Status.Conditions[len(n.Status.Conditions)-1].LastHeartbeatTime = metav1.NewTime(now)
		}
	}

	It("should wait for the end of one that waits for its begin", func() {
		p := newPerson(shootObjects(), nil)
		p.answers(key, "now", phase("Waiting", corev1.ConditionFalse))
		Expect(p.runs("power-cycle over --yes --wait --timeout 3s")).To(MatchError(ContainSubstring("it is Waiting")))
	})

	It("should tell that it is under way", func() {
		p := newPerson(shootObjects(), nil)
		p.answers(key, "now", phase("PoweringOff", corev1.ConditionTrue))
		Expect(p.runs("power-cycle over --yes")).To(Succeed())
		Expect(p.out.String()).To(HaveSuffix("node/over PoweringOff\n"))
	})

	It("should end as the power cycle ends", func() {
		p := newPerson(shootObjects(), nil)
		p.answers(key, "now", phase("Succeeded", corev1.ConditionFalse))
		Expect(p.runs("power-cycle over --yes --wait")).To(Succeed())
		p = newPerson(shootObjects(), nil)
		p.answers(key, "now", phase("Failed", corev1.ConditionFalse))
		Expect(p.runs("power-cycle over --yes --wait")).To(MatchError(ContainSubstring("the power cycle ended in phase Failed")))
	})

	It("should ask if the node is ready", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("power-cycle over")).To(MatchError(ContainSubstring("Node over is ready. Power off its host")))
		Expect(p.node("over").Annotations).NotTo(HaveKey(key))
	})

	taken := func(p *person, refused string) {
		p.options.patience = 100 * time.Millisecond
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := c.Patch(ctx, object, patch, opts...); err != nil || object.GetAnnotations()[key] == "" {
					return err
				}
				node := p.node("over")
				delete(node.Annotations, key)
				Expect(c.Update(ctx, node)).To(Succeed())
				if refused == "" {
					return nil
				}
				return c.Create(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: "default", UID: "refused"}, Reason: refused,
					Regarding: corev1.ObjectReference{Kind: "Node", Name: "over"}})
			},
		})
	}

	DescribeTable("X6, X11, X16: should tell by the Event that it is refused", func(reason, text string) {
		p := newPerson(shootObjects(), nil)
		taken(p, reason)
		Expect(p.runs("power-cycle over --yes")).To(MatchError(ContainSubstring(text)))
	},
		Entry("X11: because it is not allowed", "PowerCycleRefused", "the operators do not allow shoots to request power cycles"),
		Entry("X6: because there were as many as there may be", "PowerCycleOutOfAttempts", "power-cycled maxAttempts times"),
		Entry("X16: because the node has recovered", "PowerCycleRecovered", "Request it again in a minute"),
	)

	It("X4: should tell that it is taken and waits, and wait for its begin", func() {
		p := newPerson(shootObjects(), nil)
		taken(p, "")
		Expect(p.runs("power-cycle over --yes")).To(Succeed())
		Expect(p.out.String()).To(ContainSubstring("The power cycle begins as soon as nothing is in the way"))
		Expect(p.runs("power-cycle over --yes --wait --timeout 200ms")).To(MatchError(ContainSubstring("it is yet to begin")))
	})

	It("should not ask where it could not tell later whether that was refused", func() {
		p := newPerson(append(shootObjects(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "before", Namespace: "default", UID: "before"}, Reason: "PowerCycleRefused",
			Regarding: corev1.ObjectReference{Kind: "Node", Name: "over"}}), nil)
		taken(p, "")
		lists := 0
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*eventsv1.EventList); ok {
					if lists++; lists == 1 {
						return errors.New("it is away")
					}
				}
				return c.List(ctx, list, opts...)
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				Fail("it has asked")
				return nil
			},
		})
		Expect(p.runs("power-cycle over --yes")).To(MatchError(ContainSubstring("it is away")))
	})

	It("should withdraw the request if it is interrupted", func() {
		p := newPerson(shootObjects(), nil)
		ctx, stop := context.WithCancel(context.Background())
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				return cmp.Or(ctx.Err(), c.Get(ctx, key, object, opts...))
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				time.AfterFunc(100*time.Millisecond, stop)
				return cmp.Or(ctx.Err(), c.Patch(ctx, object, patch, opts...))
			},
		})
		err := p.runsIn(ctx, "power-cycle over --yes")
		Expect(p.node("over").Annotations).NotTo(HaveKey(key))
		Expect(err).To(And(MatchError(context.Canceled), MatchError(ContainSubstring("the request was withdrawn"))))
	})

	It("should print nothing that terminals obey", func() {
		p := newPerson(shootObjects(), nil)
		p.answers(key, "now", phase("Fai\x1b[31mled", corev1.ConditionFalse))
		Expect(p.runs("power-cycle over --yes --wait")).To(MatchError(ContainSubstring("the power cycle ended in phase Fai[31mled")))
		Expect(p.out.String()).To(HaveSuffix("node/over Fai[31mled\n"))
	})

	It("should withdraw the request if nobody answers, and say what it needs", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("power-cycle cycled")).To(Succeed(), "one is under way")
		p.options.patience = 50 * time.Millisecond
		Expect(p.runs("power-cycle over --yes")).To(MatchError(ContainSubstring("with powerCycle for the pool of this node")))
		Expect(p.node("over").Annotations).NotTo(HaveKey(key))
	})
})
