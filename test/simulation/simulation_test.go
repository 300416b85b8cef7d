// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var alone = flag.Bool("alone", false, "Have no sidecar in what is made of a seed: what machine-controller-manager does by itself.")

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // what happens at the same moment happens on one processor anyway: more of them only wake each other
	debug.SetGCPercent(400)
	// Else this takes longer than all other tests, and is another one each time.
	for name, value := range map[string]string{"rapid.checks": "15", "rapid.seed": "1", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetLogger(logr.Discard())
	logf.SetLogger(logr.Discard())
	os.Stderr, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0) // the controllers of maintenances log there, with a level of their own
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
func happen(t *testing.T, h History) (outcome Outcome) {
	bubble(t, func() { outcome = Run(h) })
	return outcome
}

// TestCalm is the smallest history: nothing is done.
func TestCalm(t *testing.T) {
	if o := happen(t, History{Replicas: 3, Share: 1, Timeout: time.Hour}); o.Violation != "" {
		t.Errorf("%s\n%s", o.Violation, o.Timeline)
	}
}

// known is a history, and how often something must happen in it: else it shows nothing.
type known struct {
	history History
	seen    seen
}

type seen map[string]int

// some is how often something happens of which it does not matter how often.
const some = -1

func runKnown(t *testing.T, histories map[string]known) {
	for name, test := range histories {
		t.Run(name, func(t *testing.T) {
			o := happen(t, test.history)
			if o.Violation != "" {
				t.Fatalf("%s\n%s\n\n%s", o.Violation, test.history, o.Timeline)
			}
			for what, times := range test.seen {
				if is := o.Seen[what]; is != times && (times != some || is == 0) {
					t.Errorf("%q has happened %d times, expected %d: %v", what, is, times, o.Seen)
				}
			}
		})
	}
}

// TestKnown lets histories happen in which a defect shows that there was, or that each of the rules is there to prevent.
func TestKnown(t *testing.T) {
	const kept = "not kept > " + rules.FailedPreserved
	runKnown(t, map[string]known{
		// MCM then sets all Unknown machines to Running without a look at them, and takes that back when it sees its own write.
		"H1: the shoot is away when a machine fails": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{25 * time.Minute, ShootOutage{30 * time.Minute}},
			{50 * time.Minute, Lag{machineControllerName, "seed", 20 * time.Second, 10 * time.Minute}},
		}}, seen{kept: 1}},
		"P1: the sidecar sees late that a place is taken": {History{Replicas: 3, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{20*time.Minute + 20*time.Second, Break{1, Dead}},
			{15 * time.Minute, Lag{sidecarName, "seed", time.Minute, 30 * time.Minute}},
		}}, seen{kept: 1}},
		// Of those that ask for a place, the second machine would be the first, as it is due sooner. It asks for none until the
		// other one has it, and nobody writes it in between: that would be a conflict.
		"P1: a place is asked for, and it is not seen that it is taken": {History{Replicas: 3, Share: 1, Timeout: time.Hour, Events: []Event{
			{15 * time.Minute, Lag{sidecarName, "seed", time.Minute, 30 * time.Minute}},
			{20 * time.Minute, Break{1, Dead}},
			{20*time.Minute + 10*time.Second, Break{0, Dead}},
			{25 * time.Minute, Ask{1, true, "false", 0}},
			{30*time.Minute + 13*time.Second, Restart{machineControllerName, 5 * time.Minute}},
			{30*time.Minute + 15*time.Second, Ask{1, true, "", 0}},
		}}, seen{kept: 1}},
		"P3: a machine fails during an update": {History{Replicas: 3, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Stillborn{}},
			{21 * time.Minute, Roll{}},
		}}, seen{kept: 0, "cost its place by an update": 1}},
		// It is the last one: machine-controller-manager waits for any other.
		"P3: a machine of before the update cannot be deleted": {History{Replicas: 1, Share: 1, Timeout: time.Hour, Events: []Event{
			{16 * time.Minute, Cling{0, 10 * time.Hour}},
			{20 * time.Minute, Roll{}},
			{6 * time.Hour, Break{0, Dead}},
		}}, seen{kept: 1}},
		"P5: the protection is taken away": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Unprotect{0}},
		}}, seen{kept: 1}},
		"P8: the sidecar is killed in the middle of a hold": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{20 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 1, Kill: true}}},
		}}, seen{kept: 1}},
		"P12: the node of another machine cannot be written to": {History{Replicas: 3, Share: 2, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{25 * time.Minute, Break{1, Dead}},
			{26 * time.Minute, Deny{0, time.Hour}},
		}}, seen{kept: 2}},
	})
}

// TestAlone lets histories happen in which machine-controller-manager by itself does what no rule allows: it is real, and the
// oracle sees what it does.
func TestAlone(t *testing.T) {
	for name, test := range map[string]struct {
		history History
		rule    string
		either  bool // 0.61 does it as well
	}{
		"the shoot is away when a machine fails": {History{Alone: true, Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{25 * time.Minute, ShootOutage{30 * time.Minute}},
		}}, "H1", true},
		"the expiry of a machine comes": {History{Alone: true, Replicas: 1, Share: 2, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
		}}, "T8", false},
	} {
		t.Run(name, func(t *testing.T) {
			if old && !test.either {
				t.Skip("0.61 keeps no machines")
			}
			o := happen(t, test.history)
			t.Logf("%s\n%s", o.Violation, o.Timeline)
			if rule, _, _ := strings.Cut(o.Violation, ":"); rule != test.rule {
				t.Errorf("expected a violation of %s, got %q", test.rule, o.Violation)
			}
		})
	}
}

// TestHistories lets histories happen that are made of a seed: make simulate.
func TestHistories(t *testing.T) {
	begin, count, seen := time.Now(), 0, map[string]int{}
	// What is made smaller is one violation: another one that a smaller history shows would be told for it.
	first := ""
	rapid.Check(t, func(rt *rapid.T) {
		h := Histories(*alone).Draw(rt, "history")
		o := happen(t, h)
		count++
		for what, times := range o.Seen {
			seen[what] += times
		}
		rule, _, _ := strings.Cut(o.Violation, ":")
		if rule == "" || first != "" && rule != first {
			return
		}
		if first == "" {
			t.Logf("after %d histories: %s\n%s\n\n%s", count, o.Violation, h, o.Timeline) // it may not show again
		}
		first = rule
		rt.Logf("%s\n%s\n\n%s", o.Violation, h, o.Timeline)
		rt.Fatal(rule)
	})
	t.Logf("%d histories, %.0f simulated hours per second: %v", count, float64(count)*duration.Hours()/time.Since(begin).Seconds(), seen)
}
