// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package builder makes machines and nodes for tests. Each option changes one thing.
package builder

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespace is the control-plane namespace of all machines.
const Namespace = "shoot--test--one"

// Start is when all machines were created.
var Start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// MachineOption changes a machine.
type MachineOption func(*machinev1alpha1.Machine)

// Machine returns a machine in phase Running that was created at Start, has joined, and whose node has the machine's name.
func Machine(name string, opts ...MachineOption) *machinev1alpha1.Machine {
	machine := &machinev1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			Namespace:         Namespace,
			UID:               types.UID("machine-" + name),
			CreationTimestamp: metav1.NewTime(Start),
			Labels:            map[string]string{"node": name, "name": "pool"},
			Annotations:       map[string]string{},
		},
		Spec: machinev1alpha1.MachineSpec{ProviderID: "local:///" + name},
		Status: machinev1alpha1.MachineStatus{
			CurrentStatus: machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineRunning, LastUpdateTime: metav1.NewTime(Start)},
			Conditions:    []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, opt := range opts {
		opt(machine)
	}
	return machine
}

// Phase sets the phase and since when the machine is in it.
func Phase(phase machinev1alpha1.MachinePhase, since time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = phase
		m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(since)
	}
}

// Annotation sets an annotation.
func Annotation(key, value string) MachineOption {
	return func(m *machinev1alpha1.Machine) { m.Annotations[key] = value }
}

// Templated puts a request into the annotations of the machine's pool.
func Templated(request string) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Annotations = map[string]string{"node.machine.sapcloud.io/preserve": request}
	}
}

// Native makes the expiry that of machine-controller-manager.
func Native(expiry time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: expiry}
	}
}

// NeverJoined makes machine-controller-manager have seen no node of the machine.
func NeverJoined(m *machinev1alpha1.Machine) { m.Status.Conditions = nil }

// Created sets the creation time.
func Created(t time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) { m.CreationTimestamp = metav1.NewTime(t) }
}

// ExpiryInStatus sets the expiry in the status.
func ExpiryInStatus(t time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.Annotations["machine-preservation.extensions.gardener.cloud/expiry-in-status"] = string(m.UID)
		m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: t}
	}
}

// Preserved makes the machine a preserved one in the given sub-phase, since Start.
func Preserved(phase, cause string, expiry time.Time) MachineOption {
	const prefix = "machine-preservation.extensions.gardener.cloud/"
	return func(m *machinev1alpha1.Machine) {
		m.Annotations[prefix+"phase"] = phase
		m.Annotations[prefix+"cause"] = cause
		m.Annotations[prefix+"expiry-time"] = expiry.Format(time.RFC3339)
		m.Annotations[prefix+"preserved-since"] = Start.Format(time.RFC3339)
		if phase == "Failed:Preserved" {
			m.Annotations[prefix+"failed-since"] = m.Status.CurrentStatus.LastUpdateTime.UTC().Format(time.RFC3339)
		}
	}
}

// HeldUntil makes the machine one that is held as its deadline is near, and nothing else yet.
func HeldUntil(deadline time.Time, cause string, expiry time.Time) MachineOption {
	const prefix = "machine-preservation.extensions.gardener.cloud/"
	return func(m *machinev1alpha1.Machine) {
		Preserved("", cause, expiry)(m)
		delete(m.Annotations, prefix+"phase")
		delete(m.Annotations, prefix+"preserved-since")
		m.Annotations[prefix+"fails-at"] = deadline.Format(time.RFC3339)
		m.Annotations[prefix+"failed-since"] = m.Status.CurrentStatus.LastUpdateTime.UTC().Format(time.RFC3339)
	}
}

// Deleted sets the deletion timestamp.
func Deleted(t time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.DeletionTimestamp = &metav1.Time{Time: t}
		m.Finalizers = []string{"machine.sapcloud.io/machine-controller"}
	}
}

// NodeOption changes a node.
type NodeOption func(*corev1.Node)

// Node returns a node that is ready.
func Node(name string, opts ...NodeOption) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Annotations: map[string]string{}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, opt := range opts {
		opt(node)
	}
	return node
}

// NotReady makes a node unhealthy.
func NotReady(n *corev1.Node) { Condition(corev1.NodeReady, corev1.ConditionUnknown, "", "")(n) }

// NodeAnnotation sets an annotation.
func NodeAnnotation(key, value string) NodeOption {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// Taint adds a taint with effect NoSchedule.
func Taint(key string, added time.Time) NodeOption {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: added}})
	}
}

// Condition sets a condition.
func Condition(conditionType corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) NodeOption {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == conditionType {
				n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason, n.Status.Conditions[i].Message = status, reason, message
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: conditionType, Status: status, Reason: reason, Message: message})
	}
}
