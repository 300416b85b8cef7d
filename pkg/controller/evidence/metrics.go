// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// They are of the whole seed, and only the replica that leads has other values than 0.
var (
	used   = metrics.Gauge("evidence_used_bytes", "Bytes of evidence of failed machines that all control planes have stored.").WithLabelValues()
	budget = metrics.Gauge("evidence_budget_bytes", "Bytes of evidence of failed machines that all control planes may have stored.").WithLabelValues()
	capped = metrics.Gauge("evidence_capped", "Control planes that may have less evidence stored than their own budget, because that of the seed is used up.").WithLabelValues()
)
