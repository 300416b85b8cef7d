// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// groups makes groups of machines in any state that objects can be in, also in those that no history leads to.
func groups(now time.Time) *rapid.Generator[Group] {
	pick := func(t *rapid.T, name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	seldom := func(t *rapid.T, name string) bool { return rapid.IntRange(0, 9).Draw(t, name) == 9 } // small ones are drawn more often
	in := func(t *rapid.T, name string, seconds ...int) time.Time {
		return now.Add(time.Duration(rapid.SampledFrom(seconds).Draw(t, name)) * time.Second)
	}
	around := func(t *rapid.T, name string) time.Time {
		return in(t, name, -660, -600, -590, -60, 0, 30, 600, 3600, 1e6)
	}
	ahead := func(t *rapid.T, name string) time.Time { return in(t, name, 3600, 7200, 1e6, 30, 0, -60) }
	member := func(t *rapid.T, name string) facts.Member {
		phase := machinev1alpha1.MachinePhase(pick(t, "phase", "", "Pending", "CrashLoopBackOff", "Running", "Unknown", "Unknown", "Failed", "Rebooting"))
		options := []MachineOption{Created(around(t, "created")), Phase(phase, around(t, "since"))}
		if rapid.Bool().Draw(t, "kept") {
			options = append(options, Preserved(pick(t, "sub-phase", "", "Running:Preserved", "Unknown:Preserved", "Failed:Preserved"),
				pick(t, "cause", Causes()...), ahead(t, "expiry").Truncate(time.Second)))
			if claims := pick(t, "claims", "", "auto=%s,maintenance=%s", "auto=%s,remediation=%s", "maintenance=%s,when-failed=%s", "now=%s,remediation=%s", "auto=%s,validation=%s", "now=%s,validation=%s", "maintenance=%s,validation=%s", "remediation=%s,validation=%s"); claims != "" {
				options = append(options, Annotation(NoteClaims, fmt.Sprintf(claims, stamp(ahead(t, "first")), stamp(ahead(t, "second")))))
			} else if rapid.Bool().Draw(t, "about to fail") {
				claims := "now=" + stamp(ahead(t, "asked")) + ",auto?=" + stamp(ahead(t, "tentative"))
				options = append(options, Annotation(NoteClaims, claims), Annotation(NoteFailsAt, stamp(around(t, "fails"))), Annotation(v1alpha1.AnnotationPhase, "Unknown:Preserved"))
			}
		}
		for _, key := range []string{NoteFailsAt, NoteReleased, NotePreservedSince, NoteMaintainedSince, NoteRemediatedUntil, NoteExpiryInStatus, NoteSpentRequest, NoteShare, NoteSetAside,
			v1alpha1.AnnotationRemediation, v1alpha1.AnnotationPreserve, v1alpha1.AnnotationTimeout} {
			if !rapid.Bool().Draw(t, "with "+key) {
				continue
			}
			value := map[string]string{
				NoteExpiryInStatus: "machine-" + name, NoteShare: "1",
				NoteSetAside:                pick(t, "set aside", "Node:when-failed", "Node:false", "Machine:", "Machine:false"),
				v1alpha1.AnnotationPreserve: pick(t, "request", "now", "when-failed", "false", "", "soon", "auto-preserved"),
				v1alpha1.AnnotationTimeout:  pick(t, "own", "1h", "9s", "soon"),
				NoteSpentRequest:            "now",
			}[key]
			if value == "" && key != v1alpha1.AnnotationPreserve {
				value = around(t, key).Format(time.RFC3339)
			}
			options = append(options, Annotation(key, value))
		}
		if rapid.Bool().Draw(t, "native") {
			options = append(options, Native(around(t, "native expiry")))
		}
		if seldom(t, "vetoed") {
			options = append(options, Annotation(v1alpha1.AnnotationForbidden, "true"))
		}
		if seldom(t, "deleted") {
			options = append(options, Deleted(now))
		}
		m := facts.Member{Machine: Machine(name, options...)}
		switch pick(t, "node", "ready", "ready", "not ready", "none", "unknown") {
		case "ready":
			m.Node = Node(name)
		case "not ready":
			m.Node = Node(name, NotReady)
		case "unknown":
			m.NodeUnknown = true
		}
		if m.Node == nil {
			return m
		}
		for _, with := range [][]string{
			{v1alpha1.AnnotationPreserve, "now", "when-failed", "false", "", "soon", "auto-preserved"},
			{v1alpha1.AnnotationMaintenance, now.Add(-time.Hour).Format(time.RFC3339), "soon"},
			{v1alpha1.AnnotationScaleDownDisabled, "true"},
		} {
			if rapid.Bool().Draw(t, "node with "+with[0]) {
				NodeAnnotation(with[0], pick(t, "node's "+with[0], with[1:]...))(m.Node)
			}
		}
		if rapid.Bool().Draw(t, "tainted") {
			Taint(v1alpha1.TaintPreserved, around(t, "taint"))(m.Node)
		}
		if rapid.Bool().Draw(t, "reported") {
			m.Node.Status.Conditions = append(m.Node.Status.Conditions, corev1.NodeCondition{Type: "GPUHealthy", Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(around(t, "report"))})
		}
		return m
	}
	return rapid.Custom(func(t *rapid.T) Group {
		g := Group{
			Holder: rapid.SampledFrom([]Holder{HealthTimer{}, PreserveExpiry{}}).Draw(t, "holder"),
			Share:  rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(1)), new(int32(2))}).Draw(t, "share"), Timeout: time.Hour, MaxTimeout: 24 * time.Hour,
			Pool: facts.Pool{Replicas: rapid.Int32Range(0, 3).Draw(t, "replicas"), Rollout: seldom(t, "rollout")}, Timeouts: facts.DefaultTimeouts, NodeConditions: facts.DefaultNodeConditions,
			Maintenance: MaintenanceOptions{Enabled: rapid.Bool().Draw(t, "maintenances"), MaxHoldTime: 2 * time.Hour}, Remediation: RemediationOptions{Enabled: rapid.Bool().Draw(t, "remediations")},
		}
		if rapid.Bool().Draw(t, "validated") {
			g.Validation = &Validation{Condition: "GPUHealthy", Timeout: 15 * time.Minute}
		}
		g.Forbidden, g.PrefersNew = seldom(t, "forbidden"), rapid.Bool().Draw(t, "prefersNew")
		if seldom(t, "storm") {
			g.Storm = facts.Storm{Failing: 4, Machines: 9, Limit: 3, Next: now.Add(time.Minute)}
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "machines") {
			name := fmt.Sprintf("m%d", i)
			if rapid.Bool().Draw(t, "merely fails") { // several compete for a place
				g.Members = append(g.Members, facts.Member{Machine: Machine(name, Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute-time.Duration(i)*time.Second))), Node: Node(name, NotReady)})
				continue
			}
			g.Members = append(g.Members, member(t, name))
		}
		return g
	})
}

// claimed are until when a machine is kept, by why, but for what counts only if it fails.
func claimed(r *Record) map[string]time.Time {
	claims := map[string]time.Time{}
	for _, c := range r.Claims {
		if !c.Tentative {
			claims[c.Cause] = c.Expiry
		}
	}
	return claims
}

// TestOrder lets groups be decided on whose members come in another order: the decisions are the same.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := groups(Start).Draw(t, "group")
		reversed := g
		reversed.Members = slices.Clone(g.Members)
		slices.Reverse(reversed.Members)
		one, other := Decide(g, Start), Decide(reversed, Start)
		slices.Reverse(other)
		for i, d := range one {
			o := other[i]
			if d.Rule != o.Rule || d.Why != o.Why || d.Verdict != o.Verdict || d.ConsumeRequest != o.ConsumeRequest || !d.Next.Equal(o.Next) || !reflect.DeepEqual(d.Target, o.Target) {
				t.Fatalf("the decision on %s depends on the order of the machines:\n%+v\n%+v", d.Machine.Name, d, o)
			}
		}
	})
}

// TestRest carries decisions out until there is nothing more to be done at this time, which must come soon: whatever state the objects
// are in, nobody writes for ever (P8).
func TestRest(t *testing.T) {
	const most = 4
	rapid.Check(t, func(t *rapid.T) {
		g := groups(Start).Draw(t, "group")
		for range most {
			decisions, changed := round(g, Start)
			if changed {
				continue
			}
			for _, d := range decisions {
				if d.Verdict == Told {
					t.Errorf("P11: people are told again and again of %s: %s", d.Machine.Name, d.Rule)
				}
			}
			return
		}
		decisions, _ := round(g, Start)
		t.Fatalf("it does not come to rest in %d rounds: %+v", most, decisions)
	})
}

// often has a property looked at in as many groups as it takes for the rare ones, in less than a second.
func often(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	defer func(checks string) { _ = flag.Set("rapid.checks", checks) }(flag.Lookup("rapid.checks").Value.String())
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

// TestPromises looks for what holds of each decision, whatever the group.
func TestPromises(t *testing.T) {
	often(t, func(t *rapid.T) {
		g := groups(Start).Draw(t, "group")
		var used, begun int32
		for _, d := range Decide(g, Start) {
			deleted := d.Machine.DeletionTimestamp != nil
			if !reflect.DeepEqual(d.Current, ReadRecord(d.Machine)) {
				t.Errorf("the decision on %s changes what it is taken on", d.Machine.Name)
			}
			if d.Current.HasPlace(Start) && !deleted {
				used++
			} else if d.Target.HasPlace(Start) && !slices.ContainsFunc(d.Target.Claims, Claim.Personal) {
				begun++
			}
			if !d.Next.IsZero() && !d.Next.After(Start) {
				t.Errorf("P12: the next look at %s is at %s, which is past", d.Machine.Name, d.Next)
			}
			if d.Target == nil {
				continue
			}
			if g.Forbidden || d.Machine.Annotations[v1alpha1.AnnotationForbidden] == "true" || deleted || g.Replicas == 0 && d.Current == nil {
				t.Errorf("R6 T10 P4: %s is kept", d.Machine.Name)
			}
			if !d.Target.Expiry().After(Start) || d.Next.IsZero() || d.Next.After(d.Target.Expiry()) {
				t.Errorf("P10 P12: %s is kept until %s, with the next look at %s", d.Machine.Name, d.Target.Expiry(), d.Next)
			}
			// A machine for which somebody asks gets a place beside that, in a storm as well (T2).
			_, auto := claimed(d.Target)[v1alpha1.CauseAuto]
			asked := slices.ContainsFunc(d.Target.Claims, Claim.Personal)
			if auto && !asked && d.Current == nil && g.Storm.IsOn() && d.Machine.Status.CurrentStatus.PreserveExpiryTime == nil {
				t.Errorf("P16: %s is auto-preserved anew in a storm", d.Machine.Name)
			}
			if gated := slices.ContainsFunc(d.Target.Claims, func(c Claim) bool { return c.Cause == v1alpha1.CauseValidation }); gated && d.Current == nil {
				t.Errorf("V1: %s is preserved for nothing but a validation", d.Machine.Name)
			}
			if d.Target.Provisional && d.Target.FailsAt.IsZero() {
				t.Errorf("H4: %s is held for a deadline, and has none", d.Machine.Name)
			}
		}
		if g.Share != nil && used+begun > max(*g.Share, used) {
			t.Errorf("P1: %d places are taken within a share of %d of which %d are used", begun, *g.Share, used)
		}
	})
}

// TestWrites looks for what holds of the writes that carry a decision out, whatever the group.
func TestWrites(t *testing.T) {
	often(t, func(t *rapid.T) {
		g := groups(Start).Draw(t, "group")
		for i, d := range Decide(g, Start) {
			m, steps := g.Members[i], Steps(g.Holder, d, g.Timeouts, Start)
			if steps == nil {
				continue
			}
			records, holds := 0, d.Target != nil
			for _, write := range steps {
				if node, ok := write.Before.(*corev1.Node); ok && node == nil {
					t.Errorf("P9: a step on the node of %s, which has none", d.Machine.Name)
				}
				before := m
				Make(write, &m)
				if !equal(before.Machine.ObjectMeta, m.Machine.ObjectMeta) && write.Status || !equal(before.Machine.Status, m.Machine.Status) && !write.Status {
					t.Errorf("what is written of %s is lost: it is in its status, or not", d.Machine.Name)
				}
				if d.Target != nil && before.Machine.Status.CurrentStatus.Phase != m.Machine.Status.CurrentStatus.Phase && !write.Lock {
					t.Errorf("H3: the phase of %s is replaced, whatever it is by then", d.Machine.Name)
				}
				if m.Node != nil && (len(before.Node.Spec.Taints) != len(m.Node.Spec.Taints) || before.Node.Annotations[v1alpha1.AnnotationPreserve] != m.Node.Annotations[v1alpha1.AnnotationPreserve]) && !write.Lock {
					t.Errorf("P5: what somebody else has made of the taints or the request of %s meanwhile is lost", d.Machine.Name)
				}
				machine, isMachine := write.Before.(*machinev1alpha1.Machine)
				ends := isMachine && d.Target == nil
				changesTimer := before.Machine.Status.CurrentStatus.LastUpdateTime != m.Machine.Status.CurrentStatus.LastUpdateTime
				if ends && changesTimer && !write.LockEdits || write.LockEdits && !ends {
					t.Errorf("P6: what an operator does about %s meanwhile is lost, or what machine-controller-manager does is not seen", d.Machine.Name)
				}
				calledOff := d.Current != nil && d.Current.Provisional && d.Machine.DeletionTimestamp == nil
				// Where the node is to go with its machine, machine-controller-manager begins the timer anew as long as it sees now there: the
				// record goes only once the timer is put back (T8).
				_, timed := g.Holder.(HealthTimer)
				restarts := timed && ReadNotes(m.Machine).NodeUncleaned && d.Request.OnNode && d.Request.Value == v1alpha1.RequestNow
				if ends && write.Record && (write.Lock != (calledOff || restarts) || write.LockEdits == calledOff) {
					t.Errorf("H4 T10: what machine-controller-manager does to %s meanwhile hinders its end, or is not seen", d.Machine.Name)
				}
				if isMachine && !write.Status && (write.Lock || write.LockEdits) == (d.Confirm && write.Record && d.Target != nil) {
					t.Errorf("what somebody else has written on %s meanwhile is lost, or hinders a hold that was read live", machine.Name)
				}
				if d.Target != nil && !write.Hold && !write.AfterAll && (write.Record || isMachine && write.Status) {
					t.Errorf("P8: the hold of %s is made late", d.Machine.Name)
				}
				if d.Target != nil && !write.Hold && !write.AfterAll && ReadNotes(before.Machine).SetAside != ReadNotes(m.Machine).SetAside {
					t.Errorf("P8: what was set aside of %s is forgotten before it is put back", d.Machine.Name)
				}
				if _, native := g.Holder.(PreserveExpiry); native && isMachine && d.Target == nil && !write.AfterAll {
					t.Errorf("P8: the hold of %s ends before its node is cleaned", d.Machine.Name)
				}
				if write.Hold && !holds {
					t.Errorf("P8: part of the hold of %s comes late", d.Machine.Name)
				}
				if holds = write.Hold; write.Record {
					records++
					if (d.Target == nil) != (write.AfterAll && ReadRecord(m.Machine) == nil) {
						t.Errorf("P8: the record of %s is not cleared last", d.Machine.Name)
					}
				}
				read := ReadRecord(m.Machine)
				if d.Target != nil && records > 0 && !reflect.DeepEqual([]any{read.Claims, read.Failed, read.FailsAt, read.Provisional}, []any{d.Target.Claims, d.Target.Failed, d.Target.FailsAt, d.Target.Provisional}) {
					t.Errorf("P8: what is written of %s is read as %+v instead of %+v", d.Machine.Name, read, d.Target)
				}
			}
			if records != 1 {
				t.Errorf("P11: people are told %d times of %s", records, d.Machine.Name)
			}
			if d.Target == nil {
				if m.Node != nil && conditionTrue(m.Node) {
					t.Errorf("P11: the node of %s shows what has ended", d.Machine.Name)
				}
				continue
			}
			if m.Node == nil || d.Target.Provisional {
				continue
			}
			if _, tainted := TaintedSince(m.Node); tainted != d.Taints() || m.Node.Annotations[v1alpha1.AnnotationScaleDownDisabled] != "true" {
				t.Errorf("P5 P7: the node of %s is not protected, or it is %t that it is tainted", d.Machine.Name, tainted)
			}
		}
	})
}
