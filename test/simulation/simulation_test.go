// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	klog.SetLogger(logr.Discard())
	logf.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// bubble runs a function with a clock of its own.
func bubble(t *testing.T, f func()) {
	// MCM never shuts its event broadcasters down, which nothing else knows: they are left behind, a few parked goroutines
	// for each start, and a bubble does not end by itself while there are any.
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !strings.Contains(err.Error(), "blocked goroutines remain") {
				panic(r)
			}
		}
	}()
	synctest.Test(t, func(*testing.T) { f() })
}

// happen lets a history happen in a bubble.
func happen(t *testing.T, h History) (violation, timeline string) {
	bubble(t, func() { violation, timeline = Run(h) })
	return violation, timeline
}

// TestCalm is the smallest history: nothing is done.
func TestCalm(t *testing.T) {
	if violation, timeline := happen(t, History{Replicas: 3, Share: 1, Timeout: time.Hour}); violation != "" {
		t.Errorf("%s\n%s", violation, timeline)
	}
}

// TestHistories lets histories happen that are made of a seed: make simulate.
func TestHistories(t *testing.T) {
	begin, count := time.Now(), 0
	rapid.Check(t, func(rt *rapid.T) {
		h := Histories().Draw(rt, "history")
		count++
		if violation, timeline := happen(t, h); violation != "" {
			rt.Fatalf("%s\n%s\n\n%s", violation, h, timeline)
		}
	})
	t.Logf("%d histories, %.0f simulated hours per second", count, float64(count)*duration.Hours()/time.Since(begin).Seconds())
}
