// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// The taint is a contract with the scheduler and the volume controllers: nothing runs on the node. It is put on only while
// the host is reported off since the request (X1), and taken off
//   - when the proof holds (X13), also if that comes after the cycle has failed: what ran there is gone;
//   - when the node has been ready for as long as a settled one, with whatever boot id: its kubelet has ended by then what was
//     given up meanwhile, and nothing of it would ever be restarted;
//   - when all that is ours ends (X15): the host was off when it was put on, so that what ran there is gone, and nobody would
//     be left to take it off.
//
// It stays on a node that is not back after a cycle that failed: no pod could run there anyway, and the machine goes.
var taintOutOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// settledTime is for how long a node that is settled has been ready (X4).
const settledTime = 5 * time.Minute

func isTaint(t corev1.Taint) bool { return t.MatchTaint(&taintOutOfService) }

func isOutOfService(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, isTaint) }

var uuid = regexp.MustCompile("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

// bootID returns the boot id of a node, empty if there is none that can be believed (X13).
func bootID(node *corev1.Node) string {
	if node == nil || !uuid.MatchString(node.Status.NodeInfo.BootID) {
		return ""
	}
	return node.Status.NodeInfo.BootID
}

// isProven says that the node is back, and has been off: it is healthy with another boot id than when its host was reported off,
// which is on (X13). Without the record of a cycle, nobody knows which one that was.
func (d *decision) isProven() bool {
	id, isKnown := bootID(d.Node), d.is.attempt == 0 || !d.is.record.Began.IsZero() || d.is.record.BootID != ""
	return d.Healthy && isKnown && id != "" && id != d.is.record.BootID && d.isOn() && !d.Host.Requested
}

// isOn says that the host reports that it is on.
func (d *decision) isOn() bool { return d.Host != nil && d.Host.On != nil && *d.Host.On }

// settledAt returns when the node is, or was, healthy for long enough after the last cycle, and false if it is not. A node that says
// it will be healthy only in the future is so since that was seen first (X20).
func (d *decision) settledAt() (time.Time, bool) {
	if !d.Healthy || !d.HealthySince.After(d.now) {
		d.to.record.Ready = time.Time{}
	} else if d.to.record.Ready.IsZero() {
		d.to.record.Ready = d.stamp()
	}
	since := d.HealthySince
	if !d.to.record.Ready.IsZero() {
		since = d.to.record.Ready
	}
	if since.Before(d.is.record.Ended) {
		since = d.is.record.Ended
	}
	return since.Add(settledTime), d.Healthy
}

// hasRun says that the node was there for as long as a settled one has been ready, before it was unhealthy: what its host went
// through for another machine does not count for this one then (X20).
func (d *decision) hasRun() bool {
	if d.Node == nil {
		return false
	}
	until := d.now
	if ready := v1alpha1.ConditionOf(d.Node, corev1.NodeReady); ready == nil {
		return false
	} else if ready.Status != corev1.ConditionTrue && ready.LastTransitionTime.Time.Before(until) {
		until = ready.LastTransitionTime.Time
	}
	return !until.Before(d.Node.CreationTimestamp.Add(settledTime))
}

// isClean says that nothing of ours is on the node.
func (d *decision) isClean() bool {
	if d.Node == nil {
		return !d.NodeUnknown
	}
	return len(Clean(d.Node, d.is.record.Tainted)) == 0
}

// editNode adds the writes of the node: what it is to be according to what has been written on the Machine.
func (d *decision) editNode() {
	if d.Node == nil {
		return
	}
	taken := d.hasNodeRequest() && !d.isEnding() && (d.is.needs || d.taken || !d.group.AllowNodes)
	if taken && !d.group.AllowNodes {
		d.tell(true, EventRefused, "The request for a power cycle was removed from the Node, because the operators do not allow such requests on Nodes. Ask the operators.")
	}
	after := d.Node.DeepCopy()
	if taken {
		delete(after.Annotations, v1alpha1.AnnotationPowerCycle)
	}
	untainted := d.is.record.Tainted && (d.clean || !d.is.underWay() && d.isProven()) && untaint(after)
	if untainted && d.group.Validated && d.isProven() {
		v1alpha1.Taint(after, d.now) // in one write: no pod comes in between (V1)
	}
	if d.fence && !untainted {
		taint := taintOutOfService
		taint.TimeAdded = &metav1.Time{Time: d.stamp()}
		after.Spec.Taints = append(after.Spec.Taints, taint)
	}
	if taken || untainted || d.fence {
		d.WriteNode = append(d.WriteNode, intent.Write{Before: d.Node, After: after, Lock: true})
	}
	d.editCondition()
}

// editCondition shows the phase on the node (X12).
func (d *decision) editCondition() {
	if d.clean || d.is.phase == "" {
		d.WriteNode = append(d.WriteNode, Clean(d.Node, false)...)
		return
	}
	status := corev1.ConditionFalse
	if d.is.underWay() {
		status = corev1.ConditionTrue
	}
	after := d.Node.DeepCopy()
	if v1alpha1.SetCondition(after, v1alpha1.ConditionPowerCycle, status, d.is.phase, cmp.Or(d.waits, d.is.record.Wait), d.now) {
		d.WriteNode = append(d.WriteNode, intent.Write{Before: d.Node, After: after, Status: true})
	}
}
