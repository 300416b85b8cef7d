// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// memory is what is remembered of the machines of a MachineDeployment from one round to the next. A restarted controller does
// without.
type memory struct {
	mutex sync.Mutex
	// denials are the Nodes that could not be written to, and remains what was left on them, by the machine.
	denials map[types.UID]pace.Failure
	remains map[types.UID]remains
	// quiet is when the machines were seen without a request (X16).
	quiet map[types.UID]quiet
}

// quiet is since when a machine was seen without a request, and when last. If it is over, it is known until the next one.
type quiet struct {
	since, last time.Time
	over        bool
}

type remains struct {
	remediation.Remains
	time time.Time
}

func newMemory() *memory {
	return &memory{denials: map[types.UID]pace.Failure{}, remains: map[types.UID]remains{}, quiet: map[types.UID]quiet{}}
}

// denied says that a Node has not been writable for so long that nothing waits for it any more.
func (m *memory) denied(machine types.UID, now time.Time) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	d, ok := m.denials[machine]
	return ok && !now.Before(d.Since.Add(pace.VetoTimeout))
}

// retryAt returns when a Node is to be written to again; zero for now.
func (m *memory) retryAt(machine types.UID) time.Time {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.denials[machine].Until
}

// wrote remembers how writing to a Node went, and says whether it did not fail in the same way before.
func (m *memory) wrote(machine types.UID, err error, now time.Time) (news bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if err == nil {
		delete(m.denials, machine)
		return false
	}
	d := m.denials[machine]
	_, news = d.Again(err, now)
	m.denials[machine] = d
	return news
}

// left returns what was left on the node of a machine when it was read last.
func (m *memory) left(machine types.UID) remains {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.remains[machine]
}

func (m *memory) leave(machine types.UID, left remains) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.remains[machine] = left
}

// unasked returns when a machine was last seen without a request, and since when it had none then; zero for never.
func (m *memory) unasked(machine types.UID) (last, since time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	q := m.quiet[machine]
	return q.last, q.since
}

// keep remembers which machines had no request when they began to be read, and drops what is known of machines that there are no
// more.
func (m *memory) keep(members []remediation.Member, read time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	denials, remaining, times := map[types.UID]pace.Failure{}, map[types.UID]remains{}, map[types.UID]quiet{}
	for _, member := range members {
		q, ok := m.quiet[member.Machine.UID]
		if isOver := !member.IsUnasked(); isOver {
			q.over = true
		} else if q.last = read; !ok || q.over {
			q = quiet{since: read, last: read}
		}
		times[member.Machine.UID] = q
		if d, ok := m.denials[member.Machine.UID]; ok {
			denials[member.Machine.UID] = d
		}
		if r, ok := m.remains[member.Machine.UID]; ok {
			remaining[member.Machine.UID] = r
		}
	}
	m.denials, m.remains, m.quiet = denials, remaining, times
}
