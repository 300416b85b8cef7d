// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// The scenarios in which hosts are power-cycled. All pools may be, so that machine-controller-manager is not restarted when one
// of them begins.

const (
	// remediation is the cause of a machine that is kept because its host is power-cycled.
	remediation = "remediation"
	// glance is how often a cycle is looked at.
	glance = 200 * time.Millisecond
	// quietTime is for how long a node has to be healthy before its power cycle is asked for: for a minute, it has just recovered, as
	// far as anybody knows.
	quietTime = 70 * time.Second
	// longCycle is what each step of a cycle may take, unless its deadline is what is tried. Kubernetes gives up the pods of a
	// node within 20 seconds, and a host that is late has as many.
	longCycle = 3 * time.Minute
)

// powerCycle returns how the hosts of all pools may be power-cycled, nil where there are none.
func (p *Pool) powerCycle() *v1alpha1.PowerCycle {
	if p.Hosts == nil {
		return nil
	}
	settings := &v1alpha1.PowerCycle{
		PowerOffTimeout:    &metav1.Duration{Duration: longCycle},
		PowerOnTimeout:     &metav1.Duration{Duration: longCycle},
		NodeStartupTimeout: &metav1.Duration{Duration: v1alpha1.MinPowerCycleTimeout}, // for as long, a host is left alone that was switched on
	}
	v1alpha1.SetDefaults_PowerCycle(settings)
	return settings
}

// setPowerCycle sets how the hosts of the pool are power-cycled, nil for not at all, and waits until its MachineDeployments say so.
func (p *Pool) setPowerCycle(settings *v1alpha1.PowerCycle) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.editConfig(func(config *v1alpha1.MachinePreservationConfig) {
			for i := range config.Workers {
				if config.Workers[i].Name == p.name {
					config.Workers[i].PowerCycle = settings
				}
			}
		})).To(Succeed())
	})
	p.eventually(func(g Gomega) {
		for _, deployment := range p.deployments(g) {
			has, err := v1alpha1.PowerCycleOf(&deployment)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(has).To(Equal(settings))
		}
	})
}

// powerCycled: a machine whose kernel hangs is power-cycled as a person asks for it. It is the same machine afterwards, and what
// ran on it was given up after its host was reported off, and not when that was switched.
func powerCycled(p *Pool) {
	machine := p.running(2)[0]
	p.misbehave(machine, LateReport)
	pod := p.stateful(machine)
	p.Expect(p.Shoot.Patch(p.ctx, p.node(p, machine), client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"conformance":%q}}}`, p.scenario)))).To(Succeed())
	before, seen := p.node(p, machine), p.watchCycle(machine, pod)

	p.fail(machine, KernelHang)
	p.askForCycle(machine)
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).To(HaveKeyWithValue(prefix+"cause", remediation))
	})
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, machine)).To(withCondition(v1alpha1.ConditionPowerCycle, corev1.ConditionTrue))
	})
	p.cycled(machine, before)
	p.ordinary(machine)
	p.oneCycle(seen())

	// The node may be back before its host has reported that it is on.
	for _, phase := range []string{v1alpha1.PowerCyclePoweringOff, v1alpha1.PowerCycleMakingNodeSafe, v1alpha1.PowerCyclePoweringOn, v1alpha1.PowerCycleSucceeded} {
		p.told(machine, "PowerCycle"+phase, "")
	}
	p.eventually(func(g Gomega) {
		fresh := &corev1.Pod{}
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), fresh)).To(Succeed())
		g.Expect(fresh.UID).NotTo(Equal(pod.UID))
		g.Expect(fresh.Status.Phase).To(Equal(corev1.PodRunning))
	})
}

// automaticPowerCycle: a machine that is kept because it failed is power-cycled without being asked for. It had its attempt then:
// who asks once more is told so.
func automaticPowerCycle(p *Pool) {
	settings := p.powerCycle()
	settings.Automatic = new(v1alpha1.AutomaticTrue)
	p.setPowerCycle(settings)
	machine := p.running(2)[0]
	before, seen := p.node(p, machine), p.watchCycle(machine, nil)

	p.fail(machine, KernelHang)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.cycled(machine, before)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))

	p.askForCycle(machine)
	p.event(machine, "PowerCycleOutOfAttempts", "")
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(v1alpha1.AnnotationNeedsRemediation))
	})
	p.oneCycle(seen())
}

// powerCycleInALoop: whatever a health checker thinks, it gets one cycle, and none of a node that is healthy again.
func powerCycleInALoop(p *Pool) {
	p.setPowerCycle(p.powerCycle())
	machine := p.running(2)[0]
	p.unasked(machine)
	before, seen := p.node(p, machine), p.watchCycle(machine, nil)

	// A request that comes again each second is dropped for ever while it is not known that the machine was healthy without one.
	p.askForCycle(machine)
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		fresh := &machinev1alpha1.Machine{}
		if err := p.Seed.Get(ctx, client.ObjectKeyFromObject(machine), fresh); err == nil && !metav1.HasAnnotation(fresh.ObjectMeta, v1alpha1.AnnotationNeedsRemediation) {
			_ = patchAnnotations(ctx, p.Seed, fresh, map[string]any{v1alpha1.AnnotationNeedsRemediation: "checker"})
		}
	}, time.Second)
	p.cycled(machine, before)
	p.event(machine, "PowerCycleRecovered", "")
	p.consistently(2*shortly, func(g Gomega) {
		host := p.host(g, machine)
		g.Expect(host.On).To(BeTrue())
		g.Expect(host.Annotations).NotTo(HaveKey(v1alpha1.AnnotationReboot))
	})
	p.oneCycle(seen())
}

// stuckPowerCycles: whatever hangs, the host is released at the deadline, the cycle has failed, and who asked is told what was
// waited for. The machine is kept one health timeout longer.
func stuckPowerCycles(p *Pool) {
	settings := p.powerCycle()
	settings.MaxConcurrent = new(int32(4))
	// A host that is late, and the pods of its node, take 40 seconds of it, and more on a busy machine.
	settings.PowerOffTimeout.Duration, settings.PowerOnTimeout.Duration = longCycle, v1alpha1.MinPowerCycleTimeout
	p.setPowerCycle(settings)
	p.scale(4)
	machines := p.running(4)
	neverOff, neverOn, neverWasOff, neverBack := machines[0], machines[1], machines[2], machines[3]
	p.misbehave(neverOff, NeverOff)
	p.misbehave(neverOn, NeverOn)
	p.misbehave(neverWasOff, OldBootID)
	p.misbehave(neverBack, LateReport) // so that there is time to break it
	for _, machine := range machines {
		p.askForCycle(machine)
	}
	p.inCycle(neverBack, v1alpha1.PowerCyclePoweringOff)
	p.fail(neverBack, KubeletDead)

	p.told(neverBack, "PowerCycleStarting", "")
	for _, stuck := range []struct {
		machine *machinev1alpha1.Machine
		missed  string
		goes    bool
	}{
		{neverOff, "The host was not off", false},
		{neverOn, "The host was not on", true},
		{neverWasOff, "its boot ID has not changed", false},
		{neverBack, "The node was not back", true},
	} {
		p.told(stuck.machine, "PowerCycleFailed", stuck.missed)
		p.released(stuck.machine)
		if stuck.goes {
			kept := p.deletedAt(stuck.machine).Sub(p.failedAt(stuck.machine))
			p.t.Logf("Machine %s: kept for %s after its power cycle failed", stuck.machine.Name, kept.Round(time.Second))
			// The Event comes after the write that it tells of, late on a busy machine, and a deletion's time has no fractions of seconds.
			p.Expect(kept).To(BeNumerically(">=", p.settings.Health-5*time.Second))
		}
	}
	for _, machine := range []*machinev1alpha1.Machine{neverOff, neverWasOff} {
		p.ordinary(machine)
		fresh := p.fresh(p, machine)
		p.Expect(fresh.UID).To(Equal(machine.UID))
		p.Expect(fresh.Annotations).NotTo(HaveKey(v1alpha1.AnnotationNeedsRemediation))
	}
	p.running(4)
}

// withdrawnPowerCycles: a request that is withdrawn while the host is off, and a machine that is deleted then, leave no host off.
func withdrawnPowerCycles(p *Pool) {
	settings := p.powerCycle()
	settings.MaxConcurrent = new(int32(2))
	p.setPowerCycle(settings)
	machines := p.running(2)
	withdrawn, deleted := machines[0], machines[1]
	before := p.node(p, withdrawn)
	for i, machine := range machines {
		p.holdUp(machine, fmt.Sprintf("%s-%d", p.scenario, i))
		p.askForCycle(machine)
	}
	for _, machine := range machines {
		p.inCycle(machine, v1alpha1.PowerCycleMakingNodeSafe)
		p.Expect(p.host(p, machine).Off).To(BeTrue())
	}

	p.annotateMachine(withdrawn, v1alpha1.AnnotationNeedsRemediation, nil)
	p.cycled(withdrawn, before)

	p.Expect(p.Seed.Delete(p.ctx, deleted.DeepCopy())).To(Succeed())
	asked := time.Now()
	p.released(deleted)
	p.t.Logf("Machine %s: its host was released %s after its deletion", deleted.Name, time.Since(asked).Round(time.Second))
	p.Expect(time.Since(asked)).To(BeNumerically("<", time.Minute))
	p.hostOn(deleted)
	p.gone(deleted)
	p.running(2)
}

// refusedPowerCycles: a node that somebody works on does not lose its power, and a host that somebody else keeps off stays his.
// Both requests wait, and say why.
func refusedPowerCycles(p *Pool) {
	machines := p.running(2)
	maintained, taken := machines[0], machines[1]
	p.unasked(maintained)
	nm := p.maintain(maintained, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	// Before the other host is off: that machine has its health timeout to get a request.
	p.askUntilTaken(maintained, func() {
		p.annotate(maintained, map[string]any{v1alpha1.AnnotationPowerCycle: v1alpha1.PowerCycleNow})
	})
	key, undo, err := p.Hosts.KeepOff(p.ctx, taken)
	p.Expect(err).NotTo(HaveOccurred())
	p.toHeal(taken, undo)
	p.eventually(func(g Gomega) { g.Expect(p.host(g, taken).Off).To(BeTrue()) })
	p.askForCycle(taken)
	for machine, reason := range map[*machinev1alpha1.Machine]string{maintained: "maintenance", taken: key} {
		p.told(machine, "PowerCycleWaiting", reason)
		p.eventually(func(g Gomega) {
			g.Expect(p.node(g, machine)).To(withCondition(v1alpha1.ConditionPowerCycle, corev1.ConditionFalse, HaveField("Reason", v1alpha1.PowerCycleWaiting), HaveField("Message", ContainSubstring(reason))))
		})
	}
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, maintained).Annotations).NotTo(HaveKey(v1alpha1.AnnotationPowerCycle))
	})
	p.consistently(2*shortly, func(g Gomega) {
		g.Expect(p.host(g, maintained).On).To(BeTrue())
		g.Expect(p.phaseOf(g, nm)).To(Equal(maintenancev1alpha1.PhaseReady))
		g.Expect(p.host(g, taken).Annotations).To(HaveKey(key))
		for _, machine := range machines {
			g.Expect(p.host(g, machine)).To(beReleased())
			g.Expect(p.fresh(g, machine).DeletionTimestamp).To(BeNil())
		}
	})

	p.annotateMachine(taken, v1alpha1.AnnotationNeedsRemediation, nil)
	p.fail(taken, NoFault)
	p.hostOn(taken)
	p.eventually(func(g Gomega) { g.Expect(p.node(g, taken)).To(withCondition(corev1.NodeReady, corev1.ConditionTrue)) })
	before := p.node(p, maintained)
	p.giveBack(nm)
	p.cycled(maintained, before)
	p.Expect(p.fresh(p, taken).UID).To(Equal(taken.UID))
}

// disabledPowerCycles: hosts that are off when somebody removes the settings are powered on. A machine whose node comes back stays, one whose
// node does not is kept for one more health timeout, however long it has been away. Nothing of the cycles is left.
func disabledPowerCycles(p *Pool) {
	settings := p.powerCycle()
	settings.MaxConcurrent, settings.PowerOffTimeout.Duration = new(int32(2)), 3*longCycle // one is off for as long as the other takes
	p.setPowerCycle(settings)
	machines := p.running(2)
	away, back := machines[0], machines[1]
	isOff := func(machine *machinev1alpha1.Machine) {
		p.t.Helper()
		p.holdUp(machine, p.scenario+"-"+machine.Name)
		p.askForCycle(machine)
		p.inCycle(machine, v1alpha1.PowerCycleMakingNodeSafe)
		p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(outOfService()) })
	}
	isOff(away)
	p.fail(away, KubeletDead)
	p.eventually(func(g Gomega) { // but for its power cycle, it would be replaced by now
		ready := v1alpha1.ConditionOf(p.node(g, away), corev1.NodeReady)
		g.Expect(ready.Status).NotTo(Equal(corev1.ConditionTrue))
		g.Expect(time.Since(ready.LastTransitionTime.Time)).To(BeNumerically(">", p.settings.Health))
	})
	isOff(back)

	disabled := time.Now()
	p.setPowerCycle(nil)
	for _, machine := range machines {
		p.released(machine)
		p.hostOn(machine)
	}
	kept := p.deletedAt(away).Sub(disabled)
	p.t.Logf("Machine %s: kept for %s after power cycles were disabled", away.Name, kept.Round(time.Second))
	p.Expect(kept).To(And(BeNumerically(">=", p.settings.Health-time.Second), BeNumerically("<", p.settings.Health+longCycle)))
	p.eventually(func(g Gomega) { p.forgotten(g, back) })
	p.ordinary(back)
	p.Expect(p.fresh(p, back).UID).To(Equal(back.UID))
	p.running(2)
}

// restartInPowerCycle: the preservation controller is killed in each step, and the cycle comes out as if it had not been. When
// the node is settled, all of it is forgotten.
func restartInPowerCycle(p *Pool) {
	machine := p.running(2)[0]
	p.unasked(machine)
	p.misbehave(machine, LateReport)
	pod := p.holdUp(machine, p.scenario)
	before, seen := p.node(p, machine), p.watchCycle(machine, pod)
	kill := func(phase string) {
		p.inCycle(machine, phase)
		p.crash()
	}
	p.askForCycle(machine)
	kill(v1alpha1.PowerCyclePoweringOff)
	kill(v1alpha1.PowerCycleMakingNodeSafe)
	p.fail(machine, KubeletDead)
	p.Expect(p.Shoot.Patch(p.ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	kill(v1alpha1.PowerCyclePoweringOn)
	kill(v1alpha1.PowerCycleStarting)
	p.fail(machine, NoFault)
	p.cycled(machine, before)
	p.ordinary(machine)
	p.oneCycle(seen())
	p.misbehave(machine, NoHostFault)
	p.Eventually(func(g Gomega) { p.forgotten(g, machine) }).WithContext(p.ctx).WithTimeout(6 * time.Minute).WithPolling(pollInterval).Should(Succeed())
}
