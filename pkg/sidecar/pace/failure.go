// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// MinRetry is after which time what failed is tried again at first (P12).
	MinRetry = time.Second
	// MaxRetry is after which time it is in the end (P12).
	MaxRetry = 30 * time.Second
	// VetoTimeout is for how long the end of what is ours waits for a Node that cannot be written to: the shoot must not keep
	// anything by denying that (P14).
	VetoTimeout = 5 * time.Minute
)

// Leading is since when this process acts. Those share it who must not take for their own what a process before has begun.
type Leading struct {
	once  sync.Once
	since time.Time
}

// Since returns when it was called first: no controller runs before the process leads.
func (l *Leading) Since(now time.Time) time.Time {
	l.once.Do(func() { l.since = now })
	return l.since
}

// Options are those of a controller whose requests, if they fail, are tried again after first, and in the end after last.
func Options(workers int, first, last time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, last),
	}
}

// Once returns a source of one request, which comes when the controller starts.
func Once(request reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
}

// Failure is what is remembered of something that fails again and again. The zero Failure has not failed yet.
type Failure struct {
	// Since is when it failed first, Until when it is to be tried again.
	Since, Until time.Time

	text    string
	backoff wait.Backoff
}

// Again counts that it failed once more. It returns for how long it is to be left alone, and whether it did not fail in the same
// way before.
func (f *Failure) Again(err error, now time.Time) (after time.Duration, news bool) {
	if f.Until.IsZero() {
		f.Since = now
		f.backoff = wait.Backoff{Duration: MinRetry, Factor: 2, Steps: 10, Cap: MaxRetry}
	}
	news = f.text != err.Error()
	after = f.backoff.Step()
	f.text, f.Until = err.Error(), now.Add(after)
	return after, news
}

// Until returns the time to the next look, 0 for none.
func Until(next, now time.Time) time.Duration {
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// Earliest returns the earliest of times, of which zero is never.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
