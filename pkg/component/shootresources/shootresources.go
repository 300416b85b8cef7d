// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package shootresources has gardener-resource-manager bring resources into a shoot. Other than with Gardener's helpers, the
// name of the Secret with them does not depend on what is in it: it can be given in a role.
package shootresources

import (
	"context"
	"errors"
	"fmt"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/controllerutils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// scheme has what is brought into shoots.
var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(kubernetesclient.AddShootSchemeToScheme(scheme))
	utilruntime.Must(maintenancev1alpha1.AddToScheme(scheme))
}

const (
	origin = "gardener-extension-machine-preservation"
	// finalizeAfter is how long what is deleted in the shoot may wait for finalizers that others have put on it, or on what goes with it.
	// The deletion of the shoot waits for that, and so does what is enabled again.
	finalizeAfter = "5m"
)

// ErrTerminating is returned by Deploy when the ManagedResource of before is still being deleted. What is written into it
// would go with it.
var ErrTerminating = errors.New("is being deleted")

// Resources are a ManagedResource and its Secret in the control plane of a shoot. Gardener does not delete what they bring
// into the shoot when it cleans that up.
type Resources struct {
	// Client is one for the seed.
	Client client.Client
	// Namespace is that of the control plane.
	Namespace string
	// Name is that of the ManagedResource.
	Name string
	// KeepObjects says that what is in the shoot stays there when the ManagedResource is deleted. What does not stay loses the finalizers of
	// others when it is being deleted for too long.
	KeepObjects bool
}

// Deploy creates or updates the resources, which bring the objects into the shoot. Gardener-resource-manager puts back within a minute what
// others change in them.
func (r Resources) Deploy(ctx context.Context, objects ...client.Object) error {
	if !r.KeepObjects {
		for _, object := range objects {
			kubernetesutils.SetMetaDataAnnotation(object, resourcesv1alpha1.FinalizeDeletionAfter, finalizeAfter)
		}
	}
	yaml := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true})
	data, err := managedresources.NewRegistry(scheme, serializer.NewCodecFactory(scheme), yaml).AddAllAndSerialize(objects...)
	if err != nil {
		return fmt.Errorf("failed to serialize the objects of ManagedResource %q: %w", r.Name, err)
	}

	secret := r.secret()
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, r.Client, secret, func() error {
		secret.Type = corev1.SecretTypeOpaque
		secret.Data = data
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy the Secret of ManagedResource %q: %w", r.Name, err)
	}

	managedResource := r.managedResource()
	_, err = controllerutils.GetAndCreateOrMergePatch(ctx, r.Client, managedResource, func() error {
		if managedResource.DeletionTimestamp != nil {
			return ErrTerminating
		}
		metav1.SetMetaDataLabel(&managedResource.ObjectMeta, managedresources.LabelKeyOrigin, origin)
		managedResource.Spec = resourcesv1alpha1.ManagedResourceSpec{
			SecretRefs:   []corev1.LocalObjectReference{{Name: secret.Name}},
			InjectLabels: map[string]string{v1beta1constants.ShootNoCleanup: "true"},
			KeepObjects:  new(r.KeepObjects),
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrTerminating):
		return fmt.Errorf("ManagedResource %q %w", r.Name, err)
	case err != nil:
		return fmt.Errorf("failed to deploy ManagedResource %q: %w", r.Name, err)
	}
	return nil
}

// Destroy deletes the resources. It does not wait for gardener-resource-manager.
func (r Resources) Destroy(ctx context.Context) error {
	return kubernetesutils.DeleteObjects(ctx, r.Client, r.secret(), r.managedResource())
}

// State is what there is of Resources.
type State string

const (
	// Absent is nothing.
	Absent State = "Absent"
	// Present is a ManagedResource.
	Present State = "Present"
	// Terminating is one that is being deleted.
	Terminating State = "Terminating"
)

// State returns what there is of the resources.
func (r Resources) State(ctx context.Context) (State, error) {
	managedResource := r.managedResource()
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("failed to get ManagedResource %q: %w", r.Name, err)
	case err != nil:
		return Absent, nil
	case managedResource.DeletionTimestamp != nil:
		return Terminating, nil
	}
	return Present, nil
}

func (r Resources) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: managedresources.SecretPrefix + r.Name, Namespace: r.Namespace}}
}

func (r Resources) managedResource() *resourcesv1alpha1.ManagedResource {
	return &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace}}
}
