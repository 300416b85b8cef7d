// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	// validity is for how long a grant lets a cycle begin.
	validity = 2 * time.Minute
	// slack is for how much longer a grant counts: the clocks differ, and the write with which a cycle begins may be on its way.
	slack = 30 * time.Second
	// longest is for how long a cycle is under way at the longest, with a host that is serviced for as long as operators may allow.
	longest = v1alpha1.MaxPowerCycleDuration + v1alpha1.MaxMaxServicing
)

// Decision is what is due.
type Decision struct {
	// Grants are the machines whose cycle may begin now.
	Grants []*machinev1alpha1.Machine
	// Next is when a grant or a cycle does not count any more; zero if there is none.
	Next time.Time
}

// Decide returns whose cycles may begin so that never more than the limit are under way (X8). The machines are those of all control
// planes that have LabelPowerCycle. The machines that have waited longest come first. Machines that have not used a grant of this wait
// come after all others, because their preservation controller may be gone. Of these, the one whose grant passed first comes first. A
// cycle that is under way counts until its machine is not preserved for it any more, or could not go on.
func Decide(machines []*machinev1alpha1.Machine, limit int, now time.Time) Decision {
	type waiting struct {
		machine       *machinev1alpha1.Machine
		since, passed time.Time
	}
	var (
		decision Decision
		queue    []waiting
	)
	count := func(until time.Time) {
		if decision.Next.IsZero() || until.Before(decision.Next) {
			decision.Next = until
		}
	}
	for _, m := range machines {
		until, _ := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationPowerCycleGrant])
		since, awaits := remediation.AwaitsGrant(m)
		switch {
		case remediation.UnderWay(m):
			// The preservation controller of one that goes on for longer is gone, and must not hold up other shoots.
			if ends := endOf(m); ends.IsZero() {
				limit--
			} else if ends = ends.Add(slack); now.Before(ends) {
				limit--
				count(ends)
			}
		case remediation.HasGrant(m, now.Add(-slack)):
			limit--
			count(until.Add(slack))
		case awaits && m.DeletionTimestamp == nil:
			if !until.After(since) {
				until = time.Time{}
			}
			queue = append(queue, waiting{machine: m, since: since, passed: until})
		}
	}
	slices.SortFunc(queue, func(a, b waiting) int {
		return cmp.Or(
			a.passed.Compare(b.passed),
			a.since.Compare(b.since),
			cmp.Compare(a.machine.Namespace, b.machine.Namespace),
			cmp.Compare(a.machine.Name, b.machine.Name),
		)
	})
	for _, w := range queue[:min(max(limit, 0), len(queue))] {
		decision.Grants = append(decision.Grants, w.machine)
		count(now.Add(validity + slack))
	}
	return decision
}

// endOf returns when the cycle that is under way must be over, zero if nobody knows.
func endOf(m *machinev1alpha1.Machine) time.Time {
	ends := remediation.KeptUntil(m)
	if began := remediation.Began(m); !began.IsZero() && (ends.IsZero() || ends.Sub(began) > longest) {
		ends = began.Add(longest)
	}
	return ends
}
