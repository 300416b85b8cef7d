// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package host has what is needed of the power of machines' hosts. What differs between kinds of hosts is in a package below for
// each of them.
package host

import (
	"context"
	"errors"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	// ErrNoHost says that the machine names no host of this kind, or one that does not exist or is not its own.
	ErrNoHost = errors.New("the machine has no host")
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
	// Cached may be behind, and need not keep more than the kind's ByObject says. APIReader asks the API server. They may be
	// the same.
	Cached, APIReader client.Reader
	client.Writer
}

// Kind is what hosts of one kind have of their own. What holds for all of them is the Driver's.
type Kind interface {
	// Objects are the kinds that are watched. Requests are written to the first.
	Objects() []client.Object
	// Key returns which object the host of a machine is, and false if the machine names none. It asks nobody.
	Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool)
	// HostOf returns the host that an object of any of these kinds is about, nil for none.
	HostOf(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) *unstructured.Unstructured
	// Rest returns the other objects that a host consists of, with nothing but what identifies them.
	Rest(host *unstructured.Unstructured) []*unstructured.Unstructured
	// Consumer returns the machine that a host says it is for, and false if it says so of none. If it says no namespace, that is
	// the one of the Machines.
	Consumer(host *unstructured.Unstructured, namespace string) (client.ObjectKey, bool)
	// Report returns what there is to know of a host. What else is read for it is read after it.
	Report(ctx context.Context, reader client.Reader, host *unstructured.Unstructured) (Report, error)
	// Switch changes what else a request changes of a host beside that it is annotated, or is not any more if on.
	Switch(host *unstructured.Unstructured, on bool) error
}

// Report is what there is to know of a host, beside requests.
type Report struct {
	// On is whether the host is on, nil if that is not known.
	On *bool
	// By is the object that reports On, as it was read. It is not nil where On is not.
	By metav1.Object
	// IsAsked says that who reports is asked for it to be off: he may be off for another reason.
	IsAsked bool
	// Changed is when By was written last, as its controller says it; zero if it does not (X17).
	Changed time.Time
	// Unowned says that what keeps a host off of a request of ours is there: it is that of somebody, or has lost its owner (X20).
	// It does not matter where there is an owner.
	Unowned bool
	// Servicing says in words what the host's own controller is doing with it, empty for nothing (X18), and Error what it reports to
	// be wrong with it, as it says it, of any length (X20). Both of them make a host taken.
	Servicing, Error string
	// Taken says in words why it is not ours to cycle beside that (X14), empty for nothing.
	Taken string
}
