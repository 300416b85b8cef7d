// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// preserveValueAutoPreserved is what machine-controller-manager >= 0.62 writes on a Machine for its own
// auto-preservation. It is nobody's request.
const preserveValueAutoPreserved = "auto-preserved"

// Request is what a person asked for one machine.
type Request struct {
	// Value is RequestNow, RequestWhenFailed or RequestFalse; empty if nothing valid is asked for (R1, R3).
	Value string
	// Invalid is the value as written if it is not a valid one (R3).
	Invalid string
	// OnNode says that the Node carries the request and not the Machine (R2).
	OnNode bool
	// Timeout overrides the pool's timeout; 0 if there is none or an invalid one (R5).
	Timeout time.Duration
	// InvalidTimeout is the timeout as written if it is not a valid one (R5).
	InvalidTimeout string
}

// explicit says that a person wants the machine preserved, now or when it fails.
func (r Request) explicit() bool {
	return r.Value == v1alpha1.RequestNow || r.Value == v1alpha1.RequestWhenFailed
}

// RequestOf returns the request for a machine. The Node's annotation, when its key is present, beats the Machine's
// (R2). While the Node cannot be read, the value that was last synced from it stands in for it (P9).
func RequestOf(m Member) Request {
	var (
		request     = Request{}
		annotations = m.Machine.Annotations
		value       = annotations[v1alpha1.AnnotationPreserve]
	)

	if m.Node != nil {
		if nodeValue, ok := m.Node.Annotations[v1alpha1.AnnotationPreserve]; ok {
			request.OnNode, value, annotations = true, nodeValue, m.Node.Annotations
		}
	} else if m.NodeUnknown {
		if lastApplied := annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]; lastApplied != "" {
			request.OnNode, value = true, lastApplied
		}
	}

	// The hold of machine-controller-manager >= 0.62 occupies the annotation: what the person wrote is kept aside. An
	// empty one was on the Machine: it says nothing about a Node's "now".
	if original, ok := m.Machine.Annotations[v1alpha1.AnnotationRequest]; ok && value == v1alpha1.RequestNow && !(request.OnNode && original == "") {
		value = original
	}

	switch value {
	case v1alpha1.RequestNow, v1alpha1.RequestTrue:
		request.Value = v1alpha1.RequestNow
	case v1alpha1.RequestWhenFailed, v1alpha1.RequestFalse:
		request.Value = value
	case "", preserveValueAutoPreserved:
	default:
		request.Invalid = value
	}

	if value, ok := annotations[v1alpha1.AnnotationTimeout]; ok {
		if timeout, err := time.ParseDuration(value); err == nil && timeout > 0 {
			request.Timeout = timeout
		} else {
			request.InvalidTimeout = value
		}
	}

	return request
}
