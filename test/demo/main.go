// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The demo starts the local landscape, breaks machines, and shows what happens to them. With DEMO_EXIT=1 it ends automatically, with
// status 0 only if it saw every step happen in the API. RECORD is a directory for a record of what Prometheus would see meanwhile, for the
// pictures of the dashboards in the documentation: the rules as rules.yaml, and each scrape as <job>/<milliseconds since 1970>.prom.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

var (
	//go:embed shoot.yaml
	shootManifest []byte
	//go:embed shoot-pictures.yaml
	picturesShootManifest []byte
)

func main() { landscape.Main("demo", run) }

func run(ctx context.Context) error {
	generation := cmp.Or(os.Getenv("MCM"), landscape.DefaultMCM)
	name := cmp.Or(os.Getenv("STORY"), "preservation")
	story, ok := stories[name]
	if !ok {
		return fmt.Errorf("there is no story STORY=%q: valid are %s", name, strings.Join(slices.Sorted(maps.Keys(stories)), ", "))
	}
	landscape.Say("Starting a seed and a shoot with machine-controller-manager %s.", generation)
	landscape.Say("Everything runs on this machine. The first start builds everything, which takes a while.")
	return landscape.Run(ctx, landscape.Options{Dir: landscape.DefaultDir, MCM: generation, Out: os.Stdout}, func(ctx context.Context, l *landscape.Landscape) error {
		d, err := newDemo(l, story.shoot)
		if err != nil {
			return err
		}
		go d.table.run(ctx)
		play := func(ctx context.Context) error { return d.play(ctx, story) }
		if dir := os.Getenv("RECORD"); dir != "" {
			r := &recorder{dir: dir, seed: d.seed, namespace: d.namespace, extension: l.ExtensionMetrics}
			err = r.record(ctx, play)
		} else {
			err = play(ctx)
		}
		if err != nil {
			return err
		}
		d.leave(ctx)
		return nil
	})
}

// leave tells what else can be done with the landscape, and leaves it up until the context ends.
func (d *demo) leave(ctx context.Context) {
	l := d.landscape
	landscape.Say("All steps were seen to happen.")
	if os.Getenv("DEMO_EXIT") != "" {
		return
	}
	fmt.Printf(`
The landscape stays up until you press Ctrl-C. Look around in another terminal:

  export PATH=$PWD/%[1]s:$PATH
  kubectl --kubeconfig %[2]s -n %[3]s get machinedeployments,machines
  kubectl --kubeconfig %[2]s -n %[3]s get events.events.k8s.io
  kubectl --kubeconfig %[4]s get nodes
  kubectl --kubeconfig %[4]s annotate node <node> node.machine.sapcloud.io/preserve=now

Break a machine, and let it recover:

  kubectl --kubeconfig %[2]s -n %[5]s annotate pod machine-<machine> landscape.machine-preservation/failure=kubelet-dead
  kubectl --kubeconfig %[2]s -n %[5]s annotate pod machine-<machine> landscape.machine-preservation/failure-

Logs are in %[6]s.
`, relative(l.Directory.Binaries()), relative(l.Directory.SeedKubeconfig()), d.namespace, relative(l.Directory.ShootKubeconfig()),
		seed.MachineNamespace(d.shoot.Name), relative(l.Directory.Logs()))
	<-ctx.Done()
}

func newDemo(l *landscape.Landscape, manifest []byte) (*demo, error) {
	shoot, err := seed.DecodeShoot(manifest)
	if err != nil {
		return nil, err
	}
	seedClient, err := client.New(l.Seed.Config, client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, err
	}
	shootClient, err := client.New(l.Shoot.Config, client.Options{Scheme: kubernetesclient.ShootScheme})
	if err != nil {
		return nil, err
	}
	namespace := seed.ControlPlaneNamespace(shoot.Name)
	return &demo{
		landscape:  l,
		seedConfig: l.Seed.Config,
		seed:       seedClient,
		target:     shootClient,
		namespace:  namespace,
		shoot:      shoot,
		table:      &table{seed: seedClient, namespace: namespace},
	}, nil
}
