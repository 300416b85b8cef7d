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

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
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

func TestCalm(t *testing.T) {
	bubble(t, func() {
		w := newWorld(3, nil)
		defer w.stop()
		time.Sleep(24 * time.Hour)

		machines, _ := w.seed.List("machines", namespace, labels.Everything())
		if len(machines) != 3 {
			t.Errorf("there are %d machines, expected 3", len(machines))
		}
		for _, change := range machines {
			if phase := fromUnstructured[machinev1alpha1.Machine](change.Object).Status.CurrentStatus.Phase; phase != machinev1alpha1.MachineRunning {
				t.Errorf("%s is %s", change.name, phase)
			}
		}
		for _, change := range append(w.seed.Log(), w.shoot.Log()...) {
			if at := change.At.Sub(w.begin); change.By == sidecarName || at > 10*time.Minute && change.By != "kubelet" {
				t.Errorf("%s: %s writes %s", at, change.By, change.key)
			}
		}
	})
}
