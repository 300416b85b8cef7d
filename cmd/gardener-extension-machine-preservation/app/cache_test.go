// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("Cache", func() {
	It("X19: should have no Machines but those that have to do with power cycles", func() {
		found := false
		for object, by := range CacheOptions().ByObject {
			if _, isMachine := object.(*machinev1alpha1.Machine); isMachine {
				found = true
				Expect(by.Label.Matches(labels.Set{v1alpha1.LabelPowerCycle: "true"})).To(BeTrue())
				Expect(by.Label.Matches(labels.Set{"name": "pool"})).To(BeFalse())
			}
		}
		Expect(found).To(BeTrue())
	})
})

var _ = Describe("Transforms", func() {
	meta := metav1.ObjectMeta{Name: "foo", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "bar"}}}

	Describe("Cluster", func() {
		strip := func(shoot []byte) []byte {
			GinkgoHelper()
			raw := runtime.RawExtension{Raw: []byte("{}")}
			stripped, err := StripCluster(&extensionsv1alpha1.Cluster{
				ObjectMeta: meta,
				Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw, Seed: &raw, Shoot: runtime.RawExtension{Raw: shoot}},
			})
			Expect(err).NotTo(HaveOccurred())
			cluster := stripped.(*extensionsv1alpha1.Cluster)
			shoot, cluster.Spec.Shoot = cluster.Spec.Shoot.Raw, runtime.RawExtension{}
			Expect(cluster).To(Equal(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}))
			return shoot
		}

		It("should keep of the Shoot what is read", func() {
			kept := &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}}
			kept.DeletionTimestamp = &metav1.Time{Time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.Local)}
			kept.Annotations = map[string]string{"shoot.gardener.cloud/ignore": "true"}
			kept.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
			kept.Spec.Kubernetes.Version = "1.36.0"
			kept.Spec.Provider.Type = "local"
			kept.Spec.Provider.Workers = []gardencorev1beta1.Worker{{Name: "pool", Maximum: 3, Zones: []string{"a"}, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: true}, Kubernetes: &gardencorev1beta1.WorkerKubernetes{Version: new("1.35.0")}}}
			kept.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
			kept.Status.IsHibernated = true
			kept.Status.TechnicalID = "shoot--foo--bar"
			kept.Status.Gardener.Version = "v1.150.0"
			kept.Status.ObservedGeneration = 2
			kept.Status.LastErrors = []gardencorev1beta1.LastError{{Description: "foo"}}
			kept.Status.AdvertisedAddresses = []gardencorev1beta1.ShootAdvertisedAddress{{Name: "external", URL: "https://foo"}}

			shoot := kept.DeepCopy()
			shoot.ManagedFields = meta.ManagedFields
			shoot.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
			shoot.Spec.Kubernetes.KubeAPIServer = &gardencorev1beta1.KubeAPIServerConfig{}
			shoot.Spec.Provider.InfrastructureConfig = &runtime.RawExtension{Raw: []byte("{}")}
			shoot.Spec.Provider.Workers[0].Machine.Type = "large"
			shoot.Spec.Provider.Workers[0].Kubernetes.Kubelet = &gardencorev1beta1.KubeletConfig{}
			shoot.Spec.Provider.Workers[0].ProviderConfig = &runtime.RawExtension{Raw: []byte("{}")}
			shoot.Status.Conditions = []gardencorev1beta1.Condition{{Type: "foo"}}

			raw, err := json.Marshal(shoot)
			Expect(err).NotTo(HaveOccurred())
			stripped := &gardencorev1beta1.Shoot{}
			Expect(json.Unmarshal(strip(raw), stripped)).To(Succeed())
			Expect(stripped).To(Equal(kept))
		})

		It("should keep a Shoot whole that it cannot read, and none", func() {
			Expect(strip([]byte(`{"apiVersion":"core.gardener.cloud/v2","spec":{"foo":"bar"}}`))).To(MatchJSON(`{"apiVersion":"core.gardener.cloud/v2","spec":{"foo":"bar"}}`))
			Expect(strip([]byte(`{"spec":1}`))).To(MatchJSON(`{"spec":1}`))
			Expect(strip(nil)).To(BeNil())
		})
	})

	It("should keep our own Extensions, and of others that they are there", func() {
		newExtension := func(extensionType string) *extensionsv1alpha1.Extension {
			extension := &extensionsv1alpha1.Extension{ObjectMeta: meta}
			extension.Spec.Type = extensionType
			extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte("{}")}
			extension.Status.ObservedGeneration = 1
			return extension
		}
		own := newExtension("machine-preservation")
		own.ManagedFields = nil
		Expect(StripExtension(newExtension("machine-preservation"))).To(Equal(own))

		other := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}
		other.Spec.Type = "other"
		Expect(StripExtension(newExtension("other"))).To(Equal(other))
	})

	It("should keep the pools of a Worker and what the cluster-autoscaler is told, but not what belongs to the provider", func() {
		worker := &extensionsv1alpha1.Worker{ObjectMeta: meta}
		worker.Spec.Region = "region"
		worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte("{}")}
		worker.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "pool", Maximum: 1, ProviderConfig: &runtime.RawExtension{Raw: []byte("{}")}, Taints: []corev1.Taint{{Key: "foo"}}}}
		worker.Status.State = &runtime.RawExtension{Raw: []byte("{}")}
		worker.Status.MachineDeployments = []extensionsv1alpha1.MachineDeployment{{Name: "md", Minimum: 1, Maximum: 2, Priority: new(int32(3))}}
		worker.Status.MachineDeploymentsLastUpdateTime = &metav1.Time{Time: time.Now()}

		expected := &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}
		expected.Spec.Region = "region"
		expected.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "pool", Maximum: 1}}
		expected.Status.MachineDeployments = []extensionsv1alpha1.MachineDeployment{{Name: "md", Minimum: 1, Maximum: 2}}
		Expect(StripWorker(worker)).To(Equal(expected))
	})

	It("should keep all of a Shoot's and of a Worker's pools that shares depend on", func() {
		settings := &gardencorev1beta1.MachineControllerManagerSettings{AutoPreserveFailedMachineMax: new(int32(2)), MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour}}
		expected := share.Pool{Name: "pool", Maximum: 3, SystemComponents: true, Zones: []string{"a"}, AutoPreserveFailedMax: new(int32(2)), MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour}}

		worker := &extensionsv1alpha1.Worker{}
		worker.Spec.Pools = []extensionsv1alpha1.WorkerPool{{
			Name: "pool", Maximum: 3, Zones: []string{"a"}, MachineControllerManagerSettings: settings,
			Labels: map[string]string{"worker.gardener.cloud/system-components": "true"},
		}}
		stripped, err := StripWorker(worker)
		Expect(err).NotTo(HaveOccurred())
		Expect(share.PoolsOfWorker(stripped.(*extensionsv1alpha1.Worker))).To(Equal([]share.Pool{expected}))

		raw, err := json.Marshal(&gardencorev1beta1.Shoot{
			TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
			Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{{
				Name: "pool", Maximum: 3, Zones: []string{"a"}, MachineControllerManagerSettings: settings, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: true},
			}}}},
		})
		Expect(err).NotTo(HaveOccurred())
		cluster := &extensionsv1alpha1.Cluster{Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}}}
		_, err = StripCluster(cluster)
		Expect(err).NotTo(HaveOccurred())
		shoot := &gardencorev1beta1.Shoot{}
		Expect(json.Unmarshal(cluster.Spec.Shoot.Raw, shoot)).To(Succeed())
		Expect(share.PoolsOfShoot(shoot.Spec.Provider.Workers)).To(Equal([]share.Pool{expected}))
	})

	It("should keep the zone of a MachineClass, but not what belongs to the provider", func() {
		Expect(StripMachineClass(&machinev1alpha1.MachineClass{
			ObjectMeta:   meta,
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a", Region: "region", Capacity: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			SecretRef:    &corev1.SecretReference{Name: "bar"},
			ProviderSpec: runtime.RawExtension{Raw: []byte("{}")},
		})).To(Equal(&machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "foo"},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"},
		}))
	})

	It("should keep what the sidecar depends on in machine-controller-manager's Deployment, and the sidecar itself", func() {
		sidecar := preservationcontroller.Container(preservationcontroller.ContainerValues{Image: "sidecar"})
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "machine-controller-manager", Image: "mcm", Command: []string{"a"}, Args: []string{"b"}}, sidecar},
			Volumes:    []corev1.Volume{preservationcontroller.Volume("kubeconfig")},
		}}
		expected := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "foo", Labels: map[string]string{"foo": "bar"}, Generation: 2},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{}, Template: template},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{{Type: "Available"}}},
		}
		deployment := expected.DeepCopy()
		deployment.ManagedFields = meta.ManagedFields
		deployment.Annotations = map[string]string{"foo": "bar"}
		deployment.Spec.Template.Labels = map[string]string{"foo": "bar"}
		deployment.Spec.Template.Spec.PriorityClassName = "foo"
		deployment.Spec.Template.Spec.Containers[0].LivenessProbe = sidecar.LivenessProbe
		Expect(StripDeployment(deployment)).To(Equal(expected))
	})

	It("should keep the specification of a MachineDeployment and its pool, but not its status", func() {
		expected := &machinev1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: "foo", Labels: map[string]string{"foo": "bar"}, Annotations: map[string]string{"foo": "bar"}},
			Spec:       machinev1alpha1.MachineDeploymentSpec{Replicas: 1},
		}
		expected.Spec.Template.Spec.Class.Name = "class"
		expected.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "pool"}
		deployment := expected.DeepCopy()
		deployment.ManagedFields = meta.ManagedFields
		deployment.Spec.Template.Spec.NodeTemplateSpec.Labels["foo"] = "bar"
		deployment.Spec.Template.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "foo"}}
		deployment.Status.Replicas = 1
		Expect(StripMachineDeployment(deployment)).To(Equal(expected))
	})
})
