// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer

// StripPod is for tests.
var StripPod = stripPod
