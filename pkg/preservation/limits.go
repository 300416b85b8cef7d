// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
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
		d.Refused, d.Ignored, d.ConsumeRequest = d.due, !d.due, g.Holder.obeys(*d) && d.consumable()
	case d.due && d.Request.Value == "" && g.Share != nil && *g.Share > 0 && d.Machine.Annotations[v1alpha1.AnnotationReleased] == "":
		d.Refused = true
	default:
		return
	}
	d.Reason = reason
}

// refuseRequest refuses what was asked for. machine-controller-manager >= 0.62 would obey the request by itself.
func (d *Decision) refuseRequest(reason string) {
	if d.due && d.Request.explicit() {
		d.Refused, d.Reason, d.ConsumeRequest = true, reason, d.consumable()
	}
}

// consumable says that it helps to delete the request of a machine that is not preserved. One that comes from the pool's
// annotations comes back, and machine-controller-manager >= 0.62 restarts the health timer each time, until the machine
// is Failed.
func (d *Decision) consumable() bool {
	return !d.Request.Templated || d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
}
