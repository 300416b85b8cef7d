// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"
)

// TestKnownWork is TestKnown for machines that somebody works on.
func TestKnownWork(t *testing.T) {
	for name, test := range map[string]struct {
		history History
		seen    map[string]int
	}{
		// Nothing but the maintenance keeps it: there is no share.
		"M12: a node is off for longer than the health timeout": {History{Replicas: 3, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: time.Hour, Off: 30 * time.Minute}},
		}}, map[string]int{"Unknown:Preserved > Failed:Preserved": 1, "maintenance WaitForPodCompletion > Draining": 1, "terminated": 0}},
		// The second waits for the first, which nobody ends, and is the first again once its node is given back.
		"M9, M10: a maintenance is forgotten, and another one waits": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 10 * time.Minute, Forgets: true}},
			{21 * time.Minute, Maintain{Machine: 1, For: 10 * time.Minute}},
			{22 * time.Minute, Lay{sidecarName, Ambush{Skip: 1, Kill: true, Applied: true, After: time.Minute}}},
		}}, map[string]int{"maintenance Pending > Scheduled": 2, "maintenance Draining > Ready": 2, "terminated": 0}},
		"M7: the sidecar is killed while it gives the node back": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 10 * time.Minute}},
			{25 * time.Minute, Lay{sidecarName, Ambush{Kill: true, Applied: true, After: 10 * time.Minute}}},
		}}, map[string]int{"maintenance Draining > Ready": 1, "terminated": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			o := happen(t, test.history)
			if o.Violation != "" {
				t.Errorf("%s\n%s\n\n%s", o.Violation, test.history, o.Timeline)
			}
			for what, times := range test.seen {
				if o.Seen[what] != times {
					t.Errorf("%q was seen %d times, expected %d: %v", what, o.Seen[what], times, o.Seen)
				}
			}
		})
	}
}
