// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// Pod is what a drain needs to know of one.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Labels          labels.Set
	// Owner tells whose pod it is: its controller, or its namespace for all that have none. A pod that comes back has the same.
	Owner string
	// Created is when it was.
	Created time.Time
	// GraceEnds is when the pod's grace period ends, zero while it is not terminating. Forced says that it has none, and that
	// only finalizers keep the pod.
	GraceEnds time.Time
	Forced    bool
	// Finalizers are those that it has.
	Finalizers []string
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
	// Resources are the first of the names of the resources that its containers request or limit, sorted. There are more than
	// MaxResources only if there are more than those.
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
		Owner:           ownerOf(p),
		Created:         p.CreationTimestamp.Time,
		Finalizers:      p.Finalizers,
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
		pod.Forced = len(p.Finalizers) > 0 && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.Kind == "DaemonSet" && ref.APIVersion == appsv1.SchemeGroupVersion.String() {
		pod.DaemonSet = ref.Name
	}
	return pod
}

// ownerOf goes by names: who makes its pods anew may be made anew, too.
func ownerOf(p *corev1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		return p.Namespace
	}
	return p.Namespace + "/" + brief.Cut(ref.Kind) + " " + brief.Cut(ref.Name)
}

// MaxResources is how many resources of a pod are looked at: many times those that a node has.
const MaxResources = 64

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
	names = slices.Compact(names)
	return slices.Clone(names[:min(len(names), MaxResources+1)]) // the others are not to be kept in memory
}

// Belongs says that the pod stays with its node, or is over: a drain has nothing to do with it (D3).
func (p Pod) Belongs() bool { return p.DaemonSet != "" || p.Mirror || p.Finished }

// Key orders pods as the API server lists them.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// maxFinalizers is how many finalizers of a pod are named.
const maxFinalizers = 3

// NameAt returns what a pod is called at a time, with the finalizers if they are what keeps it.
func (p Pod) NameAt(now time.Time) string {
	if p.GraceEnds.IsZero() || now.Before(p.GraceEnds) || len(p.Finalizers) == 0 {
		return p.Key()
	}
	var finalizers []string
	for _, finalizer := range brief.First(p.Finalizers, maxFinalizers) {
		finalizers = append(finalizers, brief.Cut(finalizer))
	}
	return p.Key() + " (" + strings.Join(finalizers, ", ") + ")"
}
