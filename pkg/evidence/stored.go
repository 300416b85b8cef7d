// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// MaxStoredNames is how many ConfigMaps with bundles a control plane may have.
const MaxStoredNames = 50

// What a ConfigMap with a bundle has, that outlives a machine in the namespace of its control plane.
const (
	// LabelStored is on it, with the value "true".
	LabelStored = v1alpha1.GroupName + "/evidence"
	// AnnotationStoredMachine is the name of the machine.
	AnnotationStoredMachine = v1alpha1.GroupName + "/evidence-machine"
	// LabelStoredMachine is the name of the machine, too, where it is short enough for a label.
	LabelStoredMachine = AnnotationStoredMachine
	// AnnotationStoredNode is the name of its node, if it had one.
	AnnotationStoredNode = v1alpha1.GroupName + "/evidence-node"
	// AnnotationStoredExpires says since its machine was first seen to be gone when it is deleted, in RFC 3339.
	AnnotationStoredExpires = v1alpha1.GroupName + "/evidence-expires"
	// StoredKey is where in its binaryData the bundle is.
	StoredKey = "bundle.tar.gz"
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
