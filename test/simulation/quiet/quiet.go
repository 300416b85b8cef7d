// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package quiet takes from a process what knows nothing of several clocks: what would be done every half second of days that pass in
// seconds, and what remembers a time in one bubble and waits for it in the next, which begins at the same time. It works by being
// imported.
package quiet

import (
	_ "unsafe" // for go:linkname

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
)

// noMetrics is the provider of workqueues of whose kind none counts anything, for as long as nobody has set another one.
//
//go:linkname noMetrics k8s.io/client-go/util/workqueue.globalMetricsProvider
var noMetrics workqueue.MetricsProvider

// A queue with metrics updates them twice a second. Only the first provider that is set counts: this package is initialized
// before that of controller-runtime, as both need the same packages, and the import paths decide.
func init() { workqueue.SetProvider(noMetrics) }

// One of them lets at least a millisecond pass between two errors, and for that remembers when the last one was: an informer
// would watch again in a day.
func init() { utilruntime.ErrorHandlers = nil }
