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
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

//go:embed shoot.yaml
var shootManifest []byte

func main() {
	// The components log to files of their own.
	logf.SetLogger(logr.Discard())
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Usage: pictures DIRECTORY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) (err error) {
	shoot, err := seed.DecodeShoot(shootManifest)
	if err != nil {
		return err
	}
	l, err := landscape.Start(ctx, landscape.Options{
		Dir: filepath.Join(dir, "landscape"),
		MCM: landscape.DefaultMCM,
		Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop(context.WithoutCancel(ctx))) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-l.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()

	s, err := newStory(l, shoot)
	if err != nil {
		return err
	}
	r := &recorder{dir: dir, seed: s.seed, namespace: s.namespace, extension: l.ExtensionMetrics}
	recorded, stopRecording := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := r.run(recorded)
		if err != nil {
			cancel(err)
		}
		ended <- err
	}()
	err = s.play(ctx)
	stopRecording()
	return errors.Join(err, <-ended, r.rules(ctx))
}
