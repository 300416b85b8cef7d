// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Types of the conditions of a Node by which others see a maintenance without knowing its API (M16). Those of its drain are those by which
// others see all drains (D13).
const (
	// ConditionMaintenancePlanned is on a node that a NodeMaintenance waits for or prepares, and says which one.
	ConditionMaintenancePlanned corev1.NodeConditionType = "MaintenancePlanned"
	// ConditionMaintenanceInProgress is on a node that the requestor of a NodeMaintenance works on, and says which one.
	ConditionMaintenanceInProgress corev1.NodeConditionType = "MaintenanceInProgress"

	// conditionTerminating is that by which machine-controller-manager says that it terminates the machine of a node.
	conditionTerminating corev1.NodeConditionType = "Terminating"

	// reasonNodeMaintenance tells conditions of ours from those of others.
	reasonNodeMaintenance = string(drain.WriterMaintenance)
)

var nodeConditions = []corev1.NodeConditionType{ConditionMaintenancePlanned, ConditionMaintenanceInProgress}

// IsNodeCondition says that a type of Node conditions is one of those that tell of a maintenance.
func IsNodeCondition(t corev1.NodeConditionType) bool {
	return slices.Contains(nodeConditions, t) || drain.IsCondition(t)
}

// IsMarked says that there is something on a node that a maintenance may have left there. It can be asked of a node of which
// only the types of conditions are known.
func IsMarked(node *corev1.Node) bool {
	return facts.IsMaintained(node) || isRecorded(node) ||
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return IsNodeCondition(c.Type) })
}

// IsUnavailable says that a node counts as unavailable for scheduling: unschedulable, not ready, or that of a failed machine
// that is preserved (M14).
func IsUnavailable(node *corev1.Node) bool {
	return node.Spec.Unschedulable || !facts.IsReady(node) || preservationv1alpha1.IsTainted(node)
}

// CordonedFor returns the UID of the NodeMaintenance for which a node is cordoned, empty for none (M3).
func CordonedFor(node *corev1.Node) types.UID {
	uid, _ := recordOf(node)
	return uid
}

// isRecorded says that there is a record that the cordon of a node is ours (M3).
func isRecorded(node *corev1.Node) bool {
	_, ok := recordOf(node)
	return ok
}

// recordOf returns for whom a node is cordoned, and whether there is a record of that.
func recordOf(node *corev1.Node) (uid types.UID, ok bool) {
	if uid, ok := node.Annotations[preservationv1alpha1.AnnotationMaintenanceCordon]; ok {
		return types.UID(uid), true
	}
	if i := slices.IndexFunc(node.Spec.Taints, isLegacyRecord); i >= 0 {
		return types.UID(node.Spec.Taints[i].Value), true
	}
	return "", false
}

// isLegacyRecord says that a taint is the record that an earlier version has left. It may go, and translateRecord with it, once no
// version that wrote the taint is in use.
func isLegacyRecord(t corev1.Taint) bool {
	return t.Key == preservationv1alpha1.TaintMaintenance && t.Effect == corev1.TaintEffectNoSchedule
}

// translateRecord makes the record of an earlier version one of this version.
func translateRecord(node *corev1.Node) {
	if uid, ok := recordOf(node); ok {
		record(node, uid)
	}
}

func record(node *corev1.Node, uid types.UID) {
	forgetCordon(node)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, preservationv1alpha1.AnnotationMaintenanceCordon, string(uid))
}

// cordon makes a node unschedulable and records for whom, in place of any other record.
func cordon(node *corev1.Node, nm *v1alpha1.NodeMaintenance) {
	node.Spec.Unschedulable = true
	record(node, nm.UID)
}

// uncordon undoes what the record names.
func uncordon(node *corev1.Node) {
	if isRecorded(node) {
		node.Spec.Unschedulable = false
		forgetCordon(node)
	}
}

// forgetCordon leaves the cordon to somebody else.
func forgetCordon(node *corev1.Node) {
	delete(node.Annotations, preservationv1alpha1.AnnotationMaintenanceCordon)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isLegacyRecord)
}

// annotate writes since when the machine is to be kept (M12).
func annotate(node *corev1.Node, now time.Time) {
	if _, err := time.Parse(time.RFC3339, node.Annotations[preservationv1alpha1.AnnotationMaintenance]); err != nil {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, preservationv1alpha1.AnnotationMaintenance, formatTime(now))
	}
}

// setConditions makes the conditions of a node those that are wanted, by type with their messages. One that others have written becomes ours
// if it is wanted, and stays if not.
func setConditions(node *corev1.Node, wanted map[corev1.NodeConditionType]string, now time.Time) {
	for _, t := range nodeConditions {
		message, want := wanted[t]
		c := preservationv1alpha1.ConditionOf(node, t)
		switch {
		case !want && c != nil && c.Reason == reasonNodeMaintenance:
			preservationv1alpha1.RemoveCondition(node, t)
		case want && c == nil:
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: t})
			c = &node.Status.Conditions[len(node.Status.Conditions)-1]
			fallthrough
		case want:
			if c.Status != corev1.ConditionTrue {
				c.LastTransitionTime = metav1.NewTime(now)
			}
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, reasonNodeMaintenance, message
		}
	}
}

// showDrain shows the drain of a maintenance, nil for none, to others (M16). With all conditions of drains it does so as other drains do, and
// shows also what is not so (D13).
func showDrain(node *corev1.Node, nm *v1alpha1.NodeMaintenance, all bool, now time.Time) {
	writer := drain.WriterMaintenance
	if nm == nil {
		drain.HandOver(node, all, now)
		return
	}
	phase, drains, drained := PhaseOf(nm), describe(nm)+" drains the node.", describe(nm)+" has drained the node."
	// Machine-controller-manager 0.62.1 looks at a machine whenever a condition comes, goes, or changes its status, and then uncordons: what is
	// done because of a cordon that has vanished must not do that.
	if drainsAgain(nm) {
		drained = describe(nm) + " has drained the node, and evicts pods that came to the node while it was not cordoned."
	}
	drainsNow := phase == v1alpha1.PhaseDraining
	hasDrained := (phase == v1alpha1.PhaseReady || phase == v1alpha1.PhaseRequestorFailed) && nm.Status.Drain != nil
	switch {
	case nm.Spec.DrainSpec == nil || !drainsNow && !hasDrained:
		drain.HandOver(node, all, now)
	case drainsNow && !all:
		writer.Clear(node, drain.ConditionDrained)
		writer.Set(node, drain.ConditionDrainInProgress, true, drains, now)
	case drainsNow:
		was := drain.NoDrain
		if _, _, begun := drainTimes(nm); begun {
			was = drain.UnderWay
		}
		writer.Show(node, was, drain.UnderWay, drains, now)
	case !all:
		writer.Clear(node, drain.ConditionDrainInProgress)
		writer.Set(node, drain.ConditionDrained, true, drained, now)
	default:
		was := drain.UnderWay
		if c := preservationv1alpha1.ConditionOf(node, ConditionMaintenanceInProgress); c != nil && c.Reason == reasonNodeMaintenance {
			was = drain.Over
		}
		writer.Show(node, was, drain.Over, drained, now)
		writer.Say(node, drained)
	}
}

// stageOf returns the stage of the maintenance that a node shows. It only grows until the node is given back, a maintenance is set back, or its
// drainSpec is removed.
func stageOf(node *corev1.Node) int {
	switch {
	case isHandedOver(node):
		return 3
	case drain.WriterMaintenance.HasWritten(node):
		return 2
	case facts.IsMaintained(node) || isRecorded(node):
		return 1
	}
	return 0
}

// isHandedOver says that a requestor has had a node: its conditions are those of before.
func isHandedOver(node *corev1.Node) bool {
	c := preservationv1alpha1.ConditionOf(node, ConditionMaintenanceInProgress)
	return facts.IsMaintained(node) && c != nil && c.Status == corev1.ConditionTrue
}

// owesProof says that the machine of a node that is being given back has yet to prove that it works: a requestor has had the node, or there
// was to be a proof before (V1).
func (m Machine) owesProof(node *corev1.Node) bool {
	return m.Validated && !m.Rolling && (isHandedOver(node) || m.Unvalidated && facts.IsMaintained(node))
}

// giveBack takes from a node what a maintenance has put on it. It leaves the cordon to machine-controller-manager where that
// empties the node.
func giveBack(node *corev1.Node, emptied bool) {
	if emptied {
		forgetCordon(node)
	} else {
		uncordon(node)
	}
	delete(node.Annotations, preservationv1alpha1.AnnotationMaintenance)
}

// isEmptied says that a node itself shows that machine-controller-manager empties it: its machine is terminated, or updated
// in place.
func isEmptied(node *corev1.Node) bool {
	c := preservationv1alpha1.ConditionOf(node, conditionTerminating)
	return node.DeletionTimestamp != nil || facts.IsUpdatedInPlace(node) || c != nil && c.Status == corev1.ConditionTrue
}

// Clean returns the writes that remove from a node all that a maintenance has left there, for a shoot that is to do without.
// Machines need not be known: the cordon stays where the node itself shows that its machine is terminated or updated in place
// (M15). A node that does not show it yet is uncordoned, and machine-controller-manager cordons it again when it drains. Where somebody in
// the shoot only pretends it, the shoot has to uncordon the node.
func Clean(node *corev1.Node) []intent.Write {
	return nodeWrites(node,
		func(after *corev1.Node) { giveBack(after, isEmptied(node)) },
		func(after *corev1.Node) { drain.WriterMaintenance.Clear(after); setConditions(after, nil, time.Time{}) })
}

// nodeWrites returns the writes by which a node is changed by two edits, of its status and of all else.
func nodeWrites(node *corev1.Node, spec, status func(*corev1.Node)) []intent.Write {
	writes := []intent.Write{{Before: node, After: node.DeepCopy(), Lock: true}, {Before: node, After: node.DeepCopy(), Status: true}}
	spec(writes[0].After.(*corev1.Node))
	status(writes[1].After.(*corev1.Node))
	writes[1].Lock = drain.Touches(node, writes[1].After.(*corev1.Node)) // somebody else may have written these meanwhile (D13)
	return slices.DeleteFunc(writes, func(w intent.Write) bool { return !w.Changes() })
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
