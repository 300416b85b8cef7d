// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// SetDefaults_ControllerConfiguration sets default values for a ControllerConfiguration.
func SetDefaults_ControllerConfiguration(obj *ControllerConfiguration) {
	obj.AutoPreserveFailedMax = cmp.Or(obj.AutoPreserveFailedMax, new(int32(0)))
	obj.MachinePreserveTimeout = cmp.Or(obj.MachinePreserveTimeout, &metav1.Duration{Duration: 72 * time.Hour})
	obj.MaxMachinePreserveTimeout = cmp.Or(obj.MaxMachinePreserveTimeout, &metav1.Duration{Duration: 336 * time.Hour})
	obj.MaxNodeMaintenanceOvertime = cmp.Or(obj.MaxNodeMaintenanceOvertime, &metav1.Duration{Duration: v1alpha1.DefaultMaxNodeMaintenanceOvertime})
	obj.Injection = cmp.Or(obj.Injection, new(InjectionInWaves))
	obj.InjectionMaxFailed = cmp.Or(obj.InjectionMaxFailed, new(int32(3)))
	obj.InjectionMaxFailedPercent = cmp.Or(obj.InjectionMaxFailedPercent, new(int32(10)))
}

// SetDefaults_Evidence sets default values for Evidence.
func SetDefaults_Evidence(obj *Evidence) {
	obj.Budget = cmp.Or(obj.Budget, resource.NewQuantity(v1alpha1.DefaultEvidenceBudget, resource.BinarySI))
	obj.SeedBudget = cmp.Or(obj.SeedBudget, resource.NewQuantity(v1alpha1.DefaultEvidenceSeedBudget, resource.BinarySI))
	obj.MaxRetention = cmp.Or(obj.MaxRetention, &metav1.Duration{Duration: v1alpha1.MaxEvidenceRetention})
}

// SetDefaults_Hosts sets default values for Hosts.
func SetDefaults_Hosts(obj *Hosts) {
	obj.MaxServicing = cmp.Or(obj.MaxServicing, &metav1.Duration{Duration: v1alpha1.DefaultMaxServicing})
}

// SetDefaults_Storm sets default values for Storm.
func SetDefaults_Storm(obj *Storm) {
	obj.SettlingTime = cmp.Or(obj.SettlingTime, &metav1.Duration{Duration: v1alpha1.DefaultStormSettlingTime})
}

// SetDefaults_Quarantine sets default values for Quarantine.
func SetDefaults_Quarantine(obj *Quarantine) {
	obj.Failures = cmp.Or(obj.Failures, new(int32(3)))
	obj.Period = cmp.Or(obj.Period, &metav1.Duration{Duration: 7 * 24 * time.Hour})
}
