// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package remediation decides when the host of a failed machine is powered off and on again, and when its node is made safe. Its
// functions are pure: they depend on objects, settings and the time. It knows no kind of host.
package remediation

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Owner is whose request it is that a host is off. It is on the host, in one write with the request (X2).
type Owner struct {
	// Seed and Namespace are where the Machine is: a cluster of hosts is shared by many.
	Seed      string `json:"seed,omitempty"`
	Namespace string `json:"namespace"`
	// Machine is the name, and UID the UID of the Machine.
	Machine string    `json:"machine"`
	UID     types.UID `json:"uid"`
	// BootID is that of the node when it was asked for; empty if there was none that could be believed (X13).
	BootID string `json:"bootID,omitempty"`
	// Time is when it was asked for.
	Time time.Time `json:"time"`
	// On is the version of the object that reports the power at which the host was on when it was asked for (X1).
	On string `json:"on"`
}

// Cycle is a power cycle that a host has had. Those of the last day are on the host, whatever became of their Machines (X20).
type Cycle struct {
	// Machine is the UID of the Machine it was for, and Began when it began.
	Machine types.UID `json:"machine"`
	Began   time.Time `json:"began"`
}

// Host is what is known of the host of a machine.
type Host struct {
	// Namespace, Name and UID are those of the object that requests are written to.
	Namespace, Name string
	UID             types.UID
	// On is whether the host reports that it is on; nil if it does not say.
	On *bool
	// OffSinceRequest says that it was on when Owner asked, and reported that it is off after that (X1).
	OffSinceRequest bool
	// Requested says that the reboot annotation is on it, and Owner whose it is, nil if that is not known to be this
	// extension's.
	Requested bool
	Owner     *Owner
	// Unowned says that the host is kept off by what may be a request of ours that has lost its Owner: there is none (X20).
	Unowned bool
	// Changed is when what reports the power was written last, so that the host was not switched on later than that (X17); zero
	// if that is not known.
	Changed time.Time
	// Servicing says in words what the host's own controller is doing with it, a firmware update for example: nothing is written
	// to the host meanwhile (X18). Empty for nothing.
	Servicing string
	// Error is what the controller of the host reports to be wrong with it, in its own words (X20). Empty for nothing.
	Error string
	// Cycles are those that the host has had within the last day, and a little longer, on behalf of whatever Machine (X20).
	Cycles []Cycle
	// Taken says in words why the host is not ours to cycle: somebody else keeps it off, has it for maintenance or services it, or
	// its own controller reports an error (X14, X18, X20). Empty for nothing.
	Taken string
	// Live says that all this is what the API server has, and not what a cache has that may be behind.
	Live bool
}

// ownsHost says that there is something on the host that this machine, or what it was before it was restored, has to take back
// (X2): maybe no more than the owner.
func (d *decision) ownsHost() bool {
	return d.Host != nil && (d.isLost() || d.Host.Owner != nil && (d.Host.Owner.UID == d.Machine.UID || d.isRestored()))
}

// isLost says that the host is off for this machine, and does not say so any more: its Owner is to be put back (X20).
func (d *decision) isLost() bool {
	return d.Host != nil && d.Host.Unowned && d.Host.Owner == nil && d.is.record.On != "" && d.Host.UID == d.is.record.Host && (d.is.keepsOff() || d.is.finalizer)
}

// isRestored says that the host is off on behalf of what the machine was before its control plane was restored elsewhere. Its
// driver has made sure that it is the host of a machine of that namespace and name.
func (d *decision) isRestored() bool {
	owner := d.Host.Owner
	return owner != nil && owner.UID != d.Machine.UID && owner.Namespace == d.Machine.Namespace && owner.Machine == d.Machine.Name
}

// holdsHost says that the reboot annotation on the host is this very machine's.
func (d *decision) holdsHost() bool {
	return d.ownsHost() && d.Host.Requested && !d.isRestored()
}

// isReleased says that the machine has no host, or one that is known not to be kept off for it. Where a cache says so, it asks for that to
// be confirmed.
func (d *decision) isReleased() bool {
	switch {
	case d.Host == nil:
		return d.NoHost != ""
	case d.ownsHost():
		return false
	case d.is.finalizer && !d.Host.Live: // a cache may not know yet that it was asked to be off
		d.Confirm = true
		return false
	}
	return true
}
