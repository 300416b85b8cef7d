// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"encoding/json"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const (
	maxKey  = "machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max"
	timeKey = "machine-preservation.extensions.gardener.cloud/machine-preserve-timeout"
	sizeKey = "machine-preservation.extensions.gardener.cloud/maximum"
)

var _ = Describe("Shares of MachineDeployments", func() {
	var (
		ctx       context.Context
		namespace string
		worker    *extensionsv1alpha1.Worker
		extension *extensionsv1alpha1.Extension
	)

	BeforeEach(func() {
		ctx = context.Background()
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{
			Name:             "worker-a",
			Minimum:          2,
			Maximum:          6,
			SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: false},
		})

		worker = env.CreateWorker(ctx, namespace, extensionsv1alpha1.WorkerPool{Name: "worker-a", Minimum: 2, Maximum: 6, Zones: []string{"0", "1"}})

		extension = environment.NewExtension(namespace)
	})

	enable := func(config map[string]any) {
		GinkgoHelper()
		_, err := controllerutils.GetAndCreateOrMergePatch(ctx, env.Client, extension, func() error {
			config["apiVersion"] = "machine-preservation.extensions.gardener.cloud/v1alpha1"
			config["kind"] = "MachinePreservationConfig"
			raw, err := json.Marshal(config)
			extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: raw}
			return err
		})
		Expect(err).NotTo(HaveOccurred())
	}
	settings := func(limit int, timeout string) map[string]any {
		return map[string]any{"workers": []any{map[string]any{
			"name":                     "worker-a",
			"machineControllerManager": map[string]any{"autoPreserveFailedMax": limit, "machinePreserveTimeout": timeout},
		}}}
	}
	get := func(name string) *machinev1alpha1.MachineDeployment {
		GinkgoHelper()
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment)).To(Succeed())
		return deployment
	}
	eventuallyShares := func(expected ...map[string]string) {
		GinkgoHelper()
		for i, name := range []string{"md-z1", "md-z2"} {
			Eventually(func() map[string]string { return get(name).Annotations }).WithTimeout(time.Minute).Should(Equal(expected[i]))
		}
	}
	share := func(limit, timeout string) map[string]string {
		return map[string]string{maxKey: limit, timeKey: timeout}
	}
	none := map[string]string(nil)

	It("should follow the configuration", func() {
		deployPool(ctx, namespace)
		enable(settings(3, "24h"))
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))
		Expect(get("md-z1").Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 24 * time.Hour})))

		By("Having the provider create one again")
		Expect(env.Client.Delete(ctx, get("md-z2"))).To(Succeed())
		created := writeAsProvider(ctx, namespace, "md-z2", "class-z2", func(*machinev1alpha1.MachineDeployment) {})
		Expect(created.Annotations).To(Equal(share("1", "24h0m0s")), "there was no time for the controller")

		By("Changing it")
		enable(settings(1, "90m"))
		eventuallyShares(share("1", "1h30m0s"), share("0", "1h30m0s"))

		By("Leaving it to the Shoot's own field")
		patch := client.MergeFrom(worker.DeepCopy())
		worker.Spec.Pools[0].MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{AutoPreserveFailedMachineMax: new(int32(4))}
		Expect(env.Client.Patch(ctx, worker, patch)).To(Succeed())
		enable(map[string]any{})
		eventuallyShares(share("2", "72h0m0s"), share("2", "72h0m0s"))

		By("Disabling the extension")
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventuallyShares(none, none)
	})

	It("should keep the shares what they are while the provider writes, and roll no machines by that", func() {
		enable(settings(3, "24h"))
		// The webhook works with caches. Until they have seen the Extension, the controller would follow up.
		Eventually(func() map[string]string {
			deployPool(ctx, namespace)
			return get("md-z2").Annotations
		}).WithTimeout(time.Minute).Should(Equal(share("1", "24h0m0s")))
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))
		before := get("md-z1")

		for range 10 {
			// What is read right after the write is what the webhook has made of it: there was no time for the controller.
			written := writeAsProvider(ctx, namespace, "md-z1", "class-z1", func(deployment *machinev1alpha1.MachineDeployment) {
				deployment.Annotations = nil
			})
			Expect(written.Annotations).To(Equal(share("2", "24h0m0s")))
			Expect(written.Spec).To(Equal(before.Spec))
			Expect(written.Spec.AutoPreserveFailedMachineMax).To(BeZero())
		}
		Expect(get("md-z1").ResourceVersion).To(Equal(before.ResourceVersion), "in the end, nobody has changed anything")
	})

	It("should leave machine-controller-manager its number until what it has auto-preserved is taken over, whatever the provider writes", func() {
		deployPool(ctx, namespace)
		machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: "md-z1-1", Namespace: namespace, Labels: map[string]string{"name": "md-z1"}, Annotations: map[string]string{"node.machine.sapcloud.io/preserve": "auto-preserved"},
		}}
		machine.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: "class-z1"}
		Expect(env.Client.Create(ctx, machine)).To(Succeed())
		numberOf := func(name string) func() int32 {
			return func() int32 { return get(name).Spec.AutoPreserveFailedMachineMax }
		}

		isAtWork(ctx, namespace)
		enable(settings(3, "24h"))
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))
		Eventually(numberOf("md-z2")).WithTimeout(time.Minute).Should(BeZero())
		deployPool(ctx, namespace)
		Consistently(numberOf("md-z1")).WithTimeout(2 * time.Second).Should(BeEquivalentTo(3))

		patch := client.MergeFrom(machine.DeepCopy())
		machine.Annotations["node.machine.sapcloud.io/preserve"] = "now"
		Expect(env.Client.Patch(ctx, machine, patch)).To(Succeed())
		Eventually(numberOf("md-z1")).WithTimeout(time.Minute).Should(BeZero())
		Expect(get("md-z1").Annotations).To(Equal(share("2", "24h0m0s")))
	})

	It("P2: should tell a MachineDeployment what the cluster-autoscaler is told, as soon as Gardener has written it, whatever the provider writes", func() {
		deployPool(ctx, namespace)
		enable(settings(3, "24h"))
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))
		sizes := func(minimum, maximum int32) {
			GinkgoHelper()
			patch := client.MergeFrom(worker.DeepCopy())
			worker.Status.MachineDeployments = []extensionsv1alpha1.MachineDeployment{{Name: "md-z1", Minimum: minimum, Maximum: maximum}, {Name: "md-z2", Minimum: 1, Maximum: 1}}
			Expect(env.Client.Status().Patch(ctx, worker, patch)).To(Succeed())
		}
		told := func(maximum string) map[string]string {
			expected := share("2", "24h0m0s")
			expected[sizeKey] = maximum
			return expected
		}

		sizes(1, 3)
		eventuallyShares(told("3"), share("1", "24h0m0s"))
		for range 10 {
			written := writeAsProvider(ctx, namespace, "md-z1", "class-z1", func(deployment *machinev1alpha1.MachineDeployment) {
				deployment.Annotations = nil
			})
			Expect(written.Annotations).To(Equal(told("3")))
		}

		By("Changing it")
		sizes(1, 5)
		eventuallyShares(told("5"), share("1", "24h0m0s"))

		By("Having no cluster-autoscaler add machines")
		sizes(5, 5)
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))
	})

	It("should change nothing when the configuration is not valid, and say so", func() {
		deployPool(ctx, namespace)
		enable(settings(3, "24h"))
		eventuallyShares(share("2", "24h0m0s"), share("1", "24h0m0s"))

		enable(settings(7, "24h"))
		const message = `spec.providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 7: must be at most 6, the maximum of worker pool "worker-a"`
		Eventually(func(g Gomega) {
			events := &eventsv1.EventList{}
			g.Expect(env.Client.List(ctx, events, client.InNamespace(namespace))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(MatchFields(IgnoreExtras, Fields{
				"Type":      Equal("Warning"),
				"Reason":    Equal("InvalidConfiguration"),
				"Note":      Equal("The shares are not updated, because the configuration is not valid: " + message),
				"Regarding": MatchFields(IgnoreExtras, Fields{"Kind": Equal("Extension"), "Name": Equal("machine-preservation")}),
			})))

			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			g.Expect(extension.Status.LastOperation).To(PointTo(HaveField("State", gardencorev1beta1.LastOperationStateSucceeded)), "what is deployed stays, and does not block the Shoot")
		}).WithTimeout(time.Minute).Should(Succeed())

		for range 10 {
			written := writeAsProvider(ctx, namespace, "md-z1", "class-z1", func(deployment *machinev1alpha1.MachineDeployment) {
				deployment.Annotations = nil
			})
			Expect(written.Annotations).To(Equal(share("2", "24h0m0s")))
		}
		Consistently(func() map[string]string { return get("md-z1").Annotations }).Should(Equal(share("2", "24h0m0s")))

		By("Correcting it")
		enable(settings(5, "24h"))
		eventuallyShares(share("3", "24h0m0s"), share("2", "24h0m0s"))
	})
})

// deployPool writes the MachineClasses and MachineDeployments of both zones, as the provider does.
func deployPool(ctx context.Context, namespace string) {
	GinkgoHelper()
	for name, zone := range map[string]string{"z1": "0", "z2": "1"} {
		deployClass(ctx, namespace, "class-"+name, zone)
		writeAsProvider(ctx, namespace, "md-"+name, "class-"+name, func(*machinev1alpha1.MachineDeployment) {})
	}
}

func deployClass(ctx context.Context, namespace, name, zone string) {
	GinkgoHelper()
	class := &machinev1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	_, err := controllerutils.GetAndCreateOrMergePatch(ctx, env.Client, class, func() error {
		class.Provider = "local"
		class.ProviderSpec = runtime.RawExtension{Raw: []byte(`{"image":"foo"}`)}
		class.NodeTemplate = &machinev1alpha1.NodeTemplate{
			Capacity:     corev1.ResourceList{},
			InstanceType: "local",
			Region:       "local",
			Zone:         zone,
		}
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// writeAsProvider writes a MachineDeployment as extensions of infrastructure providers do: it replaces the template as a
// whole and sets the number of machine-controller-manager's own preservation. It returns what the API server has made of
// it.
func writeAsProvider(ctx context.Context, namespace, name, class string, mutate func(*machinev1alpha1.MachineDeployment)) *machinev1alpha1.MachineDeployment {
	GinkgoHelper()
	deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	_, err := controllerutils.GetAndCreateOrMergePatch(ctx, env.Client, deployment, func() error {
		metav1.SetMetaDataLabel(&deployment.ObjectMeta, "worker.gardener.cloud/pool", "worker-a")
		deployment.Spec.Replicas = 1
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
		deployment.Spec.AutoPreserveFailedMachineMax = 3
		deployment.Spec.Template = machinev1alpha1.MachineTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": name}},
			Spec: machinev1alpha1.MachineSpec{
				Class:                machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class},
				MachineConfiguration: &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}},
			},
		}
		mutate(deployment)
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	return deployment
}

// isAtWork writes the Lease of a preservation controller that is at work, which has to be before the number is lowered that
// machine-controller-manager preserves by itself.
func isAtWork(ctx context.Context, namespace string) {
	GinkgoHelper()
	now := metav1.NowMicro()
	Expect(env.Client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: preservationcontroller.Name, Namespace: namespace},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("mcm-0_1"), AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: new(int32(3600))},
	})).To(Succeed())
}
