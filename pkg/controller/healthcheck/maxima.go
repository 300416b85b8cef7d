// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// Maxima checks that preserved machines do not keep a pool at its maximum (P2).
type Maxima struct {
	// Reader should be backed by a cache.
	Reader client.Reader
	// APIReader reads the metadata of Machines.
	APIReader client.Reader
}

// Check returns which pools the cluster-autoscaler cannot enlarge in which zones, because they are at their maximum, with failed
// machines that are preserved. Machines are read only where a MachineDeployment is at its maximum.
func (m *Maxima) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := m.Reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	full := slices.DeleteFunc(deployments.Items, func(d machinev1alpha1.MachineDeployment) bool {
		return d.DeletionTimestamp != nil || !facts.PoolOf(&d).AtMaximum()
	})
	if len(full) == 0 {
		return healthy(), nil
	}

	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
	if err := m.APIReader.List(ctx, machines, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("failed to list Machines: %w", err)
	}
	failed := slices.DeleteFunc(machines.Items, func(m metav1.PartialObjectMetadata) bool {
		return m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationPhase] != preservation.PhaseFailedPreserved
	})

	var stuck []string
	for i := range full {
		selector, err := metav1.LabelSelectorAsSelector(full[i].Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("failed to read the selector of MachineDeployment %q: %w", full[i].Name, err)
		}
		count := 0
		for j := range failed {
			if selector.Matches(labels.Set(failed[j].Labels)) {
				count++
			}
		}
		if count > 0 {
			stuck = append(stuck, preservation.AtMaximum(&full[i], count))
		}
	}
	if len(stuck) == 0 {
		return healthy(), nil
	}
	slices.Sort(stuck)
	return unhealthy(strings.Join(brief.First(stuck, maxNamed), "; ")), nil
}
