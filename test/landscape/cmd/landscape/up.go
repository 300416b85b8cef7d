// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/lock"
)

const (
	pollInterval = 200 * time.Millisecond
	// stopTimeout is more than a landscape takes that stops by itself.
	stopTimeout = 30 * time.Second
)

// up starts a process that runs the landscape, unless there is one, and waits until the landscape is ready.
func up(ctx context.Context, o *options, out io.Writer) error {
	d, err := o.directory()
	if err != nil {
		return err
	}
	command, err := lockCommand(ctx, d)
	if err != nil {
		return err
	}
	defer command.Release()

	pid, running, err := d.Owner()
	if err != nil {
		return err
	}
	if running {
		generation, err := d.Ready()
		if err != nil {
			return err
		}
		kind, err := d.Hosts()
		if err != nil {
			return err
		}
		switch {
		case generation == "":
			return fmt.Errorf("process %d runs a landscape in %s that is not ready, stop it first: make landscape-down", pid, d)
		case generation != o.mcm:
			return fmt.Errorf("a landscape with machine-controller-manager %s is up already, stop it first: make landscape-down", generation)
		case d.HasGarden() != o.garden:
			return errors.New("a landscape is up already that differs in whether there is a garden, stop it first: make landscape-down")
		case kind != o.hosts:
			return fmt.Errorf("a landscape with hosts %q is up already, stop it first: make landscape-down", kind)
		}
		fmt.Fprintln(out, "The landscape is up already.")
		tellPaths(out, d)
		return nil
	}

	start := time.Now()
	if err := startRunner(ctx, d, o, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "The landscape is up, after %s.\n", time.Since(start).Round(time.Second))
	tellPaths(out, d)
	return nil
}

// lockCommand keeps two commands from starting and stopping at the same time.
func lockCommand(ctx context.Context, d landscape.Directory) (*lock.Lock, error) {
	return lock.Acquire(ctx, filepath.Join(string(d), "command.lock"))
}

// startRunner starts the process and passes on its output until the landscape is ready.
func startRunner(ctx context.Context, d landscape.Directory, o *options, out io.Writer) error {
	if err := d.Clear(); err != nil {
		return err
	}
	if err := os.RemoveAll(d.Logs()); err != nil {
		return err
	}
	if err := os.MkdirAll(d.Logs(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(d.Log("landscape"))
	if err != nil {
		return err
	}
	defer log.Close()
	follower, err := os.Open(log.Name())
	if err != nil {
		return err
	}
	defer follower.Close()

	executable, err := os.Executable()
	if err != nil {
		return err
	}
	runner := exec.Command(executable, "run", "--dir="+string(d), "--mcm="+o.mcm, fmt.Sprintf("--garden=%t", o.garden), "--hosts="+o.hosts)
	runner.Stdout, runner.Stderr = log, log
	runner.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := runner.Start(); err != nil {
		return fmt.Errorf("could not start the landscape: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- runner.Wait() }()

	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			_, _ = io.Copy(out, follower)
			return fmt.Errorf("the landscape did not start (%w), the logs are in %s", exitError(err), d.Logs())
		case <-ctx.Done():
			_ = runner.Process.Signal(syscall.SIGTERM)
			_ = <-ended
			_, _ = io.Copy(out, follower)
			return fmt.Errorf("the start of the landscape was interrupted: %w", ctx.Err())
		case <-ticker.C:
			_, _ = io.Copy(out, follower)
			if generation, err := d.Ready(); err != nil || generation != "" {
				return err
			}
		}
	}
}

func exitError(err error) error {
	if err == nil {
		return fmt.Errorf("exit status 0")
	}
	return err
}

func tellPaths(out io.Writer, d landscape.Directory) {
	relative := func(path string) string {
		if cwd, err := os.Getwd(); err == nil {
			if shorter, err := filepath.Rel(cwd, path); err == nil && filepath.IsLocal(shorter) {
				return shorter
			}
		}
		return path
	}
	if d.HasGarden() {
		fmt.Fprintf(out, "  garden:  export KUBECONFIG=%s\n", d.GardenKubeconfig())
	}
	fmt.Fprintf(out, "  seed:    export KUBECONFIG=%s\n", d.SeedKubeconfig())
	fmt.Fprintf(out, "  shoot:   export KUBECONFIG=%s\n", d.ShootKubeconfig())
	fmt.Fprintf(out, "  kubectl: %s\n", relative(filepath.Join(d.Binaries(), "kubectl")))
	fmt.Fprintf(out, "  logs:    %s\n", relative(d.Logs()))
}

// down stops the process that runs the landscape, and with it all that belongs to the landscape.
func down(ctx context.Context, o *options, out io.Writer) error {
	d, err := o.directory()
	if err != nil {
		return err
	}
	command, err := lockCommand(ctx, d)
	if err != nil {
		return err
	}
	defer command.Release()

	pid, running, err := d.Owner()
	if err != nil {
		return err
	}
	if !running {
		fmt.Fprintln(out, "The landscape is down already.")
		return nil
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(pid, signal); err != nil {
			return fmt.Errorf("could not end process %d: %w", pid, err)
		}
		if ended, err := awaitEnd(ctx, d); err != nil {
			return err
		} else if ended {
			fmt.Fprintln(out, "The landscape is down.")
			return nil
		}
	}
	return fmt.Errorf("process %d, which runs the landscape, does not end", pid)
}

func awaitEnd(ctx context.Context, d landscape.Directory) (bool, error) {
	timeout := time.After(stopTimeout)
	for {
		_, running, err := d.Owner()
		if err != nil || !running {
			return !running, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-timeout:
			return false, nil
		case <-time.After(pollInterval):
		}
	}
}
