// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxConflicts is from how many conflicts in a row on they are an error: nobody writes first that often, but a webhook of the shoot
// may deny with the same code.
const maxConflicts = 5

// RetryConflicts returns a Reconciler for which a conflict is no error: somebody else wrote first, and what they wrote is
// decided on anew, at the pace of the queue's rate limiter. Nobody needs to know, unless it comes again and again.
func RetryConflicts(r reconcile.Reconciler) reconcile.Reconciler {
	// It has only requests that are tried again: they are gone with the first other result.
	var conflicts sync.Map // int by the request, of which no two are under way
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if !OnlyConflicts(err) {
			conflicts.Delete(req)
			return result, err
		}
		before, _ := conflicts.LoadOrStore(req, 0)
		count := min(before.(int)+1, maxConflicts)
		conflicts.Store(req, count)
		if count == maxConflicts {
			return reconcile.Result{}, err
		}
		logf.FromContext(ctx).V(1).Info("Somebody else wrote first", "reason", err.Error())
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // nothing else asks the rate limiter without an error
	})
}

// OnlyConflicts says that an error is a conflict, or that all that are joined in it are.
func OnlyConflicts(err error) bool {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // it goes through what is wrapped itself
		case interface{ Unwrap() []error }:
			errs := e.Unwrap()
			return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !OnlyConflicts(err) })
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return apierrors.IsConflict(err)
		}
	}
	return false
}
