// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// What is looked at when something changes that concerns more than one node.
var (
	OfConfig = (*Reconciler).nodesHandedOver
	OfOwner  = (*Reconciler).nodesOfMaintenances
)

// NodeChangedFor says whether a change of a node is looked at.
func NodeChangedFor(o, n *corev1.Node) bool {
	return nodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: o, ObjectNew: n})
}

// RefusedOn returns what is remembered of why pods of a node could not be evicted.
func RefusedOn(r *Reconciler, node string) []string {
	m, ok := r.memories.Load(node)
	if !ok {
		return nil
	}
	return m.(*memory).Refused
}
