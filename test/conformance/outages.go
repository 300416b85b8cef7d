// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// The scenarios in which something does not answer, or not as it should.

// shootAwayForLong: machine-controller-manager stops all work when the shoot's API server is away for longer than its safety
// timeout. When that is back, it takes each machine that it has doubted for healthy, without looking at it. Nothing follows
// from that: the failed machine is as before and has its place, so that another one that fails gets none. One that had
// recovered stays so. One that has never joined stays as well, and goes when it is let go.
func shootAwayForLong(p *Pool) {
	machines := p.running(2)
	recovered, failed := machines[0], machines[1]
	neverJoined := p.oneThatNeverJoins()

	p.fail(recovered, KubeletDead)
	p.preserved(recovered, failedPreserved, "auto")
	p.fail(recovered, NoFault)
	expiryOfRecovered := p.preserved(recovered, runningPreserved, "auto")
	p.fail(failed, KubeletDead)
	expiryOfFailed := p.preserved(failed, failedPreserved, "auto")
	expiryOfNeverJoined := p.preserved(neverJoined, failedPreserved, "auto")
	p.drained(failed)
	p.scale(perZone + 2)
	var further *machinev1alpha1.Machine
	p.eventually(func(g Gomega) {
		for _, m := range p.machines(g) {
			if m.Name != recovered.Name && m.Name != failed.Name && m.Name != neverJoined.Name && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning {
				further = &m
			}
		}
		g.Expect(further).NotTo(BeNil())
	})
	told := p.events(failed, "PreservedMachineRecovered")

	asBefore := func(g Gomega) {
		for machine, expiry := range map[*machinev1alpha1.Machine]time.Time{failed: expiryOfFailed, neverJoined: expiryOfNeverJoined} {
			g.Expect(p.isPreserved(g, machine, failedPreserved, "auto")).To(BeTemporally("==", expiry))
			g.Expect(p.fresh(g, machine).UID).To(Equal(machine.UID))
		}
		fresh := p.fresh(g, recovered)
		g.Expect(fresh.DeletionTimestamp).To(BeNil())
		g.Expect(fresh.Annotations).To(HaveKeyWithValue(prefix+"expiry-time", expiryOfRecovered.UTC().Format(time.RFC3339)))
	}
	back := p.shootAway()
	p.consistently(p.settings.outage, asBefore)
	back()
	p.eventually(func(g Gomega) { g.Expect(p.node(g, failed)).NotTo(BeNil()) })
	p.fail(further, KubeletDead)
	p.consistently(awakening, func(g Gomega) {
		asBefore(g)
		g.Expect(p.node(g, failed)).To(And(tainted(), withCondition("Preserved", corev1.ConditionTrue, HaveField("Reason", "Drained"))))
		// It gets no place while it fails, whatever machine-controller-manager takes the others for.
		fresh := &machinev1alpha1.Machine{}
		if err := p.Seed.Get(p.ctx, client.ObjectKeyFromObject(further), fresh); client.IgnoreNotFound(err) != nil {
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(fresh.Annotations).NotTo(HaveKey(prefix + "cause"))
	})
	p.Expect(p.events(failed, "PreservedMachineRecovered")).To(Equal(told))
	p.gone(further)
	p.preserved(recovered, runningPreserved, "auto")

	p.requestOnMachine(neverJoined, "false")
	p.gone(neverJoined)
	p.preserved(failed, failedPreserved, "auto")
}

// healthyBeforeDeadline: a machine that is held in the margin before its deadline, and is healthy before the deadline itself,
// is let go as if nothing had been. Nobody is told anything, and its node is never tainted.
func healthyBeforeDeadline(p *Pool) {
	machine := p.running(2)[0]
	p.setHealthTimeout(machine, 100*time.Second)
	told := p.transitionsOf(machine)
	nodes := p.watchNode(machine)

	p.fail(machine, NodeCondition)
	var deadline time.Time
	p.Eventually(func(g Gomega) {
		fresh := p.fresh(g, machine)
		if since := fresh.Status.CurrentStatus.LastUpdateTime; deadline.IsZero() && fresh.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown {
			deadline = since.Add(p.settings.Health)
		}
		g.Expect(fresh.Annotations).To(HaveKey(prefix + "cause"))
	}).WithContext(p.ctx).WithTimeout(p.settings.patience()).WithPolling(pollInterval / 5).Should(Succeed())
	p.fail(machine, NoFault)
	p.Expect(time.Now()).To(BeTemporally("<", deadline), "the machine was held too late for this scenario")
	p.t.Logf("Machine %s: held, and healthy %s before its deadline", machine.Name, time.Until(deadline).Round(time.Millisecond))

	letGo := func(g Gomega) {
		fresh := p.fresh(g, machine)
		g.Expect(fresh.DeletionTimestamp).To(BeNil())
		g.Expect(fresh.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
		g.Expect(trace(builder.Noted(fresh))).To(BeEmpty())
		g.Expect(fresh.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
		g.Expect(trace(p.node(g, machine).Annotations)).To(BeEmpty())
	}
	p.Eventually(letGo).WithContext(p.ctx).WithTimeout(p.settings.margin() + 20*time.Second).WithPolling(pollInterval).Should(Succeed())
	p.consistently(p.settings.endurance(), letGo)
	p.Expect(p.transitionsOf(machine)).To(Equal(told))
	p.Expect(nodes()).To(And(Not(BeEmpty()), HaveEach(Not(tainted()))))
}

// crashLoop: a machine with a VM fails without ever having had a node, in a phase for which no health timeout runs. It is
// held before machine-controller-manager replaces it, or it is replaced and nobody says that it is preserved.
func crashLoop(p *Pool) {
	machine := p.oneThatNeverJoins()
	p.eventually(func(g Gomega) {
		machine = p.fresh(g, machine)
		g.Expect(machine.Spec.ProviderID).NotTo(BeEmpty())
		g.Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachinePending))
	})
	undo, err := p.CrashLoop(p.ctx, machine)
	p.Expect(err).NotTo(HaveOccurred())
	p.toHeal(machine, undo)
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineCrashLoopBackOff))
	})

	held := false
	p.eventually(func(g Gomega) {
		fresh := &machinev1alpha1.Machine{}
		if err := p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), fresh); client.IgnoreNotFound(err) != nil {
			g.Expect(err).NotTo(HaveOccurred())
		}
		held = fresh.UID == machine.UID && fresh.DeletionTimestamp == nil
		g.Expect(held && fresh.Annotations[prefix+"phase"] != failedPreserved).To(BeFalse(), "neither held nor replaced")
	})
	if held {
		expiry := p.isPreserved(p, machine, failedPreserved, "auto")
		// Machine-controller-manager tries again after three minutes, and finds that the creation timeout has passed.
		p.consistently(4*time.Minute, func(g Gomega) {
			g.Expect(p.isPreserved(g, machine, failedPreserved, "auto")).To(BeTemporally("==", expiry))
		})
		p.requestOnMachine(machine, "false")
	}
	p.fail(machine, NoFault) // nor could the provider delete it
	p.gone(machine)
	if !held {
		p.Expect(p.events(machine, "MachinePreserved")).To(BeEmpty())
	}
}

// setHealthTimeout makes the health timeout of the machine at least that long, so that its margin can be hit. It is that of
// all machines of the pool until the scenario ends.
func (p *Pool) setHealthTimeout(machine *machinev1alpha1.Machine, timeout time.Duration) {
	p.t.Helper()
	if p.settings.Health >= timeout {
		return
	}
	before := p.settings.Health
	p.writeHealthTimeout(timeout)
	p.t.Cleanup(func() { p.writeHealthTimeout(before) })
	p.settings.Health = timeout
	p.eventually(func(g Gomega) { g.Expect(p.defaults.For(p.fresh(g, machine)).Health).To(Equal(timeout)) })
}

func (p *Pool) writeHealthTimeout(timeout time.Duration) {
	p.t.Logf("MachineDeployment %s: health timeout %s", p.deploymentName, timeout)
	deployment := p.deployment(p)
	p.Expect(p.Seed.Patch(p.ctx, deployment, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"healthTimeout":"`+timeout.String()+`"}}}}`)))).To(Succeed())
}

// watchNode returns a function that ends the watch of the machine's node and returns all states that it has had meanwhile.
func (p *Pool) watchNode(machine *machinev1alpha1.Machine) (states func() []*corev1.Node) {
	p.t.Helper()
	watch, err := p.Shoot.Watch(p.ctx, &corev1.NodeList{}, client.MatchingFields{"metadata.name": machine.Labels[machinev1alpha1.NodeLabelKey]})
	p.Expect(err).NotTo(HaveOccurred())
	seen := make(chan []*corev1.Node, 1)
	go func() {
		var nodes []*corev1.Node
		for event := range watch.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok {
				nodes = append(nodes, node)
			}
		}
		seen <- nodes
	}()
	return func() []*corev1.Node {
		watch.Stop()
		return <-seen
	}
}

// transitionsOf returns the texts of the Events that tell of the machine's preservation, by their reasons.
func (p *Pool) transitionsOf(machine *machinev1alpha1.Machine) map[string][]string {
	p.t.Helper()
	told := map[string][]string{}
	for _, reason := range []string{"MachinePreserved", "PreservedMachineFailed", "PreservedMachineRecovered", "MachinePreservationEnded"} {
		told[reason] = p.events(machine, reason)
	}
	return told
}

// events returns the texts of the Events on the machine with that reason, each as often as it was told.
func (p *Pool) events(machine *machinev1alpha1.Machine, reason string) (texts []string) {
	p.t.Helper()
	events := &eventsv1.EventList{}
	p.Expect(p.Seed.List(p.ctx, events, client.InNamespace(p.Namespace))).To(Succeed())
	for _, event := range events.Items {
		if event.Regarding.Name != machine.Name || event.Reason != reason {
			continue
		}
		count := int32(1)
		if event.Series != nil {
			count = event.Series.Count
		}
		for range count {
			texts = append(texts, event.Note)
		}
	}
	return texts
}
