// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// Why a machine has failed, where no condition of its node says it.
const (
	// ReasonNeverJoined says that the machine never had a node.
	ReasonNeverJoined = "NeverJoined"
	// ReasonNodeGone says that the Node was deleted.
	ReasonNodeGone = "NodeGone"
	// ReasonInPlaceUpdateFailed says that machine-controller-manager could not update the machine in place.
	ReasonInPlaceUpdateFailed = "InPlaceUpdateFailed"
	// ReasonUnknown says that there is a Node, and that no condition of it is bad.
	ReasonUnknown = "Unknown"
)

// FirstBad returns the condition that came first of those by which a machine is unhealthy, nil if there is none: those of its node, or
// what the Machine says of them where there is no node. When a kubelet falls silent, nobody knows any of its conditions any more: then
// Ready says so, and the others say nothing.
func FirstBad(m Member, unhealthy []string) *corev1.NodeCondition {
	conditions := m.Machine.Status.Conditions
	if m.Node != nil {
		conditions = m.Node.Status.Conditions
	}
	if c := m.Machine.Spec.MachineConfiguration; c != nil && c.NodeConditions != nil {
		unhealthy = strings.Split(*c.NodeConditions, ",")
	}
	silent := slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
	var first *corev1.NodeCondition
	for i := range conditions {
		c := &conditions[i]
		bad := c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue ||
			slices.Contains(unhealthy, string(c.Type)) && c.Status != corev1.ConditionFalse && !(silent && c.Status == corev1.ConditionUnknown)
		if bad && (first == nil || cmp.Or(c.LastTransitionTime.Compare(first.LastTransitionTime.Time), cmp.Compare(c.Type, first.Type)) < 0) {
			first = c
		}
	}
	return first
}

// FailureReason returns why a machine has failed, or is about to: the type of its first bad condition, or one of the reasons above.
func FailureReason(m Member, unhealthy []string) string {
	bad := FirstBad(m, unhealthy)
	switch {
	case m.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineInPlaceUpdateFailed:
		return ReasonInPlaceUpdateFailed
	case len(m.Machine.Status.Conditions) == 0 && m.Node == nil:
		return ReasonNeverJoined
	case bad != nil:
		return string(bad.Type)
	case m.Node == nil:
		return ReasonNodeGone
	}
	return ReasonUnknown
}
