// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package share says what is set for worker pools and by whom, and how much of it falls to each zone. It is pure.
package share

import (
	"cmp"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Pool is all of a worker pool that its settings and their distribution depend on. It is the same whether read from the
// Shoot or from the Worker.
type Pool struct {
	// Name is the name of the pool.
	Name string
	// Maximum is the greatest number of machines of the pool.
	Maximum int32
	// SystemComponents says whether the pool may run system components.
	SystemComponents bool
	// Zones are the zones of the pool in their order.
	Zones []string
	// AutoPreserveFailedMax and MachinePreserveTimeout are what the Shoot's own field sets, nil where it sets nothing.
	AutoPreserveFailedMax  *int32
	MachinePreserveTimeout *metav1.Duration
	// MachineDrainTimeout is after which time machine-controller-manager deletes all pods of a node by force, nil where the
	// Shoot leaves that to Gardener.
	MachineDrainTimeout *metav1.Duration
	// NodeConditions are the types of the node conditions that make a machine unhealthy, empty where the Shoot leaves that to Gardener.
	NodeConditions []string
}

// Limit returns the greatest valid autoPreserveFailedMax of the pool. Where system components may run, one machine is
// left for them.
func (p Pool) Limit() int32 {
	if p.SystemComponents {
		return max(p.Maximum-1, 0)
	}
	return p.Maximum
}

// PoolsOfShoot returns the worker pools of a Shoot in their order.
func PoolsOfShoot(workers []gardencorev1beta1.Worker) []Pool {
	pools := make([]Pool, 0, len(workers))
	for i := range workers {
		worker := &workers[i]
		own := ptr.Deref(worker.MachineControllerManagerSettings, gardencorev1beta1.MachineControllerManagerSettings{})
		pools = append(pools, Pool{
			Name:                   worker.Name,
			Maximum:                worker.Maximum,
			SystemComponents:       v1beta1helper.SystemComponentsAllowed(worker),
			Zones:                  worker.Zones,
			AutoPreserveFailedMax:  own.AutoPreserveFailedMachineMax,
			MachinePreserveTimeout: own.MachinePreserveTimeout,
			MachineDrainTimeout:    own.MachineDrainTimeout,
			NodeConditions:         own.NodeConditions,
		})
	}
	return pools
}

// PoolsOfWorker returns the worker pools of a Worker resource in their order.
func PoolsOfWorker(worker *extensionsv1alpha1.Worker) []Pool {
	pools := make([]Pool, 0, len(worker.Spec.Pools))
	for i := range worker.Spec.Pools {
		pool := &worker.Spec.Pools[i]
		own := ptr.Deref(pool.MachineControllerManagerSettings, gardencorev1beta1.MachineControllerManagerSettings{})
		pools = append(pools, Pool{
			Name:                   pool.Name,
			Maximum:                pool.Maximum,
			SystemComponents:       pool.Labels[v1beta1constants.LabelWorkerPoolSystemComponents] == "true",
			Zones:                  pool.Zones,
			AutoPreserveFailedMax:  own.AutoPreserveFailedMachineMax,
			MachinePreserveTimeout: own.MachinePreserveTimeout,
			MachineDrainTimeout:    own.MachineDrainTimeout,
			NodeConditions:         own.NodeConditions,
		})
	}
	return pools
}

// PoolOf returns the name of the worker pool that a MachineDeployment belongs to, empty if it belongs to none. Gardener
// labels the MachineDeployment (extensions/pkg/controller/worker/genericactuator), but with an empty value if the provider
// extension does not tell it the pool, and older versions do not at all. Its nodes are always labelled, through its
// template.
func PoolOf(deployment *machinev1alpha1.MachineDeployment) string {
	return cmp.Or(
		deployment.Labels[v1beta1constants.LabelWorkerPool],
		deployment.Spec.Template.Spec.NodeTemplateSpec.Labels[v1beta1constants.LabelWorkerPool],
	)
}

// ZoneOf returns the zone of the machines of a MachineClass, empty if it names none.
func ZoneOf(class *machinev1alpha1.MachineClass) string {
	if class.NodeTemplate == nil {
		return ""
	}
	return class.NodeTemplate.Zone
}
