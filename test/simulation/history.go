// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
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
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
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
	// Longest is for how long people and the share may keep a machine at most (P13); 0 for what operators have by default.
	Longest time.Duration
	// PrefersNew says that what fails for a new reason is kept rather than others (P15).
	PrefersNew bool
	// ShowsDrains says that nodes show all drains in conditions of Kubernetes (D13).
	ShowsDrains bool
	// Storm says when too many machines fail at the same time (P16, X21).
	Storm facts.StormLimits
	// Proof is how it is proven that machines work that are back, empty if the pool needs no proof (V1).
	Proof Proof
	// Shared says that the machines are those of two zones, which use the same places (P20).
	Shared bool
	// Hours is how many machine-hours people and the share may keep machines for (P18); 0 for any number, which nobody counts.
	Hours int
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
	if h.Longest > 0 {
		fmt.Fprintf(&b, ", %s at most", h.Longest)
	}
	if h.PrefersNew {
		b.WriteString(", new failures are preferred")
	}
	if h.ShowsDrains {
		b.WriteString(", drains are shown")
	}
	if s := h.Storm; s.Enabled() {
		fmt.Fprintf(&b, ", a storm is more than %d or %d%% that fail, and settles in %s", s.MaxFailing, s.MaxFailingPercent, s.SettlingTime)
	}
	if h.Proof != "" {
		fmt.Fprintf(&b, ", the proof that machines work %s", h.Proof)
	}
	if h.Shared {
		b.WriteString(", two zones share the places")
	}
	if h.Hours > 0 {
		fmt.Fprintf(&b, ", %d machine-hours", h.Hours)
	}
	if h.Alone {
		b.WriteString(", without the sidecar")
	}
	for _, event := range h.Events {
		fmt.Fprintf(&b, "\n%s %s", stamp(event.At), event)
	}
	return b.String()
}

func (h History) longest() time.Duration { return cmp.Or(h.Longest, 336*time.Hour) }

// machine returns the name of one of the machines that are not being deleted, empty if there is none.
func (w *World) machine(number int) string {
	machines, _ := w.seed.List("machines", namespace, labels.Everything())
	machines = slices.DeleteFunc(machines, func(change *Change) bool { return change.Object.GetDeletionTimestamp() != nil })
	if len(machines) == 0 {
		return ""
	}
	return machines[number%len(machines)].name
}

// editPool edits the MachineDeployments of the pool.
func (w *World) editPool(edit func(*machinev1alpha1.MachineDeployment)) {
	for _, zone := range w.zones {
		_, _ = w.seed.Update(user, key{"machinedeployments", namespace, zone}, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			deployment := fromUnstructured[machinev1alpha1.MachineDeployment](object)
			edit(deployment)
			return toUnstructured(deployment), nil
		})
	}
}

// annotatePool sets an annotation of the MachineDeployments of the pool; empty removes it.
func (w *World) annotatePool(annotation, value string) {
	for _, zone := range w.zones {
		annotate(w.seed, key{"machinedeployments", namespace, zone}, annotation, value)
	}
}

// scaled returns how many of a number of machines are those of a zone.
func (w *World) scaled(replicas int, zone string) int32 {
	return share.OverZones(int32(replicas), len(w.zones))[slices.Index(w.zones, zone)]
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
		process.FailWrite(nil)
	}
	w.cloud.bear(0)
	w.pods.mend()
	w.requestors.mend()
	w.withdrawAll()
	w.allowAll()
	w.unclingAll()
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

// later does something after some time, if that is in the time in which something is done.
func (w *World) later(d time.Duration, do func()) {
	if w.now()+d < duration/2-90*time.Minute {
		time.AfterFunc(d, do)
	}
}

// unclingAll lets all machines go that are deleted.
func (w *World) unclingAll() {
	machines, _ := w.seed.List("machines", namespace, labels.Everything())
	for _, change := range machines {
		w.setFinalizer(change.name, false)
	}
}

// allowAll takes back what operators forbid.
func (w *World) allowAll() {
	Forbid{All: true, Not: true}.do(w)
	for number := range w.cloud.Machines() {
		Forbid{Machine: number, Not: true}.do(w)
	}
	if w.oracle.wanted() == 0 {
		Scale{1}.do(w)
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
