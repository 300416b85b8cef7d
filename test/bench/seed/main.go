// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The benchmark measures the extension on a seed with many shoots: a real API server with what Gardener creates for each
// shoot there, as large as it is on real seeds, and the extension as a process of its own. It prints what it has measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

const (
	// shootsVariable is the environment variable with the number of shoots.
	shootsVariable = "BENCH_SHOOTS"
	defaultShoots  = 500
)

func main() { landscape.Main("benchmark", run) }

func run(ctx context.Context) (err error) {
	shoots := defaultShoots
	if value := os.Getenv(shootsVariable); value != "" {
		if shoots, err = strconv.Atoi(value); err != nil || shoots < 1 {
			return fmt.Errorf("invalid value %q of %s, valid is a number from 1", value, shootsVariable)
		}
	}

	started := time.Now()
	s, err := startSeed(ctx, filepath.Join(landscape.DefaultDir, "bench-seed"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()

	rows, err := measure(ctx, s, shoots)
	if err != nil {
		return fmt.Errorf("%w, the logs are in %s", err, s.logs())
	}
	load, err := averageLoad()
	if err != nil {
		return err
	}
	fmt.Printf("\n%d shoots, %d MachineDeployments, %s on %d cores with an average load of %.0f\n\n",
		shoots, shoots*poolsPerShoot, time.Since(started).Round(time.Second), runtime.NumCPU(), load)
	return printTable(os.Stdout, rows)
}

// averageLoad returns how many processes wanted to run at a time, in the last quarter of an hour.
func averageLoad() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return 0, err
	}
	return load.Load15, nil
}
