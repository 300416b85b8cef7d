// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import "sigs.k8s.io/controller-runtime/pkg/client"

// ClientsOf returns clients that ask a seed only.
func ClientsOf(seed client.Client) *Clients { return &Clients{seed: seed} }

// NewEarlyLogs and EarlyLogsOf are for tests.
var (
	NewEarlyLogs = newEarlyLogs
	EarlyLogsOf  = (*earlyLogs).of
)

// What the tests look at beside the exported names.
var (
	RequestsFor    = requestsFor
	MachineChanged = machineChanged
	Bundles        = bundles
)
