// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	extensionsconfigv1alpha1 "github.com/gardener/gardener/extensions/pkg/apis/config/v1alpha1"
	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/util"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
)

const (
	// shootTimeout bounds each request to the shoot's API server.
	shootTimeout = 10 * time.Second
	// nodesTimeout is how long Delete tries to clean the nodes of preserved machines, counted from the deletion of the
	// Extension. It includes the time until the container is gone. A shoot that denies it must not keep the machines (P14).
	nodesTimeout = removalTimeout + 5*time.Minute
)

// acts says that a preservation controller is at work, wherever its container still runs.
func (a *Actuator) acts(ctx context.Context, namespace string) (bool, error) {
	lease := &coordinationv1.Lease{}
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: preservationcontroller.Name}, lease); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("failed to get Lease %q: %w", preservationcontroller.Name, err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return false, nil
	}
	return a.Clock.Since(lease.Spec.RenewTime.Time) < time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second, nil
}

// endPreservations ends all preservations of a shoot that goes on without this extension (P10), and cleans its nodes if
// they are to be waited for. Of a shoot that is deleted, the machines go anyway (T10).
func (a *Actuator) endPreservations(ctx context.Context, namespace string, waitForNodes bool) error {
	shoot, err := extensionscontroller.GetShoot(ctx, a.Client, namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to get Shoot: %w", err)
	}
	if shoot == nil || shoot.DeletionTimestamp != nil {
		return nil
	}

	machines := &machinev1alpha1.MachineList{}
	if err := a.Client.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("failed to list Machines: %w", err)
	}
	if !slices.ContainsFunc(machines.Items, func(m machinev1alpha1.Machine) bool { return preservation.IsMarked(&m) }) {
		return nil
	}

	var holder domain.Holder = domain.HealthTimer{}
	canExpire, err := a.Schemas.MachinesCanExpire(ctx)
	if err != nil {
		return err
	}
	if canExpire {
		holder = domain.PreserveExpiry{}
	}
	var shootClient client.Client
	if waitForNodes {
		if shootClient, err = a.ShootClient(ctx, namespace); err != nil {
			return fmt.Errorf("failed to create the client for the shoot: %w", err)
		}
	}
	return (&preservation.Reconciler{
		Source:       a.Client,
		SourceReader: a.Client,
		Nodes:        nodes{shootClient},
		Holder:       holder,
		Timeouts:     domain.DefaultTimeouts,
		Clock:        a.Clock,
		Events:       preservation.Events{Source: a.Recorder},
	}).End(ctx, namespace)
}

// nodes are read from the API server, if there is a client.
type nodes struct{ client.Client }

func (n nodes) Known() bool { return n.Client != nil }

// shootClient returns a function that makes a client for a shoot's nodes, with the kubeconfig that Gardener has in the
// control-plane namespace.
func shootClient(seed client.Client) func(ctx context.Context, namespace string) (client.Client, error) {
	return func(ctx context.Context, namespace string) (client.Client, error) {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		_, c, err := util.NewClientForShoot(ctx, seed, namespace, client.Options{Mapper: mapper},
			extensionsconfigv1alpha1.RESTOptions{Timeout: new(shootTimeout)})
		return c, err
	}
}
