// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// controller is the sidecar as it runs, but for its leader election.
type controller struct {
	cancel context.CancelFunc
	// stopped is closed when nothing of it runs any more.
	stopped chan struct{}
}

// stop stops the controller and waits until nothing of it runs any more.
func (c *controller) stop() {
	c.cancel()
	<-c.stopped
}

// startController starts a manager with all controllers of the sidecar. If stopAt is not nil, it stops itself there.
func startController(ctx context.Context, s *server, holder domain.Holder, timeouts domain.Timeouts, stopAt *write) *controller {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	limited := rest.CopyConfig(s.config)
	limited.QPS, limited.Burst = 100, 200

	mgr, err := manager.New(limited, manager.Options{
		Scheme:     s.Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{builder.Namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(limited, func(o *cluster.Options) { o.Scheme = s.Scheme() })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(limited)
	Expect(err).NotTo(HaveOccurred())

	reconciler := &preservation.Reconciler{Holder: holder, MaxTimeout: v1alpha1.DefaultMaxMachinePreserveTimeout, Timeouts: timeouts}
	if stopAt != nil {
		stopAt.Client, stopAt.stop = mgr.GetClient(), cancel
		reconciler.Source = stopAt
	}
	Expect(shoot.IndexMachines(ctx, mgr.GetFieldIndexer())).To(Succeed())
	Expect(reconciler.AddToManager(mgr, nodes)).To(Succeed())
	Expect((&drain.Reconciler{Timeouts: timeouts}).AddToManager(mgr, nodes, pods)).To(Succeed())

	c := &controller{cancel: cancel, stopped: make(chan struct{})}
	shootStopped := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(shootStopped)
		Expect(target.Start(ctx)).To(Succeed())
	}()
	go func() {
		defer GinkgoRecover()
		defer close(c.stopped)
		Expect(mgr.Start(ctx)).To(Succeed())
		<-shootStopped
	}()
	DeferCleanup(c.stop)
	return c
}

// write is a client that stops its controller at one of its writes.
type write struct {
	client.Client
	// number is that of the write, after says that it is made before the controller stops.
	number int32
	after  bool

	stop  context.CancelFunc
	count atomic.Int32
}

func (w *write) do(ctx context.Context, patch func(context.Context) error) error {
	number := w.count.Add(1)
	switch {
	case number == w.number && w.after:
		err := patch(context.WithoutCancel(ctx))
		w.stop()
		return err
	case number == w.number:
		w.stop()
	}
	return patch(ctx)
}

// Patch implements client.Client.
func (w *write) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.do(ctx, func(ctx context.Context) error { return w.Client.Patch(ctx, obj, patch, opts...) })
}

// Status implements client.Client.
func (w *write) Status() client.SubResourceWriter {
	return statusWrite{SubResourceWriter: w.Client.Status(), write: w}
}

type statusWrite struct {
	client.SubResourceWriter
	write *write
}

// Patch implements client.SubResourceWriter.
func (w statusWrite) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.write.do(ctx, func(ctx context.Context) error { return w.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}

func newNode(name string, opts ...builder.NodeOption) *corev1.Node {
	node := builder.Node(name, opts...)
	node.UID = ""
	return node
}
