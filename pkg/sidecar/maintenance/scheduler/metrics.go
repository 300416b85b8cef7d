// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"

	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

var (
	maintenancesByPhase = metrics.Gauge("node_maintenances", "NodeMaintenances, by phase.", "phase")
	slots               = metrics.Gauge("node_maintenance_slots", "Nodes under maintenance (used), and how many more may be at the same time (free).", "state")
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
