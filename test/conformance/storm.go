// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// settlingTime is how long a machine of the scenario counts as failing when it is back, and its node is so old before.
const settlingTime = 20 * time.Second

// storm: of three machines that fail at the same time, none gets the place of the pool. One of them is replaced, by a machine that takes
// its time, so that the others have to wait. One comes back. Only when that one has settled, the last one gets the place.
func storm(p *Pool) {
	p.limitStorm(1)
	p.scale(perZone + 2)
	machines := p.running(perZone + 2)
	p.eventually(func(g Gomega) {
		for _, machine := range machines {
			g.Expect(time.Since(p.node(g, machine).CreationTimestamp.Time)).To(BeNumerically(">", settlingTime))
		}
	})
	p.Expect(p.InjectNext(p.ctx, p.deploymentName, NeverJoins)).To(Succeed())

	failing := machines[:perZone+1]
	for _, machine := range failing {
		p.fail(machine, KubeletDead)
	}
	for _, machine := range failing {
		p.event(machine, "MachinePreservationRefused", "too many machines of the shoot fail at the same time")
	}
	var left []*machinev1alpha1.Machine
	p.eventually(func(g Gomega) {
		left = nil
		for _, m := range p.machines(g) {
			p.Expect(m.Annotations).NotTo(HaveKey(prefix + "cause"))
			if m.DeletionTimestamp == nil && slices.ContainsFunc(failing, func(f *machinev1alpha1.Machine) bool { return f.Name == m.Name }) {
				left = append(left, &m)
			}
		}
		g.Expect(left).To(HaveLen(perZone))
	})

	// Machine-controller-manager replaces none of them before the one that it replaces is gone, nor, but for a moment in between, before
	// the new one has joined.
	back, stays := left[0], left[1]
	p.fail(back, NoFault)
	p.preserved(stays, failedPreserved, "auto")
	now := time.Now()
	ready := v1alpha1.ConditionOf(p.node(p, back), corev1.NodeReady)
	p.Expect(ready).To(HaveField("Status", corev1.ConditionTrue))
	p.Expect(now).To(BeTemporally(">=", ready.LastTransitionTime.Add(settlingTime)))
	p.Expect(p.fresh(p, back).Annotations).NotTo(HaveKey(prefix + "cause"))
	p.healNewest(machines)
}

// stormCycles: two machines fail at the same time while a third, which was auto-preserved before, waits for an automatic power cycle.
// None is requested for it until one of the two has settled. A person's request for that one does not wait.
//
// Only one node is not ready at a time: X8 does not hinder any cycle, and the storm is all that hinders the automatic one.
func stormCycles(p *Pool) {
	p.limitStorm(1)
	settings := p.powerCycle()
	settings.MaxConcurrent = new(int32(perZone + 1))
	p.setPowerCycle(settings)
	p.scale(perZone + 1)
	machines := p.running(perZone + 1)
	automatic, asked, other := machines[0], machines[1], machines[2]

	p.fail(automatic, NodeCondition)
	p.preserved(automatic, failedPreserved, "auto")
	p.eventually(func(g Gomega) { // or an automatic cycle would wait for that, and failures that began together with this one would be one storm
		annotations := p.fresh(g, automatic).Annotations
		g.Expect(annotations).To(HaveKeyWithValue(v1alpha1.AnnotationEvidence, annotations[v1alpha1.AnnotationFailedSince]))
		since, err := time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationFailedSince])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(since)).To(BeNumerically(">", max(settlingTime, p.settings.Health)))
	})
	for _, machine := range []*machinev1alpha1.Machine{asked, other} { // the storm does not end because a machine is replaced
		p.request(machine, "now")
		p.preserved(machine, runningPreserved, "now")
	}
	before := map[string]*corev1.Node{}
	for _, machine := range machines {
		before[machine.Name] = p.node(p, machine)
	}
	p.fail(asked, KernelHang)
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, asked)).NotTo(withCondition(corev1.NodeReady, corev1.ConditionTrue))
	})
	p.fail(other, NodeCondition)
	for _, machine := range []*machinev1alpha1.Machine{asked, other} { // the preservation controller has seen both failures
		p.eventually(func(g Gomega) { g.Expect(p.fresh(g, machine).Annotations).To(beFailing()) })
	}

	seen := p.watchCycle(automatic, nil)
	settings.Automatic = new(v1alpha1.AutomaticTrue)
	p.setPowerCycle(settings)
	p.askForCycle(asked)
	p.cycled(asked, before[asked.Name])
	ready := v1alpha1.ConditionOf(p.node(p, asked), corev1.NodeReady)
	p.Expect(ready).To(HaveField("Status", corev1.ConditionTrue))
	settled := ready.LastTransitionTime.Add(settlingTime)

	var requested time.Time
	p.eventually(func(g Gomega) { requested = p.cycleRequested(g, automatic) })
	p.t.Logf("Machine %s: an automatic power cycle was requested %s after machine %s had settled", automatic.Name, requested.Sub(settled), asked.Name)
	p.Expect(requested).To(BeTemporally(">=", settled), "no power cycle is requested automatically in a storm")
	p.Expect(p.fresh(p, other).Annotations).To(beFailing(), "it has failed all the time")
	p.eventually(func(g Gomega) { // a machine that recovers before its host is off is not power-cycled
		g.Expect(p.fresh(g, automatic).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPowerCyclePhase,
			BeElementOf(v1alpha1.PowerCycleMakingNodeSafe, v1alpha1.PowerCyclePoweringOn, v1alpha1.PowerCycleStarting)))
	})
	p.fail(automatic, NoFault) // a power cycle does not remove the condition
	p.cycled(automatic, before[automatic.Name])
	p.oneCycle(seen())
}

// beFailing matches the annotations of a machine that is preserved, and fails or has failed.
func beFailing() types.GomegaMatcher {
	return HaveKeyWithValue(prefix+"phase", BeElementOf("Unknown:Preserved", failedPreserved))
}

// cycleRequested returns since when there is a request for the power cycle of a machine that waits, or is under way.
func (p *Pool) cycleRequested(g Gomega, machine *machinev1alpha1.Machine) time.Time {
	record := struct {
		Requested time.Time `json:"requested"`
	}{}
	annotations := p.fresh(g, machine).Annotations
	g.Expect(annotations).To(HaveKey(v1alpha1.AnnotationPowerCyclePhase))
	g.Expect(json.Unmarshal([]byte(annotations[v1alpha1.AnnotationPowerCycleRecord]), &record)).To(Succeed())
	g.Expect(record.Requested).NotTo(BeZero())
	return record.Requested
}

// healNewest lets the machine that does not join do so when the scenario ends.
func (p *Pool) healNewest(known []*machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		machines := slices.DeleteFunc(p.machines(g), func(m machinev1alpha1.Machine) bool {
			return slices.ContainsFunc(known, func(k *machinev1alpha1.Machine) bool { return k.Name == m.Name })
		})
		g.Expect(machines).NotTo(BeEmpty())
		for i := range machines {
			p.toHeal(&machines[i], func(ctx context.Context) error { return client.IgnoreNotFound(p.Inject(ctx, &machines[i], NoFault)) })
		}
	})
}

// limitStorm has operators say how many machines may fail at the same time until the scenario ends, and waits until the preservation
// controller knows it.
func (p *Pool) limitStorm(maxFailing int32) {
	p.t.Helper()
	counts := func(expected bool) {
		p.t.Helper()
		is := ContainElement("--storm-settling-time=" + settlingTime.String())
		if !expected {
			is = Not(is)
		}
		p.configured(is)
	}
	undo, err := p.LimitStorm(p.ctx, maxFailing, settlingTime)
	p.Expect(err).NotTo(HaveOccurred())
	p.t.Cleanup(func() {
		if err := undo(context.WithoutCancel(p.ctx)); err != nil {
			p.t.Errorf("The limit could not be taken back: %v", err)
		}
		counts(false)
	})
	counts(true)
}

// configured waits until the preservation controller runs with such arguments, and no other one does.
func (p *Pool) configured(args types.GomegaMatcher) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		deployment := &appsv1.Deployment{}
		g.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: machineControllerManager}, deployment)).To(Succeed())
		i := slices.IndexFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == sidecar })
		g.Expect(i).To(BeNumerically(">=", 0))
		g.Expect(deployment.Spec.Template.Spec.Containers[i].Args).To(args)
		g.Expect(deployment.Status).To(And(HaveField("ObservedGeneration", deployment.Generation), HaveField("UpdatedReplicas", int32(1)), HaveField("Replicas", int32(1)), HaveField("ReadyReplicas", int32(1))))
	})
}
