// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"
)

// distributeInPool settles the claims on places that all MachineDeployments of a pool use, and returns the decisions on the machines of this one
// (P20). Each MachineDeployment decides on all claims in the same way, and carries out what is its own: so no two give the same place
// away, or release a machine each where one is enough.
func distributeInPool(g Group, own []Decision, now time.Time) []Decision {
	g.Share = g.sum()
	all, reserved := slices.Clone(own), int32(0)
	for _, other := range g.Elsewhere {
		other.Elsewhere, other.Holder, other.Storm, other.Hours = nil, g.Holder, g.Storm, g.Hours
		apart := other.SharedIn != g.SharedIn
		if !apart {
			other.Share = g.Share
		}
		used := int32(0)
		for _, d := range other.decide(now) {
			d.elsewhere, d.apart = true, apart
			if all = append(all, d); !d.claims && d.Target.HasPlace(now) {
				used++
			}
		}
		if apart && other.Share != nil { // until it knows that they are shared, it gives away the rest of its own share
			reserved += max(*other.Share-used, 0)
		}
	}
	unseen := g.Granted.Clone()
	for i := range all {
		uid := all[i].Machine.UID
		all[i].granted = g.Granted.Has(uid)
		unseen.Delete(uid)
	}
	reserved += int32(unseen.Len()) // #nosec G115 -- no pool has as many machines
	distribute(g, all, reserved, now)

	own, others := all[:len(own):len(own)], all[len(own):]
	for i := range own {
		own[i].Why = inPool(own[i].Why)
		for _, d := range others { // what becomes of them decides on the places that there are here
			if d.Next.After(now) {
				own[i].lookAt(d.Next)
			}
		}
	}
	return own
}

// CountsPlaces says that the MachineDeployment is the one for which the number of places is told: of those that share them the first one by
// name, so that nobody adds them up.
func (g Group) CountsPlaces() bool {
	return g.SharedIn == "" || !slices.ContainsFunc(g.Elsewhere, func(other Group) bool {
		return other.SharedIn == g.SharedIn && other.Share != nil && other.Name < g.Name
	})
}

// Placed returns the names of the machines that take one of the places which are there for the group, wherever they are.
func Placed(g Group, now time.Time) (names []string) {
	groups := append([]Group{g}, g.Elsewhere...)
	for i, in := range groups {
		in.Elsewhere = slices.Delete(slices.Clone(groups), i, i+1)
		for _, d := range Decide(in, now) {
			if d.Target.HasPlace(now) {
				names = append(names, d.Machine.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// sum returns how many places there are: the least that a MachineDeployment knows of, because they do not learn of a change at the same time. It
// is nil if this one does not know.
func (g Group) sum() *int32 {
	least := g.Share
	for _, other := range g.Elsewhere {
		if least != nil && other.SharedIn == g.SharedIn && other.Share != nil && *other.Share < *least {
			least = other.Share
		}
	}
	return least
}

// has says that there is a place for a machine: a free one, or the one that was given to it.
func (p *places) has(d *Decision, share int32) bool {
	taken := p.used + p.leaving + p.reserved
	if d.granted {
		taken--
	}
	return taken < share && (!p.unlocked || d.elsewhere)
}

func (p *places) take(d *Decision) {
	p.used++
	if d.granted {
		d.granted = false
		p.reserved--
	}
}
