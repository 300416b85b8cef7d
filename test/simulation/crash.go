// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// knownCrash is where the machine controller of machine-controller-manager 0.61.3 and 0.62.1 panics when its watch has missed the
// deletion of a Machine. Its container is started again.
var knownCrash = []byte("machinecontroller.(*controller).deleteMachineToSafety(")

// current is the world that exists.
var current atomic.Pointer[World]

// All other panics end the test as they end a process.
func init() {
	utilruntime.ReallyCrash = false
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, reason any) {
		w := current.Load()
		if w == nil || !bytes.Contains(debug.Stack(), knownCrash) {
			panic(reason)
		}
		w.note(machineControllerName, "panics, and is started again")
		Restart{Process: machineControllerName, Downtime: 10 * time.Second}.do(w)
	})
}
