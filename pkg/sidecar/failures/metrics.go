// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// Values of the label outcome of failures, by what was decided: that is known when the entry is written, which nobody else can have
// done. How a failure ends is in an entry that others may have forged.
const (
	outcomeKept     = "kept"
	outcomeReplaced = "replaced"
)

var (
	failures = metrics.Counter("failures_total", "Failures of machines in the failure history, by the first bad condition or another reason, and by whether the machine was preserved.", "pool", "reason", "outcome")
	// How often a host has failed is how often this has changed: a counter would begin anew with each process.
	hostFailed = metrics.Gauge("host_failure_timestamp_seconds", "When the last machine on a host failed, or was power-cycled, in seconds since 1970.", "host")
	dropped    = metrics.Counter("failures_dropped_total", "Failures of machines that did not fit into the memory of the preservation controller, and entries that the shoot refused.").WithLabelValues()
)

// hostMemory is for how long a host is told of that has failed.
const hostMemory = 7 * 24 * time.Hour

// announce has the series of a pool there before anything fails: an increase can be seen only of what was there before.
func announce(pool string) {
	for _, reason := range failure.MetricReasons {
		for _, outcome := range []string{outcomeKept, outcomeReplaced} {
			failures.WithLabelValues(pool, reason, outcome)
		}
	}
}

// hosts are those that have failed lately, and when they did last.
type hosts map[string]time.Time

// fail takes note of a failure, and forgets those of long ago.
func (h hosts) fail(host string, at, now time.Time) {
	for known, last := range h {
		if now.Sub(last) > hostMemory {
			delete(h, known)
			hostFailed.DeleteLabelValues(known)
		}
	}
	if at.After(h[host]) {
		h[host] = at
		hostFailed.WithLabelValues(host).Set(float64(at.Unix()))
	}
}
