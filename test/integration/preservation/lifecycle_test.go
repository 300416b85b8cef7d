// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

const (
	preserve = "node.machine.sapcloud.io/preserve"
	prefix   = "machine-preservation.extensions.gardener.cloud/"
	disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM    = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

var _ = Describe("Lifecycle", func() {
	for name, generation := range sidecar.Generations {
		Context(name, Ordered, func() {
			var (
				api      *sidecar.Server
				machine  *machinev1alpha1.Machine
				node     *corev1.Node
				timeouts = facts.Timeouts{Health: time.Hour, Creation: time.Hour, Drain: 20 * time.Second} // a busy machine must have the time to see a drain that is blocked
			)

			getMachine := func(g Gomega, ctx SpecContext) *machinev1alpha1.Machine {
				g.Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
				return machine
			}
			getNode := func(g Gomega, ctx SpecContext) *corev1.Node {
				g.Expect(api.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
				return node
			}
			annotateNode := func(ctx SpecContext, key, value string) {
				GinkgoHelper()
				patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
				Expect(api.Patch(ctx, node, patch)).To(Succeed())
			}
			setReady := func(ctx SpecContext, status corev1.ConditionStatus) {
				GinkgoHelper()
				patch := client.RawPatch("application/strategic-merge-patch+json", fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status))
				Expect(api.Status().Patch(ctx, node, patch)).To(Succeed())
			}
			// newPod creates a pod on the node. No kubelet runs it or ends it.
			newPod := func(ctx SpecContext, name string) {
				GinkgoHelper()
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
					Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
				}
				Expect(api.Create(ctx, pod)).To(Succeed())
				pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
				Expect(api.Status().Update(ctx, pod)).To(Succeed())
			}

			BeforeAll(func(ctx SpecContext) {
				api = sidecar.Start(ctx, generation)
				set := sidecar.Pool(ctx, api, "pool", builder.Share("1"))
				node = sidecar.NewNode("node")
				Expect(api.Create(ctx, node)).To(Succeed())
				machine = sidecar.NewMachine("m", node.Name, set)
				status := machine.Status
				Expect(api.Create(ctx, machine)).To(Succeed())
				machine.Status = status
				Expect(api.Status().Update(ctx, machine)).To(Succeed())
				newPod(ctx, "free")
				newPod(ctx, "guarded")
				budget := &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: "guard", Namespace: "default"},
					Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
				}
				Expect(api.Create(ctx, budget)).To(Succeed())
				budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
				Expect(api.Status().Update(ctx, budget)).To(Succeed())
				sidecar.StartController(ctx, api, generation.Holder, timeouts, nil)
			}, NodeTimeout(10*time.Minute))

			It("T5 H4: should hold a machine whose deadline is near, and mark its node when it has failed", func(ctx SpecContext) {
				deadline := time.Now().Add(20 * time.Second)
				setReady(ctx, corev1.ConditionUnknown)
				builder.Phase(machinev1alpha1.MachineUnknown, deadline.Add(-timeouts.Health))(machine)
				Expect(api.Status().Update(ctx, machine)).To(Succeed())

				Eventually(ctx, func(g Gomega) {
					g.Expect(builder.Noted(getMachine(g, ctx))).To(And(HaveKey(builder.NoteFailsAt), Not(HaveKey(prefix+"phase"))))
				}).Should(Succeed())
				Expect(time.Now()).To(BeTemporally("<", deadline))
				Expect(getNode(Default, ctx).Annotations).To(BeEmpty())
				Expect(preservation.PreservedCondition(node)).To(BeNil())

				Eventually(ctx, func(g Gomega) {
					g.Expect(getMachine(g, ctx).Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))
					g.Expect(getNode(g, ctx).Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
					g.Expect(node.Spec.Taints).To(ContainElement(And(HaveField("Key", "node.machine.sapcloud.io/preserved"), HaveField("Effect", corev1.TaintEffectNoSchedule))))
					g.Expect(preservation.PreservedCondition(node)).To(HaveField("Status", corev1.ConditionTrue))
				}).Should(Succeed())
				Expect(generation.LeavesAlone(machine, timeouts.Health, time.Now().Add(71*time.Hour))).To(BeTrue())
				Expect(generation.LeavesAlone(machine, timeouts.Health, time.Now().Add(73*time.Hour))).To(BeFalse())
			}, SpecTimeout(3*time.Minute))

			It("P7: should evict the pods, respect a PodDisruptionBudget, and delete by force after the timeout only", func(ctx SpecContext) {
				Eventually(ctx, func(g Gomega) {
					g.Expect(preservation.PreservedCondition(getNode(g, ctx))).To(And(HaveField("Reason", "DrainBlocked"), HaveField("Message", ContainSubstring("The disruption budget guard needs 1 healthy pods and has 1 currently"))))
				}).Should(Succeed())
				free, guarded := &corev1.Pod{}, &corev1.Pod{}
				Expect(api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "guarded"}, guarded)).To(Succeed())
				Expect(guarded.DeletionTimestamp).To(BeNil())
				if err := api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "free"}, free); err == nil {
					Expect(free.DeletionTimestamp).NotTo(BeNil())
				} else {
					Expect(apierrors.IsNotFound(err)).To(BeTrue())
				}

				since, _ := preservation.TaintedSince(node)
				Eventually(ctx, func(g Gomega) {
					g.Expect(preservation.PreservedCondition(getNode(g, ctx))).To(And(HaveField("Reason", "Drained"), HaveField("Message", HavePrefix("Preserved node drained successfully. Machine preserved until "))))
				}).Should(Succeed())
				Expect(time.Now()).To(BeTemporally(">=", since.Add(timeouts.Drain)))
				pods := &corev1.PodList{}
				Expect(api.List(ctx, pods)).To(Succeed())
				Expect(pods.Items).To(BeEmpty())
			}, SpecTimeout(3*time.Minute))

			It("T7: should let pods back when the machine recovers", func(ctx SpecContext) {
				Eventually(ctx, func() error {
					builder.Phase(machinev1alpha1.MachineRunning, time.Now())(getMachine(Default, ctx))
					return api.Status().Update(ctx, machine)
				}).Should(Succeed())
				setReady(ctx, corev1.ConditionTrue)
				Eventually(ctx, func(g Gomega) {
					g.Expect(getMachine(g, ctx).Annotations).To(HaveKeyWithValue(prefix+"phase", "Running:Preserved"))
					g.Expect(getNode(g, ctx).Spec.Taints).NotTo(ContainElement(HaveField("Key", "node.machine.sapcloud.io/preserved")))
					g.Expect(node.Annotations).To(HaveKeyWithValue(disabled, "true"))
				}).Should(Succeed())
			}, SpecTimeout(3*time.Minute))

			It("P5: should put the protection back when somebody deletes it", func(ctx SpecContext) {
				annotateNode(ctx, disabled, "false")
				Eventually(ctx, func(g Gomega) {
					g.Expect(getNode(g, ctx).Annotations).To(HaveKeyWithValue(disabled, "true"))
				}).Should(Succeed())
			}, SpecTimeout(3*time.Minute))

			It("T3 R4: should remove everything but the request when it is told false", func(ctx SpecContext) {
				annotateNode(ctx, preserve, "false")
				Eventually(ctx, func(g Gomega) {
					g.Expect(builder.Noted(getMachine(g, ctx))).NotTo(HaveKey(And(HavePrefix(prefix), Not(HaveSuffix("preserved-since")))))
					g.Expect(machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
					g.Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
					g.Expect(getNode(g, ctx).Annotations).To(Equal(map[string]string{preserve: "false"}))
					g.Expect(preservation.PreservedCondition(node)).To(HaveField("Status", corev1.ConditionFalse))
				}).Should(Succeed())
			}, SpecTimeout(3*time.Minute))

			It("P11: should have told of each transition once, on the machine and on the node", func(ctx SpecContext) {
				reasons := func(g Gomega, kind string) []string {
					list := &eventsv1.EventList{}
					g.Expect(api.List(ctx, list)).To(Succeed())
					var reasons []string
					for _, event := range list.Items {
						if event.Regarding.Kind == kind && event.ReportingController == "preservation" {
							reasons = append(reasons, event.Reason)
						}
					}
					return reasons
				}
				Eventually(ctx, func(g Gomega) {
					for _, kind := range []string{"Machine", "Node"} {
						g.Expect(reasons(g, kind)).To(ConsistOf("MachinePreserved", "PreservedMachineRecovered", "MachinePreservationEnded"), kind)
					}
				}).Should(Succeed())
			}, SpecTimeout(3*time.Minute))
		})
	}
})
