// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention

import "slices"

// Of the budget of the seed, so much is in use when caps begin, what they leave in use, and below which they go. The first leaves a quarter
// for what is stored until the next look. The second is less, because control planes without a cap go on storing: caps would fall each
// minute otherwise. The last is less again, because caps would come back at once otherwise.
func beginning(budget int64) int64 { return budget / 4 * 3 }
func target(budget int64) int64    { return budget / 8 * 5 }
func end(budget int64) int64       { return budget / 2 }

// Usage is what a control plane has stored.
type Usage struct {
	// Bytes is how many it counts.
	Bytes int64
	// Cap is how many bytes it may have, nil while that is its own budget.
	Cap *int64
	// Broken says that there is a cap that nobody can read. It is obeyed by nobody.
	Broken bool
}

// Caps returns the caps that control planes are to have, by namespace, and how many bytes they count together. Once much of the budget of
// the seed is used, those that have more than the fair share may have that, but always one bundle. Caps only fall, until little is used:
// then all go. So nothing is raised that would have to fall at once. Where a cap cannot be read, it becomes what is there.
func Caps(usage map[string]Usage, budget int64) (map[string]int64, int64) {
	total, isCapped := int64(0), false
	sizes := make([]int64, 0, len(usage))
	for _, u := range usage {
		total += u.Bytes
		sizes = append(sizes, u.Bytes)
		isCapped = isCapped || u.Cap != nil || u.Broken
	}
	caps := map[string]int64{}
	tooMuch := total > beginning(budget)
	if !tooMuch && (!isCapped || total < end(budget)) {
		return caps, total
	}
	share := max(fairShare(sizes, target(budget)), MinStoredShare)
	for namespace, u := range usage {
		switch {
		case u.Cap != nil:
			caps[namespace] = *u.Cap
		case u.Broken:
			caps[namespace] = max(u.Bytes, MinStoredShare)
		}
		if limit, ok := caps[namespace]; tooMuch && u.Bytes > share && (!ok || share < limit) {
			caps[namespace] = share
		}
	}
	return caps, total
}

// fairShare returns how much each may have so that all have no more than the budget, and nobody who wants less gives any of it up for
// those who want more (max-min fairness).
func fairShare(sizes []int64, budget int64) int64 {
	slices.Sort(sizes)
	share := budget
	for i, size := range sizes {
		if share = budget / int64(len(sizes)-i); size > share {
			break
		}
		budget -= size
	}
	return share
}
