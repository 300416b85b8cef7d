// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// distribute settles the claims on the share (P1, T5, T9): those that have a place are counted, those above a lowered
// share are released, and those that ask for a place are served. So many places are reserved for others (P20).
func distribute(g Group, decisions []Decision, reserved int32, now time.Time) {
	p := count(decisions, now)
	p.unlocked = g.Unlocked
	p.reserved += reserved
	if g.Share != nil {
		p.letGo(*g.Share)
	}
	if g.Share != nil && !g.Unlocked { // else it is not known which places were given to others, and none can be given
		p.serveBeside(g, now)
		if g.PrefersNew {
			p.preferNew(g)
		}
	}
	p.serve(g, now)
}

// places are the places within a share: which machines have, leave and ask for a place.
type places struct {
	used, leaving int32
	// reserved are those that are neither, and may be taken at any time: they were given to machines on which it is not written yet (P20).
	reserved int32
	// unlocked says that none can be given (P20).
	unlocked bool
	// kept are those that have one.
	kept []*Decision
	// auto are those that have one and may have to give it back (T9).
	auto []*Decision
	// claims ask for one, beside for a claim on the one that they have.
	claims, beside []*Decision
}

func count(decisions []Decision, now time.Time) *places {
	p := &places{}
	for i := range decisions {
		d := &decisions[i]
		switch {
		case d.apart && d.claims: // for a place that is not one of these
		case d.claims:
			d.granted = d.granted || d.Current.HasPlace(now) // that place is free for others only when its release is written
			if p.claims = append(p.claims, d); d.granted {
				p.reserved++
			}
		case d.apart && d.Target.HasPlace(now):
			p.used++
		case d.Target.HasPlace(now):
			d.granted = false
			p.used++
			p.kept = append(p.kept, d)
			if !d.asked {
				p.auto = append(p.auto, d)
			} else if d.beside {
				p.beside = append(p.beside, d)
			}
		case d.Current.HasPlace(now):
			// The place is free when the release, or the recovery, is written: its reason may be gone until then.
			p.leaving++
		case d.granted:
			p.reserved++
		}
	}
	return p
}

// letGo releases the oldest auto-preserved machines of what is above a share that was lowered (T9), and those that failed
// without a place: for a person who asks no more, or while nobody knew the share (P1).
func (p *places) letGo(share int32) {
	slices.SortFunc(p.auto, func(a, b *Decision) int {
		return cmp.Or(a.Machine.CreationTimestamp.Compare(b.Machine.CreationTimestamp.Time), cmp.Compare(a.Machine.Name, b.Machine.Name))
	})
	for _, d := range p.auto {
		if p.used > share && (d.Current.Share == 0 || d.Current.Share > share) {
			if d.Current.Share == 0 {
				d.leave(RuleShareUsedUp, WhyShareUsedUp)
			} else {
				d.leave(RuleShareLowered, WhyShareLowered)
			}
			p.used--
			continue
		}
		d.Target.Share = share
	}
}

// serveBeside gives machines that fail, and that persons ask for, a claim of the share's beside theirs: asking never shortens
// (T2). They take a place each whatever the share (P1), so those that fail first get what the others leave of it.
func (p *places) serveBeside(g Group, now time.Time) {
	slices.SortFunc(p.beside, firstToFail)
	free := *g.Share - p.leaving - p.reserved - (p.used - int32(len(p.beside))) // #nosec G115 -- no MachineDeployment has as many machines
	for _, d := range p.beside {
		if free > 0 && now.Before(d.limit) && d.Machine.Spec.ProviderID != "" {
			d.claimAnew(g, now)
			free--
		}
	}
}

// preferNew has machines that fail for a reason which no kept one shows served first, one for each such reason. Where there is no place
// for them, it releases machines that nobody asked for and that show what others show as well: of those that most show, the one that
// failed last, because what the first ones have can be looked at (P15).
func (p *places) preferNew(g Group) {
	reasonOf := func(d *Decision) string { return facts.FailureReason(d.Member, g.NodeConditions) }
	shown := map[string]int{}
	for _, d := range p.kept {
		shown[reasonOf(d)]++
	}
	missing := p.used + p.reserved - *g.Share
	if missing > 0 { // people have more kept than the share: no single place that is given back would be free
		return
	}
	slices.SortFunc(p.claims, firstToFail)
	for _, d := range p.claims {
		if r := reasonOf(d); d.Current == nil && d.forfeits.IsZero() && !d.healthy && !d.NodeUnknown && shown[r] == 0 {
			d.fresh = true
			shown[r]++
			if !d.granted {
				missing++
			}
		}
	}
	repeats := slices.DeleteFunc(slices.Clone(p.auto), func(d *Decision) bool { return d.Rule != "" || d.Target == nil || !d.Target.Failed })
	for ; missing > 0; missing-- {
		repeats = slices.DeleteFunc(repeats, func(d *Decision) bool { return shown[reasonOf(d)] < 2 })
		if len(repeats) == 0 {
			return
		}
		slices.SortFunc(repeats, func(a, b *Decision) int {
			return cmp.Or(cmp.Compare(shown[reasonOf(b)], shown[reasonOf(a)]), b.Target.FailedSince.Compare(a.Target.FailedSince), cmp.Compare(a.Machine.Name, b.Machine.Name))
		})
		shown[reasonOf(repeats[0])]--
		repeats[0].leave(RuleNewFailure, WhyNewFailure)
		repeats = repeats[1:]
		p.used--
		p.leaving++
	}
}

func firstToFail(a, b *Decision) int {
	switch {
	case a.fresh && !b.fresh:
		return -1
	case b.fresh && !a.fresh:
		return 1
	}
	return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Machine.Name, b.Machine.Name))
}

// claimAnew adds the share's claim for a failure that is near, or has come, to what else preserves the machine (T2).
func (d *Decision) claimAnew(g Group, now time.Time) {
	expiry, _ := d.wants(theShare, g, now)
	if auto := d.Target.claim(v1alpha1.CauseAuto); auto != nil && auto.Expiry.After(expiry) {
		expiry = auto.Expiry
	}
	d.Target.Share = *g.Share
	d.Target.Claims = append(d.Target.Claims, Claim{Cause: v1alpha1.CauseAuto, Expiry: expiry, Tentative: true})
	if d.Target.Failed {
		d.Target.confirm()
	}
}

// serve gives places to those that fail first. A nil share gives none, and takes none away.
func (p *places) serve(g Group, now time.Time) {
	share := g.Share
	slices.SortFunc(p.claims, firstToFail)
	for _, d := range p.claims {
		switch {
		case !d.forfeits.IsZero() && d.due && share != nil && p.used < *share:
			d.Why, d.Verdict = d.forfeits, Refused
		case !d.forfeits.IsZero():
			d.refusePlace(share, p.unlocked)
		case share != nil && p.has(d, *share):
			d.Target.Share = *share
			p.take(d)
			if d.renews && now.Before(d.limit) {
				d.claimAnew(g, now)
			}
		case d.takesOver:
			d.giveUp(now)
		case share == nil && d.Current != nil:
			d.Target.Share = 0
		case d.Target.has(Claim.shields):
			d.leave(RuleShareUsedUp, WhyShareUsedUp)
		case d.Current != nil && (!d.due || p.used < *share && !p.unlocked):
			// There may be a place until the deadline, or there is one with the next look: the machine waits for it rather
			// than being released and preserved again.
			d.wait()
		case d.Current != nil:
			d.leave(RuleShareUsedUp, WhyFailedAgain)
		default:
			d.refusePlace(share, p.unlocked)
		}
	}
}

// leave releases a machine that has no place, unless a claim of it needs none (M12, X10). A person's claim that is left is used up: the
// request would begin a new one (T3).
func (d *Decision) leave(rule Rule, why reason.Reason) {
	if d.Target.has(Claim.shields) {
		d.Target.drop(v1alpha1.CauseAuto)
		if d.Rule == "" {
			d.become(RuleClaims, why)
		}
		return
	}
	d.ConsumeRequest = d.Target.personal() != nil
	d.end(rule, why)
	d.Next = time.Time{}
}

// wait leaves a preserved machine that has failed again as it is.
func (d *Decision) wait() {
	d.overdue = false // it is not held yet
	d.Target.Failed, d.Target.FailedSince, d.Target.FailsAt = d.Current.Failed, d.Current.FailedSince, d.Current.FailsAt
	d.goOnValidating()
	if d.Rule == RuleFail || d.Rule == RuleMargin {
		d.become("", reason.Reason{})
	}
}

// refusePlace is T6. Until the deadline a place may still be given back.
func (d *Decision) refusePlace(share *int32, unlocked bool) {
	d.Target, d.Next = nil, time.Time{}
	d.become("", d.forfeits)
	switch {
	case !d.due:
		d.Next = d.Deadline
	case share == nil:
		d.Why = WhyShareUnknown
	case *share == 0:
		d.Why = WhyNoShare
	case unlocked:
		d.Why, d.Verdict = WhyPlacesUnknown, Refused
	default:
		d.Why, d.Verdict = WhyNoPlace, Refused
	}
}

// TakesPlace says that carrying the decision out uses up a place within the share that was free until now.
func (d *Decision) TakesPlace() bool {
	return d.Target != nil && d.Target.Failing() && d.Target.claim(v1alpha1.CauseAuto) != nil &&
		(d.Current == nil || !d.Current.Failing() || d.Current.claim(v1alpha1.CauseAuto) == nil)
}
