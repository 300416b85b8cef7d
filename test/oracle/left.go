// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	hostdriver "github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// conditionsOfWork are those by which others see that somebody works on a node (M16, X12).
var conditionsOfWork = []corev1.NodeConditionType{
	"MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress", v1alpha1.ConditionPowerCycle,
}

// lasting are annotations that stay when all is over: what the longest time is counted from for which a machine may be kept
// (P13), or kept because of maintenances (M12), and when its power cycles of the last day were (X9).
var lasting = []string{builder.NotePreservedSince, builder.NoteMaintainedSince, v1alpha1.AnnotationPowerCycleRecord}

// Leftovers returns what is left on a machine that is neither kept nor going, and on its node, but for annotations that people have put
// there to stay.
func Leftovers(m *machinev1alpha1.Machine, node *corev1.Node, theirs ...string) []string {
	var left []string
	add := func(on, what string) { left = append(left, on+": "+what) }
	keys := func(on string, annotations map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if slices.Contains(lasting, key) || slices.Contains(theirs, key) {
				continue
			}
			if key == v1alpha1.AnnotationPreserve || key == v1alpha1.AnnotationNeedsRemediation || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, v1alpha1.AnnotationScaleDownDisabled) {
				add(on, key+"="+annotations[key])
			}
		}
	}
	keys("Machine", builder.Noted(m))
	if priority := m.Annotations[v1alpha1.AnnotationMachinePriority]; priority != "" && priority != "3" {
		add("Machine", v1alpha1.AnnotationMachinePriority+"="+priority)
	}
	if phase := m.Status.CurrentStatus.Phase; phase != machinev1alpha1.MachineRunning {
		add("Machine", "phase "+string(phase))
	}
	if m.Status.CurrentStatus.PreserveExpiryTime != nil {
		add("Machine", "expiry in the status")
	}
	if m.DeletionTimestamp != nil {
		add("Machine", "is going")
	}
	for _, finalizer := range m.Finalizers {
		if strings.HasPrefix(finalizer, v1alpha1.GroupName+"/") {
			add("Machine", "finalizer "+finalizer)
		}
	}
	if node == nil {
		add("Node", "there is none")
		return left
	}
	keys("Node", node.Annotations)
	if node.Spec.Unschedulable {
		add("Node", "cordoned")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintPreserved || taint.Key == corev1.TaintNodeOutOfService || strings.HasPrefix(taint.Key, v1alpha1.GroupName+"/") {
			add("Node", "taint "+taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Preserved" && condition.Status == corev1.ConditionTrue {
			add("Node", "condition Preserved is True: "+condition.Message)
		}
		if slices.Contains(conditionsOfWork, condition.Type) {
			add("Node", "condition "+string(condition.Type)+": "+condition.Message)
		}
	}
	return left
}

// LeftoversOfHost returns what is left on a host.
func LeftoversOfHost(object *unstructured.Unstructured) []string {
	var left []string
	h := Host{}
	h.See(object, time.Time{})
	if !h.On {
		left = append(left, "host: off")
	}
	if value, ok := object.GetAnnotations()[v1alpha1.AnnotationReboot]; ok {
		left = append(left, "host: "+v1alpha1.AnnotationReboot+"="+value)
	}
	if owner := hostdriver.OwnerOf(object); owner != nil {
		left = append(left, fmt.Sprintf("host: %s=%+v", v1alpha1.AnnotationHostOwner, *owner))
	}
	return left
}
