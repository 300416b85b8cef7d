// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"context"
	"slices"
	"time"

	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const (
	shoots = 50
	// pause is longer than the controller waits until it looks at the seed again.
	pause = 15 * time.Second
)

var _ = Describe("Waves", func() {
	var (
		ctx        = context.Background()
		namespaces []string
	)

	get := func(namespace string) *appsv1.Deployment {
		GinkgoHelper()
		deployment := &appsv1.Deployment{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		return deployment
	}
	// replaced returns the namespaces whose Deployment has the container with the image of this version.
	replaced := func() []string {
		GinkgoHelper()
		var found []string
		for _, namespace := range namespaces {
			if slices.ContainsFunc(get(namespace).Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return c.Name == name && c.Image != "of-another-version"
			}) {
				found = append(found, namespace)
			}
		}
		return found
	}
	// look has the controller decide again: it does not watch how pods get on.
	look := func() {
		GinkgoHelper()
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: env.CreateShootNamespace(ctx, false)}}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"foo": "bar"}}
		deployment.Spec.Template.Labels = deployment.Spec.Selector.MatchLabels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager", Image: "mcm"}}
		Expect(env.Client.Create(ctx, deployment)).To(Succeed())
		deleteDeployment(ctx, deployment.Namespace)
	}
	// start has the kubelet start a pod of the Deployment some time ago. All containers but ours are not ready. Ours gets its
	// Lease when it is.
	start := func(namespace string, ready bool, ago time.Duration) {
		GinkgoHelper()
		template := get(namespace).Spec.Template
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "machine-controller-manager-", Namespace: namespace, Labels: template.Labels}, Spec: template.Spec}
		pod.Spec.PriorityClassName = "" // there are none
		Expect(env.Client.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed()) })
		pod.Status.StartTime = new(metav1.NewTime(time.Now().Add(-ago)))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *pod.Status.StartTime}}}}
		Expect(env.Client.Status().Update(ctx, pod)).To(Succeed())
		if ready {
			Expect(env.Client.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new(pod.Name + "_1"), RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: new(int32(600)),
				},
			})).To(Succeed())
		}
	}
	// roll writes what the deployment controller would when the last progress was some time ago.
	roll := func(namespace string, ready bool, ago time.Duration) {
		GinkgoHelper()
		deployment := get(namespace)
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 1,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(time.Now().Add(-ago))},
			},
		}
		if ready {
			deployment.Status.Replicas, deployment.Status.UnavailableReplicas = 1, 0
		}
		Expect(env.Client.Status().Update(ctx, deployment)).To(Succeed())
	}

	BeforeEach(func() {
		namespaces = nil
		comeBack := takeWebhooksAway(ctx)
		for range shoots {
			namespace := env.CreateShootNamespace(ctx, true)
			namespaces = append(namespaces, namespace)
			env.CreateCluster(ctx, namespace)
			for _, secret := range []string{"generic-token-kubeconfig", "shoot-access-machine-preservation-controller"} {
				Expect(env.Client.Create(ctx, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: secret, Namespace: namespace},
					Data:       map[string][]byte{"token": []byte("foo")},
				})).To(Succeed())
			}
			gardenlet := machinecontrollermanager.New(env.Client, namespace, fakesecretsmanager.New(env.Client, namespace), machinecontrollermanager.Values{Image: "mcm:v0.62.1", Replicas: 1})
			Expect(gardenlet.Deploy(ctx)).To(Succeed())
			DeferCleanup(func() { deleteDeployment(ctx, namespace) })

			deployment := get(namespace)
			patch := client.StrategicMergeFrom(deployment.DeepCopy())
			deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, corev1.Container{Name: name, Image: "of-another-version"})
			Expect(env.Client.Patch(ctx, deployment, patch)).To(Succeed())
			roll(namespace, true, time.Hour)
			Expect(env.Client.Create(ctx, environment.NewExtension(namespace))).To(Succeed())
		}
		Expect(replaced()).To(BeEmpty())
		comeBack()
	})

	It("should bring a container that never gets ready to the first shoot only, and go on when it gets ready", func() {
		Eventually(replaced).WithTimeout(repairTimeout).WithPolling(time.Second).Should(HaveLen(1))
		first := replaced()[0]
		stay := func() {
			GinkgoHelper()
			Consistently(replaced).WithTimeout(pause).WithPolling(time.Second).Should(Equal([]string{first}))
		}
		stay()
		By("Not getting ready for a while")
		roll(first, false, 4*time.Minute)
		start(first, false, 4*time.Minute)
		look()
		stay()
		By("Not getting ready for too long")
		roll(first, false, 6*time.Minute)
		start(first, false, 6*time.Minute)
		look()
		stay()

		By("Getting ready at last, beside containers of others that do not")
		start(first, true, 6*time.Minute)
		look()
		Eventually(replaced).WithTimeout(repairTimeout).WithPolling(time.Second).Should(HaveLen(6))
		By("All of the next")
		for _, namespace := range replaced() {
			if namespace != first {
				start(namespace, true, 6*time.Minute)
				roll(namespace, true, 6*time.Minute)
			}
		}
		Eventually(replaced).WithTimeout(repairTimeout).WithPolling(time.Second).Should(HaveLen(36))
		Consistently(replaced).WithTimeout(pause).WithPolling(time.Second).Should(HaveLen(36))
	})
})
