// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package remediation decides when the host of a failed machine is powered off and on again, and when its node is made
// safe: pure functions of objects, settings and the time. It knows no kind of host.
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

// Host is what is known of the host of a machine.
type Host struct {
	// Namespace, Name and UID are those of the object that requests are written to.
	Namespace, Name string
	UID             types.UID
	// On is whether the host is on, as it reports; nil if it does not say.
	On *bool
	// OffSinceRequest says that it was on when Owner asked, and reported that it is off after that (X1).
	OffSinceRequest bool
	// Requested says that the reboot annotation is on it, and Owner whose it is, nil if that is not known to be this
	// extension's.
	Requested bool
	Owner     *Owner
	// Taken says in words why the host is not ours to cycle: somebody else keeps it off, or has it for maintenance (X14).
	// Empty for nothing.
	Taken string
	// Live says that all this is what the API server has, and not what a cache has that may be behind.
	Live bool
}
