// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RequestFor returns the request of a controller of nodes for the node of that name.
func RequestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: node}}
}

// RequestsForNode maps a node to its request.
func RequestsForNode(_ context.Context, node *corev1.Node) []reconcile.Request {
	return []reconcile.Request{RequestFor(node.Name)}
}

// RequestsForMachine maps a Machine to the request for its node, if it has one.
func RequestsForMachine(_ context.Context, machine client.Object) []reconcile.Request {
	if node := machine.GetLabels()[machinev1alpha1.NodeLabelKey]; node != "" {
		return []reconcile.Request{RequestFor(node)}
	}
	return nil
}
