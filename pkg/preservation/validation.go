// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// Validation says what proves that a machine works that is back: it has recovered, or somebody has worked on it (V1). What is on the node
// is the shoot's, and so is the decision: all that it decides is whether the node takes pods.
type Validation struct {
	// Condition is the type of the condition of the node that proves it, if Key is empty.
	Condition corev1.NodeConditionType
	// Key and Value are those of the label of the node that proves it.
	Key, Value string
	// Timeout is for how long the node waits for the proof.
	Timeout time.Duration
}

func validationOf(settings *v1alpha1.Validation) *Validation {
	v := &Validation{Condition: corev1.NodeConditionType(ptr.Deref(settings.Condition, "")), Timeout: settings.Timeout.Duration}
	if settings.Label != nil {
		v.Key, v.Value, _ = strings.Cut(*settings.Label, "=")
	}
	return v
}

// proves says that a node shows the proof (V3). A condition must have been reported since a time: what it said before may be of before the
// failure. A time in the future counts as now. Nobody can see how old a label is.
func (v *Validation) proves(node *corev1.Node, since, now time.Time) bool {
	if v.Key != "" {
		value, ok := node.Labels[v.Key]
		return ok && value == v.Value
	}
	c := v1alpha1.ConditionOf(node, v.Condition)
	return c != nil && c.Status == corev1.ConditionTrue &&
		(!earlier(c.LastHeartbeatTime.Time, now).Before(since) || !earlier(c.LastTransitionTime.Time, now).Before(since))
}

// MissesLabels says that the proof that a machine works may be a label that the cache of nodes does not have: it has none of a node without
// the taint. The node of a machine that was validated loses the taint before the record of the machine says so (V3).
func (g Group) MissesLabels(m facts.Member) bool {
	if g.Validation == nil || g.Validation.Key == "" || m.Node == nil || v1alpha1.IsTainted(m.Node) {
		return false
	}
	record := ReadRecord(m.Machine)
	return record != nil && record.validating()
}

// validating says that the machine is back and has yet to be validated.
func (r *Record) validating() bool { return r.claim(v1alpha1.CauseValidation) != nil }

// worked says that somebody works on the machine: a maintenance that is not over, or a power cycle.
func (r *Record) worked() bool {
	return r.maintained() && r.MaintenanceOver.IsZero() || r.remediated()
}

// Taints says that the node is to take no new pods: those that are there are to go, or the machine has yet to be validated (V2). Between
// the failure and the validation the taint stays where it is, also while the host is power-cycled and until the end of a maintenance is
// told apart from its success: no pod may come in between. A machine that fails meanwhile, or has failed before a maintenance that was called
// off, has it as well.
func (d *Decision) Taints() bool { return d.Target.Drains() || d.gated }

func (d *Decision) settleGate(g Group) {
	if d.Target == nil {
		return
	}
	wanted := g.Validation != nil && !d.rolling
	if !d.Target.validating() && !(wanted && d.Target.worked()) {
		d.Target.ValidatingSince = time.Time{}
	}
	if !wanted {
		return
	}
	spared := d.Target.remediated() || d.Target.maintained() && !d.Target.MaintenanceOver.IsZero()
	kept := d.Target.Failed || d.Node != nil && v1alpha1.IsTainted(d.Node)
	d.gated = spared && kept || d.Target.validating() && !d.Target.worked() && !d.Target.Failed
}

// awaitValidation begins the validation of a machine that is back (V1). While somebody works on the machine, it is only noted that it is due.
func (d *Decision) awaitValidation(g Group, now time.Time) {
	since := now.Truncate(time.Second).UTC()
	d.Target.drop(v1alpha1.CauseValidation)
	if d.Target.worked() {
		d.Target.ValidatingSince = since
		return
	}
	if g.Validation == nil || d.Node == nil || d.rolling || g.Validation.proves(d.Node, since, now) {
		return
	}
	d.Target.Claims = append(d.Target.Claims, Claim{Cause: v1alpha1.CauseValidation, Expiry: since.Add(g.Validation.Timeout)})
	d.Target.ValidatingSince = since
	d.become(WhyUnvalidated.Rule, WhyUnvalidated)
}

// comeBack begins the validation of a machine that somebody has worked on. That was done if its node has the taint: whoever gives the node
// back puts it on in the same write. After a power cycle, the node may still have the taint by which it was made safe. It also begins if it
// was due before: a maintenance that was called off proves nothing. If there are other claims, and the machine has yet to recover, its
// validation begins with that.
func (d *Decision) comeBack(g Group, now time.Time) {
	given := func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintPreserved || t.Key == corev1.TaintNodeOutOfService
	}
	if g.Validation == nil || d.Node == nil || d.Target.ValidatingSince.IsZero() && !slices.ContainsFunc(d.Node.Spec.Taints, given) || d.Target.validating() || d.Target.Failed && len(d.Target.Claims) > 0 {
		return
	}
	d.Target.Failed, d.Target.FailedSince = false, time.Time{}
	d.awaitValidation(g, now)
}

// OwesProof says whether a machine whose pool wants a proof is to be validated when a maintenance of its node is over, and whether it was to
// be before that. One that the maintenance does not preserve is not: nobody would take the taint off when its time is over.
func OwesProof(machine *machinev1alpha1.Machine) (after, before bool) {
	record := ReadRecord(machine)
	if record == nil || !record.maintained() {
		return false, false
	}
	return true, !record.ValidatingSince.IsZero()
}

// neverAsks returns until when a machine is preserved whose record lost the time. No machine is preserved anew for a validation: it begins where
// something else ends.
func (d *Decision) neverAsks(g Group, now time.Time) (until time.Time, ok bool) {
	since := now
	if d.Target != nil && !d.Target.ValidatingSince.IsZero() {
		since = earlier(d.Target.ValidatingSince, now)
	}
	if g.Validation != nil {
		until = since.Add(g.Validation.Timeout).Truncate(time.Second)
	}
	return until, false
}

func (d *Decision) spendNothing(Group, time.Time) {}

// isValidated says that the proof is there (V3).
func (d *Decision) isValidated(g Group, now time.Time) bool {
	return g.Validation != nil && d.Target.validating() && d.isWell() && g.Validation.proves(d.Node, d.Target.ValidatingSince, now)
}

// settleValidation drops the claim of a validation: once the proof is there (V3), when the time for it has passed (V4), and where none is
// wanted any more (V5). While somebody works on the machine it is not validated: that begins anew after it.
func (d *Decision) settleValidation(a *asker, g Group, now time.Time) {
	claim := d.Target.claim(a.cause)
	if claim == nil {
		return
	}
	var why = WhyValidationWaived
	switch {
	case d.Target.worked():
		d.Target.drop(a.cause)
		return
	case d.isValidated(g, now):
		why = WhyValidated
	case !now.Before(claim.Expiry):
		why = WhyNotValidated
	case g.Validation != nil && !d.rolling:
		return
	}
	d.Target.drop(a.cause)
	d.become(why.Rule, why)
}

// whyOver returns why a preservation ends whose last claim has expired.
func (d *Decision) whyOver(g Group, now time.Time) reason.Reason {
	switch {
	case d.isValidated(g, now):
		return WhyValidated
	case d.Target.validating() && d.Target.claim(v1alpha1.CauseValidation).Expiry.Equal(d.Target.Expiry()):
		return WhyNotValidated
	}
	return WhyExpired
}

// failUnvalidated is for a machine that fails while it is validated: this is a new failure (V5). If nothing else keeps it, it asks for a
// place within the share, as if nothing had kept it. A request whose time is over is deleted with the last claim.
func (d *Decision) failUnvalidated(g Group, now time.Time) {
	if now.Before(d.Target.Expiry()) {
		return
	}
	asked := d.Target.personal() != nil
	d.Target.dropIf(func(c Claim) bool { return !c.Personal() })
	until, ok := d.wants(theShare, g, now)
	if (ok || asked && now.Before(d.limit)) && d.mayBeKept(g, now) {
		d.Target.Claims = append(d.Target.Claims, Claim{Cause: v1alpha1.CauseAuto, Expiry: until})
		d.become(RuleAuto, WhyMachineFailed)
		d.claims, d.takesOver = true, true
		return
	}
	d.release(WhyFailedUnvalidated)
	d.ConsumeRequest = asked
}

// goOnValidating takes back that the validation has ended with the failure, of a machine for which it is not decided yet what becomes of it.
func (d *Decision) goOnValidating() {
	if !d.Current.validating() || d.Target.validating() || !d.Why.Is(WhyMachineFailed) {
		return
	}
	d.Target.Claims = append(d.Target.Claims, *d.Current.claim(v1alpha1.CauseValidation))
	d.Target.ValidatingSince = d.Current.ValidatingSince
	d.gated = d.gated || d.Node != nil && v1alpha1.IsTainted(d.Node)
}

// Warns says that people are warned of the decision, because something is not as it should be (V4).
func (d *Decision) Warns() bool { return d.Why.Is(WhyNotValidated) }

// AwaitsValidation says that a node shows that its machine is back and has yet to be validated.
func AwaitsValidation(node *corev1.Node) bool {
	c := PreservedCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonAwaitingValidation
}

// validationEvent returns the Event that tells of a validation, empty if the decision is about something else.
func (d *Decision) validationEvent() (reason, takes string) {
	switch {
	case d.Why.Is(WhyUnvalidated):
		claim := d.Target.claim(v1alpha1.CauseValidation)
		return EventUnvalidated, awaitingPrefix + formatTime(claim.Expiry) + ", because " + d.Why.Text
	case d.Why.Is(WhyNotValidated):
		return EventNotValidated, "Node takes pods again although " + d.Why.Text
	case d.Why.Is(WhyValidated):
		return EventValidated, "Node takes pods again because " + d.Why.Text
	case d.Why.Is(WhyValidationWaived):
		return EventValidationWaived, "Node takes pods again because " + d.Why.Text
	}
	return "", ""
}
