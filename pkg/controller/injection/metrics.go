// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// They are of the whole seed, and only the replica that leads has other values than 0.
var (
	outdatedDeployments = newGauge("outdated", "Deployments of machine-controller-manager whose preservation controller is not of this version of the extension.")
	underWayDeployments = newGauge("under_way", "Deployments of machine-controller-manager whose preservation controller was replaced, and has neither become ready for long enough nor failed yet, while others are still to be replaced.")
	failedDeployments   = newGauge("failed", "Deployments of machine-controller-manager whose preservation controller was replaced, and is not ready or not working after five minutes, while others are still to be replaced.")
	halted              = newGauge("halted", "1 if no further preservation controllers are replaced, because too many Deployments failed.")
)

func newGauge(name, help string) prometheus.Gauge {
	return promauto.With(ctrlmetrics.Registry).NewGauge(prometheus.GaugeOpts{Namespace: "machine_preservation", Subsystem: "injection", Name: name, Help: help})
}

func (d Decision) measure() {
	outdatedDeployments.Set(float64(d.Outdated))
	underWayDeployments.Set(0)
	failedDeployments.Set(0)
	halted.Set(0)
	if d.Outdated > 0 {
		underWayDeployments.Set(float64(d.UnderWay))
		failedDeployments.Set(float64(d.Failed))
	}
	if d.Halted {
		halted.Set(1)
	}
}
