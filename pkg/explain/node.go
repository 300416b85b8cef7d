// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

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
		if c := meta.FindStatusCondition(nm.Status.Conditions, maintenancev1alpha1.ConditionReady); c != nil {
			phase = c.Reason
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
