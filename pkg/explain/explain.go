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
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
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

// noNode is the error for a node that does not exist or is not known.
func noNode(known *observed.Snapshot, name string) error {
	if unknown := known.Unknown(observed.WhatNode); len(unknown) > 0 {
		return fmt.Errorf("node %q is not known: %s", name, printable(unknown[0].Reason))
	}
	return fmt.Errorf("node %q does not exist", name)
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

// find returns whether the machine is known, and puts the group of its MachineDeployment together.
func (e *explanation) find() (bool, error) {
	seed := e.snapshot.Seed
	if seed == nil {
		if e.node == nil {
			return false, noNode(e.snapshot, e.name)
		}
		e.say(Unknown, "", "What only the seed knows: the machine and its phase, the places of its pool and which machines have them, whether the pool is being updated, and whether operators forbid preserving the machine. Operators see it with --seed-namespace.")
		return false, nil
	}
	machine := seed.Machine(e.name)
	if machine == nil {
		if e.node == nil {
			return false, fmt.Errorf("neither node nor machine %q exists", e.name)
		}
		e.say(Unknown, "", "The machine: no machine in namespace %s has this node.", seed.Namespace)
		return false, nil
	}
	if e.deployment = facts.DeploymentOf(machine, seed.MachineSets, seed.MachineDeployments); e.deployment == nil {
		e.say(Unknown, "", "The MachineDeployment of machine %s. Without it, nothing is decided on the machine.", machine.Name)
		return false, nil
	}

	settings, err := settingsOf(seed.Controller)
	if seed.Controller == nil {
		e.say(Unknown, "", "The configuration of the preservation controller: its defaults are assumed.")
	}
	if err != nil {
		e.say(Unknown, "", "Some arguments of the preservation controller: their defaults are assumed, because %s.", printable(err.Error()))
	}
	group := settings.group.Of(e.deployment)
	if account, err := hours.Decode(seed.MachineHours); err == nil && settings.maxHours > 0 {
		account.Max = settings.maxHours
		e.hours = new(account.At(e.world.now))
		group.Hours = &preservation.Hours{SpentAt: e.hours.Spent(e.world.now), Until: e.hours.End()}
	}
	// If other machines are not known, it is not known how many places are free: then the share is taken as unknown.
	if group.Share != nil && *group.Share > 0 && len(e.snapshot.Unknown(observed.WhatOtherMachines)) > 0 {
		group.Share, e.world.placeUnknown = nil, true
	}
	if group.Holder == nil {
		group.Holder = holderOf(seed.Machines)
	}
	machines, rollout := facts.MachinesOf(e.deployment, seed.MachineSets, seed.Machines)
	group.Rollout = rollout
	for _, m := range machines {
		if m == machine {
			e.world.index = len(group.Members)
		}
		group.Members = append(group.Members, memberOf(e.snapshot, m))
	}
	if settings.storm.Enabled() {
		all := make([]facts.Member, len(seed.Machines))
		for i := range seed.Machines { // the nodes of other MachineDeployments may not be among those that were read
			all[i] = memberOf(e.snapshot, &seed.Machines[i])
		}
		group.Storm = facts.StormOf(all, preservation.FailedSince, settings.storm, group.Timeouts, group.NodeConditions, e.world.now)
	}
	e.readElsewhere(&group)
	e.world.group = group
	if e.node == nil {
		e.node = group.Members[e.world.index].Node
	}
	return true, nil
}

// readElsewhere adds the other MachineDeployments of a pool whose zones share their places (P20).
func (e *explanation) readElsewhere(group *preservation.Group) {
	seed := e.snapshot.Seed
	for i := range seed.MachineDeployments {
		deployment := &seed.MachineDeployments[i]
		other := group.Of(deployment)
		if group.SharedIn == "" || deployment.UID == e.deployment.UID || other.SharedIn != group.SharedIn {
			continue
		}
		other.Members, other.Elsewhere = nil, nil
		if group.Share == nil || deployment.DeletionTimestamp != nil {
			other.Share = nil
		}
		var machines []*machinev1alpha1.Machine
		machines, other.Rollout = facts.MachinesOf(deployment, seed.MachineSets, seed.Machines)
		for _, m := range machines {
			other.Members = append(other.Members, memberOf(e.snapshot, m))
		}
		group.Elsewhere = append(group.Elsewhere, other)
	}
}

func memberOf(known *observed.Snapshot, m *machinev1alpha1.Machine) facts.Member {
	member := facts.Member{Machine: m}
	if node := m.Labels[machinev1alpha1.NodeLabelKey]; node != "" {
		member.Node = known.Shoot.Node(node)
		member.NodeUnknown = member.Node == nil && len(known.Unknown(observed.WhatNode, observed.WhatNodes)) > 0
	}
	return member
}

// holderOf returns the holder that has held the machines, as far as one can see.
func holderOf(machines []machinev1alpha1.Machine) preservation.Holder {
	if slices.ContainsFunc(machines, func(m machinev1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil }) {
		return preservation.PreserveExpiry{}
	}
	return preservation.HealthTimer{}
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

// nodeShows says what the node shows to everybody. Timeout is that of its drain, nil if it is not known.
func (e *explanation) nodeShows(d preservation.Decision, timeout *time.Duration) {
	if !e.released(d) { // else the node is about to change
		if _, tainted := preservation.TaintedSince(e.node); preservation.AwaitsValidation(e.node) {
			e.say(Why, preservation.RuleUnvalidated, "Its node has taint %s because %s. %s", v1alpha1.TaintPreserved, preservation.WhyUnvalidated.Text, printable(preservation.ReadCondition(preservation.PreservedCondition(e.node)).Drain))
			e.proof()
		} else if tainted {
			e.say(Why, preservation.RuleFail, "Its node has taint %s because the machine failed, and takes no new pods.", v1alpha1.TaintPreserved)
		}
		e.drain(e.node, d.Target, timeout)
	}
	e.worked(e.node)
}

// proof says what proves that the machine works, if that is known.
func (e *explanation) proof() {
	switch v := e.world.group.Validation; {
	case v == nil || e.deployment == nil:
	case v.Key != "":
		e.say(Why, preservation.RuleValidated, "Label %s=%s of the Node proves that it works.", v.Key, v.Value)
	default:
		e.say(Why, preservation.RuleValidated, "Condition %s of the Node proves that it works, if it is True and was reported since the machine came back.", v.Condition)
	}
}

// drain says what the drain of a node waits for. Target is nil if the machine is not known, or not preserved.
func (e *explanation) drain(node *corev1.Node, target *preservation.Record, timeout *time.Duration) {
	c := preservation.PreservedCondition(node)
	if c == nil || c.Status != corev1.ConditionTrue || target != nil && !target.Failed { // of a machine that is healthy again, the drain is over
		return
	}
	said := strings.TrimSpace(strings.TrimPrefix(preservation.ReadCondition(c).Drain, machinev1alpha1.PreservedNodeDrainSuccessful))
	if said = printable(said); said != "" {
		said = " " + said
	}
	forced := true
	switch c.Reason {
	case v1alpha1.ReasonDraining:
		e.say(Drain, "P7", "Its pods are being evicted.%s", said)
	case v1alpha1.ReasonDrainBlocked:
		e.say(Drain, "P7", "Evictions are refused.%s", said)
	case v1alpha1.ReasonPodsKept:
		e.say(Drain, "P7", "The drain timeout has passed. Pods with volumes stay because the node does not answer.%s They are deleted when the node answers, or if the pool sets forceDeletePodsWithVolumes.", said)
		return
	case v1alpha1.ReasonDrained:
		e.say(Drain, "P7", "The node is drained.")
		return
	case v1alpha1.ReasonAwaitingValidation:
		forced = false
	case v1alpha1.ReasonPreserved:
		if target != nil && target.Failed && !target.Drains() {
			rule, while := preservation.RuleMaintenance, "the node is under maintenance"
			if slices.ContainsFunc(target.Claims, func(c preservation.Claim) bool { return c.Cause == v1alpha1.CauseRemediation }) {
				rule, while = preservation.RuleRemediation, "its host is power-cycled"
			}
			e.say(Drain, rule, "Its pods stay while %s.", while)
		}
		forced = false
	case machinev1alpha1.PreservedByMCM, machinev1alpha1.PreservedByUser: // until the preservation controller has looked
		forced = false
	default:
		e.say(Unknown, "", "Reason %q of condition %s: the preservation controller has another version than this kubectl preserve. The machine is preserved.%s", printable(c.Reason), v1alpha1.ConditionPreserved, said)
		forced = false
	}
	except := ""
	if !facts.IsReady(node) && (e.deployment == nil || e.deployment.Annotations[v1alpha1.AnnotationForceDeletePodsWithVolumes] != "true") {
		except = " Pods with volumes stay while the node does not answer"
		if e.deployment == nil {
			except += ", unless its pool sets forceDeletePodsWithVolumes"
		}
		except += "."
	}
	_, tainted := preservation.TaintedSince(node)
	switch {
	case !forced || !tainted:
	case timeout != nil && target != nil:
		began := preservation.DrainBegan(node, target.FailedAt(e.world.member().Machine, e.world.group.Timeouts), e.world.now)
		e.say(Drain, "P7", "The drain began at %s. Pods that are left at %s are deleted by force.%s", e.at(began), e.at(began.Add(*timeout)), except)
	default:
		e.say(Drain, "P7", "Pods that are left after the drain timeout (%s unless its pool sets another) are deleted by force.%s", brief.Duration(facts.DefaultTimeouts.Drain), except)
	}
}

// worked says who works on a node.
func (e *explanation) worked(node *corev1.Node) {
	if since := node.Annotations[v1alpha1.AnnotationMaintenance]; since != "" {
		e.say(Why, preservation.RuleMaintenance, "Its node has been under maintenance since %s.", printable(since))
	}
	for _, nm := range e.snapshot.Shoot.Maintenances {
		if nm.Spec.NodeName != node.Name {
			continue
		}
		phase := "new"
		for _, c := range nm.Status.Conditions {
			if c.Type == "Ready" {
				phase = c.Reason
			}
		}
		e.say(Why, preservation.RuleMaintenance, "NodeMaintenance %s/%s of %s is in phase %s.", nm.Namespace, nm.Name, printable(nm.Spec.RequestorID), printable(phase))
	}
	if preservation.IsPowerCycled(node) {
		c := v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle)
		e.say(Why, "X12", "%s", strings.TrimSpace(fmt.Sprintf("The power cycle of its host is in phase %s. %s", printable(c.Reason), printable(c.Message))))
	}
}

// dryRun says when the host would have been power-cycled (X9). The Machine says it, and for an hour an Event of the node.
func (e *explanation) dryRun(machine *machinev1alpha1.Machine) {
	var at time.Time
	if machine != nil {
		at = remediation.DryRun(machine)
	} else {
		for _, event := range e.snapshot.Shoot.Events {
			if then := observed.LastSeen(&event); event.Reason == remediation.EventDryRun && event.Regarding.Kind == "Node" && event.Regarding.Name == e.node.Name && then.After(at) {
				at = then
			}
		}
	}
	if !at.IsZero() {
		e.say(Why, "X9", "powerCycle.automatic of its pool is DryRun. If it were true, the host of the machine would have been power-cycled at %s.", e.at(at))
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
