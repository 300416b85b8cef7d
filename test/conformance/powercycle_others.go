// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// The scenarios of power cycles in which somebody else has to do with the machine or its host: the machine recovers by itself, its
// host is rebooted by others, is serviced by its own controller, or loses what says for whom it is off.

// recoveredBeforePowerCycle: a machine that has failed waits for its power cycle, and recovers. Its host stays on, also when nothing
// is in the way any more.
func recoveredBeforePowerCycle(p *Pool) {
	machines := p.running(2)
	first, second := machines[0], machines[1]
	before, pod := p.node(p, first), p.holdUp(first, p.scenario)
	p.askForCycle(first)
	p.inCycle(first, v1alpha1.PowerCycleMakingNodeSafe)

	p.fail(second, KubeletDead)
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, second)).NotTo(withCondition(corev1.NodeReady, corev1.ConditionTrue))
	})
	p.askForCycle(second)
	p.told(second, "PowerCycleWaiting", "")
	p.fail(second, NoFault)
	p.told(second, "PowerCycleRecovered", "has recovered")
	p.Expect(p.Shoot.Patch(p.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	p.cycled(first, before)
	p.consistently(shortly, func(g Gomega) {
		g.Expect(p.fresh(g, second).Annotations).NotTo(HaveKey(v1alpha1.AnnotationNeedsRemediation))
		host := p.host(g, second)
		g.Expect(host.On).To(BeTrue())
		g.Expect(host).To(beReleased())
	})
	p.Expect(p.events(second, "PowerCyclePoweringOff")).To(BeEmpty())
	p.ordinary(second)
}

// startingHost: somebody else has rebooted the host. Its node has the time that it takes to start before the host is off again.
func startingHost(p *Pool) {
	settings := p.powerCycle()
	settings.NodeStartupTimeout.Duration = 2 * longCycle // it still counts when somebody had to ask twice
	p.setPowerCycle(settings)
	machine := p.running(2)[0]
	_, undo, err := p.Hosts.KeepOff(p.ctx, machine)
	p.Expect(err).NotTo(HaveOccurred())
	p.toHeal(machine, undo)
	p.eventually(func(g Gomega) { g.Expect(p.host(g, machine).Off).To(BeTrue()) })
	before := p.node(p, machine)
	on := time.Now() // not before: it may be seen late that it is on
	p.fail(machine, NoFault)
	p.hostOn(machine)
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(withCondition(corev1.NodeReady, corev1.ConditionTrue)) })
	p.unasked(machine)
	p.askForCycle(machine)
	p.told(machine, "PowerCycleWaiting", "powered on a short time ago")
	p.eventually(func(g Gomega) { g.Expect(p.host(g, machine).Annotations).To(HaveKey(v1alpha1.AnnotationReboot)) })
	p.t.Logf("Machine %s: its host was asked to be off %s after it was on", machine.Name, time.Since(on).Round(time.Second))
	p.Expect(time.Since(on)).To(BeNumerically(">", settings.NodeStartupTimeout.Duration-5*time.Second))
	p.cycled(machine, before)
}

// servicedHost: firmware is to be updated when the host is off, which takes longer than the host may be off. Nothing of it is
// interrupted. And a host whose own controller cannot switch it says why.
func servicedHost(p *Pool) {
	settings := p.powerCycle()
	settings.PowerOffTimeout.Duration, settings.MaxConcurrent = v1alpha1.MinPowerCycleTimeout, new(int32(2))
	p.setPowerCycle(settings)
	machines := p.running(2)
	serviced, broken := machines[0], machines[1]
	p.misbehave(serviced, Servicing)
	p.misbehave(broken, PowerError)
	before := p.node(p, serviced)
	for _, machine := range machines {
		p.askForCycle(machine)
	}
	p.told(serviced, "PowerCycleServicing", "serviced")
	began := time.Now()
	p.told(broken, "PowerCycleFailed", "The controller of the host reports: ")
	p.misbehave(broken, NoHostFault)
	p.released(broken)
	p.cycled(serviced, before)
	p.t.Logf("Machine %s: its power cycle succeeded %s after its host began to be serviced", serviced.Name, time.Since(began).Round(time.Second))
	p.Expect(p.events(serviced, "PowerCyclePoweringOff")).To(HaveLen(1))
	p.hostOn(broken)
}

// disownedHost: somebody removes what says for whom a host is off. It is put back, and the cycle goes on.
func disownedHost(p *Pool) {
	machine := p.running(2)[0]
	before, pod := p.node(p, machine), p.holdUp(machine, p.scenario)
	p.askForCycle(machine)
	p.inCycle(machine, v1alpha1.PowerCycleMakingNodeSafe)
	p.Expect(p.host(p, machine).Owned()).To(BeTrue())
	p.Expect(p.Hosts.Annotate(p.ctx, machine, v1alpha1.AnnotationHostOwner, "")).To(Succeed())
	p.eventually(func(g Gomega) { g.Expect(p.host(g, machine).Owned()).To(BeTrue()) })
	p.Expect(p.Shoot.Patch(p.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	p.cycled(machine, before)
}

// dryPowerCycle: a pool that tries automatic power cycles is told what would be done, and nothing is.
func dryPowerCycle(p *Pool) {
	settings := p.powerCycle()
	settings.Automatic = new(v1alpha1.AutomaticDryRun)
	p.setPowerCycle(settings)
	machine := p.running(2)[0]
	p.fail(machine, KernelHang)
	p.preserved(machine, failedPreserved, "auto")
	p.told(machine, "PowerCycleDryRun", "would be power-cycled")
	p.consistently(shortly, func(g Gomega) {
		host := p.host(g, machine)
		g.Expect(host.On).To(BeTrue())
		g.Expect(host).To(beReleased())
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(v1alpha1.AnnotationPowerCyclePhase))
	})
}

// absentController: nobody is there to release a host, because machine-controller-manager is scaled to 0 while it is off. The
// extension releases it when it should have been on for a minute.
func absentController(p *Pool) {
	settings := p.powerCycle()
	settings.PowerOffTimeout.Duration = v1alpha1.MinPowerCycleTimeout
	p.setPowerCycle(settings)
	machine := p.running(2)[0]
	p.unasked(machine)
	p.holdUp(machine, p.scenario)
	p.askForCycle(machine)
	p.inCycle(machine, v1alpha1.PowerCycleMakingNodeSafe)

	p.scaleMachineControllerManager(0)
	defer p.scaleMachineControllerManager(1)
	began := time.Now()
	p.Eventually(func(g Gomega) { g.Expect(p.host(g, machine)).To(beReleased()) }).
		WithContext(p.ctx).WithTimeout(5 * time.Minute).WithPolling(pollInterval).Should(Succeed())
	p.t.Logf("Machine %s: its host was released %s after machine-controller-manager was gone", machine.Name, time.Since(began).Round(time.Second))
	p.hostOn(machine)
	p.event(machine, "PowerCycleHostReleased", "")
}

// scaleMachineControllerManager scales it, with what keeps machines in the same pod, and waits until it is so.
func (p *Pool) scaleMachineControllerManager(replicas int32) {
	p.t.Helper()
	p.t.Logf("Deployment machine-controller-manager: %d replicas", replicas)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: machineControllerManager}}
	p.Expect(p.Seed.Patch(p.ctx, deployment, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))).To(Succeed())
	p.eventually(func(g Gomega) {
		g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		status := deployment.Status
		g.Expect(status.ObservedGeneration).To(BeNumerically(">=", deployment.Generation))
		g.Expect([]int32{status.Replicas, status.AvailableReplicas}).To(HaveEach(replicas))
	})
}
