// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

var _ = Describe("Shares of MachineDeployments that the provider writes without the webhook", func() {
	It("should be put back by the controller", func(ctx context.Context) {
		// The API server calls the webhook for namespaces with a label only.
		namespace := env.CreateShootNamespace(ctx, false)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		isAtWork(ctx, namespace)
		env.CreateWorker(ctx, namespace, extensionsv1alpha1.WorkerPool{Name: "worker-a", Minimum: 1, Maximum: 3, Zones: []string{"0", "1"}})
		extension := environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = environment.ProviderConfig(`,"machineControllerManager":{"autoPreserveFailedMax":2,"machinePreserveTimeout":"24h"}`)
		Expect(env.Client.Create(ctx, extension)).To(Succeed())

		writeWithoutAnnotations := func() *machinev1alpha1.MachineDeployment {
			GinkgoHelper()
			return writeAsProvider(ctx, namespace, "md-z1", "class-z1", func(deployment *machinev1alpha1.MachineDeployment) { deployment.Annotations = nil })
		}
		eventuallyRepaired := func() {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				deployment := &machinev1alpha1.MachineDeployment{}
				g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "md-z1"}, deployment)).To(Succeed())
				g.Expect(deployment.Annotations).To(Equal(map[string]string{maxKey: "1", timeKey: "24h0m0s"}))
				g.Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(BeZero())
				g.Expect(deployment.Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 24 * time.Hour})))
			}).WithTimeout(time.Minute).Should(Succeed())
		}

		deployClass(ctx, namespace, "class-z1", "0")
		for range 3 {
			Expect(writeWithoutAnnotations().Annotations).To(BeEmpty(), "the webhook is not called")
			eventuallyRepaired()
		}
	})
})
