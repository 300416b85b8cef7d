// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SetDefaults_DrainStrategies sets default values for DrainStrategies.
func SetDefaults_DrainStrategies(obj *DrainStrategies) {
	if obj.Disabled == nil {
		obj.Disabled = new(false)
	}
	if obj.Timeout == nil {
		obj.Timeout = &metav1.Duration{Duration: 45 * time.Minute}
	}
	if obj.ExpectedDrainTime == nil {
		obj.ExpectedDrainTime = &metav1.Duration{Duration: 8 * time.Minute}
	}
	if obj.PDBForceDrainTimeout == nil {
		obj.PDBForceDrainTimeout = &metav1.Duration{Duration: time.Hour}
	}
}

// SetDefaults_NodeMaintenance sets default values for NodeMaintenance.
func SetDefaults_NodeMaintenance(obj *NodeMaintenance) {
	if obj.MaxParallelOperations == nil {
		obj.MaxParallelOperations = new(intstr.FromInt32(1))
	}
	if obj.MaxNodeMaintenanceTime == nil {
		obj.MaxNodeMaintenanceTime = &metav1.Duration{Duration: time.Hour}
	}
	if obj.LogLevel == nil {
		obj.LogLevel = new(LogLevelInfo)
	}
	if obj.MaxHoldTime == nil {
		obj.MaxHoldTime = &metav1.Duration{Duration: DefaultMaxHoldTime}
	}
}

// SetDefaults_Evidence sets default values for Evidence.
func SetDefaults_Evidence(obj *Evidence) {
	if obj.Enabled == nil {
		obj.Enabled = new(false)
	}
	if obj.Retention == nil {
		obj.Retention = &metav1.Duration{Duration: DefaultEvidenceRetention}
	}
}

// SetDefaults_PowerCycle sets default values for PowerCycle.
func SetDefaults_PowerCycle(obj *PowerCycle) {
	if obj.Automatic == nil {
		obj.Automatic = new(AutomaticFalse)
	}
	if obj.Fencing == nil {
		obj.Fencing = new(FencingOutOfServiceTaint)
	}
	if obj.MaxAttempts == nil {
		obj.MaxAttempts = new(int32(DefaultMaxAttempts))
	}
	if obj.MaxConcurrent == nil {
		obj.MaxConcurrent = new(int32(DefaultMaxConcurrent))
	}
	if obj.PowerOffTimeout == nil {
		obj.PowerOffTimeout = &metav1.Duration{Duration: DefaultPowerOffTimeout}
	}
	if obj.PowerOnTimeout == nil {
		obj.PowerOnTimeout = &metav1.Duration{Duration: DefaultPowerOnTimeout}
	}
	if obj.NodeStartupTimeout == nil {
		obj.NodeStartupTimeout = &metav1.Duration{Duration: DefaultNodeStartupTimeout}
	}
}
