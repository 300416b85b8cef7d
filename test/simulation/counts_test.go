// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// TestKnownTimes is TestKnown for how long machines are kept that fail, or are asked for, again and again.
func TestKnownTimes(t *testing.T) {
	const (
		kept   = "not kept > " + rules.RunningPreserved
		failed = "Unknown:Preserved > " + rules.FailedPreserved
	)
	runKnown(t, map[string]known{
		// Had nobody asked, it would be kept for four hours.
		"T2: a machine fails right before the end of what was asked for": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", time.Hour}},
			{65 * time.Minute, Break{0, Dead}},
		}}, seen{failed: 1, "promised": 1, "terminated": 1}},
		"T2: what was asked for is withdrawn when the machine has failed": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{30 * time.Minute, Break{0, Dead}},
			{2 * time.Hour, Ask{0, true, "", 0}},
		}}, seen{failed: 1, "promised": 1, "terminated": 1}},
		"T2: a machine fails again": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
			{4 * time.Hour, Break{0, Dead}},
		}}, seen{failed: 1, "promised": 1, "terminated": 1}},
		"T2, P1: a machine fails again, and one that is asked for takes the place at the same moment": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
			{90 * time.Minute, Break{0, Dead}},
			{2 * time.Hour, Break{0, Healthy}},
			{150 * time.Minute, Ask{1, true, "now", 0}},
			{151 * time.Minute, Break{0, Dead}},
			{151 * time.Minute, Break{1, Dead}},
		}}, seen{failed: 2, "promised": some, "terminated": 2}},
		// It is healthy again between the time at which it is held and the deadline.
		"H4: a machine has almost failed again": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
			{2 * time.Hour, Blink{Break{0, Dead}, 10*time.Minute + 15*time.Second}},
		}}, seen{"Unknown:Preserved > " + rules.RunningPreserved: some, failed: 0, "terminated": 0}},
		"P13: a machine is asked for long after it was kept": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{4 * time.Hour, Ask{0, true, "now", 0}},
		}}, seen{kept: 2, "terminated": 0}},
		// The last two times it is refused, and that is no quiet time.
		"P13: a machine is asked for again and again": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20 * time.Minute, Insist{Ask{0, true, "now", 0}, time.Hour + time.Minute, 3}},
			{3*time.Hour + 24*time.Minute, Insist{Ask{0, true, "now", 0}, 5 * time.Minute, 2}},
		}}, seen{kept: 3, "terminated": 0}},
		"P13: the end of what was asked for is written late": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20*time.Minute + 37*time.Second, Ask{0, true, "now", 30 * time.Minute}},
			{45 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 1, Late: 9 * time.Second}}},
		}}, seen{kept: 1, "terminated": 0}},
		"P13: what was asked for ends during a maintenance": {History{Replicas: 2, Share: 0, Timeout: 4 * time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{150 * time.Minute, Maintain{Machine: 0, For: 2 * time.Hour, Off: 2 * time.Hour, Exempt: true}},
		}}, seen{"maintenance Draining > Ready": 1, "terminated": 0}},
		"P13: what was asked for ends during a power cycle": {History{Replicas: 2, Share: 0, Timeout: 4 * time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{195 * time.Minute, Stubborn{0, 8 * time.Minute}},
			{195 * time.Minute, PowerCycle{Machine: 0}},
		}}, seen{"cycle Starting > Succeeded": 1, "terminated": 0}},
		"M12: a maintenance hours after another one": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 30 * time.Minute}},
			{5 * time.Hour, Maintain{Machine: 0, For: time.Hour, Off: 30 * time.Minute}},
		}}, seen{failed: 1, "maintenance Draining > Ready": 2, "terminated": 0}},
		"M12: a maintenance after the longest time for which a machine is kept": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Longest: 3 * time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: time.Hour, Off: 30 * time.Minute, Again: 8 * time.Hour}},
		}}, seen{failed: 2, "maintenance Draining > Ready": 2, "terminated": 0}},
		// machine-controller-manager >= 0.62 restarts its timer with what is asked for, and the machine is as healthy as before.
		"M12: a machine is asked for soon after a maintenance": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 30 * time.Minute}},
			{time.Hour, Ask{0, true, "now", 0}},
		}}, seen{kept: 2, "maintenance Draining > Ready": 1, "terminated": 0}},
		// Its node is dead, and the second one asks for it when the first was taken away.
		"M12: maintenances of a dead node follow each other": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, Off: 9 * time.Hour, Forgets: true, Again: 65 * time.Minute}},
		}}, seen{failed: 1, "maintenance Pending > Scheduled": 2, "terminated": 1}},
	})
}
