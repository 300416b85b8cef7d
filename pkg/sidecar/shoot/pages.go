// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxListed is how many objects of a kind are listed, more than any shoot has: pages may be without an end.
const maxListed = 200_000

// newInformer returns a constructor of informers that never have more of a list in memory than a page, and what is kept of those
// before. The reflector would have all of it: its own pages are from before what is not kept is stripped, and the API server answers
// from its watch cache without any.
func newInformer(byObject map[client.Object]cache.ByObject) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		from := toolscache.ToListerWatcherWithContext(lw)
		transform := toolscache.TransformFunc(func(obj any) (any, error) { return obj, nil })
		for obj, by := range byObject {
			if reflect.TypeOf(obj) == reflect.TypeOf(example) && by.Transform != nil {
				transform = by.Transform
			}
		}
		return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return listPages(ctx, from.ListWithContext, opts, transform)
			},
			WatchFuncWithContext: from.WatchWithContext,
		}, example, resync, indexers)
	}
}

// listPages returns a whole list, transformed, as of now: no older than whatever version is asked for. It begins once more if the
// list is too old for its next page.
func listPages(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), opts metav1.ListOptions, transform toolscache.TransformFunc) (runtime.Object, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit, opts.Continue = "", "", pageSize, ""
	var (
		items []runtime.Object
		again = true
	)
	for {
		page, err := list(ctx, opts)
		if apierrors.IsResourceExpired(err) && opts.Continue != "" && again {
			again, items, opts.Continue = false, nil, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := meta.EachListItemWithAlloc(page, func(obj runtime.Object) error {
			kept, err := transform(obj)
			if err == nil {
				items = append(items, kept.(runtime.Object))
			}
			return err
		}); err != nil {
			return nil, err
		}
		if len(items) > maxListed {
			return nil, fmt.Errorf("there are more than %d objects", maxListed)
		}
		accessor, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
			accessor.SetRemainingItemCount(nil)
			return page, meta.SetList(page, items)
		}
	}
}
