// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

const subPhaseSuffix = ":Preserved"

// PhaseFailedPreserved is the sub-phase of a failed machine that is preserved.
const PhaseFailedPreserved = string(machinev1alpha1.MachineFailed) + subPhaseSuffix

// Claim is a reason to preserve a machine. Claims add up: the machine is preserved while a claim stands, and each ends by its own rule.
type Claim struct {
	// Cause is one of the Cause constants of the API.
	Cause string `json:"cause"`
	// Expiry is when the claim ends. Zero: it was made unreadable by hand.
	Expiry time.Time `json:"expiry,omitzero"`
	// Tentative says that the claim is the share's, of a machine that is preserved already and about to fail: it stands once the
	// machine has failed, and goes without a trace if that is healthy again before its deadline (T2, H4).
	Tentative bool `json:"tentative,omitempty"`
}

// Personal says that a person asked.
func (c Claim) Personal() bool { return askerOf(c.Cause).personal }

// unrequested says that the claim stands, and rests on something else than a request.
func (c Claim) unrequested() bool { return !c.Personal() && !c.Tentative }

func (c Claim) exempt() bool     { return askerOf(c.Cause).exempt }
func (c Claim) shields() bool    { return c.exempt() && !askerOf(c.Cause).untilFailure }
func (c Claim) sparesPods() bool { return askerOf(c.Cause).sparesPods }
func (c Claim) outlives() bool   { return askerOf(c.Cause).outlives != nil }
func (c Claim) ownBound() bool   { return askerOf(c.Cause).ownBound }
func (c Claim) tentative() bool  { return c.Tentative }

// Record is the preservation of one machine as it is written on the Machine: all state there is (P8).
type Record struct {
	// Claims are why the machine is preserved, in the order in which they came; never empty, and at most one of a person.
	Claims []Claim
	// Failed says that the machine is in Failed:Preserved.
	Failed bool
	// FailsAt is the deadline to come for which the machine is held; zero once that has passed.
	FailsAt time.Time
	// Provisional says that there is nothing but the hold, the expiry and the place until FailsAt: nothing has failed yet,
	// and nobody has asked (H4).
	Provisional bool
	// FailedSince is the start of the timer whose deadline the machine missed or is about to miss. Zero otherwise.
	FailedSince time.Time
	// Share is the share of the MachineDeployment when the machine got its place (T9), for CauseAuto only. Zero: it has no place, because
	// it failed again for a person or while nobody knew the share, and may have to go later (P1).
	Share int32
	// Since is when the machine was preserved first, also if it was released in between, unless what was used up has come
	// back since (P13). Zero while Provisional, and if only maintenances or power cycles have kept it.
	Since time.Time
	// MaintenanceOver is when the maintenance ended that still preserves the machine, because it was not healthy then (M13).
	// Zero otherwise.
	MaintenanceOver time.Time
	// RemediatedUntil is what the expiry of the claim of a remediation was made of (X10). Zero if there is none.
	RemediatedUntil time.Time
	// ValidatingSince is when the machine came back that has yet to be validated (V1), also while a maintenance or a power cycle puts that off.
	// Zero if it has not.
	ValidatingSince time.Time
	// Written is the expiry as it was written, where machine-hours are limited: another one is an operator's edit (P6, P18). Zero
	// otherwise.
	Written time.Time
	// Edited is the expiry of the claims that an operator has edited, where machine-hours are limited: they go on when those are used up
	// (P6, P18). Zero for none.
	Edited time.Time
}

// Cause returns what people are told: the cause of the most weight, of two alike that of the claim that came first.
func (r *Record) Cause() string {
	return slices.MaxFunc(r.Claims, func(a, b Claim) int { return cmp.Compare(askerOf(a.Cause).weight, askerOf(b.Cause).weight) }).Cause
}

// Expiry returns when the preservation ends: with the last claim.
func (r *Record) Expiry() time.Time {
	var latest time.Time
	for _, claim := range r.Claims {
		if claim.Expiry.After(latest) {
			latest = claim.Expiry
		}
	}
	return latest
}

// personal returns the claim of a person, or nil.
func (r *Record) personal() *Claim { return r.find(Claim.Personal) }

func (r *Record) claim(cause string) *Claim {
	return r.find(func(c Claim) bool { return c.Cause == cause })
}

func (r *Record) find(is func(Claim) bool) *Claim {
	if i := slices.IndexFunc(r.Claims, is); i >= 0 {
		return &r.Claims[i]
	}
	return nil
}

func (r *Record) drop(cause string) { r.dropIf(func(c Claim) bool { return c.Cause == cause }) }

// dropIf returns whether there was a claim that it has dropped.
func (r *Record) dropIf(is func(Claim) bool) bool {
	before := len(r.Claims)
	r.Claims = slices.DeleteFunc(r.Claims, is)
	return len(r.Claims) < before
}

// confirm makes what is tentative stand, now that the machine has failed. It takes the place of what the share claimed
// before: this is a new failure (T2).
func (r *Record) confirm() {
	if i := slices.IndexFunc(r.Claims, Claim.tentative); i >= 0 {
		claim := r.Claims[i]
		claim.Tentative = false
		r.drop(v1alpha1.CauseAuto)
		r.Claims = append(r.Claims, claim)
	}
}

// has says that there is such a claim, hasOnly that there is no other.
func (r *Record) has(is func(Claim) bool) bool { return slices.ContainsFunc(r.Claims, is) }

func (r *Record) hasOnly(is func(Claim) bool) bool {
	return !slices.ContainsFunc(r.Claims, func(c Claim) bool { return !is(c) })
}

// hasBefore says that something else than a request preserved the machine before there was a claim for a cause. A validation begins with the
// recovery from a failure that others preserve the machine for.
func (r *Record) hasBefore(cause string) bool {
	at := slices.IndexFunc(r.Claims, func(c Claim) bool { return c.Cause == cause })
	for i, c := range r.Claims {
		if c.unrequested() && (c.Cause != v1alpha1.CauseValidation || i < at) {
			return true
		}
	}
	return false
}

// HasPlace says that the machine counts towards the share: it is in Failed:Preserved, or about to be, and more than what needs
// no place keeps it (P1).
func (r *Record) HasPlace(now time.Time) bool {
	return r != nil && r.Failing() && (!r.has(Claim.exempt) || r.has(func(c Claim) bool { return !c.exempt() && now.Before(c.Expiry) }))
}

// Drains says that the pods of the machine's node are to go: it is in Failed:Preserved, and nothing spares them (M12, X10).
func (r *Record) Drains() bool { return r.Failed && !r.has(Claim.sparesPods) }

// Failing says that machine-controller-manager would terminate the machine if it was not held.
func (r *Record) Failing() bool { return r.Failed || !r.FailsAt.IsZero() }

// FailedAt returns the deadline of the timer that the machine missed, or is about to miss; zero if it did not fail.
func (r *Record) FailedAt(machine *machinev1alpha1.Machine, defaults facts.Timeouts) time.Time {
	switch timeouts := defaults.For(machine); {
	case r.FailedSince.IsZero():
		return time.Time{}
	case r.FailedSince.Equal(machine.CreationTimestamp.Time):
		return r.FailedSince.Add(timeouts.Creation)
	default:
		return r.FailedSince.Add(timeouts.Health)
	}
}

// HasEvidence says that the evidence of the failure is stored.
func (r *Record) HasEvidence(machine *machinev1alpha1.Machine) bool {
	evidence, ok := machine.Annotations[v1alpha1.AnnotationEvidence]
	return ok && r.Failed && evidence == machine.Annotations[v1alpha1.AnnotationFailedSince]
}

// EvidenceBegan returns since when the evidence of the failure, which is not stored yet, is being gathered by the process that acts since
// that time; zero if it is not. What gathered before that is gone.
func (r *Record) EvidenceBegan(machine *machinev1alpha1.Machine, process time.Time) time.Time {
	value, ok := strings.CutPrefix(machine.Annotations[v1alpha1.AnnotationEvidence], v1alpha1.EvidenceGathering)
	began, err := time.Parse(time.RFC3339, value)
	if !ok || err != nil || !r.Failed || began.Before(r.FailedSince) || began.Before(process.Truncate(time.Second)) {
		return time.Time{}
	}
	return began
}

func (r *Record) clone() *Record {
	c := *r
	c.Claims = slices.Clone(r.Claims)
	return &c
}

// ReadRecord returns the preservation that is written on a machine, and nil if there is none. The expiry in the
// Machine's status counts once it was written there; an operator edits it there (P6).
func ReadRecord(machine *machinev1alpha1.Machine) *Record {
	annotations := machine.Annotations
	cause, ok := annotations[v1alpha1.AnnotationCause]
	if !ok {
		return nil
	}
	expiry := parseTime(annotations[v1alpha1.AnnotationExpiryTime])
	if inStatus := machine.Status.CurrentStatus.PreserveExpiryTime; inStatus != nil && IsExpiryInStatus(machine) {
		expiry = inStatus.Time
	}
	notes := ReadNotes(machine)
	record := &Record{
		Claims:      lineUp(notes.Claims, cause, expiry),
		Failed:      annotations[v1alpha1.AnnotationPhase] == PhaseFailedPreserved,
		FailsAt:     notes.FailsAt,
		FailedSince: parseTime(annotations[v1alpha1.AnnotationFailedSince]),
		Share:       notes.Share,
		Written:     notes.Written,
		Edited:      notes.Edited,
	}
	record.readEdit(machine)
	if record.maintained() {
		record.MaintenanceOver = notes.MaintenanceOver
	}
	if record.remediated() {
		record.RemediatedUntil = notes.RemediatedUntil
	}
	record.ValidatingSince = notes.ValidatingSince
	_, told := annotations[v1alpha1.AnnotationPhase]
	if record.Provisional = !told && !record.FailsAt.IsZero(); !record.Provisional {
		record.Since = notes.Spent.Kept.Since
	}
	return record
}

// lineUp makes the claims of a machine agree with the cause and the expiry that people read: an operator edits the expiry of the
// preservation, and not of a claim (P6).
func lineUp(claims []Claim, cause string, expiry time.Time) []Claim {
	if len(claims) < 2 { // a single claim is not noted, and what cannot be read is none
		return []Claim{{Cause: cause, Expiry: expiry}}
	}
	record := &Record{Claims: slices.Clone(claims)}
	claims, latest := slices.Clone(claims), record.Expiry()
	record.dropIf(Claim.tentative) // the edit is to move a claim that stays
	standing := record.Expiry()
	for i := range claims {
		claim := &claims[i]
		edited := !expiry.Equal(latest) && !claim.Tentative && claim.Expiry.Equal(standing)
		if claim.Expiry.After(expiry) || claim.Expiry.Equal(latest) || edited {
			claim.Expiry = expiry
		}
	}
	return claims
}

// IsExpiryInStatus says that the expiry was written into the status of this very Machine. One that is restored after a
// migration of the control plane has its annotations, another UID, and nothing in its status but what
// machine-controller-manager made of the annotations.
func IsExpiryInStatus(machine *machinev1alpha1.Machine) bool {
	noted := ReadNotes(machine).ExpiryInStatus
	return noted != "" && noted == machine.UID
}

// annotations returns the keys and values that people read of the record on the machine; an absent key is to be removed.
func (r *Record) annotations(phase machinev1alpha1.MachinePhase) map[string]string {
	annotations := map[string]string{
		v1alpha1.AnnotationCause:      r.Cause(),
		v1alpha1.AnnotationExpiryTime: formatTime(r.Expiry()),
	}
	if !r.Provisional {
		annotations[v1alpha1.AnnotationPhase] = r.Phase(phase)
	}
	if r.Failing() {
		annotations[v1alpha1.AnnotationFailedSince] = formatTime(r.FailedSince)
	}
	return annotations
}

// note notes what nobody but this package reads of a record, nil for none. RemediatedUntil outlives it.
func (n *Notes) note(r *Record) {
	n.Claims, n.FailsAt, n.Share, n.MaintenanceOver, n.ValidatingSince = nil, time.Time{}, 0, time.Time{}, time.Time{}
	n.Written, n.Edited = time.Time{}, time.Time{}
	if r == nil {
		return
	}
	n.FailsAt, n.RemediatedUntil, n.Written, n.Edited = r.FailsAt.UTC(), time.Time{}, r.Written.UTC(), r.Edited.UTC()
	if len(r.Claims) > 1 { // a single claim is all in the annotations
		for _, claim := range r.Claims {
			claim.Expiry = claim.Expiry.UTC()
			n.Claims = append(n.Claims, claim)
		}
	}
	if r.claim(v1alpha1.CauseAuto) != nil {
		n.Share = r.Share
	}
	if r.maintained() {
		n.MaintenanceOver = r.MaintenanceOver.UTC()
	}
	if r.remediated() {
		n.RemediatedUntil = r.RemediatedUntil.UTC()
	}
	n.ValidatingSince = r.ValidatingSince.UTC()
}

// recordKeys are the keys that annotations may return, which does all of a failed machine.
var recordKeys = slices.Collect(maps.Keys((&Record{Claims: []Claim{{}}, Failed: true}).annotations("")))

// Phase returns the sub-phase, for example "Running:Preserved" (P11). What machine-controller-manager calls Unknown or
// Pending is Failed:Preserved once the failure was found; what it calls Failed is Unknown:Preserved as long as the
// machine waits for a place within the share, or for its deadline. One that it has not seen yet is Pending.
func (r *Record) Phase(phase machinev1alpha1.MachinePhase) string {
	if r.Failed {
		return PhaseFailedPreserved
	}
	switch {
	case phase == machinev1alpha1.MachineFailed, !r.FailsAt.IsZero():
		phase = machinev1alpha1.MachineUnknown
	case phase == "":
		phase = machinev1alpha1.MachinePending
	}
	return string(phase) + subPhaseSuffix
}

func parseTime(value string) time.Time {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}
	}
	return t.UTC() // whoever writes it may have a zone that JSON refuses
}

func formatTime(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}
