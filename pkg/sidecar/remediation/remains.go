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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// page is how many objects are in memory at a time when they are listed, however many there are.
const page = 50

// ReadRemains returns what there still is of a node, as the API server of the shoot has it.
func ReadRemains(ctx context.Context, c kubernetes.Interface, node string) (remediation.Remains, error) {
	var remains remediation.Remains
	each := func(list pager.ListPageFunc, opts metav1.ListOptions, count func(runtime.Object)) error {
		p := pager.New(list)
		p.PageSize, p.PageBufferSize = page, 0
		return p.EachListItem(ctx, opts, func(obj runtime.Object) error { count(obj); return nil })
	}
	if err := each(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
	}, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}, func(obj runtime.Object) {
		if remediation.MustLeave(obj.(*corev1.Pod)) {
			remains.Pods++
		}
	}); err != nil {
		return remains, fmt.Errorf("failed to list the pods of node %s: %w", node, text.CutError(err))
	}
	if err := each(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.StorageV1().VolumeAttachments().List(ctx, opts)
	}, metav1.ListOptions{}, func(obj runtime.Object) {
		if obj.(*storagev1.VolumeAttachment).Spec.NodeName == node {
			remains.VolumeAttachments++
		}
	}); err != nil {
		return remains, fmt.Errorf("failed to list the VolumeAttachments: %w", text.CutError(err))
	}
	return remains, nil
}
