// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Pool is what a worker pool contributes to the validation.
type Pool struct {
	// Name is the name of the pool.
	Name string
	// Maximum is the greatest number of machines of the pool.
	Maximum int32
	// SystemComponents says whether the pool may run system components.
	SystemComponents bool
	// OwnNumber says whether the Shoot's own field sets how many failed machines of the pool are kept. The number for all
	// pools does not count then.
	OwnNumber bool
}

// Limit returns the greatest valid autoPreserveFailedMax of the pool. Where system components may run, one machine is
// left for them.
func (p Pool) Limit() int32 {
	if p.SystemComponents {
		return max(p.Maximum-1, 0)
	}
	return p.Maximum
}

// PoolsOfShoot returns the worker pools of a Shoot.
func PoolsOfShoot(workers []gardencorev1beta1.Worker) []Pool {
	pools := make([]Pool, 0, len(workers))
	for _, worker := range workers {
		pools = append(pools, Pool{
			Name:             worker.Name,
			Maximum:          worker.Maximum,
			SystemComponents: v1beta1helper.SystemComponentsAllowed(&worker),
			OwnNumber:        hasNumber(worker.MachineControllerManagerSettings),
		})
	}
	return pools
}

// PoolOfWorker returns a worker pool of a Worker resource.
func PoolOfWorker(pool *extensionsv1alpha1.WorkerPool) Pool {
	return Pool{
		Name:             pool.Name,
		Maximum:          pool.Maximum,
		SystemComponents: pool.Labels[v1beta1constants.LabelWorkerPoolSystemComponents] == "true",
		OwnNumber:        hasNumber(pool.MachineControllerManagerSettings),
	}
}

func hasNumber(settings *gardencorev1beta1.MachineControllerManagerSettings) bool {
	return settings != nil && settings.AutoPreserveFailedMachineMax != nil
}

// PoolsOfWorker returns the worker pools of a Worker resource.
func PoolsOfWorker(worker *extensionsv1alpha1.Worker) []Pool {
	pools := make([]Pool, 0, len(worker.Spec.Pools))
	for i := range worker.Spec.Pools {
		pools = append(pools, PoolOfWorker(&worker.Spec.Pools[i]))
	}
	return pools
}
