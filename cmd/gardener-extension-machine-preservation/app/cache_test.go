// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
)

var _ = Describe("Transforms", func() {
	meta := metav1.ObjectMeta{Name: "foo", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "bar"}}}

	It("should keep the Shoot of a Cluster", func() {
		raw := runtime.RawExtension{Raw: []byte("{}")}
		Expect(StripCluster(&extensionsv1alpha1.Cluster{
			ObjectMeta: meta,
			Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw, Seed: &raw, Shoot: raw},
		})).To(Equal(&extensionsv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: "foo"},
			Spec:       extensionsv1alpha1.ClusterSpec{Shoot: raw},
		}))
	})

	It("should keep the pools of a Worker, but not what belongs to the provider", func() {
		worker := &extensionsv1alpha1.Worker{ObjectMeta: meta}
		worker.Spec.Region = "region"
		worker.Spec.InfrastructureProviderStatus = &runtime.RawExtension{Raw: []byte("{}")}
		worker.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "pool", Maximum: 1, ProviderConfig: &runtime.RawExtension{Raw: []byte("{}")}}}
		worker.Status.State = &runtime.RawExtension{Raw: []byte("{}")}

		expected := &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}
		expected.Spec.Region = "region"
		expected.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "pool", Maximum: 1}}
		Expect(StripWorker(worker)).To(Equal(expected))
	})

	It("should keep the zone of a MachineClass, but not what belongs to the provider", func() {
		Expect(StripMachineClass(&machinev1alpha1.MachineClass{
			ObjectMeta:   meta,
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"},
			ProviderSpec: runtime.RawExtension{Raw: []byte("{}")},
		})).To(Equal(&machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "foo"},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"},
		}))
	})

	It("should keep the specification of a MachineDeployment, but not its status", func() {
		Expect(StripMachineDeployment(&machinev1alpha1.MachineDeployment{
			ObjectMeta: meta,
			Spec:       machinev1alpha1.MachineDeploymentSpec{Replicas: 1},
			Status:     machinev1alpha1.MachineDeploymentStatus{Replicas: 1},
		})).To(Equal(&machinev1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: "foo"},
			Spec:       machinev1alpha1.MachineDeploymentSpec{Replicas: 1},
		}))
	})
})
