// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// warmUp is when the first machines have all joined.
	warmUp = 15 * time.Minute
	// duration is how long a history is. All that is done is over at half of it.
	duration = 24 * time.Hour
)

// History is what is done to a world. It is made of a seed alone, and can be told, and be made smaller.
type History struct {
	Replicas, Share int
	Timeout         time.Duration
	// Alone says that the sidecar does not run, and that machine-controller-manager is to keep machines if it can.
	Alone  bool
	Events []Event
}

// Event is something that is done.
type Event struct {
	At time.Duration
	Action
}

// Action is what is done. Its text says so to a person.
type Action interface {
	fmt.Stringer

	do(w *World)
}

// String tells a history.
func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d machines, share %d, timeout %s", h.Replicas, h.Share, h.Timeout)
	if h.Alone {
		b.WriteString(", without the sidecar")
	}
	for _, event := range h.Events {
		fmt.Fprintf(&b, "\n%s %s", stamp(event.At), event)
	}
	return b.String()
}

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

// Ask is a request of a person for a machine; empty withdraws it.
type Ask struct {
	Machine int
	OnNode  bool
	Value   string
}

// String implements fmt.Stringer.
func (a Ask) String() string {
	where := "machine"
	if a.OnNode {
		where = "node of machine"
	}
	return fmt.Sprintf("a user asks for %q on %s %d", a.Value, where, a.Machine)
}

func (a Ask) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	w.oracle.ask(name, a.Value)
	server, k := w.seed, key{"machines", namespace, name}
	if a.OnNode {
		server, k = w.shoot, nodeKey(name)
	}
	annotate(server, k, v1alpha1.AnnotationPreserve, a.Value)
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
	w.editPool(func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = int32(a.Replicas) })
}

// Roll changes the machines' template, so that they are replaced.
type Roll struct{}

// String implements fmt.Stringer.
func (Roll) String() string { return "the pool is updated" }

func (Roll) do(w *World) {
	w.rolls++
	name := fmt.Sprintf("%s-%d", pool, w.rolls)
	w.create("machineclasses", machineClass(name))
	w.oracle.roll()
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
	w.oracle.disturb(a.Downtime)
	w.processes[a.Process].Restart(a.Downtime)
}

// Lay has something happen at one of the next writes of a process.
type Lay struct {
	Process string
	Ambush
}

// String implements fmt.Stringer.
func (a Lay) String() string {
	what := "its connection breaks"
	switch {
	case a.Kill:
		what = fmt.Sprintf("it is killed, for %s", a.After)
	case a.Code != 0 && !a.Applied:
		what = fmt.Sprintf("it is answered with %d", a.Code)
	}
	when := "instead of"
	if a.Applied {
		when = "after"
	}
	return fmt.Sprintf("%s %s write %d of %s", what, when, a.Skip+1, a.Process)
}

func (a Lay) do(w *World) { w.processes[a.Process].Lay(new(a.Ambush)) }

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
	if w.oracle.disturb(a.For); a.Process == sidecarName && a.Server == "shoot" {
		w.oracle.blindFor(a.For)
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
	w.cloud.shootIsAway(true)
	time.AfterFunc(a.For, func() { w.cloud.shootIsAway(false) })
	for _, process := range w.processes {
		process.links["shoot"].Cut(false)
		time.AfterFunc(a.For, process.links["shoot"].Mend)
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
	w.cloud.isAway(true)
	time.AfterFunc(a.For, func() { w.cloud.isAway(false) })
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
	w.oracle.disturbMachine(name, a.For)
	link := w.processes[sidecarName].links["shoot"]
	link.Deny(name, true)
	time.AfterFunc(a.For, func() { link.Deny(name, false) })
}

// machine returns the name of one of the machines that are not being deleted, empty if there is none.
func (w *World) machine(number int) string {
	machines, _ := w.seed.List("machines", namespace, labels.Everything())
	machines = slices.DeleteFunc(machines, func(change *Change) bool { return change.Object.GetDeletionTimestamp() != nil })
	if len(machines) == 0 {
		return ""
	}
	return machines[number%len(machines)].name
}

func (w *World) editPool(edit func(*machinev1alpha1.MachineDeployment)) {
	_, _ = w.seed.Update(user, key{"machinedeployments", namespace, pool}, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		deployment := fromUnstructured[machinev1alpha1.MachineDeployment](object)
		edit(deployment)
		return toUnstructured(deployment), nil
	})
}

func machineClass(name string) *machinev1alpha1.MachineClass {
	return &machinev1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Provider: "simulation",
		SecretRef: &corev1.SecretReference{Name: pool, Namespace: namespace},
	}
}

// Outcome is what became of a history.
type Outcome struct {
	// Violation is what was wrong, empty for nothing, and Timeline all that has happened then.
	Violation, Timeline string
	// Seen counts what has happened.
	Seen map[string]int
}

// Run lets a history happen.
func Run(h History) Outcome {
	w := newWorld(h)
	defer w.stop()
	events := slices.Clone(h.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
	for _, event := range events {
		if !w.pass(event.At) {
			break
		}
		w.note("event", event.String())
		event.do(w)
	}
	if w.pass(duration / 2) {
		w.mend()
		if w.pass(duration) {
			w.oracle.rest(w)
		}
	}
	outcome := Outcome{Violation: w.oracle.violation, Seen: w.oracle.seen}
	if outcome.Violation != "" {
		outcome.Timeline = w.timeline()
	}
	return outcome
}

// mend takes back what has not happened yet.
func (w *World) mend() {
	for _, process := range w.processes {
		process.Lay(nil)
	}
	w.cloud.bear(0)
	w.pods.mend()
	w.requestors.mend()
	w.withdrawAll()
}

// pass lets time pass until some time after the beginning, and returns false if something was wrong.
func (w *World) pass(until time.Duration) bool {
	timer := time.NewTimer(until - w.now())
	defer timer.Stop()
	select {
	case <-w.oracle.violated:
		return false
	case <-timer.C:
		return true
	}
}
