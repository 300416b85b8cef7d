// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The benchmark measures what the preservation of machines costs and how fast it is, in a shoot with many machines: first
// with the sidecar, then on another landscape with what machine-controller-manager does by itself. It prints both side by
// side, and ends with status 0 only if the sidecar meets all goals.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

const (
	// machinesVariable is the environment variable with the number of machines.
	machinesVariable = "BENCH_MACHINES"
	defaultMachines  = 1000
	minMachines      = 50
)

func main() { landscape.Main("benchmark", run) }

func run(ctx context.Context) (err error) {
	machines := defaultMachines
	if value := os.Getenv(machinesVariable); value != "" {
		if machines, err = strconv.Atoi(value); err != nil || machines < minMachines {
			return fmt.Errorf("invalid value %q of %s, valid is a number from %d", value, machinesVariable, minMachines)
		}
	}

	started := time.Now()
	var measured [2]*results
	for i, sidecar := range []bool{true, false} {
		if measured[i], err = measureOn(ctx, sidecar, machines); err != nil {
			return err
		}
	}

	fmt.Printf("\n%d machines, %s\n\n", machines, time.Since(started).Round(time.Second))
	rows := compare(measured[0], measured[1])
	if err := printTable(os.Stdout, rows); err != nil {
		return err
	}
	if !allMet(rows) {
		return errors.New("not all goals are met")
	}
	return nil
}

// measureOn takes all measures on a landscape with a Shoot that has the few machines that the provider creates.
func measureOn(ctx context.Context, sidecar bool, machines int) (measured *results, err error) {
	shoot, err := shootFor(sidecar, machines)
	if err != nil {
		return nil, err
	}
	name := "machine-controller-manager"
	if sidecar {
		name = "sidecar"
	}
	fmt.Println()
	landscape.Say("A landscape on which machines are preserved by: %s", name)
	err = landscape.Run(ctx, landscape.Options{
		Dir:            filepath.Join(landscape.DefaultDir, "bench", name),
		MCM:            "0.62",
		Out:            os.Stdout,
		Shoot:          shoot,
		WithoutSidecar: !sidecar,
	}, func(ctx context.Context, l *landscape.Landscape) (err error) {
		b := &bench{
			landscape: l,
			sidecar:   sidecar,
			machines:  machines,
			shootName: shoot.Name,
			namespace: seed.ControlPlaneNamespace(shoot.Name),
		}
		if err := b.watch(ctx); err != nil {
			return err
		}
		if measured, err = b.measure(ctx); err != nil {
			return fmt.Errorf("%w, the logs are in %s", err, l.Directory.Logs())
		}
		return nil
	})
	return measured, err
}
