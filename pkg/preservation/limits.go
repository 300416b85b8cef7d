// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// forbidden says that operators forbid to preserve the machine (R6).
func (d *Decision) forbidden(g Group) bool {
	return g.Forbidden || d.Machine.Annotations[v1alpha1.AnnotationForbidden] == "true"
}

// refuse refuses, for good, what the machine would be preserved for. A request is deleted only where machine-controller-
// manager >= 0.62 obeys it by itself.
func (d *Decision) refuse(g Group, reason string) {
	switch {
	case d.Request.explicit():
		d.Refused, d.Ignored, d.ConsumeRequest = d.due, !d.due, g.Holder.obeys(*d)
	case d.due && d.Request.Value == "" && g.Share != nil && *g.Share > 0 && d.Machine.Annotations[v1alpha1.AnnotationReleased] == "":
		d.Refused = true
	default:
		d.Untold = reason
		return
	}
	d.Reason = reason
}

// refuseRequest refuses what was asked for. machine-controller-manager >= 0.62 would obey the request by itself.
func (d *Decision) refuseRequest(reason string) {
	if d.due && d.Request.explicit() {
		d.Refused, d.Reason, d.ConsumeRequest = true, reason, true
		return
	}
	d.Untold = reason
}

// outwait is for a request that is not honoured, that machine-controller-manager >= 0.62 obeys by itself, and that comes
// back: from the pool's annotations, or from somebody in the shoot. machine-controller-manager restarts the health timer
// with each beginning and each end of a preservation, and would never mark the machine Failed. So the request is left
// alone, and what it holds is made to last until that has happened. Then it can be ended for good.
func (d *Decision) outwait(g Group, now time.Time) {
	failed := d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
	obeyed := d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && g.Holder.obeys(*d)
	if d.Request.Templated && !failed || d.Current == nil && obeyed {
		d.ConsumeRequest = false
	}
	expiry := d.Machine.Status.CurrentStatus.PreserveExpiryTime
	if d.ConsumeRequest || !obeyed || expiry == nil || d.Target != nil || d.Deadline.IsZero() || g.Disabled || g.Replicas == 0 {
		return
	}
	failsBy := d.Deadline
	if now.After(failsBy) {
		failsBy = now
	}
	if expiry.Time.Before(failsBy.Add(respite)) {
		d.outlast = failsBy.Add(g.Timeouts.For(d.Machine).Health).Truncate(time.Second)
		return
	}
	d.lookAt(expiry.Add(-respite))
}
