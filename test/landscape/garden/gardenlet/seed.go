// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package gardenlet

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/utils/flow"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// seedName is the name of the Seed in the manifest.
const seedName = "local"

//go:embed seed.yaml
var seedManifest []byte

// registerSeed creates the Seed and reports what gardenlet reports of one that is set up.
func registerSeed(ctx context.Context, c client.Client, seedDiscovery discovery.ServerVersionInterface, identity gardencorev1beta1.Gardener) error {
	version, err := seedDiscovery.ServerVersion()
	if err != nil {
		return fmt.Errorf("could not read the version of the seed: %w", err)
	}
	seed := &gardencorev1beta1.Seed{}
	if err := yaml.UnmarshalStrict(seedManifest, seed); err != nil {
		return fmt.Errorf("could not decode the Seed: %w", err)
	}
	// gardener-apiserver does not know at once what was just created.
	if err := flow.TaskFn(func(ctx context.Context) error { return c.Create(ctx, seed) }).RetryUntilTimeout(500*time.Millisecond, 2*time.Minute)(ctx); err != nil {
		return fmt.Errorf("could not create Seed %s: %w", seed.Name, err)
	}

	patch := client.MergeFrom(seed.DeepCopy())
	seed.Status.Gardener = &identity
	seed.Status.KubernetesVersion = &version.GitVersion
	seed.Status.ObservedGeneration = seed.Generation
	seed.Status.ClusterIdentity = new("landscape-seed")
	// The landscape has the API server of one shoot.
	shoots := corev1.ResourceList{gardencorev1beta1.ResourceShoots: resource.MustParse("1")}
	seed.Status.Capacity, seed.Status.Allocatable = shoots, shoots
	seed.Status.LastOperation = &gardencorev1beta1.LastOperation{
		Type:           gardencorev1beta1.LastOperationTypeReconcile,
		State:          gardencorev1beta1.LastOperationStateSucceeded,
		Progress:       100,
		Description:    "The landscape has set up the seed.",
		LastUpdateTime: metav1.Now(),
	}
	if err := c.Status().Patch(ctx, seed, patch); err != nil {
		return fmt.Errorf("could not report the status of Seed %s: %w", seed.Name, err)
	}
	return nil
}

// waitForSeed waits until gardener-scheduler can use the Seed.
func waitForSeed(ctx context.Context, c client.Client) error {
	seed := &gardencorev1beta1.Seed{}
	if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKey{Name: seedName}, seed); err != nil {
			return false, err
		}
		ready := v1beta1helper.GetCondition(seed.Status.Conditions, gardencorev1beta1.GardenletReady)
		return ready != nil && ready.Status == gardencorev1beta1.ConditionTrue, nil
	}); err != nil {
		return fmt.Errorf("could not wait for Seed %s: %w", seedName, err)
	}
	return nil
}
