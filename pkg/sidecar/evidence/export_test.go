// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"

// What the tests look at beside the exported names.
var (
	Due            = due
	FailureOf      = failureOf
	Decide         = decide
	RequestsFor    = requestsFor
	MachineChanged = machineChanged
	ShareOf        = share
	Bundles        = bundles
)

// Upkeep is what is due for what is stored.
type Upkeep = upkeep

// What ConfigMaps say.
const (
	AnnotationFailedSince = evidence.AnnotationStoredFailedSince
	AnnotationIncomplete  = evidence.AnnotationStoredIncomplete
	AnnotationExpires     = evidence.AnnotationStoredExpires
	MaxStored             = evidence.MaxStored
)
