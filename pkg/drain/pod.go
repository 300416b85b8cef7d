// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is what a drain needs to know of one.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Labels          labels.Set
	// GraceEnds is when the pod's grace period ends, zero while it is not terminating.
	GraceEnds time.Time
	// Finalizers says that it has any.
	Finalizers bool
	// DaemonSet is the name of the DaemonSet that it belongs to, Mirror says that the node itself runs it, and Finished that
	// it has ended.
	DaemonSet        string
	Mirror, Finished bool
	// Volumes says that it uses volumes which the same pod would use elsewhere.
	Volumes bool
	// Managed says that it has a controller, which starts another one.
	Managed bool
	// EmptyDir says that it has data which are lost with it.
	EmptyDir bool
	// Resources are the names of the resources that its containers request or limit, sorted.
	Resources []corev1.ResourceName
	// AtRisk says that it may still be running, and write to these volumes, on a node that does not answer.
	AtRisk bool
	// Ignored says that nothing is to be done with it.
	Ignored bool
}

// NewPod returns what a drain needs to know of a pod.
func NewPod(p *corev1.Pod) Pod {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	pod := Pod{
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
		Labels:          p.Labels,
		Finalizers:      len(p.Finalizers) > 0,
		Mirror:          mirror,
		Finished:        p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Volumes: slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		}),
		EmptyDir:  slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }),
		Managed:   metav1.GetControllerOfNoCopy(p) != nil,
		Resources: resourcesOf(p),
	}
	if p.DeletionTimestamp != nil {
		pod.GraceEnds = p.DeletionTimestamp.Time
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.Kind == "DaemonSet" && ref.APIVersion == appsv1.SchemeGroupVersion.String() {
		pod.DaemonSet = ref.Name
	}
	return pod
}

func resourcesOf(p *corev1.Pod) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				names = slices.AppendSeq(names, maps.Keys(list))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Belongs says that the pod stays with its node, or is over: a drain has nothing to do with it (D3).
func (p Pod) Belongs() bool { return p.DaemonSet != "" || p.Mirror || p.Finished }

// Key orders pods as the API server lists them.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }
