// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Copies returns which ConfigMaps of a control plane are yet to be copied to the shoot, and which copies have to go, before that: those of
// what is not stored any more. Both are in the order of names. There are those that the shoot has, by their names, with the UIDs of what they
// were copied from. What is kept, and for how long, is decided for the seed alone: nothing that the shoot says changes that.
func (s Shelf) Copies(there map[string]types.UID) (missing []metav1.PartialObjectMetadata, superfluous []string) {
	names, uids := StoredNames(), map[string]types.UID{}
	for i := range s.Stored {
		stored := &s.Stored[i]
		if !slices.Contains(names, stored.Name) {
			continue
		}
		uids[stored.Name] = stored.UID
		if uid, isCopied := there[stored.Name]; !isCopied || uid != stored.UID {
			missing = append(missing, *stored)
		}
	}
	slices.SortFunc(missing, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if uid, isStored := uids[name]; slices.Contains(names, name) && (!isStored || uid != there[name]) {
			superfluous = append(superfluous, name)
		}
	}
	return missing, superfluous
}
