// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package pace keeps what others can bring about as often as they like from being done as often (P14).
package pace

import (
	"maps"
	"sync"
	"time"
)

// Pace lets Burst calls with the same key through at once, and from then on one in each Interval. What was not used is
// given back at the same pace. The zero Pace lets everything through. Unlike a limiter of golang.org/x/time/rate for each
// key, it forgets the keys that have all of their burst.
type Pace[K comparable] struct {
	Burst    int
	Interval time.Duration

	mutex sync.Mutex
	// next is when the next call would be due if all had kept the interval. A key without one, or with one that has passed,
	// has all of its burst left.
	next map[K]time.Time
}

// Take returns 0 and counts a call that may be made now, else after which time one may be.
func (p *Pace[K]) Take(key K, now time.Time) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	maps.DeleteFunc(p.next, func(_ K, next time.Time) bool { return !next.After(now) })

	next, ok := p.next[key]
	if !ok {
		next = now
	}
	if wait := next.Sub(now) - time.Duration(p.Burst-1)*p.Interval; wait > 0 {
		return wait
	}
	if p.next == nil {
		p.next = map[K]time.Time{}
	}
	p.next[key] = next.Add(p.Interval)
	return 0
}
