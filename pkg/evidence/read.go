// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const (
	// deploymentMCM is the Deployment whose pods look after machines, and the prefix of its containers that do.
	deploymentMCM = "machine-controller-manager"
	// containerSidecar is the container that preserves machines.
	containerSidecar = "machine-preservation-controller"
)

// ReadNodes fills in the shoot's nodes.
func ReadNodes(ctx context.Context, shoot client.Reader, s *observed.Snapshot) error {
	nodes := &corev1.NodeList{}
	err := shoot.List(ctx, nodes)
	s.Shoot.Nodes = nodes.Items
	return err
}

// ReadMaintenances fills in the shoot's node maintenances if it has the API.
func ReadMaintenances(ctx context.Context, shoot client.Reader, s *observed.Snapshot) {
	list := &maintenancev1alpha1.NodeMaintenanceList{}
	err := shoot.List(ctx, list)
	s.Shoot.HasMaintenances, s.Shoot.Maintenances = !HasNoAPI(err), list.Items
	if s.Shoot.HasMaintenances {
		s.Note(observed.WhatMaintenances, err)
	}
}

// ReadMachines fills in the machines and MachineDeployments of the shoot's control plane: two calls.
func ReadMachines(ctx context.Context, seed client.Reader, namespace string, s *observed.Snapshot) error {
	machines, deployments := &machinev1alpha1.MachineList{}, &machinev1alpha1.MachineDeploymentList{}
	if err := listMachines(ctx, seed, namespace, machines, deployments); err != nil {
		return err
	}
	if s.Seed == nil {
		s.Seed = &observed.Seed{Namespace: namespace}
	}
	s.Seed.Machines, s.Seed.MachineDeployments = machines.Items, deployments.Items
	if len(deployments.Items) == 0 {
		s.Note(observed.WhatMachines, fmt.Errorf("namespace %s of the seed has no MachineDeployments: check that it is the namespace of the shoot's control plane", namespace))
	}
	return nil
}

// ReadMachineSets fills in what joins machines and MachineDeployments, after ReadMachines.
func ReadMachineSets(ctx context.Context, seed client.Reader, s *observed.Snapshot) error {
	sets := &machinev1alpha1.MachineSetList{}
	err := listMachines(ctx, seed, s.Seed.Namespace, sets)
	s.Seed.MachineSets = sets.Items
	return err
}

func listMachines(ctx context.Context, seed client.Reader, namespace string, lists ...client.ObjectList) error {
	for _, list := range lists {
		err := seed.List(ctx, list, client.InNamespace(namespace))
		if HasNoAPI(err) {
			err = errNoSeed
		}
		if err != nil {
			return fmt.Errorf("failed to read the machines of namespace %s of the seed: %w", namespace, err)
		}
	}
	return nil
}

// ReadController fills in how the preservation controller runs, after ReadMachines.
func ReadController(ctx context.Context, seed client.Reader, s *observed.Snapshot) error {
	deployment, err := readMCM(ctx, seed, s.Seed.Namespace)
	if err == nil {
		s.Seed.Controller = controllerOf(deployment)
	}
	return err
}

// ReadMachineHours fills in the account of machine-hours, after ReadMachines. Where there is none, they are not counted.
func ReadMachineHours(ctx context.Context, seed client.Reader, s *observed.Snapshot) error {
	account := &corev1.ConfigMap{}
	err := seed.Get(ctx, client.ObjectKey{Namespace: s.Seed.Namespace, Name: hours.ConfigMapName}, account)
	s.Seed.MachineHours = account.Data[hours.Key]
	return client.IgnoreNotFound(err)
}

func readMCM(ctx context.Context, seed client.Reader, namespace string) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	return deployment, seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deploymentMCM}, deployment)
}

// controllerOf returns how the preservation controller runs beside machine-controller-manager.
func controllerOf(deployment *appsv1.Deployment) *observed.Controller {
	pod := deployment.Spec.Template.Spec
	for _, containers := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range containers {
			if containers[i].Name == containerSidecar {
				return &observed.Controller{Injected: true, Args: containers[i].Args}
			}
		}
	}
	return &observed.Controller{}
}

// ReadEvents returns the last Events of an object, or of all of a name if the kind is empty. Those of a node are in namespace
// default. It is an error if there are more.
func ReadEvents(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]eventsv1.Event, error) {
	fields := client.MatchingFields{"regarding.name": name}
	if kind != "" {
		fields["regarding.kind"] = kind
	}
	return readLast(ctx, reader, nil, client.InNamespace(namespace), fields)
}

// ReadAll returns the nodes, node maintenances, machines and MachineDeployments of now: two calls to the shoot, and two to the
// seed, which may be nil. What the shoot knows may be missing where the seed says what is kept (P9), else it is an error if the
// nodes cannot be had.
func ReadAll(ctx context.Context, sources Sources) (*observed.Snapshot, error) {
	s := &observed.Snapshot{Time: sources.Clock.Now()}
	if err := ReadNodes(ctx, sources.Shoot, s); err != nil && sources.Seed == nil {
		return nil, fmt.Errorf("failed to list the nodes: %w", err)
	} else if err != nil {
		s.Note(observed.WhatShoot, err) // nor would it answer anything else
	} else {
		ReadMaintenances(ctx, sources.Shoot, s)
	}
	if sources.Seed != nil {
		if err := ReadMachines(ctx, sources.Seed, sources.SeedNamespace, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// HasNoAPI says that an API server answered that it does not know the kind that was listed.
func HasNoAPI(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
