// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// They are of the whole seed, and only the replica that leads has other values than 0.
var (
	outdatedDeployments = metrics.Gauge("injection_outdated", "Deployments of machine-controller-manager whose preservation controller is not of this version of the extension.").WithLabelValues()
	underWayDeployments = metrics.Gauge("injection_under_way", "Deployments of machine-controller-manager whose preservation controller was replaced, and has neither become ready for long enough nor failed yet, while others are still to be replaced.").WithLabelValues()
	failedDeployments   = metrics.Gauge("injection_failed", "Deployments of machine-controller-manager whose preservation controller was replaced, and is not ready or not working after five minutes, while others are still to be replaced.").WithLabelValues()
	halted              = metrics.Gauge("injection_halted", "1 if no further preservation controllers are replaced, because too many Deployments failed.").WithLabelValues()
)

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
