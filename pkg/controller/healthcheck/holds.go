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
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// maxNamed is how many machines or hosts a condition names at most.
const maxNamed = 10

// Holds checks that preserved machines are not about to be deleted.
type Holds struct {
	// Reader should be backed by a cache.
	Reader client.Reader
	// APIReader reads the metadata of Machines.
	APIReader client.Reader
}

// Check returns which preserved machines have been chosen for deletion by the cluster-autoscaler or somebody else:
// machine-controller-manager deletes them at the next opportunity, whether they are preserved or not. The mark is
// priority 1. The cluster-autoscaler leaves it to machine-controller-manager, which sets it together with
// machine.sapcloud.io/marked-for-deletion-time when it sees the name in an annotation of the MachineDeployment.
func (h *Holds) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
	// They are not cached, as most of them are never preserved, and the API server answers from its own cache.
	if err := h.APIReader.List(ctx, machines, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("failed to list Machines: %w", err)
	}
	preserved := slices.DeleteFunc(machines.Items, func(m metav1.PartialObjectMetadata) bool {
		return m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationCause] == ""
	})
	if len(preserved) == 0 {
		return healthy(), nil
	}

	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := h.Reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	chosen := sets.New[string]()
	for i := range deployments.Items {
		for entry := range strings.SplitSeq(deployments.Items[i].Annotations[machineutils.TriggerDeletionByMCM], ",") {
			name, _, _ := strings.Cut(entry, "~") // the rest is when
			chosen.Insert(name)
		}
	}

	var names []string
	for _, machine := range preserved {
		if machine.Annotations[machineutils.MachinePriority] == "1" || chosen.Has(machine.Name) {
			names = append(names, machine.Name)
		}
	}
	if len(names) == 0 {
		return healthy(), nil
	}
	slices.Sort(names)
	return unhealthy("preserved machines will be deleted, because they were chosen for deletion before they were preserved: " + strings.Join(brief.First(names, maxNamed), ", ")), nil
}
