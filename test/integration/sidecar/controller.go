// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failuredrain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// Controller is the sidecar as it runs, but for its leader election.
type Controller struct {
	cancel context.CancelFunc
	// Stopped is closed when nothing of it runs any more.
	Stopped chan struct{}
}

// Stop stops the controller and waits until nothing of it runs any more.
func (c *Controller) Stop() {
	c.cancel()
	<-c.Stopped
}

// StartController starts a manager with all controllers of the sidecar. If stopAt is not nil, it stops itself there.
func StartController(ctx context.Context, s *Server, holder domain.Holder, timeouts facts.Timeouts, stopAt *Write) *Controller {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	limited := rest.CopyConfig(s.Config)
	limited.QPS, limited.Burst = 100, 200

	mgr, err := manager.New(limited, manager.Options{
		Scheme:     s.Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{builder.Namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.New(config, options)
			if err != nil || stopAt == nil {
				return c, err
			}
			stopAt.Client, stopAt.stop = c, cancel
			return stopAt, nil
		},
	})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(limited, func(o *cluster.Options) { o.Scheme = s.Scheme() })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(limited)
	Expect(err).NotTo(HaveOccurred())

	Expect(shoot.IndexMachines(ctx, mgr.GetFieldIndexer())).To(Succeed())
	Expect((&preservation.Reconciler{Holder: holder, MaxTimeout: v1alpha1.DefaultMaxMachinePreserveTimeout, Timeouts: timeouts}).AddToManager(mgr, nodes)).To(Succeed())
	Expect((&failuredrain.Reconciler{Timeouts: timeouts}).AddToManager(mgr, nodes, pods)).To(Succeed())

	c := &Controller{cancel: cancel, Stopped: make(chan struct{})}
	shootStopped := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(shootStopped)
		Expect(target.Start(ctx)).To(Succeed())
	}()
	go func() {
		defer GinkgoRecover()
		defer close(c.Stopped)
		Expect(mgr.Start(ctx)).To(Succeed())
		<-shootStopped
	}()
	DeferCleanup(c.Stop)
	return c
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
