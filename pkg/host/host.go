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
	// ErrNoKind says that the API server serves no such kind: there are no hosts, or these are not the cluster's.
	ErrNoKind = errors.New("the kind is not served")
)

// Access is how a driver reaches the hosts of the machines of a control plane.
type Access struct {
	// Namespace is that of the Machines.
	Namespace string
	// HostNamespace is that of the hosts: who may list them there need not be allowed to do so anywhere else. It is the one of the
	// kubeconfig's context (see ReadKubeconfig), and without a kubeconfig the Namespace.
	HostNamespace string
	// Cached may be behind, and need not keep more than the driver's ByObject says. APIReader asks the API server. They may be
	// the same.
	Cached, APIReader client.Reader
	client.Writer
}

// Driver reads and switches the power of hosts of one kind. Errors of the API server are wrapped; of a kind that is not there it
// is ErrNoKind, with the kind's name.
type Driver interface {
	// Key returns which object the host of a machine is, and false if the machine names none. It asks nobody.
	Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool)
	// Of returns the host of a machine as it is in the cache, ErrNoHost, or ErrForeign. A request of any other machine is not that
	// machine's, also if it had the same name and the host is its own: that is known from the Owner.
	Of(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error)
	// Live is Of as the API server has it now. What cannot be undone must rest on it: a cache may still say that a host is off
	// when it is on again, and its node must not be made safe then (X1). It says so of the host.
	Live(ctx context.Context, machine *machinev1alpha1.Machine) (*remediation.Host, error)
	// PowerOff asks for the host to be off, on behalf of an owner, whose On it fills in, in one write. It is refused with a
	// Conflict if the host is not as it was read any more, and if it is not reported to be on (X1): one that is taken, has a
	// request, even that of the same owner, or has another machine.
	PowerOff(ctx context.Context, host *remediation.Host, owner remediation.Owner) error
	// Release takes the request back, if it still is the one of the same machine (X2). A host without one is no error.
	Release(ctx context.Context, host *remediation.Host) error
	// Owned returns all hosts of the HostNamespace, from the cache, that the machines of a control plane own, also those whose
	// request somebody else has taken back: they are to be released as well.
	Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error)
	// Objects are the kinds that are watched.
	Objects() []client.Object
	// Machine returns which machine of the control plane an object of one of these kinds is to wake: its namespace and name, and
	// false for none.
	Machine(ctx context.Context, object client.Object) (client.ObjectKey, bool)
}
