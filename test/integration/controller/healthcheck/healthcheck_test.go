// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"strconv"
	"time"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

var _ = Describe("Conditions of the Extension", func() {
	const healthy = "All health checks successful"

	var (
		ctx       = context.Background()
		namespace string
		gardenlet machinecontrollermanager.Interface
		extension *extensionsv1alpha1.Extension
		checks    int
	)

	// check brings the next check forward, by a change of the Cluster.
	check := func() {
		GinkgoHelper()
		checks++
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		patch := client.MergeFrom(cluster.DeepCopy())
		cluster.Annotations = map[string]string{"checks": strconv.Itoa(checks)}
		Expect(env.Client.Patch(ctx, cluster, patch)).To(Succeed())
	}
	eventually := func(condition gardencorev1beta1.ConditionType, status gardencorev1beta1.ConditionStatus, message types.GomegaMatcher) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			check()
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			actual := v1beta1helper.GetCondition(extension.Status.Conditions, condition)
			g.Expect(actual).NotTo(BeNil())
			g.Expect(actual.Message).To(message)
			g.Expect(actual.Status).To(Equal(status))
		}).WithTimeout(time.Minute).WithPolling(500 * time.Millisecond).Should(Succeed())
	}
	patchStatus := func(object client.Object, mutate func()) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			patch := client.MergeFrom(object.DeepCopyObject().(client.Object))
			mutate()
			g.Expect(env.Client.Status().Patch(ctx, object, patch)).To(Succeed())
		}).Should(Succeed())
	}

	BeforeEach(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		gardenlet = env.NewMachineControllerManager(ctx, namespace, "mcm")
		extension = environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = environment.ProviderConfig(`,"machineControllerManager":{"autoPreserveFailedMax":2}`)
		env.CreateExtension(ctx, extension)
	})

	It("should tell of the container in ControlPlaneHealthy", func() {
		eventually("ControlPlaneHealthy", "True", Equal(healthy))

		By("Leaving the container out, as the webhook is not called for the namespace")
		label(ctx, namespace, nil)
		Eventually(func(g Gomega) {
			g.Expect(gardenlet.Deploy(ctx)).To(Succeed())
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(1))
		}).Should(Succeed())
		eventually("ControlPlaneHealthy", "Progressing", Equal(`container "machine-preservation-controller" in Deployment "machine-controller-manager" is not as it should be: it is missing.`))

		By("Calling it again")
		label(ctx, namespace, new("true"))
		eventually("ControlPlaneHealthy", "Progressing", Equal(`container "machine-preservation-controller" of Deployment "machine-controller-manager" is not ready: there is no pod.`))

		By("Starting a pod")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mcm-1", Namespace: namespace, Labels: map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "machine-preservation-controller", Image: "image"}}
		Expect(env.Client.Create(ctx, pod)).To(Succeed())
		patchStatus(pod, func() {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  "machine-preservation-controller",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			}}
		})
		eventually("ControlPlaneHealthy", "Progressing", HaveSuffix(`is not ready: pod "mcm-1" (it is waiting: CrashLoopBackOff: back-off).`))

		By("Having it ready")
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		patchStatus(deployment, func() {
			deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
		})
		eventually("ControlPlaneHealthy", "True", Equal(healthy))
	})

	It("should tell of shares without a place in ControlPlaneHealthy", func() {
		env.CreateWorker(ctx, namespace, extensionsv1alpha1.WorkerPool{Name: "worker-a", Minimum: 1, Maximum: 3, Zones: []string{"0", "1"}})
		class := &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "class", Namespace: namespace},
			Provider:     "local",
			ProviderSpec: runtime.RawExtension{Raw: []byte("{}")},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Capacity: corev1.ResourceList{}, InstanceType: "local", Region: "local", Zone: "2"},
		}
		Expect(env.Client.Create(ctx, class)).To(Succeed())
		deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
			Name: "md", Namespace: namespace, Labels: map[string]string{"worker.gardener.cloud/pool": "worker-a"},
		}}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "md"}}
		deployment.Spec.Template.Labels = map[string]string{"name": "md"}
		deployment.Spec.Template.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class.Name}
		Expect(env.Client.Create(ctx, deployment)).To(Succeed())
		eventually("ControlPlaneHealthy", "Progressing", Equal(`MachineDeployment "md" gets no share: nodeTemplate.zone "2" of its MachineClass "class" `+
			`is none of the zones ["0" "1"] of worker pool "worker-a".`))

		patch := client.MergeFrom(class.DeepCopy())
		class.NodeTemplate.Zone = "1"
		Expect(env.Client.Patch(ctx, class, patch)).To(Succeed())
		eventually("ControlPlaneHealthy", "True", Equal(healthy))
	})

	It("should name preserved machines that are about to be deleted in a condition of their own", func() {
		machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, Annotations: map[string]string{
			"machine-preservation.extensions.gardener.cloud/cause": "auto",
			"machinepriority.machine.sapcloud.io":                  "1",
		}}}
		Expect(env.Client.Create(ctx, machine)).To(Succeed())
		eventually("PreservedMachinesKept", "False", Equal("preserved machines will be deleted, because they were chosen for deletion before they were preserved: m."))

		Expect(env.Client.Delete(ctx, machine)).To(Succeed())
		eventually("PreservedMachinesKept", "True", Equal(healthy))
	})

	It("should take conditions away that former versions wrote", func() {
		patchStatus(extension, func() {
			for _, condition := range []gardencorev1beta1.ConditionType{"SystemComponentsHealthy", "EveryNodeReady"} {
				now := metav1.Now()
				extension.Status.Conditions = append(extension.Status.Conditions, gardencorev1beta1.Condition{
					Type: condition, Status: "True", Reason: "Foo", Message: "foo", LastTransitionTime: now, LastUpdateTime: now,
				})
			}
		})
		Eventually(func(g Gomega) {
			check()
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			g.Expect(extension.Status.Conditions).To(ConsistOf(
				HaveField("Type", BeEquivalentTo("ControlPlaneHealthy")), HaveField("Type", BeEquivalentTo("PreservedMachinesKept")),
				HaveField("Type", BeEquivalentTo("PoolsCanGrow")),
			))
		}).WithTimeout(time.Minute).WithPolling(500 * time.Millisecond).Should(Succeed())
	})

	It("should check nothing while the shoot is hibernated", func() {
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"shoot":{"spec":{"hibernation":{"enabled":true}}}}}`))
		Expect(env.Client.Patch(ctx, cluster, patch)).To(Succeed())
		for _, condition := range []gardencorev1beta1.ConditionType{"ControlPlaneHealthy", "PreservedMachinesKept", "PoolsCanGrow"} {
			eventually(condition, "True", Equal("Shoot is hibernated"))
		}
	})
})

// label sets the label of a namespace by which the webhooks are called, nil for none.
func label(ctx context.Context, namespace string, value *string) {
	GinkgoHelper()
	object := &corev1.Namespace{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: namespace}, object)).To(Succeed())
	patch := client.MergeFrom(object.DeepCopy())
	delete(object.Labels, "extensions.gardener.cloud/machine-preservation")
	if value != nil {
		object.Labels["extensions.gardener.cloud/machine-preservation"] = *value
	}
	Expect(env.Client.Patch(ctx, object, patch)).To(Succeed())
}
