// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package gardenlet_test

import (
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/test/landscape/garden/gardenlet"
)

var _ = Describe("CareReconciler", func() {
	const namespace = "shoot--local--demo"

	var (
		shoot      *gardencorev1beta1.Shoot
		extension  *extensionsv1alpha1.Extension
		inSeed     *resourcesv1alpha1.ManagedResource
		inShoot    *resourcesv1alpha1.ManagedResource
		deployment *machinev1alpha1.MachineDeployment
		nodes      []client.Object
	)

	managedResource := func(name string, class *string) *resourcesv1alpha1.ManagedResource {
		return &resourcesv1alpha1.ManagedResource{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec:       resourcesv1alpha1.ManagedResourceSpec{Class: class},
			Status: resourcesv1alpha1.ManagedResourceStatus{Conditions: []gardencorev1beta1.Condition{
				{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionTrue},
				{Type: resourcesv1alpha1.ResourcesHealthy, Status: gardencorev1beta1.ConditionTrue},
				{Type: resourcesv1alpha1.ResourcesProgressing, Status: gardencorev1beta1.ConditionUnknown},
			}},
		}
	}
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"worker.gardener.cloud/pool": "pool"}},
			Status: corev1.NodeStatus{
				NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			},
		}
	}

	BeforeEach(func() {
		shoot = &gardencorev1beta1.Shoot{
			ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "garden-local"},
			Spec: gardencorev1beta1.ShootSpec{
				Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.36.3"},
				Provider:   gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{{Name: "pool", Minimum: 2}}},
			},
			Status: gardencorev1beta1.ShootStatus{
				TechnicalID:   namespace,
				LastOperation: &gardencorev1beta1.LastOperation{Type: "Create", State: "Succeeded"},
			},
		}
		extension = &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		inSeed, inShoot = managedResource("in-seed", new("seed")), managedResource("in-shoot", nil)
		deployment = &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: namespace}}
		nodes = []client.Object{node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue)}
	})

	care := func(ctx SpecContext) *gardencorev1beta1.Shoot {
		GinkgoHelper()
		garden := fakeclient.NewClientBuilder().WithScheme(kubernetesclient.GardenScheme).WithStatusSubresource(shoot).WithObjects(shoot).Build()
		reconciler := &CareReconciler{
			Client:      garden,
			SeedClient:  fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithObjects(extension, inSeed, inShoot, deployment).Build(),
			ShootClient: fakeclient.NewClientBuilder().WithScheme(kubernetesclient.ShootScheme).WithObjects(nodes...).Build(),
			Clock:       clock.RealClock{},
		}
		key := client.ObjectKeyFromObject(shoot)
		result, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		cared := &gardencorev1beta1.Shoot{}
		Expect(garden.Get(ctx, key, cared)).To(Succeed())
		return cared
	}
	is := func(conditionType gardencorev1beta1.ConditionType, status gardencorev1beta1.ConditionStatus, message string) gomegatypes.GomegaMatcher {
		return And(HaveField("Type", conditionType), HaveField("Status", status), HaveField("Message", ContainSubstring(message)))
	}

	It("finds all well", func(ctx SpecContext) {
		cared := care(ctx)
		Expect(cared.Status.Conditions).To(ConsistOf(
			is("ControlPlaneHealthy", "True", ""),
			is("SystemComponentsHealthy", "True", ""),
			is("EveryNodeReady", "True", ""),
		))
		Expect(cared.Status.Constraints).To(BeEmpty())
	})

	It("expects nothing of a Shoot that is being created", func(ctx SpecContext) {
		shoot.Status.LastOperation.State = gardencorev1beta1.LastOperationStateProcessing
		nodes = nil
		Expect(care(ctx).Status.Conditions).To(BeEmpty())
	})

	It("expects nothing of a Shoot that is hibernated", func(ctx SpecContext) {
		shoot.Status.IsHibernated = true
		nodes = nil
		Expect(care(ctx).Status.Conditions).To(HaveEach(And(HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", "ConditionNotChecked"))))
	})

	DescribeTable("finds what is wrong", func(ctx SpecContext, breakIt func(), conditionType gardencorev1beta1.ConditionType, message string) {
		breakIt()
		conditions := care(ctx).Status.Conditions
		Expect(conditions).To(ContainElement(is(conditionType, "False", message)))
		Expect(conditions).To(ContainElements(HaveField("Status", BeEquivalentTo("True")), HaveField("Status", BeEquivalentTo("True"))))
	},
		Entry("the report of an extension", func() {
			extension.Status.Conditions = []gardencorev1beta1.Condition{{Type: gardencorev1beta1.ShootControlPlaneHealthy, Status: gardencorev1beta1.ConditionFalse, Message: "no sidecar"}}
		}, gardencorev1beta1.ShootControlPlaneHealthy, "machine-preservation) reports failing health check: no sidecar"),
		Entry("a resource in the seed", func() {
			inSeed.Status.Conditions[0] = gardencorev1beta1.Condition{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionFalse, Message: "not applied"}
		}, gardencorev1beta1.ShootControlPlaneHealthy, "not applied"),
		Entry("a resource in the shoot", func() {
			inShoot.Status.Conditions[1] = gardencorev1beta1.Condition{Type: resourcesv1alpha1.ResourcesHealthy, Status: gardencorev1beta1.ConditionFalse, Message: "not healthy"}
		}, gardencorev1beta1.ShootSystemComponentsHealthy, "not healthy"),
		Entry("a node", func() { nodes[1] = node("b", corev1.ConditionUnknown) }, gardencorev1beta1.ShootEveryNodeReady, `Node "b" in worker group "pool" is unhealthy`),
		Entry("too few nodes", func() { nodes = nodes[:1] }, gardencorev1beta1.ShootEveryNodeReady, `"pool" has 1 of at least 2 nodes`),
	)

	Describe("preserved failed machines", func() {
		BeforeEach(func() {
			preserved := node("b", corev1.ConditionUnknown)
			preserved.Status.Conditions = append(preserved.Status.Conditions, corev1.NodeCondition{Type: "Preserved", Status: corev1.ConditionTrue})
			nodes[1] = preserved
		})

		It("tells that a node is preserved", func(ctx SpecContext) {
			Expect(care(ctx).Status.Conditions).To(ContainElement(is("EveryNodeReady", "False", "preserved by MCM")))
		})

		It("tells of other nodes first", func(ctx SpecContext) {
			shoot.Spec.Provider.Workers = append(shoot.Spec.Provider.Workers, gardencorev1beta1.Worker{Name: "other"})
			broken := node("c", corev1.ConditionFalse)
			broken.Labels["worker.gardener.cloud/pool"] = "other"
			nodes = append(nodes, broken)
			Expect(care(ctx).Status.Conditions).To(ContainElement(is("EveryNodeReady", "False", `Node "c"`)))
		})

		It("has a constraint as long as there are some", func(ctx SpecContext) {
			deployment.Status.PreservedFailedReplicas = 2
			shoot = care(ctx)
			Expect(shoot.Status.Constraints).To(ConsistOf(is("PreservedFailedMachinesAbsent", "False", "2 preserved failed machine(s)")))

			shoot.ResourceVersion = ""
			deployment.Status.PreservedFailedReplicas = 0
			Expect(care(ctx).Status.Constraints).To(BeEmpty())
		})
	})
})
