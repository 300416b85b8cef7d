// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

var _ = Describe("deploymentReconciler", func() {
	var (
		c          client.Client
		r          *deploymentReconciler
		deployment *appsv1.Deployment
	)

	BeforeEach(func() {
		labels := map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}
		deployment = &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--local--a", Name: "mcm", UID: "1", Labels: labels, Generation: 1},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "mcm", Image: "mcm:1"}}},
				},
			},
		}
		c = fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&appsv1.Deployment{}, &corev1.Pod{}).
			WithObjects(deployment).Build()
		r = &deploymentReconciler{client: c}
	})

	reconcileOnce := func(ctx SpecContext) {
		GinkgoHelper()
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(deployment)})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment))).To(Succeed())
	}
	pods := func(ctx SpecContext) []corev1.Pod {
		GinkgoHelper()
		list := &corev1.PodList{}
		Expect(c.List(ctx, list)).To(Succeed())
		return list.Items
	}
	markReady := func(ctx SpecContext, pod corev1.Pod) {
		GinkgoHelper()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		Expect(c.Status().Update(ctx, &pod)).To(Succeed())
	}

	It("creates a pod on the node of the seed", func(ctx SpecContext) {
		reconcileOnce(ctx)
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(HaveLen(1))
		pod := pods(ctx)[0]
		Expect(isOurPod(&pod)).To(BeTrue())
		Expect(pod.Spec.NodeName).To(Equal(node.Name))
		Expect(metav1.IsControlledBy(&pod, deployment)).To(BeTrue())
	})

	It("writes a status with which Gardener is content", func(ctx SpecContext) {
		reconcileOnce(ctx)
		Expect(health.CheckDeployment(deployment)).NotTo(Succeed())

		markReady(ctx, pods(ctx)[0])
		reconcileOnce(ctx)
		Expect(health.CheckDeployment(deployment)).To(Succeed())
		progressing, reason := health.IsDeploymentProgressing(deployment)
		Expect(progressing).To(BeFalse(), reason)
	})

	It("starts the new pod before it stops the old one", func(ctx SpecContext) {
		reconcileOnce(ctx)
		old := pods(ctx)[0]
		markReady(ctx, old)

		deployment.Spec.Template.Spec.Containers[0].Image = "mcm:2"
		Expect(c.Update(ctx, deployment)).To(Succeed())
		reconcileOnce(ctx)
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(HaveLen(2))
		Expect(deployment.Status.UpdatedReplicas).To(Equal(int32(1)))
		progressing, _ := health.IsDeploymentProgressing(deployment)
		Expect(progressing).To(BeTrue())

		for _, pod := range pods(ctx) {
			if pod.Name != old.Name {
				markReady(ctx, pod)
			}
		}
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(HaveLen(1))
		Expect(pods(ctx)[0].Spec.Containers[0].Image).To(Equal("mcm:2"))
	})

	It("deletes all pods when it is scaled down, and when it is deleted", func(ctx SpecContext) {
		reconcileOnce(ctx)
		deployment.Spec.Replicas = new(int32(0))
		Expect(c.Update(ctx, deployment)).To(Succeed())
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(BeEmpty())

		deployment.Spec.Replicas = new(int32(1))
		Expect(c.Update(ctx, deployment)).To(Succeed())
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(HaveLen(1))
		Expect(c.Delete(ctx, deployment)).To(Succeed())
		reconcileOnce(ctx)
		Expect(pods(ctx)).To(BeEmpty())
	})
})
