// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package preservation carries out the decisions of the domain of the same name. One reconciliation looks at one
// MachineDeployment with all its machines, so that what is decided on its share is decided one after another (P1).
package preservation
