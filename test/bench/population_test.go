// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("#copyOf", func() {
	It("should make a machine, a VM and a Node that differ in what must differ only, and leave the originals alone", func() {
		meta := func(name string, labels map[string]string) metav1.ObjectMeta {
			return metav1.ObjectMeta{
				Name: name, Namespace: "ns", UID: "uid", ResourceVersion: "1", GenerateName: "x-", Labels: labels,
				Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{Name: "set"}},
			}
		}
		machine := &machinev1alpha1.Machine{ObjectMeta: meta("m", map[string]string{"node": "machine-m", "name": "md"})}
		machine.Spec.ProviderID, machine.Spec.Class.Name = "machine-m", "class"
		machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineRunning
		vm := &corev1.Pod{ObjectMeta: meta("machine-m", map[string]string{"machine": "m", "machine-provider": "local"})}
		vm.Spec.NodeName, vm.Spec.HostNetwork, vm.Status.Phase = "seed", true, corev1.PodRunning
		node := &corev1.Node{ObjectMeta: meta("machine-m", map[string]string{
			"kubernetes.io/hostname": "machine-m", "node.gardener.cloud/machine-name": "m", "landscape.machine-preservation/kubelet": "alive", "pool": "p",
		})}
		node.Spec.ProviderID = "machine-m"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		originals := []any{machine.DeepCopy(), vm.DeepCopy(), node.DeepCopy()}

		machineCopy, vmCopy, nodeCopy := copyOf(machine, vm, node, "c")

		Expect([]any{machine, vm, node}).To(Equal(originals))
		Expect(machineCopy.ObjectMeta).To(Equal(metav1.ObjectMeta{
			Name: "c", Namespace: "ns", Labels: map[string]string{"node": "machine-c", "name": "md"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{Name: "set"}},
		}))
		Expect(machineCopy.Spec.ProviderID).To(Equal("machine-c"))
		Expect(machineCopy.Spec.Class.Name).To(Equal("class"))
		Expect(machineCopy.Status).To(Equal(machine.Status))

		Expect(vmCopy.ObjectMeta).To(Equal(metav1.ObjectMeta{
			Name: "machine-c", Namespace: "ns", Labels: map[string]string{"machine": "c", "machine-provider": "local"},
			Annotations: map[string]string{"landscape.machine-preservation/failure": "kubelet-dead"},
		}))
		Expect(vmCopy.Spec).To(Equal(corev1.PodSpec{HostNetwork: true}))
		Expect(vmCopy.Status).To(BeZero())

		Expect(nodeCopy.ObjectMeta).To(Equal(metav1.ObjectMeta{
			Name: "machine-c", Labels: map[string]string{"kubernetes.io/hostname": "machine-c", "node.gardener.cloud/machine-name": "c", "pool": "p"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"},
		}))
		Expect(nodeCopy.Spec.ProviderID).To(Equal("machine-c"))
		Expect(nodeCopy.Status).To(Equal(node.Status))
	})
})
