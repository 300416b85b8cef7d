// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// ValueAutoPreserved is what machine-controller-manager >= 0.62 writes on a Machine for its own
// auto-preservation. It is nobody's request.
const ValueAutoPreserved = "auto-preserved"

// requestInvalid stands for any invalid request of a Node on its Machine: nothing else of what a Node says gets there (P14).
const requestInvalid = "invalid"

// Request is what a person asked for one machine.
type Request struct {
	// Value is RequestNow, RequestWhenFailed or RequestFalse; empty if nothing valid is asked for (R1, R3).
	Value string
	// Invalid is the value as written if it is not a valid one (R3).
	Invalid string
	// Spent is a valid value on the Node that is used up and could not be deleted there. It asks for nothing any more.
	Spent string
	// OnNode says that the Node carries the request and not the Machine (R2).
	OnNode bool
	// Templated says that the request on the Node is that of the pool's own annotations: machine-controller-manager puts it
	// back as often as somebody changes it there.
	Templated bool
	// Timeout overrides the pool's timeout; 0 if there is none or an invalid one (R5, P13).
	Timeout time.Duration
	// InvalidTimeout is the timeout as written if it is not a valid one (R5).
	InvalidTimeout string
}

// explicit says that a person wants the machine preserved, now or when it fails.
func (r Request) explicit() bool {
	return r.Value == v1alpha1.RequestNow || r.Value == v1alpha1.RequestWhenFailed
}

// RequestOf returns the request for a machine. The Node's annotation, when its key is present, beats the Machine's
// (R2). While the Node cannot be read, the value that was last synced from it stands in for it (P9). No timeout is valid
// that is longer than maxTimeout.
func RequestOf(m facts.Member, maxTimeout time.Duration) Request {
	var (
		request     = Request{}
		annotations = m.Machine.Annotations
		value       = annotations[v1alpha1.AnnotationPreserve]
	)

	if m.Node != nil {
		template, templated := pools(m.Machine)
		if nodeValue, ok := m.Node.Annotations[v1alpha1.AnnotationPreserve]; ok || templated {
			request.OnNode, request.Templated, value, annotations = true, templated, nodeValue, m.Node.Annotations
		}
		if templated {
			value = template
		}
	} else if m.NodeUnknown {
		if lastApplied := annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]; lastApplied != "" {
			request.OnNode, value = true, lastApplied
			_, request.Templated = pools(m.Machine)
		}
	}

	if original, ok := setAside(m.Machine, request.OnNode); ok && value == v1alpha1.RequestNow {
		value = original
	}
	if onNode := m.Node != nil && isTaken(m.Machine, true); !request.OnNode && (onNode || isTaken(m.Machine, false)) {
		request.OnNode, value = onNode, v1alpha1.RequestFalse
	}

	switch {
	case value == v1alpha1.RequestTrue:
		request.Value = v1alpha1.RequestNow
	case isRequest(value):
		request.Value = value
	case value == ValueAutoPreserved && !request.OnNode:
	default:
		request.Invalid = value
	}
	if request.OnNode && request.explicit() && request.Value == ReadNotes(m.Machine).Spent.Request {
		request.Value, request.Spent = "", request.Value
	}

	if value, ok := annotations[v1alpha1.AnnotationTimeout]; ok {
		if timeout, err := time.ParseDuration(value); err == nil && timeout >= v1alpha1.MinMachinePreserveTimeout && timeout <= maxTimeout {
			request.Timeout = timeout
		} else {
			request.InvalidTimeout = value
		}
	}

	return request
}

// isRequest says that a value is a valid one, or asks for nothing (R1, R2).
func isRequest(value string) bool {
	switch value {
	case v1alpha1.RequestNow, v1alpha1.RequestTrue, v1alpha1.RequestWhenFailed, v1alpha1.RequestFalse, "":
		return true
	}
	return false
}

// pools returns the request in the annotations of the machine's pool, and whether there is one.
func pools(machine *machinev1alpha1.Machine) (string, bool) {
	request, ok := machine.Spec.NodeTemplateSpec.Annotations[v1alpha1.AnnotationPreserve]
	return request, ok
}

// nodeValue returns the request that is on the Node, or is put there by machine-controller-manager as soon as it looks.
func (d *Decision) nodeValue() string {
	if request, ok := pools(d.Machine); ok {
		return request
	}
	return d.Node.Annotations[v1alpha1.AnnotationPreserve]
}

// forged says that the Node carries what machine-controller-manager >= 0.62 writes on Machines only. It would hold the
// machine because of that once it is Failed, whatever the share (P14).
func (d *Decision) forged() bool {
	return d.Node != nil && d.nodeValue() == ValueAutoPreserved
}

// mayBeForged says that the Node carries that, or did when it could be read last.
func (d *Decision) mayBeForged() bool {
	return d.forged() || d.NodeUnknown && d.Request.OnNode && d.Request.Invalid != ""
}

// forgedFailed says that what is forged is in the way, and can be deleted: before, it means nothing, and comes back if it is
// in the pool's annotations.
func (d *Decision) forgedFailed() bool {
	return d.forged() && d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
}

// stays says that what is on the Node is not to be changed there, or cannot be.
func (d *Decision) stays() bool { return d.Request.Templated || d.Request.Spent != "" || d.forged() }

// The hold of machine-controller-manager >= 0.62 occupies the annotation on the object that carries the request. What the
// person wrote there is set aside on the Machine.

const (
	onNode    = "Node:"
	onMachine = "Machine:"
)

func carrier(node bool) string {
	if node {
		return onNode
	}
	return onMachine
}

// setAside returns what was set aside for a request on the Node or on the Machine, and whether something was. It is worth
// nothing any more if the pool asks for the very value that the hold has put on the Node.
func setAside(machine *machinev1alpha1.Machine, node bool) (string, bool) {
	if request, _ := pools(machine); node && request == v1alpha1.RequestNow {
		return "", false
	}
	return strings.CutPrefix(ReadNotes(machine).SetAside, carrier(node))
}

// isTaken says that machine-controller-manager has removed the annotation in whose place there was false: it takes the hold
// for a request that is used up (R4). What is on the Machine since says nothing of the Node.
func isTaken(machine *machinev1alpha1.Machine, node bool) bool {
	original, ok := setAside(machine, node)
	_, annotated := machine.Annotations[v1alpha1.AnnotationPreserve]
	return ok && original == v1alpha1.RequestFalse && isStopped(machine) && (node || !annotated)
}

// restoreOnMachine puts back what was set aside for a request on the Machine, unless the person wrote anew since.
func restoreOnMachine(machine *machinev1alpha1.Machine) {
	if original, ok := setAside(machine, false); ok {
		if machine.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.RequestNow || isTaken(machine, false) {
			setOrDelete(machine, v1alpha1.AnnotationPreserve, original)
		}
		note(machine, func(n *Notes) { n.SetAside = "" })
	}
}

// restoreOnNode puts back what was set aside for a request on the Node, unless the person wrote anew since.
func restoreOnNode(machine *machinev1alpha1.Machine, node *corev1.Node) {
	original, ok := setAside(machine, true)
	value, there := node.Annotations[v1alpha1.AnnotationPreserve]
	if ok && (value == v1alpha1.RequestNow || !there && isTaken(machine, true)) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationPreserve, original)
	}
}
