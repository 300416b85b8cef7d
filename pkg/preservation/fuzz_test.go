// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// FuzzRequestOf has anything written on a Node and its Machine (R1, R2, R3, R5).
func FuzzRequestOf(f *testing.F) {
	f.Add(true, false, "now", "36h", "when-failed", "9s", "", "")
	f.Add(true, false, "true", "2562047h47m16.854775807s", "auto-preserved", "-1h", "now", "Node:when-failed")
	f.Add(true, false, "auto-preserved", "1e9h", "", "", "false", "Machine:")
	f.Add(false, true, "", "", "nwo", "10s", "invalid", "Node:")
	f.Add(false, false, "", "", "false", "336h0m0.000000001s", "", "Machine:now")

	f.Fuzz(func(t *testing.T, onNode, nodeUnknown bool, nodeValue, nodeTimeout, machineValue, machineTimeout, synced, aside string) {
		const longest = 336 * time.Hour
		m := facts.Member{NodeUnknown: nodeUnknown, Machine: Machine("m", Annotation(preserve, machineValue), Annotation(timeout, machineTimeout),
			Annotation(lastApplied, synced), Annotation(prefix+"request", aside))}
		if onNode {
			m.Node = Node("m", NodeAnnotation(preserve, nodeValue), NodeAnnotation(timeout, nodeTimeout))
		}
		request := RequestOf(m, longest)
		switch {
		case !slices.Contains([]string{"", "now", "when-failed", "false"}, request.Value):
			t.Errorf("R1: %q is a valid request", request.Value)
		case request.Value != "" && request.Invalid != "":
			t.Errorf("R3: a request is both %q and invalid %q", request.Value, request.Invalid)
		case request.Timeout != 0 && (request.Timeout < 10*time.Second || request.Timeout > longest || request.InvalidTimeout != ""):
			t.Errorf("R5: %s is a valid timeout", request.Timeout)
		case onNode != request.OnNode && !nodeUnknown:
			t.Errorf("R2: the request of the node does not beat the machine's")
		}
	})
}

// written are the values that may be written into the annotations of a Machine: of a Node's text nothing but a valid
// request is among them (P14).
var written = regexp.MustCompile(`^(|now|true|when-failed|false|invalid|auto|maintenance|remediation|validation|machine-m|[0-9]{1,2}|(Node|Machine):(|true|when-failed|false)|` +
	`(Running|Failed|Unknown|Pending|CrashLoopBackOff|InPlaceUpdateFailed):Preserved|` + aTime + `(/` + aTime + `)?|((auto[?]?|now|when-failed|maintenance|remediation|validation)=` + aTime + `,?)+)$`)

const aTime = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z`

var phases = []machinev1alpha1.MachinePhase{
	"", machinev1alpha1.MachinePending, machinev1alpha1.MachineRunning, machinev1alpha1.MachineUnknown, machinev1alpha1.MachineFailed,
	machinev1alpha1.MachineCrashLoopBackOff, machinev1alpha1.MachineInPlaceUpdateFailed,
}

// FuzzDecide takes a machine through some rounds whose node says anything.
func FuzzDecide(f *testing.F) {
	const running, unknown, failed = 2, 3, 4
	f.Add(false, uint8(running), false, uint32(60), "now", "36h", "true", "true", taintKey, "NoSchedule", "Ready", "False", "KubeletNotReady", "")
	f.Add(true, uint8(running), false, uint32(7*24*3600), "now", "2562047h", "false", "", "", "", "Preserved", "True", "Drained", "Machine preserved until Machine preserved until ")
	f.Add(true, uint8(failed), false, uint32(3600), "auto-preserved", "9s", "", "true", criticalComponents, "NoExecute", "Preserved", "False", "", "Preserved node drained successfully.")
	f.Add(false, uint8(unknown), true, uint32(12*3600), "<script>\x00", "soon", "no", "yes", taintKey, "", "InPlaceUpdate", "True", "SelectedForUpdate", "\xff")
	f.Add(true, uint8(unknown), false, uint32(300), "when-failed", "", "", "", "", "", "Ready", "Unknown", "", "2026-03-01T12:30:00Z")
	f.Add(false, uint8(running), false, uint32(7*24*3600), "", "", "", "", taintKey, "NoSchedule", "Ready", "Unknown", "", "9999-12-31T23:59:59Z")
	f.Add(false, uint8(unknown), true, uint32(600), "false", "", "", "", "", "", "KernelDeadlock", "Maybe", "", "")

	f.Fuzz(func(t *testing.T, newMCM bool, phase uint8, rollout bool, seconds uint32,
		request, own, disabledValue, byMCMValue, taint, effect, conditionType, conditionStatus, reason, message string) {
		var (
			now = Start.Add(time.Hour)
			g   = Group{
				Holder:         HealthTimer{},
				Share:          new(int32(1)),
				Timeout:        72 * time.Hour,
				MaxTimeout:     336 * time.Hour,
				Pool:           facts.Pool{Replicas: 1, Rollout: rollout, InPlace: rollout},
				Timeouts:       facts.DefaultTimeouts,
				NodeConditions: facts.DefaultNodeConditions,
				Members: []facts.Member{{
					Machine: Machine("m", Phase(phases[int(phase)%len(phases)], now.Add(-10*time.Minute))),
					Node: Node("m", NodeAnnotation(preserve, request), NodeAnnotation(timeout, own),
						NodeAnnotation(disabled, disabledValue), NodeAnnotation(byMCM, byMCMValue),
						Condition(corev1.NodeConditionType(conditionType), corev1.ConditionStatus(conditionStatus), reason, message)),
				}},
			}
		)
		if newMCM {
			g.Holder = PreserveExpiry{}
		}
		m := &g.Members[0]
		if message != "" {
			g.Maintenance = MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour}
			m.Node.Annotations[maintenance] = message
		}
		m.Node.Spec.Taints = []corev1.Taint{{Key: taint, Effect: corev1.TaintEffect(effect)}}
		for range 4 {
			for rounds := 0; ; rounds++ {
				decisions, changed := round(g, now)
				checkBounded(t, g, decisions[0], now, len(message))
				if !changed {
					break
				}
				if rounds == 5 {
					t.Fatalf("it does not come to rest at %s", now)
				}
			}
			now = now.Add(time.Duration(seconds%(30*24*3600)) * time.Second)
		}
	})
}

// checkBounded says that what was written neither is a node's text nor grows with it, and that it ends in time (P13, P14).
func checkBounded(t *testing.T, g Group, d Decision, now time.Time, length int) {
	t.Helper()
	m := g.Members[0]
	for key, value := range Noted(m.Machine) {
		if !written.MatchString(value) {
			t.Errorf("P14: annotation %s of the machine is %q", key, value)
		}
	}
	if c := PreservedCondition(m.Node); c != nil && len(c.Message) > length+len("Machine preserved until 2026-03-01T12:00:00Z (cause maintenance, reason UnderMaintenance).") {
		t.Errorf("P14: the message of the condition grows to %q", c.Message)
	}
	if steps := Steps(g.Holder, d, g.Timeouts, now); len(steps) > 8 || !d.Why.IsZero() && ReasonOf(d.Why.ID) != d.Why {
		t.Errorf("P14: %d steps for the reason %q", len(steps), d.Why)
	}
	if !d.Why.IsZero() && d.Why.Rule+d.Rule == "" || d.Verdict != Untold && d.Why.IsZero() {
		t.Errorf("no rule is known for the reason %q", d.Why)
	}
	if record := ReadRecord(m.Machine); record != nil && !record.Since.IsZero() && record.Expiry().After(record.Since.Add(g.MaxTimeout)) {
		t.Errorf("P13: the machine is kept until %s, since %s", record.Expiry(), record.Since)
	}
}
