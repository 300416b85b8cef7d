// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// TestHistories lets anything happen to three machines, one of which nobody ever asks anything for, and then nothing more.
// Look further with -rapid.checks=100000 -rapid.seed=0, which takes a minute or two.
func TestHistories(t *testing.T) { rapid.Check(t, history) }

func history(t *rapid.T) {
	w := newWorld(t.Fatalf, "a", "b", "c")
	w.machines[2].bystander = true
	w.settings.MaxAttempts = rapid.Int32Range(1, 2).Draw(t, "attempts")
	w.settings.MaxConcurrent = rapid.Int32Range(1, 2).Draw(t, "concurrent")
	w.settings.Automatic = rapid.Bool().Draw(t, "automatic")
	w.AllowNodes = rapid.Bool().Draw(t, "nodes may ask")
	w.Others.All = rapid.IntRange(0, 5).Draw(t, "other nodes")
	for _, m := range w.machines {
		m.host.claim = rapid.Bool().Draw(t, "the host is a claim")
	}
	w.machines[0].annotate(needsKey, "")
	t.Repeat(map[string]func(*rapid.T){"something": func(t *rapid.T) { w.something(t) }})
	w.finale(t)
}

type event struct {
	name   string
	happen func(*world, *machine, *rapid.T)
}

// all are what may happen to a machine that somebody may ask for. What goes on by itself comes more often.
var all = []event{
	{"nothing", func(*world, *machine, *rapid.T) {}},
	{"machines are kept", func(w *world, _ *machine, _ *rapid.T) { w.engine() }},
	{"all is seen", func(w *world, _ *machine, _ *rapid.T) { w.sync() }},
	{"the host acts and reports", func(w *world, m *machine, _ *rapid.T) { m.host.act(); m.host.report(w.now) }},
	{"the host acts, reports, and is seen", func(w *world, m *machine, _ *rapid.T) { m.host.act(); m.host.report(w.now); w.sync() }},
	{"the host acts", func(_ *world, m *machine, _ *rapid.T) { m.host.act() }},
	{"the host reports", func(w *world, m *machine, _ *rapid.T) { m.host.report(w.now) }},
	{"the node boots", func(w *world, m *machine, _ *rapid.T) { w.boot(m) }},
	{"the node is given up", func(w *world, m *machine, _ *rapid.T) { m.setReady(false, w.now); m.contents.Pods = 0 }},
	{"seconds pass", func(w *world, _ *machine, t *rapid.T) { w.pass(time.Second, 50, t) }},
	{"seconds pass", func(w *world, _ *machine, t *rapid.T) { w.pass(time.Second, 50, t) }},
	{"minutes pass", func(w *world, _ *machine, t *rapid.T) { w.pass(time.Minute, 12, t) }},
	{"a crash", func(w *world, _ *machine, t *rapid.T) { w.writesLeft = rapid.IntRange(0, 3).Draw(t, "writes") }},
	{"the sweep", func(w *world, _ *machine, _ *rapid.T) { w.sweep() }},
	{"the trigger is set", func(_ *world, m *machine, _ *rapid.T) { m.annotate(needsKey, "") }},
	{"the trigger is set", func(_ *world, m *machine, _ *rapid.T) { m.annotate(needsKey, "") }},
	{"the trigger is removed", func(_ *world, m *machine, _ *rapid.T) { m.unset(needsKey) }},
	{"asked for on the node", func(_ *world, m *machine, _ *rapid.T) {
		if !m.isAsked() {
			m.wanted = m.wanted || m.healthy()
		}
		m.editNode(func(n *corev1.Node) { n.Annotations[nodeKey] = "now" })
	}},
	{"false", func(_ *world, m *machine, _ *rapid.T) { m.annotate(preserve, "false") }},
	{"no false", func(_ *world, m *machine, _ *rapid.T) { m.unset(preserve) }},
	{"fails and is preserved", func(w *world, m *machine, _ *rapid.T) {
		m.setReady(false, w.now)
		m.edit(func(a map[string]string) {
			a[prefix+"phase"], a[prefix+"cause"] = "Failed:Preserved", "auto"
			a[prefix+"expiry-time"] = w.now.Add(72 * time.Hour).Format(time.RFC3339)
			a[prefix+"failed-since"] = w.now.Add(-healthTimeout).Format(time.RFC3339)
		})
	}},
	{"is preserved no more", func(_ *world, m *machine, _ *rapid.T) {
		m.edit(func(a map[string]string) {
			delete(a, prefix+"phase")
			delete(a, prefix+"cause")
		})
	}},
	{"pods and volumes come", func(_ *world, m *machine, _ *rapid.T) { m.contents.Pods, m.contents.VolumeAttachments = 1, 1 }},
	{"pods and volumes go", func(_ *world, m *machine, _ *rapid.T) { m.contents.Pods, m.contents.VolumeAttachments = 0, 0 }},
	{"the node hangs", func(w *world, m *machine, _ *rapid.T) { m.setReady(false, w.now) }},
	{"the node comes back as it was", func(w *world, m *machine, _ *rapid.T) {
		if m.host.on {
			m.setReady(true, w.now)
		}
	}},
	{"the boot id is forged", func(w *world, m *machine, t *rapid.T) {
		id := rapid.SampledFrom([]string{"", "forged", w.newBootID(), "00000000-0000-4000-8000-000000000001"}).Draw(t, "boot id")
		m.editNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = id })
	}},
	{"the host cannot be switched, or can", func(_ *world, m *machine, _ *rapid.T) { m.host.broken = !m.host.broken }},
	{"the host lies, or does not", func(_ *world, m *machine, _ *rapid.T) { m.host.lies = !m.host.lies }},
	{"somebody else keeps the host off, or does not", func(_ *world, m *machine, _ *rapid.T) { m.host.other = !m.host.other }},
	{"the host is taken, or given back", func(_ *world, m *machine, _ *rapid.T) {
		if m.host.taken += "taken"; m.host.taken != "taken" {
			m.host.taken = ""
		}
	}},
	{"firmware is pending, or not", func(_ *world, m *machine, _ *rapid.T) { m.host.flashes = !m.host.flashes }},
	{"the host is serviced, or not", func(w *world, m *machine, _ *rapid.T) {
		if m.host.servicing = !m.host.servicing; !m.host.servicing {
			m.host.changed = w.now
		}
	}},
	{"somebody else reboots the host", func(w *world, m *machine, _ *rapid.T) {
		if m.host.on && m.host.reported && !m.host.servicing {
			m.setReady(false, w.now)
			m.host.changed = w.now
		}
	}},
	{"the owner of the request gets lost", func(_ *world, m *machine, _ *rapid.T) {
		m.host.lost = m.host.owner != nil && m.host.requested && m.obj != nil && m.record()["on"] == m.host.owner.On
	}},
	{"nobody has looked for a while", func(w *world, _ *machine, _ *rapid.T) {
		for _, m := range w.machines {
			m.unasked, m.quiet, m.wasAsked = time.Time{}, time.Time{}, true
		}
	}},
	{"the node is ready in the future", func(w *world, m *machine, _ *rapid.T) {
		if m.healthy() {
			m.editNode(func(n *corev1.Node) {
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now.Add(24 * time.Hour))
			})
		}
	}},
	{"an old report is seen", func(_ *world, m *machine, _ *rapid.T) {
		m.host.seen.On, m.host.seen.OffSinceRequest = new(false), false
	}},
	{"the cache lags, or does not", func(w *world, _ *machine, _ *rapid.T) { w.lags = !w.lags }},
	{"somebody removes the finalizer", func(w *world, m *machine, _ *rapid.T) { m.removeFinalizer(); w.collect(m); w.sync() }},
	{"somebody removes the request from the host", func(_ *world, m *machine, _ *rapid.T) {
		m.host.requested, m.host.owner, m.host.lost = false, nil, false
	}},
	{"somebody removes nothing but the request from the host", func(_ *world, m *machine, _ *rapid.T) { m.host.requested, m.host.lost = false, false }},
	{"nobody keeps machines, or somebody does", func(w *world, _ *machine, _ *rapid.T) { w.engineAway = !w.engineAway }},
	{"forbidden, or not", func(w *world, _ *machine, _ *rapid.T) { w.Forbidden = !w.Forbidden }},
	{"the machine is forbidden", func(_ *world, m *machine, _ *rapid.T) { m.annotate(prefix+"forbidden", "true") }},
	{"no keeping is forbidden", func(w *world, m *machine, _ *rapid.T) { w.Forbidden = false; m.unset(prefix + "forbidden") }},
	{"other nodes go, or come back", func(w *world, _ *machine, t *rapid.T) {
		w.Others = &NodeCount{All: w.Others.All, Away: rapid.IntRange(0, w.Others.All).Draw(t, "away")}
	}},
	{"a storm begins or ends", func(w *world, _ *machine, _ *rapid.T) {
		if w.Storm.IsOn() {
			w.Storm = facts.Storm{}
		} else {
			w.Storm = facts.Storm{Failing: 2, Machines: 9, Limit: 1, Next: w.now.Add(24 * time.Hour)}
		}
	}},
	{"hibernates, or wakes up", func(w *world, _ *machine, _ *rapid.T) { w.Replicas = 3 - w.Replicas }},
	{"the control plane is restored elsewhere", func(w *world, _ *machine, _ *rapid.T) { w.restore() }},
	{"hosts are away, or back", func(w *world, _ *machine, _ *rapid.T) { w.hostsAway = !w.hostsAway }},
	{"the shoot is away, or back", func(w *world, _ *machine, _ *rapid.T) { w.setShootAway(!w.ShootAway) }},
	{"the shoot denies writes, or does not", func(_ *world, m *machine, _ *rapid.T) { m.denied = !m.denied }},
	{"switched off, or on", func(w *world, _ *machine, _ *rapid.T) {
		if w.Settings = w.settings; rapid.Bool().Draw(w.rapid, "off") {
			w.Settings = nil
		}
	}},
	{"a rollout begins or ends", func(w *world, _ *machine, _ *rapid.T) { w.Rollout = !w.Rollout }},
	{"a maintenance begins or ends", func(_ *world, m *machine, _ *rapid.T) {
		m.editNode(func(n *corev1.Node) {
			if _, ok := n.Annotations[markKey]; ok {
				delete(n.Annotations, markKey)
			} else {
				n.Annotations[markKey] = "now"
			}
		})
	}},
	{"the phase is one that is not known, or is known again", func(_ *world, m *machine, _ *rapid.T) {
		m.edit(func(map[string]string) {
			if phase := &m.obj.Status.CurrentStatus.Phase; *phase == "Rebooting" {
				*phase = "Unknown"
			} else {
				*phase = "Rebooting"
			}
		})
	}},
	{"the machine is deleted", func(w *world, m *machine, _ *rapid.T) { w.delete(m) }},
	{"another machine gets the host", func(w *world, m *machine, _ *rapid.T) { w.replace(m) }},
	{"the node is gone", func(_ *world, m *machine, _ *rapid.T) { m.node = nil }},
}

// restore restores the control plane on another seed, without that anything was let go before.
func (w *world) restore() {
	w.Seed = w.newBootID()
	for _, m := range w.machines {
		if m.edit(func(map[string]string) { m.obj.UID = types.UID("restored-" + w.newBootID()) }); m.obj != nil && m.obj.DeletionTimestamp != nil {
			m.obj = nil
		}
	}
	w.sync()
}

// replace makes another machine of the same name out of one that is gone.
func (w *world) replace(m *machine) {
	if m.obj != nil {
		return
	}
	w.uids++
	name := "b"
	if m == w.machines[0] {
		name = "a"
	}
	m.obj, m.node, m.begun, m.ended = builder.Machine(name), builder.Node(name), 0, time.Time{}
	m.obj.UID = types.UID("machine-" + w.newBootID())
	m.node.Status.NodeInfo.BootID = w.newBootID()
	m.node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now)
	m.ready = w.now
}

func (w *world) setShootAway(away bool) {
	if w.ShootAway && !away {
		w.ShootBack = w.now
	}
	w.ShootAway = away
}

func (w *world) pass(unit time.Duration, most int, t *rapid.T) {
	w.now = w.now.Add(unit * time.Duration(rapid.IntRange(1, most).Draw(t, "time")))
}

func (w *world) something(t *rapid.T) {
	w.rapid = t
	e := all[rapid.IntRange(0, len(all)-1).Draw(t, "event")]
	m := w.machines[rapid.IntRange(0, 1).Draw(t, "which")]
	t.Logf("%s: %s", w.now.Format(time.TimeOnly), e.name)
	e.happen(w, m, t)
	if rapid.Bool().Draw(t, "changes are seen") {
		w.engine()
		w.sync()
	}
	steps := len(w.steps)
	for range rapid.IntRange(0, 3).Draw(t, "looks") {
		w.look()
	}
	w.writesLeft = -1
	t.Logf("    %v", w.steps[steps:])
}

// finale lets all faults end, and time pass until nothing is to be done any more.
func (w *world) finale(t *rapid.T) {
	w.hostsAway, w.Rollout, w.lags, w.engineAway, w.Forbidden = false, false, false, false, false
	w.Replicas, w.Others, w.Storm = 3, &NodeCount{All: 9}, facts.Storm{}
	w.setShootAway(false)
	for _, m := range w.machines {
		m.unset(prefix + "forbidden")
		m.host.broken, m.host.lies, m.host.other, m.host.taken, m.denied = false, false, false, "", false
		m.host.flashes, m.host.servicing = false, false
		m.contents.Pods, m.contents.VolumeAttachments = 0, 0
		m.editNode(func(n *corev1.Node) { delete(n.Annotations, markKey) })
	}
	sweeps := rapid.Bool().Draw(t, "sweeps")
	dead := rapid.Bool().Draw(t, "nodes do not come back")
	for i := 0; ; i++ {
		if i > 300 {
			t.Fatalf("does not come to rest: %v", w.steps[len(w.steps)-30:])
		}
		w.engine()
		w.sync()
		wrote := sweeps && w.sweep()
		wrote = w.look() || wrote
		for _, m := range w.machines {
			on := m.host.on
			m.host.act()
			m.host.report(w.now)
			switch {
			case on && !m.host.on:
				m.setReady(false, w.now)
			case !dead && m.node != nil && m.host.on && !m.healthy():
				w.boot(m)
			}
		}
		if wrote {
			continue
		}
		next := time.Time{}
		for _, d := range w.last {
			if !d.Next.IsZero() && (next.IsZero() || d.Next.Before(next)) {
				next = d.Next
			}
		}
		if next.IsZero() {
			break
		}
		if !next.After(w.now) {
			t.Fatalf("looks again at %s, which is not later than now", next)
		}
		w.now = next
	}
	for _, m := range w.machines {
		if m.host.lost && (m.obj == nil || m.record()["on"] == nil) { // with the Machine that knew
			continue
		}
		if m.obj == nil && m.host.owner != nil && (!sweeps || m.host.owner.Seed != w.Seed) {
			continue
		}
		if m.host.requested || m.host.owner != nil || !m.host.on {
			t.Fatalf("host %s stays off (X2)", m.host.uid)
		}
		if m.obj == nil {
			continue
		}
		if m.obj.DeletionTimestamp != nil {
			t.Fatalf("%s is not let go", m.obj.Name)
		}
		if m.healthy() && tainted(m.node) && !m.forsaken {
			t.Fatalf("%s stays tainted", m.obj.Name)
		}
		if !m.healthy() && slices.Contains(m.marks(), claimKey) || slices.Contains(m.marks(), finalizer) {
			t.Fatalf("%s keeps %v (X10)", m.obj.Name, m.marks())
		}
		marks := m.marks()
		waits := m.phase() == "Waiting" && (m.obj.Annotations[preserve] == "false" || m.obj.Status.CurrentStatus.Phase == "Rebooting")
		if asked := m.record()["asked"] != nil; m.healthy() && len(marks) > 0 && !waits && (!asked || len(marks) > 1) {
			t.Fatalf("%s keeps %v", m.obj.Name, marks)
		}
		if w.Settings == nil && len(marks) > 0 {
			t.Fatalf("%s keeps %v although hosts are not to be touched (X15)", m.obj.Name, marks)
		}
	}
}
