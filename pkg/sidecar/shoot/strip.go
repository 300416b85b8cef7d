// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"strings"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// annotationStripped is never on an object. It is only in caches, where it stands for the annotations that are not kept there. Without
	// it, a patch that removes the last of the others would remove all that the object has.
	annotationStripped = v1alpha1.GroupName + "/stripped"
	// maxValue is more than any annotation has that means something.
	maxValue = 128
)

// ReadAnnotations returns those annotations that are read, for a cache: the others take no memory there (P14). A value that is too long
// stays one that is not valid.
func ReadAnnotations(annotations map[string]string, keys ...string) map[string]string {
	var read map[string]string
	for _, key := range keys {
		value, ok := annotations[key]
		if !ok {
			continue
		}
		if len(value) > maxValue {
			value = strings.Clone(value[:maxValue]) + "..."
		}
		if read == nil {
			read = map[string]string{annotationStripped: ""}
		}
		read[key] = value
	}
	return read
}

// Strip returns a transform for a cache that leaves of objects of one kind what an edit leaves, and never their managed fields.
func Strip[T client.Object](edit func(T)) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if stripped, ok := obj.(T); ok {
			stripped.SetManagedFields(nil)
			edit(stripped)
		}
		return obj, nil
	}
}
