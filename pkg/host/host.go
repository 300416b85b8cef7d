// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package host has what is needed of the power of machines' hosts. Each kind of host has a driver in a package below.
package host

import (
	"context"
	"errors"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

var (
	// ErrNoHost says that the machine names no host of this kind, or one that does not exist.
	ErrNoHost = errors.New("the machine has no host of this kind")
	// ErrForeign says that the host belongs to another machine, or to another shoot.
	ErrForeign = errors.New("the host belongs to somebody else")
)

// Driver reads and switches the power of hosts of one kind. Errors of the API server are returned as they are.
type Driver interface {
	// Key returns which object the host of a machine is, and false if the machine names none. It asks nobody.
	Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool)
	// Of returns the host of a machine as it is in the cache, ErrNoHost, or ErrForeign.
	Of(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error)
	// PowerOff asks for the host to be off, on behalf of an owner, whose On it fills in, in one write. It is refused with a
	// Conflict if the host has changed since, and if it is not reported to be on (X1).
	PowerOff(ctx context.Context, host *remediation.Host, owner remediation.Owner) error
	// Release takes the request back, if it still is the one of the same machine (X2). A host without one is no error.
	Release(ctx context.Context, host *remediation.Host) error
	// Owned returns all hosts with a request of the machines of a control plane.
	Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error)
	// Objects are the kinds that are watched.
	Objects() []client.Object
	// Machine returns which machine an object of one of these kinds is to wake: its namespace and name, and false for none.
	Machine(ctx context.Context, object client.Object) (client.ObjectKey, bool)
}
