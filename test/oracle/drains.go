// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// The conditions by which others see a drain, the reasons of ours, and that of kubectl drain begin (D13).
const (
	drainInProgress, drained = corev1.NodeConditionType("DrainInProgress"), corev1.NodeConditionType("Drained")

	// maintenanceInProgress is there as long as the requestor has the node (M16).
	maintenanceInProgress = corev1.NodeConditionType("MaintenanceInProgress")

	ofMaintenance, ofPreservation, ofUpdate = "NodeMaintenance", "MachinePreservation", "MachineUpdate"

	// ReasonOfKubectl is how the reasons begin of what kubectl drain writes.
	ReasonOfKubectl = "KubectlDrain"
)

// course is how far a drain is.
type course string

const (
	none     course = "no drain"
	underWay course = "a drain under way"
	over     course = "a drain that is over"
)

// drainByCondition returns how far the drain of a preserved machine's node is, by its condition.
func drainByCondition(node *corev1.Node) course {
	switch c := v1alpha1.ConditionOf(node, v1alpha1.ConditionPreserved); {
	case c == nil || c.Status != corev1.ConditionTrue:
		return none
	case slices.Contains([]string{v1alpha1.ReasonDraining, v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonPodsKept}, c.Reason):
		return underWay
	case c.Reason == v1alpha1.ReasonDrained:
		return over
	}
	return none
}

// drainByPhase returns how far the drain of a maintenance is, nil for none.
func drainByPhase(nm *maintenancev1alpha1.NodeMaintenance) course {
	if nm != nil && nm.Spec.DrainSpec != nil {
		switch PhaseOf(nm) {
		case maintenancev1alpha1.PhaseDraining:
			return underWay
		case maintenancev1alpha1.PhaseReady, maintenancev1alpha1.PhaseRequestorFailed:
			return over
		}
	}
	return none
}

// DrainWritten judges a write of ours on a node: what somebody else has written of a drain stays, and what somebody has taken away or changed
// is not written again as long as the drain is as far as it was (D13). What is said of a maintenance stays while that goes on (M16). Where the
// next one waits for the node already, the node shows of the one before it only that its requestor has it no more.
func DrainWritten(before, after *corev1.Node) *Violation {
	ends := v1alpha1.ConditionOf(before, maintenanceInProgress) != nil && v1alpha1.ConditionOf(after, maintenanceInProgress) == nil
	goesOn := metav1.HasAnnotation(after.ObjectMeta, v1alpha1.AnnotationMaintenance) && !ends
	for _, t := range []corev1.NodeConditionType{drainInProgress, drained} {
		was, is := v1alpha1.ConditionOf(before, t), v1alpha1.ConditionOf(after, t)
		switch {
		case was != nil && !slices.Contains([]string{ofMaintenance, ofPreservation, ofUpdate}, was.Reason) && (is == nil || *is != *was):
			return blame("D13", "its node loses condition %s of somebody else's: %s", t, was.Reason)
		case is != nil && is.Reason == ofPreservation && was != nil && was.Reason == ofMaintenance && goesOn:
			return blame("M16", "its node loses condition %s of a maintenance that goes on", t)
		case is != nil && is.Reason == ofPreservation && (was == nil || was.Reason == ofUpdate) && drainByCondition(before) == drainByCondition(after):
			return blame("D13", "its node gets condition %s again, and shows %s as before", t, drainByCondition(after))
		}
	}
	return nil
}

// DrainShown judges what others see of drains on a node that is as it is for long enough, where all drains are to be shown, or only those of
// maintenances, and only while they are so. The maintenance that has the node is nil for none. What is to be there need not be where somebody
// else has written, or the setting has changed, since the drain began (D13).
func DrainShown(node *corev1.Node, shows bool, nm *maintenancev1alpha1.NodeMaintenance, touched bool) *Violation {
	courses := map[string]course{ofMaintenance: drainByPhase(nm), ofPreservation: drainByCondition(node), ofUpdate: none}
	if v1alpha1.ConditionOf(node, v1alpha1.ConditionNodeDrain) != nil {
		courses[ofUpdate] = underWay
	}
	var missing []string
	for _, t := range []corev1.NodeConditionType{drainInProgress, drained} {
		c := v1alpha1.ConditionOf(node, t)
		if c == nil {
			missing = append(missing, string(t))
			continue
		}
		course, ours := courses[c.Reason]
		if !ours {
			continue
		}
		isTrue, shall := c.Status == corev1.ConditionTrue, t == drainInProgress && course == underWay || t == drained && course == over
		switch {
		case course == none:
			return blame("D13", "its node has condition %s of %s, and shows %s", t, c.Reason, course)
		case !shows && (c.Reason != ofMaintenance || !isTrue):
			return blame("D13", "its node has condition %s of %s, which is %s, and drains are not to be shown", t, c.Reason, c.Status)
		case isTrue != shall:
			return blame("D13", "its node has condition %s of %s, which is %s, and shows %s", t, c.Reason, c.Status, course)
		}
	}
	if shows && !touched && len(missing) > 0 && (courses[ofMaintenance] != none || courses[ofPreservation] != none) {
		return blame("D13", "its node is drained, or was, and has no condition %s", strings.Join(missing, ", "))
	}
	return nil
}
