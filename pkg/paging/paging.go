// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package paging lists objects by the page. The pager of client-go is not used where memory is bounded: it reads a page ahead, on a
// goroutine whose panic ends the process, and gives up a list that is too old for its next page, or reads all of it at once.
package paging

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Each lists objects and uses each page, of which it keeps nothing: as many objects as the options limit it to. It calls begin before
// the first page, and again if it begins once more because the list is too old for its next page. It returns the first error of list
// or use, and one if there are more objects than most or a page without one and more to come: there may be pages without an end.
func Each[L runtime.Object](ctx context.Context, opts metav1.ListOptions, most int, list func(context.Context, metav1.ListOptions) (L, error), begin func(), use func(L) error) error {
	begin()
	count, again := 0, true
	for {
		page, err := list(ctx, opts)
		if apierrors.IsResourceExpired(err) && opts.Continue != "" && again {
			count, again, opts.Continue = 0, false, ""
			begin()
			continue
		}
		if err != nil {
			return err
		}
		length := meta.LenList(page)
		if count += length; count > most {
			return fmt.Errorf("there are more than %d objects", most)
		}
		if err := use(page); err != nil {
			return err
		}
		accessor, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
			return nil
		}
		if length == 0 {
			return errors.New("there is a page without an object, and more to come")
		}
	}
}
