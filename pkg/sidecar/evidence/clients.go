// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// Clients ask the API servers of the seed and the shoot. What they are asked for is in no cache.
type Clients struct {
	seed, shoot client.Client
	// kubelets is nil where they are not to be asked.
	kubelets evidence.NodeProxy
}

// AskKubelets has kubelets asked as well, for logs of their nodes above all, through the API server of the shoot.
func (c *Clients) AskKubelets(shoot *rest.Config) (err error) {
	c.kubelets, err = evidence.NewNodeProxy(shoot)
	return err
}

// StoredName returns the name of the ConfigMap with the evidence of a failure, empty if there is none, or nobody knows. Of two it is the one
// that stays.
func (c *Clients) StoredName(ctx context.Context, namespace, machine string, failedSince time.Time) string {
	stored, err := listStored(ctx, c.seed, namespace)
	if err != nil {
		return ""
	}
	stored = slices.DeleteFunc(stored, func(s metav1.PartialObjectMetadata) bool {
		since, err := time.Parse(time.RFC3339, s.Annotations[retention.AnnotationStoredFailedSince])
		return err != nil || !since.Equal(failedSince)
	})
	if last := retention.LastStored(machine, stored); last != nil {
		return last.Name
	}
	return ""
}

// NewClients returns the clients. maintenances says that the shoot has the API of node maintenances. Nobody is asked yet: neither
// API server has to be there.
func NewClients(seed, shoot *rest.Config, maintenances bool) (*Clients, error) {
	known := runtime.NewScheme()
	utilruntime.Must((&runtime.SchemeBuilder{
		corev1.AddToScheme, eventsv1.AddToScheme, policyv1.AddToScheme, storagev1.AddToScheme, machinev1alpha1.AddToScheme, maintenancev1alpha1.AddToScheme,
	}).AddToScheme(known))
	inSeed, inShoot := meta.NewDefaultRESTMapper(nil), meta.NewDefaultRESTMapper(nil)
	add := func(mapper *meta.DefaultRESTMapper, version schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), scope)
		}
	}
	add(inSeed, corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "ConfigMap")
	add(inSeed, eventsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Event")
	add(inSeed, machinev1alpha1.SchemeGroupVersion, meta.RESTScopeNamespace, "Machine", "MachineSet", "MachineDeployment")
	add(inShoot, corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node")
	add(inShoot, corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Pod", "Secret")
	add(inShoot, eventsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Event")
	add(inShoot, policyv1.SchemeGroupVersion, meta.RESTScopeNamespace, "PodDisruptionBudget")
	add(inShoot, storagev1.SchemeGroupVersion, meta.RESTScopeRoot, "VolumeAttachment")
	if maintenances {
		add(inShoot, maintenancev1alpha1.SchemeGroupVersion, meta.RESTScopeNamespace, "NodeMaintenance")
	}

	clients := &Clients{}
	var err error
	if clients.seed, err = client.New(seed, client.Options{Scheme: known, Mapper: inSeed}); err != nil {
		return nil, fmt.Errorf("failed to create the client for evidence in the seed: %w", err)
	}
	if clients.shoot, err = client.New(shoot, client.Options{Scheme: known, Mapper: inShoot}); err != nil {
		return nil, fmt.Errorf("failed to create the client for evidence in the shoot: %w", err)
	}
	return clients, nil
}
