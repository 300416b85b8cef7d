// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// TestKnownUnseen lets machine-controller-manager see the shoot late when a person asks for a machine on its node.
func TestKnownUnseen(t *testing.T) {
	const (
		kept   = "not kept > " + rules.FailedPreserved
		failed = rules.FailedPreserved + " > not kept"
	)
	unseen := func(share int, at, by time.Duration, events ...Event) History {
		return History{Replicas: 2, Share: share, Timeout: 4 * time.Hour, Events: append([]Event{
			{20 * time.Minute, Break{0, Deadlocked}},
			{at, Lag{managerName, "shoot", by, 40 * time.Minute}},
			{at, Lag{machineControllerName, "shoot", by, 40 * time.Minute}},
		}, events...)}
	}
	runKnown(t, map[string]known{
		"P8: now is asked for, and the machine is kept": {unseen(1, 50*time.Minute, 5*time.Minute,
			Event{time.Hour, Ask{0, true, "now", time.Hour}},
		), seen{kept: 1, failed: 1, "terminated": 1}},
		"P8: when-failed is asked for, and the machine is kept": {unseen(1, 50*time.Minute, 5*time.Minute,
			Event{time.Hour, Ask{0, true, "when-failed", time.Hour}},
		), seen{kept: 1, failed: 1, "terminated": 1}},
		"P8, R1: true is asked for, and the machine is kept": {unseen(1, 50*time.Minute, 5*time.Minute,
			Event{time.Hour, Ask{0, true, "true", time.Hour}},
		), seen{kept: 1, failed: 1, "terminated": 1}},
		"P8: when-failed is asked for before the machine fails": {unseen(0, 25*time.Minute, 15*time.Minute,
			Event{26 * time.Minute, Ask{0, true, "when-failed", time.Hour}},
		), seen{kept: 1, failed: 1, "terminated": 1}},
		"P8: now is asked for right before the machine is about to fail": {unseen(0, 25*time.Minute, 15*time.Minute,
			Event{29*time.Minute + 25*time.Second, Ask{0, true, "now", time.Hour}},
		), seen{failed: 1, "terminated": 1}},
		"P8, R1: true is asked for when the machine is about to fail": {unseen(0, 25*time.Minute, 15*time.Minute,
			Event{29*time.Minute + 45*time.Second, Ask{0, true, "true", time.Hour}},
		), seen{failed: 1, "terminated": 1}},
		"P8, M12: when-failed is asked for while the node is maintained": {unseen(0, 25*time.Minute, 15*time.Minute,
			Event{18 * time.Minute, Maintain{Machine: 0, For: 25 * time.Minute}},
			Event{26 * time.Minute, Ask{0, true, "when-failed", time.Hour}},
		), seen{failed: 1, "terminated": 1}},
	})
}

// TestKnownRequests is TestKnown for what people and operators ask for, and forbid.
func TestKnownRequests(t *testing.T) {
	const (
		asked = "not kept > " + rules.RunningPreserved
		ended = rules.RunningPreserved + " > not kept"
		kept  = "not kept > " + rules.FailedPreserved
		let   = rules.FailedPreserved + " > not kept"
	)
	histories := map[string]known{
		// It is healthy again between the time at which it is held and the deadline.
		"H4: a machine has almost failed": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Blink{Break{0, Dead}, 10*time.Minute + 15*time.Second}},
		}}, seen{kept: 0, asked: 0, "terminated": 0}},
		"H4: a machine has almost failed while the sidecar cannot reach its node": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{15 * time.Minute, Outage{Process: sidecarName, Server: "shoot", For: 48 * time.Minute}},
			{20 * time.Minute, Blink{Break{0, Dead}, 10*time.Minute + 15*time.Second}},
		}}, seen{kept: 0, asked: 0, "terminated": 0}},
		"P11: a person asks for a machine at the very deadline that it is held for": {History{Replicas: 1, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{30*time.Minute + 31*time.Second, Ask{0, false, "now", 0}},
		}}, seen{kept: 1, "terminated": 1}},
		"P4: a pool is hibernated whose machines are kept": {History{Replicas: 3, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{25 * time.Minute, Ask{1, true, "now", 0}},
			{time.Hour, Hibernate{2 * time.Hour}},
		}}, seen{kept: 1, asked: 1, "terminated": 3}},
		"P6: an operator ends what is kept": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{2 * time.Hour, Edit{0, 10 * time.Minute}},
		}}, seen{kept: 1, "let go when an operator says": 1, "terminated": 1}},
		"P6: an operator prolongs what is kept": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Longest: 2 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{30 * time.Minute, Edit{0, 4 * time.Hour}},
		}}, seen{asked: 1, ended: 1, "let go when an operator says": 1, "terminated": 0}},
		"P6, V1: an operator brings the end forward, and the machine recovers before it": {History{Replicas: 1, Share: 1, Timeout: time.Hour, Longest: 3 * time.Hour, Proof: LateProof, Events: []Event{
			{15 * time.Minute, Break{0, Dead}},
			{26 * time.Minute, Edit{0, 7 * time.Minute}},
			{31 * time.Minute, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, ended: 1, "terminated": 0}},
		"P6, V3: an operator brings the end forward, and the machine is validated before it": {History{Replicas: 1, Share: 1, Timeout: 8 * time.Hour, Proof: PromptProof, Events: []Event{
			{15 * time.Minute, Break{0, Dead}},
			{30 * time.Minute, Edit{0, 2 * time.Hour}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, "let go when an operator says": 1, "terminated": 0}},
		"P6: an operator brings the end of a validation forward": {History{Replicas: 1, Share: 1, Timeout: time.Hour, Proof: NoProof, Events: []Event{
			{15 * time.Minute, Break{0, Dead}},
			{31 * time.Minute, Break{0, Healthy}},
			{34 * time.Minute, Edit{0, 15 * time.Minute}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, "let go when an operator says": 1, "terminated": 0}},
		"P6, P14: the end that an operator wants comes while the node cannot be written to": {History{Replicas: 1, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{15 * time.Minute, Break{0, Dead}},
			{time.Hour, Edit{0, time.Hour + 3*time.Minute + 17*time.Second}},
			{90 * time.Minute, Break{0, Healthy}},
			{110 * time.Minute, Deny{0, 44 * time.Minute}},
		}}, seen{kept: 1, ended: 1}},
		"P6: the timeout changes while a machine is kept": {History{Replicas: 3, Share: 2, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Timeout{time.Hour}},
			{2 * time.Hour, Break{1, Dead}},
		}}, seen{kept: 2, let: 2, "terminated": 2}},
		"P14: somebody forges what machine-controller-manager writes": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, forged, 0}},
			{30 * time.Minute, Break{0, Dead}},
		}}, seen{kept: 0, "terminated": 1}},
		"P15: a machine fails for a new reason": {History{Replicas: 4, Share: 2, Timeout: 8 * time.Hour, PrefersNew: true, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{1, Dead}},
			{2 * time.Hour, Break{2, Deadlocked}},
		}}, seen{kept: 3, let: 3, "terminated": 3}},
		"P15: a machine fails for a new reason, and the one that failed last of the others had recovered before": {History{Replicas: 4, Share: 2, Timeout: 8 * time.Hour, PrefersNew: true, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Blink{Break{1, Dead}, 20 * time.Minute}},
			{2 * time.Hour, Break{1, Dead}},
			{3 * time.Hour, Break{2, Deadlocked}},
		}}, seen{kept: 3, let: 3, "promised": 1, "terminated": 3}},
		"P15: a machine fails for a new reason, and people keep more than the share": {History{Replicas: 4, Share: 1, Timeout: 8 * time.Hour, PrefersNew: true, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{70 * time.Minute, Ask{2, true, "when-failed", 0}},
			{2 * time.Hour, Break{2, Dead}},
			{3 * time.Hour, Break{1, Deadlocked}},
		}}, seen{kept: 2, let: 2, "terminated": 3}},
		"P15: a machine fails for a new reason, and what is kept is the only one of its kind": {History{Replicas: 3, Share: 1, Timeout: 8 * time.Hour, PrefersNew: true, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{2 * time.Hour, Break{1, Deadlocked}},
		}}, seen{kept: 1, let: 1, "terminated": 2}},
		"P15: a machine fails for a new reason, and nobody prefers that": {History{Replicas: 4, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{1, Dead}},
			{2 * time.Hour, Break{2, Deadlocked}},
		}}, seen{kept: 2, let: 2, "terminated": 3}},
		"V1, V3: a machine recovers, and the proof is prompt": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Proof: PromptProof, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, "terminated": 0}},
		"V3: what was reported before the recovery is no proof": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Proof: PromptProof, Events: []Event{
			{20 * time.Minute, Break{0, Deadlocked}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, "terminated": 0}},
		"V3: a proof that comes and goes counts": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Proof: FlappingProof, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1}},
		"V4: the proof never comes": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Proof: NoProof, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{75 * time.Minute, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, ended: 1, "terminated": 0}},
		"V4: the proof never comes, and the machine is kept for longer": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Proof: NoProof, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{75 * time.Minute, Break{0, Healthy}},
		}}, seen{kept: 1, "validation begins": 1, "validation ends": 1, "terminated": 0}},
		"V5: a machine fails while nothing else keeps it": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Proof: NoProof, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{83 * time.Minute, Break{0, Healthy}},
			{89 * time.Minute, Break{0, Dead}},
		}}, seen{"validation begins": 1, "validation ends": 1, "terminated": 1}},
		"P18: the machine-hours are used up by what is kept": {History{Replicas: 3, Share: 1, Timeout: 8 * time.Hour, Hours: 4, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{50 * time.Minute, Ask{1, true, "now", 0}},
			{6 * time.Hour, Break{2, Dead}},
		}}, seen{kept: 1, asked: 1, let: 1, ended: 1, "machine-hours used up": 1}},
		"P18: the sidecar is killed before it has counted": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Hours: 3, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{30*time.Minute + 30*time.Second, FailWrite{sidecarName, WriteFault{Applied: true, Kill: true, Downtime: 20 * time.Minute}}},
		}}, seen{"machine-hours used up": 1}},
		"P18: a restart while the machine-hours are counted": {History{Replicas: 2, Share: 0, Timeout: 8 * time.Hour, Hours: 3, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{130 * time.Minute, Restart{sidecarName, 20 * time.Minute}},
		}}, seen{asked: 1, ended: 1, "machine-hours used up": 1}},
		"R2: the node withdraws what the machine asks for": {History{Replicas: 2, Share: 0, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, false, "now", 0}},
			{time.Hour, Ask{0, true, "false", 0}},
		}}, seen{asked: 1, ended: 1}},
		"R3: what is invalid asks for nothing": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, nonsense, 0}},
			{20 * time.Minute, Ask{1, false, nonsense, 0}},
			{time.Hour, Break{0, Dead}},
		}}, seen{asked: 0, kept: 0, "terminated": 1}},
		"R3: what is invalid withdraws nothing": {History{Replicas: 2, Share: 0, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{time.Hour, Ask{0, true, nonsense, 0}},
		}}, seen{asked: 1, ended: 1, "terminated": 0}},
		"R4: a machine is not to be kept any more": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Ask{0, true, "false", 0}},
		}}, seen{kept: 1, let: 1, "terminated": 1}},
		"R4: a machine is not to be kept, and fails": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, false, "false", 0}},
			{time.Hour, Break{0, Dead}},
		}}, seen{kept: 0, "terminated": 1}},
		"R4: the machine is not to be kept, and the node asks for it": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, false, "false", 0}},
			{30 * time.Minute, Ask{0, true, "now", 0}},
		}}, seen{asked: 1, ended: 1, "terminated": 0}},
		"R5: a request has a time of its own": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 3 * time.Hour}},
			{20 * time.Minute, Ask{1, false, "when-failed", 2 * time.Hour}},
			{30 * time.Minute, Break{1, Dead}},
		}}, seen{asked: 1, kept: 1, "terminated": 1}},
		"R5: a time is too short, and one too long": {History{Replicas: 2, Share: 0, Timeout: 4 * time.Hour, Longest: 6 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", shortest - time.Second}},
			{20 * time.Minute, Ask{1, false, "now", 7 * time.Hour}},
		}}, seen{asked: 2, ended: 2}},
		"R6: operators forbid to keep a machine": {History{Replicas: 3, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{20 * time.Minute, Ask{1, true, "now", 0}},
			{time.Hour, Forbid{Machine: 0}},
			{2 * time.Hour, Forbid{Machine: 0}}, // another one by now
			{2*time.Hour + 10*time.Minute, Ask{0, true, "now", 0}},
		}}, seen{kept: 1, let: 1}},
		"R6: operators forbid to keep any machine": {History{Replicas: 3, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{20 * time.Minute, Ask{1, true, "now", 0}},
			{time.Hour, Forbid{All: true}},
			{2 * time.Hour, Break{2, Dead}},
			{5 * time.Hour, Forbid{All: true, Not: true}},
		}}, seen{kept: 1, let: 1, asked: 1, ended: 1, "terminated": 2}},
		"T3: a request is withdrawn": {History{Replicas: 2, Share: 0, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{time.Hour, Ask{0, true, "", 0}},
		}}, seen{asked: 1, ended: 1, "terminated": 0}},
		"T3: what was asked for has its time": {History{Replicas: 2, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "now", 0}},
			{20 * time.Minute, Ask{1, false, "now", 0}},
		}}, seen{asked: 2, ended: 2, "terminated": 0}},
		"T4: a machine is to be kept when it fails": {History{Replicas: 3, Share: 0, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "when-failed", 0}},
			{20 * time.Minute, Ask{1, false, "when-failed", 0}},
			{2 * time.Hour, Break{0, Dead}},
			{2 * time.Hour, Break{1, NotReady}},
		}}, seen{kept: 2, let: 2, "terminated": 2}},
		"T6: nobody may keep a machine for which there is a place": {History{Replicas: 2, Share: 1, Timeout: time.Hour, Events: []Event{
			{20 * time.Minute, Ask{0, true, "false", 0}},
			{20 * time.Minute, Break{0, Dead}},
		}}, seen{kept: 0, "terminated": 1}},
		"T7: a machine is healthy again": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{rules.FailedPreserved + " > " + rules.RunningPreserved: 1, "terminated": 0}},
		"T9: the share is lowered": {History{Replicas: 4, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{16 * time.Minute, Delete{0}}, // so that they are not of the same age
			{45 * time.Minute, Break{0, Dead}},
			{45 * time.Minute, Break{3, Dead}},
			{2 * time.Hour, Share{1}},
		}}, seen{kept: 2, "let go by a lower share": 1}},
		"T9: the share is lowered, and a person has asked": {History{Replicas: 3, Share: 2, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{20 * time.Minute, Break{1, Dead}},
			{time.Hour, Ask{0, true, "now", 0}},
			{2 * time.Hour, Share{0}},
		}}, seen{kept: 2, "let go by a lower share": 1}},
		"T10: a machine is deleted that is kept": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{50 * time.Minute, Cling{0, 2 * time.Hour}},
			{time.Hour, Delete{0}},
		}}, seen{kept: 1, "terminated": 1}},
	}
	if !old {
		// machine-controller-manager begins by itself while the sidecar is not there.
		histories["P6: what was begun without us is taken over"] = known{History{Replicas: 2, Share: 0, Timeout: 2 * time.Hour, Events: []Event{
			{20 * time.Minute, Restart{sidecarName, 30 * time.Minute}},
			{25 * time.Minute, Ask{0, false, "now", 0}},
		}}, seen{"taken over": 1, "terminated": 0}}
	}
	runKnown(t, histories)
}
