// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deleteNamespaces deletes namespaces with all that is in them, as the namespace controller of kube-controller-manager
// would.
func (o *operation) deleteNamespaces(ctx context.Context, names ...string) error {
	resources, err := o.namespacedResources()
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(o.config)
	if err != nil {
		return fmt.Errorf("could not make a metadata client: %w", err)
	}
	for _, name := range names {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := o.client.Delete(ctx, namespace); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return fmt.Errorf("could not delete namespace %s: %w", name, err)
		}
		if err := wait.PollUntilContextTimeout(ctx, waitInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
			return deleteContent(ctx, metadataClient, resources, name)
		}); err != nil {
			return fmt.Errorf("could not empty namespace %s: %w", name, err)
		}
		if err := o.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return fmt.Errorf("could not read namespace %s: %w", name, err)
		}
		namespace.Spec.Finalizers = nil
		if err := o.client.SubResource("finalize").Update(ctx, namespace); err != nil {
			return fmt.Errorf("could not finalise namespace %s: %w", name, err)
		}
	}
	return nil
}

// namespacedResources returns the resources of which all objects of a namespace can be deleted.
func (o *operation) namespacedResources() ([]schema.GroupVersionResource, error) {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(o.config)
	if err != nil {
		return nil, fmt.Errorf("could not make a discovery client: %w", err)
	}
	lists, err := discoveryClient.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, fmt.Errorf("could not discover the resources: %w", err)
	}
	deletable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"deletecollection", "list"}}, lists)
	byName, err := discovery.GroupVersionResources(deletable)
	if err != nil {
		return nil, fmt.Errorf("could not read the discovered resources: %w", err)
	}
	var resources []schema.GroupVersionResource
	for resource := range byName {
		resources = append(resources, resource)
	}
	return resources, nil
}

// deleteContent deletes all objects of a namespace and returns whether none is left.
func deleteContent(ctx context.Context, c metadata.Interface, resources []schema.GroupVersionResource, namespace string) (bool, error) {
	empty := true
	for _, resource := range resources {
		objects := c.Resource(resource).Namespace(namespace)
		if err := objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return false, fmt.Errorf("could not delete all %s: %w", resource.Resource, err)
		}
		list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, fmt.Errorf("could not list %s: %w", resource.Resource, err)
		}
		empty = empty && len(list.Items) == 0
	}
	return empty, nil
}
