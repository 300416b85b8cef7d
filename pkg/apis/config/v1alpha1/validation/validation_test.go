// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1/validation"
)

var _ = Describe("#ValidateControllerConfiguration", func() {
	It("should accept the defaults", func() {
		config := &configv1alpha1.ControllerConfiguration{}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
		Expect(ValidateControllerConfiguration(config)).To(BeEmpty())
	})

	It("should name every bad field", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax:     new(int32(-1)),
			MachinePreserveTimeout:    &metav1.Duration{Duration: 9 * time.Second},
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 9 * time.Second},
		}).ToAggregate()).To(MatchError(
			`[autoPreserveFailedMax: Invalid value: -1: must not be negative, maxMachinePreserveTimeout: Invalid value: "9s": must be at least 10s, machinePreserveTimeout: Invalid value: "9s": must be at least 10s]`,
		))
	})

	It("P13: should not accept a default that is longer than what is allowed", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			MachinePreserveTimeout:    &metav1.Duration{Duration: 72 * time.Hour},
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 24 * time.Hour},
		}).ToAggregate()).To(MatchError(
			`machinePreserveTimeout: Invalid value: "72h0m0s": must not be longer than maxMachinePreserveTimeout, which is 24h0m0s`,
		))
	})

	It("should not accept a default that is greater than what is allowed", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(3)), MaxAutoPreserveFailed: new(int32(2)),
		}).ToAggregate()).To(MatchError(`autoPreserveFailedMax: Invalid value: 3: must not be greater than maxAutoPreserveFailed, which is 2`))
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(2)), MaxAutoPreserveFailed: new(int32(2)),
		})).To(BeEmpty())
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(0)), MaxAutoPreserveFailed: new(int32(-1)),
		}).ToAggregate()).To(MatchError(`maxAutoPreserveFailed: Invalid value: -1: must not be negative`))
	})

	DescribeTable("injection",
		func(config configv1alpha1.ControllerConfiguration, message string) {
			errs := ValidateControllerConfiguration(&config).ToAggregate()
			if message == "" {
				Expect(errs).NotTo(HaveOccurred())
				return
			}
			Expect(errs).To(MatchError(message))
		},
		Entry("with the next reconciliation", configv1alpha1.ControllerConfiguration{Injection: new(configv1alpha1.InjectionWithNextReconciliation)}, ""),
		Entry("no failure and all of them", configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(0)), InjectionMaxFailedPercent: new(int32(100))}, ""),
		Entry("no such way", configv1alpha1.ControllerConfiguration{Injection: new(configv1alpha1.Injection("Never"))},
			`injection: Unsupported value: "Never": supported values: "InWaves", "WithNextReconciliation"`),
		Entry("a negative number", configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(-1))}, `injectionMaxFailed: Invalid value: -1: must not be negative`),
		Entry("a negative share", configv1alpha1.ControllerConfiguration{InjectionMaxFailedPercent: new(int32(-1))}, `injectionMaxFailedPercent: Invalid value: -1: must be between 0 and 100`),
		Entry("more than all", configv1alpha1.ControllerConfiguration{InjectionMaxFailedPercent: new(int32(101))}, `injectionMaxFailedPercent: Invalid value: 101: must be between 0 and 100`),
	)
})
