// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Kind is why something is excused, as it is told. How long it lasts once it is over is up to the world.
type Kind string

// What ends a preservation before its expiry.
const (
	// RollingUpdate replaces machines, whatever keeps them (P3), while it goes on and until machine-controller-manager has acted on it.
	RollingUpdate Kind = "rolling update (P3)"
	// ScaledDown takes any machine, as the replicas are always honoured (P2).
	ScaledDown Kind = "scaled down (P2)"
	// Forbidden is what operators say, of a machine or of all (R6), and Hibernated a pool without replicas (P4).
	Forbidden  Kind = "operators forbid it (R6)"
	Hibernated Kind = "the pool is hibernated (P4)"
	// HoursUsedUp ends what people and the share keep, until the month is over (P18).
	HoursUsedUp Kind = "machine-hours used up (P18)"
	// ShareLowered ends what the share has given, from the oldest machine on (T9), and allows too many places until it has.
	ShareLowered Kind = "share lowered (T9)"
	// Requested is any request of a person, of which the world does not say what it ends: `now` may end what `when-failed` began.
	Requested Kind = "request (R2)"
	// Withdrawn is a request that is taken away (R2), Vetoed one for the end (R4): both end what was asked for.
	Withdrawn Kind = "request withdrawn (R2)"
	Vetoed    Kind = "nobody may keep it (R4)"
	// Overwritten is something invalid in the place of the hold: machine-controller-manager 0.62 ends that at once, whatever R3 says.
	Overwritten Kind = "hold overwritten with nonsense (R3)"
	// ExpiryEdited is an operator's edit, which is obeyed (P6). What it has ended is not begun anew for a maintenance.
	ExpiryEdited Kind = "expiry edited (P6)"
	// Deleted is a Machine that somebody deletes, Orphaned one whose Node was, which machine-controller-manager terminates (T10).
	Deleted  Kind = "Machine deleted (T10)"
	Orphaned Kind = "Node deleted (T10)"
	// MaintenanceOver (M13) and PowerCycleOver (X10) end what a claim of theirs has kept, and nothing else.
	MaintenanceOver Kind = "maintenance over (M13)"
	PowerCycleOver  Kind = "power cycle over (X10)"
)

// What keeps somebody from doing, or from seeing, what is due.
const (
	// Fault is any fault of a process, of its connections or of what it sees (P8, P9): all that takes its time is late until it does.
	Fault Kind = "fault"
	// ShootAway is a shoot whose API server is away: nothing is done on Nodes (P9), while holds and hosts are looked after.
	ShootAway Kind = "the shoot is away (P9)"
	// Killed is a sidecar that is not there. A machine that is only worked on, or that MCM 0.61 holds, is held when its deadline comes
	// near and not before, and lost if nobody is there then (M12).
	Killed Kind = "the sidecar was killed, and what has not failed is held when its deadline comes near (M12)"
	// Blind is a sidecar that cannot see what becomes of nodes (H1), Mute one that cannot write Machines.
	Blind Kind = "the sidecar cannot see nodes (H1)"
	Mute  Kind = "the sidecar cannot write Machines (P8)"
	// Unheld is a hold that MCM 0.61 has ended: after an outage it takes Unknown machines for Running (H1).
	Unheld Kind = "taken for Running by MCM 0.61 (H1)"
	// Touched is what was done to a machine, or its node: it is not yet as it is to be.
	Touched Kind = "something was done to it"
	// Denied is a node that cannot be written to: the end of a preservation waits a while for that (P14).
	Denied Kind = "its node cannot be written to (P14)"
	// Storm is that there may be too many machines that fail at the same time: the share preserves none then (P16).
	Storm Kind = "too many machines fail (P16)"
	// PlaceFreed is a place within the share that was given back, which may count as taken for a moment (T8).
	PlaceFreed Kind = "a place was given back (T8)"
	// Slow is an update that goes on, a deleted machine that stays, or a drain that is held up (P3), and Replaced a machine that is gone (T6):
	// machine-controller-manager replaces others some time after that.
	Slow     Kind = "the update takes its time (P3)"
	Replaced Kind = "a machine was replaced (T6)"
)

// ends are the kinds that end a preservation.
var ends = []Kind{
	RollingUpdate, ScaledDown, Forbidden, Hibernated, HoursUsedUp, ShareLowered, Requested, Withdrawn, Vetoed, Overwritten, ExpiryEdited, Deleted, Orphaned, MaintenanceOver, PowerCycleOver,
}

// ofCause are the kinds that end one claim and nothing else.
var ofCause = map[Kind]string{MaintenanceOver: v1alpha1.CauseMaintenance, PowerCycleOver: v1alpha1.CauseRemediation}

// Forever is how long something lasts that is never over.
const Forever = time.Duration(math.MaxInt64)

// Excuse is something that explains what is seen: from when it began until when it is over, which is zero while it goes on.
type Excuse struct {
	Kind        Kind
	From, Until time.Time
}

// At returns an excuse that takes no time.
func At(now time.Time, kind Kind) Excuse { return Excuse{kind, now, now} }

// Excuses are those of a machine, of a MachineDeployment, or of all: of each kind the one that is over last.
type Excuses map[Kind]Excuse

// Add takes an excuse.
func (e *Excuses) Add(x Excuse) {
	if *e == nil {
		*e = Excuses{}
	}
	if before, ok := (*e)[x.Kind]; !ok || x.Until.IsZero() || !before.Until.IsZero() && !x.Until.Before(before.Until) {
		(*e)[x.Kind] = x
	}
}

// Ends says that what went on is over.
func (e *Excuses) Ends(kind Kind, now time.Time) {
	if x, ok := (*e)[kind]; ok {
		x.Until = now
		(*e)[kind] = x
	}
}

// But returns all that is not of some kinds.
func (e Excuses) But(kinds ...Kind) Excuses {
	rest := maps.Clone(e)
	for _, kind := range kinds {
		delete(rest, kind)
	}
	return rest
}

// GoesOn says that something has begun, and is not over.
func (e Excuses) GoesOn(kind Kind) bool {
	x, ok := e[kind]
	return ok && x.Until.IsZero()
}

// Last returns when the last of some kinds is over, zero if there was none; now if it goes on.
func (e Excuses) Last(now time.Time, kinds ...Kind) (last time.Time) {
	for _, kind := range kinds {
		if x, ok := e[kind]; ok {
			if x.Until.IsZero() {
				x.Until = now
			}
			if x.Until.After(last) {
				last = x.Until
			}
		}
	}
	return last
}

// Since returns how long ago the last of some kinds was over: forever if there was none.
func (e Excuses) Since(now time.Time, kinds ...Kind) time.Duration {
	if last := e.Last(now, kinds...); !last.IsZero() {
		return now.Sub(last)
	}
	return Forever
}

// World is what worlds differ in: real processes with short timeouts that are seen by watches, or simulated ones.
type World struct {
	// Lasts is for how long an excuse lasts once it is over, and Aftermath what is not named there.
	Lasts     map[Kind]time.Duration
	Aftermath time.Duration
	// Elapsed returns how much time has passed that counts, nil if all does.
	Elapsed func(from, to time.Time) time.Duration
	// Lag is how far apart what is seen of different objects may be.
	Lag time.Duration
	// Late is how late something may be done, Noticed how long after it broke a machine may be taken for healthy.
	Late, Noticed time.Duration
	// Margin is for how long a machine is held at most before its deadline (H4).
	Margin time.Duration
	// Settling is how long after a maintenance has its node its machine may still be lost (M12).
	Settling time.Duration
	// PowerOff is for how long a host may be asked to be off (X5).
	PowerOff time.Duration
	// HoldsLate says that each machine is held when its deadline comes near, and not before.
	HoldsLate bool
}

func (w *World) elapsed(from, to time.Time) time.Duration {
	if w.Elapsed == nil {
		return to.Sub(from)
	}
	return w.Elapsed(from, to)
}

// Excused returns what of some kinds excuses what is seen of a machine at a time, the last one if it is several, empty if nothing does. What
// ends a claim of one cause excuses where there is such a claim.
func (w *World) Excused(at time.Time, claims map[string]time.Time, kinds []Kind, all ...Excuses) Kind {
	var why Excuse
	for _, excuses := range all {
		for _, kind := range kinds {
			x, ok := excuses[kind]
			if cause, one := ofCause[kind]; one && ok {
				_, ok = claims[cause]
			}
			if ok && (x.Until.IsZero() || w.elapsed(x.Until, at) <= w.lasts(kind)) && !x.From.Before(why.From) {
				why = x
			}
		}
	}
	return why.Kind
}

func (w *World) lasts(kind Kind) time.Duration {
	if d, ok := w.Lasts[kind]; ok {
		return d
	}
	return w.Aftermath
}

// hindered says that a fault is over for less than may be late.
func (w *World) hindered(now time.Time, kinds []Kind, all []Excuses) bool {
	return slices.ContainsFunc(all, func(e Excuses) bool { return e.Since(now, kinds...) <= w.Late })
}
