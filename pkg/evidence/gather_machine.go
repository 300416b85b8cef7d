// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// labelMachine is the label of a Node with the name of its Machine.
const labelMachine = "node.gardener.cloud/machine-name"

// readMachines reads what the seed knows of the machine and of the others of its MachineDeployment, with which it shares places.
func (c *collector) readMachines(ctx context.Context) {
	if c.Seed == nil {
		c.note(observed.WhatSeed, errors.New("there is no access to the seed"))
		return
	}
	s := &c.bundle.Snapshot
	if !c.try(ctx, observed.WhatSeed, func(ctx context.Context) error {
		err := ReadMachines(ctx, c.Seed, c.SeedNamespace, s)
		if err == nil {
			err = ReadMachineSets(ctx, c.Seed, s)
		}
		if errors.Is(err, errNoSeed) {
			return errNoSeed
		}
		return err
	}) {
		s.Seed = nil
		return
	}
	seed := s.Seed
	if c.Controller != nil {
		seed.Controller = new(*c.Controller) // others may be gathering with it
	} else {
		c.try(ctx, observed.WhatController, func(ctx context.Context) (err error) {
			if c.mcm, err = readMCM(ctx, c.Seed, c.SeedNamespace); err == nil {
				seed.Controller = controllerOf(c.mcm)
			}
			return err
		})
	}
	found := seed.Machine(c.Name)
	if found == nil {
		seed.Machines, seed.MachineSets, seed.MachineDeployments = nil, nil, nil
		return
	}
	machine := *found // what is found moves
	c.machine = &machine
	keepGroup(seed, c.machine)
	for i := range seed.Machines {
		if node := seed.Machines[i].Labels[machinev1alpha1.NodeLabelKey]; node != "" {
			c.siblings.Insert(node)
		}
	}
	for i := range seed.MachineDeployments {
		c.pool = seed.MachineDeployments[i].Labels[facts.LabelPool]
		if pool := seed.MachineDeployments[i].Spec.Template.Spec.NodeTemplateSpec.Labels[facts.LabelPool]; pool != "" {
			c.pool = pool
		}
	}
}

// keepGroup leaves the MachineDeployment of a machine, and those that share their places with it, with their sets and machines.
func keepGroup(seed *observed.Seed, machine *machinev1alpha1.Machine) {
	deployment := &machinev1alpha1.MachineDeployment{} // which owns nothing
	if found := facts.DeploymentOf(machine, seed.MachineSets, seed.MachineDeployments); found != nil {
		deployment = new(*found) // what is found moves
	}
	shared := deployment.Annotations[v1alpha1.AnnotationSharedInPool]
	seed.MachineDeployments = slices.DeleteFunc(seed.MachineDeployments, func(d machinev1alpha1.MachineDeployment) bool {
		return d.UID != deployment.UID && (shared == "" || d.Annotations[v1alpha1.AnnotationSharedInPool] != shared)
	})
	seed.MachineSets = slices.DeleteFunc(seed.MachineSets, func(s machinev1alpha1.MachineSet) bool {
		return !metav1.IsControlledBy(machine, &s) && !slices.ContainsFunc(seed.MachineDeployments, func(d machinev1alpha1.MachineDeployment) bool { return metav1.IsControlledBy(&s, &d) })
	})
	// A copy, because the bundle would otherwise keep the room for all machines otherwise.
	seed.Machines = slices.Clone(slices.DeleteFunc(seed.Machines, func(m machinev1alpha1.Machine) bool {
		return m.Name != machine.Name && !slices.ContainsFunc(seed.MachineSets, func(s machinev1alpha1.MachineSet) bool { return metav1.IsControlledBy(&m, &s) })
	}))
}

// find learns which node it is about.
func (c *collector) find(ctx context.Context) error {
	c.bundle.Node = c.Name
	if c.machine != nil {
		c.bundle.Machine, c.bundle.Node = c.machine.Name, c.machine.Labels[machinev1alpha1.NodeLabelKey]
	}
	switch {
	case c.Shoot == nil:
		c.note(observed.WhatShoot, errors.New("there is no access to the shoot"))
	case c.bundle.Node == "":
		c.note(observed.Thing("node of machine "+c.bundle.Machine), errors.New("the machine has no node: it has not joined"))
	default:
		node := &corev1.Node{}
		err := c.call(ctx, callTimeout, func(ctx context.Context) error {
			return c.Shoot.Get(ctx, client.ObjectKey{Name: c.bundle.Node}, node)
		})
		switch {
		case err == nil:
			c.bundle.Snapshot.Shoot.Nodes = []corev1.Node{*node}
			if c.bundle.Machine == "" {
				c.bundle.Machine = node.Labels[labelMachine]
			}
			if pool := node.Labels[facts.LabelPool]; pool != "" {
				c.pool = pool
			}
		case apierrors.IsNotFound(err):
			c.note(observed.Thing("node "+c.bundle.Node), errors.New("it is gone, or never joined"))
		default:
			c.nodeUnknown = true
			c.note(observed.WhatNode, err)
		}
		// An API server that does not answer is not asked for all the rest.
		var status apierrors.APIStatus
		if c.nodeUnknown && !errors.As(err, &status) {
			c.note(observed.WhatShoot, err)
			c.note(whatKubelet, err)
			c.Shoot, c.NodeProxy = nil, nil
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if c.machine != nil || len(c.bundle.Snapshot.Shoot.Nodes) > 0 {
		return nil
	}
	unasked := c.nodeUnknown || c.Shoot == nil
	switch {
	case unasked && c.bundle.Snapshot.Seed == nil:
		return fmt.Errorf("nothing is known of %q: %s", c.Name, c.reasons())
	case unasked:
		return fmt.Errorf("the seed has no machine %q and no machine with this node, and the shoot cannot be read: %s", c.Name, c.reasons())
	}
	return fmt.Errorf("%w: %q", ErrNotFound, c.Name)
}

// reasons returns why nothing could be had, each reason once.
func (c *collector) reasons() string {
	var reasons []string
	for _, missing := range c.bundle.Snapshot.Missing {
		if !slices.Contains(reasons, missing.Reason) {
			reasons = append(reasons, missing.Reason)
		}
	}
	return strings.Join(reasons, "; ")
}
