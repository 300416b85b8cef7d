// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// Proof is how the owner's operator proves that machines work that are back, empty if the pool needs no proof (V1).
type Proof string

// The operators that there are: each looks at nodes with the taint that are ready.
const (
	// PromptProof is there within a minute, LateProof after some time, and NoProof never.
	PromptProof Proof = "is prompt"
	LateProof   Proof = "is late"
	NoProof     Proof = "never comes"
	// FlappingProof comes and goes.
	FlappingProof Proof = "flaps"
)

const (
	// proven is the condition that is the proof, and proofTimeout for how long a node waits for it.
	proven       corev1.NodeConditionType = "Proven"
	proofTimeout                          = 20 * time.Minute
	// repeatProof is how often a proof is reported anew.
	repeatProof = 5 * time.Minute
)

// validationSettings are those of the pool.
const validationSettings = `{"condition":"Proven","timeout":"20m","onTimeout":"Keep"}`

// prover is the owner's operator.
type prover struct {
	w   *World
	how Proof
	// seen is since when a node is there that waits for the proof.
	seen map[string]time.Time
}

func (p *prover) tick() {
	if p.how == "" || p.how == NoProof || p.w.cloud.isShootAway() {
		return
	}
	nodes, _ := p.w.shoot.List("nodes", "", labels.Everything())
	for _, change := range nodes {
		node := fromUnstructured[corev1.Node](change.Object)
		if !isNodeReady(node) || !rules.HasTaint(node, v1alpha1.TaintPreserved) {
			delete(p.seen, change.name)
			continue
		}
		if p.seen[change.name].IsZero() {
			p.seen[change.name] = time.Now()
		}
		waits, status := time.Since(p.seen[change.name]), corev1.ConditionTrue
		switch {
		case p.how == LateProof && waits < 10*time.Minute, p.how == PromptProof && waits < 30*time.Second:
			continue
		case p.how == FlappingProof && waits/time.Minute%2 == 0:
			status = corev1.ConditionFalse
		}
		c := v1alpha1.ConditionOf(node, proven)
		if c == nil && status == corev1.ConditionFalse || c != nil && c.Status == status && time.Since(c.LastHeartbeatTime.Time) < repeatProof {
			continue
		}
		_, _ = p.w.shoot.Update("operator", nodeKey(change.name), true, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			node := fromUnstructured[corev1.Node](object)
			setCondition(node, proven, status)
			return toUnstructured(node), nil
		})
	}
}

// isGated says that the pool needs a proof, and that nothing is about to end all validations.
func (o *oracle) isGated(s *subject) bool {
	return o.proof != "" && !o.alone && s.machine != nil && s.machine.DeletionTimestamp == nil && !o.isRolling(0)
}

// followGate is called with each change of a Machine. It blames that one recovers without a proof, and is not validated (V1).
func (o *oracle) followGate(name string, s *subject, was rules.Machine) {
	since := preservation.ReadNotes(s.machine).ValidatingSince
	switch {
	case !o.isGated(s) || !s.record.IsValidated() || s.record.IsFailing() || s.record.IsWorkedOn(time.Now()):
		if was.IsValidated() && !s.gate.Since.IsZero() {
			o.seen["validation ends"]++
		}
		s.gate = rules.Gate{}
	case !since.Equal(s.gate.Since):
		o.seen["validation begins"]++
		s.gate = rules.Gate{Since: since, Until: since.Add(proofTimeout)}
	}
	if o.isGated(s) && was.Phase == rules.FailedPreserved && s.record.Phase == rules.RunningPreserved && !s.record.IsValidated() && !s.record.IsWorkedOn(time.Now()) {
		now := time.Now()
		back := rules.Gate{Since: now.Add(-10 * time.Second), Until: now.Add(proofTimeout)}
		o.judge(name, o.world.Opened(back, back.IsProven(s.node, proven), now, o.Excuses, s.Excuses))
	}
}

// checkGate is called with what we write on a node. It blames that the taint goes before the proof is there (V2).
func (o *oracle) checkGate(name string, s *subject, before, after *corev1.Node) {
	if o.isGated(s) && rules.HasTaint(before, v1alpha1.TaintPreserved) && !rules.HasTaint(after, v1alpha1.TaintPreserved) && s.unhealthy.IsZero() {
		o.judge(name, o.world.Opened(s.gate, s.gate.IsProven(before, proven) || s.wasProven(), time.Now(), o.Excuses, s.Excuses))
	}
}

// observeProof notes since when the proof is there, and whether it was there since the machine came back.
func (o *oracle) observeProof(s *subject) {
	is := !s.gate.Since.IsZero() && s.unhealthy.IsZero() && s.gate.IsProven(s.node, proven)
	if s.proven = rules.Since(s.proven, is, time.Now()); is {
		s.provenOnce = time.Now()
	}
}

// wasProven says that the proof was there, whether or not it still is.
func (s *subject) wasProven() bool {
	return !s.gate.Since.IsZero() && !s.provenOnce.Before(s.gate.Since)
}
