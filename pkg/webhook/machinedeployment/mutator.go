// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinedeployment

import (
	"context"
	"fmt"
	"slices"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// NewMutator returns a mutator that writes into a MachineDeployment what the worker controller would, so that a write of
// the provider extension does not take it away for a moment.
func NewMutator(planner *controlplane.Planner, schemas *machinecrd.Schemas) extensionswebhook.Mutator {
	return &mutator{planner: planner, schemas: schemas}
}

type mutator struct {
	planner *controlplane.Planner
	schemas *machinecrd.Schemas
}

// Mutate writes the share of a MachineDeployment. As long as it cannot be determined, for example because the
// configuration is not valid or a cache lags behind, the share stays what it was; the worker controller follows up.
func (m *mutator) Mutate(ctx context.Context, newObj, oldObj client.Object) error {
	deployment, ok := newObj.(*machinev1alpha1.MachineDeployment)
	if !ok {
		return fmt.Errorf("unexpected type %T", newObj)
	}
	if deployment.DeletionTimestamp != nil {
		return nil
	}

	extension, err := controlplane.FindExtension(ctx, m.planner.Reader, deployment.Namespace)
	if err != nil || extension == nil {
		return err
	}
	nativeFields, err := m.schemas.MachineDeploymentsCanPreserve(ctx)
	if err != nil {
		return err
	}

	settings, ok, err := m.share(ctx, extension, deployment)
	if err != nil {
		logf.FromContext(ctx).Info("Share cannot be determined, it stays what it is", "machineDeployment", client.ObjectKeyFromObject(deployment), "reason", err.Error())
	}
	var nativeMax int32 // what the worker controller has made of it, whatever the provider writes
	if old, isDeployment := oldObj.(*machinev1alpha1.MachineDeployment); isDeployment {
		nativeMax = old.Spec.AutoPreserveFailedMachineMax
		if !ok {
			settings, ok = share.Of(old)
		}
	}
	if ok {
		share.Apply(deployment, settings, nativeFields, nativeMax)
	}
	return nil
}

// share returns false if none can be determined.
func (m *mutator) share(ctx context.Context, extension *extensionsv1alpha1.Extension, deployment *machinev1alpha1.MachineDeployment) (share.Settings, bool, error) {
	workers := &extensionsv1alpha1.WorkerList{}
	if err := m.planner.Reader.List(ctx, workers, client.InNamespace(deployment.Namespace)); err != nil {
		return share.Settings{}, false, fmt.Errorf("failed to list Workers: %w", err)
	}
	pool := share.PoolOf(deployment)
	index := slices.IndexFunc(workers.Items, func(w extensionsv1alpha1.Worker) bool {
		return slices.ContainsFunc(w.Spec.Pools, func(p extensionsv1alpha1.WorkerPool) bool { return p.Name == pool })
	})
	if index < 0 {
		return share.Settings{}, false, nil
	}

	config, err := providerconfig.ReadExtension(extension, share.PoolsOfWorker(&workers.Items[index]))
	if err != nil {
		return share.Settings{}, false, err
	}

	// The others count because no share may be handed out twice.
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := m.planner.Reader.List(ctx, deployments, client.InNamespace(deployment.Namespace)); err != nil {
		return share.Settings{}, false, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	all := slices.DeleteFunc(deployments.Items, func(d machinev1alpha1.MachineDeployment) bool { return d.Name == deployment.Name })
	all = append(all, *deployment)

	shares, _, err := m.planner.Shares(ctx, &workers.Items[index], config, all)
	settings, ok := shares[deployment.Name]
	return settings, ok, err
}
