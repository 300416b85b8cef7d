// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
)

var _ = Describe("#SetObjectDefaults_ControllerConfiguration", func() {
	It("should default what is not set", func() {
		config := &ControllerConfiguration{}
		SetObjectDefaults_ControllerConfiguration(config)
		Expect(config).To(Equal(&ControllerConfiguration{
			AutoPreserveFailedMax:      new(int32(0)),
			MachinePreserveTimeout:     &metav1.Duration{Duration: 72 * time.Hour},
			MaxMachinePreserveTimeout:  &metav1.Duration{Duration: 336 * time.Hour},
			MaxNodeMaintenanceOvertime: &metav1.Duration{Duration: 24 * time.Hour},
			Injection:                  new(InjectionInWaves),
			InjectionMaxFailed:         new(int32(3)),
			InjectionMaxFailedPercent:  new(int32(10)),
		}))
	})

	It("X18: should bound how long hosts are serviced, where there are any", func() {
		config := &ControllerConfiguration{Hosts: &Hosts{}}
		SetObjectDefaults_ControllerConfiguration(config)
		Expect(config.Hosts).To(Equal(&Hosts{MaxServicing: &metav1.Duration{Duration: 2 * time.Hour}}))
	})

	It("P16: should settle after some time, where failures are counted that come at once", func() {
		config := &ControllerConfiguration{Storm: &Storm{MaxFailing: new(int32(3))}}
		SetObjectDefaults_ControllerConfiguration(config)
		Expect(config.Storm).To(Equal(&Storm{MaxFailing: new(int32(3)), SettlingTime: &metav1.Duration{Duration: 10 * time.Minute}}))
	})

	It("should keep what is set", func() {
		config := &ControllerConfiguration{
			AutoPreserveFailedMax:      new(int32(2)),
			MachinePreserveTimeout:     &metav1.Duration{Duration: time.Hour},
			MaxMachinePreserveTimeout:  &metav1.Duration{Duration: 2 * time.Hour},
			MaxNodeMaintenanceOvertime: &metav1.Duration{},
			MaxAutoPreserveFailed:      new(int32(4)),
			Injection:                  new(InjectionWithNextReconciliation),
			InjectionMaxFailed:         new(int32(0)),
			InjectionMaxFailedPercent:  new(int32(100)),
			Hosts:                      &Hosts{MaxServicing: &metav1.Duration{Duration: time.Hour}},
			Storm:                      &Storm{MaxFailingPercent: new(int32(20)), SettlingTime: &metav1.Duration{Duration: time.Minute}},
		}
		expected := config.DeepCopy()
		SetObjectDefaults_ControllerConfiguration(config)
		Expect(config).To(Equal(expected))
	})
})
