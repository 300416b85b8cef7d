// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Pictures records what Prometheus would see of the local landscape while machines fail there, for the pictures of the
// dashboards in the documentation. The first argument is the directory for the record: the rules as rules.yaml, and each
// scrape as <job>/<milliseconds since 1970>.prom.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

//go:embed shoot.yaml
var shootManifest []byte

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Usage: pictures DIRECTORY")
		os.Exit(2)
	}
	landscape.Main("recording", func(ctx context.Context) error { return run(ctx, os.Args[1]) })
}

func run(ctx context.Context, dir string) error {
	shoot, err := seed.DecodeShoot(shootManifest)
	if err != nil {
		return err
	}
	return landscape.Run(ctx, landscape.Options{
		Dir: filepath.Join(dir, "landscape"),
		MCM: landscape.DefaultMCM,
		Out: os.Stdout,
	}, func(ctx context.Context, l *landscape.Landscape) error {
		s, err := newStory(l, shoot)
		if err != nil {
			return err
		}
		r := &recorder{dir: dir, seed: s.seed, namespace: s.namespace, extension: l.ExtensionMetrics}
		return r.record(ctx, s.play)
	})
}
