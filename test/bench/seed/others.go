// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// others is what is around the extension in a seed, as far as it waits for it: the deployment controller and
// gardener-resource-manager. They say at once that all is done.
type others struct {
	client client.Client
	cache  cache.Cache
	failed chan error
}

func startOthers(ctx context.Context, config *rest.Config, c client.Client) (*others, error) {
	o := &others{client: c, failed: make(chan error, 1)}
	var err error
	if o.cache, err = cache.New(config, cache.Options{Scheme: c.Scheme(), ReaderFailOnMissingInformer: true}); err != nil {
		return nil, err
	}
	for _, kind := range []client.Object{&appsv1.Deployment{}, &resourcesv1alpha1.ManagedResource{}, &extensionsv1alpha1.Extension{}, &corev1.Secret{}} {
		informer, err := o.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.see(ctx, object) },
			UpdateFunc: func(_, object any) { o.see(ctx, object) },
		}); err != nil {
			return nil, err
		}
	}
	go func() { _ = o.cache.Start(ctx) }() // it returns no error
	if !o.cache.WaitForCacheSync(ctx) {
		return nil, ctx.Err()
	}
	return o, nil
}

func (o *others) see(ctx context.Context, object any) {
	var err error
	switch object := object.(type) {
	case *appsv1.Deployment:
		err = o.deploy(ctx, object)
	case *resourcesv1alpha1.ManagedResource:
		err = o.apply(ctx, object)
	case *corev1.Secret:
		err = o.requestToken(ctx, object)
	}
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		select {
		case o.failed <- err:
		default: // only the first failure is of interest
		}
	}
}

func (o *others) deploy(ctx context.Context, deployment *appsv1.Deployment) error {
	if deployment.Status.ObservedGeneration == deployment.Generation {
		return nil
	}
	changed := deployment.DeepCopy()
	replicas := *deployment.Spec.Replicas
	changed.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
	}
	if err := o.client.Status().Patch(ctx, changed, client.MergeFrom(deployment)); err != nil {
		return fmt.Errorf("could not write the status of Deployment %s: %w", deployment.Name, err)
	}
	return nil
}

func (o *others) apply(ctx context.Context, resource *resourcesv1alpha1.ManagedResource) error {
	if resource.Status.ObservedGeneration == resource.Generation {
		return nil
	}
	changed := resource.DeepCopy()
	changed.Status.ObservedGeneration = resource.Generation
	changed.Status.Conditions = nil
	for condition, status := range map[gardencorev1beta1.ConditionType]gardencorev1beta1.ConditionStatus{
		resourcesv1alpha1.ResourcesApplied:     gardencorev1beta1.ConditionTrue,
		resourcesv1alpha1.ResourcesHealthy:     gardencorev1beta1.ConditionTrue,
		resourcesv1alpha1.ResourcesProgressing: gardencorev1beta1.ConditionFalse,
	} {
		changed.Status.Conditions = append(changed.Status.Conditions, gardencorev1beta1.Condition{
			Type: condition, Status: status, LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now(),
		})
	}
	if err := o.client.Status().Patch(ctx, changed, client.MergeFrom(resource)); err != nil {
		return fmt.Errorf("could not write the status of ManagedResource %s: %w", resource.Name, err)
	}
	return nil
}

// requestToken gives the access secret a token that is not looked at. Without one, no container is injected.
func (o *others) requestToken(ctx context.Context, secret *corev1.Secret) error {
	if secret.Name != preservationcontroller.AccessSecretName || secret.Annotations[resourcesv1alpha1.ServiceAccountTokenRenewTimestamp] != "" {
		return nil
	}
	changed := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, resourcesv1alpha1.ServiceAccountTokenRenewTimestamp, time.Now().Add(24*time.Hour).Format(time.RFC3339))
	changed.Data = map[string][]byte{resourcesv1alpha1.DataKeyToken: []byte("token")}
	if err := o.client.Patch(ctx, changed, client.MergeFrom(secret)); err != nil {
		return fmt.Errorf("could not write the token into Secret %s: %w", secret.Name, err)
	}
	return nil
}

// succeeded returns how many Extensions of ours have been reconciled, and when the last one was, to the second.
func (o *others) succeeded(ctx context.Context) (int, metav1.Time, error) {
	var (
		n    int
		last metav1.Time
	)
	extensions := &extensionsv1alpha1.ExtensionList{}
	if err := o.cache.List(ctx, extensions, client.UnsafeDisableDeepCopy); err != nil {
		return 0, last, err
	}
	for i := range extensions.Items {
		operation := extensions.Items[i].Status.LastOperation
		if extensions.Items[i].Spec.Type != extensionType || operation == nil || operation.State != gardencorev1beta1.LastOperationStateSucceeded {
			continue
		}
		n++
		if last.Before(&operation.LastUpdateTime) {
			last = operation.LastUpdateTime
		}
	}
	return n, last, nil
}
