// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain

// What the tests look at beside the exported names.
var (
	RequestOf    = requestOf
	DrainChanges = drainChanges
)
