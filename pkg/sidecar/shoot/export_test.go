// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

// EnqueuePaced is what the tests look at beside the exported names.
var EnqueuePaced = enqueuePaced
