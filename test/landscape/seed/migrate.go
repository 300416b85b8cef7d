// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/flow"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	"github.com/gardener/gardener/pkg/utils/gardener/shootstate"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// mcmFinalizers are those of machine-controller-manager and of the machine controllers of providers.
var mcmFinalizers = []string{"machine.sapcloud.io/machine-controller-manager", "machine.sapcloud.io/machine-controller"}

// MigrateShoot does with a Shoot what two gardenlets do when it is moved to another seed, but both seeds are this one:
// the control plane is given up with its namespace, and restored from the ShootState. The machines and their Nodes
// stay. It does not wait for the Worker to be restored. WaitForShoot does, and must have before the next migration.
func MigrateShoot(ctx context.Context, seedConfig *rest.Config, shootName string) error {
	o, err := newOperation(ctx, seedConfig, shootName)
	if err != nil {
		return err
	}
	if o.shoot == nil {
		return fmt.Errorf("there is no Shoot %s", shootName)
	}
	if err := o.migrate(ctx); err != nil {
		return err
	}
	setLastOperation(o.shoot, gardencorev1beta1.LastOperationTypeRestore, gardencorev1beta1.LastOperationStateProcessing)
	return o.reconcile(ctx)
}

// migrate gives the control plane up. The ShootState is what is left of it.
func (o *operation) migrate(ctx context.Context) error {
	setLastOperation(o.shoot, gardencorev1beta1.LastOperationTypeMigrate, gardencorev1beta1.LastOperationStateProcessing)
	return o.run(ctx,
		step{"write the Cluster", o.syncCluster},
		step{"delete Gardener's ManagedResources without their objects", o.releaseManagedResources},
		step{"delete machine-controller-manager while the Extensions are migrated", flow.Parallel(
			component.OpDestroyAndWait(o.machineControllerManager(0)).Destroy,
			flow.Sequential(o.extensions().MigrateBeforeKubeAPIServer, o.extensions().WaitMigrateBeforeKubeAPIServer),
		)},
		step{"migrate the Worker", o.worker(nil).Migrate},
		step{"wait for the migration of the Worker", o.worker(nil).WaitMigrate},
		step{"write the ShootState", o.writeShootState},
		step{"delete the Worker", o.worker(nil).Destroy},
		step{"wait for the end of the Worker", o.worker(nil).WaitCleanup},
		step{"delete the machine resources without the machines", o.shallowDeleteMachineResources},
		step{"wait for the end of the machine resources", func(ctx context.Context) error {
			return gardenerutils.WaitUntilMachineResourcesDeleted(ctx, o.log, o.client, o.namespace)
		}},
		step{"delete the Extensions", o.extensions().Destroy},
		step{"wait for the end of the Extensions", o.extensions().WaitCleanup},
		step{"wait for the end of all ManagedResources", o.waitForManagedResources},
		step{"delete the control-plane namespace", func(ctx context.Context) error { return o.deleteNamespaces(ctx, o.namespace) }},
		step{"delete the Cluster", o.deleteCluster},
	)
}

// writeShootState takes the state out of the seed, into a garden that has nothing else.
func (o *operation) writeShootState(ctx context.Context) error {
	garden := fakeclient.NewClientBuilder().WithScheme(kubernetesclient.GardenScheme).Build()
	if err := shootstate.Deploy(ctx, clock.RealClock{}, garden, o.client, o.shoot, o.namespace, false); err != nil {
		return err
	}
	o.shootState = &gardencorev1beta1.ShootState{}
	return garden.Get(ctx, client.ObjectKeyFromObject(o.shoot), o.shootState)
}

// releaseManagedResources deletes the ManagedResources of Gardener itself. Their objects stay in the shoot.
func (o *operation) releaseManagedResources(ctx context.Context) error {
	ofGardener := client.MatchingLabels{managedresources.LabelKeyOrigin: managedresources.LabelValueGardener}
	list := &resourcesv1alpha1.ManagedResourceList{}
	if err := o.client.List(ctx, list, client.InNamespace(o.namespace), ofGardener); err != nil {
		return err
	}
	for _, managedResource := range list.Items {
		if err := managedresources.SetKeepObjects(ctx, o.client, o.namespace, managedResource.Name, true); err != nil {
			return err
		}
		if err := kubernetesutils.DeleteObject(ctx, o.client, &managedResource); err != nil {
			return err
		}
	}
	return managedresources.WaitUntilListDeleted(ctx, o.client, list, client.InNamespace(o.namespace), ofGardener)
}

// shallowDeleteMachineResources deletes what machine-controller-manager works on, so that the machines themselves stay.
func (o *operation) shallowDeleteMachineResources(ctx context.Context) error {
	secretsFor := func(purpose string) []client.ListOption {
		return []client.ListOption{client.MatchingLabels{v1beta1constants.GardenerPurpose: purpose}}
	}
	for _, kind := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{list: &machinev1alpha1.MachineList{}},
		{list: &machinev1alpha1.MachineSetList{}},
		{list: &machinev1alpha1.MachineDeploymentList{}},
		{list: &machinev1alpha1.MachineClassList{}},
		{list: &corev1.SecretList{}, options: secretsFor(v1beta1constants.GardenPurposeMachineClass)},
		{list: &corev1.SecretList{}, options: secretsFor(v1beta1constants.SecretNameCloudProvider)},
	} {
		if err := o.client.List(ctx, kind.list, append(kind.options, client.InNamespace(o.namespace))...); err != nil {
			return err
		}
		if err := meta.EachListItem(kind.list, func(item runtime.Object) error {
			object := item.(client.Object)
			if err := controllerutils.RemoveFinalizers(ctx, o.client, object, mcmFinalizers...); err != nil {
				return err
			}
			return kubernetesutils.DeleteObject(ctx, o.client, object)
		}); err != nil {
			return err
		}
	}
	return nil
}
