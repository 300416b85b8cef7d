// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	utilsets "k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// Group is a MachineDeployment with its machines: what one decision is taken on.
type Group struct {
	facts.Pool
	// Name is that of the MachineDeployment.
	Name string
	// Holder is how machine-controller-manager is told to leave a machine alone.
	Holder Holder
	// Share is how many failed machines may be auto-preserved. Nil while nobody has said so: then none is preserved
	// anew, and none is released.
	Share *int32
	// SharedIn is the name of the pool if all its MachineDeployments use the same places, which Share says the number of: then Elsewhere,
	// Granted and Unlocked count (P20). It is empty if the places are those of this MachineDeployment only.
	SharedIn string
	// Elsewhere are the other MachineDeployments of the pool, with their machines. Decisions on these are taken as if they were taken there,
	// because they compete for the same places, and are not returned.
	Elsewhere []Group
	// Granted are the machines of the pool that were given a place which may be written on them at any time.
	Granted utilsets.Set[types.UID]
	// Unlocked says that no place can be given, because others might give the same one away at the same time.
	Unlocked bool
	// PrefersNew says that a machine that fails for a new reason is kept rather than others (P15).
	PrefersNew bool
	// Timeout is for how long a preservation lasts that begins now.
	Timeout time.Duration
	// MaxTimeout is for how long a machine may be kept, counted from when people or the share began to keep it. The count begins
	// anew once the machine has been healthy, kept by nobody and without a request now, for its health timeout. Maintenances and
	// power cycles have bounds of their own (P13).
	MaxTimeout time.Duration
	// Hours is what is left of the machine-hours of the month (P18). Nil: they are not limited.
	Hours *Hours
	// Disabled says that the shoot is to do without this extension: all preservations end (P10).
	Disabled bool
	// Timeouts are the defaults of the machines' timeouts.
	Timeouts facts.Timeouts
	// NodeConditions are the default of the types of node conditions that make a machine unhealthy (H1).
	NodeConditions []string
	// Storm says how many machines of the shoot fail at the same time. While too many do, the share preserves none anew (P16). It goes for
	// Elsewhere as well.
	Storm facts.Storm
	// Maintenance says how maintenances of nodes preserve machines.
	Maintenance MaintenanceOptions
	// Remediation says how power cycles of hosts preserve machines.
	Remediation RemediationOptions
	// DrainConditions says that others see in conditions of a node how its drain goes (D13).
	DrainConditions bool
	// Validation says what proves that a machine works that is back, nil if no proof is needed (V1).
	Validation *Validation
	// Members are the machines, in any order.
	Members []facts.Member
}

// Rule is the id of the rule that a decision follows.
type Rule = reason.Rule

// The rules by which a machine's preservation changes.
const (
	RuleBegin         Rule = "T1"
	RuleFail          Rule = "T2"
	RuleRelease       Rule = "T3"
	RuleWhenFailed    Rule = "T4"
	RuleAuto          Rule = "T5"
	RuleRecover       Rule = "T7"
	RuleReleaseFailed Rule = "T8"
	RuleShareLowered  Rule = "T9"
	RuleDeleted       Rule = "T10"
	RuleShareUsedUp   Rule = "P1"
	RuleMaximum       Rule = "P2"
	RuleNewFailure    Rule = "P15"
	RuleStorm         Rule = "P16"
	RulePool          Rule = "P20"
	RuleRollout       Rule = "P3"
	RuleForbidden     Rule = "R6"
	RuleMaxTimeout    Rule = "P13"
	RuleHours         Rule = "P17"
	RuleMaxHours      Rule = "P18"
	// RuleMaintenance is the begin of a maintenance, RuleMaintenanceOver its end, which nobody is told of.
	RuleMaintenance     Rule = "M12"
	RuleMaintenanceOver Rule = "M13"
	// RuleRemediation is the begin of a remediation, and its end, which nobody is told of.
	RuleRemediation Rule = "X10"
	// RuleClaims is a claim that comes or goes beside another one: claims add up, and none ends another.
	RuleClaims Rule = "claims"
	// RuleUnvalidated is the begin of a validation, RuleValidated its end with the proof, RuleNotValidated without it, and
	// RuleValidationWaived what ends it otherwise.
	RuleUnvalidated      Rule = "V1"
	RuleValidated        Rule = "V3"
	RuleNotValidated     Rule = "V4"
	RuleValidationWaived Rule = "V5"
	// RuleMargin is a hold that is made, or given up, before the deadline: nothing has failed.
	RuleMargin Rule = "H4"
)

// Verdict is what people are told of a decision.
type Verdict string

const (
	// Untold says that nobody is told: nothing has happened yet, or ends as was to be expected (H4, M13, X10), or nobody asked (T6).
	Untold Verdict = ""
	// Told says that people are told of what changes, once that is written.
	Told Verdict = "Told"
	// Refused says that the machine failed and is not preserved, although it might have been (T6, P3, H2, H3, R6, P13, P16), and that
	// people are told.
	Refused Verdict = "Refused"
	// Ignored says that the machine has not failed, that its request, or a maintenance, is not heeded (R6, P13, M12), and that
	// people are told.
	Ignored Verdict = "Ignored"
)

// Decision is what is to become of one machine.
type Decision struct {
	facts.Member
	// Current is the preservation that is under way; nil for none.
	Current *Record
	// Target is the preservation that is to be; nil for none.
	Target *Record
	// Rule is the rule that makes Target differ from Current in more than bookkeeping, else empty.
	Rule Rule
	// Why is the reason for that, or for which the machine is not preserved; zero for an ordinary machine.
	Why reason.Reason
	// Verdict is what people are told of it.
	Verdict Verdict
	// ConsumeRequest says that the request annotations are to be deleted: they are used up (T3, T8), or are not
	// honoured (P3, R6, P13).
	ConsumeRequest bool
	// Confirm says that the decision rests on there being no preservation yet, and on the request, which are to be read
	// live before the first write: a cache may lag, and what was preserved already would get another expiry.
	Confirm bool
	// NodeDenied says that the end of a preservation must not wait any longer for the Node to be cleaned, which is still
	// tried (P14). It is not decided here: whoever carries decisions out knows for how long it was tried.
	NodeDenied bool
	// Request is the request that counts.
	Request Request
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time
	// Deadline is when machine-controller-manager takes the machine for failed; zero if no deadline runs, and not of
	// interest once the failure is on record.
	Deadline time.Time

	// notes are what is noted on the Machine.
	notes Notes
	// limit is until when the machine may be kept at the longest, unless an operator says otherwise (P13).
	limit time.Time
	// hoursSpent says that the machine-hours of the month are used up, which is the limit then (P18).
	hoursSpent bool
	// kept is from when until when people and the share have preserved the machine, maintained the same of maintenances.
	kept, maintained Span
	// spentUntil is the time in AnnotationRemediation if the claim that was made of it has ended before: it begins no other. Else zero.
	spentUntil time.Time
	// near says that the deadline is at most the margin away, due that it has passed.
	near, due bool
	// overdue says that machine-controller-manager marks the machine Failed as soon as it looks at it, and has yet to look.
	overdue bool
	// healthy says that the machine is healthy, whatever its phase (H1).
	healthy bool
	// mcmProtects says that machine-controller-manager may protect the nodes of the MachineDeployment, because it has not come to the end
	// of an update of it, rolling that the machine is replaced, or updated, if it fails (P3).
	mcmProtects, rolling bool
	// asked says that the claim of a person stands.
	asked bool
	// claims says that the machine asks for a place within the share.
	claims bool
	// beside says that the claim of a person has the place already, and the share may add its own (T2). renews says that the machine
	// fails again, so that the share's claim is replaced.
	beside, renews bool
	// uncured says that a remediation has just ended, and the machine is still failed.
	uncured bool
	// forfeits is why the machine would not get the place that may be free for it (P3, H3, P16); zero for nothing.
	forfeits reason.Reason
	// storm is the storm because of which it does not get one (P16); the zero value for none.
	storm facts.Storm
	// takesOver says that it asks for one because a remediation ends and nothing else preserves the machine.
	takesOver bool
	// native says that machine-controller-manager is about to do by itself what is left to be done.
	native bool
	// outlast is until when machine-controller-manager is to hold the machine by itself, so that it can be ended after that;
	// zero for no change.
	outlast time.Time
	// fresh says that the machine fails for a reason which no kept one shows (P15).
	fresh bool
	// gated says that the node has or gets the taint although nothing of it is to go (V2).
	gated bool
	// elsewhere says that the machine is one of another MachineDeployment of the pool (P20), and apart that this one has places of its own.
	elsewhere, apart bool
	// granted says that the machine was given a place that is not written on it yet (P20), or asks for one while it has another.
	granted bool
	// left says that the machine is left to machine-controller-manager, and what that preserves by itself.
	left bool
	// nodeGoes says that the taint and the protection stay, because machine-controller-manager is to take the Node away with its machine.
	nodeGoes bool
	// showsDrain says that others see in conditions of the node how its drain goes (D13).
	showsDrain bool
}

// Decide returns a decision for each member of the group, in their order. It depends on nothing but its arguments: the
// order of the members does not matter.
func Decide(g Group, now time.Time) []Decision {
	decisions := g.decide(now)
	if g.SharedIn == "" {
		distribute(g, decisions, 0, now)
	} else {
		decisions = distributeInPool(g, decisions, now)
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Machine.DeletionTimestamp == nil {
			d.settleSpans(g, now)
		}
		d.lookAt(d.storm.Next)
		d.settleWritten(g)
		if d.nodeGoes = !g.Disabled && d.leavesNode(now); d.nodeGoes && d.Current == nil {
			d.lookAt(d.notes.Spent.Released.Add(nodePatience))
		}
	}
	return decisions
}

// decide takes the decisions for the machines of the group, except where they hang on the share.
func (g Group) decide(now time.Time) []Decision {
	decisions := make([]Decision, len(g.Members))
	mcmProtects := g.Rollout || g.leavesMachines()
	for i, member := range g.Members {
		decisions[i] = decide(g, member, now)
		decisions[i].mcmProtects = mcmProtects
	}
	return decisions
}

// decide takes the decision for one machine, except where it hangs on the share: then the decision claims.
func decide(g Group, m facts.Member, now time.Time) Decision {
	d := Decision{Member: m, Current: ReadRecord(m.Machine), Request: RequestOf(m, g.MaxTimeout), notes: ReadNotes(m.Machine), showsDrain: g.DrainConditions && !g.Disabled}

	if m.Machine.DeletionTimestamp != nil {
		if d.Current != nil {
			d.become(RuleDeleted, WhyDeleted)
		}
		return d
	}

	var margin time.Duration
	d.Deadline, margin = deadline(m.Machine, g.Timeouts, now)
	d.overdue = d.isOverdue(g, now)
	nearAt := d.Deadline.Add(-margin)
	if d.Current != nil && !d.Current.FailsAt.IsZero() { // the timer may have been shifted by the hold, which was made near it
		d.Deadline, nearAt = d.Current.FailsAt, time.Time{}
	}
	d.near = !d.Deadline.IsZero() && !now.Before(nearAt)
	d.due = !d.Deadline.IsZero() && !now.Before(d.Deadline)
	d.healthy = facts.IsHealthy(m, g.NodeConditions)
	d.spentUntil = d.spentRemediation(g)
	d.rolling = g.Rollout && (!g.InPlace || facts.IsSelectedForUpdate(m.Node))

	d.readSpans(g, now)

	if d.Current == nil {
		d.decideNew(g, now)
	} else {
		d.decideOngoing(g, now)
	}

	switch latched := d.Target != nil && d.Target.Failed; {
	case latched || d.Deadline.IsZero() || d.due:
	case d.near:
		d.Next = d.Deadline
	default:
		d.Next = nearAt
	}
	d.settleGate(g)
	d.outwait(g, now)
	d.awaitMaintenance(g, now)
	d.awaitHours(g, now)
	if d.Target != nil {
		g.Holder.cooperate(&d, g, now)
		for _, claim := range d.Target.Claims {
			if claim.Expiry.After(now) {
				d.lookAt(claim.Expiry)
			}
		}
	}
	return d
}

// decideNew decides on a machine that is not preserved: T1, T4, T5, T6.
func (d *Decision) decideNew(g Group, now time.Time) {
	d.ConsumeRequest = d.Request.Spent != "" && !g.Disabled
	asker := d.wantedBy(g, now)
	switch {
	case !facts.IsPhaseKnown(d.Machine):
		d.leaveAlone()
	case g.Disabled: // P10
	case g.Replicas == 0: // P4
		d.Why = WhyNoReplicas
	case g.Forbids(d.Machine): // R6
		d.refuse(g, WhyForbidden)
	case !now.Before(d.limit) && asker == nil: // P13, P18
		_, why := d.overLimit()
		d.refuse(g, why)
		if d.Verdict == Untold && !d.near {
			d.refuseMaintenance(g, now)
		}
	case d.near && d.rolling: // P3
		d.refuseRequest(WhyUpdating)
		d.forfeit(WhyUpdating)
	case d.near && cannotBeHeld(d): // H2
		d.refuseRequest(WhyComponentsNotReady)
	case asker == theShare && g.Storm.IsOn() && d.Machine.Spec.ProviderID != "" && !d.autoPreservedNatively(): // P16
		d.storm = g.Storm
		d.forfeit(WhyStorm)
	case d.near && d.tooLate(g, now): // H3
		d.refuseRequest(WhyFailedTooEarly)
		d.forfeit(WhyFailedTooEarly)
	case d.Request.Value == v1alpha1.RequestFalse && (asker == nil || asker.outlives == nil): // T6
		d.Why = WhyDenied
	case asker == nil && !d.near:
		d.refuseMaintenance(g, now)
	case asker == nil: // T8
		d.refuseRequest(WhyHadItsTime)
	case asker == theShare && g.Share == nil && d.autoPreservedNatively():
		d.left = true // to machine-controller-manager, until the share is known
	case asker == theShare && d.Machine.Spec.ProviderID == "" && !d.autoPreservedNatively(): // no VM, no evidence
		d.Why = WhyNoVM
	default:
		d.begin(asker, g, now)
	}
}

// leaveAlone is for a machine in a phase that is not known, but what a preservation has left behind is still removed.
func (d *Decision) leaveAlone() {
	d.Why, d.left = WhyPhaseNotKnown, !d.notes.NodeUncleaned && d.Request.Spent == ""
	if d.Request.Value == v1alpha1.RequestNow {
		d.Verdict = Ignored
	}
}

// untold are the rules that nobody is told of: of a hold in the margin, because nothing has happened yet (H4), and of the end of a
// maintenance (M13).
var untold = []Rule{"", RuleMargin, RuleMaintenanceOver}

// become follows a rule for a reason. What is told of before gives way: what is decided later is of more weight.
func (d *Decision) become(rule Rule, why reason.Reason) {
	d.Rule, d.Why, d.Verdict = rule, why, Told
	if slices.Contains(untold, rule) {
		d.Verdict = Untold
	}
}

// isOverdue is called with the deadline that the Machine shows. A request is not relied upon: machine-controller-manager
// may be unable to see it, or to read it. A machine without a health timeout would stay for ever if its deadline was put
// off and nothing followed (H2).
func (d *Decision) isOverdue(g Group, now time.Time) bool {
	unasked := Decision{Member: d.Member}
	return hasHealthTimeout(d.Machine) && !d.Deadline.IsZero() && !now.Before(d.Deadline) && d.Machine.Status.CurrentStatus.Phase != machinev1alpha1.MachineFailed &&
		!g.Holder.spares(unasked, now)
}

// autoPreservedNatively says that machine-controller-manager >= 0.62 has preserved the machine without being asked. A version to come
// writes the expiry first and the annotation after that.
func (d *Decision) autoPreservedNatively() bool {
	value, annotated := d.Machine.Annotations[v1alpha1.AnnotationPreserve]
	_, synced := d.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	status := d.Machine.Status.CurrentStatus
	early := status.Phase == machinev1alpha1.MachineFailed && !annotated && !synced && !d.Request.OnNode && !IsExpiryInStatus(d.Machine)
	return status.PreserveExpiryTime != nil && (early || value == ValueAutoPreserved)
}

// hadItsTime says that the machine was released after a failure and has not been healthy since (T8).
func (d *Decision) hadItsTime() bool {
	return d.Current == nil && !d.notes.Spent.Released.IsZero() && !d.recovered()
}

// nodePatience is for how long a Node is left as it is, because it is to go with its machine.
const nodePatience = 5 * time.Minute

// leavesNode says that a failed machine is released, and that the taint and the protection of its Node can go with the Node: the
// taint keeps pods away until then. If the machine gets well first, somebody asks anew, or the Node does not go, it is cleaned all the same.
// A request of the pool's comes back, so that machine-controller-manager may have more to do.
func (d *Decision) leavesNode(now time.Time) bool {
	if d.Current == nil {
		return d.hadItsTime() && d.notes.NodeUncleaned && !d.Request.explicit() && now.Before(d.notes.Spent.Released.Add(nodePatience))
	}
	return d.Rule == RuleReleaseFailed && d.Why.Is(WhyExpired) && !d.healthy && !d.Request.Templated &&
		d.Machine.Status.CurrentStatus.Phase != machinev1alpha1.MachineRunning
}

// nativeExpiry returns the expiry of a preservation that machine-controller-manager >= 0.62 began by itself, at a person's
// request while nobody else was there: the person may know it, and an operator may have edited it (P6). What is younger is
// a race that the pool's timeout wins.
func (d *Decision) nativeExpiry(now time.Time) (time.Time, bool) {
	status := d.Machine.Status.CurrentStatus
	if d.Current != nil || status.PreserveExpiryTime == nil {
		return time.Time{}, false
	}
	asked := d.Request.explicit() && d.Request.Timeout == 0 && !IsExpiryInStatus(d.Machine) && now.Sub(status.LastUpdateTime.Time) >= nativePatience
	known := asked || d.Request.Value == "" && d.autoPreservedNatively()
	return status.PreserveExpiryTime.Time, known && now.Before(status.PreserveExpiryTime.Time)
}

// forfeit makes the machine ask for a place that it does not get, so that people are told if one is free.
func (d *Decision) forfeit(why reason.Reason) {
	if d.Request.Value == "" && !d.hadItsTime() && d.Machine.Spec.ProviderID != "" {
		d.claims, d.forfeits = true, why
	}
}

// tooLate says that machine-controller-manager has marked the machine Failed and does not hold it by itself: then it is
// being terminated (H3).
func (d *Decision) tooLate(g Group, now time.Time) bool {
	return d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed && !g.Holder.spares(*d, now)
}

// begin starts a preservation with one claim. Of a machine that is about to fail only the hold, the expiry and the place
// exist until its deadline (H4).
func (d *Decision) begin(a *asker, g Group, now time.Time) {
	d.Target = &Record{}
	d.claim(a, g, now)
	d.asked, d.claims, d.Confirm = a.personal, a == theShare, a.cause == v1alpha1.CauseNow
	d.beside = d.Confirm
	if d.claims && d.autoPreservedNatively() {
		d.become(RuleAuto, WhyPreservedNatively)
	}
	switch {
	case d.due:
		d.Target.Failed, d.Target.FailedSince = true, failedSince(d.Machine)
	case d.near:
		d.Target.FailsAt, d.Target.FailedSince = d.Deadline, failedSince(d.Machine)
		if d.Target.Provisional = a.onceFailed; a.onceFailed {
			d.become(RuleMargin, WhyAboutToFail)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (d *Decision) lookAt(t time.Time) {
	if !t.IsZero() && (d.Next.IsZero() || t.Before(d.Next)) {
		d.Next = t
	}
}
