// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinedeployment_test

import (
	"context"
	"errors"
	"time"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinedeployment"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Mutator", func() {
	const (
		namespace = "shoot--foo--bar"
		maxKey    = "machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max"
		timeKey   = "machine-preservation.extensions.gardener.cloud/machine-preserve-timeout"
		forceKey  = "machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes"
		cycleKey  = "machine-preservation.extensions.gardener.cloud/power-cycle-settings"

		cycle = `{"automatic":false,"fencing":"OutOfServiceTaint","maxAttempts":1,"maxConcurrent":1,"powerOffTimeout":"10m0s","powerOnTimeout":"10m0s","nodeStartupTimeout":"10m0s"}`
	)

	var (
		ctx       = context.Background()
		c         client.Client
		listError error
		mutator   extensionswebhook.Mutator

		extension  *extensionsv1alpha1.Extension
		deployment *machinev1alpha1.MachineDeployment
	)

	BeforeEach(func() {
		listError = nil
		c = fakeclient.NewClientBuilder().WithScheme(builder.Scheme(extensionsv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*extensionsv1alpha1.WorkerList); ok && listError != nil {
					return listError
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()

		mutator = NewMutator(
			&controlplane.Planner{Reader: c, Defaults: &configv1alpha1.ControllerConfiguration{
				AutoPreserveFailedMax:  new(int32(0)),
				MachinePreserveTimeout: &metav1.Duration{Duration: 72 * time.Hour},
				Hosts:                  &configv1alpha1.Hosts{Kind: configv1alpha1.HostKindBareMetalHost},
			}},
			&machinecrd.Schemas{Machines: c, MachineDeployments: c},
		)

		w := &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Name: "bar", Namespace: namespace}}
		w.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "worker-a", Maximum: 6, Zones: []string{"a", "b"}}}
		Expect(c.Create(ctx, w)).To(Succeed())

		extension = &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		extension.Spec.Type = "machine-preservation"
		extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",` +
			`"kind":"MachinePreservationConfig","machineControllerManager":{"autoPreserveFailedMax":3}}`)}
		Expect(c.Create(ctx, extension)).To(Succeed())

		Expect(c.Create(ctx, &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "class-1", Namespace: namespace},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"},
		})).To(Succeed())

		deployment = &machinev1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: "md-1", Namespace: namespace, Labels: map[string]string{"worker.gardener.cloud/pool": "worker-a"}},
			Spec: machinev1alpha1.MachineDeploymentSpec{
				AutoPreserveFailedMachineMax: 4,
				Template:                     machinev1alpha1.MachineTemplateSpec{Spec: machinev1alpha1.MachineSpec{Class: machinev1alpha1.ClassSpec{Name: "class-1"}}},
			},
		}
	})

	enableNativeFields := func() {
		GinkgoHelper()
		Expect(c.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "machinedeployments.machine.sapcloud.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1",
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Properties: map[string]apiextensionsv1.JSONSchemaProps{"autoPreserveFailedMachineMax": {}}},
				}}},
			}}},
		})).To(Succeed())
	}

	It("should write the share when a MachineDeployment is created", func() {
		expected := deployment.DeepCopy()
		expected.Annotations = map[string]string{maxKey: "2", timeKey: "72h0m0s"}
		Expect(mutator.Mutate(ctx, deployment, nil)).To(Succeed())
		Expect(deployment).To(Equal(expected))
	})

	It("should write the native fields where the resource has them", func() {
		enableNativeFields()
		Expect(mutator.Mutate(ctx, deployment, nil)).To(Succeed())
		Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(BeZero())
		Expect(deployment.Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 72 * time.Hour})))
	})

	DescribeTable("should leave it to the worker controller to lower the native number, and let nobody raise it", func(old, written, want int32) {
		enableNativeFields()
		before := deployment.DeepCopy()
		before.Spec.AutoPreserveFailedMachineMax, deployment.Spec.AutoPreserveFailedMachineMax = old, written
		Expect(mutator.Mutate(ctx, deployment, before)).To(Succeed())
		Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(Equal(want))
	},
		Entry("while machines are still to be taken over", int32(2), int32(2), int32(2)),
		Entry("when it is lowered", int32(2), int32(0), int32(0)),
		Entry("when the provider writes it again", int32(0), int32(2), int32(0)),
		Entry("when the provider writes more", int32(1), int32(2), int32(1)),
	)

	It("should put back what a write of the provider takes away", func() {
		enableNativeFields()
		desired := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, desired, nil)).To(Succeed())
		Expect(c.Create(ctx, desired)).To(Succeed())

		written := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, written, desired)).To(Succeed())
		Expect(written.Annotations).To(Equal(desired.Annotations))
		Expect(written.Spec).To(Equal(desired.Spec))
	})

	It("should write, put back and remove the annotation that allows to delete pods with volumes by force", func() {
		setTo := func(value string) {
			extension.Spec.ProviderConfig.Raw = []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",` +
				`"kind":"MachinePreservationConfig","machineControllerManager":{"forceDeletePodsWithVolumes":` + value + `}}`)
			Expect(c.Update(ctx, extension)).To(Succeed())
		}
		setTo("true")
		desired := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, desired, nil)).To(Succeed())
		Expect(desired.Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s", forceKey: "true"}))

		written := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, written, desired)).To(Succeed())
		Expect(written.Annotations).To(Equal(desired.Annotations))

		setTo("false")
		Expect(mutator.Mutate(ctx, desired, desired.DeepCopy())).To(Succeed())
		Expect(desired.Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s"}))
	})

	It("X9: should write, put back and remove the settings of power cycles, without what the operators do not allow", func() {
		setTo := func(fields string) {
			extension.Spec.ProviderConfig.Raw = []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",` +
				`"kind":"MachinePreservationConfig","workers":[{"name":"worker-a"` + fields + `}]}`)
			Expect(c.Update(ctx, extension)).To(Succeed())
		}
		setTo(`,"powerCycle":{"automatic":true}`)
		desired := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, desired, nil)).To(Succeed())
		Expect(desired.Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s", cycleKey: cycle}))

		written := deployment.DeepCopy()
		Expect(mutator.Mutate(ctx, written, desired)).To(Succeed())
		Expect(written.Annotations).To(Equal(desired.Annotations))

		setTo("")
		Expect(mutator.Mutate(ctx, desired, desired.DeepCopy())).To(Succeed())
		Expect(desired.Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s"}))
	})

	It("should not hand out the share of another MachineDeployment", func() {
		other := deployment.DeepCopy()
		other.Name = "md-0"
		other.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		Expect(c.Create(ctx, other)).To(Succeed())

		Expect(mutator.Mutate(ctx, deployment, nil)).To(Succeed())
		Expect(deployment.Annotations).To(HaveKeyWithValue(maxKey, "0"))
	})

	Describe("should leave the share what it was", func() {
		var old *machinev1alpha1.MachineDeployment

		BeforeEach(func() {
			enableNativeFields()
			old = deployment.DeepCopy()
			old.Spec.AutoPreserveFailedMachineMax = 0
			old.Annotations = map[string]string{maxKey: "1", timeKey: "24h0m0s", forceKey: "true", cycleKey: cycle, "old": "annotation"}
		})

		DescribeTable("on update",
			func(prepare func()) {
				prepare()
				Expect(mutator.Mutate(ctx, deployment, old)).To(Succeed())
				Expect(deployment.Annotations).To(Equal(map[string]string{maxKey: "1", timeKey: "24h0m0s", forceKey: "true", cycleKey: cycle}))
				Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(BeZero())
				Expect(deployment.Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 24 * time.Hour})))
			},
			Entry("if the configuration is not valid", func() {
				extension.Spec.ProviderConfig.Raw = []byte(`{"foo":"bar"}`)
				Expect(c.Update(ctx, extension)).To(Succeed())
			}),
			Entry("if the MachineClass is not known yet", func() { deployment.Spec.Template.Spec.Class.Name = "class-new" }),
			Entry("if the pool is not known", func() { deployment.Labels["worker.gardener.cloud/pool"] = "worker-new" }),
			Entry("if the Workers cannot be read", func() { listError = errors.New("fake") }),
		)

		It("on create, if the MachineClass is not known yet", func() {
			deployment.Spec.Template.Spec.Class.Name = "class-new"
			expected := deployment.DeepCopy()
			Expect(mutator.Mutate(ctx, deployment, nil)).To(Succeed())
			Expect(deployment).To(Equal(expected))
		})

		It("if the extension is not enabled", func() {
			Expect(c.Delete(ctx, extension)).To(Succeed())
			expected := deployment.DeepCopy()
			Expect(mutator.Mutate(ctx, deployment, old)).To(Succeed())
			Expect(deployment).To(Equal(expected))
		})

		It("if the MachineDeployment is being deleted", func() {
			deployment.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			expected := deployment.DeepCopy()
			Expect(mutator.Mutate(ctx, deployment, old)).To(Succeed())
			Expect(deployment).To(Equal(expected))
		})
	})

	It("should refuse other types", func() {
		Expect(mutator.Mutate(ctx, extension, nil)).To(MatchError("unexpected type *v1alpha1.Extension"))
	})
})
