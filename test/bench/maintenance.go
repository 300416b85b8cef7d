// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// measureMaintenances measures what it takes that the nodes of machines are under maintenance, all at the same time.
func (m *measurement) measureMaintenances(ctx context.Context, machines []machinev1alpha1.Machine) error {
	landscape.Say("%d nodes get under maintenance", len(machines))
	// As gardenlet asks for the reconciliation of what it has changed.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"providerConfig":{"apiVersion":%q,"kind":"MachinePreservationConfig","nodeMaintenance":{"maxParallelOperations":0}}}}`,
		v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile, v1alpha1.SchemeGroupVersion)
	extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: extensionType, Namespace: m.namespace}}
	if err := m.seed.Patch(ctx, extension, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("could not allow node maintenances: %w", err)
	}
	if err := until(ctx, "the sidecar looks after node maintenances", patience, m.hasMaintenances); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := maintenancev1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	config := *m.landscape.Shoot.Config
	config.QPS = -1
	shoot, err := client.New(&config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}

	started := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, machine := range machines {
		group.Go(func() error {
			return shoot.Create(groupCtx, &maintenancev1alpha1.NodeMaintenance{
				ObjectMeta: metav1.ObjectMeta{Name: machine.Name, Namespace: metav1.NamespaceDefault},
				Spec: maintenancev1alpha1.NodeMaintenanceSpec{
					RequestorID: "bench.example.org",
					NodeName:    nodeOf(&machine),
					DrainSpec:   &maintenancev1alpha1.DrainSpec{},
				},
			})
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("could not ask for a node: %w", err)
	}
	if err := until(ctx, "all nodes are Ready for maintenance", patience, func(ctx context.Context) (bool, error) {
		list := &maintenancev1alpha1.NodeMaintenanceList{}
		err := shoot.List(ctx, list)
		return !slices.ContainsFunc(list.Items, func(nm maintenancev1alpha1.NodeMaintenance) bool {
			return !meta.IsStatusConditionTrue(nm.Status.Conditions, maintenancev1alpha1.ConditionReady)
		}), err
	}); err != nil {
		return err
	}
	m.maintenances.count, m.maintenances.took = len(machines), time.Since(started)
	if err := pause(ctx, idlePeriod); err != nil {
		return err
	}
	if err := m.measureMemory(&m.maintenances.memory); err != nil {
		return err
	}
	for _, name := range m.containers() {
		landscape.Say("%s: resident, of which anonymous: %s", name, m.maintenances.memory[name])
	}
	return nil
}

// hasMaintenances says whether all pods of machine-controller-manager are such whose sidecar looks after node maintenances.
func (b *bench) hasMaintenances(ctx context.Context) (bool, error) {
	deployment := &appsv1.Deployment{}
	if err := b.seed.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}, deployment); err != nil {
		return false, err
	}
	injected := slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, preservationcontroller.FlagNodeMaintenance)
	})
	status := deployment.Status
	return injected && status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas == 1 && status.AvailableReplicas == 1 && status.Replicas == 1, nil
}
