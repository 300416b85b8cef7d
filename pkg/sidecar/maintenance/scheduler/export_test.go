// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// What the tests look at beside the exported names.
var (
	Slots   = slots
	ByPhase = maintenancesByPhase
)

// NodeChangedFor says whether a change of a node is looked at.
func NodeChangedFor(o, n *corev1.Node) bool {
	return nodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: o, ObjectNew: n})
}
