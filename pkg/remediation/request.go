// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const (
	// maxAutomatic is how many cycles a host has had within a day, for whatever Machine, when there is no request of ours for it any
	// more (X9, X20).
	maxAutomatic = 3
	// evidenceTime is for how long an automatic cycle waits for evidence that is being gathered: as long as that may take. That of
	// many machines is gathered one after the other: it waits for its turn, no longer than maxEvidenceTime after the failure (X9).
	evidenceTime, maxEvidenceTime = time.Minute, 10 * time.Minute
)

// recovered is what becomes of a request for a machine that does not need it any more.
const recovered = "The request for a power cycle was removed, because the machine has recovered. Its host is not powered off."

// takeNodeRequest puts the request of a Node on its Machine (X11). It is not acted upon before it is gone from the Node, so
// that a request that a shoot does not remove counts once.
func (d *decision) takeNodeRequest() {
	if d.hasNodeRequest() && d.group.AllowNodes {
		d.to.needs, d.to.record.Automatic = true, false
	}
}

func (d *decision) hasNodeRequest() bool { return isAskedOn(d.Node) }

func isAskedOn(node *corev1.Node) bool {
	return node != nil && node.Annotations[v1alpha1.AnnotationPowerCycle] == v1alpha1.PowerCycleNow
}

// ask puts a request on a machine that failed and is preserved without being asked for, one for each failure (X9).
func (d *decision) ask() {
	r := &d.to.record
	preserved := preservation.ReadRecord(d.Machine)
	if preserved == nil || !preserved.Failed || !preserved.FailedSince.Equal(r.Asked) {
		r.Asked, r.DryRun = time.Time{}, time.Time{}
	}
	s := d.group.Settings
	if d.to.needs || !s.Automatic && !s.DryRun || d.Host == nil || d.Healthy || !facts.IsPhaseKnown(d.Machine) ||
		preserved == nil || !preserved.Failed || preserved.Cause() != v1alpha1.CauseAuto || preserved.FailedSince.Equal(r.Asked) && (r.DryRun.IsZero() || s.DryRun) {
		return
	}
	if at := preserved.FailedAt(d.Machine, d.group.Timeouts); d.now.Before(at) {
		d.wake(at)
		return
	}
	if d.group.Evidence && !preserved.HasEvidence(d.Machine) {
		at := preserved.FailedAt(d.Machine, d.group.Timeouts).Add(maxEvidenceTime)
		if began := preserved.EvidenceBegan(d.Machine, d.group.Process); !began.IsZero() && began.Add(evidenceTime).Before(at) {
			at = began.Add(evidenceTime)
		}
		if d.now.Before(at) {
			d.wake(at)
			return
		}
	}
	cycles := d.hostCycles(func(Cycle) bool { return true })
	if own := r.recent(d.now); len(own) > len(cycles) {
		cycles = own
	}
	if len(cycles) >= maxAutomatic {
		d.wake(slices.MinFunc(cycles, time.Time.Compare).Add(CyclePeriod))
		return
	}
	if d.isStormy() {
		return
	}
	r.Asked = preserved.FailedSince
	if s.DryRun {
		r.DryRun = d.stamp()
		d.Outcome = DryRunOutcome
		d.tell(false, EventDryRun, "The host would be power-cycled as soon as nothing is in the way. It is not power-cycled, because automatic is DryRun.")
		return
	}
	r.DryRun = time.Time{}
	d.to.needs, d.to.record.Healthy, r.Automatic = true, new(false), true
}

// hostCycles returns those of the cycles that the host has had within the last day.
func (d *decision) hostCycles(those func(Cycle) bool) []time.Time {
	var began []time.Time
	for _, c := range d.Host.Cycles {
		if those(c) && d.now.Before(c.Began.Add(CyclePeriod)) {
			began = append(began, c.Began)
		}
	}
	return began
}

// judge finds out whether the machine was healthy when somebody asked for its power cycle (X16). It is not believed to have been
// unless it had been so, without a request, for some time when it was last seen without one, and does not say that it has recovered since.
func (d *decision) judge() {
	certain := d.UnaskedSince.Add(d.group.QuietTime)
	wasIll := d.HealthySince.After(d.Unasked) && !d.HealthySince.After(d.now) // a time in the future cannot be believed
	isCertain := !d.Unasked.IsZero() && !certain.After(d.Unasked) && !wasIll
	switch {
	case !d.to.needs && d.Healthy:
		if d.IsUnasked() && !isCertain { // it must be seen once when that is certain; a refused request on the Node leaves it uncertain
			d.wake(certain)
		}
	case !d.to.needs || d.to.record.Healthy != nil || d.NodeUnknown:
	case d.Healthy && !d.Live:
		d.Confirm, d.ConfirmOthers = true, true
	default:
		d.to.record.Healthy = new(d.Healthy && isCertain)
	}
}

// isUnwanted says that the machine is healthy, and was not when the power cycle was asked for.
func (d *decision) isUnwanted() bool {
	asked := d.to.record.Healthy
	return d.Healthy && (asked == nil || !*asked)
}

// drop removes a request for a machine that has recovered (X16). It is not taken for recovered because of a cache.
func (d *decision) drop() {
	if !d.to.needs || !d.isUnwanted() {
		return
	}
	if !d.Live { // it may be ill, and its cycle begin
		d.Confirm, d.ConfirmOthers = true, true
		return
	}
	note := recovered
	if d.is.record.Healthy == nil && d.is.record.Requested.IsZero() {
		note = "The request for a power cycle was removed, because the machine is healthy and it is not known whether it was healthy when the power cycle was requested. To power-cycle the healthy machine, request it again."
	}
	d.to.needs, d.taken = false, true
	d.tell(false, EventRecovered, note)
}

// wait keeps a request waiting, and the machine as long as a cycle would take at the longest (X10): a request that waits for
// longer goes on waiting, but keeps nothing.
func (d *decision) wait(reason string) {
	d.to.until = time.Time{}
	if until := d.to.record.Requested.Add(d.group.Settings.longest()).Add(d.healthTimeout()); d.now.Before(until) && d.isKept() {
		d.to.until = until
		d.wake(until)
	}
	d.to.record.Wait, d.to.record.AwaitsGrant = reason, false
	if reason != d.is.record.Wait {
		d.tell(false, EventPrefix+v1alpha1.PowerCycleWaiting, reason)
	}
}

// withdraw ends the wait of a request that is gone. The attempts stay counted.
func (d *decision) withdraw() {
	d.to.phase, d.to.until, d.to.record.Requested, d.to.record.Healthy = "", time.Time{}, time.Time{}, nil
	d.to.record.Wait, d.to.record.AwaitsGrant, d.to.record.NotBefore = "", false, time.Time{}
	if !d.to.record.Ended.IsZero() {
		d.to.phase = v1alpha1.PowerCycleCancelled
	}
}
