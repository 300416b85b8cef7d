// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// End sets everything back that is under way in a shoot that is to do without maintenances: nodes are uncordoned which a
// maintenance has cordoned and machine-controller-manager does not empty, annotations and conditions of it removed, finalizers dropped, and the objects are Pending, or
// gone if they were deleted. No controller may be at work at the same time. The client's scheme and mapper must know the API
// of maintenances; a shoot that does not is done after its nodes. It returns the errors of all objects, which do not keep
// others waiting: some are left then, and it may be called again.
func End(ctx context.Context, c client.Client, now time.Time) error {
	// Nodes come first: a finalizer is what is left of the record that there is something to undo on its own node.
	nodesErr := shoot.EndEach(ctx, c, &corev1.NodeList{}, func(obj client.Object) ([]intent.Write, error) {
		return cleanNode(obj.(*corev1.Node)), nil
	})
	return errors.Join(nodesErr, shoot.EndEach(ctx, c, &v1alpha1.NodeMaintenanceList{}, func(obj client.Object) ([]intent.Write, error) {
		nm := obj.(*v1alpha1.NodeMaintenance)
		if nodesErr != nil {
			if err := isSetBack(ctx, c, nm.Spec.NodeName); err != nil {
				return nil, err
			}
		}
		return maintenance.CleanMaintenance(nm, now), nil
	}))
}

// isSetBack returns an error if a node is not set back, or nobody knows.
func isSetBack(ctx context.Context, c client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, executor.Timeout)
	defer cancel()
	node, err := shoot.ReadNode(ctx, c, name)
	if err == nil && node != nil && len(maintenance.Clean(node)) > 0 {
		return fmt.Errorf("node %s is not set back yet", name)
	}
	return err
}

func cleanNode(node *corev1.Node) []intent.Write {
	if !maintenance.IsMarked(node) {
		return nil
	}
	return maintenance.Clean(node)
}
