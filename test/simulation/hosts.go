// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// seedName is the name by which hosts know the seed.
	seedName = "seed-1"
	// powerTime is how long a host takes to switch its power.
	powerTime = 20 * time.Second
	// stepTime is how long each step of a power cycle may take, settledTime for how long a node is ready that is settled.
	stepTime, settledTime = 10 * time.Minute, 5 * time.Minute

	bmo = "bmo"
	// rebootPrefix is what all annotations begin with that ask for a host to be off.
	rebootPrefix = "reboot.metal3.io/"
	rebootOther  = rebootPrefix + "somebody-else"
)

func init() {
	resources["baremetalhosts"] = resource{
		GroupVersionKind: schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}, statusOnly: true,
	}
}

func hostKey(name string) key { return key{"baremetalhosts", namespace, name} }

// host is what a VM runs on. It outlives it, and is given to the next one. Its object says what it is to be, and is.
type host struct {
	name string
	// machine is whose it is, empty for nobody's. Then it is off.
	machine string
	on      bool
	// since is since when its power is to be switched; zero if it is as it is to be.
	since time.Time
	// stubborn is until when it does not obey.
	stubborn time.Time
}

// provision gives a machine a host, and returns what its VM has as the beginning of its id.
func (c *Cloud) provision(machine string) string {
	i := slices.IndexFunc(c.hosts, func(h *host) bool { return h.machine == "" && !h.on })
	if i < 0 {
		i = len(c.hosts)
		c.hosts = append(c.hosts, &host{name: fmt.Sprintf("host-%d", i+1)})
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"online": true}}}
		if _, err := c.seed.Create(bmo, hostKey(c.hosts[i].name), object); err != nil {
			panic(err) // nobody else makes such names
		}
	}
	h := c.hosts[i]
	h.machine = machine
	c.editHost(h, "spec", map[string]any{"online": true, "consumerRef": map[string]any{
		"apiVersion": machineGroup.String(), "kind": "Machine", "namespace": namespace, "name": machine,
	}})
	c.reportHost(h)
	return "baremetalhost:///" + namespace + "/" + h.name
}

// deprovision takes the host from a machine.
func (c *Cloud) deprovision(machine string) {
	for _, h := range c.hosts {
		if h.machine == machine {
			h.machine = ""
			c.editHost(h, "spec", map[string]any{"online": true})
			c.reportHost(h)
		}
	}
}

func (c *Cloud) reportHost(h *host) {
	state := "provisioned"
	if h.machine == "" {
		state = "available"
	}
	c.editHost(h, "status", map[string]any{"poweredOn": h.on, "operationalStatus": "OK", "provisioning": map[string]any{"state": state}})
}

func (c *Cloud) editHost(h *host, field string, value map[string]any) {
	_, _ = c.seed.Update(bmo, hostKey(h.name), field == "status", func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object = object.DeepCopy()
		object.Object[field] = value
		return object, nil
	})
}

// tickHosts switches the power of hosts as their objects say, each after some time.
func (c *Cloud) tickHosts() {
	now := time.Now()
	for _, h := range c.hosts {
		want := h.machine != ""
		if change := c.seed.Last(hostKey(h.name)); want && change != nil {
			for annotation := range change.Object.GetAnnotations() {
				want = want && !strings.HasPrefix(annotation, rebootPrefix)
			}
		}
		switch {
		case want == h.on:
			h.since = time.Time{}
		case h.since.IsZero():
			h.since = now
		case now.Before(h.stubborn) || now.Sub(h.since) < powerTime:
		default:
			h.on, h.since = want, time.Time{}
			if vm := c.find(h.machine); vm != nil {
				vm.power(h.on)
			}
			c.reportHost(h)
		}
	}
}

// power switches the VM off, or on: then it boots, and what was wrong with it is over, except if it never booted before.
func (v *vm) power(on bool) {
	if v.off = !on; !on {
		return
	}
	if v.boot++; v.boot > 1 {
		v.condition = Healthy
	}
	v.boots = time.Now().Add(bootTime)
}

// bootID returns that of a VM since it was booted last.
func (v *vm) bootID() string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", v.number, v.boot) }

// stubborn has the host of a machine not obey for some time.
func (c *Cloud) stubborn(machine string, d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, h := range c.hosts {
		if h.machine == machine {
			h.stubborn = time.Now().Add(d)
		}
	}
}

// hostOf returns the name of the host of a machine, empty for none.
func (c *Cloud) hostOf(machine string) string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, h := range c.hosts {
		if h.machine == machine {
			return h.name
		}
	}
	return ""
}

// powerCycleSettings are those of the pool.
func powerCycleSettings(automatic bool) string {
	settings, err := json.Marshal(&v1alpha1.PowerCycle{Automatic: &automatic})
	if err != nil {
		panic(err)
	}
	return string(settings)
}

// PowerCycle is a person who asks for a machine's host to be powered off and on, and withdraws that after some time unless it is 0.
type PowerCycle struct {
	Machine   int
	OnNode    bool
	Withdraws time.Duration
}

// String implements fmt.Stringer.
func (a PowerCycle) String() string {
	text := fmt.Sprintf("a user asks for a power cycle of machine %d", a.Machine)
	if a.OnNode {
		text += " on its node"
	}
	if a.Withdraws > 0 {
		text += fmt.Sprintf(", and withdraws that after %s", a.Withdraws)
	}
	return text
}

func (a PowerCycle) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	w.oracle.work(name)
	server, k, annotation := w.seed, key{"machines", namespace, name}, v1alpha1.AnnotationNeedsRemediation
	if a.OnNode {
		server, k, annotation = w.shoot, nodeKey(name), v1alpha1.AnnotationPowerCycle
	}
	annotate(server, k, annotation, v1alpha1.PowerCycleNow)
	if a.Withdraws > 0 {
		time.AfterFunc(a.Withdraws, func() { annotate(server, k, annotation, "") })
	}
}

// Automate has failed machines of the pool power-cycled without being asked, or not any more.
type Automate struct{ On bool }

// String implements fmt.Stringer.
func (a Automate) String() string {
	return fmt.Sprintf("the pool is to power-cycle by itself: %t", a.On)
}

func (a Automate) do(w *World) {
	annotate(w.seed, key{"machinedeployments", namespace, pool}, v1alpha1.AnnotationPowerCycleSettings, powerCycleSettings(a.On))
}

// Stubborn has a host not obey, and say what it said before.
type Stubborn struct {
	Machine int
	For     time.Duration
}

// String implements fmt.Stringer.
func (a Stubborn) String() string {
	return fmt.Sprintf("the host of machine %d does not obey for %s", a.Machine, a.For)
}

func (a Stubborn) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.cloud.stubborn(name, a.For)
	}
}

// Occupy is somebody else who keeps a host off.
type Occupy struct {
	Machine int
	For     time.Duration
}

// String implements fmt.Stringer.
func (a Occupy) String() string {
	return fmt.Sprintf("somebody else keeps the host of machine %d off for %s", a.Machine, a.For)
}

func (a Occupy) do(w *World) {
	if name := w.cloud.hostOf(w.machine(a.Machine)); name != "" {
		annotate(w.seed, hostKey(name), rebootOther, "{}")
		time.AfterFunc(a.For, func() { annotate(w.seed, hostKey(name), rebootOther, "") })
	}
}

// Delete is a person who deletes a machine.
type Delete struct{ Machine int }

// String implements fmt.Stringer.
func (a Delete) String() string { return fmt.Sprintf("a user deletes machine %d", a.Machine) }

func (a Delete) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.oracle.disturbMachine(name, 0)
		_, _ = w.seed.Delete(user, key{"machines", namespace, name}, "", "")
	}
}

// withdrawAll withdraws all requests for power cycles.
func (w *World) withdrawAll() {
	Automate{}.do(w)
	for _, name := range w.cloud.Machines() {
		annotate(w.seed, key{"machines", namespace, name}, v1alpha1.AnnotationNeedsRemediation, "")
		annotate(w.shoot, nodeKey(name), v1alpha1.AnnotationPowerCycle, "")
	}
}

// observedHost is a host as it was written last.
type observedHost struct {
	machine string
	owner   types.UID
	// requested is since when it is asked by us to be off; zero for not.
	requested time.Time
	on, taken bool
}

// cycled is what the oracle knows of the power cycles of a machine.
type cycled struct {
	// asked is since when a request is on the machine, phase since when it is in its phase.
	asked, phase time.Time
	// off is when its host was last asked to be off, and bootID what its node had then.
	off    time.Time
	bootID string
	// healthy is since when the node is, zero for not, and settled when it last had been for long enough.
	healthy, settled time.Time
}

func (o *oracle) observeHost(change *Change) {
	if o.hosts == nil {
		o.hosts = map[string]*observedHost{}
	}
	before := cmp.Or(o.hosts[change.name], &observedHost{})
	after := &observedHost{requested: before.requested}
	o.hosts[change.name] = after
	after.machine, _, _ = unstructured.NestedString(change.Object.Object, "spec", "consumerRef", "name")
	after.on, _, _ = unstructured.NestedBool(change.Object.Object, "status", "poweredOn")
	annotations := change.Object.GetAnnotations()
	_, after.taken = annotations[rebootOther]
	owner := struct{ UID types.UID }{}
	if json.Unmarshal([]byte(annotations[v1alpha1.AnnotationHostOwner]), &owner) == nil {
		after.owner = owner.UID
	}
	_, requested := annotations[v1alpha1.AnnotationReboot]
	switch {
	case !requested:
		after.requested = time.Time{}
	case before.requested.IsZero():
		after.requested = time.Now()
		o.seen["host is asked to be off"]++
		o.checkPowerOff(change.name, before, after)
	}
	if before.on && !after.on && requested {
		o.seen["host is off"]++
	}
	if requested != (after.owner != "") {
		o.blame("X2", "%s is asked to be off: %t, by %q", change.name, requested, after.owner)
	}
}

// checkPowerOff blames a request for a host that there must be none of.
func (o *oracle) checkPowerOff(name string, before, host *observedHost) {
	s := o.machines[host.machine]
	switch {
	case s == nil || s.machine == nil || s.machine.UID != host.owner:
		o.blame("X2", "%s is asked to be off for %s, and is the host of %q", name, host.owner, host.machine)
		return
	case !before.on:
		o.blame("X1", "%s is asked to be off, and is so already", name)
	case host.taken:
		o.blame("X14", "%s is asked to be off, and is kept off by somebody else", name)
	case s.machine.DeletionTimestamp != nil:
		o.blame("X8", "%s is asked to be off, and its machine %s is being deleted", name, host.machine)
	case !o.rolling.IsZero() && time.Since(o.rolling) > calm && time.Since(o.disturbed) > calm:
		o.blame("X8", "%s is asked to be off, and the machines are being replaced since %s", name, o.rolling.Format(time.TimeOnly))
	case !slices.Contains(causesOf(s.machine), v1alpha1.CauseRemediation):
		o.blame("X10", "%s is asked to be off, and its machine %s is kept for %q", name, host.machine, causesOf(s.machine))
	case s.node != nil && metav1.HasAnnotation(s.node.ObjectMeta, v1alpha1.AnnotationMaintenance):
		o.blame("X8", "%s is asked to be off, and the node of %s is under maintenance", name, host.machine)
	case !s.cycled.off.IsZero() && !o.isSettled(s):
		o.blame("X6", "%s is asked to be off again after %s, and its node was not settled", name, time.Since(s.cycled.off))
	}
	for other, h := range o.hosts {
		if other != name && !h.requested.IsZero() {
			o.blame("X8", "%s is asked to be off, and so is %s", name, other)
		}
	}
	if s.cycled.off = time.Now(); s.node != nil {
		s.cycled.bootID = s.node.Status.NodeInfo.BootID
	}
}

// isSettled says that the node was healthy for long enough since the host was last off.
func (o *oracle) isSettled(s *subject) bool {
	return s.cycled.settled.After(s.cycled.off) ||
		!s.cycled.healthy.IsZero() && time.Since(later(s.cycled.healthy, s.cycled.off)) >= settledTime
}

// observeCycle is called with each change of a machine.
func (o *oracle) observeCycle(name string, s *subject, before *machinev1alpha1.Machine) {
	if _, needs := s.machine.Annotations[v1alpha1.AnnotationNeedsRemediation]; !needs {
		s.cycled.asked = time.Time{}
	} else if s.cycled.asked.IsZero() {
		s.cycled.asked = time.Now()
	}
	if before == nil {
		return
	}
	from, to := before.Annotations[v1alpha1.AnnotationPowerCyclePhase], s.machine.Annotations[v1alpha1.AnnotationPowerCyclePhase]
	if from == to {
		return
	}
	s.cycled.phase, s.changed = time.Now(), time.Now()
	o.seen[fmt.Sprintf("cycle %s > %s", from, to)]++
	if to == v1alpha1.PowerCycleSucceeded && (s.node == nil || s.node.Status.NodeInfo.BootID == s.cycled.bootID || !s.unhealthy.IsZero()) {
		o.blame("X13", "the power cycle of %s is a success, and its node is not back", name)
	}
	if isPowerCycled(before) || !isPowerCycled(s.machine) {
		return
	}
	for other, t := range o.machines {
		if other != name && t.machine != nil && isPowerCycled(t.machine) {
			o.blame("X8", "a power cycle of %s begins while %s has one", name, other)
		}
	}
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// observeCycledNode is called with each change of a node, before it is known whether that is healthy.
func (o *oracle) observeCycledNode(change *Change, before, after *corev1.Node) {
	if before == nil || change.By != sidecarName || isOutOfService(before) || !isOutOfService(after) {
		return
	}
	o.seen["node is out of service"]++
	for name, h := range o.hosts {
		if h.machine == change.name {
			if h.on || h.requested.IsZero() {
				o.blame("X1", "the node of %s is made safe, and %s is on: %t, asked to be off: %t", change.name, name, h.on, !h.requested.IsZero())
			}
			return
		}
	}
	o.blame("X1", "the node of %s is made safe, and has no host", change.name)
}

// settle follows the health of a node.
func (c *cycled) settle(healthy bool) {
	switch {
	case healthy && c.healthy.IsZero():
		c.healthy = time.Now()
	case !healthy && !c.healthy.IsZero():
		if time.Since(later(c.healthy, c.off)) >= settledTime {
			c.settled = time.Now()
		}
		c.healthy = time.Time{}
	}
}

// lookAtCycle blames what should have become of a power cycle by now.
func (o *oracle) lookAtCycle(name string, s *subject) {
	if s.machine == nil || !o.isCalm(s) {
		return
	}
	if deleted := s.machine.DeletionTimestamp; deleted != nil {
		if slices.Contains(s.machine.Finalizers, v1alpha1.FinalizerHost) && time.Since(deleted.Time) > time.Minute+soon {
			o.blame("X2", "%s is deleted since %s, and waits for its host", name, deleted.Format(time.TimeOnly))
		}
		return
	}
	phase := s.machine.Annotations[v1alpha1.AnnotationPowerCyclePhase]
	switch since := time.Since(s.cycled.phase); {
	case isPowerCycled(s.machine) && since > stepTime+calm:
		o.blame("X5", "%s is %s for %s", name, phase, since)
	case phase == "" && !s.cycled.asked.IsZero() && time.Since(s.cycled.asked) > calm:
		o.blame("X12", "a power cycle of %s was asked for, and nobody has taken note", name)
	case s.node == nil:
	case phase == "" && isOutOfService(s.node) && !s.cycled.healthy.IsZero() && time.Since(s.cycled.healthy) > settledTime+calm:
		o.blame("X15", "the node of %s is back, and still out of service", name)
	case phase == "" && slices.ContainsFunc(s.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionPowerCycle }):
		o.blame("X15", "the node of %s still shows a power cycle", name)
	case (phase == v1alpha1.PowerCycleSucceeded || phase == v1alpha1.PowerCycleFailed || phase == v1alpha1.PowerCycleCancelled) &&
		!s.cycled.healthy.IsZero() && time.Since(s.cycled.healthy) > settledTime+calm && since > settledTime+calm:
		o.blame("X15", "%s is settled, and still %s", name, phase)
	}
}

// lookAtHosts blames hosts that are left off.
func (o *oracle) lookAtHosts() {
	if time.Since(o.disturbed) <= calm {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(o.hosts)) {
		h := o.hosts[name]
		if h.requested.IsZero() {
			continue
		}
		s := o.machines[h.machine]
		gone := s == nil || s.machine == nil || s.machine.UID != h.owner
		if asked := time.Since(h.requested); asked > stepTime+calm || gone && asked > calm {
			o.blame("X2", "%s is asked to be off for %s since %s, its machine is gone: %t", name, h.owner, asked, gone)
		}
	}
}

// restOfCycles blames what is left of power cycles at the end of a history.
func (o *oracle) restOfCycles() {
	for _, name := range slices.Sorted(maps.Keys(o.hosts)) {
		switch h := o.hosts[name]; {
		case !h.requested.IsZero():
			o.blame("X2", "%s is still asked to be off", name)
		case h.machine != "" && !h.on:
			o.blame("X2", "%s is still off", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.machines)) {
		if s := o.machines[name]; s.machine != nil {
			for _, key := range []string{v1alpha1.AnnotationPowerCyclePhase, v1alpha1.AnnotationPowerCycleAttempt, v1alpha1.AnnotationRemediation} {
				if value, ok := s.machine.Annotations[key]; ok {
					o.blame("X15", "%s still has %s=%s", name, key, value)
				}
			}
			if slices.Contains(s.machine.Finalizers, v1alpha1.FinalizerHost) {
				o.blame("X2", "%s still has the finalizer of its host", name)
			}
		}
	}
}
