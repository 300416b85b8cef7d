// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

const (
	// DefaultStormSettlingTime is how long a machine still counts as failing by default after its node is ready again (P16, X21).
	DefaultStormSettlingTime = 10 * time.Minute
	// MinStormSettlingTime is the shortest such time that is valid.
	MinStormSettlingTime = 10 * time.Second
	// MaxStormSettlingTime is the longest such time that is valid.
	MaxStormSettlingTime = 6 * time.Hour
)
