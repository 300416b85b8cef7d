// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What the tests look at beside the exported names.
var (
	Failures       = failures
	Dropped        = dropped
	HostFailed     = hostFailed
	MachineChanged = machineChanged
)

const MaxItems = maxItems

// Start begins as a controller does.
func (l *Ledger) Start(enqueue func(reconcile.Request, time.Duration)) { l.start(enqueue) }

// Len returns how many failures are remembered.
func (l *Ledger) Len() int { return len(l.items) }

// RequestsFor returns the requests for a machine.
func (l *Ledger) RequestsFor(ctx context.Context, obj client.Object) []reconcile.Request {
	return l.requestsFor(ctx, obj)
}

// Hosts are those that have failed lately.
type Hosts = hosts

// Fail takes note of a failure of a host.
func (h hosts) Fail(host string, at, now time.Time) { h.fail(host, at, now) }
