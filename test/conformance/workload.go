// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload starts a DaemonSet and a bare pod on the machine's node, and returns their pods when they run.
func (p *Pool) workload(machine *machinev1alpha1.Machine) (agent, app *corev1.Pod) {
	p.t.Helper()
	labels := map[string]string{"app": p.name + "-agent"}
	spec := corev1.PodSpec{
		Containers:   []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
		NodeSelector: map[string]string{poolLabel: p.name},
	}
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	p.Expect(p.Shoot.Create(p.ctx, daemonSet)).To(Succeed())

	nodeName := machine.Labels[machinev1alpha1.NodeLabelKey]
	app = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name + "-app", Namespace: metav1.NamespaceDefault}, Spec: *spec.DeepCopy()}
	app.Spec.NodeName = nodeName
	app.Spec.TerminationGracePeriodSeconds = new(int64(1))
	p.Expect(p.Shoot.Create(p.ctx, app)).To(Succeed())

	p.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(p.Shoot.List(p.ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels(labels))).To(Succeed())
		agent = &corev1.Pod{}
		g.Expect(pods.Items).To(ContainElement(HaveField("Spec.NodeName", nodeName), agent))
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(app), app)).To(Succeed())
		g.Expect([]corev1.PodPhase{agent.Status.Phase, app.Status.Phase}).To(HaveEach(corev1.PodRunning))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	return agent, app
}

// exists says whether the very pod is still there.
func (p *Pool) exists(pod *corev1.Pod) bool {
	fresh := &corev1.Pod{}
	return p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), fresh) == nil && fresh.UID == pod.UID
}
