// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// TestKnownStorms is TestKnown for many machines that fail at the same time.
func TestKnownStorms(t *testing.T) {
	const kept, cycled = "not kept > " + rules.FailedPreserved, "automatic cycle"
	storm := facts.StormLimits{MaxFailing: 1, SettlingTime: 5 * time.Minute}
	runKnown(t, map[string]known{
		// One of them is replaced before they are back.
		"P16: a zone is away for longer than the health timeout": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{3, 0, 11 * time.Minute}},
		}}, seen{kept: 0, "terminated": 1, "storm": some}},
		// The second one is replaced as well, and the third is alone then.
		"P16: a zone is away for so long that few are left": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{3, 0, 20 * time.Minute}},
		}}, seen{kept: 1, "terminated": 2, "storm": some}},
		"P16: a zone is away, and nobody counts": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, ZoneOutage{3, 0, 11 * time.Minute}},
		}}, seen{kept: 1, "storm": 0}},
		"P16: a machine does not come back with its zone": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{3, 1, 4 * time.Minute}},
		}}, seen{kept: 1, "terminated": 1, "storm": some}},
		// The others are back, and have yet to settle.
		"P16: a machine fails when its zone has just come back": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{3, 1, 8 * time.Minute}},
		}}, seen{kept: 0, "terminated": 1, "storm": some}},
		// The first one is replaced while too many have failed, the other one is alone then.
		"P16: two machines do not come back with their zone": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{4, 2, 4 * time.Minute}},
		}}, seen{kept: 1, "terminated": 2, "storm": some}},
		// Only the condition of the node still says since when it is unhealthy: machine-controller-manager begins to count anew.
		"P16: the timers of machines are reset whose zone was away": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, ZoneOutage{2, 2, time.Hour}},
			{22 * time.Minute, Outage{Process: machineControllerName, Server: "seed", For: 32 * time.Minute}},
			{22 * time.Minute, Break{0, Deadlocked}},
		}}, seen{kept: 1, "storm": some}},
		"P16: machines fail one after the other": {History{Replicas: 4, Share: 3, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{40 * time.Minute, Break{1, Dead}},
			{60 * time.Minute, Break{2, Dead}},
		}}, seen{kept: 3, "terminated": 3, "storm": 0}},
		"P16: a person has asked for a machine whose zone goes away": {History{Replicas: 4, Share: 0, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{18 * time.Minute, Ask{0, true, "when-failed", 0}},
			{20 * time.Minute, ZoneOutage{3, 3, 14 * time.Minute}},
		}}, seen{kept: 1, "storm": some}},
		// Its node is ready: that too many are not is no reason (X8).
		"X21: a machine is to be power-cycled while others fail": {History{Replicas: 4, Share: 1, Timeout: 4 * time.Hour, Storm: storm, Events: []Event{
			{20 * time.Minute, Break{0, Deadlocked}},
			{29*time.Minute + 50*time.Second, Break{1, Deadlocked}},
			{29*time.Minute + 50*time.Second, Break{2, Deadlocked}},
			{33 * time.Minute, Automate{true}},
		}}, seen{cycled: 1, kept: 1, "storm": some}},
	})
}
