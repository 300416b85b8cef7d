// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const namespace = "machine_preservation"

var (
	preserved = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace,
		Name:      "machines",
		Help:      "Preserved machines, by MachineDeployment, cause and sub-phase.",
	}, []string{"machine_deployment", "cause", "phase"})
	share = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace,
		Name:      "share",
		Help:      "Failed machines that may be auto-preserved, by MachineDeployment.",
	}, []string{"machine_deployment"})
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "transitions_total",
		Help:      "Transitions that were written, by the id of their rule.",
	}, []string{"rule"})
	refusals = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "refusals_total",
		Help:      "Failed machines that were not preserved as no share was left.",
	})
)

func init() {
	metrics.Registry.MustRegister(preserved, share, transitions, refusals)
}

// observe sets the gauges of one MachineDeployment.
func observe(deployment string, limit *int32, decisions []preservation.Decision) {
	forget(deployment)
	if limit != nil {
		share.WithLabelValues(deployment).Set(float64(*limit))
	}
	for _, d := range decisions {
		if d.Target != nil {
			preserved.WithLabelValues(deployment, d.Target.Cause, d.Target.Phase(d.Machine.Status.CurrentStatus.Phase)).Inc()
		}
	}
}

// forget drops the gauges of one MachineDeployment.
func forget(deployment string) {
	labels := prometheus.Labels{"machine_deployment": deployment}
	preserved.DeletePartialMatch(labels)
	share.DeletePartialMatch(labels)
}
