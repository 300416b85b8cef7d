// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package observed has snapshots of nodes and their machines, for code that must not read from an API server itself.
package observed

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// Thing is a part of a snapshot that may be missing. Its values never change, because bundles have them.
type Thing string

// The things that the code looks for. There are more, which are their own text.
const (
	// WhatShoot is everything from the shoot's API server.
	WhatShoot         Thing = "Shoot"
	WhatSeed          Thing = "Seed"
	WhatMachines      Thing = "Machines"
	WhatNode          Thing = "Node"
	WhatNodes         Thing = "OtherNodes"
	WhatOtherMachines Thing = "OtherMachines"
	WhatNodeEvents    Thing = "NodeEvents"
	WhatMachineEvents Thing = "MachineEvents"
	WhatMaintenances  Thing = "NodeMaintenances"
	WhatController    Thing = "ControllerArguments"
	WhatPods          Thing = "Pods"
	WhatBudgets       Thing = "PodDisruptionBudgets"
	WhatHost          Thing = "Host"
	WhatMachineHours  Thing = "MachineHours"
)

var texts = map[Thing]string{
	WhatShoot:         "what the shoot knows",
	WhatSeed:          "what the seed knows: machines, their Events and logs",
	WhatMachines:      "machines",
	WhatNode:          "node",
	WhatNodes:         "other nodes of the MachineDeployment",
	WhatOtherMachines: "other machines of the MachineDeployment",
	WhatNodeEvents:    "Events of the node",
	WhatMachineEvents: "Events of the machine",
	WhatMaintenances:  "node maintenances",
	WhatController:    "arguments of the preservation controller",
	WhatPods:          "pods of the node",
	WhatBudgets:       "PodDisruptionBudgets of the pods",
	WhatHost:          "host of the machine",
	WhatMachineHours:  "account of machine-hours",
}

// Text returns the thing in words.
func (t Thing) Text() string { return cmp.Or(texts[t], string(t)) }

// Snapshot is the state at a time, read from API servers or from a bundle. Only the parts that a caller needs are filled in.
type Snapshot struct {
	Time  time.Time
	Shoot Shoot
	// Seed is nil without access to the seed.
	Seed *Seed
	// Missing is what could not be read.
	Missing []Missing
}

// Shoot is what was read from the shoot's API server.
type Shoot struct {
	Nodes                []corev1.Node
	Pods                 []corev1.Pod
	PodDisruptionBudgets []policyv1.PodDisruptionBudget
	VolumeAttachments    []storagev1.VolumeAttachment
	Events               []eventsv1.Event
	// HasMaintenances says that the shoot has the API of node maintenances.
	HasMaintenances bool
	Maintenances    []maintenancev1alpha1.NodeMaintenance
}

// Seed is what was read from the seed's API server about the shoot's machines.
type Seed struct {
	// Namespace is that of the shoot's control plane.
	Namespace          string
	Machines           []machinev1alpha1.Machine
	MachineSets        []machinev1alpha1.MachineSet
	MachineDeployments []machinev1alpha1.MachineDeployment
	Events             []eventsv1.Event
	// Hosts are the objects that the machine's host consists of, which may be in another cluster.
	Hosts []unstructured.Unstructured
	// Controller is how the preservation controller runs; nil if that is not known.
	Controller *Controller
	// MachineHours is the account of machine-hours, empty if there is none, or if it is not known. Bundles do not have it.
	MachineHours string
}

// Controller is how the preservation controller runs.
type Controller struct {
	// Injected says that it runs beside machine-controller-manager.
	Injected bool `json:"injected"`
	// Args are its arguments. In a bundle, the values of those that look like credentials are removed.
	Args []string `json:"args,omitempty"`
}

// Missing is a thing that could not be read, and why.
type Missing struct {
	Thing Thing `json:"thing"`
	// Partial says that some of the thing was read, and the rest could not be.
	Partial bool   `json:"partial,omitempty"`
	Reason  string `json:"reason"`
}

// UnmarshalJSON implements json.Unmarshaler. It also reads bundles of format 1, which name the missing thing in words.
func (m *Missing) UnmarshalJSON(data []byte) error {
	type missing Missing
	read := struct {
		*missing
		What string `json:"what"`
	}{missing: (*missing)(m)}
	if err := json.Unmarshal(data, &read); err != nil || m.Thing != "" {
		return err
	}
	read.What, m.Partial = strings.CutPrefix(read.What, rest)
	m.Thing = Thing(read.What)
	for thing, text := range texts {
		if text == read.What || thing == WhatShoot && strings.HasPrefix(read.What, text) {
			m.Thing = thing
		}
	}
	return nil
}

// rest precedes the words for a thing that is partly known.
const rest = "the rest of "

// What returns in words what could not be read.
func (m Missing) What() string {
	if m.Partial {
		return rest + m.Thing.Text()
	}
	return m.Thing.Text()
}

// Node returns the node with a name, nil if it is not known.
func (s *Shoot) Node(name string) *corev1.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// Machine returns the machine that has a node or a name, nil if it is not known. If several machines have had the node, it prefers
// one that is not being deleted.
func (s *Seed) Machine(name string) *machinev1alpha1.Machine {
	var found *machinev1alpha1.Machine
	for i := range s.Machines {
		m := &s.Machines[i]
		if m.Labels[machinev1alpha1.NodeLabelKey] != name && m.Name != name {
			continue
		}
		if found == nil || found.DeletionTimestamp != nil && m.DeletionTimestamp == nil {
			found = m
		}
	}
	return found
}

// Unknown returns which of the things could not be read, in whole or in part, and WhatShoot if nothing could be read from the shoot. A
// bundle also misses other things, for example logs.
func (s *Snapshot) Unknown(things ...Thing) []Missing {
	var unknown []Missing
	for _, m := range s.Missing {
		if m.Thing == WhatShoot || slices.Contains(things, m.Thing) {
			unknown = append(unknown, m)
		}
	}
	return unknown
}

// Note notes that a thing could not be read, unless the error is nil.
func (s *Snapshot) Note(thing Thing, err error) {
	if err != nil {
		s.Missing = append(s.Missing, Missing{Thing: thing, Reason: err.Error()})
	}
}

// FirstSeen returns when an Event happened for the first time.
func FirstSeen(e *eventsv1.Event) time.Time {
	switch {
	case !e.EventTime.IsZero():
		return e.EventTime.UTC()
	case !e.DeprecatedFirstTimestamp.IsZero():
		return e.DeprecatedFirstTimestamp.UTC()
	}
	return e.CreationTimestamp.UTC()
}

// LastSeen returns when an Event happened for the last time.
func LastSeen(e *eventsv1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.UTC()
	case !e.DeprecatedLastTimestamp.IsZero():
		return e.DeprecatedLastTimestamp.UTC()
	}
	return FirstSeen(e)
}
