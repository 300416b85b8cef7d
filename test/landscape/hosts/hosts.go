// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package hosts is what the machines of the landscape run on, if they are to be switched off and on. Each machine has a host
// of its own. Each kind of host has a package below, with the controllers that know its API: they switch the machine's Pod
// (see simulator.Power), and report the power, as if there was hardware between.
package hosts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// Kinds of hosts.
const (
	BareMetalHost = "baremetalhost"
	// IronCore03 and IronCore07 are those of metal-operator v0.3 and v0.7.
	IronCore03 = "ironcore-0.3"
	IronCore07 = "ironcore-0.7"
)

var kinds = []string{BareMetalHost, IronCore03, IronCore07}

// Validate returns an error that names the valid kinds of hosts if the given one is none of them. Empty is valid: machines
// have no hosts.
func Validate(kind string) error {
	if kind == "" || slices.Contains(kinds, kind) {
		return nil
	}
	return fmt.Errorf("invalid kind of hosts %q, valid are: %s", kind, strings.Join(kinds, ", "))
}

// MisbehaviourAnnotation is the annotation of a host that makes it not do what it is asked for.
const MisbehaviourAnnotation = "landscape.machine-preservation/misbehaviour"

// Misbehaviour is what a host does instead. An unknown one is none.
type Misbehaviour string

const (
	// NeverOff means that the host does not switch off.
	NeverOff Misbehaviour = "never-off"
	// NeverOn means that the host does not switch on.
	NeverOn Misbehaviour = "never-on"
	// OldBootID means that the machine comes back with the boot id that it had, as if it had not been off.
	OldBootID Misbehaviour = "old-boot-id"
	// LateReport means that the host does not report a switch before LateReportLag.
	LateReport Misbehaviour = "late-report"
	// Servicing means that there is firmware to be updated, which begins when the host is off next, and takes ServicingTime. It is
	// done then. Only BareMetalHosts know it.
	Servicing Misbehaviour = "servicing"
	// PowerError means that the host does not switch, and reports an error where it knows how to.
	PowerError Misbehaviour = "power-error"
)

const (
	// LateReportLag is how late a host with LateReport is.
	LateReportLag = 20 * time.Second
	// ServicingTime is how long it takes to service a host.
	ServicingTime = 80 * time.Second
)

// MisbehaviourOf returns what the annotation of a host says.
func MisbehaviourOf(host client.Object) Misbehaviour {
	return Misbehaviour(host.GetAnnotations()[MisbehaviourAnnotation])
}

// Obeys returns whether the host switches.
func (m Misbehaviour) Obeys(on bool) bool {
	return m != PowerError && (on && m != NeverOn || !on && m != NeverOff)
}

// Machine returns the Pod of a machine, nil if there is none.
func Machine(ctx context.Context, c client.Reader, machine client.ObjectKey) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := c.Get(ctx, simulator.PodKey(machine), pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("could not read the pod of the machine: %w", err)
	}
	return pod, nil
}

// Switch switches a machine, and returns its power.
func (m Misbehaviour) Switch(ctx context.Context, c client.Client, pod *corev1.Pod, on bool, now time.Time) (simulator.Power, error) {
	power, err := simulator.PowerOf(pod)
	if err != nil || power.On == on {
		return power, err
	}
	power.On, power.Since = on, now
	if on && m != OldBootID {
		power.BootID = string(uuid.NewUUID())
	}
	before := pod.DeepCopy()
	if err := power.Apply(pod); err != nil {
		return power, err
	}
	if err := c.Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return power, fmt.Errorf("could not switch the machine: %w", err)
	}
	return power, nil
}
