// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const name = "machine-preservation-controller"

var _ = Describe("Deployment of machine-controller-manager", func() {
	var (
		ctx       = context.Background()
		namespace string
		gardenlet machinecontrollermanager.Interface
		extension *extensionsv1alpha1.Extension
	)

	prepare := func(enabled bool) {
		GinkgoHelper()
		namespace = env.CreateShootNamespace(ctx, enabled)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})

		// Nothing makes it ready, so that the wave of the next one would wait for it.
		DeferCleanup(func() {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}}
			Expect(client.IgnoreNotFound(env.Client.Delete(ctx, deployment))).To(Succeed())
		})
		gardenlet = env.NewMachineControllerManager(ctx, namespace, "mcm")
		extension = environment.NewExtension(namespace)
	}
	enable := func() {
		GinkgoHelper()
		env.CreateExtension(ctx, extension)
		env.WaitUntilReconciled(ctx, extension)
	}
	get := func() *appsv1.Deployment {
		GinkgoHelper()
		deployment := &appsv1.Deployment{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		return deployment
	}
	containers := func() map[string]corev1.Container {
		GinkgoHelper()
		byName := map[string]corev1.Container{}
		for _, container := range get().Spec.Template.Spec.Containers {
			byName[container.Name] = container
		}
		return byName
	}
	volumes := func() []string {
		GinkgoHelper()
		var names []string
		for _, volume := range get().Spec.Template.Spec.Volumes {
			names = append(names, volume.Name)
		}
		return names
	}

	It("should get the container with the timeouts of the provider's container, which is added after ours", func() {
		prepare(true)
		enable()
		// A cache that has not seen the access secret yet leaves the injection to the next write.
		Eventually(func(g Gomega) {
			g.Expect(gardenlet.Deploy(ctx)).To(Succeed())
			g.Expect(containers()).To(And(HaveLen(3), HaveKey(name)))
		}).WithTimeout(time.Minute).Should(Succeed())

		Expect(containers()[name].Args).To(Equal([]string{
			"--namespace=" + namespace,
			"--control-kubeconfig=inClusterConfig",
			"--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig",
			"--holder=preserve-expiry",
			"--max-machine-preserve-timeout=336h0m0s",
			"--machine-health-timeout=10m",
			"--machine-creation-timeout=20m",
			"--machine-drain-timeout=2h",
			"--failures",
			"--metrics-bind-address=:10260",
			"--health-probe-bind-address=:10261",
		}))
		Expect(volumes()).To(ConsistOf("kubeconfig", "kubeconfig-machine-preservation"))

		By("Writing it again as gardenlet does, whose template has neither container")
		generation := get().Generation
		for range 10 {
			Expect(gardenlet.Deploy(ctx)).To(Succeed())
			Expect(get().Generation).To(Equal(generation), "no pod is replaced")
		}

		vpa := &vpaautoscalingv1.VerticalPodAutoscaler{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager-vpa"}, vpa)).To(Succeed())
		Expect(vpa.Spec.ResourcePolicy.ContainerPolicies).To(ContainElement(vpaautoscalingv1.ContainerResourcePolicy{
			ContainerName:    name,
			ControlledValues: new(vpaautoscalingv1.ContainerControlledValuesRequestsOnly),
		}))
	})

	It("should get the container when the extension is enabled later, and lose it when it is disabled", func() {
		prepare(true)
		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		Expect(containers()).To(HaveLen(2))
		before, generation := get().Spec.Template, get().Generation

		enable()
		Eventually(containers).WithTimeout(time.Minute).Should(And(HaveLen(3), HaveKey(name)))

		By("Writing it as gardenlet does in the same reconciliation of the shoot")
		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		Expect(get().Generation).To(Equal(generation+1), "pods are replaced once")

		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		Eventually(func() error {
			needed := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, &corev1.Secret{})
			if containers()[name].Name == name {
				Expect(needed).To(Succeed(), "the container is still there: so was, before it was looked at, what it needs")
			}
			return env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)
		}).WithTimeout(time.Minute).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))

		Expect(get().Spec.Template).To(Equal(before))
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, &corev1.Secret{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("should be left alone in a shoot without the extension", func() {
		prepare(false)
		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		Expect(containers()).To(And(HaveLen(2), Not(HaveKey(name))))
	})
})
