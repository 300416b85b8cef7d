// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package clusterautoscaler sets the flag with which the cluster-autoscaler goes on scaling while failed machines are preserved.
// The nodes of these machines are unready, and the cluster-autoscaler stops all scaling if more than 45 % of all nodes, and more
// than three, are unready. Gardener >= 1.147 lifts that limit for its own preservation only.
package clusterautoscaler

import (
	"slices"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

const (
	flag    = "--max-total-unready-percentage="
	percent = "100"
)

// Wanted returns whether one of the MachineDeployments has a share. Gardener asks the same of its own field, but counts no
// share of ours.
func Wanted(deployments []machinev1alpha1.MachineDeployment) bool {
	return slices.ContainsFunc(deployments, func(d machinev1alpha1.MachineDeployment) bool {
		settings, ok := share.Of(&d)
		return ok && settings.AutoPreserveFailedMax > 0
	})
}

// Apply gives the cluster-autoscaler the flag if it is wanted, and takes it away if it is not, and returns whether that
// changed anything. A flag that somebody else has set, whatever its value, is left alone: ours goes with an annotation, and
// gardenlet drops both when it writes the template.
func Apply(deployment *appsv1.Deployment, wanted bool) bool {
	template := &deployment.Spec.Template
	container := extensionswebhook.ContainerWithName(template.Spec.Containers, v1beta1constants.DeploymentNameClusterAutoscaler)
	if container == nil {
		return false
	}

	there := extensionswebhook.StringWithPrefixIndex(slices.Concat(container.Command, container.Args), flag) >= 0
	ours := metav1.HasAnnotation(template.ObjectMeta, v1alpha1.AnnotationMaxTotalUnreadyPercentage)
	switch {
	case wanted && !there:
		container.Command = append(container.Command, flag+percent)
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, v1alpha1.AnnotationMaxTotalUnreadyPercentage, percent)
	case !wanted && ours:
		container.Command = extensionswebhook.EnsureNoStringWithPrefix(container.Command, flag)
		delete(template.Annotations, v1alpha1.AnnotationMaxTotalUnreadyPercentage)
	default:
		return false
	}
	return true
}
