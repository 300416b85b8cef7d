// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// timedOut is a metric of nodes that are there for minutes: it exists for each only as long as its drain has failed (D8).
var timedOut = promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{
	Namespace: "machine_preservation",
	Name:      "node_drain_timeout",
	Help:      "1 while the drain of a node because of an update has failed.",
}, []string{"node"})
