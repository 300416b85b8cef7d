// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package landscape runs what a shoot's control plane consists of, on one machine and without containers.
package landscape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/lock"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

const (
	// DefaultDir is the directory of the landscape that `make landscape-up` starts.
	DefaultDir = ".landscape"
	// DefaultMCM is the generation of machine-controller-manager that runs unless another one is asked for.
	DefaultMCM = "0.62"

	startTimeout = 10 * time.Minute
	// processStopTimeout is the time that each process has to end by itself. Nothing is lost when it is killed.
	processStopTimeout     = 3 * time.Second
	controllersStopTimeout = 20 * time.Second
)

const mcmPath = "github.com/gardener/machine-controller-manager"

// mcmModules maps generations of machine-controller-manager to their tools modules.
var mcmModules = map[string]string{
	"0.61": binaries.MCM061,
	"0.62": binaries.MCM062,
}

// Options are the options of a landscape.
type Options struct {
	// Dir is the directory for all files of the landscape.
	Dir string
	// MCM is the generation of machine-controller-manager.
	MCM string
	// Out takes messages about the progress of the start.
	Out io.Writer
	// Shoot is applied when everything else is up, and its machines are waited for. It is optional.
	Shoot *gardencorev1beta1.Shoot
	// Garden adds a garden, in which Shoots can be created.
	Garden bool
	// Hosts is the kind of hosts that machines run on, one of package hosts. Empty for none.
	Hosts string
	// MaxMachineHours is how many machine-hours of a month machines are preserved for, 0 for any number.
	MaxMachineHours int
	// WithoutSidecar leaves the preservation controller out of the Deployment of machine-controller-manager.
	WithoutSidecar bool
	// Revision is what git knows an earlier version of this project by that runs until Upgrade. Empty for this one.
	Revision string
}

// Landscape is a running landscape.
type Landscape struct {
	// Directory is where its files are.
	Directory Directory
	// Seed is the cluster of Gardener's and of the shoot's control plane.
	Seed *cluster.APIServer
	// Shoot is the cluster of the machines.
	Shoot *cluster.APIServer
	// Garden is the cluster of Gardener's own resources. It is optional.
	Garden *cluster.APIServer
	// ExtensionMetrics is the URL of the metrics of the extension.
	ExtensionMetrics string

	etcd *cluster.Etcd
	lock *lock.Lock
	out  io.Writer
	// binaries are what the containers of new pods are started with, by the name of the image.
	binaries atomic.Pointer[map[string]string]
	options  Options
	// extension is the process of the extension, and release the earlier version of it, if it is one.
	extension *process.Process
	release   *binaries.Release
	// config are the fields of the component configuration that Reconfigure has set.
	config map[string]any
	// failed gives the error of the first component that ended by itself.
	failed chan error
	// abortStart ends a start that is under way.
	abortStart context.CancelFunc

	mutex sync.Mutex
	// stops are in the order of the starts.
	stops []func(context.Context) error
}

// ValidateMCM returns an error that names the valid generations if the given one is none of them.
func ValidateMCM(generation string) error {
	if _, ok := mcmModules[generation]; !ok {
		return fmt.Errorf("invalid generation %q of machine-controller-manager, valid are: %s",
			generation, strings.Join(slices.Sorted(maps.Keys(mcmModules)), ", "))
	}
	return nil
}

// EnsureBinaries builds all that landscapes of any generation need. The project's own commands are not part of it, since
// they change.
func EnsureBinaries(ctx context.Context, out io.Writer) error {
	_, err := binaries.Ensure(ctx, out, slices.Concat(
		[]string{binaries.Etcd, binaries.Gardener, binaries.Kubernetes, binaries.Kwok}, slices.Sorted(maps.Values(mcmModules)))...)
	return err
}

// Start starts a landscape and waits until it is ready. What it needs is built before. All that it started ends with
// Stop, with an error of Start, or with this process.
func Start(ctx context.Context, o Options) (*Landscape, error) {
	if err := ValidateMCM(o.MCM); err != nil {
		return nil, err
	}
	if err := hosts.Validate(o.Hosts); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Landscape{Directory: Directory(dir), options: o, out: o.Out, failed: make(chan error, 1)}
	if l.lock, err = l.Directory.own(ctx); err != nil {
		return nil, err
	}
	if err := l.start(ctx, o); err != nil {
		select {
		case failure := <-l.failed:
			err = failure // all else follows from it
		default:
		}
		return nil, errors.Join(err, l.Stop(context.WithoutCancel(ctx)))
	}
	return l, nil
}

func (l *Landscape) start(ctx context.Context, o Options) error {
	if err := l.Directory.Clear(); err != nil {
		return err
	}
	paths, err := l.ensureBinaries(ctx, o)
	if err != nil {
		return err
	}

	ctx, l.abortStart = context.WithTimeout(ctx, startTimeout)
	defer l.abortStart()
	fmt.Fprintln(o.Out, "Starting the clusters")
	if err := l.startClusters(ctx, paths); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, "Starting the controllers of the seed")
	l.binaries.Store(&paths)
	if err := l.startSeed(ctx, o); err != nil {
		return err
	}
	if err := l.startHosts(ctx, o.Hosts, paths); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, "Starting the extension")
	if err := l.startExtension(ctx, paths[extension]); err != nil {
		return err
	}
	if o.Garden {
		fmt.Fprintln(o.Out, "Starting the garden")
		if err := l.startGarden(ctx, paths); err != nil {
			return err
		}
	}
	if o.Shoot != nil {
		fmt.Fprintf(o.Out, "Starting the machines of Shoot %s\n", o.Shoot.Name)
		if err := l.applyShoot(ctx, o.Shoot); err != nil {
			return fmt.Errorf("could not apply Shoot %s: %w, the logs are in %s", o.Shoot.Name, err, l.Directory.Logs())
		}
	}
	return os.WriteFile(l.Directory.readyFile(), []byte(o.MCM), 0o644)
}

func (l *Landscape) ensureBinaries(ctx context.Context, o Options) (map[string]string, error) {
	modules := []string{binaries.Etcd, binaries.Kubernetes, binaries.Kwok, mcmModules[o.MCM]}
	if o.Garden {
		modules = append(modules, binaries.Gardener)
	}
	if operator, ok := metalOperators[o.Hosts]; ok {
		modules = append(modules, operator)
	}
	paths, err := binaries.Ensure(ctx, o.Out, modules...)
	if err != nil {
		return nil, err
	}
	own, err := binaries.EnsureProject(ctx, o.Out, l.Directory.Binaries())
	if err != nil {
		return nil, err
	}
	if o.Revision != "" {
		if l.release, err = binaries.EnsureRelease(ctx, o.Out, l.Directory.data("release"), o.Revision, string(charts.Extension)); err != nil {
			return nil, err
		}
		own = l.release.Commands
	}
	maps.Copy(paths, own)

	kubectl := filepath.Join(l.Directory.Binaries(), "kubectl")
	if err := os.RemoveAll(kubectl); err != nil {
		return nil, err
	}
	return paths, os.Symlink(paths["kubectl"], kubectl)
}

// startClusters starts the seed and the shoot in parallel, and the components of the shoot as soon as it is up.
func (l *Landscape) startClusters(ctx context.Context, paths map[string]string) error {
	d := l.Directory
	etcd, err := cluster.StartEtcd(ctx, paths["etcd"], d.data("etcd"), d.Log("etcd"))
	if err != nil {
		return err
	}
	l.supervise(etcd.Process)
	l.etcd = etcd

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		l.Seed, err = cluster.StartAPIServer(ctx, cluster.APIServerOptions{
			Name:                     "seed",
			Path:                     paths["kube-apiserver"],
			Etcd:                     etcd,
			Dir:                      d.data("seed"),
			Kubeconfig:               d.SeedKubeconfig(),
			LogFile:                  d.Log("seed-kube-apiserver"),
			WithoutControllerManager: true,
		})
		if err != nil {
			return err
		}
		l.supervise(l.Seed.Process)
		return nil
	})
	group.Go(func() (err error) {
		l.Shoot, err = cluster.StartAPIServer(ctx, cluster.APIServerOptions{
			Name:       "shoot",
			Path:       paths["kube-apiserver"],
			Etcd:       etcd,
			Dir:        d.data("shoot"),
			Kubeconfig: d.ShootKubeconfig(),
			LogFile:    d.Log("shoot-kube-apiserver"),
		})
		if err != nil {
			return err
		}
		l.supervise(l.Shoot.Process)

		group.Go(func() error {
			return l.superviseStarted(l.Shoot.StartControllerManager(ctx, paths["kube-controller-manager"], d.Log("kube-controller-manager")))
		})
		group.Go(func() error {
			return l.superviseStarted(l.Shoot.StartScheduler(ctx, paths["kube-scheduler"], d.Log("kube-scheduler")))
		})
		return l.superviseStarted(kwok.Start(paths["kwok"], d.ShootKubeconfig(), d.data(), d.Log("kwok")))
	})
	return group.Wait()
}

// startSeed starts the controllers that Gardener and the machines consist of. They run in this process.
func (l *Landscape) startSeed(ctx context.Context, o Options) error {
	mcm, err := binaries.Source(ctx, mcmModules[o.MCM], mcmPath)
	if err != nil {
		return err
	}
	crds, addHosts, err := l.hosts(ctx, o.Hosts)
	if err != nil {
		return err
	}
	return l.runControllers(ctx, "the controllers of the seed", func(ctx context.Context) (<-chan error, error) {
		return seed.Start(ctx, seed.Options{
			SeedConfig:    l.Seed.Config,
			ShootConfig:   l.Shoot.Config,
			MCMVersion:    mcm.Version,
			MachineCRDDir: machineCRDDir(mcm),
			LogDir:        l.Directory.Logs(),
			CRDs:          crds,
			AddToManager: append([]func(manager.Manager) error{
				func(mgr manager.Manager) error {
					return podrunner.AddToManager(mgr, podrunner.Options{
						Dir:      string(l.Directory),
						Binaries: func() map[string]string { return *l.binaries.Load() },
					})
				},
				func(mgr manager.Manager) error { return simulator.AddToManager(mgr, l.Shoot.Config) },
			}, addHosts...),
		})
	})
}

// runControllers starts controllers in this process. They end with the landscape.
func (l *Landscape) runControllers(ctx context.Context, name string, start func(context.Context) (<-chan error, error)) error {
	// The controllers live as long as the landscape, while the given context is that of the start.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	ended, err := start(running)
	if err != nil {
		cancel()
		return fmt.Errorf("could not start %s: %w", name, err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		err := <-ended
		if running.Err() == nil {
			l.fail(fmt.Errorf("%s ended: %w", name, err))
		}
	}()
	l.onStop(func(ctx context.Context) error {
		cancel()
		ctx, cancelWait := context.WithTimeout(ctx, controllersStopTimeout)
		defer cancelWait()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s did not end: %w", name, ctx.Err())
		}
	})
	return nil
}

func machineCRDDir(mcm binaries.Module) string { return filepath.Join(mcm.Dir, "kubernetes", "crds") }

func (l *Landscape) applyShoot(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	if err := seed.ApplyShoot(ctx, l.Seed.Config, shoot); err != nil {
		return err
	}
	return seed.WaitForShoot(ctx, l.Seed.Config, shoot.Name)
}

// superviseStarted takes the results of a start as they are.
func (l *Landscape) superviseStarted(p *process.Process, err error) error {
	if err == nil {
		l.supervise(p)
	}
	return err
}

// supervise reports the end of the process, and ends it with the landscape.
func (l *Landscape) supervise(p *process.Process) {
	l.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, processStopTimeout)
		defer cancel()
		return p.Stop(ctx)
	})
	go func() {
		<-p.Done()
		l.fail(p.Err())
	}()
}

func (l *Landscape) onStop(stop func(context.Context) error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.stops = append(l.stops, stop)
}

func (l *Landscape) fail(err error) {
	if err == nil {
		return
	}
	select {
	case l.failed <- err:
	default: // only the first failure is of interest
	}
	l.abortStart()
}

// Stop ends all that belongs to the landscape, in the opposite order of the starts. Only the logs are left.
func (l *Landscape) Stop(ctx context.Context) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	errs := []error{os.RemoveAll(l.Directory.readyFile())}
	for _, stop := range slices.Backward(l.stops) {
		errs = append(errs, stop(ctx))
	}
	l.stops = nil
	errs = append(errs, l.Directory.Clear())
	l.lock.Release()
	return errors.Join(errs...)
}
