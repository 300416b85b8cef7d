// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

var (
	maintenancesByPhase = promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "node_maintenances",
		Help:      "NodeMaintenances, by phase.",
	}, []string{"phase"})
	slots = promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "node_maintenance_slots",
		Help:      "Nodes under maintenance (used), and how many more may be at the same time (free).",
	}, []string{"state"})
)

// phaseNone stands for those that nobody has looked at yet.
const phaseNone = "New"

// tell sets the gauges.
func tell(s domain.Scheduling) {
	for _, phase := range append([]string{""}, domain.Phases...) {
		maintenancesByPhase.WithLabelValues(cmp.Or(phase, phaseNone)).Set(float64(s.Phases[phase]))
	}
	slots.WithLabelValues("used").Set(float64(s.Slots.Used))
	slots.WithLabelValues("free").Set(float64(s.Slots.Free))
}
