// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// exampleShoot is the Shoot of a new landscape.
//
//go:embed shoot.yaml
var exampleShoot []byte

// apply creates or updates a Shoot, and waits for its machines.
func apply(ctx context.Context, o *options, file string, out io.Writer) error {
	logf.SetLogger(logr.Discard())
	d, err := o.directory()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	shoot, err := seed.DecodeShoot(manifest)
	if err != nil {
		return err
	}
	if generation, err := d.Ready(); err != nil || generation == "" {
		return fmt.Errorf("no landscape is up in %s, start it first: make landscape-up", d)
	}
	if d.HasGarden() {
		return fmt.Errorf("the landscape has a garden, apply the Shoot there: kubectl --kubeconfig %s apply -f %s", d.GardenKubeconfig(), file)
	}
	config, err := clientcmd.BuildConfigFromFlags("", d.SeedKubeconfig())
	if err != nil {
		return err
	}
	if err := seed.ApplyShoot(ctx, config, shoot); err != nil {
		return err
	}
	fmt.Fprintf(out, "Applied Shoot %s, waiting for its machines\n", shoot.Name)
	if err := seed.WaitForShoot(ctx, config, shoot.Name); err != nil {
		return err
	}
	fmt.Fprintf(out, "Shoot %s is ready, its control plane is in namespace %s of the seed.\n", shoot.Name, seed.ControlPlaneNamespace(shoot.Name))
	return nil
}
