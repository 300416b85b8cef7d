// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// proof is the type of the condition that proves that a machine works.
const proof = "ConformanceValidated"

// needProof has the pool want a proof that its machines work.
func (p *Pool) needProof(share int32, timeout time.Duration) {
	p.t.Helper()
	p.validation = &v1alpha1.Validation{Condition: new(proof), Timeout: &metav1.Duration{Duration: timeout}}
	v1alpha1.SetDefaults_Validation(p.validation)
	p.configure(share, preserveTimeout)
}

// reportProof reports on the machine's node, as of now, whether the machine works.
func (p *Pool) reportProof(g Gomega, machine *machinev1alpha1.Machine, status corev1.ConditionStatus) {
	node := p.node(g, machine)
	before, now := node.DeepCopy(), metav1.Now()
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == proof })
	if i < 0 {
		i = len(node.Status.Conditions)
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: proof, LastTransitionTime: now})
	}
	c := &node.Status.Conditions[i]
	if c.Status != status {
		c.Status, c.LastTransitionTime = status, now
	}
	c.LastHeartbeatTime, c.Reason = now, "Conformance"
	g.Expect(p.Shoot.Status().Patch(p.ctx, node, client.StrategicMergeFrom(before))).To(Succeed())
}

// waits checks that the node of the machine takes no pods for a while, because there is no proof.
func (p *Pool) waits(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node).To(And(tainted(), withCondition("Preserved", corev1.ConditionTrue, HaveField("Reason", "AwaitingValidation"))))
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
	})
	p.told(machine, "MachineAwaitsValidation", "has yet to be validated")
	p.consistently(shortly, func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })
}

// prove reports the proof until the node of the machine takes pods.
func (p *Pool) prove(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		p.reportProof(g, machine, corev1.ConditionTrue)
		g.Expect(p.node(g, machine)).NotTo(tainted())
	})
	p.told(machine, "MachineValidated", "was validated")
}

// validated: the node of a machine that recovers takes no pods until there is a proof, and a report of before is none. What becomes of the
// proof after that does not matter.
func validated(p *Pool) {
	p.needProof(1, v1alpha1.MaxValidationTimeout)
	machine := p.running(2)[0]
	p.eventually(func(g Gomega) { p.reportProof(g, machine, corev1.ConditionTrue) })
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	p.waits(machine)
	p.prove(machine)
	p.eventually(func(g Gomega) { p.reportProof(g, machine, corev1.ConditionFalse) })
	p.consistently(shortly, func(g Gomega) {
		g.Expect(p.node(g, machine)).NotTo(tainted())
		g.Expect(p.isPreserved(g, machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	})
}

// notValidated: the node of a machine that nobody proves to work takes pods after the timeout, and people are warned.
func notValidated(p *Pool) {
	p.needProof(1, v1alpha1.MinValidationTimeout)
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	p.waits(machine)
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).NotTo(tainted()) })
	p.told(machine, "MachineNotValidated", "was not validated in time")
	p.Expect(p.isPreserved(p, machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
}

// validatedAfterMaintenance: the node of a machine that comes back from a maintenance takes no pods from the very write with which it is
// given back. A person may end the wait for the proof.
func validatedAfterMaintenance(p *Pool) {
	p.needProof(0, v1alpha1.MaxValidationTimeout)
	machine := p.running(2)[0]
	nm := p.maintain(machine, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.preserved(machine, runningPreserved, "maintenance")
	p.Expect(p.Shoot.Delete(p.ctx, nm.DeepCopy())).To(Succeed())
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node.Spec.Unschedulable).To(BeFalse())
		p.Expect(node).To(tainted(), "no pod comes in between")
	})
	p.preserved(machine, runningPreserved, "validation")
	p.waits(machine)
	p.prove(machine)
	p.ordinary(machine)

	again := p.newMaintenance(machine, p.scenario+"-again", nil)
	p.create(again)
	p.phase(again, maintenancev1alpha1.PhaseReady)
	p.preserved(machine, runningPreserved, "maintenance")
	p.giveBack(again)
	p.preserved(machine, runningPreserved, "validation")
	p.request(machine, "false")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).NotTo(tainted()) })
	p.ordinary(machine)
	p.withdraw(machine)
}
