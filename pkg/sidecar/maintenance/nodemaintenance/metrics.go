// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

var (
	phaseSeconds = metrics.Histogram("node_maintenance_phase_duration_seconds", "Seconds that NodeMaintenances were in a phase.", []float64{1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}, "phase")
	drainsFailed = metrics.Counter("node_maintenance_drains_failed_total", "Drains for a NodeMaintenance that did not end within their timeout and were retried.")
	// overdue is a metric of nodes that are there, which are few: it exists for each only as long as its maintenance is over its
	// Ready time.
	overdue = metrics.Gauge("node_maintenance_overdue", "1 while a NodeMaintenance has its node for longer than it may be Ready.", "node")
)

// tellOverdue tells whether a maintenance has its node for too long, and returns when one will have. Of a node that is not there,
// nothing is told: anybody may ask for one.
func (r *Reconciler) tellOverdue(ctx context.Context, name string, facts *domain.Facts) (time.Time, error) {
	config, err := r.Config(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("failed to read the configuration: %w", err)
	}
	var (
		now  = r.Clock.Now()
		over = false
		next time.Time
	)
	if facts.Node != nil && config != nil {
		bounds := domain.Bounds{Max: domain.MaxReadyTime(&config.Spec)}
		for _, nm := range facts.Maintenances {
			switch at := bounds.Ends(nm, now).Over; {
			case at.After(now):
				next = pace.Earliest(next, at)
			case !at.IsZero():
				over = true
			}
		}
	}
	if over {
		overdue.WithLabelValues(name).Set(1)
	} else {
		overdue.DeleteLabelValues(name)
	}
	return next, nil
}

// observe tells of the phases that are over. That of a restart is not told.
func (m *memory) observe(maintenances []*v1alpha1.NodeMaintenance, now time.Time) {
	phases := make(map[types.UID]since, len(maintenances))
	for _, nm := range maintenances {
		phase := domain.PhaseOf(nm)
		before, known := m.phases[nm.UID]
		if known && before.phase == phase {
			phases[nm.UID] = before
			continue
		}
		if known && before.phase != "" {
			phaseSeconds.WithLabelValues(before.phase).Observe(now.Sub(before.time).Seconds())
		}
		phases[nm.UID] = since{phase, now}
	}
	for uid, before := range m.phases {
		if _, there := phases[uid]; !there && before.phase != "" {
			phaseSeconds.WithLabelValues(before.phase).Observe(now.Sub(before.time).Seconds())
		}
	}
	m.phases = phases
}
