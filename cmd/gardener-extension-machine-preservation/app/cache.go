// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// cacheOptions keeps the caches small: a seed has hundreds of shoots. What is cached is only as much of the resources as
// the controllers and webhooks read.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}:                 {Field: nameIs(v1beta1constants.DeploymentNameMachineControllerManager), Transform: shoot.Strip(stripDeployment)},
			&corev1.Secret{}:                     {Field: nameIs(preservationcontroller.AccessSecretName)},
			&extensionsv1alpha1.Cluster{}:        {Transform: stripCluster},
			&extensionsv1alpha1.Extension{}:      {Transform: shoot.Strip(stripExtension)},
			&extensionsv1alpha1.Worker{}:         {Transform: shoot.Strip(stripWorker)},
			&machinev1alpha1.Machine{}:           {Label: powerCycled()},
			&machinev1alpha1.MachineClass{}:      {Transform: shoot.Strip(stripMachineClass)},
			&machinev1alpha1.MachineDeployment{}: {Transform: shoot.Strip(stripMachineDeployment)},
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

func nameIs(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

// powerCycled selects the few Machines that have to do with power cycles. Nobody reads others from the cache.
func powerCycled() labels.Selector {
	exists, err := labels.NewRequirement(v1alpha1.LabelPowerCycle, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*exists)
}

// startInformers starts the informers of what the webhooks read. Otherwise the first request would, and wait for it: in
// replicas that do not lead, no controller does.
func startInformers(ctx context.Context, c cache.Cache, hasEvidence bool) error {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	objects := []client.Object{
		secret,
		&extensionsv1alpha1.Extension{},
		&extensionsv1alpha1.Worker{},
		&machinev1alpha1.MachineClass{},
		&machinev1alpha1.MachineDeployment{},
	}
	if hasEvidence {
		objects = append(objects, &extensionsv1alpha1.Cluster{})
	}
	for _, object := range objects {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("failed to start informer for %T: %w", object, err)
		}
	}
	return nil
}

// stripCluster leaves of the Shoot what Gardener's library and the controllers ask for: its metadata, whether it is
// hibernated or has failed, its worker pools, and where its API server is. A Shoot that cannot be read stays as it is.
func stripCluster(object any) (any, error) {
	if cluster, ok := object.(*extensionsv1alpha1.Cluster); ok {
		cluster.ManagedFields = nil
		cluster.Spec.CloudProfile = runtime.RawExtension{}
		cluster.Spec.Seed = nil

		shoot := &gardencorev1beta1.Shoot{}
		if json.Unmarshal(cluster.Spec.Shoot.Raw, shoot) != nil || shoot.APIVersion != gardencorev1beta1.SchemeGroupVersion.String() {
			return object, nil
		}
		stripped := &gardencorev1beta1.Shoot{
			TypeMeta:   shoot.TypeMeta,
			ObjectMeta: shoot.ObjectMeta,
			Spec: gardencorev1beta1.ShootSpec{
				Hibernation: shoot.Spec.Hibernation,
				Kubernetes:  gardencorev1beta1.Kubernetes{Version: shoot.Spec.Kubernetes.Version},
				Provider:    gardencorev1beta1.Provider{Type: shoot.Spec.Provider.Type, Workers: shoot.Spec.Provider.Workers},
			},
			Status: gardencorev1beta1.ShootStatus{
				AdvertisedAddresses: shoot.Status.AdvertisedAddresses,
				Gardener:            shoot.Status.Gardener,
				IsHibernated:        shoot.Status.IsHibernated,
				LastErrors:          shoot.Status.LastErrors,
				LastOperation:       shoot.Status.LastOperation,
				ObservedGeneration:  shoot.Status.ObservedGeneration,
				TechnicalID:         shoot.Status.TechnicalID,
			},
		}
		stripped.ManagedFields = nil
		delete(stripped.Annotations, corev1.LastAppliedConfigAnnotation)
		for i, worker := range stripped.Spec.Provider.Workers {
			stripped.Spec.Provider.Workers[i] = gardencorev1beta1.Worker{
				Name:                             worker.Name,
				Maximum:                          worker.Maximum,
				SystemComponents:                 worker.SystemComponents,
				Zones:                            worker.Zones,
				MachineControllerManagerSettings: worker.MachineControllerManagerSettings,
			}
			if worker.Kubernetes != nil {
				stripped.Spec.Provider.Workers[i].Kubernetes = &gardencorev1beta1.WorkerKubernetes{Version: worker.Kubernetes.Version}
			}
		}
		raw, err := json.Marshal(stripped)
		if err != nil {
			return nil, fmt.Errorf("failed to encode the Shoot of Cluster %q: %w", cluster.Name, err)
		}
		cluster.Spec.Shoot = runtime.RawExtension{Raw: raw}
	}
	return object, nil
}

// stripExtension leaves our own Extensions as they are, since their status is updated as a whole.
func stripExtension(extension *extensionsv1alpha1.Extension) {
	if extension.Spec.Type != v1alpha1.ExtensionType {
		extension.Annotations, extension.Spec.ProviderConfig, extension.Status = nil, nil, extensionsv1alpha1.ExtensionStatus{}
	}
}

// stripWorker leaves of the status what the cluster-autoscaler is told of MachineDeployments (P2).
func stripWorker(worker *extensionsv1alpha1.Worker) {
	deployments := worker.Status.MachineDeployments
	worker.Status = extensionsv1alpha1.WorkerStatus{MachineDeployments: deployments}
	for i, deployment := range deployments {
		deployments[i] = extensionsv1alpha1.MachineDeployment{Name: deployment.Name, Minimum: deployment.Minimum, Maximum: deployment.Maximum}
	}
	worker.Spec.InfrastructureProviderStatus, worker.Spec.SSHPublicKey = nil, nil
	for i, pool := range worker.Spec.Pools {
		worker.Spec.Pools[i] = extensionsv1alpha1.WorkerPool{
			Name:                             pool.Name,
			Maximum:                          pool.Maximum,
			Labels:                           pool.Labels,
			Zones:                            pool.Zones,
			MachineControllerManagerSettings: pool.MachineControllerManagerSettings,
		}
	}
}

func stripMachineClass(class *machinev1alpha1.MachineClass) {
	class.ProviderSpec = runtime.RawExtension{}
	class.Labels, class.Annotations, class.SecretRef, class.CredentialsSecretRef = nil, nil, nil, nil
	if class.NodeTemplate != nil {
		class.NodeTemplate = &machinev1alpha1.NodeTemplate{Zone: class.NodeTemplate.Zone}
	}
}

// stripMachineDeployment leaves what patches are computed from. Of the node template, it leaves the pool.
func stripMachineDeployment(deployment *machinev1alpha1.MachineDeployment) {
	deployment.Status = machinev1alpha1.MachineDeploymentStatus{}
	node := &deployment.Spec.Template.Spec.NodeTemplateSpec
	pool, hasPool := node.Labels[v1beta1constants.LabelWorkerPool]
	*node = machinev1alpha1.NodeTemplateSpec{}
	if hasPool {
		node.Labels = map[string]string{v1beta1constants.LabelWorkerPool: pool}
	}
}

// stripDeployment leaves of machine-controller-manager's own containers what ours depends on, and the other way around all
// of ours. It is never written but by patches that change nothing.
func stripDeployment(deployment *appsv1.Deployment) {
	deployment.Annotations = nil
	containers := deployment.Spec.Template.Spec.Containers
	for i, container := range containers {
		if container.Name != preservationcontroller.Name {
			containers[i] = corev1.Container{Name: container.Name, Image: container.Image, Command: container.Command, Args: container.Args}
		}
	}
	deployment.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers, Volumes: deployment.Spec.Template.Spec.Volumes}}
}
