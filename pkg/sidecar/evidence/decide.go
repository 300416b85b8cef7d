// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/snapshot"
)

const (
	// annotationFailedSince on a ConfigMap is the AnnotationFailedSince of the machine whose failure it is of.
	annotationFailedSince = evidence.AnnotationStoredFailedSince
	// annotationIncomplete on a ConfigMap says that the shoot or the seed could not be asked, and when that was, in RFC 3339.
	annotationIncomplete = v1alpha1.GroupName + "/evidence-incomplete"

	// maxStored is how many ConfigMaps are kept of a control plane. The other names are for those that are being stored.
	maxStored = evidence.MaxStoredNames - parallel
	// minShare is what a bundle may always have of a budget that is not less: the machine and its Events.
	minShare = 64 << 10
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
	last := lastOf(machine.Name, stored)
	if last == nil || last.Annotations[annotationFailedSince] != failure {
		if count, bytes := places(stored, machine.Name); isMarked(machine) && (count >= maxStored || share(bytes, budget) > budget-bytes) {
			return time.Time{}
		}
		return now
	}
	value, incomplete := last.Annotations[annotationIncomplete]
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
	return s.Seed == nil || slices.ContainsFunc(s.Unknown(snapshot.WhatNode, snapshot.WhatPods, snapshot.WhatNodeEvents, snapshot.WhatMachineEvents), func(m snapshot.Missing) bool {
		return !strings.HasPrefix(m.What, snapshot.WhatRest)
	})
}

// lastOf returns the last ConfigMap of a machine, nil if there is none.
func lastOf(machine string, stored []metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	var last *metav1.PartialObjectMetadata
	for i := range stored {
		if s := &stored[i]; evidence.StoredMachine(s) == machine && (last == nil || replaces(s, last)) {
			last = s
		}
	}
	return last
}

// replaces says that a ConfigMap is to be kept rather than another one of the same machine: that of a later failure, of the same
// one that in which nothing of importance is missing, else the later one.
func replaces(a, b *metav1.PartialObjectMetadata) bool {
	complete := func(s *metav1.PartialObjectMetadata) int {
		if wasIncomplete(s) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Annotations[annotationFailedSince], b.Annotations[annotationFailedSince]), cmp.Compare(complete(a), complete(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) > 0
}

// beforeOf returns what was stored of the same failure while the shoot or the seed could not be asked, before all could be, which is
// the last ConfigMap of the machine; nil if there is none. It may have Events that are gone by then.
func beforeOf(last *metav1.PartialObjectMetadata, stored []metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	var before *metav1.PartialObjectMetadata
	for i := range stored {
		s := &stored[i]
		if evidence.StoredMachine(s) == evidence.StoredMachine(last) && s.Annotations[annotationFailedSince] == last.Annotations[annotationFailedSince] &&
			wasIncomplete(s) && !wasIncomplete(last) && (before == nil || replaces(s, before)) {
			before = s
		}
	}
	return before
}

func wasIncomplete(s *metav1.PartialObjectMetadata) bool {
	_, ok := s.Annotations[annotationIncomplete]
	return ok
}

// places returns how many ConfigMaps of others than this machine have a place, and how many bytes they count: others go if there is
// none left.
func places(stored []metav1.PartialObjectMetadata, machine string) (count int, bytes int64) {
	for i := range stored {
		if name := evidence.StoredMachine(&stored[i]); name != machine && lastOf(name, stored) == &stored[i] {
			count++
			bytes += evidence.StoredSize(&stored[i])
		}
	}
	return count, bytes
}

// share returns how many bytes the next ConfigMap may count: an eighth of what is left of the budget, but always what each may have of
// it where all places are taken. So bundles become smaller before others have to go.
func share(used, budget int64) int64 {
	return min(budget, evidence.MaxStoredBundle+evidence.StoredOverhead, max((budget-used)/8, budget/maxStored, minShare))
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
	type item struct {
		name, failedSince string
		// expires is zero for one whose machine is there.
		expires time.Time
		// before says that there is another one of the same failure, which has all.
		before bool
		size   int64
	}
	var (
		todo  = upkeep{Expire: map[string]time.Time{}}
		kept  []item
		bytes int64
	)
	for i := range stored {
		s := &stored[i]
		last := lastOf(evidence.StoredMachine(s), stored)
		if s != last && s != beforeOf(last, stored) {
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
		kept = append(kept, item{s.Name, s.Annotations[annotationFailedSince], expires, s != last, evidence.StoredSize(s)})
		bytes += evidence.StoredSize(s)
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
	count := len(kept)
	tooMany := func() bool { return count > maxStored || bytes > budget }
	drop := func(i item) string {
		delete(todo.Expire, i.name)
		count, bytes = count-1, bytes-i.size
		return i.name
	}
	kept = slices.DeleteFunc(kept, func(i item) bool {
		if !i.before || !tooMany() {
			return false
		}
		todo.Delete = append(todo.Delete, drop(i))
		return true
	})
	for tooMany() {
		todo.Evict = append(todo.Evict, drop(kept[0]))
		kept = kept[1:]
	}
	if len(kept) > 0 {
		todo.Next = kept[0].expires
	}
	return todo
}
