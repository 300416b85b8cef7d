// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"
	"time"

	resourcemanagerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/resourcemanager/v1alpha1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controller/tokenrequestor"
	localworker "github.com/gardener/gardener/pkg/provider-local/controller/worker"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/health/health"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/managedresource"
	resourcemanagerpredicate "github.com/gardener/gardener/pkg/resourcemanager/predicate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const concurrentSyncs = 5

// addControllers adds the controllers of gardener-resource-manager and provider-local.
func addControllers(ctx context.Context, mgr manager.Manager, shoot cluster.Cluster) error {
	// In a seed, there is a gardener-resource-manager for its own resources, and one for each shoot.
	for class, target := range map[string]cluster.Cluster{
		resourcemanagerconfigv1alpha1.DefaultResourceClass: shoot,
		v1beta1constants.SeedResourceManagerClass:          mgr,
	} {
		if err := addManagedResourceControllers(mgr, class, target); err != nil {
			return fmt.Errorf("could not add the controllers of managed resources of class %s: %w", class, err)
		}
	}
	if err := (&tokenrequestor.Reconciler{
		ConcurrentSyncs: concurrentSyncs,
		Class:           new(resourcesv1alpha1.ResourceManagerClassShoot),
	}).AddToManager(mgr, mgr, shoot); err != nil {
		return fmt.Errorf("could not add the token requestor: %w", err)
	}
	if err := localworker.AddToManagerWithOptions(ctx, mgr, localworker.AddOptions{
		Controller:       controller.Options{MaxConcurrentReconciles: concurrentSyncs},
		ExtensionClasses: []extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot},
	}); err != nil {
		return fmt.Errorf("could not add the worker controller of provider-local: %w", err)
	}
	return nil
}

func addManagedResourceControllers(mgr manager.Manager, class string, target cluster.Cluster) error {
	var (
		filter     = resourcemanagerpredicate.NewClassFilter(class)
		syncPeriod = &metav1.Duration{Duration: time.Minute}
	)
	if err := (&managedresource.Reconciler{
		Config: resourcemanagerconfigv1alpha1.ManagedResourceControllerConfig{
			ConcurrentSyncs:     new(concurrentSyncs),
			SyncPeriod:          syncPeriod,
			AlwaysUpdate:        new(false),
			ManagedByLabelValue: new(resourcesv1alpha1.GardenerManager),
		},
		ClassFilter: filter,
	}).AddToManager(mgr, mgr, target); err != nil {
		return err
	}
	return (&health.Reconciler{
		Config:      resourcemanagerconfigv1alpha1.HealthControllerConfig{ConcurrentSyncs: new(concurrentSyncs), SyncPeriod: syncPeriod},
		ClassFilter: filter,
	}).AddToManager(mgr, mgr, target, "")
}

// waitUntilServing waits until the caches are filled and the webhook server answers.
func waitUntilServing(ctx context.Context, mgr manager.Manager) error {
	select {
	case <-mgr.Elected():
	case <-ctx.Done():
		return ctx.Err()
	}
	// The webhook of provider-local reads these: the first call must not have to fill a cache.
	for _, object := range []client.Object{&extensionsv1alpha1.Cluster{}, &corev1.ServiceAccount{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, object); err != nil {
			return fmt.Errorf("could not fill a cache: %w", err)
		}
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return started(nil) == nil, nil
	}); err != nil {
		return fmt.Errorf("webhook server did not start: %w", err)
	}
	return nil
}
