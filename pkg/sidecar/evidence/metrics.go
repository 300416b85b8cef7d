// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// The outcomes of storing evidence.
const (
	outcomeStored     = "stored"
	outcomeIncomplete = "incomplete"
	outcomeFailed     = "failed"
)

var bundles = metrics.Counter("evidence_total", "Evidence of failed machines, by whether it was stored, was stored incompletely, or could not be stored.", "outcome")

// serveZeros has all outcomes served: an increase can be seen only of what was there before.
func serveZeros() {
	for _, outcome := range []string{outcomeStored, outcomeIncomplete, outcomeFailed} {
		bundles.WithLabelValues(outcome)
	}
}
