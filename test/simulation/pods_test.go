// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"
)

// TestKnownDrains lets histories happen in which nodes with pods are drained, and something is in the way.
func TestKnownDrains(t *testing.T) {
	for name, test := range map[string]struct {
		history History
		seen    []string // what must have happened, or the history shows nothing
	}{
		"P7: a budget allows nothing on a node that answers": {History{Replicas: 3, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
		}}, []string{"pod evicted by sidecar", "pod ended by sidecar"}},
		// There is no other node: those stay that the budget keeps.
		"P7: the sidecar is killed in the middle of a drain": {History{Replicas: 1, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Deadlocked}},
			{2 * time.Hour, Restart{sidecarName, 20 * time.Minute}},
		}}, []string{"pod evicted by sidecar", "pod ended by sidecar"}},
		"P7: pods of a dead node are deleted by force": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
		}}, []string{"pod ended by sidecar"}},
		"D10: a pod with a volume is kept on a dead node, and goes with it": {History{Replicas: 1, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
		}}, []string{"pod evicted by sidecar", "pod ended by sidecar", "pod ended by machine-controller"}},
		"D1: a node is healthy again while it is drained": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
			{time.Hour, Break{0, Healthy}},
		}}, []string{"pod evicted by sidecar", "Failed:Preserved > Running:Preserved"}},
		"D5: pods have a finalizer": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{19 * time.Minute, Stick{0, true, 4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
		}}, []string{"pod evicted by sidecar", "pod ended by user"}},
		"D1: machines are replaced while a budget allows nothing": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{30 * time.Minute}},
			{20 * time.Minute, Roll{}},
		}}, []string{"pod evicted by machine-controller"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := happen(t, test.history)
			if o.Violation != "" {
				t.Errorf("%s\n%s\n\n%s", o.Violation, test.history, o.Timeline)
				return
			}
			for _, what := range test.seen {
				if o.Seen[what] == 0 {
					t.Errorf("%q has not happened: %v", what, o.Seen)
				}
			}
		})
	}
}
