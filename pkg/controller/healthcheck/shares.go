// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"
	"strings"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// Shares checks that each MachineDeployment has the share that falls to it.
type Shares struct {
	// Reader should be backed by a cache.
	Reader client.Reader
	// Planner determines the shares.
	Planner *controlplane.Planner
	// Schemas tells whether shares have native fields.
	Schemas *machinecrd.Schemas
}

// Check returns which MachineDeployments have not their share, and why. Those of a pool that was removed need none.
func (s *Shares) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	extension, err := controlplane.FindExtension(ctx, s.Reader, namespace)
	if err != nil {
		return nil, err
	}
	if extension == nil {
		return healthy(), nil
	}
	workers := &extensionsv1alpha1.WorkerList{}
	if err := s.Reader.List(ctx, workers, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list Workers: %w", err)
	}
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := s.Reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	nativeFields, err := s.Schemas.MachineDeploymentsCanPreserve(ctx)
	if err != nil {
		return nil, err
	}

	var (
		problems []string
		known    = sets.New[string]()
		pools    = sets.New[string]()
	)
	for i := range workers.Items {
		poolsOfWorker := share.PoolsOfWorker(&workers.Items[i])
		for _, pool := range poolsOfWorker {
			pools.Insert(pool.Name)
		}
		config, err := providerconfig.ReadExtension(extension, poolsOfWorker)
		if err != nil {
			awaits, awaitsErr := controlplane.AwaitsWorker(ctx, s.Reader, extension)
			if awaitsErr != nil {
				return nil, awaitsErr
			}
			if awaits {
				return progressing("the shares are not updated yet, because the Worker does not have the worker pools of the Shoot yet: " + err.Error()), nil
			}
			return unhealthy("the shares are not updated, because the configuration is not valid: "+err.Error(), gardencorev1beta1.ErrorConfigurationProblem), nil
		}
		shares, unplaced, err := s.Planner.Shares(ctx, &workers.Items[i], config, deployments.Items)
		if err != nil {
			return nil, err
		}
		for _, u := range unplaced {
			known.Insert(u.Deployment)
			problems = append(problems, fmt.Sprintf("MachineDeployment %q gets no share: %s", u.Deployment, u.Reason))
		}
		for j := range deployments.Items {
			deployment := &deployments.Items[j]
			settings, ok := shares[deployment.Name]
			if !ok {
				continue
			}
			known.Insert(deployment.Name)
			if share.Apply(deployment.DeepCopy(), settings, nativeFields, 0) {
				problems = append(problems, fmt.Sprintf("MachineDeployment %q does not have its share yet", deployment.Name))
			}
		}
	}
	named := sets.New[string]()
	for i := range deployments.Items {
		named.Insert(share.PoolOf(&deployments.Items[i]))
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		pool := share.PoolOf(deployment)
		// Gardener deletes those of a pool that was removed only when all others are available, however long that takes. Where a pool has none
		// at all, that may be this one's, by another name.
		isRemoved := pool != "" && pools.Len() > 0 && !pools.Has(pool) && named.IsSuperset(pools)
		if deployment.DeletionTimestamp == nil && !isRemoved && !known.Has(deployment.Name) {
			problems = append(problems, fmt.Sprintf("MachineDeployment %q gets no share: there is no worker pool %q or no MachineClass %q",
				deployment.Name, pool, deployment.Spec.Template.Spec.Class.Name))
		}
	}
	if len(problems) > 0 {
		return progressing(strings.Join(problems, "; ")), nil
	}
	return healthy(), nil
}
