// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

const (
	untilPrefix    = "Machine preserved until "
	awaitingPrefix = "Node takes no new pods until it is validated, or until "
	// drainedText is the very text by which machine-controller-manager knows that a preserved node needs no drain. Its own
	// would delete pods with volumes by force from a node that does not answer.
	drainedText = "Preserved node drained successfully."
)

// protect keeps the cluster-autoscaler from removing the node. What a user has set stays a user's (P5).
func protect(node *corev1.Node) {
	if node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" {
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabled, "true")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationScaleDownDisabledByMCM, "true")
}

func unprotect(node *corev1.Node) {
	if _, ours := node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM]; ours {
		delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
		delete(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
	}
}

// taint puts the taint on the node or takes it off (P7, T7). Its TimeAdded is when the drain begins.
func taint(node *corev1.Node, wanted bool, now time.Time) {
	if isTainted(node) == wanted {
		return
	}
	if wanted {
		v1alpha1.Taint(node, now)
		return
	}
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurTaint)
}

// beginsDrain says that the node of a machine that has failed has the taint already, and does not show yet that it is drained: it was
// spared until now, or waited for a proof.
func (d *Decision) beginsDrain() bool {
	c := PreservedCondition(d.Node)
	return d.Target.Drains() && isTainted(d.Node) && (c == nil || c.Status != corev1.ConditionTrue || !v1alpha1.IsDrainReason(c.Reason))
}

// TaintedSince returns since when the node has the taint of a failed, preserved machine, and whether it has it. The time
// is zero if somebody else put the taint on without one.
func TaintedSince(node *corev1.Node) (time.Time, bool) {
	if i := slices.IndexFunc(node.Spec.Taints, isOurTaint); i >= 0 {
		if added := node.Spec.Taints[i].TimeAdded; added != nil {
			return added.Time, true
		}
		return time.Time{}, true
	}
	return time.Time{}, false
}

// clockSkew is how far ahead the clock may have been that the taint was put on by.
const clockSkew = time.Minute

// DrainBegan returns when the drain of a preserved node began, whose machine has failed at a time, zero if nobody knows: when the
// taint was put on, but not before the failure and not after now. The taint's time is the shoot's to write, that of the failure is
// not: a time of long ago must not skip PodDisruptionBudgets, and none and one that is yet to come must not keep the drain from
// timing out.
func DrainBegan(node *corev1.Node, failed, now time.Time) time.Time {
	began, _ := TaintedSince(node)
	if c := PreservedCondition(node); began.IsZero() && c != nil {
		// Somebody else put the taint on: the condition tells since when the machine is preserved.
		began = c.LastTransitionTime.Time
	}
	if began.Before(failed) || began.After(now.Add(clockSkew)) {
		began = failed
	}
	if began.IsZero() || began.After(now) {
		return now
	}
	return began
}

func isTainted(node *corev1.Node) bool { return v1alpha1.IsTainted(node) }

func isOurTaint(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreserved }

// setPreserved makes the condition show the preservation (P11). What the drain has written there is kept.
func setPreserved(node *corev1.Node, target *Record, gated, shows bool, now time.Time) {
	progress, told := v1alpha1.ReasonPreserved, ""
	if claim := target.claim(v1alpha1.CauseValidation); gated && claim != nil {
		progress, told = v1alpha1.ReasonAwaitingValidation, awaitingPrefix+formatTime(claim.Expiry)+". "
	}
	if target.Drains() {
		progress = v1alpha1.ReasonDraining
		if c := PreservedCondition(node); c != nil && c.Status == corev1.ConditionTrue && v1alpha1.IsDrainReason(c.Reason) {
			progress = c.Reason
			told, _ = splitMessage(c.Message)
		}
	}
	setCondition(node, corev1.ConditionTrue, progress, told+untilPrefix+formatTime(target.Expiry())+why(target.Cause())+".", shows, now)
}

// why returns how the message of the condition ends: with the cause, and the ID of the reason that goes with it. It is empty for a
// cause that is not known.
func why(cause string) string {
	begun := WhyBegun(cause)
	if begun.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (cause %s, reason %s)", cause, begun.ID)
}

// SetDrainProgress writes how far the drain of a preserved machine's node is into its condition. The text says what is
// being waited for; it is not needed for ReasonDrained. It is shown to others as well, or not (D13).
func SetDrainProgress(node *corev1.Node, reason, text string, shows bool, now time.Time) {
	c := PreservedCondition(node)
	if c == nil || c.Status != corev1.ConditionTrue {
		return
	}
	switch reason {
	case v1alpha1.ReasonDrained:
		text = drainedText
	case v1alpha1.ReasonPodsKept:
		text = drainedText + " " + text
	}
	_, until := splitMessage(c.Message)
	setCondition(node, corev1.ConditionTrue, reason, text+" "+untilPrefix+until, shows, now)
}

// splitMessage returns what the drain has written into the message of the condition, and until when the machine is
// preserved. A budget or a webhook that is quoted by the drain may say the like.
func splitMessage(message string) (drain, until string) {
	if i := strings.LastIndex(message, untilPrefix); i >= 0 {
		return message[:i], message[i+len(untilPrefix):]
	}
	return message, ""
}

// Message is what the condition Preserved of a node says in its message.
type Message struct {
	// Drain is what the drain of the node does, empty if there is none.
	Drain string
	// Until is when the preservation ends, zero if the message does not say.
	Until time.Time
	// Cause is why the machine is preserved, and Why the reason that goes with it; empty and zero if the message does not say.
	Cause string
	Why   reason.Reason
}

// ReadCondition returns what the condition Preserved of a node says. Of the one that machine-controller-manager (0.62) writes for a
// moment, that is nothing: it has another format, and another time.
func ReadCondition(c *corev1.NodeCondition) Message {
	drain, end := splitMessage(c.Message)
	at, parentheses, _ := strings.Cut(strings.TrimSuffix(end, "."), " (cause ")
	told := Message{Drain: strings.TrimSpace(drain), Until: parseTime(at)}
	cause, id, _ := strings.Cut(strings.TrimSuffix(parentheses, ")"), ", reason ")
	if begun := WhyBegun(cause); begun.ID == id && !begun.IsZero() {
		told.Cause, told.Why = cause, begun
	}
	return told
}

func setReleased(node *corev1.Node, now time.Time) {
	drain.WriterPreservation.Clear(node)
	if c := PreservedCondition(node); c != nil && c.Status == corev1.ConditionTrue {
		setCondition(node, corev1.ConditionFalse, v1alpha1.ReasonReleased, "", false, now)
	}
}

// PreservedCondition returns the condition Preserved of a node, or nil.
func PreservedCondition(node *corev1.Node) *corev1.NodeCondition {
	return v1alpha1.ConditionOf(node, v1alpha1.ConditionPreserved)
}

// setCondition writes the condition Preserved, and shows to others when the drain begins and ends by that, or does not (D13).
func setCondition(node *corev1.Node, status corev1.ConditionStatus, reason, message string, shows bool, now time.Time) {
	was := drain.CourseOfPreserved(node)
	v1alpha1.SetCondition(node, v1alpha1.ConditionPreserved, status, reason, message, now)
	is := drain.CourseOfPreserved(node)
	if !shows {
		is = drain.NoDrain
	}
	drain.ShowPreserved(node, was, is, now)
}
