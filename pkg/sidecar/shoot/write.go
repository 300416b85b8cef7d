// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
)

// pageSize is how many objects are in memory at a time.
const pageSize = 100

// maxErrors is how many objects are named that could not be set back.
const maxErrors = 10

// EndEach writes on each object of the empty list's kind, for a shoot that is to do without, however many there are. It returns
// the first errors of objects, which do not keep others waiting, and none of objects that are gone or of a kind that the shoot does not
// know.
func EndEach(ctx context.Context, c client.Client, empty client.ObjectList, clean func(client.Object) ([]intent.Write, error)) error {
	var errs []error
	if err := paging.Each(ctx, metav1.ListOptions{Limit: pageSize}, math.MaxInt, func(ctx context.Context, opts metav1.ListOptions) (client.ObjectList, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		return list, c.List(ctx, list, &client.ListOptions{Limit: opts.Limit, Continue: opts.Continue})
	}, func() { errs = nil }, func(list client.ObjectList) error {
		return meta.EachListItem(list, func(obj runtime.Object) error {
			writes, err := clean(obj.(client.Object))
			if err != nil {
				err = fmt.Errorf("failed to set %s back: %w", client.ObjectKeyFromObject(obj.(client.Object)), brief.CutError(err))
			} else {
				err = executor.Apply(ctx, c, writes...).Err()
			}
			if err != nil && len(errs) < maxErrors {
				errs = append(errs, err)
			}
			return nil
		})
	}); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("failed to list objects: %w", brief.CutError(err)))
	}
	return errors.Join(errs...)
}
