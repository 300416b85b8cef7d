// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

var _ = Describe("Drain", func() {
	It("P7 P11: should respect a PodDisruptionBudget on a node that answers, and delete by force after the timeout only", func(ctx SpecContext) {
		generation := sidecar.Generations["machine-controller-manager 0.62"]
		timeouts := facts.Timeouts{Health: time.Hour, Creation: time.Hour, Drain: 20 * time.Second} // a busy machine must have the time to see a drain that is blocked
		api := sidecar.Start(ctx, generation)
		set := sidecar.Pool(ctx, api, "pool", builder.Share("1"))
		node := sidecar.NewNode("node", builder.Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))
		status := node.Status
		Expect(api.Create(ctx, node)).To(Succeed())
		node.Status = status
		Expect(api.Status().Update(ctx, node)).To(Succeed())
		Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))

		labels := map[string]string{"app": "guarded"}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "guarded", Namespace: "default", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}
		Expect(api.Create(ctx, pod)).To(Succeed())
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		Expect(api.Status().Update(ctx, pod)).To(Succeed())
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "guard", Namespace: "default"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
		}
		Expect(api.Create(ctx, budget)).To(Succeed())
		budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
		Expect(api.Status().Update(ctx, budget)).To(Succeed())

		machine := sidecar.NewMachine("m", node.Name, set, func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{NodeConditions: new("KernelDeadlock")}
		})
		Expect(api.Create(ctx, machine)).To(Succeed())
		builder.Phase(machinev1alpha1.MachineUnknown, time.Now().Add(20*time.Second-timeouts.Health))(machine)
		Expect(api.Status().Update(ctx, machine)).To(Succeed())
		sidecar.StartController(ctx, api, generation.Holder, timeouts, nil)

		Eventually(ctx, func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			g.Expect(machine.Annotations).To(HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/phase", "Failed:Preserved"))
		}).WithTimeout(3 * time.Minute).Should(Succeed())
		shown := func(g Gomega) *corev1.NodeCondition {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			return preservation.PreservedCondition(node)
		}
		Eventually(ctx, shown).WithTimeout(3 * time.Minute).Should(And(HaveField("Reason", "DrainBlocked"), HaveField("Message", ContainSubstring("The disruption budget guard needs 1 healthy pods and has 1 currently"))))
		Expect(api.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(pod.DeletionTimestamp).To(BeNil())

		since, _ := preservation.TaintedSince(node)
		Eventually(ctx, shown).WithTimeout(3 * time.Minute).Should(And(HaveField("Reason", "Drained"), HaveField("Message", HavePrefix("Preserved node drained successfully. Machine preserved until "))))
		Expect(time.Now()).To(BeTemporally(">=", since.Add(timeouts.Drain)))
		events := &eventsv1.EventList{}
		Expect(api.List(ctx, events)).To(Succeed())
		for _, kind := range []string{"Machine", "Node"} {
			told := slices.DeleteFunc(slices.Clone(events.Items), func(e eventsv1.Event) bool { return e.Regarding.Kind != kind || e.Reason != "MachinePreserved" })
			Expect(told).To(HaveExactElements(HaveField("ReportingController", "preservation")), "P11: of the %s", kind)
		}
		pods := &corev1.PodList{}
		Expect(api.List(ctx, pods)).To(Succeed())
		Expect(pods.Items).To(BeEmpty())
	}, SpecTimeout(10*time.Minute))
})
