// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"os"
	"regexp"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("example/shoot.yaml", func() {
	read := func(edit func([]byte) []byte) *preservation.MachinePreservationConfig {
		GinkgoHelper()
		data, err := os.ReadFile("../../example/shoot.yaml")
		Expect(err).NotTo(HaveOccurred())
		data = edit(data)

		scheme := runtime.NewScheme()
		Expect(gardencorev1beta1.AddToScheme(scheme)).To(Succeed())
		object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), data)
		Expect(err).NotTo(HaveOccurred())
		shoot, ok := object.(*gardencorev1beta1.Shoot)
		Expect(ok).To(BeTrue())
		Expect(shoot.Spec.Provider.Type).To(Equal("local"))
		Expect(shoot.Spec.Provider.Workers).To(HaveLen(1))
		Expect(shoot.Spec.Provider.Workers[0].Zones).To(HaveLen(2))

		Expect(shoot.Spec.Extensions).To(HaveLen(1))
		Expect(shoot.Spec.Extensions[0].Type).To(Equal("machine-preservation"))
		config, err := providerconfig.ReadProviderConfig(shoot.Spec.Extensions[0].ProviderConfig, share.PoolsOfShoot(shoot.Spec.Provider.Workers), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Workers).To(HaveLen(1))
		Expect(config.Workers[0].MachineControllerManager.AutoPreserveFailedMax).To(HaveValue(BeEquivalentTo(2)))
		return config
	}

	It("should be valid", func() {
		config := read(func(data []byte) []byte { return data })
		Expect(config.Workers[0].PowerCycle).To(BeNil())
		Expect(config.DrainConditions).To(BeNil())
		Expect(config.Workers[0].Validation).To(BeNil())
		Expect(config.Evidence).To(BeNil())
	})

	It("should be valid with what is commented out as well", func() {
		commented := regexp.MustCompile(`(?m)^( +)# ( *[a-z]\w+:( .*)?)$`)
		config := read(func(data []byte) []byte { return commented.ReplaceAll(data, []byte("$1$2")) })
		Expect(config.Workers[0].MachineControllerManager.ForceDeletePodsWithVolumes).To(HaveValue(BeTrue()))
		Expect(config.Workers[0].PowerCycle).NotTo(BeNil())
		Expect(config.DrainConditions).To(HaveValue(BeTrue()))
		Expect(config.Workers[0].Validation.Condition).To(HaveValue(Equal("GPUHealthy")))
		Expect(config.Evidence.Enabled).To(HaveValue(BeTrue()))
	})
})
