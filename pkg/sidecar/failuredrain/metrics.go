// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain

import (
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

var pods = metrics.Counter("drain_pods_total", "Pods that were made to leave a node: evicted, deleted by force after the drain timeout, or deleted again because they came back.", "how")
