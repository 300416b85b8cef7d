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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// backoff says when a failed run is repeated: after 1 s at first, after 30 s in the end (P12).
var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 30 * time.Second}

// memory is what is remembered of a MachineDeployment from one round to the next. A restarted controller does without:
// there is no run under way then.
type memory struct {
	// notices are what people were told in the last round. They are the round's own.
	notices sets.Set[notice]

	mutex sync.Mutex
	// runs are those that are under way.
	runs     map[types.UID]*run
	failures map[types.UID]*failure
}

// failure is a run that failed.
type failure struct {
	intent  intent
	text    string
	backoff wait.Backoff
	// until is when the back-off ends.
	until time.Time
}

// intent is what a run is about. One with another intent does not wait for the end of the back-off.
type intent struct {
	rule                  preservation.Rule
	reason, machine, node string
}

func intentOf(d *preservation.Decision) intent {
	i := intent{rule: d.Rule, reason: d.Reason, machine: d.Machine.ResourceVersion}
	if d.Node != nil {
		i.node = d.Node.ResourceVersion
	}
	return i
}

// busy returns the runs that are under way.
func (m *memory) busy() map[types.UID]*run {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return maps.Clone(m.runs)
}

// begin returns those of the pending runs that are to be begun, and counts them as under way. A machine that is busy is
// left alone, and so is one whose back-off has not ended.
func (m *memory) begin(pending []*run, busy map[types.UID]*run, now time.Time) []*run {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.runs == nil {
		m.runs = map[types.UID]*run{}
	}
	// A failure is forgotten when there is nothing to be written any more.
	failures := map[types.UID]*failure{}
	keep := func(uid types.UID) {
		if f := m.failures[uid]; f != nil {
			failures[uid] = f
		}
	}
	for uid := range m.runs {
		keep(uid)
	}
	for _, run := range pending {
		keep(run.uid())
	}
	m.failures = failures

	var begun []*run
	for _, run := range pending {
		f := failures[run.uid()]
		if busy[run.uid()] == nil && (f == nil || f.intent != intentOf(run.decision) || !now.Before(f.until)) {
			m.runs[run.uid()] = run
			begun = append(begun, run)
		}
	}
	return begun
}

// leave parts a round from the runs that it has begun, and returns those that have ended.
func (m *memory) leave(begun []*run) []*run {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var ended []*run
	for _, run := range begun {
		if run.left = m.runs[run.uid()] == run; !run.left {
			ended = append(ended, run)
		}
	}
	return ended
}

// outcome is how a run ended.
type outcome struct {
	// left says that the round has not waited for it.
	left bool
	// backoff is for how long the machine is left alone, 0 if the run was successful. News says that it did not fail in
	// the same way before.
	backoff time.Duration
	news    bool
}

// end counts a run as under way no longer. The text says why it failed, and is empty if it was successful.
func (m *memory) end(run *run, text string, now time.Time) outcome {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.runs, run.uid())
	if text == "" {
		delete(m.failures, run.uid())
		return outcome{left: run.left}
	}
	f := m.failures[run.uid()]
	if f == nil {
		f = &failure{backoff: backoff}
		m.failures[run.uid()] = f
	}
	o := outcome{left: run.left, backoff: f.backoff.Step(), news: f.text != text}
	f.intent, f.text, f.until = intentOf(run.decision), text, now.Add(o.backoff)
	return o
}

// retry returns when the first back-off ends, zero for never.
func (m *memory) retry() time.Time {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var first time.Time
	for uid, failure := range m.failures {
		if m.runs[uid] == nil {
			first = earliest(first, failure.until)
		}
	}
	return first
}
