// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// Break makes a machine's VM be in a condition; Healthy mends it.
type Break struct {
	Machine int
	Condition
}

// String implements fmt.Stringer.
func (a Break) String() string { return fmt.Sprintf("machine %d becomes %s", a.Machine, a.Condition) }

func (a Break) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.oracle.disturbMachine(name, 0)
		w.cloud.Set(name, a.Condition)
	}
}

// Blink makes a machine's VM be in a condition for some time.
type Blink struct {
	Break

	For time.Duration
}

// String implements fmt.Stringer.
func (a Blink) String() string { return fmt.Sprintf("%s for %s", a.Break, a.For) }

func (a Blink) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		a.Break.do(w)
		time.AfterFunc(a.For, func() { w.cloud.Set(name, Healthy) })
	}
}

// ZoneOutage has the kubelets of some machines fall silent for some time, of which the last ones do not come back.
type ZoneOutage struct {
	Machines, Lost int
	For            time.Duration
}

// String implements fmt.Stringer.
func (a ZoneOutage) String() string {
	return fmt.Sprintf("the zone of %d machines is away for %s, and %d do not come back", a.Machines, a.For, a.Lost)
}

func (a ZoneOutage) do(w *World) {
	var names []string
	for number := range a.Machines {
		if name := w.machine(number); name != "" && !slices.Contains(names, name) {
			w.oracle.disturbMachine(name, 0)
			w.cloud.Set(name, Dead)
			names = append(names, name)
		}
	}
	time.AfterFunc(a.For, func() {
		for _, name := range names[:max(0, len(names)-a.Lost)] {
			w.cloud.Set(name, Healthy)
		}
	})
}

// Vanish removes a machine's VM in the cloud.
type Vanish struct{ Machine int }

// String implements fmt.Stringer.
func (a Vanish) String() string { return fmt.Sprintf("the VM of machine %d vanishes", a.Machine) }

func (a Vanish) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.oracle.disturbMachine(name, 0)
		w.cloud.Remove(name)
	}
}

// Stillborn has the next VM never boot.
type Stillborn struct{}

// String implements fmt.Stringer.
func (Stillborn) String() string { return "the next VM will not boot" }

func (Stillborn) do(w *World) { w.cloud.bear(1) }

// nonsense is a request that is none (R3), forged one that only machine-controller-manager may write (P14).
const nonsense, forged = "nonsense", "auto-preserved"

// Ask is a request of a person for a machine; empty withdraws it.
type Ask struct {
	Machine int
	OnNode  bool
	Value   string
	// For is for how long the machine is to be kept, 0 for the pool's timeout.
	For time.Duration
}

// String implements fmt.Stringer.
func (a Ask) String() string {
	where := "machine"
	if a.OnNode {
		where = "node of machine"
	}
	text := fmt.Sprintf("a user asks for %q on %s %d", a.Value, where, a.Machine)
	if a.For > 0 {
		text += fmt.Sprintf(", for %s", a.For)
	}
	return text
}

func (a Ask) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		a.ask(w, name)
	}
}

func (a Ask) ask(w *World, name string) {
	w.oracle.ask(name, a.Value, a.OnNode)
	server, k := w.seed, key{"machines", namespace, name}
	if a.OnNode {
		server, k = w.shoot, nodeKey(name)
	}
	timeout := ""
	if a.For > 0 {
		timeout = a.For.String()
	}
	annotate(server, k, v1alpha1.AnnotationTimeout, timeout)
	annotate(server, k, v1alpha1.AnnotationPreserve, a.Value)
}

// Insist is a person who asks for a machine to be kept now, again and again.
type Insist struct {
	Ask

	Every time.Duration
	Times int
}

// String implements fmt.Stringer.
func (a Insist) String() string {
	return fmt.Sprintf("%s, %d times, every %s", a.Ask, a.Times, a.Every)
}

func (a Insist) do(w *World) {
	name := w.machine(a.Machine)
	for i := range a.Times {
		w.later(time.Duration(i)*a.Every, func() {
			if w.seed.Last(key{"machines", namespace, name}) != nil {
				a.ask(w, name)
			}
		})
	}
}

// Unprotect takes the protection from the cluster-autoscaler away from a machine's node.
type Unprotect struct{ Machine int }

// String implements fmt.Stringer.
func (a Unprotect) String() string {
	return fmt.Sprintf("a user takes the protection of the node of machine %d away", a.Machine)
}

func (a Unprotect) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.oracle.disturbMachine(name, 0)
		annotate(w.shoot, nodeKey(name), v1alpha1.AnnotationScaleDownDisabled, "")
	}
}

// annotate sets an annotation of an object if there is one; empty removes it.
func annotate(server *APIServer, k key, annotation, value string) {
	_, _ = server.Update(user, k, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object = object.DeepCopy()
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[annotation] = value; value == "" {
			delete(annotations, annotation)
		}
		object.SetAnnotations(annotations)
		return object, nil
	})
}

// Scale changes the number of machines.
type Scale struct{ Replicas int }

// String implements fmt.Stringer.
func (a Scale) String() string { return fmt.Sprintf("the pool is scaled to %d", a.Replicas) }

func (a Scale) do(w *World) {
	w.oracle.scale(a.Replicas)
	w.editPool(func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = w.scaled(a.Replicas, d.Name) })
}

// Rival is a second sidecar that thinks that it leads, for some time: where zones share places, not even two give one away twice (P20).
type Rival struct{ For time.Duration }

// String implements fmt.Stringer.
func (a Rival) String() string { return fmt.Sprintf("a second sidecar leads for %s", a.For) }

func (a Rival) do(w *World) {
	w.oracle.disturb(a.For)
	w.processes[rivalName].Start()
	time.AfterFunc(a.For, w.processes[rivalName].Kill)
}

// Roll changes the machines' template, so that they are replaced.
type Roll struct{}

// String implements fmt.Stringer.
func (Roll) String() string { return "the pool is updated" }

func (Roll) do(w *World) {
	w.rolls++
	name := fmt.Sprintf("%s-%d", pool, w.rolls)
	w.create("machineclasses", machineClass(name))
	w.oracle.roll(name)
	w.editPool(func(d *machinev1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = name })
}

// Restart kills a process.
type Restart struct {
	Process  string
	Downtime time.Duration
}

// String implements fmt.Stringer.
func (a Restart) String() string { return fmt.Sprintf("%s is killed, for %s", a.Process, a.Downtime) }

func (a Restart) do(w *World) {
	if w.oracle.disturb(a.Downtime); a.Process == sidecarName {
		w.oracle.excuse(rules.Mute, a.Downtime)
	}
	w.processes[a.Process].Restart(a.Downtime)
}

// FailWrite has something happen at one of the next writes of a process.
type FailWrite struct {
	Process string
	WriteFault
}

// String implements fmt.Stringer.
func (a FailWrite) String() string {
	what := "its connection breaks"
	switch {
	case a.Late > 0:
		return fmt.Sprintf("write %d of %s is made %s late", a.Skip+1, a.Process, a.Late)
	case a.Kill:
		what = fmt.Sprintf("it is killed, for %s", a.Downtime)
	case a.Code != 0 && !a.Applied:
		what = fmt.Sprintf("it is answered with %d", a.Code)
	}
	when := "instead of"
	if a.Applied {
		when = "after"
	}
	return fmt.Sprintf("%s %s write %d of %s", what, when, a.Skip+1, a.Process)
}

func (a FailWrite) do(w *World) { w.processes[a.Process].FailWrite(new(a.WriteFault)) }

// Outage makes an API server unreachable for a process.
type Outage struct {
	Process, Server string
	For             time.Duration
	Hangs           bool
}

// String implements fmt.Stringer.
func (a Outage) String() string {
	how := "refuses"
	if a.Hangs {
		how = "does not answer"
	}
	return fmt.Sprintf("the %s %s %s for %s", a.Server, how, a.Process, a.For)
}

func (a Outage) do(w *World) {
	w.oracle.disturb(a.For)
	switch {
	case a.Process == sidecarName && a.Server == "shoot":
		w.oracle.excuse(rules.Blind, a.For)
	case a.Process == sidecarName:
		w.oracle.excuse(rules.Mute, a.For)
	}
	link := w.processes[a.Process].links[a.Server]
	link.Cut(a.Hangs)
	time.AfterFunc(a.For, link.Mend)
}

// ShootOutage makes the shoot's API server unreachable for everybody.
type ShootOutage struct{ For time.Duration }

// String implements fmt.Stringer.
func (a ShootOutage) String() string { return fmt.Sprintf("the shoot is away for %s", a.For) }

func (a ShootOutage) do(w *World) {
	w.oracle.disturb(a.For)
	w.cloud.setShootAway(true)
	time.AfterFunc(a.For, func() { w.cloud.setShootAway(false) })
	for _, name := range processNames {
		link := w.processes[name].links["shoot"]
		link.Cut(false)
		time.AfterFunc(a.For, link.Mend)
	}
}

// Lag makes a process see the changes of an API server late.
type Lag struct {
	Process, Server string
	By, For         time.Duration
}

// String implements fmt.Stringer.
func (a Lag) String() string {
	return fmt.Sprintf("%s sees the %s %s late for %s", a.Process, a.Server, a.By, a.For)
}

func (a Lag) do(w *World) {
	w.oracle.disturb(a.For + a.By)
	link := w.processes[a.Process].links[a.Server]
	link.Lag(a.By)
	time.AfterFunc(a.For, func() { link.Lag(latency) })
}

// Forget ends all watches of a process, and the API server knows nothing any more of what was before: as the process looks
// again at all that there is, what has come and gone in between is lost to it.
type Forget struct{ Process, Server string }

// String implements fmt.Stringer.
func (a Forget) String() string {
	return fmt.Sprintf("the %s forgets what %s has seen", a.Server, a.Process)
}

func (a Forget) do(w *World) {
	w.oracle.disturb(0)
	w.processes[a.Process].links[a.Server].Forget()
}

// CloudOutage makes the cloud unreachable.
type CloudOutage struct{ For time.Duration }

// String implements fmt.Stringer.
func (a CloudOutage) String() string { return fmt.Sprintf("the cloud is away for %s", a.For) }

func (a CloudOutage) do(w *World) {
	w.oracle.disturb(a.For)
	w.cloud.setAway(true)
	time.AfterFunc(a.For, func() { w.cloud.setAway(false) })
}

// Deny has the sidecar's writes to a machine's node denied.
type Deny struct {
	Machine int
	For     time.Duration
}

// String implements fmt.Stringer.
func (a Deny) String() string {
	return fmt.Sprintf("the node of machine %d cannot be written to for %s", a.Machine, a.For)
}

func (a Deny) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	w.oracle.deny(name, a.For)
	link := w.processes[sidecarName].links["shoot"]
	link.Deny(name, true)
	time.AfterFunc(a.For, func() { link.Deny(name, false) })
}

// Freeze makes the budget allow nothing for some time.
type Freeze struct{ For time.Duration }

// String implements fmt.Stringer.
func (a Freeze) String() string { return fmt.Sprintf("the budget allows nothing for %s", a.For) }

func (a Freeze) do(w *World) {
	until := time.Now().Add(a.For)
	w.oracle.excuse(rules.Slow, time.Until(until))
	w.pods.freeze(until)
}

// Stick keeps the pods of a machine from ending for some time.
type Stick struct {
	Machine   int
	Finalizer bool
	For       time.Duration
}

// String implements fmt.Stringer.
func (a Stick) String() string {
	how := "cannot be stopped"
	if a.Finalizer {
		how = "have a finalizer"
	}
	return fmt.Sprintf("the pods of machine %d %s for %s", a.Machine, how, a.For)
}

func (a Stick) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		if a.Finalizer { // else they can be deleted by force
			w.oracle.disturbMachine(name, a.For)
		}
		until := time.Now().Add(a.For)
		w.oracle.excuse(rules.Slow, time.Until(until))
		w.pods.stick(name, a.Finalizer, until)
	}
}

// Maintain has somebody work on a machine's node.
type Maintain struct {
	Machine int
	// For is how long the work takes once the node is ready, and Off how long the VM is silent because of it.
	For, Off time.Duration
	// Forgets says that nobody says that the work is done, Exempt that it may take longer than maintenances may.
	Forgets, Exempt bool
	// Again is after which time somebody works on it once more, 0 for never.
	Again time.Duration
}

// String implements fmt.Stringer.
func (a Maintain) String() string {
	text := fmt.Sprintf("a requestor wants to work on the node of machine %d for %s", a.Machine, a.For)
	if a.Off > 0 {
		text += fmt.Sprintf(", which is off for %s", a.Off)
	}
	if a.Exempt {
		text += ", and is not to be interrupted"
	}
	if a.Forgets {
		text += ", and forgets it"
	}
	if a.Again > 0 {
		text += fmt.Sprintf(", and again after %s", a.Again)
	}
	return text
}

func (a Maintain) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	w.oracle.work(name)
	w.requestors.begin(name, a)
	if a.Again > 0 {
		w.later(a.Again, func() {
			if w.shoot.Last(nodeKey(name)) != nil {
				w.requestors.begin(name, a)
			}
		})
	}
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
	w.annotatePool(v1alpha1.AnnotationPowerCycleSettings, powerCycleSettings(a.On))
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

// finalizer is one of somebody who does not say when it goes.
const finalizer = "example.com/stays"

// Cling keeps a machine for some time from being gone once it is deleted.
type Cling struct {
	Machine int
	For     time.Duration
}

// String implements fmt.Stringer.
func (a Cling) String() string {
	return fmt.Sprintf("machine %d cannot be deleted for %s", a.Machine, a.For)
}

func (a Cling) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		w.oracle.disturbMachine(name, 0)
		w.oracle.excuse(rules.Slow, a.For)
		w.setFinalizer(name, true)
		time.AfterFunc(a.For, func() { w.setFinalizer(name, false) })
	}
}

func (w *World) setFinalizer(machine string, there bool) {
	_, _ = w.seed.Update(user, key{"machines", namespace, machine}, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object = object.DeepCopy()
		finalizers := slices.DeleteFunc(object.GetFinalizers(), func(f string) bool { return f == finalizer })
		if there {
			finalizers = append(finalizers, finalizer)
		}
		object.SetFinalizers(finalizers)
		return object, nil
	})
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
