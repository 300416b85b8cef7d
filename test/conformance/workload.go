// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// blockedDrain: a PodDisruptionBudget holds an eviction up, which the node tells. A user's cordon stays.
func blockedDrain(p *Pool) {
	machine := p.running(2)[0]
	_, app := p.workload(machine)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app.Name, Namespace: app.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: app.Labels},
		},
	}
	p.create(budget)
	p.Expect(p.Shoot.Patch(p.ctx, p.node(p, machine), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)))).To(Succeed())

	p.fail(machine, NodeCondition)
	p.preserved(machine, failedPreserved, "auto")
	p.shows(machine, corev1.ConditionTrue, budget.Name, "DrainBlocked")
	p.nodeEvent(machine, "PreservedNodeDrainBlocked", budget.Name)
	p.Expect(p.exists(app)).To(BeTrue())
	p.Expect(p.Shoot.Delete(p.ctx, budget)).To(Succeed())

	p.drained(machine)
	p.Expect(p.exists(app)).To(BeFalse())
	p.Expect(p.node(p, machine).Spec.Unschedulable).To(BeTrue())
}

// refusedEviction: an eviction that is answered with "too many requests, try again in hours" holds up neither the other pods
// of the node nor those of another one.
func refusedEviction(p *Pool) {
	machines := p.running(2)
	label := "conformance-refused"
	undo, err := p.RefuseEvictions(p.ctx, label, p.scenario)
	p.Expect(err).NotTo(HaveOccurred())
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), restoreTimeout)
		defer cancel()
		if err := undo(ctx); err != nil {
			p.t.Errorf("Evictions are still refused: %v", err)
		}
	})
	var refused, others []*corev1.Pod
	for i, machine := range machines {
		pod := func(name string, labels map[string]string) *corev1.Pod {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%s", p.scenario, i, name), Namespace: metav1.NamespaceDefault, Labels: labels},
				Spec: corev1.PodSpec{
					Containers:                    []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
					NodeSelector:                  map[string]string{corev1.LabelHostname: p.node(p, machine).Labels[corev1.LabelHostname]},
					TerminationGracePeriodSeconds: new(int64(1)),
				},
			}
			p.create(pod)
			return pod
		}
		// Those come first in any order by name or age.
		refused = append(refused, pod("a", map[string]string{label: p.scenario}), pod("b", map[string]string{label: p.scenario}))
		others = append(others, pod("c", nil), pod("d", nil))
	}
	p.eventually(func(g Gomega) {
		for _, pod := range append(slices.Clone(refused), others...) {
			fresh := &corev1.Pod{}
			g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), fresh)).To(Succeed())
			g.Expect(fresh.Status.Phase).To(Equal(corev1.PodRunning))
		}
	})

	for _, machine := range machines {
		p.fail(machine, NodeCondition)
	}
	// They need not fail at the same time. After the drain timeout pods are deleted by force: those that are refused are there
	// when the others have gone, if these were not held up.
	refusedStay := map[string]bool{}
	p.eventually(func(g Gomega) {
		for i, machine := range machines {
			if _, seen := refusedStay[machine.Name]; !seen && !p.exists(others[2*i]) && !p.exists(others[2*i+1]) {
				refusedStay[machine.Name] = p.exists(refused[2*i]) && p.exists(refused[2*i+1])
			}
		}
		g.Expect(refusedStay).To(HaveLen(len(machines)))
	})
	p.Expect(refusedStay).To(HaveEach(true))
	for _, machine := range machines {
		p.preserved(machine, failedPreserved, "auto")
		p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })
		p.drained(machine)
	}
}

// workload starts a DaemonSet and a bare pod on the machine's node, and returns their pods when they run.
func (p *Pool) workload(machine *machinev1alpha1.Machine) (agent, app *corev1.Pod) {
	p.t.Helper()
	labels := func(name string) map[string]string { return map[string]string{"conformance": p.scenario + "-" + name} }
	spec := corev1.PodSpec{
		Containers:   []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
		NodeSelector: map[string]string{corev1.LabelHostname: p.node(p, machine).Labels[corev1.LabelHostname]},
	}
	p.create(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.scenario + "-agent", Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels("agent")},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels("agent")}, Spec: spec},
		},
	})
	app = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.scenario + "-app", Namespace: metav1.NamespaceDefault, Labels: labels("app")}, Spec: *spec.DeepCopy()}
	app.Spec.TerminationGracePeriodSeconds = new(int64(1))
	p.create(app)

	p.eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(p.Shoot.List(p.ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels(labels("agent")))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		agent = &pods.Items[0]
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(app), app)).To(Succeed())
		g.Expect([]corev1.PodPhase{agent.Status.Phase, app.Status.Phase}).To(HaveEach(corev1.PodRunning))
	})
	return agent, app
}

// create creates an object in the shoot, and deletes it at the end of the scenario.
func (p *Pool) create(object client.Object) {
	p.t.Helper()
	p.Expect(p.Shoot.Create(p.ctx, object)).To(Succeed())
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), restoreTimeout)
		defer cancel()
		if err := client.IgnoreNotFound(p.Shoot.Delete(ctx, object)); err != nil {
			p.t.Errorf("%s could not be deleted: %v", object.GetName(), err)
		}
	})
}

// exists says whether the very pod is still there.
func (p *Pool) exists(pod *corev1.Pod) bool {
	fresh := &corev1.Pod{}
	return p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), fresh) == nil && fresh.UID == pod.UID
}

// drained waits until nothing is left to be evicted from the machine's node, which takes the drain timeout at most.
func (p *Pool) drained(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.Eventually(func(g Gomega) {
		g.Expect(p.node(g, machine)).To(withCondition("Preserved", corev1.ConditionTrue, HaveField("Reason", "Drained")))
	}).WithContext(p.ctx).WithTimeout(p.settings.Drain + p.settings.patience()).WithPolling(pollInterval).Should(Succeed())
}

// shows waits until the condition of the machine's node shows the preservation, with one of the reasons.
func (p *Pool) shows(machine *machinev1alpha1.Machine, status corev1.ConditionStatus, text string, reasons ...string) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, machine)).To(withCondition("Preserved", status, HaveField("Reason", BeElementOf(reasons)), HaveField("Message", ContainSubstring(text))))
	})
}
