// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package retention decides which evidence control planes keep, for how long, and what of it goes first. It depends on nothing but its
// arguments: no client, no clock.
package retention

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// MaxStored is how many bundles are kept of a control plane.
	MaxStored = 48
	// MaxStoredNames is how many ConfigMaps with bundles it may have. The others are for those that are being stored.
	MaxStoredNames = MaxStored + 2
	// MaxStoredBundle is how many bytes a stored bundle has at most. A ConfigMap has a MiB at most, with its metadata.
	MaxStoredBundle = 900 << 10
	// StoredOverhead is what else of a ConfigMap with a bundle is counted: its metadata.
	StoredOverhead = 4 << 10
	// MinStoredShare is what a ConfigMap with a bundle may always count of a budget that is not less: the machine and its Events. So no cap
	// is less.
	MinStoredShare = 64 << 10
	// StoredCapName is the ConfigMap that has AnnotationStoredCap, and nothing else, where the budget of the seed is used up.
	StoredCapName = "machine-preservation-evidence-cap"
)

// What a ConfigMap with a bundle has, that outlives a machine in the namespace of its control plane.
const (
	// LabelStored is on a ConfigMap with evidence, with the value "true", and on the one with the cap, with the value StoredCap.
	LabelStored = v1alpha1.GroupName + "/evidence"
	StoredCap   = "cap"
	// AnnotationStoredCap is how many bytes of evidence a control plane may have stored, while that is less than its budget.
	AnnotationStoredCap = v1alpha1.GroupName + "/evidence-cap"
	// AnnotationStoredBytes is how many bytes the bundle in a ConfigMap has.
	AnnotationStoredBytes = v1alpha1.GroupName + "/evidence-bytes"
	// AnnotationStoredFailedSince says of which failure the evidence is: it is the annotation failed-since of the machine.
	AnnotationStoredFailedSince = v1alpha1.GroupName + "/evidence-failed-since"
	// AnnotationStoredIncomplete is when the evidence was gathered, in RFC 3339, if the shoot or the seed did not answer then.
	AnnotationStoredIncomplete = v1alpha1.GroupName + "/evidence-incomplete"
	// AnnotationStoredMachine is the name of the machine that the evidence is of.
	AnnotationStoredMachine = v1alpha1.GroupName + "/evidence-machine"
	// LabelStoredMachine on a ConfigMap with evidence is the name of the machine, if that is short enough for a label.
	LabelStoredMachine = AnnotationStoredMachine
	// AnnotationStoredNode is the name of the machine's node, if it had one.
	AnnotationStoredNode = v1alpha1.GroupName + "/evidence-node"
	// AnnotationStoredExpires is when the evidence is deleted, in RFC 3339. It is there once the machine was seen to be gone.
	AnnotationStoredExpires = v1alpha1.GroupName + "/evidence-expires"
	// StoredKey is where in its binaryData the bundle is.
	StoredKey = "bundle.tar.gz"
)

// What is copied to the shoot, for those who may read it there. It is in Secrets, because viewers of a cluster read ConfigMaps and custom
// resources.
const (
	// ShootNamespace is the namespace of the copies, and of nothing else. They have the names of what they are copied from.
	ShootNamespace = "machine-preservation-evidence"
	// ShootType is their type.
	ShootType = v1alpha1.GroupName + "/evidence"
	// ShootViewer is the Role in ShootNamespace that people are bound to. As a ClusterRole it could be bound in all namespaces, with their
	// Secrets.
	ShootViewer = "evidence-viewer"
	// AnnotationStoredOf on a copy of evidence in the shoot is the UID of the ConfigMap that it was copied from.
	AnnotationStoredOf = v1alpha1.GroupName + "/evidence-of"
)

// StoredNames returns the names that ConfigMaps with bundles have. They are known before, so that Roles can name them.
func StoredNames() []string {
	names := make([]string, MaxStoredNames)
	for i := range names {
		names[i] = fmt.Sprintf("machine-preservation-evidence-%02d", i+1)
	}
	return names
}

// StoredMachine returns the machine whose bundle a ConfigMap has. Of one that does not say so, that is its own name: it is taken for
// that of no other, and can still be asked for.
func StoredMachine(stored metav1.Object) string {
	return cmp.Or(stored.GetAnnotations()[AnnotationStoredMachine], stored.GetName())
}

// StoredExpiry returns when a ConfigMap is to be deleted; zero if that is not known.
func StoredExpiry(stored metav1.Object) time.Time {
	expires, err := time.Parse(time.RFC3339, stored.GetAnnotations()[AnnotationStoredExpires])
	if err != nil {
		return time.Time{}
	}
	return expires
}

// StoredSize returns how many bytes a ConfigMap counts. One that does not say it, or says what cannot be, counts as the largest.
func StoredSize(stored metav1.Object) int64 {
	size, err := strconv.ParseInt(stored.GetAnnotations()[AnnotationStoredBytes], 10, 64)
	if err != nil || size <= 0 || size > MaxStoredBundle {
		size = MaxStoredBundle
	}
	return size + StoredOverhead
}

// StoredCapOf returns how many bytes a control plane may have stored by its ConfigMap StoredCapName; nil if that is nothing that is ever
// written. That is no cap: evidence would go for what somebody has mistyped.
func StoredCapOf(stored metav1.Object) *int64 {
	limit, err := strconv.ParseInt(stored.GetAnnotations()[AnnotationStoredCap], 10, 64)
	if err != nil || limit < MinStoredShare {
		return nil
	}
	return &limit
}
