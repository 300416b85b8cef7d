// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

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
