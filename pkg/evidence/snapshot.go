// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence gathers what is known of nodes and their machines at a time, and keeps it in a file.
package evidence

import "github.com/gardener/gardener-extension-machine-preservation/pkg/snapshot"

// What is gathered, and what of it is missing.
type (
	// Snapshot is all of it.
	Snapshot = snapshot.Snapshot
	// Shoot is what the shoot has.
	Shoot = snapshot.Shoot
	// Seed is what the control plane's namespace has.
	Seed = snapshot.Seed
	// Controller is how the preservation controller runs.
	Controller = snapshot.Controller
	// Missing is something that could not be had.
	Missing = snapshot.Missing
)

// What Missing names things that others look for there.
const (
	WhatShoot         = snapshot.WhatShoot
	WhatMachines      = snapshot.WhatMachines
	WhatNodes         = snapshot.WhatNodes
	WhatNodeEvents    = snapshot.WhatNodeEvents
	WhatMachineEvents = snapshot.WhatMachineEvents
	WhatMaintenances  = snapshot.WhatMaintenances
	WhatController    = snapshot.WhatController
	WhatPods          = snapshot.WhatPods
	WhatBudgets       = snapshot.WhatBudgets
	WhatSeed          = snapshot.WhatSeed
)
