// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SetDefaults_DrainStrategies sets default values for DrainStrategies.
func SetDefaults_DrainStrategies(obj *DrainStrategies) {
	obj.Disabled = cmp.Or(obj.Disabled, new(false))
	obj.Timeout = cmp.Or(obj.Timeout, &metav1.Duration{Duration: 45 * time.Minute})
	obj.ExpectedDrainTime = cmp.Or(obj.ExpectedDrainTime, &metav1.Duration{Duration: 8 * time.Minute})
	obj.PDBForceDrainTimeout = cmp.Or(obj.PDBForceDrainTimeout, &metav1.Duration{Duration: time.Hour})
}

// SetDefaults_NodeMaintenance sets default values for NodeMaintenance.
func SetDefaults_NodeMaintenance(obj *NodeMaintenance) {
	obj.MaxParallelOperations = cmp.Or(obj.MaxParallelOperations, new(intstr.FromInt32(1)))
	obj.MaxNodeMaintenanceTime = cmp.Or(obj.MaxNodeMaintenanceTime, &metav1.Duration{Duration: time.Hour})
	obj.LogLevel = cmp.Or(obj.LogLevel, new(LogLevelInfo))
	obj.MaxHoldTime = cmp.Or(obj.MaxHoldTime, &metav1.Duration{Duration: DefaultMaxHoldTime})
}

// SetDefaults_Evidence sets default values for Evidence.
func SetDefaults_Evidence(obj *Evidence) {
	obj.Enabled = cmp.Or(obj.Enabled, new(false))
	obj.Retention = cmp.Or(obj.Retention, &metav1.Duration{Duration: DefaultEvidenceRetention})
	obj.NodeLogs = cmp.Or(obj.NodeLogs, new(false))
}

// SetDefaults_Failures sets default values for Failures.
func SetDefaults_Failures(obj *Failures) {
	obj.Enabled = cmp.Or(obj.Enabled, new(true))
}

// SetDefaults_PowerCycle sets default values for PowerCycle.
func SetDefaults_PowerCycle(obj *PowerCycle) {
	obj.Automatic = cmp.Or(obj.Automatic, new(AutomaticFalse))
	obj.Fencing = cmp.Or(obj.Fencing, new(FencingOutOfServiceTaint))
	obj.MaxAttempts = cmp.Or(obj.MaxAttempts, new(int32(DefaultMaxAttempts)))
	obj.MaxConcurrent = cmp.Or(obj.MaxConcurrent, new(int32(DefaultMaxConcurrent)))
	obj.PowerOffTimeout = cmp.Or(obj.PowerOffTimeout, &metav1.Duration{Duration: DefaultPowerOffTimeout})
	obj.PowerOnTimeout = cmp.Or(obj.PowerOnTimeout, &metav1.Duration{Duration: DefaultPowerOnTimeout})
	obj.NodeStartupTimeout = cmp.Or(obj.NodeStartupTimeout, &metav1.Duration{Duration: DefaultNodeStartupTimeout})
}

// SetDefaults_Validation sets default values for Validation.
func SetDefaults_Validation(obj *Validation) {
	obj.Timeout = cmp.Or(obj.Timeout, &metav1.Duration{Duration: DefaultValidationTimeout})
	obj.OnTimeout = cmp.Or(obj.OnTimeout, new(OnTimeoutKeep))
}
