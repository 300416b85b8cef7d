// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// timedOut is a metric of nodes that are there for minutes: it exists for each only as long as its drain has failed (D8).
var timedOut = metrics.Gauge("node_drain_timeout", "1 while the drain of a node because of an update has failed.", "node")
