// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

const (
	poolMany = "many"
	poolFew  = "few"
	// labelPool is on the Nodes of a pool.
	labelPool = "worker.gardener.cloud/pool"

	extensionType = "machine-preservation"

	// patience is for how long anything may take that is not measured.
	patience = 5 * time.Minute
	// writers is how many objects are written at the same time.
	writers = 20
)

//go:embed shoot.yaml
var shootManifest []byte

// bench is a landscape with a shoot on which measures are taken.
type bench struct {
	landscape *landscape.Landscape
	// sidecar says that the sidecar preserves machines, and else machine-controller-manager.
	sidecar   bool
	machines  int
	shootName string
	namespace string

	// The clients write without limits; they read what the watches have shown so far.
	seed, shoot           client.Client
	seedCache, shootCache cache.Cache
	// changed is when a Machine or a Node was last seen to change, in nanoseconds since 1970.
	changed atomic.Int64
}

// shootFor returns the Shoot. Only one with the extension has its machines preserved by it.
func shootFor(sidecar bool, machines int) (*gardencorev1beta1.Shoot, error) {
	shoot, err := seed.DecodeShoot(shootManifest)
	if err != nil {
		return nil, err
	}
	many := &shoot.Spec.Provider.Workers[slices.IndexFunc(shoot.Spec.Provider.Workers, func(w gardencorev1beta1.Worker) bool { return w.Name == poolMany })]
	many.Maximum = int32(2 * machines)                                                                  // #nosec G115 -- some thousand fit
	many.MachineControllerManagerSettings.AutoPreserveFailedMachineMax = new(int32(sampleOf(machines))) // #nosec G115 -- some hundred fit
	if sidecar {
		shoot.Spec.Extensions = []gardencorev1beta1.Extension{{Type: extensionType}}
	}
	return shoot, nil
}

// sampleOf returns how many of the machines are annotated, and how many fail at once.
func sampleOf(machines int) int { return machines / 5 }

// watch starts the watches. They end with the context.
func (b *bench) watch(ctx context.Context) error {
	var err error
	if b.seed, b.seedCache, err = watching(ctx, b.landscape.Seed.Config, kubernetesclient.SeedScheme, map[client.Object]cache.ByObject{
		&machinev1alpha1.Machine{}:           {Namespaces: map[string]cache.Config{b.namespace: {}}},
		&machinev1alpha1.MachineDeployment{}: {Namespaces: map[string]cache.Config{b.namespace: {}}},
		&corev1.Pod{}:                        {Namespaces: map[string]cache.Config{b.namespace: {}}},
	}); err != nil {
		return fmt.Errorf("could not watch the seed: %w", err)
	}
	if b.shoot, b.shootCache, err = watching(ctx, b.landscape.Shoot.Config, kubernetesclient.ShootScheme, map[client.Object]cache.ByObject{
		&corev1.Node{}: {},
		&corev1.Pod{}:  {Namespaces: map[string]cache.Config{metav1.NamespaceDefault: {}}},
	}); err != nil {
		return fmt.Errorf("could not watch the shoot: %w", err)
	}
	touch := func() { b.changed.Store(time.Now().UnixNano()) }
	return errors.Join(
		observe(ctx, b.seedCache, &machinev1alpha1.Machine{}, func(_, _ *machinev1alpha1.Machine) { touch() }),
		observe(ctx, b.shootCache, &corev1.Node{}, func(_, _ *corev1.Node) { touch() }),
	)
}

func watching(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, kinds map[client.Object]cache.ByObject) (client.Client, cache.Cache, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	objects, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: kinds, ReaderFailOnMissingInformer: true})
	if err != nil {
		return nil, nil, err
	}
	for kind := range kinds {
		if _, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, nil, err
		}
	}
	go func() { _ = objects.Start(ctx) }() // it returns no error
	if !objects.WaitForCacheSync(ctx) {
		return nil, nil, ctx.Err()
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, objects, err
}

// observe calls a function for each change of an object as soon as the watch shows it: without an old one when the object
// appears, and without a new one when it is gone.
func observe[T client.Object](ctx context.Context, objects cache.Cache, kind T, see func(before, after T)) error {
	informer, err := objects.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	var none T
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { see(none, after.(T)) },
		UpdateFunc: func(before, after any) { see(before.(T), after.(T)) },
		DeleteFunc: func(before any) {
			if deleted, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
				before = deleted.Obj
			}
			see(before.(T), none)
		},
	})
	return err
}

// machinesOf returns the machines of a pool in the order of their names.
func (b *bench) machinesOf(ctx context.Context, pool string) ([]machinev1alpha1.Machine, error) {
	machines := &machinev1alpha1.MachineList{}
	if err := b.seedCache.List(ctx, machines); err != nil {
		return nil, err
	}
	of := slices.DeleteFunc(machines.Items, func(m machinev1alpha1.Machine) bool { return m.Spec.NodeTemplateSpec.Labels[labelPool] != pool })
	slices.SortFunc(of, func(a, b machinev1alpha1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return of, nil
}

// until waits until a condition holds, and says what was waited for if it does not in time.
func until(ctx context.Context, what string, timeout time.Duration, condition func(ctx context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, condition)
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = fmt.Errorf("not seen within %s", timeout)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// quiet waits until no Machine and no Node has changed for some time.
func (b *bench) quiet(ctx context.Context, period time.Duration) error {
	return until(ctx, "machines and nodes stay as they are", patience, func(context.Context) (bool, error) {
		return time.Since(time.Unix(0, b.changed.Load())) > period, nil
	})
}

// pause waits, unless the benchmark ends before.
func pause(ctx context.Context, period time.Duration) error {
	select {
	case <-time.After(period):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func nodeOf(machine *machinev1alpha1.Machine) string {
	return machine.Labels[machinev1alpha1.NodeLabelKey]
}
