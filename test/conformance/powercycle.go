// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	nodeutil "k8s.io/component-helpers/node/util"
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

// askForCycle asks as a health checker does.
func (p *Pool) askForCycle(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.askUntilTaken(machine, func() { p.annotateMachine(machine, v1alpha1.AnnotationNeedsRemediation, "") })
}

// askUntilTaken asks for a power cycle. It asks again if the preservation controller is not certain that a healthy machine was healthy: it
// may have been started only just now, also because a busy API server did not renew its lease, or not have known the machine's node for a
// moment.
func (p *Pool) askUntilTaken(machine *machinev1alpha1.Machine, ask func()) {
	p.t.Helper()
	for range 5 { // only a start, an outage or a round that is late makes it uncertain, and all pass
		healthy := false
		p.eventually(func(g Gomega) {
			_, ready := nodeutil.GetNodeCondition(&p.node(g, machine).Status, corev1.NodeReady)
			g.Expect(ready).NotTo(BeNil())
			healthy = ready.Status == corev1.ConditionTrue
			g.Expect(!healthy || time.Since(ready.LastTransitionTime.Time) > quietTime).To(BeTrue())
		})
		before, phase, isDropped := len(p.events(machine, "PowerCycleRecovered")), p.fresh(p, machine).Annotations[v1alpha1.AnnotationPowerCyclePhase], false
		ask()
		if !healthy {
			return
		}
		var gone time.Time // refused for another reason
		p.eventually(func(g Gomega) {
			fresh := p.fresh(g, machine)
			now := fresh.Annotations[v1alpha1.AnnotationPowerCyclePhase]
			if isAsked := metav1.HasAnnotation(fresh.ObjectMeta, v1alpha1.AnnotationNeedsRemediation) || metav1.HasAnnotation(p.node(g, machine).ObjectMeta, v1alpha1.AnnotationPowerCycle); isAsked {
				gone = time.Time{}
			} else if gone.IsZero() {
				gone = time.Now()
			}
			isDropped = len(p.events(machine, "PowerCycleRecovered")) > before
			g.Expect(isDropped || now != "" && now != phase || !gone.IsZero() && time.Since(gone) > shortly).To(BeTrue(), "nobody answers the request for a power cycle")
		})
		if !isDropped {
			return
		}
		p.t.Logf("Machine %s: asking again in %s", machine.Name, quietTime)
		p.unasked(machine)
	}
	p.t.Fatalf("Machine %s: each request for a power cycle was dropped", machine.Name)
}

// unasked gives a preservation controller that may just have been started the time to see that nobody asks.
func (p *Pool) unasked(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.consistently(quietTime, func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(v1alpha1.AnnotationNeedsRemediation))
	})
}

// misbehave makes the host of a machine misbehave.
func (p *Pool) misbehave(machine *machinev1alpha1.Machine, fault HostFault) {
	p.t.Helper()
	p.t.Logf("Host of machine %s: fault %q", machine.Name, fault)
	p.eventually(func(g Gomega) { // a machine may be there before its host
		g.Expect(p.Hosts.Inject(p.ctx, machine, fault)).To(Succeed())
	})
}

// host reads the host of a machine, which is still there.
func (p *Pool) host(g Gomega, machine *machinev1alpha1.Machine) *Host {
	host, err := p.Hosts.Of(p.ctx, machine)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(host).NotTo(BeNil())
	return host
}

// inCycle waits until a phase of a cycle has begun that does not end by itself at once.
func (p *Pool) inCycle(machine *machinev1alpha1.Machine, phase string) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPowerCyclePhase, phase))
	})
	p.t.Logf("Machine %s: %s", machine.Name, phase)
}

// released waits until nothing of ours is on the host, if it is still there.
func (p *Pool) released(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		host, err := p.Hosts.Of(p.ctx, machine)
		g.Expect(err).NotTo(HaveOccurred())
		if host != nil {
			g.Expect(host).To(beReleased())
		}
	})
}

// beReleased matches a Host that nothing of ours keeps off.
func beReleased() gomegatypes.GomegaMatcher {
	return And(HaveField("Annotations", Not(HaveKey(v1alpha1.AnnotationReboot))), HaveField("Owned()", BeFalse()))
}

// hostOn waits until the host is on, if it is still there.
func (p *Pool) hostOn(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		host, err := p.Hosts.Of(p.ctx, machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(host == nil || host.On).To(BeTrue())
	})
}

// cycled waits until the power cycle of a machine has succeeded: it is the same machine, its host is on, its node is back with
// another boot id and all its labels, and nothing is left that was there for the cycle.
func (p *Pool) cycled(machine *machinev1alpha1.Machine, before *corev1.Node) {
	p.t.Helper()
	started := time.Now()
	p.Eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleSucceeded))
	}).WithContext(p.ctx).WithTimeout(3*longCycle + p.settings.Health).WithPolling(pollInterval).Should(Succeed())
	p.t.Logf("Machine %s: its power cycle succeeded, after %s", machine.Name, time.Since(started).Round(time.Second))
	p.eventually(func(g Gomega) {
		fresh := p.fresh(g, machine)
		g.Expect(fresh.UID).To(Equal(machine.UID))
		g.Expect(fresh.DeletionTimestamp).To(BeNil())
		g.Expect(fresh.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
		g.Expect(fresh.Finalizers).NotTo(ContainElement(v1alpha1.FinalizerHost))
		g.Expect(fresh.Annotations).NotTo(HaveKey(v1alpha1.AnnotationRemediation))
		g.Expect(fresh.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPowerCycleAttempt, "1"))
		node := p.node(g, machine)
		g.Expect(node).To(And(withCondition(corev1.NodeReady, corev1.ConditionTrue), Not(outOfService())))
		g.Expect(node.UID).To(Equal(before.UID))
		for key, value := range before.Labels { // machine-controller-manager may have brought more meanwhile
			g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
		}
		g.Expect(node.Status.NodeInfo.BootID).NotTo(Equal(before.Status.NodeInfo.BootID))
	})
	p.released(machine)
	p.hostOn(machine)
}

// forgotten says that nothing is left of a power cycle.
func (p *Pool) forgotten(g Gomega, machine *machinev1alpha1.Machine) {
	fresh, node := p.fresh(g, machine), p.node(g, machine)
	g.Expect(fresh.Finalizers).NotTo(ContainElement(v1alpha1.FinalizerHost))
	g.Expect(fresh.Annotations).NotTo(Or(
		HaveKey(v1alpha1.AnnotationPowerCyclePhase), HaveKey(v1alpha1.AnnotationPowerCycleAttempt), HaveKey(v1alpha1.AnnotationRemediation),
		HaveKey(v1alpha1.AnnotationNeedsRemediation)))
	g.Expect(node).NotTo(outOfService())
	g.Expect(node.Status.Conditions).NotTo(ContainElement(HaveField("Type", corev1.NodeConditionType(v1alpha1.ConditionPowerCycle))))
}

// failedAt returns when it was told that the cycle of a machine failed.
func (p *Pool) failedAt(machine *machinev1alpha1.Machine) time.Time {
	p.t.Helper()
	events := &eventsv1.EventList{}
	p.Expect(p.Seed.List(p.ctx, events, client.InNamespace(p.Namespace))).To(Succeed())
	i := slices.IndexFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == machine.Name && e.Reason == "PowerCycleFailed" })
	p.Expect(i).To(BeNumerically(">=", 0))
	return events.Items[i].EventTime.Time
}

// deletedAt waits until a machine is being deleted, and returns since when.
func (p *Pool) deletedAt(machine *machinev1alpha1.Machine) (at time.Time) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		fresh := &machinev1alpha1.Machine{}
		err := p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), fresh)
		if apierrors.IsNotFound(err) {
			at = time.Now()
			return
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(fresh.DeletionTimestamp).NotTo(BeNil())
		at = fresh.DeletionTimestamp.Time
	})
	return at
}

// holdUp starts a pod on the machine's node that is terminating for ever, so that the node is not safe before it is rid of its
// finalizer.
func (p *Pool) holdUp(machine *machinev1alpha1.Machine, name string) *corev1.Pod {
	p.t.Helper()
	return p.pod(machine, metav1.NamespaceDefault, name, func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} })
}

// stateful starts a StatefulSet on the machine's node, and returns its pod: there is no other one before it is gone.
func (p *Pool) stateful(machine *machinev1alpha1.Machine) *corev1.Pod {
	p.t.Helper()
	labels := map[string]string{"conformance": p.scenario}
	p.create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.scenario, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.podSpec(machine)},
		},
	})
	pod := &corev1.Pod{}
	p.eventually(func(g Gomega) {
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: p.scenario + "-0"}, pod)).To(Succeed())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
	})
	return pod
}

// sighting is what was seen of a power cycle, in this order.
type sighting struct {
	at                  time.Time
	givenUp, fenced     bool
	hostOff             bool
	requested, hasOwner bool
	phase               string
	isKept              bool
	// machines are all of the MachineDeployment.
	machines []types.UID
}

// watchCycle looks at a machine, its node, a pod on it and its host, until the returned function is called, which returns what
// has been seen.
func (p *Pool) watchCycle(machine *machinev1alpha1.Machine, pod *corev1.Pod) (seen func() []sighting) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	deployment, sightings := p.deployment(p), make(chan []sighting, 1)
	go func() {
		var all []sighting
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if s, err := p.look(ctx, deployment, machine, pod); err == nil {
				all = append(all, s)
			}
		}, glance)
		sightings <- all
	}()
	seen = sync.OnceValue(func() []sighting {
		cancel()
		return <-sightings
	})
	p.t.Cleanup(func() { seen() })
	return seen
}

// look reads what must come later before what must come earlier.
func (p *Pool) look(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, machine *machinev1alpha1.Machine, pod *corev1.Pod) (sighting, error) {
	s := sighting{at: time.Now()}
	if pod != nil {
		fresh := &corev1.Pod{}
		if err := p.Shoot.Get(ctx, client.ObjectKeyFromObject(pod), fresh); client.IgnoreNotFound(err) != nil {
			return s, err
		}
		s.givenUp = fresh.UID != pod.UID || fresh.DeletionTimestamp != nil
	}
	node := &corev1.Node{}
	if err := p.Shoot.Get(ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node); err != nil {
		return s, err
	}
	s.fenced = slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	host, err := p.Hosts.Of(ctx, machine)
	if err != nil || host == nil {
		return s, err
	}
	s.hostOff = host.Off
	_, s.requested = host.Annotations[v1alpha1.AnnotationReboot]
	s.hasOwner = host.Owned()
	machines, err := p.machinesOf(ctx, deployment)
	if err != nil {
		return s, err
	}
	for _, m := range machines {
		s.machines = append(s.machines, m.UID)
		if m.UID == machine.UID {
			s.phase, s.isKept = m.Annotations[v1alpha1.AnnotationPowerCyclePhase], metav1.HasAnnotation(m.ObjectMeta, v1alpha1.AnnotationRemediation)
		}
	}
	slices.Sort(s.machines)
	return s, nil
}

// oneCycle checks that in all that was seen there was one power cycle, in the order that makes it safe, and no other machine.
func (p *Pool) oneCycle(seen []sighting) {
	p.t.Helper()
	p.Expect(seen).NotTo(BeEmpty())
	var requests, offs int
	var off, requested bool
	for _, s := range seen {
		if s.requested && !requested {
			requests++
			p.t.Logf("%s: asked to be off", s.at.Format(time.TimeOnly))
		}
		if s.hostOff && !off {
			offs++
			p.t.Logf("%s: reported off", s.at.Format(time.TimeOnly))
		}
		requested, off = s.requested, s.hostOff
		p.Expect(s.machines).To(Equal(seen[0].machines), "the machines are the same")
		p.Expect(s.requested).To(Equal(s.hasOwner), "a request has an owner")
		if offs == 0 {
			p.Expect(s.fenced).To(BeFalse(), "the node is not made safe before its host is reported off")
			p.Expect(s.givenUp).To(BeFalse(), "the pod is not given up before the host is reported off")
		}
		switch s.phase {
		case v1alpha1.PowerCyclePoweringOff, v1alpha1.PowerCycleMakingNodeSafe, v1alpha1.PowerCyclePoweringOn, v1alpha1.PowerCycleStarting:
			p.Expect(s.isKept).To(BeTrue(), "the machine is kept from the request on")
		}
	}
	p.Expect([]int{requests, offs}).To(HaveEach(1), "requests, and how often it was off")
	p.Expect(slices.ContainsFunc(seen, func(s sighting) bool { return s.fenced })).To(BeTrue())
}

// outOfService matches a node that was made safe.
func outOfService() gomegatypes.GomegaMatcher {
	return HaveField("Spec.Taints", ContainElement(And(HaveField("Key", corev1.TaintNodeOutOfService), HaveField("Effect", corev1.TaintEffectNoExecute))))
}
