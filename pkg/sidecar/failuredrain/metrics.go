// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var pods = promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{
	Namespace: "machine_preservation",
	Name:      "drain_pods_total",
	Help:      "Pods that were made to leave a node: evicted, deleted by force after the drain timeout, or deleted again because they came back.",
}, []string{"how"})
