// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// WhatMaintenances is how Missing names the NodeMaintenances.
const WhatMaintenances = "node maintenances"

// ReadNodes fills in the shoot's nodes, and its node maintenances if it has the API: two calls. What is not known without
// the nodes is nothing, and so it is an error if they cannot be had.
func ReadNodes(ctx context.Context, shoot client.Reader, s *Snapshot) error {
	nodes := &corev1.NodeList{}
	if err := shoot.List(ctx, nodes); err != nil {
		return fmt.Errorf("failed to list the nodes: %w", err)
	}
	s.Shoot.Nodes = nodes.Items
	ReadMaintenances(ctx, shoot, s)
	return nil
}

// ReadMaintenances fills in the shoot's node maintenances if it has the API.
func ReadMaintenances(ctx context.Context, shoot client.Reader, s *Snapshot) {
	list := &maintenancev1alpha1.NodeMaintenanceList{}
	err := shoot.List(ctx, list)
	s.Shoot.HasMaintenances, s.Shoot.Maintenances = !HasNoAPI(err), list.Items
	switch {
	case !s.Shoot.HasMaintenances:
		s.Missing = append(s.Missing, Missing{What: WhatMaintenances, Reason: "the shoot has no node maintenance"})
	case err != nil:
		s.Missing = append(s.Missing, Missing{What: WhatMaintenances, Reason: err.Error()})
	}
}

// ReadMachines fills in the machines and MachineDeployments of the shoot's control plane: two calls.
func ReadMachines(ctx context.Context, seed client.Reader, namespace string, s *Snapshot) error {
	machines, deployments := &machinev1alpha1.MachineList{}, &machinev1alpha1.MachineDeploymentList{}
	for what, list := range map[string]client.ObjectList{"machines": machines, "MachineDeployments": deployments} {
		if err := seed.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("failed to list the %s in namespace %s of the seed: %w", what, namespace, err)
		}
	}
	if s.Seed == nil {
		s.Seed = &Seed{Namespace: namespace}
	}
	s.Seed.Machines, s.Seed.MachineDeployments = machines.Items, deployments.Items
	if len(deployments.Items) == 0 {
		s.Missing = append(s.Missing, Missing{What: "machines", Reason: fmt.Sprintf("namespace %s of the seed has no MachineDeployments: is it that of the shoot's control plane?", namespace)})
	}
	return nil
}

// ReadAll returns the nodes, node maintenances, machines and MachineDeployments of now. The seed may be nil.
func ReadAll(ctx context.Context, shoot, seed client.Reader, namespace string, now time.Time) (*Snapshot, error) {
	s := &Snapshot{Time: now}
	if err := ReadNodes(ctx, shoot, s); err != nil {
		return nil, err
	}
	if seed != nil {
		if err := ReadMachines(ctx, seed, namespace, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// HasNoAPI says that an API server answered that it does not know the kind that was listed.
func HasNoAPI(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
