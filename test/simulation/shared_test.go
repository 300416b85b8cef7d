// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// TestKnownShared lets histories happen in which two zones use the same places (P20). The first two machines are those of one zone.
func TestKnownShared(t *testing.T) {
	const kept = "not kept > " + rules.FailedPreserved
	shared := func(share int, events ...Event) History {
		return History{Replicas: 4, Share: share, Timeout: 4 * time.Hour, Shared: true, Events: events}
	}
	runKnown(t, map[string]known{
		"P20: all places are used in one zone": {shared(2,
			Event{20 * time.Minute, Break{0, Dead}},
			Event{20 * time.Minute, Break{1, Dead}},
		), seen{kept: 2}},
		"P20: machines of both zones fail at the same time": {shared(1,
			Event{20 * time.Minute, Break{0, Dead}},
			Event{20 * time.Minute, Break{2, Dead}},
		), seen{kept: 1}},
		"P20: two sidecars lead when machines of both zones fail": {shared(1,
			Event{16 * time.Minute, Rival{time.Hour}},
			Event{20 * time.Minute, Break{0, Dead}},
			Event{20 * time.Minute, Break{2, Dead}},
		), seen{kept: 1}},
		"X6: two sidecars lead when a machine is to be power-cycled": {shared(1,
			Event{20 * time.Minute, Break{0, Dead}},
			Event{29 * time.Minute, Rival{30 * time.Minute}},
			Event{30*time.Minute + 50*time.Second, PowerCycle{Machine: 0}},
		), seen{"cycle PoweringOff > MakingNodeSafe": 1}},
		"P20: the sidecar is killed when it has granted a place": {shared(1,
			Event{20 * time.Minute, Break{0, Dead}},
			Event{20*time.Minute + 15*time.Second, Break{2, Dead}},
			Event{21 * time.Minute, FailWrite{sidecarName, WriteFault{Applied: true, Kill: true}}},
		), seen{kept: 1}},
		// Of those that ask for the place, the second machine would be the first, because it is due sooner.
		"P20: a place that is granted is written late": {shared(1,
			Event{20*time.Minute - 10*time.Second, Break{2, Dead}},
			Event{20 * time.Minute, Break{0, Dead}},
			Event{25 * time.Minute, Ask{2, true, "false", 0}},
			Event{29 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 1, Late: 20 * time.Second}}},
			Event{30*time.Minute + 5*time.Second, Ask{2, true, "", 0}},
		), seen{kept: 1}},
		"T9 P20: the places become none while a person keeps what has one": {shared(1,
			Event{20 * time.Minute, Ask{0, true, "now", time.Hour}},
			Event{30 * time.Minute, Break{0, Dead}},
			Event{time.Hour, Share{0}},
		), seen{"Failed:Preserved > not kept": 1}},
		"P20: a machine waits until one of another zone gives its place back": {shared(1,
			Event{20 * time.Minute, Break{0, Dead}},
			Event{time.Hour, Ask{2, true, "when-failed", 0}},
			Event{2 * time.Hour, Break{0, Healthy}},
			Event{2*time.Hour + 5*time.Minute, Break{3, Dead}},
		), seen{kept: 2}},
	})
}
