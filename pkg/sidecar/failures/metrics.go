// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
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
		Help:      "Failures of machines that were written into the ledger, by the first bad condition or another reason, and by whether the machine was kept.",
	}, []string{"pool", "reason", "outcome"})
	dropped = promauto.With(metrics.Registry).NewCounter(prometheus.CounterOpts{
		Namespace: "machine_preservation",
		Name:      "failures_dropped_total",
		Help:      "Looks at failures of machines for which there was no place in the ledger's memory, and entries that the shoot did not take.",
	})
)
