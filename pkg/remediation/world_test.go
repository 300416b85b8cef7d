// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix     = "machine-preservation.extensions.gardener.cloud/"
	needsKey   = "host.metal3.io/external-remediation"
	phaseKey   = prefix + "power-cycle-phase"
	attemptKey = prefix + "power-cycle-attempt"
	recordKey  = prefix + "power-cycle-record"
	claimKey   = prefix + "remediation"
	nodeKey    = prefix + "power-cycle"
	markKey    = prefix + "maintenance"
	finalizer  = prefix + "host"
	preserve   = "node.machine.sapcloud.io/preserve"

	healthTimeout = 10 * time.Minute
)

// world is a MachineDeployment whose hosts and nodes do what real ones do, when they are told to. It carries decisions out.
type world struct {
	fail func(format string, args ...any)
	now  time.Time
	Group
	settings *Settings
	machines []*machine
	// writesLeft is how many writes succeed before a crash; -1 for no crash.
	writesLeft int
	// hostsAway says that hosts cannot be read or written.
	hostsAway bool
	// lags says that the controller does not see what it writes on Machines itself, engineAway that nobody keeps machines.
	lags, engineAway bool
	// uids is how many UIDs were given.
	uids int
	// events are the reasons and notes of all that was told, warnings the reasons of those that people have to look at, steps what was
	// written, outcomes how cycles ended.
	events, warnings, steps, outcomes []string
	// took is how long phases took.
	took  map[string]time.Duration
	last  []Decision
	rapid *rapid.T
}

// machine is a Machine, its node and its host.
type machine struct {
	obj  *machinev1alpha1.Machine // nil: it is gone
	seen *machinev1alpha1.Machine // by the controller, maybe an old one
	node *corev1.Node
	host *host
	// contents are what is left on the node, forced how many cycles have begun since it was settled.
	contents NodeContents
	begun    int
	// ended is when the last cycle ended, released when the host was last allowed to be on, and bootID that of the node when its host
	// was off, or when it began.
	ended, released time.Time
	// ready is since when the node is ready or is not, whatever it says.
	ready  time.Time
	bootID string
	// wasAskedOff says that the host was asked to be off for the cycle that is under way, or was last.
	wasAskedOff bool
	// wasAsked says that there was a request when it was seen last.
	wasAsked bool
	// stale says that the cache takes the node for healthy that is not.
	stale bool
	// live says that it was read live, and unasked is when it was last seen without a request, and
	// quiet since when.
	live           bool
	unasked, quiet time.Time
	// seenSince is what readySince was when it was looked at last.
	seenSince time.Time
	// bystander says that nobody ever asks for anything.
	bystander bool
	// wanted says that it was healthy when somebody asked for its power cycle. A request that was made anew in place of another,
	// which nobody has seen, is the same.
	wanted bool
	noHost string
	denied bool
	// forsaken says that the taint had to be left to a shoot that did not let it go.
	forsaken bool
}

// host is switched off and on by its own controller.
type host struct {
	uid types.UID
	// on is what it is, reported what it reports at version.
	on, reported bool
	version      int
	requested    bool
	owner        *Owner
	// wasOff says that it reported to be off after it was asked to be by us.
	wasOff bool
	// claim says that it is off for as long as it has an owner, as a ServerClaim is.
	claim bool
	// other says that somebody else keeps it off, broken that it cannot be switched, lies that it reports to be off and is on.
	other, broken, lies bool
	taken               string
	// servicing says that its controller works on it, flashes that it does so as soon as it is off, and lost that nobody knows whose
	// the request is. changed is when it reported last, and cycles are those it has had.
	servicing, flashes, lost bool
	changed                  time.Time
	cycles                   []Cycle
	err                      string
	seen                     Host
}

func defaults() *Settings {
	return &Settings{MaxAttempts: 1, MaxConcurrent: 1, PowerOff: 10 * time.Minute, PowerOn: 10 * time.Minute, NodeStartup: 10 * time.Minute}
}

func newWorld(fail func(string, ...any), names ...string) *world {
	w := &world{fail: fail, now: builder.Start.Add(time.Hour), settings: defaults(), writesLeft: -1, took: map[string]time.Duration{}}
	w.Seed, w.Replicas, w.Timeouts = "seed", int32(len(names)), facts.Timeouts{Health: healthTimeout, Creation: 20 * time.Minute, Drain: 2 * time.Hour}
	w.Settings, w.Others, w.MaxServicing, w.QuietTime = w.settings, &NodeCount{}, 2*time.Hour, DefaultQuietTime
	for _, name := range names {
		m := &machine{obj: builder.Machine(name), node: builder.Node(name), unasked: w.now, quiet: builder.Start, seenSince: builder.Start, host: &host{uid: types.UID("host-" + name), on: true, reported: true, version: 1}}
		m.node.Status.NodeInfo.BootID = w.newBootID()
		m.node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(builder.Start)
		w.machines = append(w.machines, m)
	}
	w.sync()
	return w
}

func (w *world) newBootID() string {
	w.uids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", w.uids)
}

// look is what the host's driver says.
func (h *host) look() Host {
	seen := Host{
		Namespace: "hosts", Name: string(h.uid), UID: h.uid, On: new(h.reported), Requested: h.requested, Owner: h.owner, Taken: h.taken,
		Changed: h.changed, Cycles: h.cycles, Error: h.err,
	}
	if h.servicing {
		seen.Servicing = "firmware"
		seen.Taken = cmp.Or(seen.Taken, "it is being serviced")
	}
	if h.lost {
		seen.Owner, seen.Unowned, seen.Taken = nil, true, cmp.Or(seen.Taken, "somebody else asks for it to be off")
	}
	if h.requested && seen.Owner != nil {
		version, _ := strconv.Atoi(h.owner.On)
		seen.OffSinceRequest = !h.reported && h.version > version
	}
	return seen
}

// sync makes the controller see all there is.
func (w *world) sync() {
	for _, m := range w.machines {
		m.seen, m.live = m.obj, false
		if !w.hostsAway {
			m.host.seen = m.host.look()
		}
	}
}

// confirm makes it read all Machines live, and of those machines the hosts.
func (w *world) confirm(uids sets.Set[types.UID]) {
	for _, m := range w.machines {
		if m.seen = m.obj; m.obj == nil || !uids.Has(m.obj.UID) {
			continue
		}
		if m.live = true; !w.hostsAway {
			m.host.seen = m.host.look()
			m.host.seen.Live = true
		}
	}
}

// engine keeps machines for as long as that is asked for, beside whatever else keeps them.
func (w *world) engine() {
	for _, m := range w.machines {
		if m.obj == nil || w.engineAway {
			continue
		}
		kept := preservation.ReadRecord(m.obj)
		is := kept != nil && slices.ContainsFunc(kept.Claims, func(c preservation.Claim) bool { return c.Cause == "remediation" })
		until, err := time.Parse(time.RFC3339, m.obj.Annotations[claimKey])
		wanted := err == nil && until.After(w.now) && !w.forbids(m)
		if cause := m.obj.Annotations[prefix+"cause"]; wanted && !is {
			m.edit(func(a map[string]string) {
				if cause == "" {
					a[prefix+"cause"], a[prefix+"expiry-time"] = "remediation", until.Format(time.RFC3339)
				} else {
					a[prefix+"claims"] = cause + "=" + a[prefix+"expiry-time"] + ",remediation=" + until.Format(time.RFC3339)
				}
			})
		} else if !wanted && is {
			m.edit(func(a map[string]string) {
				if delete(a, prefix+"claims"); cause == "remediation" {
					delete(a, prefix+"cause")
				}
			})
		}
	}
}

// forbids says that operators do not allow a machine to be kept.
func (w *world) forbids(m *machine) bool {
	return w.Forbidden || m.obj.Annotations[prefix+"forbidden"] == "true"
}

// keepFailed makes a machine one that has failed at a time, and is kept for a cause.
func (m *machine) keepFailed(cause string, since, now time.Time) {
	m.setReady(false, now)
	m.edit(func(a map[string]string) {
		a[prefix+"phase"], a[prefix+"cause"] = "Failed:Preserved", cause
		a[prefix+"expiry-time"], a[prefix+"failed-since"] = now.Add(72*time.Hour).Format(time.RFC3339), since.Format(time.RFC3339)
	})
}

// healthy says that the node is (H1).
func (m *machine) healthy() bool {
	return m.node != nil && m.node.Status.Conditions[0].Status == corev1.ConditionTrue
}

// readySince is since when the node is ready, or not.
func (m *machine) readySince() time.Time {
	if m.node == nil {
		return time.Time{}
	}
	return m.node.Status.Conditions[0].LastTransitionTime.Time
}

func (m *machine) setReady(ready bool, now time.Time) {
	if m.node == nil || m.healthy() == ready {
		return
	}
	node := m.node.DeepCopy()
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	if ready {
		node.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	m.node, m.ready = node, now
}

// member is what the controller knows of a machine.
func (w *world) member(m *machine) Member {
	member := Member{Member: facts.Member{Machine: m.seen, Node: m.node}, Healthy: m.healthy(), Live: m.live, Unasked: m.unasked, UnaskedSince: m.quiet, NodeContents: new(m.contents), NoHost: m.noHost, NodeDenied: m.denied}
	if m.stale && !m.live {
		member.Healthy = true
	}
	if member.Healthy {
		member.HealthySince = m.node.Status.Conditions[0].LastTransitionTime.Time
	}
	if m.noHost == "" && !w.hostsAway {
		member.Host = new(m.host.seen)
	}
	if w.ShootAway {
		member.Node, member.NodeUnknown, member.Healthy, member.NodeContents = nil, true, false, nil
	}
	return member
}

func (w *world) decide() []Decision {
	group, others := w.Group, w.Others
	if others != nil {
		others = new(*others)
	}
	for _, m := range w.machines {
		switch {
		case m.seen != nil:
			group.Members = append(group.Members, w.member(m))
		case m.node != nil && others != nil:
			others.Add(m.node, nil, w.NodeConditions)
		}
	}
	group.Others = others
	return Decide(group, w.now)
}

func (w *world) find(uid types.UID) *machine {
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.obj != nil && m.obj.UID == uid })
	if i < 0 {
		return nil
	}
	return w.machines[i]
}

// look lets the controller look once, and returns whether it wrote anything.
func (w *world) look() bool {
	for _, m := range w.machines {
		if m.obj != nil && w.settled(m) {
			m.begun = 0
		}
	}
	for _, m := range w.machines {
		isUnasked := m.seen != nil && !w.ShootAway && !asked(m.seen) && (m.node == nil || m.node.Annotations[nodeKey] == "")
		if since := m.readySince(); !w.ShootAway && !since.Equal(m.seenSince) {
			m.seenSince, m.wasAsked, m.unasked, m.quiet = since, true, time.Time{}, time.Time{}
		}
		if m.host.seen.Live, m.live = false, false; isUnasked && m.wasAsked {
			m.quiet = w.now
		}
		if m.wasAsked = !isUnasked; isUnasked {
			m.unasked = w.now
			m.wanted = m.wanted && m.isAsked()
		}
	}
	w.last = w.decide()
	w.last, _ = Confirm(w.last, func(live sets.Set[types.UID]) ([]Decision, error) {
		w.confirm(live)
		return w.decide(), nil
	})
	steps := len(w.steps)
	for _, d := range w.last {
		w.carryOut(d)
	}
	return len(w.steps) > steps
}

// isAsked says that somebody asks for a power cycle, whether that has been seen or not.
func (m *machine) isAsked() bool {
	return m.obj != nil && asked(m.obj) || m.node != nil && m.node.Annotations[nodeKey] != ""
}

func asked(obj *machinev1alpha1.Machine) bool { _, is := obj.Annotations[needsKey]; return is }

// settled says that cycles are counted anew.
func (w *world) settled(m *machine) bool {
	since := m.ended
	if m.ready.After(since) {
		since = m.ready
	}
	return w.Settings != nil && m.healthy() && !w.ShootAway && !w.now.Before(since.Add(5*time.Minute)) && !underWay(m.obj)
}

func underWay(obj *machinev1alpha1.Machine) bool { return obj != nil && UnderWay(obj) }

func keepsOff(obj *machinev1alpha1.Machine) bool {
	phase := obj.Annotations[phaseKey]
	return phase == "PoweringOff" || phase == "MakingNodeSafe"
}

// goes says that there is one more write before the crash.
func (w *world) goes() bool {
	if w.writesLeft == 0 {
		return false
	}
	w.writesLeft--
	return true
}

func (w *world) step(m *machine, what string) {
	w.steps = append(w.steps, what)
	if m.bystander {
		w.fail("nothing concerns %s, and there was written: %s", m.seen.Name, what)
	}
}

func (w *world) carryOut(d Decision) {
	m := w.find(d.Machine.UID)
	if m == nil {
		return // it is gone, as the controller will see
	}
	if d.Restore != nil && w.goes() {
		w.step(m, "restore")
		w.restoreOwner(m.host, *d.Restore)
	}
	if d.Release && w.goes() {
		w.step(m, "release")
		w.release(m.host, d.Host.Owner.UID)
	}
	if d.WriteMachine != nil {
		if d.PowerOff != nil {
			w.fail("the host is asked to be off together with a write")
		}
		if !w.goes() || m.obj != d.Machine { // a crash, or a conflict
			return
		}
		w.writeMachine(m, d.WriteMachine.After.(*machinev1alpha1.Machine))
	}
	if d.PowerOff != nil {
		if !w.goes() {
			return
		}
		w.powerOff(m, *d.PowerOff)
	}
	for _, write := range d.WriteNode {
		if m.denied || m.node != write.Before.(*corev1.Node) && !write.Status || !w.goes() {
			return
		}
		w.writeNode(m, write)
	}
	for _, event := range d.Events {
		w.events = append(w.events, event.Reason+": "+event.Note)
		if event.Warning {
			w.warnings = append(w.warnings, event.Reason)
		}
	}
	if d.Passed != "" {
		w.took[d.Passed] = d.Took
	}
	if d.Outcome != "" {
		w.outcomes = append(w.outcomes, d.Outcome)
	}
}

func (w *world) writeMachine(m *machine, after *machinev1alpha1.Machine) {
	w.step(m, "machine "+after.Annotations[phaseKey])
	before := m.obj
	m.forsaken = m.forsaken || m.denied && after.Annotations[recordKey] == "" && m.node != nil && tainted(m.node)
	if m.obj = after; !w.lags {
		m.seen = after
	}
	if w.Settings == nil && after.Annotations[recordKey] == "" { // with what is ours, the attempts are forgotten
		m.begun = 0
	}
	if began := underWay(after) && !underWay(before); began {
		if m.begun++; m.begun > int(w.settings.MaxAttempts) {
			w.fail("%s: cycle %d since the node was settled (X6)", after.Name, m.begun)
		}
		if m.begun > 1 && w.now.Before(m.released.Add(w.settings.NodeStartup)) {
			w.fail("%s: a cycle begins before the start-up time of the last one is over (X4)", after.Name)
		}
		w.mayGoOff(m)
		m.wasAskedOff = false
		if m.bootID = ""; m.node != nil {
			m.bootID = m.node.Status.NodeInfo.BootID
		}
	}
	if m.node != nil && after.Annotations[phaseKey] == "MakingNodeSafe" && before.Annotations[phaseKey] != "MakingNodeSafe" {
		m.bootID = m.node.Status.NodeInfo.BootID
	}
	if after.Annotations[phaseKey] == "Succeeded" && underWay(before) {
		if id := m.node.Status.NodeInfo.BootID; !m.healthy() || id == m.bootID || len(id) != 36 {
			w.fail("%s: not proven, with boot id %q (X13)", after.Name, id)
		}
	}
	switch {
	case underWay(before) && !underWay(after) && after.Annotations[attemptKey] != before.Annotations[attemptKey]:
		// What is known to have been asked for counts, unless all of it ends.
		if m.begun--; m.wasAskedOff && strings.Contains(before.Annotations[recordKey], `"on":`) && w.Settings != nil && after.DeletionTimestamp == nil {
			w.fail("%s: a cycle does not count whose host was asked to be off (X6)", after.Name)
		}
	case underWay(before) && !underWay(after):
		m.ended = w.now
	}
	if keepsOff(before) && !keepsOff(after) && after.Annotations[phaseKey] != "Waiting" {
		m.released = w.now
	}
	count := 0
	for _, m := range w.machines {
		if underWay(m.obj) {
			count++
		}
	}
	if count > int(w.settings.MaxConcurrent) {
		w.fail("%d cycles at a time (X8)", count)
	}
	w.collect(m)
}

// mayGoOff checks that nothing is in the way of a cycle, as it is now.
func (w *world) mayGoOff(m *machine) {
	if m.node != nil && m.node.Annotations[markKey] != "" || w.Rollout && !w.InPlace || w.Settings == nil || w.ShootAway ||
		!w.ShootBack.IsZero() && w.now.Before(w.ShootBack.Add(healthTimeout)) ||
		w.Replicas == 0 || w.forbids(m) || m.obj.Status.CurrentStatus.Phase == "Rebooting" || m.host.seen.Taken != "" || m.obj.DeletionTimestamp != nil {
		w.fail("%s: a cycle goes on that must wait (X8, X14)", m.obj.Name)
	}
	nodes := *w.Others
	for _, m := range w.machines {
		if m.node != nil && m.obj != nil && m.obj.Status.CurrentStatus.Phase != machinev1alpha1.MachineFailed && m.obj.Status.CurrentStatus.Phase != machinev1alpha1.MachineTerminating {
			if nodes.All++; !m.healthy() || underWay(m.obj) {
				nodes.Away++
			}
		}
	}
	if nodes.All > 1 && float64(nodes.Away)/float64(nodes.All) >= 0.6 {
		w.fail("%s: %v nodes are away, and nobody may be left to release the host (X2, X8)", m.obj.Name, nodes)
	}
}

// collect removes a Machine that is deleted and has no finalizer of ours.
func (w *world) collect(m *machine) {
	if m.obj != nil && m.obj.DeletionTimestamp != nil && !slices.Contains(m.obj.Finalizers, finalizer) {
		m.obj = nil
	}
}

func (w *world) writeNode(m *machine, write intent.Write) {
	after := write.After.(*corev1.Node)
	if write.Status {
		w.step(m, "condition")
		node := m.node.DeepCopy()
		node.Status.Conditions = after.Status.Conditions
		m.node = node
		return
	}
	was, is := tainted(m.node), tainted(after)
	switch {
	case !was && is:
		w.step(m, "taint")
		if !m.host.wasOff {
			w.fail("%s is made safe while its host is not known to be off since the request (X1)", after.Name)
		}
	case was && !is:
		w.step(m, "untaint")
	default:
		w.step(m, "node")
	}
	m.node = after
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node.kubernetes.io/out-of-service" })
}

func (w *world) powerOff(m *machine, owner Owner) {
	h := m.host
	if w.hostsAway || h.requested || h.seen.Requested || !h.reported || h.taken != "" {
		return // refused
	}
	w.step(m, "power off")
	claim, err := time.Parse(time.RFC3339, m.obj.Annotations[claimKey])
	if err != nil || !claim.After(w.now) || !underWay(m.obj) || !slices.Contains(m.obj.Finalizers, finalizer) || !h.seen.Live {
		w.fail("the host of %s is asked to be off before all is written down (X3, X10)", m.obj.Name)
	}
	if kept := m.obj.Annotations[prefix+"cause"] + m.obj.Annotations[prefix+"claims"]; !strings.Contains(kept, "remediation") {
		w.fail("the host of %s is asked to be off, and nobody keeps it (X10)", m.obj.Name)
	}
	w.mayGoOff(m)
	if w.now.Before(h.changed.Add(w.settings.NodeStartup)) && h.changed.Before(w.now.Add(time.Hour)) {
		w.fail("the host of %s may have been switched on at %s, and is powered off at %s (X17)", m.obj.Name, h.changed, w.now)
	}
	if m.healthy() && !m.wanted {
		w.fail("%s is healthy, and was not when it was asked for (X16)", m.obj.Name)
	}
	m.wasAskedOff = true
	owner.On = strconv.Itoa(h.version)
	h.requested, h.owner, h.wasOff, h.lost = true, &owner, false, false
	h.cycles = append(h.cycles, Cycle{Machine: owner.UID, Began: owner.Time})
	h.seen = h.look()
}

// restoreOwner puts back whose request it is.
func (w *world) restoreOwner(h *host, owner Owner) {
	if w.hostsAway || !h.lost {
		return // refused
	}
	if h.servicing {
		w.fail("host %s is written to while it is being serviced (X18)", h.uid)
	}
	if owner.On != h.owner.On || !owner.Time.Equal(h.owner.Time) {
		w.fail("host %s was off for %+v, and is for %+v (X20)", h.uid, *h.owner, owner)
	}
	h.lost, h.owner = false, &owner
	h.seen = h.look()
}

func (w *world) release(h *host, uid types.UID) {
	if !w.hostsAway && h.owner != nil && !h.lost && h.owner.UID == uid {
		if h.servicing {
			w.fail("host %s is written to while it is being serviced (X18)", h.uid)
		}
		h.requested, h.owner = false, nil
		h.seen = h.look()
	}
}

// sweep releases hosts that have been forgotten, and returns whether there are any.
func (w *world) sweep() bool {
	if w.hostsAway {
		return false
	}
	var (
		hosts []Host
		objs  []*machinev1alpha1.Machine
	)
	for _, m := range w.machines {
		if host := m.host.look(); host.Owner == nil || host.Owner.Seed == w.Seed {
			hosts = append(hosts, host)
		}
	}
	for _, m := range w.machines {
		if m.seen != nil {
			objs = append(objs, m.seen)
		}
	}
	orphans := Orphans(hosts, objs)
	for _, orphan := range orphans {
		for _, m := range w.machines {
			if m.host.uid == orphan.UID && !m.host.servicing {
				w.steps = append(w.steps, "sweep")
				w.release(m.host, orphan.Owner.UID)
			}
		}
	}
	return len(orphans) > 0
}

// act switches a host as it is asked to. While it is being serviced it stays as it is.
func (h *host) act() {
	if h.servicing {
		return
	}
	if on := !h.requested && !h.other && !(h.claim && h.owner != nil); !h.broken && (on || !h.lies) {
		h.on = on
	}
	if h.flashes && !h.on {
		h.flashes, h.servicing = false, true
	}
}

// report lets a host report what it is.
func (h *host) report(now time.Time) {
	on := h.on
	if h.lies && h.requested {
		on = false
	}
	if h.reported != on {
		h.reported, h.changed = on, now
		h.version++
		h.wasOff = h.wasOff || !on && h.requested
	}
}

// boot brings the node back with a new boot id.
func (w *world) boot(m *machine) {
	if m.node == nil || !m.host.on {
		return
	}
	node := m.node.DeepCopy()
	node.Status.NodeInfo.BootID = w.newBootID()
	m.node = node
	m.setReady(true, w.now)
}

// annotate sets an annotation of the Machine. What it was when its power cycle was asked for counts until that is done.
func (m *machine) annotate(key, value string) {
	if key == needsKey && !m.isAsked() {
		m.wanted = m.wanted || m.healthy()
	}
	m.edit(func(a map[string]string) { a[key] = value })
}
func (m *machine) unset(key string) { m.edit(func(a map[string]string) { delete(a, key) }) }

// edit is somebody else's edit of the Machine, which the controller does not see yet.
func (m *machine) edit(edit func(map[string]string)) {
	if m.obj == nil {
		return
	}
	m.obj = m.obj.DeepCopy()
	edit(m.obj.Annotations)
}

func (m *machine) removeFinalizer() {
	m.edit(func(map[string]string) {
		m.obj.Finalizers = slices.DeleteFunc(m.obj.Finalizers, func(f string) bool { return f == finalizer })
	})
}

func (m *machine) editNode(edit func(*corev1.Node)) {
	if m.node != nil {
		m.node = m.node.DeepCopy()
		edit(m.node)
	}
}

func (w *world) delete(m *machine) {
	if m.obj != nil && m.obj.DeletionTimestamp == nil {
		m.obj = m.obj.DeepCopy()
		m.obj.DeletionTimestamp = &metav1.Time{Time: w.now}
		w.collect(m)
	}
}

// phase returns the phase of a machine as it is written.
// updateInPlace has the node show how far an update in place is.
func (m *machine) updateInPlace(reason string) {
	m.editNode(func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: machinev1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: reason})
	})
}

func (m *machine) phase() string { return m.obj.Annotations[phaseKey] }

// record returns what is remembered of a machine.
func (m *machine) record() map[string]any {
	var record map[string]any
	if value := m.obj.Annotations[recordKey]; value != "" && json.Unmarshal([]byte(value), &record) != nil {
		panic(value)
	}
	return record
}

// marks returns the keys of ours that are on a machine.
func (m *machine) marks() []string {
	keys := slices.Sorted(maps.Keys(m.obj.Annotations))
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return !strings.HasPrefix(k, prefix+"power-cycle") && k != claimKey
	})
	if slices.Contains(m.obj.Finalizers, finalizer) {
		keys = append(keys, finalizer)
	}
	return keys
}

// run goes on until there is nothing to do but to wait.
func (w *world) run() {
	for range 20 {
		w.engine()
		w.sync()
		if !w.look() {
			return
		}
	}
	w.fail("does not come to rest: %v", w.steps)
}

// after lets time pass, and runs.
func (w *world) after(d time.Duration) {
	w.now = w.now.Add(d)
	w.run()
}

// act lets a host do what it is asked to, and report it; a node that is off is not ready.
func (w *world) act(m *machine) {
	m.host.act()
	m.host.report(w.now)
	if !m.host.on {
		m.setReady(false, w.now)
	}
	w.run()
}

// cycle takes a machine that needs remediation to where its host is on again and its node awaited.
func (w *world) cycle(m *machine) {
	w.run()
	w.act(m)
	w.act(m)
}

// annotateNode sets an annotation of the node.
func (m *machine) annotateNode(key, value string) {
	m.editNode(func(n *corev1.Node) { n.Annotations[key] = value })
}
