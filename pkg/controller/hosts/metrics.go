// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// overdue has one series for each control plane with such hosts, and none in replicas that do not lead. A label "namespace" would be
// taken for that of the extension.
var overdue = metrics.Gauge("hosts_overdue", "Hosts of a shoot that are off for longer than their power cycle allows, or may be because they cannot be reached.", "shoot_namespace")

func measure(namespace string, count int) {
	if count == 0 {
		overdue.DeleteLabelValues(namespace)
		return
	}
	overdue.WithLabelValues(namespace).Set(float64(count))
}
