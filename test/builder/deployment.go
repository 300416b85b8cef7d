// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeploymentOption changes a MachineDeployment.
type DeploymentOption func(*machinev1alpha1.MachineDeployment)

// Deployment returns a MachineDeployment with 3 replicas that selects all machines of this package.
func Deployment(name string, opts ...DeploymentOption) *machinev1alpha1.MachineDeployment {
	deployment := &machinev1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("deployment-" + name), Annotations: map[string]string{}},
		Spec: machinev1alpha1.MachineDeploymentSpec{
			Replicas: 3,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "pool"}},
		},
	}
	for _, opt := range opts {
		opt(deployment)
	}
	return deployment
}

// Share sets the share as it is written.
func Share(value string) DeploymentOption {
	return DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max", value)
}

// DeploymentAnnotation sets an annotation.
func DeploymentAnnotation(key, value string) DeploymentOption {
	return func(d *machinev1alpha1.MachineDeployment) { d.Annotations[key] = value }
}

// Replicas sets the wanted number of machines.
func Replicas(count int32) DeploymentOption {
	return func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = count }
}

// InPlace makes machines be updated in place.
func InPlace(d *machinev1alpha1.MachineDeployment) {
	d.Spec.Strategy.Type = machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType
}

// SetOption changes a MachineSet.
type SetOption func(*machinev1alpha1.MachineSet)

// Set returns a MachineSet of a MachineDeployment with as many replicas.
func Set(name string, deployment *machinev1alpha1.MachineDeployment, opts ...SetOption) *machinev1alpha1.MachineSet {
	set := &machinev1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       Namespace,
			UID:             types.UID("set-" + name),
			Labels:          map[string]string{"name": "pool"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, machinev1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
		},
		Spec: machinev1alpha1.MachineSetSpec{
			Replicas: deployment.Spec.Replicas,
			Selector: deployment.Spec.Selector,
		},
		Status: machinev1alpha1.MachineSetStatus{Replicas: deployment.Spec.Replicas},
	}
	for _, opt := range opts {
		opt(set)
	}
	return set
}

// Revision sets the revision as machine-controller-manager writes it.
func Revision(value string) SetOption {
	return func(s *machinev1alpha1.MachineSet) {
		s.Annotations = map[string]string{"deployment.kubernetes.io/revision": value}
	}
}

// SetReplicas sets how many machines the MachineSet is to have, and how many it has.
func SetReplicas(spec, status int32) SetOption {
	return func(s *machinev1alpha1.MachineSet) { s.Spec.Replicas, s.Status.Replicas = spec, status }
}

// Of makes the machine one of a MachineSet.
func Of(set *machinev1alpha1.MachineSet) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
	}
}
