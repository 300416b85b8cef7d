// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// run runs the landscape until the context ends or a component fails.
func run(ctx context.Context, o *options, out io.Writer) error {
	d, err := o.directory()
	if err != nil {
		return err
	}
	landscapeOptions := landscape.Options{Dir: string(d), MCM: o.mcm, Out: out, Garden: o.garden, Hosts: o.hosts}
	if !o.garden {
		if landscapeOptions.Shoot, err = seed.DecodeShoot(exampleShoot); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.Logs(), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(d.Log("seed-controllers"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	logger := logzap.New(logzap.WriteTo(log))
	logf.SetLogger(logger)
	klog.SetLogger(logger)

	return landscape.Run(ctx, landscapeOptions, func(ctx context.Context, _ *landscape.Landscape) error {
		<-ctx.Done()
		fmt.Fprintln(out, "Stopping the landscape")
		return nil
	})
}
