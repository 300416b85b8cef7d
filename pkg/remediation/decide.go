// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// releaseTime is for how long the deletion of a machine waits for its host to be released (X2).
const releaseTime = time.Minute

// decision is one that is being taken.
type decision struct {
	Decision
	group *Group
	now   time.Time
	// is what is on the Machine, and to what is to be there.
	is, to state
	// unwell says that too many nodes of the group are not ready, and nodes are those of the shoot with the begins of this very
	// decision; nil if they are not known.
	unwell bool
	nodes  *NodeCount
	// asks says that the request is to be acted upon as soon as nothing is in the way.
	asks bool
	// fence says that the taint is to be put on the node, clean that nothing of ours is to be left there, and taken that the
	// request there is done with.
	fence, clean, taken bool
	// waits is what a cycle that is under way waits for, where that is not plain.
	waits string
}

// Decide returns a decision for each member of the group, in their order. It depends on nothing but its arguments, so that
// it can be asked again at any time, also after a crash in between two writes (X3).
func Decide(g Group, now time.Time) []Decision {
	decisions := make([]*decision, len(g.Members))
	unwell, nodes := g.isUnwell(), g.count()
	for i, m := range g.Members {
		decisions[i] = &decision{Decision: Decision{Member: m}, group: &g, now: now, unwell: unwell, nodes: nodes, is: readState(m.Machine)}
		decisions[i].decide()
	}
	distribute(&g, decisions, now)
	result := make([]Decision, len(decisions))
	for i, d := range decisions {
		d.finish()
		result[i] = d.Decision
	}
	return result
}

// Confirm decides again with the members read live that Confirm was ever said for, until it is said for none besides (X3, X8). It
// returns what was decided last, with that error.
func Confirm(decisions []Decision, again func(live sets.Set[types.UID]) ([]Decision, error)) ([]Decision, error) {
	var err error
	for live := sets.New[types.UID](); ; {
		known := live.Len()
		for _, d := range decisions {
			if d.Confirm {
				live.Insert(d.Machine.UID)
			}
		}
		if live.Len() == known { // also what could not be read live is not asked for again now
			return decisions, err
		}
		decisions, err = again(live)
	}
}

func (d *decision) decide() {
	d.to = d.is
	d.Release = d.ownsHost() && !d.is.keepsOff() // whatever has happened (X2)
	switch {
	case d.isEnding():
		d.end()
	case !facts.IsPhaseKnown(d.Machine) && reflect.DeepEqual(d.is, state{needs: d.is.needs}): // there is nothing of ours
	case d.is.underWay():
		d.takeNodeRequest()
		d.advance()
	default:
		d.takeNodeRequest()
		d.rest()
	}
}

// isEnding says that all that is ours ends (X15).
func (d *decision) isEnding() bool {
	return d.group.Settings == nil || d.Machine.DeletionTimestamp != nil
}

// distribute lets cycles begin, those with the oldest requests first, as many as there may be at a time (X8).
func distribute(g *Group, decisions []*decision, now time.Time) {
	free, others := 0, g.OtherCycles
	if g.Settings != nil {
		free = int(g.Settings.MaxConcurrent)
	}
	var asks []*decision
	for _, d := range decisions {
		if d.is.underWay() || d.ownsHost() {
			free--
			others++
		}
		if d.asks {
			asks = append(asks, d)
		}
	}
	slices.SortFunc(asks, func(a, b *decision) int {
		return cmp.Or(a.to.record.Requested.Compare(b.to.record.Requested), strings.Compare(a.Machine.Name, b.Machine.Name))
	})
	for _, d := range asks {
		reason := d.obstacle()
		if reason == "" && free <= 0 {
			reason = "As many machines of the pool in this zone are already being power-cycled as maxConcurrent allows."
		}
		if reason == "" && g.MaxPerShoot > 0 && others >= int(g.MaxPerShoot) {
			reason = "As many machines of the shoot are already being power-cycled as the operators allow."
		}
		if reason == "" && g.Uncounted {
			reason = notCounted
			d.wake(now.Add(PollInterval))
		}
		if reason != "" {
			d.wait(reason)
			continue
		}
		if g.NeedsGrant && !HasGrant(d.Machine, now) {
			d.wait("The power cycle waits until the extension allows it, because the number of power cycles in the seed is limited.")
			d.to.record.AwaitsGrant = true
			continue
		}
		free--
		others++
		*d.nodes = d.withThis()
		d.begin()
	}
}

// rest decides on a machine that no cycle is under way for.
func (d *decision) rest() {
	d.countUndone()
	if d.is.attempt > 0 && d.to.record.Ended.IsZero() { // its record was lost: it is settled like one that ends now
		d.to.record.Ended = d.stamp()
	}
	if !d.is.record.Ended.IsZero() {
		if at, ok := d.settledAt(); ok && !d.now.Before(at) { // X6
			d.clean = true
			if !d.isClean() && !d.NodeDenied {
				return
			}
			tainted := d.is.record.Tainted && !d.isClean()
			d.to = d.to.forget()
			d.to.record.Tainted = tainted
		} else if ok {
			d.wake(at)
		}
	} else if d.is.record.Tainted && d.isClean() { // the shoot has denied it until now
		d.to.record.Tainted = false
	}
	if d.is.phase == v1alpha1.PowerCycleFailed {
		d.Deadline = d.is.record.Ended
	}
	d.ask()
	d.judge()
	d.drop()
	s := d.group.Settings
	if d.to.needs && d.to.record.Requested.IsZero() {
		d.to.record.Requested = d.stamp()
	}
	switch exhausted := d.attempts() >= int(s.MaxAttempts); {
	case !d.to.needs && d.to.phase == v1alpha1.PowerCycleWaiting:
		d.withdraw()
	case !d.to.needs:
		d.to.record.Requested, d.to.record.Healthy = time.Time{}, nil
	case exhausted && d.now.Before(d.to.record.Again): // remembered (X4)
		d.wake(d.to.record.Again)
	case exhausted: // X6
		d.tell(true, EventOutOfAttempts, fmt.Sprintf("The request for a power cycle was removed, because the host has been power-cycled %s and its node has not recovered for good.", brief.Count(d.attempts(), "time")))
		d.to.needs, d.taken, d.to.record.Requested, d.to.record.Healthy = false, true, time.Time{}, nil
		if d.to.phase == v1alpha1.PowerCycleWaiting {
			d.withdraw()
		}
	default:
		d.asks = true
		d.to.phase = v1alpha1.PowerCycleWaiting
	}
	d.prune()
}

// attempts returns how many cycles count until the node is settled: also those that the host has had for another machine, unless the
// node of this one has run since (X6, X20).
func (d *decision) attempts() int {
	if d.Host == nil || d.NodeUnknown || d.hasRun() {
		return d.to.attempt
	}
	return d.to.attempt + len(d.hostCycles(func(c Cycle) bool { return c.Machine != d.Machine.UID }))
}

// countUndone counts the cycles of a request that were let wait again while their host was requested: by another controller, which led as
// well. Each has ended when that is seen (X6).
func (d *decision) countUndone() {
	if d.Host == nil || d.is.phase != v1alpha1.PowerCycleWaiting {
		return
	}
	r := &d.to.record
	for _, began := range d.hostCycles(func(c Cycle) bool {
		return c.Machine == d.Machine.UID && !c.Began.Before(r.Requested) && !slices.ContainsFunc(r.Cycles, c.Began.Equal)
	}) {
		d.to.attempt++
		r.Cycles = slices.SortedFunc(slices.Values(append(slices.Clone(r.Cycles), began)), time.Time.Compare)
		r.Ended = d.stamp()
		if again := began.Add(d.group.Settings.NodeStartup); again.After(r.Again) {
			r.Again = again
		}
	}
}

// prune removes what has expired.
func (d *decision) prune() {
	if !d.asks { // what is left when power cycles were switched off goes on until the node is back, also if they are switched on again
		if !d.now.Before(d.to.until) || d.to.phase == "" && (d.is.phase != "" || d.Healthy) {
			d.to.until = time.Time{}
		} else {
			d.wake(d.to.until)
		}
	}
	r := &d.to.record
	if r.Cycles = r.recent(d.now); len(r.Cycles) > 0 {
		d.wake(r.Cycles[0].Add(CyclePeriod))
	}
}

// end removes all that is ours from a machine that is being deleted, or whose host is not to be touched any more (X15). The
// host is released first, and of a Node that cannot be cleaned it stays known what is ours. Neither holds a deletion up for
// longer than a minute. What comes last is the preservation of a machine whose cycle was under way.
func (d *decision) end() {
	d.clean = true
	d.Release = d.ownsHost()
	if deleted := d.Machine.DeletionTimestamp; deleted != nil {
		if !d.is.finalizer {
			return
		}
		if last := deleted.Add(releaseTime); !d.isReleased() && d.now.Before(last) {
			d.wake(last)
			return
		}
	} else if !d.isReleased() || !d.isClean() && !d.NodeDenied {
		return
	}
	if d.is.underWay() {
		d.setPhase(v1alpha1.PowerCycleCancelled, "The power cycle was cancelled, because the machine is being deleted or hosts are no longer power-cycled.")
	}
	// A request that nobody has taken note of is somebody else's.
	d.to = state{needs: d.is.needs && d.is.phase == "", until: d.keptUntil()}
	if !d.to.until.IsZero() {
		d.wake(d.to.until)
	}
}

// keptUntil returns until when the machine is preserved after all else of power cycles has ended: its host may have just been powered on.
// It has one health timeout, as after a cycle that failed (X10), but not longer than a node has to start by default: whoever switches power
// cycles off waits for that. Zero if it is not preserved any longer.
func (d *decision) keptUntil() time.Time {
	latest := d.stamp().Add(min(d.healthTimeout(), v1alpha1.DefaultNodeStartupTimeout))
	switch {
	case d.Machine.DeletionTimestamp != nil, d.isStopped(), d.is.onlyWaits(), !d.isClaimed():
		return time.Time{}
	case d.is.underWay():
		return latest
	case d.Healthy || !d.now.Before(d.is.until):
		return time.Time{}
	case latest.Before(d.is.until): // its cycle has failed, or the clock was set back
		return latest
	}
	return d.is.until
}

// finish turns what is to be into writes.
func (d *decision) finish() {
	if !d.isEnding() {
		// It stays until the host is known to be released.
		d.to.finalizer = d.to.keepsOff() || d.to.phase == v1alpha1.PowerCyclePoweringOn || d.is.finalizer && !d.isReleased()
	}
	if d.isLost() {
		d.Restore, d.Release = &Owner{
			Seed: d.group.Seed, Namespace: d.Machine.Namespace, Machine: d.Machine.Name, UID: d.Machine.UID,
			BootID: d.is.record.BootID, Time: d.is.record.Began, On: d.is.record.On,
		}, false
	}
	if d.isServiced() { // it is taken back when that is over (X18)
		if d.Release && d.Deadline.IsZero() {
			d.Deadline = d.Host.Owner.Time.Add(d.group.MaxServicing)
		}
		d.Release, d.Restore = false, nil
	}
	d.to.record.Automatic = d.to.record.Automatic && d.to.needs
	d.to.labelled = d.to.concernsHost()
	if !reflect.DeepEqual(d.is, d.to) {
		after := d.Machine.DeepCopy()
		if d.to.write(after) {
			d.WriteMachine, d.PowerOff = &intent.Write{Before: d.Machine, After: after, Lock: true}, nil
		}
	}
	d.editNode()
	d.Confirm = d.Confirm || (d.Release || d.Restore != nil) && !d.Host.Live
}

// setPhase begins a phase, and tells of it.
func (d *decision) setPhase(phase, note string) {
	if d.is.underWay() {
		d.Passed, d.Took = d.is.phase, d.now.Sub(d.is.record.Since)
	}
	d.to.phase, d.to.record.Since = phase, d.stamp()
	switch phase {
	case v1alpha1.PowerCycleSucceeded, v1alpha1.PowerCycleFailed, v1alpha1.PowerCycleCancelled:
		d.Outcome = phase
	}
	d.tell(phase == v1alpha1.PowerCycleFailed, EventPrefix+phase, note)
}

func (d *decision) tell(warning bool, reason, note string) {
	d.Events = append(d.Events, Event{Warning: warning, Reason: reason, Note: note})
}

func (d *decision) wake(t time.Time) {
	if d.Next.IsZero() || t.Before(d.Next) {
		d.Next = t
	}
}

// stamp is the time as it is recorded.
func (d *decision) stamp() time.Time { return d.now.UTC().Truncate(time.Second) }

func (d *decision) healthTimeout() time.Duration { return d.group.Timeouts.For(d.Machine).Health }
