// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

var (
	maintenancesByPhase = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "node_maintenances",
		Help:      "NodeMaintenances, by phase.",
	}, []string{"phase"})
	slotsUsed = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "node_maintenance_slots_used",
		Help:      "Nodes under maintenance.",
	})
	slotsFree = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "machine_preservation",
		Name:      "node_maintenance_slots_free",
		Help:      "Further nodes that may be under maintenance at the same time.",
	})
)

func init() {
	metrics.Registry.MustRegister(maintenancesByPhase, slotsUsed, slotsFree)
}

// phaseNone stands for those that nobody has looked at yet.
const phaseNone = "New"

// tell sets the gauges.
func (r *round) tell() {
	for _, phase := range append([]string{""}, domain.Phases...) {
		maintenancesByPhase.WithLabelValues(cmp.Or(phase, phaseNone)).Set(float64(r.phases[phase]))
	}
	slotsUsed.Set(float64(r.slots.Used))
	slotsFree.Set(float64(r.slots.Free))
}
