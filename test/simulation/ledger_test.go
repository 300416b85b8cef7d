// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"
)

// TestKnownFailures lets histories happen that a ledger of failures gets wrong if it forgets something.
func TestKnownFailures(t *testing.T) {
	const entries = "entry of a failure"
	// One of the two machines is kept, the other one replaced, ten minutes and a half after they have died.
	die := func(events ...Event) History {
		return History{Replicas: 3, Share: 1, Timeout: time.Hour, Events: append([]Event{
			{20 * time.Minute, Break{0, Dead}}, {20 * time.Minute, Break{1, Dead}},
		}, events...)}
	}
	runKnown(t, map[string]known{
		"nothing but that": {die(), seen{entries: 2}},
		// What is open is completed by the next one.
		"the sidecar is killed when the entries are written": {die(Event{31 * time.Minute, Restart{sidecarName, 3 * time.Hour}}), seen{entries: 2}},
		// The one that is not kept is being deleted when it is seen again.
		"the sidecar is killed before the deadline": {die(Event{30*time.Minute + 15*time.Second, Restart{sidecarName, 30 * time.Second}}), seen{entries: 2}},
		"the sidecar is killed when it holds a machine, which is healthy again when it is back": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{30*time.Minute + 31*time.Second + 20*time.Millisecond, Restart{sidecarName, 12 * time.Minute}},
			{35 * time.Minute, Break{0, Healthy}},
		}}, seen{entries: 1, "Failed:Preserved > Running:Preserved": 1}},
		// The second sidecar knows less of why the machine goes. Both see it go at the same moment.
		"a second sidecar leads when a machine was let go of": {History{Replicas: 2, Share: 2, Timeout: 4 * time.Hour, Events: []Event{
			{17 * time.Minute, Break{0, Dead}},
			{33 * time.Minute, Roll{}},
			{33 * time.Minute, Rival{12 * time.Minute}},
		}}, seen{entries: 1}},
		"the shoot is away at the deadline": {die(Event{30 * time.Minute, Outage{sidecarName, "shoot", 20 * time.Minute, false}}), seen{entries: 2}},
	})
}
