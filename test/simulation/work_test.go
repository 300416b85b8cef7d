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
	runKnown(t, map[string]known{
		// Nothing but the maintenance keeps it: there is no share.
		"M12: a node is off for longer than the health timeout": {History{Replicas: 3, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: time.Hour, Off: 30 * time.Minute}},
		}}, seen{"Unknown:Preserved > Failed:Preserved": 1, "maintenance WaitForPodCompletion > Draining": 1, "terminated": 0}},
		// The second waits for the first, which nobody ends, and is the first again once its node is given back.
		"M9, M10: a maintenance is forgotten, and another one waits": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 10 * time.Minute, Forgets: true}},
			{21 * time.Minute, Maintain{Machine: 1, For: 10 * time.Minute}},
			{22 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 1, Kill: true, Applied: true, Downtime: time.Minute}}},
		}}, seen{"maintenance Pending > Scheduled": 2, "maintenance Draining > Ready": 2, "terminated": 0}},
		"M7: the sidecar is killed while it gives the node back": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 10 * time.Minute}},
			{25 * time.Minute, FailWrite{sidecarName, WriteFault{Kill: true, Applied: true, Downtime: 10 * time.Minute}}},
		}}, seen{"maintenance Draining > Ready": 1, "terminated": 0}},
		"M11: a pool has been updated, and the status of its old MachineSet stays wrong": {History{Replicas: 3, Share: 2, Timeout: time.Hour, Events: []Event{
			{23 * time.Minute, Maintain{Machine: 0, For: 5 * time.Minute, Off: 20 * time.Minute}},
			{23*time.Minute + time.Second, Scale{2}},
			{45 * time.Minute, Break{3, Dead}},
			{46 * time.Minute, Roll{}},
			{49 * time.Minute, Maintain{Machine: 2, For: 228 * time.Minute, Exempt: true}},
			{56 * time.Minute, Vanish{1}},
		}}, seen{"maintenance  > Pending": 2, "entry of a failure": 1}},
		"X16: a healthy machine is to be power-cycled long after the sidecar was killed, and nothing happened in between": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Restart{sidecarName, time.Minute}},
			{time.Hour, PowerCycle{Machine: 0}},
		}}, seen{"cycle Starting > Succeeded": 1, "terminated": 0}},
		"X1: a machine is power-cycled, and its host takes its time": {History{Replicas: 3, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{21 * time.Minute, Stubborn{0, 4 * time.Minute}},
			{21 * time.Minute, PowerCycle{Machine: 0}},
		}}, seen{"host is off": 1, "node is out of service": 1, "cycle Starting > Succeeded": 1, "terminated": 0}},
		"X2: the machine goes while its host is off": {History{Replicas: 3, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Stubborn{0, 20 * time.Minute}},
			{20 * time.Minute, PowerCycle{Machine: 0}},
			{25 * time.Minute, Delete{0}},
		}}, seen{"host is asked to be off": 1, "host is off": 0, "terminated": 1}},
		"D13: a node begins to be drained as the shoot comes back": {History{Replicas: 2, Share: 1, Timeout: time.Hour, ShowsDrains: true, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 1, For: 8 * time.Minute}},
			{20*time.Minute + 50*time.Second, ShootOutage{31 * time.Minute}},
			{21*time.Minute + 40*time.Second, Break{1, Dead}},
		}}, seen{"maintenance WaitForPodCompletion > Draining": 1}},
		"M3, D13: a node is requested while the sidecar does not see the shoot, and another sidecar begins with it": {History{Replicas: 2, Share: 1, Timeout: time.Hour, ShowsDrains: true, Events: []Event{
			{16*time.Minute + 2*time.Second, Stick{Machine: 1, Finalizer: true, For: 150 * time.Minute}},
			{25*time.Minute + 48*time.Second, ShootOutage{time.Hour}},
			{42*time.Minute + 48*time.Second, Break{1, Dead}},
			{43*time.Minute + 48*time.Second, Maintain{Machine: 1, For: 5 * time.Minute}},
			{49*time.Minute + 48*time.Second, Rival{6 * time.Minute}},
		}}, seen{"maintenance WaitForPodCompletion > Draining": 1}},
		"M16: the next maintenance of a failed node is scheduled as the one before it ends": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, PrefersNew: true, ShowsDrains: true, Events: []Event{
			{15*time.Minute + 9*time.Second, Break{0, Dead}},
			{4*time.Hour + 7*time.Minute + 9*time.Second, Maintain{Machine: 1, For: 11 * time.Minute, Off: 20 * time.Minute, Again: 2 * time.Hour}},
			{4*time.Hour + 9*time.Minute + 32*time.Second, FailWrite{machineControllerName, WriteFault{Skip: 4, Kill: true, Downtime: 11 * time.Minute}}},
		}}, seen{"maintenance Pending > Scheduled": 2}},
		"P7: a power cycle is wanted and withdrawn while the node of the machine cannot be reached": {History{Replicas: 1, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{15*time.Minute + 48*time.Second, Break{0, Dead}},
			{30*time.Minute + 48*time.Second, ShootOutage{44 * time.Minute}},
			{30*time.Minute + 54*time.Second, PowerCycle{Machine: 0, Withdraws: 30 * time.Second}},
		}}, seen{"cycle  > Waiting": 1, "pod ended by sidecar": some}},
		"P6: an operator ends what a power cycle preserves": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Stubborn{0, 8 * time.Minute}},
			{time.Hour, PowerCycle{Machine: 0}},
			{time.Hour + 31*time.Second, Edit{0, 7 * time.Minute}},
		}}, seen{"host is asked to be off": 1, "terminated": 1}},
		"X8: two are asked for, and the sidecar is killed": {History{Replicas: 4, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, PowerCycle{Machine: 0}},
			{20 * time.Minute, PowerCycle{Machine: 1, OnNode: true}},
			{20 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 8, Kill: true, Applied: true, Downtime: time.Minute}}},
		}}, seen{"host is off": 2, "cycle Starting > Succeeded": 2, "terminated": 0}},
	})
}
