// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("MachineDeployment", func() {
	var (
		deployment *machinev1alpha1.MachineDeployment
		settings   = Settings{AutoPreserveFailedMax: 2, MachinePreserveTimeout: 24 * time.Hour}
	)

	BeforeEach(func() {
		deployment = &machinev1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"foo": "bar"}},
			Spec: machinev1alpha1.MachineDeploymentSpec{
				AutoPreserveFailedMachineMax: 7,
				Template: machinev1alpha1.MachineTemplateSpec{Spec: machinev1alpha1.MachineSpec{
					MachineConfiguration: &machinev1alpha1.MachineConfiguration{
						MachineHealthTimeout:   &metav1.Duration{Duration: time.Minute},
						MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour},
					},
				}},
			},
		}
	})

	It("should get the annotations and nothing else where it has no native fields", func() {
		expected := deployment.DeepCopy()
		expected.Annotations = map[string]string{
			"foo": "bar",
			"machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max": "2",
			"machine-preservation.extensions.gardener.cloud/machine-preserve-timeout": "24h0m0s",
		}

		Expect(Apply(deployment, settings, false, 0)).To(BeTrue())
		Expect(deployment).To(Equal(expected))
		Expect(Apply(deployment, settings, false, 0)).To(BeFalse(), "twice changes nothing")
		Expect(deployment).To(Equal(expected))
	})

	DescribeTable("should get an annotation only where that is set", func(name string, set func(*Settings)) {
		key := "machine-preservation.extensions.gardener.cloud/" + name
		expected := deployment.DeepCopy()
		Apply(expected, settings, false, 0)
		asked := settings
		set(&asked)

		Apply(deployment, asked, false, 0)
		Expect(deployment.Annotations).To(HaveKeyWithValue(key, "true"))
		Expect(Apply(deployment, asked, false, 0)).To(BeFalse(), "twice changes nothing")
		actual, ok := Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(asked))

		for _, edited := range []string{"true", "false", ""} {
			deployment.Annotations[key] = edited
			Expect(Apply(deployment, settings, false, 0)).To(BeTrue())
			Expect(deployment).To(Equal(expected))
			Expect(Apply(deployment, settings, false, 0)).To(BeFalse(), "twice changes nothing")
		}
	},
		Entry("that allows to delete pods with volumes by force", "force-delete-pods-with-volumes", func(s *Settings) { s.ForceDeletePodsWithVolumes = true }),
		Entry("P20: that shares its places with the other zones", "shared-in-pool", func(s *Settings) { s.SharedIn = "true" }),
		Entry("P15: that has new failures preferred", "prefer-new-failures", func(s *Settings) { s.PreferNewFailures = true }),
	)

	It("P2: should get the maximum of the cluster-autoscaler only where that is known", func() {
		const key = "machine-preservation.extensions.gardener.cloud/maximum"
		expected := deployment.DeepCopy()
		Apply(expected, settings, false, 0)
		limited := settings
		limited.Maximum = 4

		Expect(Apply(deployment, limited, false, 0)).To(BeTrue())
		Expect(deployment.Annotations).To(HaveKeyWithValue(key, "4"))
		Expect(Apply(deployment, limited, false, 0)).To(BeFalse(), "twice changes nothing")
		actual, ok := Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(limited))
		Expect(Apply(deployment, settings, false, 0)).To(BeTrue())
		Expect(deployment).To(Equal(expected))
	})

	It("X9: should get the settings of power cycles, complete and always the same, only where they are set", func() {
		const key = "machine-preservation.extensions.gardener.cloud/power-cycle-settings"
		expected := deployment.DeepCopy()
		Apply(expected, settings, false, 0)
		cycling := settings
		cycling.PowerCycle = &v1alpha1.PowerCycle{Automatic: new(v1alpha1.AutomaticTrue), PowerOnTimeout: &metav1.Duration{Duration: 5 * time.Minute}}
		v1alpha1.SetDefaults_PowerCycle(cycling.PowerCycle)

		Apply(deployment, cycling, false, 0)
		Expect(deployment.Annotations).To(HaveKeyWithValue(key, `{"automatic":true,"fencing":"OutOfServiceTaint","maxAttempts":1,"maxConcurrent":1,`+
			`"powerOffTimeout":"10m0s","powerOnTimeout":"5m0s","nodeStartupTimeout":"10m0s"}`))
		Expect(Apply(deployment, cycling, false, 0)).To(BeFalse(), "twice changes nothing")
		actual, ok := Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(cycling))

		By("Reading what a former version has written")
		deployment.Annotations[key] = `{"powerOnTimeout":"5m0s","automatic":true,"fencing":"OutOfServiceTaint"}`
		Expect(v1alpha1.PowerCycleOf(deployment)).To(Equal(cycling.PowerCycle))

		for _, edited := range []string{"{}", "x"} {
			deployment.Annotations[key] = edited
			Expect(Apply(deployment, settings, false, 0)).To(BeTrue())
			Expect(deployment).To(Equal(expected))
		}
		deployment.Annotations[key] = "x"
		actual, ok = Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(settings))
		_, err := v1alpha1.PowerCycleOf(deployment)
		Expect(err).To(MatchError(ContainSubstring(key)))
	})

	It("V1: should get the validation, complete and always the same, only where it is set", func() {
		const key = "machine-preservation.extensions.gardener.cloud/validation-settings"
		expected := deployment.DeepCopy()
		Apply(expected, settings, false, 0)
		validated := settings
		validated.Validation = &v1alpha1.Validation{Condition: new("GPUHealthy")}
		v1alpha1.SetDefaults_Validation(validated.Validation)

		Apply(deployment, validated, false, 0)
		Expect(deployment.Annotations).To(HaveKeyWithValue(key, `{"condition":"GPUHealthy","timeout":"15m0s","onTimeout":"Keep"}`))
		Expect(Apply(deployment, validated, false, 0)).To(BeFalse(), "twice changes nothing")
		actual, ok := Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(validated))

		By("Reading what a former version has written")
		deployment.Annotations[key] = `{"condition":"GPUHealthy"}`
		Expect(v1alpha1.ValidationOf(deployment)).To(Equal(validated.Validation))

		for _, edited := range []string{"{}", "x"} {
			deployment.Annotations[key] = edited
			Expect(Apply(deployment, settings, false, 0)).To(BeTrue())
			Expect(deployment).To(Equal(expected))
		}
		deployment.Annotations[key] = "x"
		actual, ok = Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(settings))
		_, err := v1alpha1.ValidationOf(deployment)
		Expect(err).To(MatchError(ContainSubstring(key)))
	})

	DescribeTable("should have the native number lowered, and never raised", func(nativeMax, want int32) {
		Apply(deployment, settings, true, 7)
		Expect(Apply(deployment, settings, true, nativeMax)).To(Equal(want != 7))
		Expect(deployment.Spec.AutoPreserveFailedMachineMax).To(Equal(want))
	},
		Entry("to 0", int32(0), int32(0)),
		Entry("to what may still be preserved", int32(3), int32(3)),
		Entry("not to what it is", int32(7), int32(7)),
		Entry("not to more", int32(9), int32(7)),
	)

	It("should get the native timeout, while the native number is lowered to 0", func() {
		expected := deployment.DeepCopy()
		Apply(expected, settings, false, 0)
		expected.Spec.AutoPreserveFailedMachineMax = 0
		expected.Spec.Template.Spec.MachinePreserveTimeout = &metav1.Duration{Duration: 24 * time.Hour}

		Expect(Apply(deployment, settings, true, 0)).To(BeTrue())
		Expect(deployment).To(Equal(expected))
		Expect(Apply(deployment, settings, true, 0)).To(BeFalse(), "twice changes nothing")
		Expect(deployment).To(Equal(expected))
	})

	It("should get the native timeout when its template has no machine configuration", func() {
		deployment.Spec.Template.Spec.MachineConfiguration = nil
		Apply(deployment, settings, true, 0)
		Expect(deployment.Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 24 * time.Hour})))
	})

	DescribeTable("changes of a single value",
		func(change func(*machinev1alpha1.MachineDeployment)) {
			Apply(deployment, settings, true, 0)
			expected := deployment.DeepCopy()
			change(deployment)
			Expect(Apply(deployment, settings, true, 0)).To(BeTrue())
			Expect(deployment).To(Equal(expected))
		},
		Entry("share", func(d *machinev1alpha1.MachineDeployment) {
			d.Annotations["machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max"] = "3"
		}),
		Entry("timeout", func(d *machinev1alpha1.MachineDeployment) {
			delete(d.Annotations, "machine-preservation.extensions.gardener.cloud/machine-preserve-timeout")
		}),
		Entry("native number", func(d *machinev1alpha1.MachineDeployment) { d.Spec.AutoPreserveFailedMachineMax = 1 }),
		Entry("native timeout", func(d *machinev1alpha1.MachineDeployment) { d.Spec.Template.Spec.MachinePreserveTimeout = nil }),
	)

	It("should tell the share it has got", func() {
		_, ok := Of(deployment)
		Expect(ok).To(BeFalse())

		Apply(deployment, settings, false, 0)
		actual, ok := Of(deployment)
		Expect(ok).To(BeTrue())
		Expect(actual).To(Equal(settings))

		deployment.Annotations["machine-preservation.extensions.gardener.cloud/machine-preserve-timeout"] = "soon"
		_, ok = Of(deployment)
		Expect(ok).To(BeFalse())
	})

	It("should lose the annotations and nothing else", func() {
		expected := deployment.DeepCopy()
		Expect(Remove(deployment)).To(BeFalse())
		Expect(deployment).To(Equal(expected))

		Apply(deployment, Settings{AutoPreserveFailedMax: 2, MachinePreserveTimeout: 24 * time.Hour, ForceDeletePodsWithVolumes: true, PowerCycle: &v1alpha1.PowerCycle{}}, false, 0)
		Expect(Remove(deployment)).To(BeTrue())
		Expect(deployment).To(Equal(expected))
	})
})
