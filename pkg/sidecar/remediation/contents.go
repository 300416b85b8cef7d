// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// pageSize is how many objects are in memory at a time when they are listed, however many there are.
const pageSize = 50

// ReadNodeContents returns what there still is of a node in the API server of the shoot.
func ReadNodeContents(ctx context.Context, c kubernetes.Interface, node string) (remediation.NodeContents, error) {
	var (
		pods        []*corev1.Pod
		attachments []*storagev1.VolumeAttachment
		volumes     []*corev1.PersistentVolume
		stays       bool
	)
	each := func(list pager.ListPageFunc, opts metav1.ListOptions, keep func(runtime.Object)) error {
		p := pager.New(list)
		p.PageSize, p.PageBufferSize = pageSize, 0
		return p.EachListItem(ctx, opts, func(obj runtime.Object) error { keep(obj); return nil })
	}
	if err := each(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
	}, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}, func(obj runtime.Object) {
		pod := stripPod(obj.(*corev1.Pod))
		stays = stays || !remediation.MustLeave(pod) && len(remediation.ClaimsOf(pod)) > 0
		pods = append(pods, pod)
	}); err != nil {
		return remediation.NodeContents{}, fmt.Errorf("failed to list the pods of node %s: %w", node, brief.CutError(err))
	}
	if err := each(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.StorageV1().VolumeAttachments().List(ctx, opts)
	}, metav1.ListOptions{}, func(obj runtime.Object) {
		if attachment := obj.(*storagev1.VolumeAttachment); attachment.Spec.NodeName == node {
			attachments = append(attachments, attachment)
		}
	}); err != nil {
		return remediation.NodeContents{}, fmt.Errorf("failed to list the VolumeAttachments: %w", brief.CutError(err))
	}
	for _, attachment := range attachments {
		name := attachment.Spec.Source.PersistentVolumeName
		if !stays || name == nil { // it is waited for whatever it is of
			continue
		}
		volume, err := c.CoreV1().PersistentVolumes().Get(ctx, *name, metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			return remediation.NodeContents{}, fmt.Errorf("failed to get PersistentVolume %s: %w", *name, brief.CutError(err))
		}
		if err == nil {
			volumes = append(volumes, volume)
		}
	}
	return remediation.NodeContentsOf(pods, attachments, volumes), nil
}

// stripPod leaves what remediation.NodeContentsOf reads of a pod.
func stripPod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, DeletionTimestamp: pod.DeletionTimestamp},
		Spec:       corev1.PodSpec{Tolerations: pod.Spec.Tolerations, Volumes: pod.Spec.Volumes},
	}
}
