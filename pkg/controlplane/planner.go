// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package controlplane reads, in the control-plane namespace of a shoot, what its shares depend on.
package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// Planner determines the shares of MachineDeployments. The controller and the webhook share it, so that they never
// disagree.
type Planner struct {
	// Reader should be backed by a cache: a plan reads several objects, and a webhook waits for it.
	Reader client.Reader
	// Defaults holds where neither the provider configuration nor the Shoot says anything.
	Defaults *configv1alpha1.ControllerConfiguration
}

// IsSupported returns whether the extension does anything for the control plane in a namespace: not for that of a self-hosted
// shoot, which is where Gardener has it as well. There, machine-controller-manager has no kubeconfig and no access of others.
func IsSupported(namespace string) bool { return namespace != metav1.NamespaceSystem }

// FindExtension returns the Extension that enables preservation in a namespace, nil if there is none, it is being deleted or
// the shoot is not supported.
func FindExtension(ctx context.Context, reader client.Reader, namespace string) (*extensionsv1alpha1.Extension, error) {
	if !IsSupported(namespace) {
		return nil, nil
	}
	extensions := &extensionsv1alpha1.ExtensionList{}
	if err := reader.List(ctx, extensions, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list Extensions: %w", err)
	}
	for i := range extensions.Items {
		if extension := &extensions.Items[i]; EnablesPreservation(extension) && extension.DeletionTimestamp == nil {
			return extension, nil
		}
	}
	return nil, nil
}

// AwaitsWorker returns whether an Extension whose configuration is not valid for the worker pools of the Worker is valid for those of the
// Shoot in its Cluster. gardenlet writes the Cluster, then the Extension, and the Worker long after that.
func AwaitsWorker(ctx context.Context, reader client.Reader, extension *extensionsv1alpha1.Extension) (bool, error) {
	shoot, err := extensionscontroller.GetShoot(ctx, reader, extension.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("failed to get Shoot: %w", err)
	}
	if shoot == nil {
		return false, nil
	}
	_, err = providerconfig.ReadExtension(extension, share.PoolsOfShoot(shoot.Spec.Provider.Workers))
	return err == nil, nil
}

// EnablesPreservation returns whether an Extension is one that enables preservation for a shoot.
func EnablesPreservation(extension *extensionsv1alpha1.Extension) bool {
	return extension.Spec.Type == v1alpha1.ExtensionType &&
		extensionsv1alpha1helper.GetExtensionClassOrDefault(extension.Spec.Class) == extensionsv1alpha1.ExtensionClassShoot
}

// Shares returns the shares of the given MachineDeployments by name, as far as they belong to pools of the Worker, and
// those that none can be determined for. MachineDeployments that are being deleted have none, and so have those whose
// MachineClass is not to be found.
func (p *Planner) Shares(ctx context.Context, worker *extensionsv1alpha1.Worker, config *preservation.MachinePreservationConfig, deployments []machinev1alpha1.MachineDeployment) (map[string]share.Settings, []share.Unplaced, error) {
	byPool := make(map[string][]share.Deployment, len(worker.Spec.Pools))
	for i := range deployments {
		deployment := &deployments[i]
		pool := share.PoolOf(deployment)
		if deployment.DeletionTimestamp != nil || !slices.ContainsFunc(worker.Spec.Pools, func(p extensionsv1alpha1.WorkerPool) bool { return p.Name == pool }) {
			continue
		}

		className := deployment.Spec.Template.Spec.Class.Name
		class := &machinev1alpha1.MachineClass{}
		if err := p.Reader.Get(ctx, client.ObjectKey{Namespace: deployment.Namespace, Name: className}, class); err != nil {
			if !apierrors.IsNotFound(err) {
				return nil, nil, fmt.Errorf("failed to get MachineClass %q: %w", className, err)
			}
			// Gardener creates it before the MachineDeployment, but a cache may see it later.
			logf.FromContext(ctx).V(1).Info("MachineClass is not known yet", "machineDeployment", client.ObjectKeyFromObject(deployment), "machineClass", className)
			continue
		}

		byPool[pool] = append(byPool[pool], share.Deployment{
			Name:    deployment.Name,
			Class:   className,
			Zone:    share.ZoneOf(class),
			Created: deployment.CreationTimestamp.Time,
		})
	}

	var (
		shares   = make(map[string]share.Settings, len(deployments))
		unplaced []share.Unplaced
	)
	for _, pool := range share.PoolsOfWorker(worker) {
		poolShares, poolUnplaced := share.Distribute(pool, worker.Spec.Region, share.SettingsFor(pool, config, p.Defaults), byPool[pool.Name])
		maps.Copy(shares, poolShares)
		unplaced = append(unplaced, poolUnplaced...)
	}
	// These are the numbers that the cluster-autoscaler is given. Gardener writes them after the MachineDeployments.
	for _, sizes := range worker.Status.MachineDeployments {
		if settings, ok := shares[sizes.Name]; ok && sizes.Maximum > sizes.Minimum {
			settings.Maximum = sizes.Maximum
			shares[sizes.Name] = settings
		}
	}
	return shares, unplaced, nil
}
