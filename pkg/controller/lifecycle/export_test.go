// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

// ShootClient is what AddToManager gives to the actuator.
var ShootClient = shootClient
