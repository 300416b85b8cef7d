// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventEvicted says that a ConfigMap with evidence was deleted before it expired, because too much evidence is stored.
const EventEvicted = "EvidenceEvicted"

// EvictedNote is the note of that Event. It says how much a control plane may keep, and whether that is its cap.
func EvictedNote(stored metav1.Object, limit int64, isCapped bool) string {
	note := fmt.Sprintf("Evidence of machine %s was deleted early, because this control plane may keep %d bundles and %d KiB.", StoredMachine(stored), MaxStored, limit>>10)
	if isCapped {
		note += " It may not keep more, because the seed's budget for evidence is used up."
	}
	return note
}

// Evict returns which ConfigMaps of a control plane go so that the others are no more, and count no more bytes, than it may have. First go
// those that another one of the same machine has followed, which has what matters. Then go those of machines that have been
// gone for longest, then those of the oldest failures. The last one stays, whatever it counts. The sidecar and the extension both ask
// here: what one keeps, the other keeps.
func Evict(stored []metav1.PartialObjectMetadata, maxCount int, maxBytes int64) (followed, evicted []metav1.PartialObjectMetadata) {
	count, bytes := len(stored), int64(0)
	isFollowed := make(map[string]bool, len(stored))
	for i := range stored {
		s := &stored[i]
		bytes += StoredSize(s)
		isFollowed[s.Name] = LastStored(StoredMachine(s), stored) != s
	}
	for _, s := range slices.SortedFunc(slices.Values(stored), func(a, b metav1.PartialObjectMetadata) int {
		if isFollowed[a.Name] != isFollowed[b.Name] {
			if isFollowed[a.Name] {
				return -1
			}
			return 1
		}
		return compareStored(&a, &b)
	}) {
		if count <= maxCount && bytes <= maxBytes || count == 1 {
			break
		}
		count, bytes = count-1, bytes-StoredSize(&s)
		if isFollowed[s.Name] {
			followed = append(followed, s)
		} else {
			evicted = append(evicted, s)
		}
	}
	return followed, evicted
}

// compareStored sorts that of the machines that have been gone for longest to the front, then that of the oldest failures. Both times sort
// as they are written.
func compareStored(a, b metav1.Object) int {
	if there := StoredExpiry(a).IsZero(); there != StoredExpiry(b).IsZero() {
		if there {
			return 1
		}
		return -1
	}
	return cmp.Or(StoredExpiry(a).Compare(StoredExpiry(b)), compareFailures(a, b), cmp.Compare(a.GetName(), b.GetName()))
}

// LastStored returns the last ConfigMap of a machine, nil if there is none.
func LastStored(machine string, stored []metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	var last *metav1.PartialObjectMetadata
	for i := range stored {
		if s := &stored[i]; StoredMachine(s) == machine && (last == nil || CompareLast(s, last) > 0) {
			last = s
		}
	}
	return last
}

// StoredBefore returns what was stored of the same failure while the shoot or the seed could not be asked, before all could be, which is
// the last ConfigMap of the machine; nil if there is none. It may have Events that are gone by then.
func StoredBefore(last *metav1.PartialObjectMetadata, stored []metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	var before *metav1.PartialObjectMetadata
	for i := range stored {
		s := &stored[i]
		if StoredMachine(s) == StoredMachine(last) && compareFailures(s, last) == 0 && !isComplete(s) && isComplete(last) && (before == nil || CompareLast(s, before) > 0) {
			before = s
		}
	}
	return before
}

// CompareLast sorts what is to be kept rather than another one of the same machine to the end: that of a later failure, of the same
// one that in which nothing of importance is missing, else the later one.
func CompareLast(a, b *metav1.PartialObjectMetadata) int {
	if order := compareFailures(a, b); order != 0 {
		return order
	}
	if isComplete(a) != isComplete(b) {
		if isComplete(a) {
			return 1
		}
		return -1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func compareFailures(a, b metav1.Object) int {
	return cmp.Compare(a.GetAnnotations()[AnnotationStoredFailedSince], b.GetAnnotations()[AnnotationStoredFailedSince])
}

func isComplete(s metav1.Object) bool {
	_, isIncomplete := s.GetAnnotations()[AnnotationStoredIncomplete]
	return !isIncomplete
}
