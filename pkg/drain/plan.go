// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Options say how a drain goes about.
type Options struct {
	// Since is when the drain began.
	Since time.Time
	// Timeout is how long after that pods are deleted by force.
	Timeout time.Duration
	// ForceVolumes says to delete pods with volumes by force also from a node that does not answer. If its VM is alive, the
	// same pod then runs twice with the same volume.
	ForceVolumes bool
}

// action is what is to be done with a pod.
type action int

const (
	// leave a pod that belongs to its node.
	leave action = iota
	// keep a pod that the VM may still be running with its volumes.
	keep
	// wait for a pod that was asked to go.
	wait
	evict
	force
)

// plan returns what is to be done with a pod now (P7). One of a DaemonSet is left only while that exists, which is not
// known here.
func plan(p pod, opts Options, reachable bool, now time.Time) action {
	timedOut := !now.Before(opts.Since.Add(opts.Timeout))
	switch {
	case p.mirror:
		return leave
	case timedOut && p.atRisk(reachable) && !opts.ForceVolumes:
		return keep
	case timedOut:
		return force
	case p.terminating:
		return wait
	default:
		return evict
	}
}

// pod is what a drain needs to know of one; the rest of a page is not kept.
type pod struct {
	namespace, name string
	uid             types.UID
	// daemonSet is the name of the DaemonSet that it belongs to; empty once it has ended.
	daemonSet                    string
	mirror, terminating, volumes bool
}

func newPod(p *corev1.Pod) pod {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return pod{
		namespace:   p.Namespace,
		name:        p.Name,
		uid:         p.UID,
		daemonSet:   daemonSetOf(p),
		mirror:      mirror,
		terminating: p.DeletionTimestamp != nil,
		volumes: slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		}),
	}
}

func daemonSetOf(p *corev1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "DaemonSet" || ref.APIVersion != appsv1.SchemeGroupVersion.String() {
		return ""
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return ""
	}
	return ref.Name
}

// key orders pods as the API server lists them.
func (p pod) key() string { return p.namespace + "/" + p.name }

// atRisk says that the same pod, started elsewhere, would share storage with this one, which may be running.
func (p pod) atRisk(reachable bool) bool { return p.volumes && !reachable }
