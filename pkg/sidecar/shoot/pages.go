// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
)

const (
	// MaxListed is how many objects of a kind are listed, more than any shoot has: pages may be without an end.
	MaxListed = 200_000
	// listTime is for how long they are.
	listTime = 5 * time.Minute
)

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
		return toolscache.NewSharedIndexInformer(pages{&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return listPages(ctx, from.ListWithContext, opts, transform)
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				from, err := from.WatchWithContext(ctx, opts)
				if err != nil {
					return nil, err
				}
				return bounded(from, MaxListed), nil
			},
		}}, example, resync, indexers)
	}
}

// pages lists, and watches what comes after that.
type pages struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported keeps the reflector from having the list streamed, which may be without an end.
func (pages) IsWatchListSemanticsUnSupported() bool { return true }

// bounded returns a watch that is expired when it has added that many objects: the list, which is bounded, is then read anew.
func bounded(from watch.Interface, most int) watch.Interface {
	added := 0
	return watch.Filter(from, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Added {
			added++
		}
		if added > most {
			status := apierrors.NewResourceExpired(fmt.Sprintf("more than %d objects were added", most)).Status()
			return watch.Event{Type: watch.Error, Object: &status}, true
		}
		return event, true
	})
}

// listPages returns a whole list, transformed, as of now: no older than whatever version is asked for. A page that is too large is asked
// for again as smaller ones.
func listPages(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), opts metav1.ListOptions, transform toolscache.TransformFunc) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Continue = "", "", ""
	var (
		items []runtime.Object
		last  runtime.Object
		limit = int64(pageSize)
	)
	if err := paging.Each(ctx, opts, MaxListed, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		for {
			opts.Limit = limit
			page, err := list(ctx, opts)
			if !errors.Is(err, errTooLarge) || limit == 1 {
				return page, err
			}
			limit = max(1, limit/8)
		}
	}, func() { items = nil }, func(page runtime.Object) error {
		last = page
		return meta.EachListItemWithAlloc(page, func(obj runtime.Object) error {
			kept, err := transform(obj)
			if err == nil {
				items = append(items, kept.(runtime.Object))
			}
			return err
		})
	}); err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(last)
	if err != nil {
		return nil, err
	}
	accessor.SetRemainingItemCount(nil)
	return last, meta.SetList(last, items)
}
