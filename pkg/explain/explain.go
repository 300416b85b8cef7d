// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package explain says in sentences why a machine is preserved or not, and what a drain of its node would do. It decides nothing: it runs
// the domain on what is known at a time, and on what somebody might change of that.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// Topic is what a sentence is about.
type Topic string

// The topics, in the order in which they are shown.
const (
	// Why a machine is preserved or not.
	Why Topic = "Why"
	// Until when it is preserved.
	Until Topic = "Until"
	// Drain is what the drain of its node waits for.
	Drain Topic = "Drain"
	// Change is what would change that.
	Change Topic = "What would change that"
	// Unknown is what is not known.
	Unknown Topic = "What is not known"
)

// Topics are all of them.
var Topics = []Topic{Why, Until, Drain, Change, Unknown}

// Sentence says one thing.
type Sentence struct {
	Topic Topic `json:"topic"`
	// Rule is the id of the rule behind it; empty for none.
	Rule string `json:"rule,omitempty"`
	Text string `json:"text"`
}

// Explain says why the machine of a node is preserved or not, until when, what the drain of the node waits for, and what would change
// that. The snapshot must have the node, its Events and its maintenances; with the seed, all nodes of its MachineDeployment. A machine
// without a node is found by its own name. It is an error if nothing has that name.
func Explain(known *observed.Snapshot, name string, now time.Time) ([]Sentence, error) {
	e := &explanation{snapshot: known, name: name, node: known.Shoot.Node(name), world: world{now: now}}
	found, err := e.find()
	switch {
	case err != nil:
		return nil, err
	case found && !e.controlled():
	case found:
		e.explainMachine()
	case e.node != nil:
		e.explainNode()
	}
	for _, missing := range known.Unknown(observed.WhatNode, observed.WhatNodes, observed.WhatOtherMachines, observed.WhatMachines, observed.WhatNodeEvents, observed.WhatMachineEvents, observed.WhatMaintenances, observed.WhatController, observed.WhatMachineHours) {
		switch {
		case missing.Thing == observed.WhatShoot:
			e.say(Unknown, "", "What the shoot knows: %s.", printable(missing.Reason))
		case missing.Partial:
			e.say(Unknown, "", "The rest of %s: %s.", missing.Thing.Text(), printable(missing.Reason))
		default:
			e.say(Unknown, "", "The %s: %s.", missing.Thing.Text(), printable(missing.Reason))
		}
	}
	slices.SortStableFunc(e.sentences, func(a, b Sentence) int { return slices.Index(Topics, a.Topic) - slices.Index(Topics, b.Topic) })
	return e.sentences, nil
}

// explanation is one that is being written.
type explanation struct {
	snapshot *observed.Snapshot
	name     string
	node     *corev1.Node
	world    world
	// deployment is that of the machine.
	deployment *machinev1alpha1.MachineDeployment
	// hours is the account of the shoot's machine-hours; nil if they are not counted, or not known.
	hours     *hours.Account
	sentences []Sentence
}

func (e *explanation) say(topic Topic, rule preservation.Rule, format string, args ...any) {
	if rule == preservation.RuleClaims {
		rule = ""
	}
	e.sentences = append(e.sentences, Sentence{Topic: topic, Rule: string(rule), Text: brief.Printable(fmt.Sprintf(format, args...))})
}

// controlled returns whether a preservation controller decides on the machine, and else says so.
func (e *explanation) controlled() bool {
	controller := e.snapshot.Seed.Controller
	if controller == nil || controller.Injected {
		return true
	}
	machine := e.world.member().Machine
	e.say(Why, "", "Machine %[2]s is not preserved, because no preservation controller runs beside machine-controller-manager in namespace %[1]s. When it fails, it is replaced.", machine.Namespace, machine.Name)
	if record := preservation.ReadRecord(machine); record != nil {
		e.say(Until, "P10", "It was preserved before. That ends automatically at %s.", e.at(record.Expiry()))
	}
	e.say(Change, "", "To preserve machines, enable the extension machine-preservation in spec.extensions of the Shoot. If it is enabled, find out why machine-controller-manager has no container machine-preservation-controller.")
	return false
}

// explainMachine explains with the seed.
func (e *explanation) explainMachine() {
	d := e.world.decide()
	e.why(d)
	e.requests(d.Request, d.Machine)
	if d.Target != nil {
		e.until(d)
	}
	_, told := e.ahead()
	e.share(d, told)
	if s := e.world.group.Storm; s.IsOn() {
		e.say(Why, preservation.RuleStorm, "There is a storm now: %d of the %d machines of the shoot fail at the same time, and operators allow %d. Until fewer fail, no machine is preserved without a request, and none is power-cycled automatically.", s.Failing, s.Machines, s.Limit)
	}
	e.maximum(d)
	e.machineHours(d)
	if e.node != nil {
		timeouts := e.world.group.Timeouts.For(d.Machine)
		e.nodeShows(d, &timeouts.Drain)
	}
	e.dryRun(d.Machine)
	e.told(d.Machine)
	e.changes()
	e.unknownAnnotations("Machine", d.Machine.Annotations, slices.Concat(v1alpha1.MachineAnnotations, preservation.FormerAnnotations))
	if e.node != nil {
		e.unknownAnnotations("Node", e.node.Annotations, v1alpha1.NodeAnnotations)
	}
}

// why says whether the machine is preserved, and why.
func (e *explanation) why(d preservation.Decision) {
	var (
		machine = d.Machine
		phase   = machine.Status.CurrentStatus.Phase
		failing = e.world.failing(d)
	)
	switch {
	case machine.DeletionTimestamp != nil:
		e.say(Why, preservation.RuleDeleted, "Machine %s is not preserved, because its deletion began at %s.", machine.Name, e.at(machine.DeletionTimestamp.Time))
	case d.Target != nil && d.Target.Provisional:
		e.say(Why, preservation.RuleMargin, "Machine %s has not failed yet. It is held until its deadline at %s. If it fails then, it is preserved because %s.", machine.Name, e.at(d.Target.FailsAt), preservation.WhyBegun(d.Target.Cause()).Text)
	case d.Target != nil:
		e.say(Why, "", "Machine %s is preserved. It is %s.", machine.Name, d.Target.Phase(phase))
		if d.Rule != "" {
			e.justNow(d.Rule, d)
		}
		for _, claim := range d.Target.Claims {
			if claim.Tentative {
				e.say(Why, preservation.RuleFail, "If it fails at %s, it has a place, and is preserved until %s even without a request.", e.at(d.Target.FailsAt), e.at(claim.Expiry))
				continue
			}
			if why := preservation.WhyBegun(claim.Cause); !why.IsZero() {
				e.say(Why, why.Rule, "It is preserved because %s (cause %s).", why.Text, claim.Cause)
			} else {
				e.say(Unknown, "", "Cause %q of the preservation: the preservation controller has another version than this kubectl preserve.", printable(claim.Cause))
			}
		}
	case e.placeUnknown(d):
		e.say(Why, preservation.RuleShareUsedUp, "Machine %s failed. It is not known whether its MachineDeployment has a free place for it.", machine.Name)
	case d.Current != nil:
		e.say(Why, d.Rule, "Machine %s is being released because %s.", machine.Name, d.Why.Text)
	case d.Verdict == preservation.Ignored:
		e.say(Why, d.Why.Rule, "Machine %s is not preserved because %s.", machine.Name, d.Why.Text)
	case !d.Why.IsZero() && (d.Verdict == preservation.Refused || failing):
		e.say(Why, d.Why.Rule, "Machine %s failed and is not preserved because %s.", machine.Name, d.Why.Text)
	case !d.Why.IsZero():
		e.say(Why, d.Why.Rule, "Machine %s is not preserved, and will not be when it fails, because %s.", machine.Name, d.Why.Text)
	case !d.Deadline.IsZero():
		e.say(Why, "", "Machine %s is not preserved: it is %s, and has not failed yet.", machine.Name, phase)
	default:
		e.say(Why, "", "Machine %s is not preserved: it is %s and has not failed.", machine.Name, phase)
	}
	if record := d.Target; record != nil && !record.FailedSince.IsZero() && record.Failed {
		e.say(Why, preservation.RuleFail, "It failed at %s.", e.at(record.FailedAt(machine, e.world.group.Timeouts)))
	}
	if d.Node == nil && !d.NodeUnknown && machine.DeletionTimestamp == nil {
		e.say(Why, "P9", "It has no node: it never joined, or its node was deleted.")
	}
}

// justNow says why something is decided that is not carried out yet.
func (e *explanation) justNow(rule preservation.Rule, d preservation.Decision) {
	what := "changes"
	if d.Current == nil {
		what = "begins"
	}
	e.say(Why, rule, "Its preservation %s now because %s.", what, d.Why.Text)
}

// released says that the preservation of the machine ends now: what its node still shows is about to go.
func (e *explanation) released(d preservation.Decision) bool {
	return d.Current != nil && d.Target == nil && d.Rule != "" && !e.placeUnknown(d)
}

// requests says what is requested, and which requests are ignored.
func (e *explanation) requests(request preservation.Request, machine *machinev1alpha1.Machine) {
	carrier := "Machine"
	if request.OnNode {
		carrier = "Node"
	}
	switch {
	case request.Invalid != "":
		e.say(Why, "R3", "Annotation %s=%q of the %s is ignored because it is not valid. Valid values: %s, %s, %s and %s.", v1alpha1.AnnotationPreserve, printable(request.Invalid), carrier,
			v1alpha1.RequestNow, v1alpha1.RequestWhenFailed, v1alpha1.RequestFalse, v1alpha1.RequestTrue)
	case request.Spent != "":
		e.say(Why, "P14", "Annotation %s=%s of the %s is ignored because its preservation has ended and the shoot did not allow to delete it. To request again, set another value.", v1alpha1.AnnotationPreserve, request.Spent, carrier)
	case request.Templated:
		e.say(Why, "R2", "Annotation %s=%s is set by the pool: it comes back when somebody changes it on the Node.", v1alpha1.AnnotationPreserve, request.Value)
	case request.Value != "":
		e.say(Why, "R1", "Annotation %s=%s of the %s %s.", v1alpha1.AnnotationPreserve, request.Value, carrier, map[string]string{
			v1alpha1.RequestNow: "requests to preserve it", v1alpha1.RequestWhenFailed: "requests to preserve it when it fails", v1alpha1.RequestFalse: "forbids preserving it",
		}[request.Value])
	}
	if request.InvalidTimeout != "" {
		limit := ""
		if machine != nil {
			limit = fmt.Sprintf(" from %s to %s", brief.Duration(v1alpha1.MinMachinePreserveTimeout), brief.Duration(e.world.group.MaxTimeout))
		}
		e.say(Why, "R5", "Annotation %s=%q of the %s is ignored because it is not valid. A valid value is a duration%s, for example 36h.", v1alpha1.AnnotationTimeout, printable(request.InvalidTimeout), carrier, limit)
	}
}

// until says until when a machine is preserved, and what happens then.
func (e *explanation) until(d preservation.Decision) {
	expiry := d.Target.Expiry()
	if h := e.world.group.Hours; h != nil && h.SpentAt.After(e.world.now) && h.SpentAt.Before(expiry) {
		then := e.world.settled()
		then.now = h.SpentAt
		if then.decide().Target == nil {
			expiry = h.SpentAt
		}
	}
	e.untilThen(expiry)
	var ends []string
	for _, claim := range d.Target.Claims {
		if !claim.Tentative {
			ends = append(ends, printable(claim.Cause)+" until "+e.at(claim.Expiry))
		}
	}
	if len(ends) > 1 {
		e.say(Until, preservation.RuleClaims, "Each cause has its own expiry: %s.", strings.Join(ends, ", "))
	}
	if since := d.Target.Since; !since.IsZero() {
		e.say(Until, preservation.RuleMaxTimeout, "Requests preserve it until %s at the latest, because operators limit how long a machine is preserved, and it has been preserved since %s. Operators can preserve it for longer, by editing its expiry. The limit counts from the beginning again if, for a whole health timeout, the machine is healthy, is not preserved, and has no request with the value now.", e.at(since.Add(e.world.group.MaxTimeout)), e.at(since))
	}
}

func (e *explanation) untilThen(expiry time.Time) {
	then := e.world.settled()
	then.now = expiry
	ended := then.decide()
	switch {
	case ended.Rule == "":
		e.say(Until, "", "It is preserved until %s at least.", e.at(expiry))
	case ended.Target == nil && then.failing(ended) && !e.world.failed(e.world.decide()): // it may be healthy by then
		e.say(Until, e.ruleOf(ended), "It is preserved until %s. Then it is released because %s: it is replaced if it has failed by then.", e.at(expiry), ended.Why.Text)
	case ended.Target != nil || e.placeUnknown(ended): // the next cause may preserve it
		e.say(Until, e.ruleOf(ended), "It is preserved until %s for now. From then on, it is %s.", e.at(expiry), e.outcome(then, ended))
	default:
		e.say(Until, e.ruleOf(ended), "It is preserved until %s. Then it is %s.", e.at(expiry), e.outcome(then, ended))
	}
}

// share says how many places the MachineDeployment has and which machines take them, if the decision depends on that, now or when the
// machine fails.
func (e *explanation) share(d, told preservation.Decision) {
	share := e.world.group.Share
	hangs := func(d preservation.Decision) bool {
		return d.Why.Rule == preservation.RuleShareUsedUp ||
			d.Target != nil && slices.ContainsFunc(d.Target.Claims, func(c preservation.Claim) bool { return c.Cause == v1alpha1.CauseAuto })
	}
	if share == nil || !hangs(d) && !hangs(told) {
		return
	}
	used := "None is taken"
	if names := preservation.Placed(e.world.group, e.world.now); len(names) > 0 {
		used = "Machines that take one: " + strings.Join(names, ", ")
	}
	e.say(Why, preservation.RuleShareUsedUp, "%s has %s. %s.", e.whose(), brief.Count(*share, "place"), used)
}

// whose says what the places are of.
func (e *explanation) whose() string {
	if pool := e.world.group.SharedIn; pool != "" {
		return "Pool " + printable(pool)
	}
	return "MachineDeployment " + e.deployment.Name
}

// maximum says that the machine, with others, keeps its pool at its maximum.
func (e *explanation) maximum(d preservation.Decision) {
	if d.Current == nil || !d.Current.Failed || len(e.snapshot.Unknown(observed.WhatOtherMachines)) > 0 {
		return
	}
	if failed := e.world.group.FailedAtMaximum(); failed > 0 {
		e.say(Why, preservation.RuleMaximum, "%s.", preservation.AtMaximum(e.deployment, failed))
	}
}

// machineHours says how many machine-hours are used, if people or the share preserve the machine, or would.
func (e *explanation) machineHours(d preservation.Decision) {
	_, counted := preservation.Counted(d.Machine)
	if e.hours == nil || counted.IsZero() && d.Why.Rule != preservation.RuleMaxHours {
		return
	}
	now := e.world.now
	e.say(Why, preservation.RuleHours, "Machines of the shoot have been preserved for %.1f of the %d machine-hours that operators allow in %s (UTC).",
		(time.Duration(e.hours.Used(now)) * time.Second).Hours(), e.hours.Max, e.hours.Month)
	switch at := e.hours.Spent(now); {
	case at.IsZero():
	case at.After(now):
		e.say(Until, preservation.RuleMaxHours, "If nothing changes, the machine-hours of the month are used up at %s. Then preserved machines are released, unless a maintenance or a power cycle preserves them or operators edited their expiry.", e.at(at))
	default:
		e.say(Until, preservation.RuleMaxHours, "The machine-hours of the month were used up at %s. Requests and auto-preservation preserve machines again from %s on.", e.at(at), e.at(e.hours.End()))
	}
}

func (e *explanation) at(t time.Time) string { return at(t, e.world.now) }

// at tells a time, and how far away it is.
func at(t, now time.Time) string {
	if t.IsZero() {
		return "an unreadable time"
	}
	stamp := t.UTC().Format(time.RFC3339)
	switch left := t.Sub(now); {
	case left > 0:
		return fmt.Sprintf("%s (in %s)", stamp, duration.HumanDuration(left))
	case left < 0:
		return fmt.Sprintf("%s (%s ago)", stamp, duration.HumanDuration(-left))
	}
	return stamp + " (now)"
}

// Text returns sentences by their topics, with the rules in brackets.
func Text(sentences []Sentence) string {
	var b strings.Builder
	for i, s := range sentences {
		if i == 0 || sentences[i-1].Topic != s.Topic {
			fmt.Fprintln(&b, s.Topic)
		}
		fmt.Fprintf(&b, "  %s\n", s)
	}
	return b.String()
}
