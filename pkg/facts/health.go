// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// DefaultNodeConditions are those of a machine-controller-manager without flags.
var DefaultNodeConditions = []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"}

// Timeouts are those of machine-controller-manager. A machine may override each.
type Timeouts struct {
	Health, Creation, Drain time.Duration
}

// DefaultTimeouts are those of a machine-controller-manager without flags.
var DefaultTimeouts = Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}

// For returns the effective timeouts of a machine: its own, else the receiver's.
func (t Timeouts) For(machine *machinev1alpha1.Machine) Timeouts {
	if c := machine.Spec.MachineConfiguration; c != nil {
		t.Health = ptr.Deref(c.MachineHealthTimeout, metav1.Duration{Duration: t.Health}).Duration
		t.Creation = ptr.Deref(c.MachineCreationTimeout, metav1.Duration{Duration: t.Creation}).Duration
		t.Drain = ptr.Deref(c.MachineDrainTimeout, metav1.Duration{Duration: t.Drain}).Duration
	}
	return t
}

// IsHealthy says that the node is there, ready, and has none of the conditions that make a machine unhealthy: the
// machine's own list of them, else the default (H1).
func IsHealthy(m Member, unhealthy []string) bool {
	_, healthy := HealthySince(m, unhealthy)
	return healthy
}

// HealthySince returns whether the node is healthy, as IsHealthy does, and since when these conditions are as they are.
func HealthySince(m Member, unhealthy []string) (since time.Time, healthy bool) {
	if m.Node == nil {
		return time.Time{}, false
	}
	if c := m.Machine.Spec.MachineConfiguration; c != nil && c.NodeConditions != nil {
		unhealthy = strings.Split(*c.NodeConditions, ",")
	}
	for _, c := range m.Node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			healthy = c.Status == corev1.ConditionTrue
		case !slices.Contains(unhealthy, string(c.Type)):
			continue
		case c.Status != corev1.ConditionFalse:
			return time.Time{}, false
		}
		if c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since, healthy
}
