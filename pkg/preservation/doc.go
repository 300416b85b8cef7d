// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package preservation is the domain: what is to become of each machine of a MachineDeployment, decided from the
// observed objects, the configuration and the time, and nothing else.
//
// The rules and their ids (R1, T1, P1, ...) are explained in docs/development/rules.md. Nothing here reads a clock or
// calls an API.
package preservation
