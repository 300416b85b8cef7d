// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// pace is the mean time between two events.
	pace = 2 * time.Second
	// longOutageAfter is how long a run has to be so that the shoot's API server is away for minutes in it, once, and comes
	// back before the end.
	longOutageAfter = 7 * time.Minute
)

// event is something that befalls the landscape.
type event struct {
	// at is counted from the begin of the run.
	at     time.Duration
	action string
	// which chooses the machine, the pool or the value, of those that are there when the time has come.
	which uint64
}

// of chooses one of n.
func (e event) of(n int) int { return int(e.which % uint64(n)) } // #nosec G115 -- n is the length of a list

// between chooses a duration.
func (e event) between(least, most time.Duration) time.Duration {
	return least + time.Duration(e.which%1000)*(most-least)/1000 // #nosec G115 -- below 1000
}

// schedule returns the events of a run, the same ones for the same seed and length.
func schedule(seed uint64, length time.Duration) []event {
	var (
		random = rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- not for secrets
		urn    []string
		events []event
	)
	for _, action := range actions {
		for range action.weight {
			urn = append(urn, action.name)
		}
	}
	next := func() time.Duration { return time.Duration(random.ExpFloat64() * float64(pace)) }
	for at := next(); at < length; at += next() {
		events = append(events, event{at: at, action: urn[random.IntN(len(urn))], which: random.Uint64()})
	}
	if length >= longOutageAfter {
		at := length/4 + time.Duration(random.Int64N(int64(length/4)))
		events = append(events, event{at: at, action: longOutage, which: random.Uint64()})
		// Some are held then, and are not to be taken for healthy.
		for range 3 {
			events = append(events, event{at: at - 45*time.Second, action: kubeletDies, which: random.Uint64()})
		}
		// Others are worked on, and one is power-cycled.
		for range 2 {
			events = append(events, event{at: at - 60*time.Second, action: nodeWanted, which: random.Uint64()})
			events = append(events, event{at: at - 30*time.Second, action: nodeReboots, which: random.Uint64()})
		}
		events = append(events, event{at: at - 15*time.Second, action: cycleWanted, which: random.Uint64()})
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	}
	return events
}
