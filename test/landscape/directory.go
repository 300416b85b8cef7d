// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/lock"
)

// Directory is where a landscape keeps its files.
type Directory string

// SeedKubeconfig is the path of the kubeconfig of the seed.
func (d Directory) SeedKubeconfig() string { return d.path("seed.kubeconfig") }

// ShootKubeconfig is the path of the kubeconfig of the shoot.
func (d Directory) ShootKubeconfig() string { return d.path("shoot.kubeconfig") }

// GardenKubeconfig is the path of the kubeconfig of the garden, if there is one.
func (d Directory) GardenKubeconfig() string { return d.path("garden.kubeconfig") }

// HasGarden returns whether the landscape that runs has a garden.
func (d Directory) HasGarden() bool {
	_, err := os.Stat(d.GardenKubeconfig())
	return err == nil
}

// Hosts returns the kind of hosts of the landscape that runs, empty for none.
func (d Directory) Hosts() (string, error) { return readIfExists(d.hostsFile()) }

// Binaries is the directory with the project's commands and kubectl.
func (d Directory) Binaries() string { return d.path("bin") }

// Logs is the directory with the logs.
func (d Directory) Logs() string { return d.path("log") }

// Log is the path of the log of a component.
func (d Directory) Log(component string) string { return d.path("log", component+".log") }

// Owner returns the id of the process that runs the landscape, and whether there is one.
func (d Directory) Owner() (int, bool, error) {
	held, err := lock.Held(d.pidFile())
	if err != nil || !held {
		return 0, false, err
	}
	content, err := os.ReadFile(d.pidFile())
	if err != nil {
		return 0, false, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, false, fmt.Errorf("could not read the process id in %s: %w", d.pidFile(), err)
	}
	return pid, true, nil
}

// Ready returns the generation of machine-controller-manager of a landscape that runs and is ready, else nothing.
func (d Directory) Ready() (string, error) {
	return readIfExists(d.readyFile())
}

func readIfExists(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

func (d Directory) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

func (d Directory) pidFile() string   { return d.path("landscape.pid") }
func (d Directory) readyFile() string { return d.path("ready") }
func (d Directory) hostsFile() string { return d.data("hosts") }
func (d Directory) data(elements ...string) string {
	return d.path(append([]string{"data"}, elements...)...)
}

// own takes the directory for this process.
func (d Directory) own(ctx context.Context) (*lock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	owned, err := lock.Acquire(ctx, d.pidFile())
	if err != nil {
		return nil, fmt.Errorf("another landscape runs in %s: %w", d, err)
	}
	if err := os.WriteFile(d.pidFile(), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		owned.Release()
		return nil, err
	}
	return owned, nil
}

// Clear deletes what is of no use without a running landscape.
func (d Directory) Clear() error {
	var errs []error
	for _, path := range []string{d.readyFile(), d.GardenKubeconfig(), d.SeedKubeconfig(), d.ShootKubeconfig(), d.data(), d.path("pods")} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
