// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// observations are what is remembered of the machines of a MachineDeployment from one round to the next. A restarted controller does
// without.
type observations struct {
	mutex sync.Mutex
	// denials are the Nodes that could not be written to, and contents what was left on them, by the machine.
	denials  map[types.UID]pace.Failure
	contents map[types.UID]contents
	// quiet is when the machines were seen without a request (X16).
	quiet map[types.UID]quiet
}

// quiet is since when a machine was seen without a request, and when last. If it is over, it is known until the next one.
type quiet struct {
	since, last time.Time
	over        bool
	// healthy is whether the node was healthy all that time, and readySince since when it was ready, or not, in its own words: its clock
	// may be wrong. The times of its other conditions are not in the cache.
	healthy    bool
	readySince time.Time
}

// contents is what was left on a node when it was read without an error, and how, and when, the last reading went.
type contents struct {
	remediation.NodeContents
	err  error
	time time.Time
}

func newObservations() *observations {
	return &observations{denials: map[types.UID]pace.Failure{}, contents: map[types.UID]contents{}, quiet: map[types.UID]quiet{}}
}

// denied says that a Node has not been writable for so long that nothing waits for it any more.
func (m *observations) denied(machine types.UID, now time.Time) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	d, ok := m.denials[machine]
	return ok && !now.Before(d.Since.Add(pace.VetoTimeout))
}

// retryAt returns when a Node is to be written to again; zero for now.
func (m *observations) retryAt(machine types.UID) time.Time {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.denials[machine].Until
}

// wrote remembers how writing to a Node went, and says whether it did not fail in the same way before.
func (m *observations) wrote(machine types.UID, err error, now time.Time) (news bool) {
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
func (m *observations) left(machine types.UID) contents {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.contents[machine]
}

func (m *observations) leave(machine types.UID, left contents) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.contents[machine] = left
}

// see notes which machines had no request when they were read, and sets Unasked and UnaskedSince of each member. Reading takes a while:
// a request may have come as soon as it began, and a machine may have become healthy, or ill, as late as it ended. It forgets the
// machines that are gone.
func (m *observations) see(members []remediation.Member, began, ended time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	denials, remaining, times := map[types.UID]pace.Failure{}, map[types.UID]contents{}, map[types.UID]quiet{}
	for i := range members {
		member := &members[i]
		q, ok := m.quiet[member.Machine.UID]
		ready := readySince(member.Node)
		if !ok || !member.NodeUnknown && (q.healthy != member.Healthy || !q.readySince.Equal(ready)) { // what was seen before it became healthy or ill says nothing
			q = quiet{over: true, healthy: member.Healthy, readySince: ready}
		}
		switch {
		case !member.IsUnasked():
			q.over = true
		case q.over:
			q.since, q.last, q.over = ended, began, false
		default:
			q.last = began
		}
		times[member.Machine.UID] = q
		member.Unasked, member.UnaskedSince = q.last, q.since
		if d, ok := m.denials[member.Machine.UID]; ok {
			denials[member.Machine.UID] = d
		}
		if r, ok := m.contents[member.Machine.UID]; ok {
			remaining[member.Machine.UID] = r
		}
	}
	m.denials, m.contents, m.quiet = denials, remaining, times
}

// readySince returns since when the node is ready, or not; zero if that is not known.
func readySince(node *corev1.Node) time.Time {
	if node == nil {
		return time.Time{}
	}
	ready := v1alpha1.ConditionOf(node, corev1.NodeReady)
	if ready == nil {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}
