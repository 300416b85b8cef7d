// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package mcm runs the controllers of one version of machine-controller-manager (MCM). All that it shares with its callers
// are configurations of clients and names, and no type of MCM: an overlay compiles it with another version.
package mcm

import (
	"context"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/Masterminds/semver/v3"
	manageroptions "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager/app/options"
	machineclient "github.com/gardener/machine-controller-manager/pkg/client/clientset/versioned"
	machineinformers "github.com/gardener/machine-controller-manager/pkg/client/informers/externalversions"
	machinedeployment "github.com/gardener/machine-controller-manager/pkg/controller"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

const (
	// workers is how many objects of a kind are reconciled at the same time: more than a history has machines.
	workers = 10
	// orphanPeriod is what gardenlet sets.
	orphanPeriod = 30 * time.Minute
)

// kubernetesVersion is that of the shoot.
var kubernetesVersion = semver.MustParse("1.34.0")

// Options are what a process of MCM is started with.
type Options struct {
	// Namespace is that of the machines in the seed.
	Namespace   string
	Seed, Shoot *rest.Config
}

// Both controllers have the same metrics, and each start has them again.
func init() { prometheus.DefaultRegisterer = nowhere{prometheus.DefaultRegisterer} }

type nowhere struct{ prometheus.Registerer }

func (nowhere) MustRegister(...prometheus.Collector) {}

// Manager is the process with the controllers of MachineSets and MachineDeployments. It returns when the context is done and it has
// stopped.
func Manager(ctx context.Context, o Options) error {
	c, err := newClients(o)
	if err != nil {
		return err
	}
	defaults := manageroptions.NewMCMServer()
	machines := c.machineInformers.Machine().V1alpha1()
	controller, err := machinedeployment.NewController(o.Namespace, c.machines.MachineV1alpha1(), c.seed, c.shoot, c.shootInformers,
		machines.Machines(), machines.MachineSets(), machines.MachineDeployments(),
		&record.FakeRecorder{}, defaults.SafetyOptions, defaults.AutoscalerScaleDownAnnotationDuringRollout)
	if err != nil {
		return fmt.Errorf("failed to create the controllers of MachineSets and MachineDeployments: %w", err)
	}
	c.run(ctx, controller)
	return nil
}

// MachineController is the process with the controller of Machines, and the safety loops, on a cloud. It returns when the context
// is done and it has stopped.
func MachineController(ctx context.Context, o Options, cloud Cloud) error {
	c, err := newClients(o)
	if err != nil {
		return err
	}
	defaults := options.NewMCServer()
	defaults.SafetyOptions.MachineSafetyOrphanVMsPeriod.Duration = orphanPeriod
	controller, err := newMachineController(c, o.Namespace, driverOf{cloud}, defaults)
	if err != nil {
		return fmt.Errorf("failed to create the controller of machines: %w", err)
	}
	c.run(ctx, controller)
	return nil
}

type clients struct {
	machines         machineclient.Interface
	seed, shoot      kubernetes.Interface
	machineInformers machineinformers.SharedInformerFactory
	seedInformers    informers.SharedInformerFactory
	shootInformers   informers.SharedInformerFactory
}

func newClients(o Options) (*clients, error) {
	machines, err := machineclient.NewForConfig(o.Seed)
	if err != nil {
		return nil, fmt.Errorf("failed to create the client for machines: %w", err)
	}
	seed, err := kubernetes.NewForConfig(o.Seed)
	if err != nil {
		return nil, fmt.Errorf("failed to create the client for the seed: %w", err)
	}
	shoot, err := kubernetes.NewForConfig(o.Shoot)
	if err != nil {
		return nil, fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	resync := options.NewMCServer().MinResyncPeriod.Duration
	return &clients{
		machines: machines, seed: seed, shoot: shoot,
		machineInformers: machineinformers.NewSharedInformerFactoryWithOptions(machines, resync, machineinformers.WithNamespace(o.Namespace)),
		seedInformers:    informers.NewSharedInformerFactoryWithOptions(seed, resync, informers.WithNamespace(o.Namespace)),
		shootInformers:   informers.NewSharedInformerFactory(shoot, resync),
	}, nil
}

func (c *clients) run(ctx context.Context, controller interface {
	Run(workers int, stop <-chan struct{})
}) {
	factories := []interface {
		Start(stop <-chan struct{})
		Shutdown()
	}{c.machineInformers, c.seedInformers, c.shootInformers}
	for _, factory := range factories {
		factory.Start(ctx.Done())
	}
	stop := context.AfterFunc(ctx, func() { shutDownQueues(controller) })
	defer stop()
	controller.Run(workers, ctx.Done())
	for _, factory := range factories {
		factory.Shutdown()
	}
}

// shutDownQueues lets the workers of a controller end, which else wait for its queues: they are shut down by it only when
// the workers have ended, as the end of the process is what ends them.
func shutDownQueues(controller any) {
	fields := reflect.ValueOf(controller).Elem()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if queue, ok := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(interface{ ShutDown() }); ok {
			queue.ShutDown()
		}
	}
}
