// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// explainNode explains from the node alone: its condition and its Events say what is, and the domain says what would be.
func (e *explanation) explainNode() {
	node := e.node
	e.guess()
	c := preservation.PreservedCondition(node)
	d := e.world.decide()
	protected := preservation.IsProtected(node)
	switch {
	case protected:
		e.say(Why, preservation.RuleMaintenance, "The machine of node %s is preserved because its node is under maintenance. The node has no condition %s because the machine has not failed.", node.Name, v1alpha1.ConditionPreserved)
		e.say(Unknown, "", "Until when it is preserved: nodeMaintenance.maxHoldTime of the Shoot is counted from the start of the maintenance. An Event of the node says until when.")
	case c == nil:
		e.say(Why, "", "The machine of node %s is not preserved, as far as the node shows: it has no condition %s. The node does not show whether the shoot has a preservation controller at all.", node.Name, v1alpha1.ConditionPreserved)
	case c.Status == corev1.ConditionTrue && e.released(d):
		e.say(Why, e.ruleOf(d), "The machine of node %s is being released because %s. Condition %s is still True.", node.Name, d.Why.Text, v1alpha1.ConditionPreserved)
	case c.Status == corev1.ConditionTrue:
		e.say(Why, "P11", "The machine of node %s is preserved: condition %s is True.", node.Name, v1alpha1.ConditionPreserved)
		told := preservation.ReadCondition(c)
		if told.Cause != "" {
			e.say(Why, told.Why.Rule, "It is preserved because %s (cause %s).", told.Why.Text, told.Cause)
		}
		if preservation.AwaitsValidation(node) && told.Cause != v1alpha1.CauseValidation {
			e.say(Why, preservation.RuleUnvalidated, "It is preserved because %s (cause %s).", preservation.WhyUnvalidated.Text, v1alpha1.CauseValidation)
		}
		if told.Until.IsZero() {
			e.say(Unknown, "", "Until when it is preserved: the condition does not say so.")
		} else {
			e.untilThen(told.Until)
		}
	default:
		e.say(Why, "P11", "The machine of node %s is no longer preserved: condition %s is %s since %s.", node.Name, v1alpha1.ConditionPreserved, c.Status, e.at(c.LastTransitionTime.Time))
	}
	if d.Rule != "" && d.Current != nil && !protected && !e.released(d) {
		e.justNow(e.ruleOf(d), d)
	}
	e.requests(d.Request, nil)
	e.nodeShows(d, nil)
	e.dryRun(nil)
	e.told(nil)
	switch {
	case protected:
	case d.Current == nil && d.Target != nil:
		e.say(Unknown, "", "Why it is not preserved although %s. Either the preservation controller has not looked yet, or there is a reason that only the seed knows. Look at the Events of the node.", d.Why.Text)
	default:
		e.changes()
	}
	e.unknownAnnotations("Node", node.Annotations, v1alpha1.NodeAnnotations)
}

// guess assumes a machine for a node, in a group of which nothing is known.
func (e *explanation) guess() {
	settings, _ := settingsOf(nil)
	machine := preservation.Shown(e.node, e.world.now)
	if record := preservation.ReadRecord(machine); record != nil {
		if record.Expiry().IsZero() {
			machine.Annotations[v1alpha1.AnnotationExpiryTime] = e.world.now.Add(v1alpha1.DefaultMachinePreserveTimeout).UTC().Format(time.RFC3339)
			preservation.DropClaims(machine)
		}
	}
	e.world.group = settings.group
	e.world.group.Holder = preservation.HealthTimer{}
	e.world.group.Timeout = v1alpha1.DefaultMachinePreserveTimeout
	if preservation.AwaitsValidation(e.node) { // what the proof is, is only known in the seed
		e.world.group.Validation = &preservation.Validation{Timeout: v1alpha1.DefaultValidationTimeout}
	}
	e.world.group.Replicas = 1
	e.world.group.Members = []facts.Member{{Machine: machine, Node: e.node}}
	e.world.guessed, e.world.placeUnknown = true, true
}

// events returns the Events about the preservation of the node's machine, the last one last.
func (e *explanation) events(machine *machinev1alpha1.Machine) []eventsv1.Event {
	var found []eventsv1.Event
	add := func(events []eventsv1.Event, kind, name string) {
		for _, event := range events {
			if preservation.IsEvent(event.Reason) && event.Regarding.Kind == kind && event.Regarding.Name == name {
				found = append(found, event)
			}
		}
	}
	if e.node != nil {
		add(e.snapshot.Shoot.Events, "Node", e.node.Name)
	}
	if machine != nil && e.snapshot.Seed != nil {
		add(e.snapshot.Seed.Events, "Machine", machine.Name)
	}
	slices.SortStableFunc(found, func(a, b eventsv1.Event) int { return observed.LastSeen(&a).Compare(observed.LastSeen(&b)) })
	return found
}

// told says what the last Event of the preservation controller said of the machine, and without the seed, what the last ones said of
// the maximum of its pool while it takes no pods, and of machine-hours.
func (e *explanation) told(machine *machinev1alpha1.Machine) {
	events := e.events(machine)
	last := func(is func(reason string) bool) {
		for _, event := range slices.Backward(events) {
			if is(event.Reason) {
				e.tell(&event)
				return
			}
		}
	}
	others := []string{preservation.EventPoolAtMaximum, preservation.EventMachineHours}
	last(func(reason string) bool { return !slices.Contains(others, reason) })
	if machine != nil || e.node == nil {
		return
	}
	if _, tainted := preservation.TaintedSince(e.node); tainted {
		last(func(reason string) bool { return reason == preservation.EventPoolAtMaximum })
	}
	last(func(reason string) bool { return reason == preservation.EventMachineHours })
}

func (e *explanation) tell(last *eventsv1.Event) {
	e.say(Why, preservation.RuleTold(last.Reason, last.Action), "Event at %s: %s.", e.at(observed.LastSeen(last)), strings.TrimSuffix(printable(last.Note), "."))
}

// unknownAnnotations says which annotations of this extension are on an object and mean nothing to this version.
func (e *explanation) unknownAnnotations(kind string, annotations map[string]string, known []string) {
	var keys []string
	for key := range annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") && !slices.Contains(known, key) {
			keys = append(keys, printable(key))
		}
	}
	if slices.Sort(keys); len(keys) > 0 {
		e.say(Unknown, "", "What annotation %s of the %s means: it comes from another version than this kubectl preserve, or is mistyped.", strings.Join(brief.First(keys, 5), ", "), kind)
	}
}

// printable returns a text of others without what a terminal must not be given.
func printable(s string) string { return brief.Note(brief.Printable(s)) }
