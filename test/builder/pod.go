// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodOption changes a Pod.
type PodOption func(*corev1.Pod)

// Pod returns a pod of a ReplicaSet on node "n".
func Pod(name string, opts ...PodOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       "default",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, opt := range opts {
		opt(pod)
	}
	return pod
}

// InNamespace puts a pod into a namespace.
func InNamespace(namespace string) PodOption { return func(p *corev1.Pod) { p.Namespace = namespace } }

// OnNode puts a pod on a node.
func OnNode(node string) PodOption { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// OwnedBy gives a pod another controller.
func OwnedBy(kind, name string) PodOption {
	return func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = kind, name }
}

// Orphan takes the controller away.
func Orphan(p *corev1.Pod) { p.OwnerReferences = nil }

// Mirror makes a pod one that the node itself runs.
func Mirror(p *corev1.Pod) {
	p.OwnerReferences = nil
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": "hash"}
}

// Terminating has a pod be terminating with a finalizer, with a grace period until Start.
func Terminating(p *corev1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: Start}
	p.Finalizers = []string{"example.com/finalizer"}
}

// Volume gives a pod a volume.
func Volume(source corev1.VolumeSource) PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
}
