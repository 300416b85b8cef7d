// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"context"
	"slices"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const name = "machine-preservation-controller"

// repairTimeout is longer than the pauses between attempts become in these tests: they double while webhooks are away.
const repairTimeout = 2 * time.Minute

var _ = Describe("Container in the Deployment of machine-controller-manager", func() {
	var (
		ctx       = context.Background()
		namespace string
		gardenlet machinecontrollermanager.Interface
		extension *extensionsv1alpha1.Extension
	)

	get := func(g Gomega) *appsv1.Deployment {
		deployment := &appsv1.Deployment{}
		g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		return deployment
	}
	container := func(g Gomega) *corev1.Container {
		containers := get(g).Spec.Template.Spec.Containers
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
		g.Expect(i).To(BeNumerically(">=", 0), "the container is missing")
		return &containers[i]
	}
	missing := func(g Gomega) {
		g.Expect(get(g).Spec.Template.Spec.Containers).To(HaveLen(1))
	}
	policies := func(g Gomega) []string {
		vpa := &vpaautoscalingv1.VerticalPodAutoscaler{}
		g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-controller-manager-vpa"}, vpa)).To(Succeed())
		var names []string
		for _, policy := range vpa.Spec.ResourcePolicy.ContainerPolicies {
			names = append(names, policy.ContainerName)
		}
		return names
	}
	change := func(mutate func(*appsv1.Deployment)) {
		GinkgoHelper()
		deployment := get(Default)
		patch := client.StrategicMergeFrom(deployment.DeepCopy())
		mutate(deployment)
		Expect(env.Client.Patch(ctx, deployment, patch)).To(Succeed())
	}

	BeforeEach(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		gardenlet = env.NewMachineControllerManager(ctx, namespace, "mcm:v0.62.1")
		extension = environment.NewExtension(namespace)

		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		DeferCleanup(func() { deleteDeployment(ctx, namespace) })
		env.CreateExtension(ctx, extension)
		Eventually(func(g Gomega) { container(g) }).WithTimeout(repairTimeout).Should(Succeed())
		Eventually(policies).WithTimeout(repairTimeout).Should(ContainElement(name))
	})

	It("should come back after it has been left out while the webhook was away", func() {
		comeBack := takeWebhooksAway(ctx)
		Eventually(func(g Gomega) {
			g.Expect(gardenlet.Deploy(ctx)).To(Succeed())
			missing(g)
			g.Expect(policies(g)).NotTo(ContainElement(name))
		}).Should(Succeed())
		Consistently(func(g Gomega) { missing(g) }).WithTimeout(2 * time.Second).Should(Succeed())

		comeBack()
		Eventually(func(g Gomega) {
			container(g)
			g.Expect(policies(g)).To(ContainElement(name))
		}).WithTimeout(repairTimeout).Should(Succeed())
	})

	It("should get the image of this version of the extension, and the provider's current timeouts", func() {
		image := container(Default).Image
		comeBack := takeWebhooksAway(ctx)
		Eventually(func(g Gomega) {
			change(func(deployment *appsv1.Deployment) {
				containers := deployment.Spec.Template.Spec.Containers
				containers[1].Image = "of-another-version"
				deployment.Spec.Template.Spec.Containers = append(containers[:2], corev1.Container{
					Name: "machine-controller-manager-provider-local", Image: "provider", Args: []string{"--machine-health-timeout=12m"},
				})
			})
			g.Expect(container(g).Image).To(Equal("of-another-version"))
		}).Should(Succeed())

		comeBack()
		Eventually(func(g Gomega) {
			g.Expect(container(g).Image).To(Equal(image))
			g.Expect(container(g).Args).To(ContainElement("--machine-health-timeout=12m"))
			g.Expect(get(g).Spec.Template.Spec.Containers).To(HaveLen(3))
		}).WithTimeout(repairTimeout).Should(Succeed())
	})

	It("should hold machines by their expiry when Machines can have one, as soon as machine-controller-manager knows it", func() {
		holder := func(g Gomega) string {
			i := slices.IndexFunc(container(g).Args, func(arg string) bool { return strings.HasPrefix(arg, "--holder=") })
			return container(g).Args[i]
		}
		Eventually(holder).Should(Equal("--holder=preserve-expiry"))

		expiry := setExpiryField(ctx, nil)
		DeferCleanup(setExpiryField, expiry)
		Eventually(holder).WithTimeout(repairTimeout).Should(Equal("--holder=health-timer"))

		By("Upgrading the definition before machine-controller-manager")
		change(func(deployment *appsv1.Deployment) { deployment.Spec.Template.Spec.Containers[0].Image = "mcm:v0.61.3" })
		setExpiryField(ctx, expiry)
		Consistently(holder).WithTimeout(3 * time.Second).Should(Equal("--holder=health-timer"))

		By("Upgrading machine-controller-manager")
		Expect(gardenlet.Deploy(ctx)).To(Succeed())
		Eventually(holder).WithTimeout(repairTimeout).Should(Equal("--holder=preserve-expiry"))

		By("Upgrading the definition of a machine-controller-manager that knows it already")
		setExpiryField(ctx, nil)
		Eventually(holder).WithTimeout(repairTimeout).Should(Equal("--holder=health-timer"))
		setExpiryField(ctx, expiry)
		Eventually(holder).WithTimeout(repairTimeout).Should(Equal("--holder=preserve-expiry"))
	})

	It("should not come back after the extension has been disabled", func() {
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		Eventually(func() error {
			return env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)
		}).WithTimeout(repairTimeout).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		missing(Default)

		Consistently(func(g Gomega) {
			g.Expect(gardenlet.Deploy(ctx)).To(Succeed())
			missing(g)
		}).WithTimeout(3 * time.Second).Should(Succeed())
	})

	It("should be left alone when it is as it should be", func() {
		// The first repair may have been in vain, as the webhook's caches lagged behind. The next one comes after a second, if there is any.
		Eventually(func(g Gomega) {
			writes := deploymentPatches(ctx)
			time.Sleep(3 * time.Second)
			g.Expect(deploymentPatches(ctx)).To(Equal(writes))
		}).WithTimeout(repairTimeout).Should(Succeed())
		before := get(Default)
		writes := deploymentPatches(ctx)
		Consistently(func() string { return deploymentPatches(ctx) }).WithTimeout(5 * time.Second).WithPolling(time.Second).Should(Equal(writes))
		Expect(get(Default).ResourceVersion).To(Equal(before.ResourceVersion))
	})
})

// takeWebhooksAway has the API server call the webhooks where nobody listens. It returns what ends that.
func takeWebhooksAway(ctx context.Context) func() {
	GinkgoHelper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: "gardener-extension-machine-preservation"}, config)).To(Succeed())
	patchURLs := func(urlOf func(int) string) {
		GinkgoHelper()
		patch := client.MergeFrom(config.DeepCopy())
		for i := range config.Webhooks {
			config.Webhooks[i].ClientConfig.URL = new(urlOf(i))
		}
		Expect(env.Client.Patch(ctx, config, patch)).To(Succeed())
	}

	var urls []string
	for _, webhook := range config.Webhooks {
		urls = append(urls, *webhook.ClientConfig.URL)
	}
	nowhere := "https://" + environment.FreeAddress()
	patchURLs(func(int) string { return nowhere })
	comeBack := func() { patchURLs(func(i int) string { return urls[i] }) }
	DeferCleanup(comeBack)
	return comeBack
}

// deleteDeployment has the waves of other specs begin anew: they are those of the whole seed.
func deleteDeployment(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(env.Client.Delete(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}})).To(Succeed())
}

// setExpiryField sets the schema of the expiry in the definition of Machines, nil for none, and returns what it was.
func setExpiryField(ctx context.Context, field *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: "machines.machine.sapcloud.io"}, crd)).To(Succeed())
	patch := client.MergeFrom(crd.DeepCopy())
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["currentStatus"].Properties
	was, ok := properties["preserveExpiryTime"]
	delete(properties, "preserveExpiryTime")
	if field != nil {
		properties["preserveExpiryTime"] = *field
	}
	Expect(env.Client.Patch(ctx, crd, patch)).To(Succeed())
	if !ok {
		return nil
	}
	return &was
}

// deploymentPatches returns how often the API server has patched Deployments, as it counts them.
func deploymentPatches(ctx context.Context) string {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(env.Config)
	Expect(err).NotTo(HaveOccurred())
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.SplitSeq(string(metrics), "\n") {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="deployments"`) && strings.Contains(line, `verb="PATCH"`) {
			lines = append(lines, line)
		}
	}
	Expect(lines).NotTo(BeEmpty())
	return strings.Join(lines, "\n")
}
