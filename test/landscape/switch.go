// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// SwitchMCM moves the landscape to another generation of machine-controller-manager, as another version of Gardener
// does: the custom resource definitions of the seed are replaced, and then each Shoot is reconciled. It returns when
// the pods of machine-controller-manager have been replaced. The new ones do nothing then before they have got the
// leases of the old ones, which takes up to 20 seconds.
func (l *Landscape) SwitchMCM(ctx context.Context, generation string) error {
	if err := ValidateMCM(generation); err != nil {
		return err
	}
	paths, err := binaries.Ensure(ctx, l.out, mcmModules[generation])
	if err != nil {
		return err
	}
	mcm, err := binaries.Source(ctx, mcmModules[generation], mcmPath)
	if err != nil {
		return err
	}

	fmt.Fprintf(l.out, "Switching to machine-controller-manager %s\n", mcm.Version)
	all := maps.Clone(*l.binaries.Load())
	maps.Copy(all, paths)
	l.binaries.Store(&all)
	if err := seed.SwitchMCM(ctx, l.Seed.Config, mcm.Version, machineCRDDir(mcm)); err != nil {
		return fmt.Errorf("could not switch to machine-controller-manager %s: %w, the logs are in %s", mcm.Version, err, l.Directory.Logs())
	}
	return os.WriteFile(l.Directory.readyFile(), []byte(generation), 0o644)
}

// Upgrade replaces the earlier version of this project by this one, as the rollout of its chart does, and has each Shoot reconciled, as
// gardenlet does in the next maintenance time window. It returns when the pods of machine-controller-manager have been replaced.
func (l *Landscape) Upgrade(ctx context.Context) error {
	if l.release == nil {
		return errors.New("no earlier version runs")
	}
	own, err := binaries.EnsureProject(ctx, l.out, l.Directory.Binaries())
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "Upgrading from %s\n", l.release.Version)
	l.release = nil
	if err := l.extension.Stop(ctx); err != nil {
		return err
	}
	all := maps.Clone(*l.binaries.Load())
	maps.Copy(all, own)
	l.binaries.Store(&all)
	if err := l.startExtension(ctx, own[extension]); err != nil {
		return err
	}
	return seed.ReconcileShoots(ctx, l.Seed.Config)
}
