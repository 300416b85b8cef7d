// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"net/http"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/simulation/mcm"
)

// old says that MCM knows nothing of preservation.
const old = mcm.Generation == "0.61"

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(machinev1alpha1.AddToScheme(scheme))
}

// runSidecar is the process of this project: its manager, its caches, its queues, as its command puts them together, but for
// leader election, which would be most of what happens, and the stripping of what is cached.
func runSidecar(ctx context.Context, life *Life) error {
	mgr, err := manager.New(life.config("seed"), manager.Options{
		Scheme:                  scheme,
		MapperProvider:          mapper,
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		Controller:              config.Controller{SkipNameValidation: new(true)}, // it is started again in the same program
		GracefulShutdownTimeout: new(time.Minute),
	})
	if err != nil {
		return fmt.Errorf("failed to create the manager: %w", err)
	}
	target, err := cluster.New(life.config("shoot"), func(o *cluster.Options) {
		o.Scheme = scheme
		o.MapperProvider = mapper
	})
	if err != nil {
		return fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	nodes, err := shoot.NewNodes(ctx, target)
	if err != nil {
		return err
	}
	if err := shoot.IndexMachines(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	var holder domain.Holder = domain.PreserveExpiry{}
	if old {
		holder = domain.HealthTimer{}
	}
	if err := (&preservation.Reconciler{
		Holder:         holder,
		MaxTimeout:     336 * time.Hour,
		Timeouts:       domain.Timeouts{Health: healthTimeout, Creation: creationTimeout, Drain: 2 * time.Hour},
		NodeConditions: domain.DefaultNodeConditions,
	}).AddToManager(mgr, nodes); err != nil {
		return fmt.Errorf("failed to add the preservation controller: %w", err)
	}
	if err := mgr.Add(beside{target}); err != nil {
		return fmt.Errorf("failed to add the shoot: %w", err)
	}
	return mgr.Start(ctx)
}

// beside is a cluster that the manager does not wait for.
type beside struct{ cluster cluster.Cluster }

// Start implements manager.Runnable.
func (b beside) Start(ctx context.Context) error { return b.cluster.Start(ctx) }

func mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{machineGroup, coreGroup})
	for name, resource := range resources {
		scope := meta.RESTScopeNamespace
		if name == "nodes" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(resource.GroupVersionKind, scope)
		list := resource.GroupVersionKind
		list.Kind += "List"
		mapper.Add(list, scope)
	}
	return mapper, nil
}
