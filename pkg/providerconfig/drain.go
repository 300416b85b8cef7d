// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// PDBDeadline returns how long after the start of a drain PodDisruptionBudgets are respected (D5). The strategies must be valid
// and have their defaults.
func PDBDeadline(strategies *preservation.DrainStrategies) time.Duration {
	return (&drain.Strategies{
		ExpectedDrainTime:    strategies.ExpectedDrainTime.Duration,
		PDBForceDrainTimeout: strategies.PDBForceDrainTimeout.Duration,
	}).PDBDeadline()
}
