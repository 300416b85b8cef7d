// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Main runs a program until it ends or is interrupted, and ends this process if it fails.
func Main(name string, run func(context.Context) error) {
	// The components log to files of their own.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintf(os.Stderr, "\nThe %s was interrupted: %v\n", name, err)
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "\nThe %s failed: %v\n", name, err)
		os.Exit(1)
	}
}

// Run starts a landscape, calls a function that uses it, and stops it. The context of the function ends when the landscape fails, which is
// an error of Run.
func Run(ctx context.Context, o Options, use func(context.Context, *Landscape) error) (err error) {
	l, err := Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop(context.WithoutCancel(ctx))) }() // also if the function panics
	watched := l.Watch(ctx)
	err = use(watched, l)
	if ctx.Err() == nil && watched.Err() != nil {
		err = errors.Join(err, context.Cause(watched))
	}
	return err
}

// Watch returns a context that ends with the landscape: when it is stopped, or the first component ends by itself, which is the cause then.
func (l *Landscape) Watch(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	l.onStop(func(context.Context) error {
		cancel(nil)
		return nil
	})
	go func() {
		select {
		case err := <-l.failed:
			cancel(fmt.Errorf("the landscape failed: %w", err))
		case <-ctx.Done():
		}
	}()
	return ctx
}

// Say prints a line with the time.
func Say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}
