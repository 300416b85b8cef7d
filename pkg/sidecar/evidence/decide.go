// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const (
	// annotationFailedSince on a ConfigMap is the AnnotationFailedSince of the machine whose failure it is of.
	annotationFailedSince = v1alpha1.GroupName + "/evidence-failed-since"
	// annotationExpires on a ConfigMap says since its machine was first seen to be gone when it is deleted, in RFC 3339.
	annotationExpires = v1alpha1.GroupName + "/evidence-expires"

	// maxStored is how many ConfigMaps there are of a control plane.
	maxStored = 50
)

// due returns the failure of a machine that evidence is to be stored of, by the time since when it has failed; empty for none.
func due(machine *machinev1alpha1.Machine) string {
	record := preservation.ReadRecord(machine)
	if record == nil || !record.Failed || record.HasEvidence(machine) {
		return ""
	}
	return machine.Annotations[v1alpha1.AnnotationFailedSince]
}

// storedOf returns the ConfigMap of a machine, nil if there is none.
func storedOf(machine string, stored []metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	i := slices.IndexFunc(stored, func(s metav1.PartialObjectMetadata) bool { return s.Name == evidence.StoredName(machine) })
	if i < 0 {
		return nil
	}
	return &stored[i]
}

// upkeep is what is due for what is stored.
type upkeep struct {
	// Expire are those that are to have this expiry; the zero time for none.
	Expire map[string]time.Time
	// Delete are those whose time is over, and Evict those for which there is no place.
	Delete, Evict []string
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time
}

// decide returns what is due for the ConfigMaps of a control plane with these machines. A machine that is there again, as its
// control plane was restored, is not gone.
func decide(machines sets.Set[string], stored []metav1.PartialObjectMetadata, retention time.Duration, now time.Time) upkeep {
	type item struct {
		name, failedSince string
		// expires is zero for one whose machine is there.
		expires time.Time
	}
	var (
		todo = upkeep{Expire: map[string]time.Time{}}
		kept []item
	)
	for i := range stored {
		s := &stored[i]
		value, known := s.Annotations[annotationExpires]
		expires, err := time.Parse(time.RFC3339, value)
		switch gone := !machines.Has(s.Annotations[evidence.AnnotationStoredMachine]); {
		case !gone:
			if expires = (time.Time{}); known {
				todo.Expire[s.Name] = expires
			}
		case err != nil:
			expires = now.Add(retention).UTC().Truncate(time.Second)
			todo.Expire[s.Name] = expires
		case !now.Before(expires):
			todo.Delete = append(todo.Delete, s.Name)
			continue
		}
		kept = append(kept, item{s.Name, s.Annotations[annotationFailedSince], expires})
	}
	// First those whose machine has been gone for longest, then those of the oldest failures: both times sort as they are written.
	slices.SortFunc(kept, func(a, b item) int {
		if a.expires.IsZero() != b.expires.IsZero() {
			if a.expires.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.failedSince, b.failedSince), cmp.Compare(a.name, b.name))
	})
	for len(kept) > maxStored {
		todo.Evict = append(todo.Evict, kept[0].name)
		delete(todo.Expire, kept[0].name)
		kept = kept[1:]
	}
	if len(kept) > 0 {
		todo.Next = kept[0].expires
	}
	return todo
}
