// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// RetryIncomplete is when evidence is gathered again if the shoot or the seed could not be asked, or there was no place.
const RetryIncomplete = 5 * time.Minute

// FailureOf returns the failure of a machine that there is to be evidence of, by the time since when it has failed; empty for
// none.
func FailureOf(machine *machinev1alpha1.Machine) string {
	if record := preservation.ReadRecord(machine); record == nil || !record.Failed {
		return ""
	}
	return machine.Annotations[v1alpha1.AnnotationFailedSince]
}

// IsMarked says that evidence of the failure was stored. It may be gone since.
func IsMarked(machine *machinev1alpha1.Machine) bool {
	record := preservation.ReadRecord(machine)
	return record != nil && record.HasEvidence(machine)
}

// Shelf is what a control plane has stored, and may have.
type Shelf struct {
	// Stored is the metadata of its ConfigMaps with bundles.
	Stored []metav1.PartialObjectMetadata
	// Budget is how many bytes they may count, and IsCapped says that it is less than the control plane's own.
	Budget   int64
	IsCapped bool
}

// NewShelf returns what a control plane with a budget has stored, of the metadata of all its ConfigMaps with LabelStored. The one with
// the cap may say less than the budget.
func NewShelf(labeled []metav1.PartialObjectMetadata, budget int64) Shelf {
	shelf := Shelf{Budget: budget}
	for i := range labeled {
		s := &labeled[i]
		if s.Name == StoredCapName {
			if limit := StoredCapOf(s); limit != nil && *limit < budget {
				shelf.Budget, shelf.IsCapped = *limit, true
			}
		}
		if s.Labels[LabelStored] == "true" {
			shelf.Stored = append(shelf.Stored, *s)
		}
	}
	return shelf
}

// Last returns the last ConfigMap of a machine, nil if there is none, or if it is not of this failure.
func (s Shelf) Last(machine, failure string) *metav1.PartialObjectMetadata {
	if last := LastStored(machine, s.Stored); last != nil && last.Annotations[AnnotationStoredFailedSince] == failure {
		return last
	}
	return nil
}

// Due returns when evidence of a failure is to be gathered; zero for never. Where the shoot or the seed could not be asked, it is
// gathered again, while the machine is preserved. What was stored once and is gone is gathered again if there is a place: it was
// evicted otherwise, or would evict that of another machine.
func (s Shelf) Due(machine *machinev1alpha1.Machine, now time.Time) time.Time {
	failure := FailureOf(machine)
	if failure == "" {
		return time.Time{}
	}
	last := s.Last(machine.Name, failure)
	if last == nil {
		if count, bytes := s.others(machine.Name); IsMarked(machine) && (count >= MaxStored || share(bytes, s.Budget) > s.Budget-bytes) {
			return time.Time{}
		}
		return now
	}
	value, incomplete := last.Annotations[AnnotationStoredIncomplete]
	if !incomplete {
		return time.Time{}
	}
	gathered, err := time.Parse(time.RFC3339, value)
	if err != nil || gathered.Add(RetryIncomplete).Before(now) {
		return now
	}
	return gathered.Add(RetryIncomplete)
}

// others returns how many ConfigMaps of others than this machine have a place, and how many bytes they count: others go if there is
// none left.
func (s Shelf) others(machine string) (count int, bytes int64) {
	for i := range s.Stored {
		if name := StoredMachine(&s.Stored[i]); name != machine && LastStored(name, s.Stored) == &s.Stored[i] {
			count++
			bytes += StoredSize(&s.Stored[i])
		}
	}
	return count, bytes
}

// Share returns how many bytes the next bundle of a machine may have.
func (s Shelf) Share(machine string) int64 {
	_, used := s.others(machine)
	return share(used, s.Budget) - StoredOverhead
}

// share returns how many bytes the next ConfigMap may count: an eighth of what is left of the budget, but always what each may have of
// it where all places are taken. So bundles become smaller before others have to go.
func share(used, budget int64) int64 {
	return min(budget, MaxStoredBundle+StoredOverhead, max((budget-used)/8, budget/MaxStored, MinStoredShare))
}

// Upkeep is what is due for what is stored.
type Upkeep struct {
	// Expire are those that are to have this expiry; the zero time for none.
	Expire map[string]time.Time
	// Delete are those whose time is over, or in whose place others are, and Evict those for which there is no place.
	Delete, Evict []string
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time
}

// Upkeep returns what is due where these machines are there, and evidence of others is kept for a time. A machine that is there
// again, because its control plane was restored, is not gone.
func (s Shelf) Upkeep(machines sets.Set[string], retention time.Duration, now time.Time) Upkeep {
	todo := Upkeep{Expire: map[string]time.Time{}}
	// kept are those that stay if there is a place, with the expiry that they are to have.
	var kept []metav1.PartialObjectMetadata
	for i := range s.Stored {
		object := &s.Stored[i]
		last := LastStored(StoredMachine(object), s.Stored)
		if object != last && object != StoredBefore(last, s.Stored) {
			todo.Delete = append(todo.Delete, object.Name)
			continue
		}
		_, known := object.Annotations[AnnotationStoredExpires]
		expires := StoredExpiry(object)
		switch gone := !machines.Has(StoredMachine(object)); {
		case !gone:
			if expires = (time.Time{}); known {
				todo.Expire[object.Name] = expires
			}
		case expires.IsZero():
			expires = now.Add(retention).UTC().Truncate(time.Second)
			todo.Expire[object.Name] = expires
		case !now.Before(expires):
			todo.Delete = append(todo.Delete, object.Name)
			continue
		}
		keep := object.DeepCopy()
		delete(keep.Annotations, AnnotationStoredExpires)
		if !expires.IsZero() {
			metav1.SetMetaDataAnnotation(&keep.ObjectMeta, AnnotationStoredExpires, expires.UTC().Format(time.RFC3339))
		}
		kept = append(kept, *keep)
	}
	followed, evicted := Evict(kept, MaxStored, s.Budget)
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
		if expires := StoredExpiry(&kept[i]); !expires.IsZero() && (todo.Next.IsZero() || expires.Before(todo.Next)) {
			todo.Next = expires
		}
	}
	return todo
}
