// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/onsi/gomega/format"
	corev1 "k8s.io/api/core/v1"
)

// Gomega cuts off what is long, and whole Machines and Nodes are.
var _ = format.RegisterCustomFormatter(formatObject)

// formatObject returns what scenarios look at of a Machine or a Node, in a few lines, and whether the value is one.
func formatObject(value any) (string, bool) {
	switch object := value.(type) {
	case machinev1alpha1.Machine:
		current := object.Status.CurrentStatus
		return fmt.Sprintf("Machine %s\ncreated %v, deleted %v\nphase %s since %v, preserved until %v\nlast operation: %s\nlabels %v\nannotations %v",
			object.Name, object.CreationTimestamp, object.DeletionTimestamp, current.Phase, current.LastUpdateTime, current.PreserveExpiryTime,
			object.Status.LastOperation.Description, object.Labels, object.Annotations), true
	case corev1.Node:
		text := fmt.Sprintf("Node %s\ncreated %v, deleted %v, unschedulable: %t\ntaints %v\nannotations %v",
			object.Name, object.CreationTimestamp, object.DeletionTimestamp, object.Spec.Unschedulable, object.Spec.Taints, object.Annotations)
		for _, c := range object.Status.Conditions {
			text += fmt.Sprintf("\ncondition %s %s since %v: %s, %s", c.Type, c.Status, c.LastTransitionTime, c.Reason, c.Message)
		}
		return text, true
	}
	return "", false
}
