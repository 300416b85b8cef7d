// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The outcomes of storing evidence.
const (
	outcomeStored     = "stored"
	outcomeIncomplete = "incomplete"
	outcomeFailed     = "failed"
)

var bundles = promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{
	Namespace: "machine_preservation",
	Name:      "evidence_total",
	Help:      "Evidence of failed machines, by whether it was stored, was stored incompletely, or could not be stored.",
}, []string{"outcome"})

// serveZeros has all outcomes served: an increase can be seen only of what was there before.
func serveZeros() {
	for _, outcome := range []string{outcomeStored, outcomeIncomplete, outcomeFailed} {
		bundles.WithLabelValues(outcome)
	}
}
