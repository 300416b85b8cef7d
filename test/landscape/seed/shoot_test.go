// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/extensions"
	"github.com/gardener/gardener/pkg/provider-local/apis/local/helper"
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const manifest = `
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata:
  name: demo
spec:
  region: local
  kubernetes:
    version: 1.36.3
  extensions:
  - type: machine-preservation
  - type: other
    disabled: true
  provider:
    type: local
    workers:
    - name: worker-a
      minimum: 2
      maximum: 4
      zones: [zone-a, zone-b]
      machineControllerManager:
        machineHealthTimeout: 30s
`

var _ = Describe("Shoot", func() {
	var shoot *gardencorev1beta1.Shoot

	BeforeEach(func() {
		decoded, err := DecodeShoot([]byte(manifest))
		Expect(err).NotTo(HaveOccurred())
		shoot, err = complete(decoded, nil)
		Expect(err).NotTo(HaveOccurred())
	})

	Describe("DecodeShoot", func() {
		It("refuses unknown fields", func() {
			_, err := DecodeShoot([]byte(manifest + "  unknown: true\n"))
			Expect(err).To(MatchError(ContainSubstring("unknown")))
		})

		It("refuses other kinds", func() {
			_, err := DecodeShoot([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"))
			Expect(err).To(MatchError(ContainSubstring("got /v1, Kind=Secret")))
		})
	})

	Describe("complete", func() {
		It("adds what gardener-apiserver and gardenlet would add", func() {
			Expect(shoot.Status.TechnicalID).To(Equal("shoot--local--demo"))
			Expect(shoot.Status.UID).NotTo(BeEmpty())
			Expect(shoot.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeCreate))
			pool := shoot.Spec.Provider.Workers[0]
			Expect(pool.Machine.Type).To(Equal("local"))
			Expect(*pool.Machine.Image.Version).To(Equal("1.0.0"))
			Expect(pool.MaxSurge.IntValue()).To(Equal(1))
		})

		It("keeps what a Shoot has reached", func() {
			setLastOperation(shoot, gardencorev1beta1.LastOperationTypeCreate, gardencorev1beta1.LastOperationStateSucceeded)
			again, err := complete(shoot, shoot)
			Expect(err).NotTo(HaveOccurred())
			Expect(again.UID).To(Equal(shoot.UID))
			Expect(again.Generation).To(Equal(shoot.Generation + 1))
			Expect(again.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeReconcile))
		})

		DescribeTable("refuses what is incomplete", func(change func(), message string) {
			change()
			_, err := complete(shoot, nil)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
			Entry("no name", func() { shoot.Name = "" }, "metadata.name"),
			Entry("no version", func() { shoot.Spec.Kubernetes.Version = "" }, "spec.kubernetes.version"),
			Entry("another provider", func() { shoot.Spec.Provider.Type = "aws" }, "spec.provider.type"),
			Entry("no workers", func() { shoot.Spec.Provider.Workers = nil }, "spec.provider.workers"),
		)
	})

	It("labels the control-plane namespace with the enabled extensions only", func() {
		labels := namespaceLabels(shoot, map[string]string{"a": "b", "extensions.gardener.cloud/gone": "true"})
		Expect(labels).To(And(
			HaveKeyWithValue("a", "b"),
			HaveKeyWithValue("gardener.cloud/role", "shoot"),
			HaveKeyWithValue("shoot.gardener.cloud/provider", "local"),
			HaveKeyWithValue("extensions.gardener.cloud/machine-preservation", "true"),
			Not(HaveKey("extensions.gardener.cloud/gone")),
			Not(HaveKey("extensions.gardener.cloud/other")),
		))
	})

	It("makes a cloud profile that provider-local understands", func() {
		shoot.Spec.Provider.Workers[0].Machine.Image = &gardencorev1beta1.ShootMachineImage{Name: "linux", Version: new("2.1.0")}
		profile, err := cloudProfileFor(shoot)
		Expect(err).NotTo(HaveOccurred())
		Expect(profile.Spec.Regions[0].Zones).To(ConsistOf(HaveField("Name", "zone-a"), HaveField("Name", "zone-b")))

		config, err := helper.CloudProfileConfigFromCluster(&extensions.Cluster{CloudProfile: profile})
		Expect(err).NotTo(HaveOccurred())
		image, err := helper.FindImageFromCloudProfile(config, "linux", "2.1.0", nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(image.Image).To(Equal("linux:2.1.0"))
	})

	Describe("operation", func() {
		var o *operation

		BeforeEach(func() {
			cloudProfile, err := cloudProfileFor(shoot)
			Expect(err).NotTo(HaveOccurred())
			o = &operation{
				log:          logr.Discard(),
				config:       &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "t"},
				client:       fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).Build(),
				landscape:    &landscape{shootServer: "https://127.0.0.1:2", shootCA: []byte("ca"), mcmVersion: "v1.2.3"},
				namespace:    ControlPlaneNamespace(shoot.Name),
				shoot:        shoot,
				cloudProfile: cloudProfile,
			}
		})

		get := func(ctx SpecContext, name string, object client.Object) {
			GinkgoHelper()
			Expect(o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: name}, object)).To(Succeed())
		}

		It("rolls machines when their image changes, and not otherwise", func(ctx SpecContext) {
			secretName := func() string {
				GinkgoHelper()
				Expect(o.deployWorker(ctx)).To(Succeed())
				worker := &extensionsv1alpha1.Worker{}
				get(ctx, "demo", worker)
				return *worker.Spec.Pools[0].NodeAgentSecretName
			}
			first := secretName()
			o.shoot.Spec.Provider.Workers[0].Maximum = 6
			o.shoot.Spec.Provider.Workers[0].MachineControllerManagerSettings = nil
			Expect(secretName()).To(Equal(first))
			o.shoot.Spec.Provider.Workers[0].Machine.Image.Version = new("2.0.0")
			Expect(secretName()).NotTo(Equal(first))
		})

		It("deploys machine-controller-manager with a kubeconfig for the shoot", func(ctx SpecContext) {
			Expect(o.client.Create(ctx, &extensionsv1alpha1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: o.namespace},
				Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: []byte("{}")}},
			})).To(Succeed())
			Expect(o.deploySecrets(ctx)).To(Succeed())
			Expect(o.deployMachineControllerManager(ctx)).To(Succeed())

			deployment := &appsv1.Deployment{}
			get(ctx, "machine-controller-manager", deployment)
			Expect(*deployment.Spec.Replicas).To(Equal(int32(1)))
			Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix("/machine-controller-manager:v1.2.3"))
			kubeconfig := &corev1.Secret{}
			get(ctx, deployment.Spec.Template.Spec.Volumes[0].Projected.Sources[0].Secret.Name, kubeconfig)
			Expect(string(kubeconfig.Data["kubeconfig"])).To(And(ContainSubstring("https://127.0.0.1:2"), ContainSubstring("tokenFile:")))

			By("leaving its start to the worker controller in a restoration")
			o.shootState = &gardencorev1beta1.ShootState{}
			Expect(o.deployMachineControllerManager(ctx)).To(Succeed())
			get(ctx, "machine-controller-manager", deployment)
			Expect(*deployment.Spec.Replicas).To(Equal(int32(0)))
			o.shootState = nil

			By("leaving it alone in a hibernated shoot")
			o.shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
			o.shoot.Status.IsHibernated = true
			deployment.Spec.Replicas = new(int32(0))
			Expect(o.client.Update(ctx, deployment)).To(Succeed())
			Expect(o.deployMachineControllerManager(ctx)).To(Succeed())
			get(ctx, "machine-controller-manager", deployment)
			Expect(*deployment.Spec.Replicas).To(Equal(int32(0)))
		})
	})
})
