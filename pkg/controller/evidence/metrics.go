// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// They are of the whole seed, and only the replica that leads has other values than 0.
var (
	used   = newGauge("used_bytes", "Bytes of evidence of failed machines that all control planes have stored.")
	budget = newGauge("budget_bytes", "Bytes of evidence of failed machines that all control planes may have stored.")
	capped = newGauge("capped", "Control planes that may have less evidence stored than their own budget, because that of the seed is used up.")
)

func newGauge(name, help string) prometheus.Gauge {
	return promauto.With(ctrlmetrics.Registry).NewGauge(prometheus.GaugeOpts{Namespace: "machine_preservation", Subsystem: "evidence", Name: name, Help: help})
}
