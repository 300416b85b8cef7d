// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package oracle judges what is seen of machines: test/chaos shows it what real processes write, test/simulation what happens in
// a simulated world. It reads objects (Machine, Host), knows what excuses what is seen (Excuse), and has one judge for each rule that
// is judged in both worlds. All of it depends on what is passed in alone, and on no clock.
package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	hostdriver "github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// The phases of machines that are kept.
const (
	FailedPreserved  = "Failed:Preserved"
	RunningPreserved = "Running:Preserved"
)

// releaseTime is more than it takes until a machine is released that nothing keeps any more, also when the sidecar has to start first.
const releaseTime = time.Minute

// Machine is what a Machine says about itself.
type Machine struct {
	// Status is the phase that machine-controller-manager gives it.
	Status machinev1alpha1.MachinePhase
	// Kept says that it is kept, which one that is on its way out is not, and Phase is that of the preservation, empty before its deadline.
	Kept  bool
	Phase string
	// Claims are until when it is kept, by why.
	Claims map[string]time.Time
	// Written is until when we keep it, and Expiry what counts: machine-controller-manager 0.62 has that in the status.
	Written, Expiry time.Time
	// Failing says that its deadline is near, and Placed that it has a place within the share.
	Failing, Placed bool
	// Request is that on the Machine.
	Request string
	// Released is when it was let go of, and is on its way out.
	Released time.Time
	// Cycle is the phase of its power cycle, CycleUntil until when it is kept for that, and CycleAsked whether it is asked for.
	Cycle, CycleUntil string
	CycleAsked        bool
	Terminating       bool
}

// ReadMachine reads what we have written on a Machine.
func ReadMachine(machine *machinev1alpha1.Machine) Machine {
	annotations, notes := machine.Annotations, preservation.ReadNotes(machine)
	m := Machine{
		Status:      machine.Status.CurrentStatus.Phase,
		Kept:        annotations[v1alpha1.AnnotationCause] != "" && machine.DeletionTimestamp == nil,
		Phase:       annotations[v1alpha1.AnnotationPhase],
		Claims:      map[string]time.Time{},
		Failing:     !notes.FailsAt.IsZero(),
		Placed:      notes.Share != 0,
		Request:     annotations[v1alpha1.AnnotationPreserve],
		Released:    notes.Spent.Released,
		Cycle:       annotations[v1alpha1.AnnotationPowerCyclePhase],
		CycleUntil:  annotations[v1alpha1.AnnotationRemediation],
		CycleAsked:  metav1.HasAnnotation(machine.ObjectMeta, v1alpha1.AnnotationNeedsRemediation),
		Terminating: machine.DeletionTimestamp != nil,
	}
	m.Written, _ = time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationExpiryTime])
	if m.Expiry = m.Written; machine.Status.CurrentStatus.PreserveExpiryTime != nil {
		m.Expiry = machine.Status.CurrentStatus.PreserveExpiryTime.Time
	}
	for _, claim := range notes.Claims {
		if claim.Tentative { // it is none yet
			claim.Cause += "?"
		}
		m.Claims[claim.Cause] = claim.Expiry
	}
	if m.Kept && len(notes.Claims) == 0 {
		m.Claims[annotations[v1alpha1.AnnotationCause]] = m.Written
	}
	return m
}

// ReadManagers reads what machine-controller-manager 0.62 writes where we are not.
func ReadManagers(machine *machinev1alpha1.Machine) Machine {
	status := machine.Status.CurrentStatus
	m := Machine{Status: status.Phase, Kept: status.PreserveExpiryTime != nil && machine.DeletionTimestamp == nil, Request: machine.Annotations[v1alpha1.AnnotationPreserve], Terminating: machine.DeletionTimestamp != nil}
	if !m.Kept {
		return m
	}
	m.Expiry, m.Phase = status.PreserveExpiryTime.Time, RunningPreserved
	if status.Phase == machinev1alpha1.MachineFailed {
		m.Phase = FailedPreserved
	}
	if m.Request == machineutils.PreserveMachineAnnotationValueAutoPreserved {
		m.Claims = map[string]time.Time{v1alpha1.CauseAuto: m.Expiry}
	}
	return m
}

// CausesSince returns why a machine is kept, or was since some time.
func (m Machine) CausesSince(since time.Time) (causes []string) {
	for _, cause := range slices.Sorted(maps.Keys(m.Claims)) {
		if len(m.Claims) == 1 || m.Claims[cause].After(since) { // it is kept for the only one until somebody lets go of it
			causes = append(causes, cause)
		}
	}
	return causes
}

// IsAuto says that the share keeps the machine.
func (m Machine) IsAuto(now time.Time) bool {
	return slices.Contains(m.CausesSince(now), v1alpha1.CauseAuto)
}

// IsAsking says that a claim is one of people, or of the share.
func IsAsking(cause string) bool { return !isWork(cause) && cause != v1alpha1.CauseValidation }

func isWork(cause string) bool {
	return cause == v1alpha1.CauseMaintenance || cause == v1alpha1.CauseRemediation
}

// IsWorkedOn says that the machine is kept because of a maintenance or a power cycle, or was since some time: it is neither tainted
// nor drained.
func (m Machine) IsWorkedOn(since time.Time) bool {
	return slices.ContainsFunc(m.CausesSince(since), isWork)
}

// IsValidated says that the machine is back, and kept because it has yet to be validated: its node is tainted, and nothing is drained (V2).
func (m Machine) IsValidated() bool {
	_, ok := m.Claims[v1alpha1.CauseValidation]
	return m.Kept && ok
}

// IsOnlyValidated says that nothing but that keeps it, or was since some time.
func (m Machine) IsOnlyValidated(since time.Time) bool {
	return m.IsValidated() && !slices.ContainsFunc(m.CausesSince(since), func(cause string) bool { return cause != v1alpha1.CauseValidation })
}

// IsOnlyWorkedOn says that nothing but a maintenance or a power cycle keeps the machine: it takes no place within the share (M12, X10).
func (m Machine) IsOnlyWorkedOn(now time.Time) bool {
	return m.IsWorkedOn(time.Time{}) && !slices.ContainsFunc(m.CausesSince(now), IsAsking)
}

// IsAsked says that people or the share want the machine to be kept, whatever else does.
func (m Machine) IsAsked() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(m.Claims)), IsAsking)
}

// AskedUntil is until when people or the share want the machine to be kept, zero if they do not.
func (m Machine) AskedUntil() (until time.Time) {
	for cause, expiry := range m.Claims {
		if IsAsking(cause) && !strings.HasSuffix(cause, "?") && expiry.After(until) {
			until = expiry
		}
	}
	return until
}

// IsFailing says that the machine is held because it has failed, or is about to.
func (m Machine) IsFailing() bool { return m.Kept && (m.Failing || m.Phase == FailedPreserved) }

// UsesShare says that the machine failed, or is about to, and has a place of the share. What a person keeps that failed again without a
// place has what is left of an earlier claim of the share until it is released, shortly after the person's claim has ended. What
// somebody works on has a claim of the share that has ended.
func (m Machine) UsesShare(now time.Time) bool {
	return m.Kept && m.IsAuto(now) && (m.Placed || !m.IsPersonal(now)) && (m.Phase == "" || m.Phase == FailedPreserved)
}

// IsPersonal says that a person keeps the machine, or did until it is about to be released.
func (m Machine) IsPersonal(now time.Time) bool {
	return slices.ContainsFunc([]string{v1alpha1.CauseNow, v1alpha1.CauseWhenFailed}, func(cause string) bool { return m.Claims[cause].After(now.Add(-releaseTime)) })
}

// IsCycled says that the host of the machine is being powered off and on.
func (m Machine) IsCycled() bool {
	switch m.Cycle {
	case v1alpha1.PowerCyclePoweringOff, v1alpha1.PowerCycleMakingNodeSafe, v1alpha1.PowerCyclePoweringOn, v1alpha1.PowerCycleStarting:
		return true
	}
	return false
}

// String says all of it in one line.
func (m Machine) String() string {
	text := string(m.Status)
	if m.Kept {
		claims := slices.Sorted(maps.Keys(m.Claims))
		for i, cause := range claims {
			if len(claims) > 1 {
				claims[i] += " until " + stamp(m.Claims[cause])
			}
		}
		text = fmt.Sprintf("%s (%s) until %s, phase %s", m.Phase, strings.Join(claims, ", "), stamp(m.Expiry), m.Status)
	}
	if m.Cycle != "" || m.CycleAsked {
		text += fmt.Sprintf(", power cycle %q asked for: %t, until %s", m.Cycle, m.CycleAsked, m.CycleUntil)
	}
	if !m.Released.IsZero() {
		text += ", released"
	}
	if m.Terminating {
		text += ", terminating"
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// HasTaint says that a node has a taint of a key.
func HasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// IsOutOfService says that a node is made safe.
func IsOutOfService(node *corev1.Node) bool { return HasTaint(node, corev1.TaintNodeOutOfService) }

// IsProtected says that the cluster-autoscaler leaves a node alone.
func IsProtected(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true"
}

// MarksOfMaintenance returns what a maintenance has put on a node, but for conditions.
func MarksOfMaintenance(node *corev1.Node) (marks []string) {
	if node == nil {
		return nil
	}
	if metav1.HasAnnotation(node.ObjectMeta, v1alpha1.AnnotationMaintenance) {
		marks = append(marks, "annotation")
	}
	if metav1.HasAnnotation(node.ObjectMeta, v1alpha1.AnnotationMaintenanceCordon) {
		marks = append(marks, "cordon")
	}
	return marks
}

// PhaseOf returns the phase of a maintenance, which is the reason of its condition, empty for none.
func PhaseOf(nm *maintenancev1alpha1.NodeMaintenance) string {
	if c := meta.FindStatusCondition(nm.Status.Conditions, maintenancev1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// IsUnderWay says that a maintenance has its node.
func IsUnderWay(nm *maintenancev1alpha1.NodeMaintenance) bool {
	phase := PhaseOf(nm)
	return phase != "" && phase != maintenancev1alpha1.PhasePending &&
		(nm.DeletionTimestamp == nil || slices.Contains(nm.Finalizers, maintenancev1alpha1.Finalizer))
}

// Host is what is known of a host.
type Host struct {
	// Machine is whose it is, and Owner who has it asked to be off.
	Machine string
	Owner   types.UID
	On      bool
	// OnSince is since when it reports that it is on, Asked since when we ask it to be off; each zero if it is not.
	OnSince, Asked time.Time
}

// See takes what a host says about itself.
func (h *Host) See(object *unstructured.Unstructured, now time.Time) {
	h.Machine, _, _ = unstructured.NestedString(object.Object, "spec", "consumerRef", "name")
	h.On, _, _ = unstructured.NestedBool(object.Object, "status", "poweredOn")
	h.Owner = ""
	if owner := hostdriver.OwnerOf(object); owner != nil {
		h.Owner = owner.UID
	}
	_, asked := object.GetAnnotations()[v1alpha1.AnnotationReboot]
	h.OnSince, h.Asked = Since(h.OnSince, h.On, now), Since(h.Asked, asked, now)
}

// Since returns since when something is, zero if it is not.
func Since(before time.Time, is bool, now time.Time) time.Time {
	if !is {
		return time.Time{}
	}
	return cmp.Or(before, now)
}
