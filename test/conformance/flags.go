// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	flagSeedKubeconfig  = "seed-kubeconfig"
	flagShootKubeconfig = "shoot-kubeconfig"
	flagNamespace       = "namespace"
	flagPools           = "pools"
	flagReport          = "report"
)

// Flags say on which shoot the rules are tried.
type Flags struct {
	// SeedKubeconfig and ShootKubeconfig are paths of kubeconfigs.
	SeedKubeconfig, ShootKubeconfig string
	// Namespace is the shoot's control-plane namespace on the seed.
	Namespace string
	// Pools are worker pools, separated by commas; empty for all.
	Pools string
	// Report is the path of a file that the report is written to. It is optional.
	Report string
}

// AddTo adds the flags to a set.
func (f *Flags) AddTo(set *flag.FlagSet) {
	set.StringVar(&f.SeedKubeconfig, flagSeedKubeconfig, "", "path of a kubeconfig of the seed")
	set.StringVar(&f.ShootKubeconfig, flagShootKubeconfig, "", "path of a kubeconfig of the shoot")
	set.StringVar(&f.Namespace, flagNamespace, "", "control-plane namespace of the shoot on the seed, shoot--<project>--<shoot>")
	set.StringVar(&f.Pools, flagPools, "", "worker pools to run on, separated by commas; all of the shoot if empty")
	set.StringVar(&f.Report, flagReport, "", "path of a file to write the report to, in Markdown")
}

// Given says that somebody wants the suite to be run, be it with wrong values.
func Given(set *flag.FlagSet) bool {
	given := false
	set.Visit(func(f *flag.Flag) {
		given = given || slices.Contains([]string{flagSeedKubeconfig, flagShootKubeconfig, flagNamespace, flagPools, flagReport}, f.Name)
	})
	return given
}

// Environment returns the shoot that the flags name, and nothing but its APIs. The error names each flag that cannot be
// used as it is, its value, and what is valid.
func (f *Flags) Environment(ctx context.Context) (*Environment, error) {
	seedConfig, seedErr := readKubeconfig(flagSeedKubeconfig, f.SeedKubeconfig)
	shootConfig, shootErr := readKubeconfig(flagShootKubeconfig, f.ShootKubeconfig)
	if err := errors.Join(seedErr, shootErr, f.checkReport()); err != nil {
		return nil, err
	}
	seed, err := client.NewWithWatch(seedConfig, client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, invalid(flagSeedKubeconfig, f.SeedKubeconfig, "must lead to a seed: %w", err)
	}
	shoot, err := client.NewWithWatch(shootConfig, client.Options{Scheme: ShootScheme})
	if err != nil {
		return nil, invalid(flagShootKubeconfig, f.ShootKubeconfig, "must lead to a shoot: %w", err)
	}
	return f.environment(ctx, seed, shoot)
}

func (f *Flags) environment(ctx context.Context, seed, shoot client.WithWatch) (*Environment, error) {
	e := &Environment{Seed: seed, Shoot: shoot, Namespace: f.Namespace}
	if f.Namespace == "" {
		return nil, invalid(flagNamespace, f.Namespace, "must be the control-plane namespace of a shoot: shoot--<project>--<shoot>")
	}
	machines, nodes := &machinev1alpha1.MachineList{}, &corev1.NodeList{}
	if err := seed.List(ctx, machines, client.InNamespace(f.Namespace)); err != nil {
		return nil, invalid(flagSeedKubeconfig, f.SeedKubeconfig, "must lead to a seed: %w", err)
	}
	if err := shoot.List(ctx, nodes); err != nil {
		return nil, invalid(flagShootKubeconfig, f.ShootKubeconfig, "must lead to a shoot: %w", err)
	}
	pools, err := e.workerPools(ctx)
	if err != nil {
		return nil, invalid(flagNamespace, f.Namespace, "must be the control-plane namespace of a shoot, shoot--<project>--<shoot>: %w", err)
	}
	if !slices.ContainsFunc(machines.Items, func(m machinev1alpha1.Machine) bool {
		return slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == m.Labels[machinev1alpha1.NodeLabelKey] })
	}) {
		return nil, invalid(flagShootKubeconfig, f.ShootKubeconfig, "must lead to the shoot whose machines are in namespace %s: it has none of their nodes", f.Namespace)
	}

	var names []string
	for _, pool := range pools {
		names = append(names, pool.Name)
	}
	for name := range strings.SplitSeq(f.Pools, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !slices.Contains(names, name):
			return nil, invalid(flagPools, f.Pools, "names a worker pool %q that the shoot does not have, valid are %s", name, strings.Join(names, ", "))
		default:
			e.Pools = append(e.Pools, name)
		}
	}
	return e, nil
}

// checkReport tells in the beginning, and not after hours, that the report cannot be written.
func (f *Flags) checkReport() error {
	if f.Report == "" {
		return nil
	}
	file, err := os.Create(f.Report)
	if err != nil {
		return invalid(flagReport, f.Report, "must be the path of a file that can be written: %w", err)
	}
	return file.Close()
}

func readKubeconfig(name, path string) (*rest.Config, error) {
	if path == "" {
		return nil, invalid(name, path, "must be the path of a kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, invalid(name, path, "must be the path of a kubeconfig: %w", err)
	}
	config.QPS = -1 // the scenarios do not wait for each other
	return config, nil
}

func invalid(name, value, format string, args ...any) error {
	return fmt.Errorf("-%s=%q "+format, slices.Concat([]any{name, value}, args)...)
}
