// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package quiet takes what others do every half second for nobody from a process in which days pass in seconds. It works by
// being imported.
package quiet

import (
	_ "unsafe" // for go:linkname

	"k8s.io/client-go/util/workqueue"
)

// noMetrics is the provider of workqueues of whose kind none counts anything, for as long as nobody has set another one.
//
//go:linkname noMetrics k8s.io/client-go/util/workqueue.globalMetricsProvider
var noMetrics workqueue.MetricsProvider

// A queue with metrics updates them twice a second. Only the first provider that is set counts: this package is initialized
// before that of controller-runtime, as both need the same packages, and the import paths decide.
func init() { workqueue.SetProvider(noMetrics) }
