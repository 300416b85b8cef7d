// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Holder returns the identity of the preservation controller that is at work in a control plane, wherever its container runs: the
// name of its pod, an underscore and what is unique. It is empty if there is none, or if it has not renewed its Lease in time.
func Holder(ctx context.Context, reader client.Reader, namespace string, now time.Time) (string, error) {
	lease, err := heldLease(ctx, reader, namespace, now)
	return ptr.Deref(lease.HolderIdentity, ""), err
}

// AtWork returns for how long the preservation controller is at work in a control plane, 0 if there is none.
func AtWork(ctx context.Context, reader client.Reader, namespace string, now time.Time) (time.Duration, error) {
	lease, err := heldLease(ctx, reader, namespace, now)
	if ptr.Deref(lease.HolderIdentity, "") == "" || lease.AcquireTime == nil {
		return 0, err
	}
	return now.Sub(lease.AcquireTime.Time), err
}

// heldLease returns the Lease of a preservation controller, or an empty one if it was not renewed in time.
func heldLease(ctx context.Context, reader client.Reader, namespace string, now time.Time) (coordinationv1.LeaseSpec, error) {
	lease, key := &coordinationv1.Lease{}, client.ObjectKey{Namespace: namespace, Name: Name}
	if err := reader.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return coordinationv1.LeaseSpec{}, fmt.Errorf("failed to get Lease %q: %w", key, err)
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time) >= duration {
		return coordinationv1.LeaseSpec{}, nil
	}
	return lease.Spec, nil
}
