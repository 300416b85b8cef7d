// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package memory measures memory.
package memory

import (
	"runtime"
	"time"
)

// Peak returns the most bytes of the heap that were in use at a time during a function, more than before it.
func Peak(during func()) uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before, most := stats.HeapAlloc, stats.HeapAlloc
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ticker := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-ticker.C:
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				most = max(most, stats.HeapAlloc)
			}
		}
	}()
	during()
	close(stop)
	<-stopped
	return most - before
}
