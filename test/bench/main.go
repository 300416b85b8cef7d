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
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// machinesVariable is the environment variable with the number of machines.
	machinesVariable = "BENCH_MACHINES"
	defaultMachines  = 1000
	minMachines      = 50
)

func main() {
	// The components log to files of their own.
	logf.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	met, err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Println("\nThe benchmark was interrupted.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\nThe benchmark failed:", err)
		os.Exit(1)
	case !met:
		fmt.Fprintln(os.Stderr, "\nNot all goals are met.")
		os.Exit(1)
	}
}

func run(ctx context.Context) (met bool, err error) {
	machines := defaultMachines
	if value := os.Getenv(machinesVariable); value != "" {
		if machines, err = strconv.Atoi(value); err != nil || machines < minMachines {
			return false, fmt.Errorf("invalid value %q of %s, valid is a number from %d", value, machinesVariable, minMachines)
		}
	}

	started := time.Now()
	var measured [2]*results
	for i, sidecar := range []bool{true, false} {
		if measured[i], err = measureOn(ctx, sidecar, machines); err != nil {
			return false, err
		}
	}

	fmt.Printf("\n%d machines, %s\n\n", machines, time.Since(started).Round(time.Second))
	rows := compare(measured[0], measured[1])
	return allMet(rows), printTable(os.Stdout, rows)
}

// measureOn starts a landscape, takes all measures on it, and stops it.
func measureOn(ctx context.Context, sidecar bool, machines int) (measured *results, err error) {
	b, err := start(ctx, sidecar, machines)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.landscape.Stop(context.WithoutCancel(ctx))) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-b.landscape.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	if measured, err = b.measure(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return nil, fmt.Errorf("%w, the logs are in %s", err, b.landscape.Directory.Logs())
	}
	return measured, nil
}

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}
