// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failuredrain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// StartController starts a manager with all controllers of the sidecar. If stopAt is not nil, it stops itself there.
func StartController(ctx context.Context, s *Server, holder domain.Holder, timeouts facts.Timeouts, stopAt *Write) *environment.Running {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(cancel)
	limited := rest.CopyConfig(s.Config)
	limited.QPS, limited.Burst = 100, 200
	return run(ctx, s, Options{
		Seed:  limited,
		Shoot: limited,
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.New(config, options)
			if err != nil || stopAt == nil {
				return c, err
			}
			stopAt.Client, stopAt.stop = c, cancel
			return stopAt, nil
		},
	}, func(_ context.Context, m *Manager) {
		Expect((&preservation.Reconciler{Holder: holder, MaxTimeout: v1alpha1.DefaultMaxMachinePreserveTimeout, Timeouts: timeouts}).AddToManager(m, m.Nodes)).To(Succeed())
		Expect((&failuredrain.Reconciler{Timeouts: timeouts}).AddToManager(m, m.Nodes, m.Pods)).To(Succeed())
	})
}

// Write is a client that stops its controller at one of its writes.
type Write struct {
	client.Client
	// Number is that of the write, After says that it is made before the controller stops.
	Number int32
	After  bool

	stop  context.CancelFunc
	count atomic.Int32
}

func (w *Write) do(ctx context.Context, patch func(context.Context) error) error {
	number := w.count.Add(1)
	switch {
	case number == w.Number && w.After:
		err := patch(context.WithoutCancel(ctx))
		w.stop()
		return err
	case number == w.Number:
		w.stop()
	}
	return patch(ctx)
}

// Patch implements client.Client.
func (w *Write) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.do(ctx, func(ctx context.Context) error { return w.Client.Patch(ctx, obj, patch, opts...) })
}

// Status implements client.Client.
func (w *Write) Status() client.SubResourceWriter {
	return statusWrite{SubResourceWriter: w.Client.Status(), write: w}
}

type statusWrite struct {
	client.SubResourceWriter
	write *Write
}

// Patch implements client.SubResourceWriter.
func (w statusWrite) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.write.do(ctx, func(ctx context.Context) error { return w.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}
