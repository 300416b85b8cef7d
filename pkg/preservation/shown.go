// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"maps"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Shown returns the machine of a node as it might be, as far as the Node shows it, which is all that a shoot's own people see.
// It has a record if the condition Preserved says so, or if it is protected; the expiry is unreadable if nothing tells it. If nothing
// tells the cause, it is guessed.
func Shown(node *corev1.Node, now time.Time) *machinev1alpha1.Machine {
	machine := &machinev1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, CreationTimestamp: node.CreationTimestamp, Labels: map[string]string{machinev1alpha1.NodeLabelKey: node.Name}, Annotations: map[string]string{}},
		Spec:       machinev1alpha1.MachineSpec{ProviderID: node.Spec.ProviderID},
		Status: machinev1alpha1.MachineStatus{
			Conditions:    node.Status.Conditions,
			CurrentStatus: machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineRunning, LastUpdateTime: node.CreationTimestamp},
		},
	}
	_, failed := TaintedSince(node)
	failed = failed && !AwaitsValidation(node)
	if !facts.IsHealthy(facts.Member{Machine: machine, Node: node}, facts.DefaultNodeConditions) {
		status := &machine.Status.CurrentStatus
		status.Phase, status.LastUpdateTime = machinev1alpha1.MachineUnknown, metav1.NewTime(now)
		if ready := v1alpha1.ConditionOf(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionTrue {
			status.LastUpdateTime = ready.LastTransitionTime
		}
		failed = failed || !now.Before(status.LastUpdateTime.Add(facts.DefaultTimeouts.Health))
	}
	record, aside := &Record{Failed: failed}, ""
	switch c := PreservedCondition(node); {
	case IsProtected(node):
		record.Claims, record.Failed = []Claim{{Cause: v1alpha1.CauseMaintenance}}, false
	case c == nil || c.Status != corev1.ConditionTrue:
		return machine
	default:
		told := ReadCondition(c)
		record.Claims, record.Since = shownClaims(node, failed, told), c.LastTransitionTime.Time
		aside = askedElsewhere(machine, node, told.Cause)
	}
	if record.Failed {
		record.FailedSince = machine.Status.CurrentStatus.LastUpdateTime.Time
	}
	if record.remediated() {
		record.RemediatedUntil = record.Expiry()
		machine.Annotations[v1alpha1.AnnotationRemediation] = formatTime(record.RemediatedUntil)
	}
	maps.Copy(machine.Annotations, record.annotations(machine.Status.CurrentStatus.Phase))
	note(machine, func(n *Notes) {
		n.note(record)
		n.SetAside = aside
		n.Spent.Kept.Since = record.Since.UTC()
	})
	return machine
}

// askedElsewhere has the machine ask for what a person's claim rests on, if the Node does not: an operator asked on the Machine, or the
// Node carries a hold, which is now, and what it stands in place of is returned.
func askedElsewhere(machine *machinev1alpha1.Machine, node *corev1.Node, cause string) (aside string) {
	value, onNode := node.Annotations[v1alpha1.AnnotationPreserve]
	switch {
	case cause != v1alpha1.CauseNow && cause != v1alpha1.CauseWhenFailed:
	case !onNode:
		machine.Annotations[v1alpha1.AnnotationPreserve] = cause
	case value == v1alpha1.RequestNow && cause != value:
		return carrier(true) + cause
	}
	return ""
}

// shownClaims returns the claims that a node shows: the cause of its condition, and who works on it. If none is told, what asks
// for the case that it fails is no reason while somebody works on a machine that has not failed.
func shownClaims(node *corev1.Node, failed bool, told Message) []Claim {
	var (
		claims     []Claim
		add        = func(cause string) { claims = append(claims, Claim{Cause: cause, Expiry: told.Until}) }
		request    = RequestOf(facts.Member{Machine: &machinev1alpha1.Machine{}, Node: node}, v1alpha1.DefaultMaxMachinePreserveTimeout).Value
		maintained = facts.IsMaintained(node)
		cycled     = IsPowerCycled(node)
	)
	switch {
	case told.Cause != "":
		add(told.Cause)
	case request == v1alpha1.RequestNow, request == v1alpha1.RequestWhenFailed && (failed || !maintained && !cycled):
		add(request)
	}
	if maintained && told.Cause != v1alpha1.CauseMaintenance {
		add(v1alpha1.CauseMaintenance)
	}
	if cycled && told.Cause != v1alpha1.CauseRemediation {
		add(v1alpha1.CauseRemediation)
	}
	if AwaitsValidation(node) && told.Cause != v1alpha1.CauseValidation {
		until := parseTime(strings.TrimSuffix(strings.TrimPrefix(told.Drain, awaitingPrefix), "."))
		claims = append(claims, Claim{Cause: v1alpha1.CauseValidation, Expiry: cmp.Or(until, told.Until)})
	}
	if len(claims) == 0 {
		add(v1alpha1.CauseAuto)
	}
	return claims
}

// IsPowerCycled says that a node shows a power cycle of its host that is under way, or that waits for its turn.
func IsPowerCycled(node *corev1.Node) bool {
	c := v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle)
	return c != nil && (c.Status == corev1.ConditionTrue || c.Reason == v1alpha1.PowerCycleWaiting)
}

// IsProtected says that a node shows that its machine is preserved because of a maintenance, without a condition because the machine has
// not failed (M12). Until when is not shown.
func IsProtected(node *corev1.Node) bool {
	c := PreservedCondition(node)
	return (c == nil || c.Status != corev1.ConditionTrue) &&
		node.Annotations[v1alpha1.AnnotationMaintenance] != "" && node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" &&
		node.Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse
}
