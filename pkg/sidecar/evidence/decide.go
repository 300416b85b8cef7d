// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/snapshot"
)

// failureOf returns the failure of a machine that there is to be evidence of, by the time since when it has failed; empty for
// none.
func failureOf(machine *machinev1alpha1.Machine) string {
	if record := preservation.ReadRecord(machine); record == nil || !record.Failed {
		return ""
	}
	return machine.Annotations[v1alpha1.AnnotationFailedSince]
}

// isMarked says that evidence of the failure was stored. It may be gone since.
func isMarked(machine *machinev1alpha1.Machine) bool {
	record := preservation.ReadRecord(machine)
	return record != nil && record.HasEvidence(machine)
}

// due returns when evidence of a failure is to be gathered; zero for never. Where the shoot or the seed could not be asked, it is
// gathered again, as long as the machine is kept. What was stored once and is gone is gathered again if there is a place: it was
// evicted otherwise, or would evict that of another machine.
func due(machine *machinev1alpha1.Machine, stored []metav1.PartialObjectMetadata, budget int64, now time.Time) time.Time {
	failure := failureOf(machine)
	if failure == "" {
		return time.Time{}
	}
	last := evidence.LastStored(machine.Name, stored)
	if last == nil || last.Annotations[evidence.AnnotationStoredFailedSince] != failure {
		if count, bytes := places(stored, machine.Name); isMarked(machine) && (count >= evidence.MaxStored || share(bytes, budget) > budget-bytes) {
			return time.Time{}
		}
		return now
	}
	value, incomplete := last.Annotations[evidence.AnnotationStoredIncomplete]
	if !incomplete {
		return time.Time{}
	}
	gathered, err := time.Parse(time.RFC3339, value)
	if err != nil || gathered.Add(retryIncomplete).Before(now) {
		return now
	}
	return gathered.Add(retryIncomplete)
}

// isIncomplete says that the shoot or the seed could not be asked.
func isIncomplete(s *snapshot.Snapshot) bool {
	return s.Seed == nil || slices.ContainsFunc(s.Unknown(snapshot.WhatNode, snapshot.WhatPods, snapshot.WhatNodeEvents, snapshot.WhatMachineEvents), func(m snapshot.Missing) bool { return !m.Partial })
}

// places returns how many ConfigMaps of others than this machine have a place, and how many bytes they count: others go if there is
// none left.
func places(stored []metav1.PartialObjectMetadata, machine string) (count int, bytes int64) {
	for i := range stored {
		if name := evidence.StoredMachine(&stored[i]); name != machine && evidence.LastStored(name, stored) == &stored[i] {
			count++
			bytes += evidence.StoredSize(&stored[i])
		}
	}
	return count, bytes
}

// share returns how many bytes the next ConfigMap may count: an eighth of what is left of the budget, but always what each may have of
// it where all places are taken. So bundles become smaller before others have to go.
func share(used, budget int64) int64 {
	return min(budget, evidence.MaxStoredBundle+evidence.StoredOverhead, max((budget-used)/8, budget/evidence.MaxStored, evidence.MinStoredShare))
}

// upkeep is what is due for what is stored.
type upkeep struct {
	// Expire are those that are to have this expiry; the zero time for none.
	Expire map[string]time.Time
	// Delete are those whose time is over, or in whose place others are, and Evict those for which there is no place.
	Delete, Evict []string
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time
}

// decide returns what is due for the ConfigMaps of a control plane with these machines, which may count so many bytes. A machine that is
// there again, as its control plane was restored, is not gone.
func decide(machines sets.Set[string], stored []metav1.PartialObjectMetadata, retention time.Duration, budget int64, now time.Time) upkeep {
	todo := upkeep{Expire: map[string]time.Time{}}
	// kept are those that stay if there is a place, with the expiry that they are to have.
	var kept []metav1.PartialObjectMetadata
	for i := range stored {
		s := &stored[i]
		last := evidence.LastStored(evidence.StoredMachine(s), stored)
		if s != last && s != evidence.StoredBefore(last, stored) {
			todo.Delete = append(todo.Delete, s.Name)
			continue
		}
		_, known := s.Annotations[evidence.AnnotationStoredExpires]
		expires := evidence.StoredExpiry(s)
		switch gone := !machines.Has(evidence.StoredMachine(s)); {
		case !gone:
			if expires = (time.Time{}); known {
				todo.Expire[s.Name] = expires
			}
		case expires.IsZero():
			expires = now.Add(retention).UTC().Truncate(time.Second)
			todo.Expire[s.Name] = expires
		case !now.Before(expires):
			todo.Delete = append(todo.Delete, s.Name)
			continue
		}
		keep := s.DeepCopy()
		delete(keep.Annotations, evidence.AnnotationStoredExpires)
		if !expires.IsZero() {
			metav1.SetMetaDataAnnotation(&keep.ObjectMeta, evidence.AnnotationStoredExpires, expires.UTC().Format(time.RFC3339))
		}
		kept = append(kept, *keep)
	}
	followed, evicted := evidence.Evict(kept, evidence.MaxStored, budget)
	gone := sets.New[string]()
	for i := range followed {
		todo.Delete = append(todo.Delete, followed[i].Name)
		gone.Insert(followed[i].Name)
	}
	for i := range evicted {
		todo.Evict = append(todo.Evict, evicted[i].Name)
		gone.Insert(evicted[i].Name)
	}
	for i := range kept {
		if gone.Has(kept[i].Name) {
			delete(todo.Expire, kept[i].Name)
			continue
		}
		if expires := evidence.StoredExpiry(&kept[i]); !expires.IsZero() && (todo.Next.IsZero() || expires.Before(todo.Next)) {
			todo.Next = expires
		}
	}
	return todo
}
