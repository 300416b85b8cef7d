// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// paceBurst and paceInterval bound how often a machine is written to because somebody changes it, or its Node, again and
	// again: a request that comes back, a protection that is taken away each time (P5). That is tried again sooner than
	// anything that fails (P12).
	paceBurst, paceInterval = 10, 10 * time.Second
)

// backlog is what is remembered of a MachineDeployment from one round to the next. A restarted controller does without:
// there is no task under way then.
type backlog struct {
	// notices are what people were told in the last round. They are the round's own.
	notices sets.Set[notice]

	mutex sync.Mutex
	// paces are those of the machines. Postponed is when the first one may be written to that the last round left alone for
	// its pace; zero for none.
	paces     pace.Pace[types.UID]
	postponed time.Time
	// tasks are those that are under way.
	tasks    map[types.UID]*task
	failures map[types.UID]*failure
}

func newBacklog() *backlog {
	return &backlog{paces: pace.Pace[types.UID]{Burst: paceBurst, Interval: paceInterval}}
}

// failure is a task that failed.
type failure struct {
	pace.Failure
	purpose purpose
	// deniedSince is since when all tasks failed on the Node; zero if the last one did not.
	deniedSince time.Time
}

// purpose is what a task is about. One with another purpose does not wait for the end of the back-off, but keeps the pace.
type purpose struct {
	rule          preservation.Rule
	why           reason.Reason
	machine, node string
}

func purposeOf(d *preservation.Decision) purpose {
	p := purpose{rule: d.Rule, why: d.Why, machine: d.Machine.ResourceVersion}
	if d.Node != nil {
		p.node = d.Node.ResourceVersion
	}
	return p
}

// busy returns the tasks that are under way.
func (m *backlog) busy() map[types.UID]*task {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return maps.Clone(m.tasks)
}

// begin returns those of the pending tasks that are to be begun, and counts them as under way. A machine that is busy is
// left alone, and so is one whose back-off has not ended, or that was written to too often.
func (m *backlog) begin(pending []*task, busy map[types.UID]*task, now time.Time) []*task {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.tasks == nil {
		m.tasks = map[types.UID]*task{}
	}
	// A failure is forgotten when there is nothing to be written any more.
	failures := map[types.UID]*failure{}
	keep := func(uid types.UID) {
		if f := m.failures[uid]; f != nil {
			failures[uid] = f
		}
	}
	for uid := range m.tasks {
		keep(uid)
	}
	for _, task := range pending {
		keep(task.uid())
	}
	m.failures = failures

	m.postponed = time.Time{}
	var begun []*task
	for _, task := range pending {
		f := failures[task.uid()]
		if busy[task.uid()] != nil || f != nil && f.purpose == purposeOf(task.decision) && now.Before(f.Until) {
			continue
		}
		// What failed is repeated at the end of its back-off, and what has a deadline is in time, whatever the pace.
		repeated := f != nil && !now.Before(f.Until)
		urgent := isUrgent(task.decision, now) && (f == nil || f.purpose.rule != task.decision.Rule || f.purpose.why != task.decision.Why)
		if !repeated && !urgent {
			if wait := m.paces.Take(task.uid(), now); wait > 0 {
				m.postponed = pace.Earliest(m.postponed, now.Add(wait))
				continue
			}
		}
		m.tasks[task.uid()] = task
		begun = append(begun, task)
	}
	return begun
}

// isUrgent says that a decision follows from a deadline of the machine: it is to be held as it is about to fail, or has
// failed, or its time is over. None of them comes again before the machine was released and held anew, or another health
// timeout has passed.
func isUrgent(d *preservation.Decision, now time.Time) bool {
	if d.Target == nil {
		return d.Current != nil && !now.Before(d.Current.Expiry())
	}
	return d.TakesPlace() || d.Target.Failing() && (d.Current == nil || !d.Current.Failing() || d.Target.Failed && !d.Current.Failed)
}

// denied says that the end of a machine's preservation does not wait for the Node any longer: it could not be written to
// since the timeout, or at the end of the expiry, which a restarted controller knows of as well.
func (m *backlog) denied(d *preservation.Decision, now time.Time) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	f := m.failures[d.Machine.UID]
	if f == nil || f.deniedSince.IsZero() {
		return false
	}
	since := f.deniedSince
	if d.Current != nil {
		since = pace.Earliest(since, d.Current.Expiry())
	}
	return !now.Before(since.Add(pace.VetoTimeout))
}

// leave parts a round from the tasks that it has begun, and returns those that have ended.
func (m *backlog) leave(begun []*task) []*task {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var ended []*task
	for _, task := range begun {
		if task.left = m.tasks[task.uid()] == task; !task.left {
			ended = append(ended, task)
		}
	}
	return ended
}

// outcome is how a task ended.
type outcome struct {
	// left says that the round has not waited for it.
	left bool
	// backoff is for how long the machine is left alone, 0 if the task was successful. News says that it did not fail in
	// the same way before.
	backoff time.Duration
	news    bool
}

// end counts a task as under way no longer.
func (m *backlog) end(task *task, now time.Time) outcome {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.tasks, task.uid())
	err := task.writes.Err()
	if err == nil {
		delete(m.failures, task.uid())
		return outcome{left: task.left}
	}
	f := m.failures[task.uid()]
	if f == nil {
		f = &failure{}
		m.failures[task.uid()] = f
	}
	o := outcome{left: task.left}
	o.backoff, o.news = f.Again(err, now)
	f.purpose = purposeOf(task.decision)
	switch {
	case task.nodeErr() == nil:
		f.deniedSince = time.Time{}
	case f.deniedSince.IsZero():
		f.deniedSince = now
	}
	return o
}

// retry returns when the first back-off ends, or the first machine may be written to again; zero for never.
func (m *backlog) retry() time.Time {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	first := m.postponed
	for uid, failure := range m.failures {
		if m.tasks[uid] == nil {
			first = pace.Earliest(first, failure.Until)
		}
	}
	return first
}
