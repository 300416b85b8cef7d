// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/json"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Apply writes the settings of a MachineDeployment into it and returns whether that changed anything. Where the resource
// has fields for machine-controller-manager's own preservation, its timeout is set as well, and its number is lowered to
// nativeMax (see NativeMax). It is never raised.
//
// No machine is rolled by that: machine-controller-manager looks for the MachineSet of a MachineDeployment with
// EqualIgnoreHash (pkg/controller/deployment_util.go), which leaves out spec.machineConfiguration of the template, where
// the timeout belongs, and never sees the metadata of the MachineDeployment itself. The annotations are copied to the
// MachineSet in place (copyMachineDeploymentAnnotationsToMachineSet). Annotations of the template would roll machines.
func Apply(deployment *machinev1alpha1.MachineDeployment, settings Settings, nativeFields bool, nativeMax int32) bool {
	wanted := map[string]string{
		v1alpha1.AnnotationAutoPreserveFailedMax:  strconv.FormatInt(int64(settings.AutoPreserveFailedMax), 10),
		v1alpha1.AnnotationMachinePreserveTimeout: settings.MachinePreserveTimeout.String(),
	}
	if settings.ForceDeletePodsWithVolumes {
		wanted[v1alpha1.AnnotationForceDeletePodsWithVolumes] = "true"
	}
	if settings.PreferNewFailures {
		wanted[v1alpha1.AnnotationPreferNewFailures] = "true"
	}
	if settings.SharedIn != "" {
		wanted[v1alpha1.AnnotationSharedInPool] = settings.SharedIn
	}
	if settings.PowerCycle != nil {
		value, err := json.Marshal(settings.PowerCycle)
		utilruntime.Must(err) // it is numbers and strings
		wanted[v1alpha1.AnnotationPowerCycleSettings] = string(value)
	}
	if settings.Validation != nil {
		value, err := json.Marshal(settings.Validation)
		utilruntime.Must(err) // it is strings
		wanted[v1alpha1.AnnotationValidation] = string(value)
	}
	if settings.Maximum > 0 {
		wanted[v1alpha1.AnnotationMaximum] = strconv.FormatInt(int64(settings.Maximum), 10)
	}
	changed := annotate(deployment, wanted)
	if !nativeFields {
		return changed
	}

	if deployment.Spec.AutoPreserveFailedMachineMax > nativeMax {
		deployment.Spec.AutoPreserveFailedMachineMax = nativeMax
		changed = true
	}
	template := &deployment.Spec.Template.Spec
	if template.MachineConfiguration == nil {
		template.MachineConfiguration = &machinev1alpha1.MachineConfiguration{}
	}
	if ptr.Deref(template.MachinePreserveTimeout, metav1.Duration{}).Duration != settings.MachinePreserveTimeout {
		template.MachinePreserveTimeout = &metav1.Duration{Duration: settings.MachinePreserveTimeout}
		changed = true
	}
	return changed
}

// Of returns the settings that Apply wrote into a MachineDeployment, false if there are none.
func Of(deployment *machinev1alpha1.MachineDeployment) (Settings, bool) {
	limit, err := strconv.ParseInt(deployment.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax], 10, 32)
	if err != nil {
		return Settings{}, false
	}
	timeout, err := time.ParseDuration(deployment.Annotations[v1alpha1.AnnotationMachinePreserveTimeout])
	if err != nil {
		return Settings{}, false
	}
	powerCycle, err := v1alpha1.PowerCycleOf(deployment)
	if err != nil {
		powerCycle = nil // somebody has edited it
	}
	validation, err := v1alpha1.ValidationOf(deployment)
	if err != nil {
		validation = nil
	}
	return Settings{
		AutoPreserveFailedMax:      int32(limit),
		MachinePreserveTimeout:     timeout,
		ForceDeletePodsWithVolumes: deployment.Annotations[v1alpha1.AnnotationForceDeletePodsWithVolumes] == "true",
		PreferNewFailures:          deployment.Annotations[v1alpha1.AnnotationPreferNewFailures] == "true",
		SharedIn:                   deployment.Annotations[v1alpha1.AnnotationSharedInPool],
		PowerCycle:                 powerCycle,
		Validation:                 validation,
		Maximum:                    facts.PoolOf(deployment).Maximum,
	}, true
}

// Remove deletes the annotations that Apply wrote and returns whether there were any.
func Remove(deployment *machinev1alpha1.MachineDeployment) bool {
	return annotate(deployment, nil)
}

// annotate makes the annotations of this package be the wanted ones and returns whether that changed anything.
func annotate(deployment *machinev1alpha1.MachineDeployment, wanted map[string]string) bool {
	changed := false
	for _, key := range []string{
		v1alpha1.AnnotationAutoPreserveFailedMax,
		v1alpha1.AnnotationMachinePreserveTimeout,
		v1alpha1.AnnotationForceDeletePodsWithVolumes,
		v1alpha1.AnnotationPreferNewFailures,
		v1alpha1.AnnotationSharedInPool,
		v1alpha1.AnnotationPowerCycleSettings,
		v1alpha1.AnnotationValidation,
		v1alpha1.AnnotationMaximum,
	} {
		current, there := deployment.Annotations[key]
		value, keep := wanted[key]
		if there == keep && current == value {
			continue
		}
		changed = true
		if keep {
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, key, value)
		} else {
			delete(deployment.Annotations, key)
		}
	}
	return changed
}
