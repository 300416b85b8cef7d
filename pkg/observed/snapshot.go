// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package observed is what is known of nodes and their machines at a time, for who looks at it and asks nobody.
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

// Thing is what may be had or not. It never changes: bundles have it.
type Thing string

// The things that others look for. There are more, which nobody looks for and which are their own text.
const (
	// WhatShoot is all that the shoot's API server knows.
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
}

// Text returns the thing in words.
func (t Thing) Text() string { return cmp.Or(texts[t], string(t)) }

// Snapshot is what is known at a time: read from API servers, or from a bundle. Only what somebody needs is filled in.
type Snapshot struct {
	Time  time.Time
	Shoot Shoot
	// Seed is nil for who has no access to it.
	Seed *Seed
	// Missing is what could not be had.
	Missing []Missing
}

// Shoot is what the shoot's API server knows.
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

// Seed is what the seed's API server knows of the shoot's machines.
type Seed struct {
	// Namespace is that of the shoot's control plane.
	Namespace          string
	Machines           []machinev1alpha1.Machine
	MachineSets        []machinev1alpha1.MachineSet
	MachineDeployments []machinev1alpha1.MachineDeployment
	Events             []eventsv1.Event
	// Hosts are the objects that the machine's host consists of, which may be in another cluster.
	Hosts []unstructured.Unstructured
	// Controller is how the preservation controller runs; nil if nobody knows.
	Controller *Controller
}

// Controller is how the preservation controller runs.
type Controller struct {
	// Injected says that it runs beside machine-controller-manager.
	Injected bool `json:"injected"`
	// Args are its arguments; of a bundle without the values of those that look like credentials.
	Args []string `json:"args,omitempty"`
}

// Missing is a thing that could not be had, and why.
type Missing struct {
	Thing Thing `json:"thing"`
	// Partial says that it is only the rest of it that could not be had.
	Partial bool   `json:"partial,omitempty"`
	Reason  string `json:"reason"`
}

// UnmarshalJSON implements json.Unmarshaler. It reads the words in which bundles of format 1 say what could not be had, too.
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

// rest is before the words for a thing of which some is known.
const rest = "the rest of "

// What returns in words what could not be had.
func (m Missing) What() string {
	if m.Partial {
		return rest + m.Thing.Text()
	}
	return m.Thing.Text()
}

// Node returns the node of a name, nil if it is not known.
func (s *Shoot) Node(name string) *corev1.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// Machine returns the machine of a node, or the one of that name, nil if it is not known. Of several that have had the node, it is
// one that stays.
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

// Unknown returns what could not be had of some things, all or the rest of them, or of all that the shoot knows. A bundle misses logs
// and more besides.
func (s *Snapshot) Unknown(things ...Thing) []Missing {
	var unknown []Missing
	for _, m := range s.Missing {
		if m.Thing == WhatShoot || slices.Contains(things, m.Thing) {
			unknown = append(unknown, m)
		}
	}
	return unknown
}

// Note notes what could not be had, unless the error is nil.
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
