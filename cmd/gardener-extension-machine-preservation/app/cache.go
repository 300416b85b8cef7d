// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// cacheOptions keeps the caches small: a seed has hundreds of shoots. What is cached is only as much of the resources as
// the controllers and webhooks read.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}:                 named(v1beta1constants.DeploymentNameMachineControllerManager),
			&corev1.Secret{}:                     named(preservationcontroller.AccessSecretName),
			&extensionsv1alpha1.Cluster{}:        {Transform: stripCluster},
			&extensionsv1alpha1.Worker{}:         {Transform: stripWorker},
			&machinev1alpha1.MachineClass{}:      {Transform: stripMachineClass},
			&machinev1alpha1.MachineDeployment{}: {Transform: stripMachineDeployment},
		},
	}
}

// clientOptions names what the manager's client reads rarely and must not cache for the whole seed. Namespaces are not
// part of it: Gardener's predicates ask for that of an Extension at each of its events.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{},
		&coordinationv1.Lease{},
		&corev1.Secret{},
	}}}
}

func named(name string) cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// startInformers starts the informers of what the webhooks read. Otherwise the first request would, and wait for it: in
// replicas that do not lead, no controller does.
func startInformers(ctx context.Context, c cache.Cache) error {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for _, object := range []client.Object{
		secret,
		&extensionsv1alpha1.Extension{},
		&extensionsv1alpha1.Worker{},
		&machinev1alpha1.MachineClass{},
		&machinev1alpha1.MachineDeployment{},
	} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("failed to start informer for %T: %w", object, err)
		}
	}
	return nil
}

// stripCluster leaves the Shoot, which tells whether it is hibernated or has failed.
func stripCluster(object any) (any, error) {
	if cluster, ok := object.(*extensionsv1alpha1.Cluster); ok {
		cluster.ManagedFields = nil
		cluster.Spec.CloudProfile = runtime.RawExtension{}
		cluster.Spec.Seed = nil
	}
	return object, nil
}

func stripWorker(object any) (any, error) {
	if worker, ok := object.(*extensionsv1alpha1.Worker); ok {
		worker.ManagedFields = nil
		worker.Status = extensionsv1alpha1.WorkerStatus{}
		worker.Spec.InfrastructureProviderStatus = nil
		for i := range worker.Spec.Pools {
			worker.Spec.Pools[i].ProviderConfig = nil
		}
	}
	return object, nil
}

func stripMachineClass(object any) (any, error) {
	if class, ok := object.(*machinev1alpha1.MachineClass); ok {
		class.ManagedFields = nil
		class.ProviderSpec = runtime.RawExtension{}
	}
	return object, nil
}

// stripMachineDeployment leaves the specification whole: the worker controller computes patches from it.
func stripMachineDeployment(object any) (any, error) {
	if deployment, ok := object.(*machinev1alpha1.MachineDeployment); ok {
		deployment.ManagedFields = nil
		deployment.Status = machinev1alpha1.MachineDeploymentStatus{}
	}
	return object, nil
}
