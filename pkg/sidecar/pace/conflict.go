// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RetryConflicts returns a Reconciler for which a conflict is no error: somebody else wrote first, and what they wrote is
// decided on anew, at the pace of the queue's rate limiter. Nobody needs to know.
func RetryConflicts(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if !OnlyConflicts(err) {
			return result, err
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
