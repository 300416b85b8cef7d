// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

var _ = Describe("Deployment of the cluster-autoscaler", func() {
	const flag = "--max-total-unready-percentage=100"

	var (
		ctx       = context.Background()
		namespace string
		extension *extensionsv1alpha1.Extension
		// before is the template without the extension.
		before corev1.PodTemplateSpec
	)

	BeforeEach(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "pool", Minimum: 1, Maximum: 3})
		env.CreateWorker(ctx, namespace, extensionsv1alpha1.WorkerPool{Name: "pool", Minimum: 1, Maximum: 3, Zones: []string{"0"}})
		Expect(env.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "generic-token-kubeconfig", Namespace: namespace}})).To(Succeed())
		Expect(env.Client.Create(ctx, &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "class", Namespace: namespace},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "0", InstanceType: "local", Region: "local", Capacity: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			ProviderSpec: runtime.RawExtension{Raw: []byte(`{}`)},
		})).To(Succeed())
		deployment := builder.Deployment("pool")
		deployment.Namespace, deployment.UID = namespace, ""
		deployment.Labels = map[string]string{"worker.gardener.cloud/pool": "pool"}
		deployment.Spec.Template.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: "class"}
		Expect(env.Client.Create(ctx, deployment)).To(Succeed())
		env.DeployClusterAutoscaler(ctx, namespace)
		autoscaler := &appsv1.Deployment{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "cluster-autoscaler"}, autoscaler)).To(Succeed())
		before = autoscaler.Spec.Template
		Expect(before.Spec.Containers[0].Command).NotTo(ContainElement(flag))

		extension = environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = config("1")
		env.CreateExtension(ctx, extension)
	})

	get := func() *appsv1.Deployment {
		GinkgoHelper()
		deployment := &appsv1.Deployment{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "cluster-autoscaler"}, deployment)).To(Succeed())
		return deployment
	}
	command := func() []string {
		GinkgoHelper()
		return get().Spec.Template.Spec.Containers[0].Command
	}

	It("should go on scaling with unready nodes while there is a share, whoever writes it", func() {
		Eventually(command).WithTimeout(time.Minute).Should(ContainElement(flag))

		By("Writing it again as gardenlet does, whose template has no such flag")
		Eventually(func(g Gomega) { // a cache of the webhook may not have seen the share yet
			env.DeployClusterAutoscaler(ctx, namespace)
			g.Expect(command()).To(ContainElement(flag))
		}).WithTimeout(time.Minute).Should(Succeed())
		generation := get().Generation
		for range 5 {
			env.DeployClusterAutoscaler(ctx, namespace)
			Expect(get().Generation).To(Equal(generation), "no pod is replaced")
		}

		By("Keeping no failed machines any more")
		patch := client.MergeFrom(extension.DeepCopy())
		extension.Spec.ProviderConfig = config("0")
		Expect(env.Client.Patch(ctx, extension, patch)).To(Succeed())
		Eventually(func() corev1.PodTemplateSpec { return get().Spec.Template }).WithTimeout(time.Minute).Should(Equal(before))
	})

	It("should lose the flag when the extension is disabled", func() {
		Eventually(command).WithTimeout(time.Minute).Should(ContainElement(flag))
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		Eventually(command).WithTimeout(time.Minute).ShouldNot(ContainElement(flag))
	})
})

func config(autoPreserveFailedMax string) *runtime.RawExtension {
	return environment.ProviderConfig(`,"machineControllerManager":{"autoPreserveFailedMax":` + autoPreserveFailedMax + `}`)
}
