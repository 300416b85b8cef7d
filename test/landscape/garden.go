// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/garden"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/garden/gardenlet"
)

const gardenerPath = "github.com/gardener/gardener"

// startGarden starts a garden whose Shoots are reconciled in the seed. It waits until Shoots can be created.
func (l *Landscape) startGarden(ctx context.Context, paths map[string]string) error {
	gardener, err := binaries.Source(ctx, binaries.Gardener, gardenerPath)
	if err != nil {
		return err
	}
	checkout, err := binaries.Checkout(ctx)
	if err != nil {
		return err
	}

	d := l.Directory
	l.Garden, err = cluster.StartAPIServer(ctx, cluster.APIServerOptions{
		Name:                     "garden",
		Path:                     paths["kube-apiserver"],
		Etcd:                     l.etcd,
		Dir:                      d.data("garden"),
		Kubeconfig:               d.GardenKubeconfig(),
		LogFile:                  d.Log("garden-kube-apiserver"),
		WithoutControllerManager: true,
		Aggregation:              true,
	})
	if err != nil {
		return err
	}
	l.supervise(l.Garden.Process)
	if err := l.superviseStarted(garden.StartAPIServer(ctx, garden.APIServerOptions{
		Path:    paths["gardener-apiserver"],
		Etcd:    l.etcd,
		Garden:  l.Garden,
		Dir:     d.data("gardener-apiserver"),
		LogFile: d.Log("gardener-apiserver"),
	})); err != nil {
		return err
	}

	component := func(name string) garden.ComponentOptions {
		return garden.ComponentOptions{Path: paths[name], Garden: l.Garden, Dir: d.data(), LogFile: d.Log(name)}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return l.superviseStarted(garden.StartControllerManager(groupCtx, component("gardener-controller-manager")))
	})
	group.Go(func() error {
		return l.superviseStarted(garden.StartScheduler(groupCtx, component("gardener-scheduler")))
	})
	group.Go(func() error { return garden.Deploy(groupCtx, l.Garden.Config, checkout) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := l.superviseStarted(garden.StartAdmission(ctx, garden.AdmissionOptions{
		Path:    paths[garden.Admission],
		Garden:  l.Garden,
		Runtime: l.Seed,
		Dir:     d.data(garden.Admission),
		LogFile: d.Log(garden.Admission),
	})); err != nil {
		return err
	}
	return l.runControllers(ctx, "the stand-in for gardenlet", func(ctx context.Context) (<-chan error, error) {
		return gardenlet.Start(ctx, gardenlet.Options{
			GardenConfig: l.Garden.Config,
			SeedConfig:   l.Seed.Config,
			ShootConfig:  l.Shoot.Config,
			Version:      gardener.Version,
		})
	})
}
