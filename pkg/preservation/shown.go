// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Shown returns the machine of a node as it might be, as far as the Node shows it, which is all that a shoot's own people see.
// It has a record if the condition Preserved says so, or if it is protected; the expiry is unreadable if nothing tells it. Cause
// auto stands for nothing on the Node that would be a reason.
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
	if !facts.IsHealthy(facts.Member{Machine: machine, Node: node}, facts.DefaultNodeConditions) {
		status := &machine.Status.CurrentStatus
		status.Phase, status.LastUpdateTime = machinev1alpha1.MachineUnknown, metav1.NewTime(now)
		if ready := v1alpha1.ConditionOf(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionTrue {
			status.LastUpdateTime = ready.LastTransitionTime
		}
		failed = failed || !now.Before(status.LastUpdateTime.Add(facts.DefaultTimeouts.Health))
	}
	record := &Record{Failed: failed}
	switch c := PreservedCondition(node); {
	case IsProtected(node):
		record.Claims, record.Failed = []Claim{{Cause: v1alpha1.CauseMaintenance}}, false
	case c == nil || c.Status != corev1.ConditionTrue:
		return machine
	default:
		_, until := ReadCondition(c)
		record.Claims, record.Since = shownClaims(node, failed, until), c.LastTransitionTime.Time
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
		n.Spent.Kept.Since = record.Since.UTC()
	})
	return machine
}

// shownClaims returns why a preserved machine seems to be kept. What asks for the case that it fails is no reason while somebody
// works on a machine that has not failed.
func shownClaims(node *corev1.Node, failed bool, until time.Time) []Claim {
	var (
		claims     []Claim
		add        = func(cause string) { claims = append(claims, Claim{Cause: cause, Expiry: until}) }
		request    = RequestOf(facts.Member{Machine: &machinev1alpha1.Machine{}, Node: node}, v1alpha1.DefaultMaxMachinePreserveTimeout).Value
		maintained = facts.IsMaintained(node)
		cycled     = IsPowerCycled(node)
	)
	if request == v1alpha1.RequestNow || request == v1alpha1.RequestWhenFailed && (failed || !maintained && !cycled) {
		add(request)
	}
	if maintained {
		add(v1alpha1.CauseMaintenance)
	}
	if cycled {
		add(v1alpha1.CauseRemediation)
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

// IsProtected says that a node shows that its machine is kept as somebody works on it, without a condition as it has not failed
// (M12). Until when is not shown.
func IsProtected(node *corev1.Node) bool {
	c := PreservedCondition(node)
	return (c == nil || c.Status != corev1.ConditionTrue) &&
		node.Annotations[v1alpha1.AnnotationMaintenance] != "" && node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" &&
		node.Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse
}
