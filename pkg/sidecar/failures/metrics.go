// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
)

// Values of the label outcome of failures, by what was decided: that is known when the entry is written, which nobody else can have
// done. How a failure ends is in an entry that others may have forged.
const (
	outcomeKept     = "kept"
	outcomeReplaced = "replaced"
)

var (
	failures = promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{
		Namespace: "machine_preservation",
		Name:      "failures_total",
		Help:      "Failures of machines in the failure history, by the first bad condition or another reason, and by whether the machine was preserved.",
	}, []string{"pool", "reason", "outcome"})
	// How often a host has failed is how often this has changed: a counter would begin anew with each process.
	hostFailed = promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "host_failure_timestamp_seconds",
		Help:      "When the last machine on a host failed, or was power-cycled, in seconds since 1970.",
	}, []string{"host"})
	dropped = promauto.With(metrics.Registry).NewCounter(prometheus.CounterOpts{
		Namespace: "machine_preservation",
		Name:      "failures_dropped_total",
		Help:      "Failures of machines that did not fit into the memory of the preservation controller, and entries that the shoot refused.",
	})
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
