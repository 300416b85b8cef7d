// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/extensions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/crds"
)

// SwitchMCM does what gardenlet does when it starts in a version that brings another machine-controller-manager: it
// replaces the custom resource definitions of the seed, then it reconciles all Shoots. It waits until no pod of the
// machine-controller-manager that was there before is left, and not for the Workers: machines that are preserved for days
// keep those from becoming ready before MCM 0.62.
func SwitchMCM(ctx context.Context, seedConfig *rest.Config, version, machineCRDDir string) error {
	c, err := client.New(unlimited(seedConfig), client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return fmt.Errorf("could not make a client of the seed: %w", err)
	}
	machines, err := crds.Machines(c, machineCRDDir)
	if err != nil {
		return err
	}
	if err := component.OpWait(machines).Deploy(ctx); err != nil {
		return fmt.Errorf("could not replace the custom resource definitions: %w", err)
	}
	if err := writeMCMVersion(ctx, c, version); err != nil {
		return err
	}
	return ReconcileShoots(ctx, seedConfig)
}

// ReconcileShoots reconciles all Shoots. It waits until no pod of the machine-controller-manager that was there before is left.
func ReconcileShoots(ctx context.Context, seedConfig *rest.Config) error {
	c, err := client.New(unlimited(seedConfig), client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return fmt.Errorf("could not make a client of the seed: %w", err)
	}
	clusters := &extensionsv1alpha1.ClusterList{}
	if err := c.List(ctx, clusters); err != nil {
		return fmt.Errorf("could not list the Clusters: %w", err)
	}
	for _, cluster := range clusters.Items {
		shoot, err := extensions.ShootFromCluster(&cluster)
		if err != nil {
			return fmt.Errorf("could not read the Shoot of Cluster %s: %w", cluster.Name, err)
		}
		o, err := newOperation(ctx, seedConfig, shoot.Name)
		if err != nil {
			return err
		}
		if err := o.reconcile(ctx); err != nil {
			return fmt.Errorf("could not reconcile Shoot %s: %w", shoot.Name, err)
		}
		if err := o.machineControllerManager(1).Wait(ctx); err != nil {
			return fmt.Errorf("could not wait for machine-controller-manager of Shoot %s: %w", shoot.Name, err)
		}
	}
	return nil
}
