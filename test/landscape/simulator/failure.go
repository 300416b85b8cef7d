// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
)

// FailureAnnotation is the annotation of a machine's Pod, or of a control-plane namespace, that makes machines fail.
const FailureAnnotation = "landscape.machine-preservation/failure"

// Failure is a way in which a machine fails.
type Failure string

const (
	// Healthy is the absence of a failure.
	Healthy Failure = ""
	// KubeletDead means that the kubelet no longer does anything.
	KubeletDead Failure = "kubelet-dead"
	// KernelHang means that nothing on the machine does anything, until its host is switched off.
	KernelHang Failure = "kernel-hang"
	// NodeNotReady means that the kubelet reports that its Node is not ready.
	NodeNotReady Failure = "node-not-ready"
	// NeverJoins means that the machine never registers a Node.
	NeverJoins Failure = "never-joins"
)

// Failures are the valid values of FailureAnnotation.
var Failures = []Failure{KubeletDead, KernelHang, NodeNotReady, NeverJoins}

// parseFailure returns the failure that the annotations ask for.
func parseFailure(annotations map[string]string) (Failure, error) {
	failure := Failure(annotations[FailureAnnotation])
	if failure == Healthy || slices.Contains(Failures, failure) {
		return failure, nil
	}
	valid := make([]string, 0, len(Failures))
	for _, failure := range Failures {
		valid = append(valid, string(failure))
	}
	return Healthy, fmt.Errorf("annotation %s has value %q, valid are %s", FailureAnnotation, failure, strings.Join(valid, ", "))
}

// joins returns whether a machine with this failure registers its Node.
func (f Failure) joins() bool { return f == Healthy || f == NodeNotReady }

// affect makes the failure take effect on a Node: it says whether, and how, the Node is served.
func (f Failure) affect(node *corev1.Node) {
	metav1.SetMetaDataLabel(&node.ObjectMeta, kwok.LabelKubelet, kwok.KubeletAlive)
	delete(node.Annotations, kwok.AnnotationReady)
	switch f {
	case KubeletDead, KernelHang:
		delete(node.Labels, kwok.LabelKubelet)
	case NodeNotReady:
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, kwok.AnnotationReady, "false")
	}
}
