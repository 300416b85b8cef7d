// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package host reads and switches the power of machines' hosts. What differs between kinds of hosts is in packages below, one for
// each kind.
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
	// ErrNoHost says that the machine names no host of this kind, or names a host that does not exist or belongs to somebody else.
	ErrNoHost = errors.New("the machine has no host")
	// ErrNoKind says that the API server does not serve the kind: there are no hosts, or they are in another cluster.
	ErrNoKind = errors.New("the kind is not served")
)

// Access is how a driver reaches the hosts of the machines of a control plane.
type Access struct {
	// Namespace is that of the Machines.
	Namespace string
	// HostNamespace is that of the hosts. A driver lists hosts only there, so it needs permissions in no other namespace. It is the
	// namespace of the kubeconfig's context (see ReadKubeconfig), or the Namespace if there is no kubeconfig.
	HostNamespace string
	// Cached may lag, and need not store more than the kind's ByObject says. APIReader reads from the API server. They may be
	// the same.
	Cached, APIReader client.Reader
	client.Writer
}

// Kind is what is special to hosts of one kind. What all kinds have in common is in the Driver.
type Kind interface {
	// Objects are the kinds that are watched. Requests are written to the first.
	Objects() []client.Object
	// Key returns the key of a machine's host, and false if the machine names none. It does not read anything.
	Key(machine *machinev1alpha1.Machine) (client.ObjectKey, bool)
	// HostOf returns the host that an object of any of these kinds belongs to, nil for none.
	HostOf(ctx context.Context, reader client.Reader, object *unstructured.Unstructured) *unstructured.Unstructured
	// Rest returns the other objects that a host consists of. They have only what identifies them.
	Rest(host *unstructured.Unstructured) []*unstructured.Unstructured
	// Consumer returns the machine that a host says it is for, and false if it names none. If it names no namespace, the given
	// namespace counts, which is that of the Machines.
	Consumer(host *unstructured.Unstructured, namespace string) (client.ObjectKey, bool)
	// Report returns the state of a host. Other objects are read after the host, never before.
	Report(ctx context.Context, reader client.Reader, host *unstructured.Unstructured) (Report, error)
	// Switch makes the changes of a request beside the annotation: it switches the host on or off.
	Switch(host *unstructured.Unstructured, on bool) error
}

// Report is the state of a host, without requests.
type Report struct {
	// On is whether the host is on, nil if that is not known.
	On *bool
	// By is the object that reports On, in the version that was read. It is not nil if On is not nil.
	By metav1.Object
	// IsAsked says that a request reaches the object that reports On. Without it, that object may be off for another reason.
	IsAsked bool
	// Changed is when By was last written according to its controller, zero if that is not known (X17).
	Changed time.Time
	// Unowned says that the host has something that keeps it off, as a request of ours would: it is somebody else's, or a request of
	// ours that has lost its owner (X20). It has no meaning if there is an owner.
	Unowned bool
	// Servicing says in words what the host's own controller is doing with the host, empty for nothing (X18). Error is the error that
	// this controller reports, in its own words and of any length (X20). A host with either of them is taken.
	Servicing, Error string
	// Taken says in words for what other reason the host must not be cycled (X14), empty for none.
	Taken string
}
