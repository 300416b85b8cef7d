// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

// Usage is what a control plane has stored.
type Usage struct {
	// Bytes is how many it counts.
	Bytes int64
	// Cap is how many bytes it may have, nil while that is its own budget.
	Cap *int64
}

// Decide returns the caps that control planes are to have, by namespace. There are none until three quarters of the budget of the seed are
// used. Then those that have more than the fair share may have that: as many bytes as leave five eighths in use, which is room until the
// next look. Caps only fall, until less than half is used: then all go. So nothing is raised that would have to fall at once.
func Decide(usage map[string]Usage, budget int64) map[string]int64 {
	total, isCapped := int64(0), false
	sizes := make([]int64, 0, len(usage))
	for _, u := range usage {
		total += u.Bytes
		sizes = append(sizes, u.Bytes)
		isCapped = isCapped || u.Cap != nil
	}
	caps := map[string]int64{}
	if !isCapped && total <= budget/4*3 || total < budget/2 {
		return caps
	}
	share := fairShare(sizes, budget/8*5)
	for namespace, u := range usage {
		if u.Cap != nil {
			caps[namespace] = *u.Cap
		}
		if total <= budget/4*3 || u.Bytes <= share {
			continue
		}
		if u.Cap == nil || share < *u.Cap {
			caps[namespace] = share
		}
	}
	return caps
}

// fairShare returns how much each may have so that all have no more than the budget, and nobody who wants less gives any of it up for
// those who want more (max-min fairness).
func fairShare(sizes []int64, budget int64) int64 {
	slices.Sort(sizes)
	for i, size := range sizes {
		share := budget / int64(len(sizes)-i)
		if size > share {
			return share
		}
		budget -= size
	}
	if len(sizes) == 0 {
		return budget
	}
	return sizes[len(sizes)-1]
}

// above returns which ConfigMaps of a control plane go so that the others count no more than its cap.
func above(stored []metav1.PartialObjectMetadata, limit int64) []metav1.PartialObjectMetadata {
	stored = slices.SortedFunc(slices.Values(stored), func(a, b metav1.PartialObjectMetadata) int { return evidence.CompareStored(&a, &b) })
	for i := len(stored) - 1; i >= 0; i-- {
		if limit -= evidence.StoredSize(&stored[i]); limit < 0 {
			return stored[:i+1]
		}
	}
	return nil
}
