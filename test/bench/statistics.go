// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest of the durations that is not exceeded by the given percentage of them; 0 if there are none.
func percentile(durations []time.Duration, percentage float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := int(math.Ceil(percentage / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
