// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// HolderOf returns the identity of the preservation controller that is at work, which is the name of its pod, an underscore
// and what is unique. It is empty if there is none, or if it has not renewed its Lease in time.
func HolderOf(lease *coordinationv1.Lease, now time.Time) string {
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time) >= duration {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
