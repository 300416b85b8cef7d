// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"slices"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/snapshot"
)

// isIncomplete says that the shoot or the seed could not be asked.
func isIncomplete(s *snapshot.Snapshot) bool {
	return s.Seed == nil || slices.ContainsFunc(s.Unknown(snapshot.WhatNode, snapshot.WhatPods, snapshot.WhatNodeEvents, snapshot.WhatMachineEvents), func(m snapshot.Missing) bool { return !m.Partial })
}
