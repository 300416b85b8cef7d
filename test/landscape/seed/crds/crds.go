// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package crds installs the custom resource definitions that tests use of a seed.
package crds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/component/autoscaling/vpa"
	"github.com/gardener/gardener/pkg/component/crddeployer"
	extensionscrds "github.com/gardener/gardener/pkg/component/extensions/crds"
	"github.com/gardener/gardener/pkg/component/gardener/resourcemanager"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/component/observability/logging/fluentoperator"
	"github.com/gardener/gardener/pkg/component/observability/monitoring/prometheusoperator"
	"github.com/gardener/gardener/pkg/utils/flow"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observability are the definitions of the Prometheus operator and of Fluent Operator that are used here. All definitions of both are
// megabytes, and cost an API server many seconds.
var observability = sets.New(
	"prometheusrules.monitoring.coreos.com", "servicemonitors.monitoring.coreos.com",
	"clusterfilters.fluentbit.fluent.io", "clusterparsers.fluentbit.fluent.io",
)

// Deploy installs the definitions and waits until they are served. Those of machine-controller-manager are in the directory;
// without one, they are those that come with Gardener. The others are further manifests.
func Deploy(ctx context.Context, c client.Client, machineDir string, others ...string) error {
	var tasks []flow.TaskFn
	for _, newDeployer := range []func() (component.DeployWaiter, error){
		func() (component.DeployWaiter, error) { return extensionscrds.NewCRD(c, true, true) },
		func() (component.DeployWaiter, error) { return crddeployer.New(c, []string{resourcemanager.CRD}, true) },
		func() (component.DeployWaiter, error) { return vpa.NewCRD(c, nil) },
		func() (component.DeployWaiter, error) { return Machines(c, machineDir) },
		func() (component.DeployWaiter, error) { return crddeployer.New(c, others, false) },
	} {
		tasks = append(tasks, func(ctx context.Context) error {
			deployer, err := newDeployer()
			if err != nil {
				return err
			}
			return component.OpWait(deployer).Deploy(ctx)
		})
	}
	tasks = append(tasks, func(ctx context.Context) error {
		return deployObservability(ctx, only{Client: c, names: observability})
	})
	if err := flow.Parallel(tasks...)(ctx); err != nil {
		return fmt.Errorf("could not deploy the custom resource definitions: %w", err)
	}
	return nil
}

func deployObservability(ctx context.Context, c only) error {
	for _, newDeployer := range []func(client.Client) (component.DeployWaiter, error){prometheusoperator.NewCRDs, fluentoperator.NewCRDs} {
		deployer, err := newDeployer(c)
		if err != nil {
			return err
		}
		if err := deployer.Deploy(ctx); err != nil {
			return err
		}
	}
	return kubernetesutils.WaitUntilCRDManifestsReady(ctx, c, sets.List(c.names)...)
}

// only is a client that creates objects with certain names only.
type only struct {
	client.Client
	names sets.Set[string]
}

// Create implements client.Client.
func (o only) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if !o.names.Has(object.GetName()) {
		return nil
	}
	return o.Client.Create(ctx, object, options...)
}

// Machines returns what deploys the definitions of machine-controller-manager alone.
func Machines(c client.Client, dir string) (component.DeployWaiter, error) {
	if dir == "" {
		return machinecontrollermanager.NewCRD(c)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "machine.sapcloud.io_*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("could not list %s: %w", dir, err)
	}
	if len(paths) == 0 {
		return nil, errors.New("no custom resource definitions of machine-controller-manager in " + dir)
	}
	var manifests []string
	for _, path := range paths {
		manifest, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("could not read a custom resource definition: %w", err)
		}
		manifests = append(manifests, string(manifest))
	}
	return crddeployer.New(c, manifests, true)
}
