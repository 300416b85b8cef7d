// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

const (
	// DefaultStormSettlingTime is how long a machine still counts as failing by default after its node is ready again (P16, X21).
	DefaultStormSettlingTime = 10 * time.Minute
	// MinStormSettlingTime and MaxStormSettlingTime are the bounds of that time.
	MinStormSettlingTime = 10 * time.Second
	MaxStormSettlingTime = 6 * time.Hour
)
