// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

// What the tests look at beside the exported names.
var (
	Due            = due
	Decide         = decide
	RequestsFor    = requestsFor
	MachineChanged = machineChanged
	Bundles        = bundles
)

// Upkeep is what is due for what is stored.
type Upkeep = upkeep

// What ConfigMaps say.
const (
	AnnotationFailedSince = annotationFailedSince
	AnnotationExpires     = annotationExpires
	MaxStored             = maxStored
)
