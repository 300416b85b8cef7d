// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/change"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

const (
	// WriteTimeout is how long a write to the shoot may take.
	WriteTimeout = 5 * time.Second
	// pageSize is how many objects are in memory at a time.
	pageSize = 100
)

// Apply carries a write out, and returns the object as it is then.
func Apply(ctx context.Context, c client.Client, write change.Write) (client.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	var (
		after = write.After.DeepCopyObject().(client.Object)
		patch client.Patch
	)
	switch _, isNode := write.Before.(*corev1.Node); {
	case isNode && write.Status: // conditions are merged by type
		patch = client.StrategicMergeFrom(write.Before)
	case isNode:
		patch = client.StrategicMergeFrom(write.Before, client.MergeFromWithOptimisticLock{})
	default:
		patch = client.MergeFromWithOptions(write.Before, client.MergeFromWithOptimisticLock{})
	}
	if write.Status {
		return after, c.Status().Patch(ctx, after, patch)
	}
	return after, c.Patch(ctx, after, patch)
}

// maxErrors is how many objects are named that could not be set back.
const maxErrors = 10

// EndEach does something to each object of the empty list's kind, for a shoot that is to do without, however many there are. It returns
// the first errors of objects, which do not keep others waiting, and none of objects that are gone or of a kind that the shoot does not
// know.
func EndEach(ctx context.Context, c client.Client, empty client.ObjectList, end func(context.Context, client.Client, client.Object) error) error {
	var errs []error
	if err := paging.Each(ctx, metav1.ListOptions{Limit: pageSize}, math.MaxInt, func(ctx context.Context, opts metav1.ListOptions) (client.ObjectList, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		return list, c.List(ctx, list, &client.ListOptions{Limit: opts.Limit, Continue: opts.Continue})
	}, func() { errs = nil }, func(list client.ObjectList) error {
		return meta.EachListItem(list, func(obj runtime.Object) error {
			if err := end(ctx, c, obj.(client.Object)); client.IgnoreNotFound(err) != nil && len(errs) < maxErrors {
				errs = append(errs, fmt.Errorf("failed to set %s back: %w", client.ObjectKeyFromObject(obj.(client.Object)), text.CutError(err)))
			}
			return nil
		})
	}); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("failed to list objects: %w", text.CutError(err)))
	}
	return errors.Join(errs...)
}
