// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// find returns whether the machine is known, and puts the group of its MachineDeployment together.
func (e *explanation) find() (bool, error) {
	seed := e.snapshot.Seed
	if seed == nil {
		if e.node == nil {
			return false, noNode(e.snapshot, e.name)
		}
		e.say(Unknown, "", "What only the seed knows: the machine and its phase, the places of its pool and which machines have them, whether the pool is being updated, and whether operators forbid preserving the machine. Operators see it with --seed-namespace.")
		return false, nil
	}
	machine := seed.Machine(e.name)
	if machine == nil {
		if e.node == nil {
			return false, fmt.Errorf("neither node nor machine %q exists", e.name)
		}
		e.say(Unknown, "", "The machine: no machine in namespace %s has this node.", seed.Namespace)
		return false, nil
	}
	if e.deployment = facts.DeploymentOf(machine, seed.MachineSets, seed.MachineDeployments); e.deployment == nil {
		e.say(Unknown, "", "The MachineDeployment of machine %s. Without it, nothing is decided on the machine.", machine.Name)
		return false, nil
	}

	settings, err := settingsOf(seed.Controller)
	if seed.Controller == nil {
		e.say(Unknown, "", "The configuration of the preservation controller: its defaults are assumed.")
	}
	if err != nil {
		e.say(Unknown, "", "Some arguments of the preservation controller: their defaults are assumed, because %s.", printable(err.Error()))
	}
	group := settings.group.Of(e.deployment)
	if account, err := hours.Decode(seed.MachineHours); err == nil && settings.maxHours > 0 {
		account.Max = settings.maxHours
		e.hours = new(account.At(e.world.now))
		group.Hours = &preservation.Hours{SpentAt: e.hours.Spent(e.world.now), Until: e.hours.End()}
	}
	// If other machines are not known, it is not known how many places are free: then the share is taken as unknown.
	if group.Share != nil && *group.Share > 0 && len(e.snapshot.Unknown(observed.WhatOtherMachines)) > 0 {
		group.Share, e.world.placeUnknown = nil, true
	}
	if group.Holder == nil {
		group.Holder = holderOf(seed.Machines)
	}
	machines, rollout := facts.MachinesOf(e.deployment, seed.MachineSets, seed.Machines)
	group.Rollout = rollout
	for _, m := range machines {
		if m == machine {
			e.world.index = len(group.Members)
		}
		group.Members = append(group.Members, memberOf(e.snapshot, m))
	}
	if settings.storm.Enabled() {
		all := make([]facts.Member, len(seed.Machines))
		for i := range seed.Machines { // the nodes of other MachineDeployments may not be among those that were read
			all[i] = memberOf(e.snapshot, &seed.Machines[i])
		}
		group.Storm = facts.StormOf(all, preservation.FailedSince, settings.storm, group.Timeouts, group.NodeConditions, e.world.now)
	}
	e.readElsewhere(&group)
	e.world.group = group
	if e.node == nil {
		e.node = group.Members[e.world.index].Node
	}
	return true, nil
}

// readElsewhere adds the other MachineDeployments of a pool whose zones share their places (P20).
func (e *explanation) readElsewhere(group *preservation.Group) {
	seed := e.snapshot.Seed
	for i := range seed.MachineDeployments {
		deployment := &seed.MachineDeployments[i]
		other := group.Of(deployment)
		if group.SharedIn == "" || deployment.UID == e.deployment.UID || other.SharedIn != group.SharedIn {
			continue
		}
		other.Members, other.Elsewhere = nil, nil
		if group.Share == nil || deployment.DeletionTimestamp != nil {
			other.Share = nil
		}
		var machines []*machinev1alpha1.Machine
		machines, other.Rollout = facts.MachinesOf(deployment, seed.MachineSets, seed.Machines)
		for _, m := range machines {
			other.Members = append(other.Members, memberOf(e.snapshot, m))
		}
		group.Elsewhere = append(group.Elsewhere, other)
	}
}

func memberOf(known *observed.Snapshot, m *machinev1alpha1.Machine) facts.Member {
	member := facts.Member{Machine: m}
	if node := m.Labels[machinev1alpha1.NodeLabelKey]; node != "" {
		member.Node = known.Shoot.Node(node)
		member.NodeUnknown = member.Node == nil && len(known.Unknown(observed.WhatNode, observed.WhatNodes)) > 0
	}
	return member
}

// holderOf returns the holder that has held the machines, as far as one can see.
func holderOf(machines []machinev1alpha1.Machine) preservation.Holder {
	if slices.ContainsFunc(machines, func(m machinev1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil }) {
		return preservation.PreserveExpiry{}
	}
	return preservation.HealthTimer{}
}

// noNode is the error for a node that does not exist or is not known.
func noNode(known *observed.Snapshot, name string) error {
	if unknown := known.Unknown(observed.WhatNode); len(unknown) > 0 {
		return fmt.Errorf("node %q is not known: %s", name, printable(unknown[0].Reason))
	}
	return fmt.Errorf("node %q does not exist", name)
}
