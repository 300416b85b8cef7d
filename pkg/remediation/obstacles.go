// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// obstacle returns in words why no cycle may begin for the machine now, and why its host must not be switched off for one that
// has begun; empty for nothing (X4, X8, X14). What ends without a change of an object is looked at again in time.
func (d *decision) obstacle() string {
	if reason := d.immovable(); reason != "" {
		return reason
	}
	switch g := d.group; {
	case !facts.IsPhaseKnown(d.Machine):
		return "Machine-controller-manager has the machine in a phase that the preservation controller does not know."
	case d.Host == nil:
		return "The host is currently not known."
	case d.Host.Taken != "":
		return d.Host.Taken
	case d.Host.Requested:
		return "Somebody else has requested the host to be off."
	case !d.isOn():
		return "The host does not report that it is on."
	case d.waitsUntil(d.startedAt().Add(g.Settings.NodeStartup)):
		return "The host may have been powered on a short time ago. Its node still has time to start."
	case d.isUnwanted():
		return "The machine may have recovered."
	case d.isMaintained():
		return "A maintenance of the node is in progress."
	case d.hasNodeRequest():
		return "The request is still on the Node."
	case g.ShootAway, d.NodeUnknown:
		return "The API server of the shoot does not answer."
	case d.waitsForShoot():
		return "The API server of the shoot did not answer until a short time ago."
	case d.to.record.Automatic && d.isStormy():
		return "Too many machines of the shoot fail at the same time: no machine is power-cycled automatically until fewer fail."
	case d.unwell:
		return "Too many nodes of the pool in this zone are not ready."
	case d.nodes == nil:
		return notCounted
	case d.withThis().areTooManyAway():
		return "Too many nodes of the shoot would not be ready."
	case d.waitsUntil(d.to.record.Again):
		return "The node still has time to start after the last power cycle."
	}
	return ""
}

// clockError is by how much the clocks of two that lead may differ.
const clockError = time.Minute

// notCounted is why nothing begins while the other nodes of the shoot are not known as they are (X8).
const notCounted = "It is not known how many nodes of the shoot are ready."

// waitsForShoot says that the shoot's API server has not answered for long enough, or had not for another controller (X8). What that has noted
// is not believed if it is farther in the future than it can be.
func (d *decision) waitsForShoot() bool {
	var until time.Time
	if back := d.group.ShootBack; !back.IsZero() {
		until = back.UTC().Add(d.healthTimeout()).Add(time.Second - 1).Truncate(time.Second)
	}
	if noted := d.to.record.NotBefore; noted.After(until) && !noted.After(d.now.Add(d.healthTimeout()).Add(clockError)) {
		until = noted
	}
	if !d.waitsUntil(until) {
		return false
	}
	d.to.record.NotBefore = until
	return true
}

// startedAt returns when the host may have been switched on last, by whomever; zero if that is not known (X17). Clocks differ a
// little: what is far in the future is none, and counts from the request.
func (d *decision) startedAt() time.Time {
	if changed := d.Host.Changed; !changed.After(d.now.Add(d.group.Settings.NodeStartup)) {
		return changed
	}
	return d.to.record.Requested
}

// isStormy says that too many machines of the shoot fail at the same time, and looks again in time (X21).
func (d *decision) isStormy() bool {
	if !d.group.Storm.IsOn() {
		return false
	}
	d.wake(d.group.Storm.Next)
	d.wake(d.now.Add(facts.StormInterval))
	return true
}

const reasonUpdate = "The machines of the pool in this zone are being replaced or updated."

// immovable returns in words why the machine is none to be power-cycled, and not to be kept because of a request either;
// empty for nothing (X8, X14).
func (d *decision) immovable() string {
	switch d.Machine.Status.CurrentStatus.Phase {
	case "", machinev1alpha1.MachinePending, machinev1alpha1.MachineAvailable, machinev1alpha1.MachineCrashLoopBackOff:
		return "The machine is still being created or initialised."
	case machinev1alpha1.MachineInPlaceUpdating:
		return reasonUpdate
	}
	switch g := d.group; {
	case d.Machine.Spec.ProviderID == "":
		return "The machine has no provider ID."
	case d.NoHost != "":
		return d.NoHost
	case d.group.Forbids(d.Machine):
		return "The operators forbid preserving the machine: " + v1alpha1.AnnotationForbidden + "."
	case d.isStopped():
		return "The machine must not be preserved: " + v1alpha1.AnnotationPreserve + "=" + v1alpha1.RequestFalse + "."
	case g.Replicas == 0:
		return "The machines of the pool in this zone are being removed."
	case g.Rollout && (!g.InPlace || facts.IsUpdatedInPlace(d.Node)):
		return reasonUpdate
	}
	return ""
}

// isKept says that the request preserves the machine: a hold would end the attempts to create one, and is not honoured otherwise. In a
// phase that is not known it goes on to, and does not begin to.
func (d *decision) isKept() bool {
	return d.immovable() == "" && (facts.IsPhaseKnown(d.Machine) || !d.is.until.IsZero())
}

// isStopped says that a person, or operators, want the machine not to be kept, which ends a cycle as well (X10, X14).
func (d *decision) isStopped() bool {
	return d.group.Forbids(d.Machine) || preservation.RequestOf(d.Member.Member, 0).Value == v1alpha1.RequestFalse
}

// isClaimed says that the machine is preserved because of the cycle, as is written on it (X10).
func (d *decision) isClaimed() bool {
	kept := preservation.ReadRecord(d.Machine)
	return kept != nil && slices.ContainsFunc(kept.Claims, func(c preservation.Claim) bool {
		return c.Cause == v1alpha1.CauseRemediation && d.now.Before(c.Expiry)
	})
}

// isMaintained says that a NodeMaintenance of the node is past Pending: a firmware flash must not lose its power (X8).
func (d *decision) isMaintained() bool {
	return d.Node != nil && facts.IsMaintained(d.Node)
}

// waitsUntil says that a time is yet to come, and looks again then.
func (d *decision) waitsUntil(t time.Time) bool {
	if d.now.Before(t) {
		d.wake(t)
		return true
	}
	return false
}

// isUnwell says that more than 30 % of the nodes, and more than one, are not ready: a network or a control plane has failed,
// and not machines (X8).
func (g *Group) isUnwell() bool {
	nodes, unready := 0, 0
	for _, m := range g.Members {
		if m.Node != nil {
			nodes++
			if !facts.IsReady(m.Node) {
				unready++
			}
		}
	}
	return unready*10 > max(10, nodes*3)
}

// count returns the nodes of the shoot, nil if they are not known.
func (g *Group) count() *NodeCount {
	if g.Others == nil {
		return nil
	}
	nodes := *g.Others
	for _, m := range g.Members {
		if m.Node != nil {
			nodes.Add(m.Node, m.Machine, g.NodeConditions)
		}
	}
	return &nodes
}

// withThis returns the nodes of the shoot as they are when the host is off. One that is not ready makes no difference. One that is ready
// and left out may be counted by then: nobody knows its conditions any more, or its machine is taken for running.
func (d *decision) withThis() NodeCount {
	nodes := *d.nodes
	if d.Node != nil && facts.IsReady(d.Node) && !d.is.underWay() {
		if !isWatched(d.Node, d.Machine, d.group.NodeConditions) {
			nodes.All++
		}
		nodes.Away++
	}
	return nodes
}
