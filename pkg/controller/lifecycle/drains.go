// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// leaveDrains removes from the nodes of a shoot that goes on without this extension the conditions that show drains (D11, D13), those of
// nodes that are being updated in place as well. Nodes of a shoot that never had them are not looked at: the sidecar removes all when that
// is switched off.
func (a *Actuator) leaveDrains(ctx context.Context, ex *extensionsv1alpha1.Extension, cluster *gardencorev1beta1.Shoot) error {
	// With what is not valid, the sidecar shows nothing.
	conditions, conditionsErr := providerconfig.ReadDrainConditions(ex)
	strategies, strategiesErr := providerconfig.ReadDrainStrategies(ex)
	if shows := conditionsErr == nil && conditions || strategiesErr == nil && strategies != nil; !shows || !hasServer(cluster) {
		return nil
	}
	c, err := a.ShootClient(ctx, ex.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	if err != nil { // without the access secret nothing was shown, or all was removed
		return nil
	}
	if err := shoot.EndEach(ctx, c, &corev1.NodeList{}, func(obj client.Object) ([]intent.Write, error) {
		after := obj.DeepCopyObject().(*corev1.Node)
		drain.ClearAll(after)
		v1alpha1.RemoveCondition(after, v1alpha1.ConditionNodeDrain)
		return []intent.Write{{Before: obj, After: after, Status: true, Lock: true}}, nil
	}); err != nil {
		return fmt.Errorf("failed to remove the conditions of drains from the nodes: %w", err)
	}
	return nil
}
