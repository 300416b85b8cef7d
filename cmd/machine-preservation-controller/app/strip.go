// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// The caches keep what the controllers read. What they write are patches between two stripped objects, which leave
// alone what was stripped.

func stripMachineDeployment(d *machinev1alpha1.MachineDeployment) {
	template := machinev1alpha1.MachineTemplateSpec{Spec: machinev1alpha1.MachineSpec{NodeTemplateSpec: machinev1alpha1.NodeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: d.Spec.Template.Spec.NodeTemplateSpec.Labels},
	}}}
	d.Spec = machinev1alpha1.MachineDeploymentSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: template, Strategy: machinev1alpha1.MachineDeploymentStrategy{Type: d.Spec.Strategy.Type}}
	d.Status = machinev1alpha1.MachineDeploymentStatus{}
}

func stripMachineSet(s *machinev1alpha1.MachineSet) {
	s.Spec = machinev1alpha1.MachineSetSpec{Replicas: s.Spec.Replicas}
	s.Status = machinev1alpha1.MachineSetStatus{Replicas: s.Status.Replicas}
}

func stripMachine(m *machinev1alpha1.Machine) {
	template := machinev1alpha1.NodeTemplateSpec{}
	if request, ok := m.Spec.NodeTemplateSpec.Annotations[v1alpha1.AnnotationPreserve]; ok {
		template.Annotations = map[string]string{v1alpha1.AnnotationPreserve: brief.Cut(request)}
	}
	m.Spec = machinev1alpha1.MachineSpec{ProviderID: m.Spec.ProviderID, MachineConfiguration: m.Spec.MachineConfiguration, NodeTemplateSpec: template}
	status := machinev1alpha1.MachineStatus{
		CurrentStatus: m.Status.CurrentStatus,
		LastOperation: machinev1alpha1.LastOperation{LastUpdateTime: m.Status.LastOperation.LastUpdateTime},
	}
	if len(m.Status.Conditions) > 0 { // all that is read of them is that there are any
		status.Conditions = []corev1.NodeCondition{{Type: m.Status.Conditions[0].Type}}
	}
	m.Status = status
}

// stripNode returns what leaves of a Node what is read, with what is only read for power cycles, or without.
func stripNode(powerCycle bool) toolscache.TransformFunc {
	return shoot.Strip(func(n *corev1.Node) {
		n.Labels = readLabels(n.Labels, v1alpha1.IsTainted(n))
		n.Annotations = readAnnotations(n.Annotations)
		n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}
		n.Status = corev1.NodeStatus{Conditions: readConditions(n.Status.Conditions), NodeInfo: readNodeInfo(n.Status.NodeInfo, powerCycle)}
	})
}

// readInFull are the types of the conditions of which all is read, or written.
var readInFull = []corev1.NodeConditionType{
	corev1.NodeReady, v1alpha1.ConditionPreserved, v1alpha1.ConditionNodeDrain, v1alpha1.ConditionPowerCycle, drain.ConditionDrainInProgress, drain.ConditionDrained,
}

// readLabels returns those labels of a Node that are read: of a node that takes no pods, any may be the proof that its machine works (V3).
func readLabels(all map[string]string, tainted bool) map[string]string {
	if tainted && len(all) <= maxLabels {
		return all
	}
	if value, ok := all[v1alpha1.LabelControlPlane]; ok {
		return map[string]string{v1alpha1.LabelControlPlane: value}
	}
	return nil
}

// readConditions returns those conditions of a Node that are read. The array behind all of them must not be kept for a few. When they were
// reported matters also once a node takes pods again: until the record says so, too, the proof must stay one (V3).
func readConditions(all []corev1.NodeCondition) []corev1.NodeCondition {
	var conditions []corev1.NodeCondition
	for _, c := range all {
		switch {
		case slices.Contains(readInFull, c.Type):
			if len(c.Message) > maxMessage { // not one of ours
				c.Message = strings.Clone(c.Message[:maxMessage])
			}
			if len(c.Reason) > maxMessage {
				c.Reason = strings.Clone(c.Reason[:maxMessage])
			}
			conditions = append(conditions, c)
		case c.Type == machinev1alpha1.NodeInPlaceUpdate:
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime})
		case c.Status != corev1.ConditionFalse && len(conditions) < maxConditions && len(c.Type) <= maxValue:
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastHeartbeatTime: c.LastHeartbeatTime, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return conditions
}

// readNodeInfo returns the boot id, if it is read and may be one (X13).
func readNodeInfo(info corev1.NodeSystemInfo, powerCycle bool) corev1.NodeSystemInfo {
	if !powerCycle || len(info.BootID) > maxValue {
		return corev1.NodeSystemInfo{}
	}
	return corev1.NodeSystemInfo{BootID: info.BootID}
}

const (
	// maxValue is more than any value has that means something, maxConditions more than a Node has conditions.
	maxValue, maxConditions = 128, 32
	// maxLabels is more than a Node has labels.
	maxLabels = 256
	// maxMessage is more than the message of a condition of ours has, or its reason.
	maxMessage = 4 << 10
)

// readAnnotations returns those annotations of a Node that are read: what else is changed there causes no look at the
// machine, and takes no memory (P14).
func readAnnotations(annotations map[string]string) map[string]string {
	return shoot.ReadAnnotations(annotations,
		v1alpha1.AnnotationPreserve, v1alpha1.AnnotationTimeout,
		v1alpha1.AnnotationScaleDownDisabled, v1alpha1.AnnotationScaleDownDisabledByMCM,
		v1alpha1.AnnotationMaintenance, v1alpha1.AnnotationMaintenanceCordon, v1alpha1.AnnotationPowerCycle,
	)
}
