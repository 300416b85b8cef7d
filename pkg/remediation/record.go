// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// record is what is remembered of a machine's cycles beside phase and attempt. Times are whole seconds (X3).
type record struct {
	// Requested is since when there is a request that has had no answer, or which the cycle is that is under way, and Wait what it
	// waits for.
	Requested time.Time `json:"requested,omitzero"`
	Wait      string    `json:"wait,omitempty"`
	// NotBefore is until when it waits because the shoot's API server did not answer: also if somebody else leads by then, who cannot
	// know since when it answers (X8).
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Automatic says that the request is ours, and nobody else's (X9, X21).
	Automatic bool `json:"automatic,omitempty"`
	// AwaitsGrant says that it waits for nothing but a grant: the extension reads it (X8).
	AwaitsGrant bool `json:"awaitsGrant,omitempty"`
	// Began is when the cycle began that is under way, or was last; Since when its phase did.
	Began time.Time `json:"began,omitzero"`
	Since time.Time `json:"since,omitzero"`
	// Host is the UID of its host, and BootID that of the node before it, empty for none that can be believed (X13).
	Host   types.UID `json:"host,omitempty"`
	BootID string    `json:"bootID,omitempty"`
	// Healthy says that the machine was healthy when the request was made that waits, or is acted upon; nil if that is not known
	// yet (X16).
	Healthy *bool `json:"healthy,omitempty"`
	// On is the On of the Owner of the request on the host, empty before it is known to be there: with it, an Owner that got lost
	// is put back (X20).
	On string `json:"on,omitempty"`
	// Servicing is since when the host is being serviced, and Paused for how long the deadlines of the cycle have stood still because
	// of that before (X18).
	Servicing time.Time     `json:"servicing,omitzero"`
	Paused    time.Duration `json:"paused,omitempty"`
	// Ready is since when a node is seen healthy that says it will be so only in the future (X20).
	Ready time.Time `json:"ready,omitzero"`
	// Tainted says that the node's taint is ours.
	Tainted bool `json:"tainted,omitempty"`
	// Ended is when the last cycle ended, not the one that is under way, and Again when its start-up time is over (X4). Zero as soon as the node is settled.
	Ended time.Time `json:"ended,omitzero"`
	Again time.Time `json:"again,omitzero"`
	// Asked is which failure was answered with a request of ours: since when it counts (X9). DryRun is when it would have been.
	Asked  time.Time `json:"asked,omitzero"`
	DryRun time.Time `json:"dryRun,omitzero"`
	// Cycles are when cycles of the Machine began within the last day, on whatever host (X9).
	Cycles []time.Time `json:"cycles,omitempty"`
}

// catchUp has what a clock that was ahead has dated into the future begin now: no phase and no servicing lasts an hour longer
// because the clock was set back by an hour (X5). It returns whether there was anything.
func (r *record) catchUp(now time.Time) bool {
	ahead := r.Since.After(now) || r.Servicing.After(now)
	if r.Since.After(now) {
		r.Since = now
	}
	if r.Servicing.After(now) {
		r.Servicing = now
	}
	return ahead
}

// state is all that is on a Machine because of power cycles.
type state struct {
	needs     bool
	phase     string
	attempt   int
	record    record
	until     time.Time
	finalizer bool
	// labelled says that the extension finds the machine.
	labelled bool
}

func readState(machine *machinev1alpha1.Machine) state {
	a := machine.Annotations
	s := state{phase: a[v1alpha1.AnnotationPowerCyclePhase], finalizer: slices.Contains(machine.Finalizers, v1alpha1.FinalizerHost)}
	_, s.needs = a[v1alpha1.AnnotationNeedsRemediation]
	_, s.labelled = machine.Labels[v1alpha1.LabelPowerCycle]
	// What was removed, emptied or made unreadable by hand counts as nothing, and as long ago: a cycle that is under way ends at once. If a
	// cycle has begun and is not settled, the taint of its node counts as ours, because nobody else would take it off.
	s.attempt, _ = strconv.Atoi(a[v1alpha1.AnnotationPowerCycleAttempt])
	s.until, _ = time.Parse(time.RFC3339, a[v1alpha1.AnnotationRemediation])
	if json.Unmarshal([]byte(a[v1alpha1.AnnotationPowerCycleRecord]), &s.record) != nil {
		s.record = record{}
	}
	if reflect.DeepEqual(s.record, record{}) {
		s.record.Tainted = s.attempt > 0
	}
	return s
}

// write makes a Machine what the state says, and returns whether that changes it.
func (s state) write(machine *machinev1alpha1.Machine) bool {
	changed := false
	set := func(key, value string, wanted bool) {
		old, ok := machine.Annotations[key]
		switch {
		case wanted && (!ok || old != value):
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, value)
			changed = true
		case !wanted && ok:
			delete(machine.Annotations, key)
			changed = true
		}
	}
	set(v1alpha1.AnnotationNeedsRemediation, machine.Annotations[v1alpha1.AnnotationNeedsRemediation], s.needs)
	set(v1alpha1.AnnotationPowerCyclePhase, s.phase, s.phase != "")
	set(v1alpha1.AnnotationPowerCycleAttempt, strconv.Itoa(s.attempt), s.attempt > 0)
	value, _ := json.Marshal(s.record) // of times and texts, which cannot fail
	set(v1alpha1.AnnotationPowerCycleRecord, string(value), string(value) != "{}")
	set(v1alpha1.AnnotationRemediation, s.until.UTC().Format(time.RFC3339), !s.until.IsZero())
	if s.phase != v1alpha1.PowerCycleWaiting {
		set(v1alpha1.AnnotationPowerCycleGrant, "", false)
	}
	if _, labelled := machine.Labels[v1alpha1.LabelPowerCycle]; labelled != s.labelled {
		changed = true
		if delete(machine.Labels, v1alpha1.LabelPowerCycle); s.labelled {
			metav1.SetMetaDataLabel(&machine.ObjectMeta, v1alpha1.LabelPowerCycle, "true")
		}
	}
	if s.finalizer != slices.Contains(machine.Finalizers, v1alpha1.FinalizerHost) {
		changed = true
		if s.finalizer {
			machine.Finalizers = append(machine.Finalizers, v1alpha1.FinalizerHost)
		} else {
			machine.Finalizers = slices.DeleteFunc(machine.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerHost })
		}
	}
	return changed
}

// concernsHost says that a cycle waits or is under way, or that the host may be off for it.
func (s state) concernsHost() bool {
	return s.underWay() || s.phase == v1alpha1.PowerCycleWaiting || s.finalizer
}

// keepsOff says that the host is to be off.
func (s state) keepsOff() bool {
	return s.phase == v1alpha1.PowerCyclePoweringOff || s.phase == v1alpha1.PowerCycleMakingNodeSafe
}

// underWay says that a cycle has begun, and is not over.
func (s state) underWay() bool {
	return s.keepsOff() || s.phase == v1alpha1.PowerCyclePoweringOn || s.phase == v1alpha1.PowerCycleStarting
}

// onlyWaits says that a request waits, and that the node does not come back from a cycle before.
func (s state) onlyWaits() bool {
	return s.phase == v1alpha1.PowerCycleWaiting && s.record.Ended.IsZero()
}

// UnderWay says that the host of a machine is being power-cycled: no maintenance of its node may begin or go on. A request
// alone is none, and waits for the maintenance that is in progress, so that whoever began first goes on (X8).
func UnderWay(machine *machinev1alpha1.Machine) bool {
	return state{phase: machine.Annotations[v1alpha1.AnnotationPowerCyclePhase]}.underWay()
}

// Began returns when the power cycle of a machine began that is under way, or was last; zero if there was none.
func Began(machine *machinev1alpha1.Machine) time.Time { return readState(machine).record.Began }

// forget returns the state without the cycle that was last. The phase and the wait of a request go as well: the same decision sets them
// again.
func (s state) forget() state {
	return state{needs: s.needs, finalizer: s.finalizer, record: record{
		Asked: s.record.Asked, Cycles: s.record.Cycles, DryRun: s.record.DryRun, Requested: s.record.Requested, Automatic: s.record.Automatic, Healthy: s.record.Healthy,
	}}
}

// CyclePeriod is for how long cycles are remembered.
const CyclePeriod = 24 * time.Hour

// recent returns when cycles began within the last day.
func (r record) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(r.Cycles), func(t time.Time) bool { return !now.Before(t.Add(CyclePeriod)) })
}
