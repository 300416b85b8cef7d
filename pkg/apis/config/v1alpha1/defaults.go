// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// SetDefaults_ControllerConfiguration sets default values for a ControllerConfiguration.
func SetDefaults_ControllerConfiguration(obj *ControllerConfiguration) {
	if obj.AutoPreserveFailedMax == nil {
		obj.AutoPreserveFailedMax = new(int32(0))
	}
	if obj.MachinePreserveTimeout == nil {
		obj.MachinePreserveTimeout = &metav1.Duration{Duration: 72 * time.Hour}
	}
	if obj.MaxMachinePreserveTimeout == nil {
		obj.MaxMachinePreserveTimeout = &metav1.Duration{Duration: 336 * time.Hour}
	}
	if obj.MaxNodeMaintenanceOvertime == nil {
		obj.MaxNodeMaintenanceOvertime = &metav1.Duration{Duration: v1alpha1.DefaultMaxNodeMaintenanceOvertime}
	}
	if obj.Injection == nil {
		obj.Injection = new(InjectionInWaves)
	}
	if obj.InjectionMaxFailed == nil {
		obj.InjectionMaxFailed = new(int32(3))
	}
	if obj.InjectionMaxFailedPercent == nil {
		obj.InjectionMaxFailedPercent = new(int32(10))
	}
}

// SetDefaults_Evidence sets default values for Evidence.
func SetDefaults_Evidence(obj *Evidence) {
	if obj.Budget == nil {
		obj.Budget = resource.NewQuantity(v1alpha1.DefaultEvidenceBudget, resource.BinarySI)
	}
	if obj.SeedBudget == nil {
		obj.SeedBudget = resource.NewQuantity(v1alpha1.DefaultEvidenceSeedBudget, resource.BinarySI)
	}
	if obj.MaxRetention == nil {
		obj.MaxRetention = &metav1.Duration{Duration: v1alpha1.MaxEvidenceRetention}
	}
}

// SetDefaults_Hosts sets default values for Hosts.
func SetDefaults_Hosts(obj *Hosts) {
	if obj.MaxServicing == nil {
		obj.MaxServicing = &metav1.Duration{Duration: v1alpha1.DefaultMaxServicing}
	}
}
