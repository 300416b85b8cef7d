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
})
