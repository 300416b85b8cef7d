// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// MaxReadyTime returns for how long a NodeMaintenance may be Ready (M9).
func MaxReadyTime(config *v1alpha1.MaintenanceOperatorConfigSpec) time.Duration {
	return time.Duration(ptr.Deref(config.MaxNodeMaintenanceTimeSeconds, v1alpha1.DefaultMaxNodeMaintenanceTimeSeconds)) * time.Second
}

// Bounds are for how long a NodeMaintenance may have a node that is handed over.
type Bounds struct {
	// Max is for how long it may be Ready (M9).
	Max time.Duration
	// Overtime is for how much longer a requestor that has failed may keep it, or additional ones may after it was deleted (M7).
	// 0: there is no end.
	Overtime time.Duration
}

// Ends are the times at which something ends. A zero time never comes.
type Ends struct {
	// Since is from when At is counted.
	Since time.Time
	// Over is when the Ready time is over. It is there to be told: nothing happens by it.
	Over time.Time
	// At is when the NodeMaintenance is to be deleted or, if it is deleted, when it waits for nobody any more.
	At time.Time
}

// Ends returns what ends when of a NodeMaintenance whose node is handed over, and nothing of any other. One that the garbage
// collector is to ignore is left to people: time does nothing to it.
func (b Bounds) Ends(nm *v1alpha1.NodeMaintenance, now time.Time) Ends {
	if !IsHandedOver(nm) {
		return Ends{}
	}
	ends := Ends{Since: readySince(nm, now)}
	ends.Over = ends.Since.Add(b.Max)
	failed := RequestorFailed(nm) || PhaseOf(nm) == v1alpha1.PhaseRequestorFailed
	// That it has failed does not begin the Ready time anew. This is but told: what is backdated ends nothing.
	if annotated := readyTime(nm); PhaseOf(nm) == v1alpha1.PhaseRequestorFailed && !annotated.IsZero() && annotated.Before(ends.Since) {
		ends.Over = annotated.Add(b.Max)
	}
	switch {
	case IsEnding(nm), nm.Annotations[v1alpha1.AnnotationIgnoreGarbageCollector] == "true":
	case !failed && nm.DeletionTimestamp == nil:
		ends.At = ends.Since.Add(b.Max)
	case b.Overtime > 0:
		ends.At = ends.Since.Add(b.Max + b.Overtime)
	}
	return ends
}

// IsHandedOver says that a NodeMaintenance has a node that was handed over to the requestor.
func IsHandedOver(nm *v1alpha1.NodeMaintenance) bool {
	phase := PhaseOf(nm)
	return InProgress(nm) && (phase == v1alpha1.PhaseReady || phase == v1alpha1.PhaseRequestorFailed)
}

// readySince returns since when a NodeMaintenance is in its phase, Ready or RequestorFailed, or Ready by its annotation if that
// is later: it is counted anew when the requestor fails, and when it goes on. The shoot can write both. So a time that is yet to
// come does not count, and backdating one of them changes nothing. Without any time that counts, it is since now.
func readySince(nm *v1alpha1.NodeMaintenance, now time.Time) time.Time {
	since := readyTime(nm)
	if since.After(now) {
		since = time.Time{}
	}
	if became := meta.FindStatusCondition(nm.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime; became.After(since) && !became.After(now) {
		since = became.Time
	}
	if since.IsZero() {
		since = now
	}
	return since
}

// readyTime returns what the annotation says, zero if it cannot be read.
func readyTime(nm *v1alpha1.NodeMaintenance) time.Time {
	since, _ := time.Parse(time.RFC3339, nm.Annotations[v1alpha1.AnnotationReadyTime])
	return since
}
