// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package gardenlet stands in for gardenlet between a garden and a seed:
//
//   - it registers the Seed, and renews its Lease (that is gardenlet's own controller),
//   - it reconciles Shoots with package seed, which runs gardenlet's components, and reports to their status,
//   - it writes the conditions of Shoots, by gardenlet's own checks as far as these do not ask for components that the
//     landscape does not have.
//
// gardenlet itself would deploy an entire control plane for each Shoot, as containers.
package gardenlet

import (
	"context"
	"fmt"

	gardenletconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/gardenlet/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	seedlease "github.com/gardener/gardener/pkg/gardenlet/controller/seed/lease"
	"github.com/gardener/gardener/pkg/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

const concurrentSyncs = 5

// Options configures the stand-in.
type Options struct {
	// GardenConfig, SeedConfig and ShootConfig are those of administrators of the API servers.
	GardenConfig, SeedConfig, ShootConfig *rest.Config
	// Version is the version of Gardener, for example "v1.150.0".
	Version string
}

// Start registers the Seed and returns when Shoots can be scheduled to it. The controllers end with the context, or before
// if one fails: the channel then gets the error, and nil otherwise.
func Start(ctx context.Context, o Options) (<-chan error, error) {
	identity := gardencorev1beta1.Gardener{ID: "landscape", Name: "gardenlet", Version: o.Version}
	mgr, err := manager.New(o.GardenConfig, manager.Options{
		Scheme:     kubernetesclient.GardenScheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("could not make the manager: %w", err)
	}
	seedClient, err := client.New(o.SeedConfig, client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the seed: %w", err)
	}
	seedClientSet, err := kubernetes.NewForConfig(o.SeedConfig)
	if err != nil {
		return nil, fmt.Errorf("could not make a client set of the seed: %w", err)
	}
	shootClient, err := client.New(o.ShootConfig, client.Options{Scheme: kubernetesclient.ShootScheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the shoot: %w", err)
	}

	if err := seedlease.AddToManager(mgr, mgr, seedClientSet.RESTClient(), gardenletconfigv1alpha1.SeedControllerConfiguration{
		LeaseResyncSeconds: new(int32(2)),
	}, healthz.NewDefaultHealthz(), seedName, clock.RealClock{}, new(gardencorev1beta1.GardenerSeedLeaseNamespace)); err != nil {
		return nil, fmt.Errorf("could not add the Seed's lease controller: %w", err)
	}
	if err := (&ShootReconciler{
		Client:   mgr.GetClient(),
		Clock:    clock.RealClock{},
		Identity: identity,
		Apply: func(ctx context.Context, shoot *gardencorev1beta1.Shoot, cloudProfile *gardencorev1beta1.CloudProfile, on *gardencorev1beta1.Seed) error {
			if err := seed.ApplyGardenShoot(ctx, o.SeedConfig, shoot, cloudProfile, on); err != nil {
				return err
			}
			return seed.WaitForShoot(ctx, o.SeedConfig, shoot.Name)
		},
		Delete: func(ctx context.Context, name string) error { return seed.DeleteShoot(ctx, o.SeedConfig, name) },
	}).AddToManager(mgr); err != nil {
		return nil, fmt.Errorf("could not add the Shoot controller: %w", err)
	}
	if err := (&CareReconciler{
		Client:      mgr.GetClient(),
		SeedClient:  seedClient,
		ShootClient: shootClient,
		Clock:       clock.RealClock{},
	}).AddToManager(mgr); err != nil {
		return nil, fmt.Errorf("could not add the care controller: %w", err)
	}

	c, err := client.New(o.GardenConfig, client.Options{Scheme: kubernetesclient.GardenScheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the garden: %w", err)
	}
	if err := registerSeed(ctx, c, seedClientSet.Discovery(), identity); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- mgr.Start(ctx)
	}()
	if err := waitForSeed(ctx, c); err != nil {
		cancel()
		return nil, fmt.Errorf("%w: %w", err, <-ended)
	}
	return ended, nil
}
