// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"context"

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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// Options say how controllers get at the API servers if not as administrators.
type Options struct {
	Seed, Shoot *rest.Config
	// NewClient makes the client of the seed.
	NewClient client.NewClientFunc
	// ByObject is what is cached of the shoot.
	ByObject map[client.Object]cache.ByObject
}

// Manager is a manager of the control-plane namespace, and the shoot.
type Manager struct {
	manager.Manager
	Shoot cluster.Cluster
	Nodes *shoot.Nodes
	Pods  kubernetes.Interface
}

// Run runs the controllers that a function adds, until the end of the container or until they are stopped.
func Run(ctx context.Context, s *Server, o Options, add func(context.Context, *Manager)) *environment.Running {
	GinkgoHelper()
	return run(context.WithoutCancel(ctx), s, o, add)
}

func run(ctx context.Context, s *Server, o Options, add func(context.Context, *Manager)) *environment.Running {
	GinkgoHelper()
	if o.Seed == nil {
		o.Seed = s.Config
	}
	if o.Shoot == nil {
		o.Shoot = s.Config
	}
	mgr, err := manager.New(o.Seed, manager.Options{
		Scheme:     s.Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{builder.Namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		NewClient:  o.NewClient,
	})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(o.Shoot, func(c *cluster.Options) { c.Scheme, c.Cache.ByObject = s.Scheme(), o.ByObject })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(o.Shoot)
	Expect(err).NotTo(HaveOccurred())
	Expect(shoot.IndexMachines(ctx, mgr.GetFieldIndexer())).To(Succeed())
	add(ctx, &Manager{Manager: mgr, Shoot: target, Nodes: nodes, Pods: pods})
	return environment.Run(ctx, target.Start, mgr.Start)
}
