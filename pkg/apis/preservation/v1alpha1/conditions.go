// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionOf returns the condition of a Node with a type, nil if there is none.
func ConditionOf(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == conditionType {
			return c
		}
	}
	return nil
}

// SetCondition sets the condition of a Node with a type, and returns whether that changed it.
func SetCondition(node *corev1.Node, conditionType corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) bool {
	c := ConditionOf(node, conditionType)
	if c == nil {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: conditionType})
		c = &node.Status.Conditions[len(node.Status.Conditions)-1]
	}
	if c.Status == status && c.Reason == reason && c.Message == message {
		return false
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, reason, message, metav1.NewTime(now)
	return true
}

// RemoveCondition removes the condition of a Node with a type.
func RemoveCondition(node *corev1.Node, conditionType corev1.NodeConditionType) {
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == conditionType })
}
