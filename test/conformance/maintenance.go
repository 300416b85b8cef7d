// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/garbagecollector"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	// maintenance is the cause of a machine that is kept because somebody works on it.
	maintenance = "maintenance"
	// longestShortHold is the longest maxHoldTime whose end is waited for.
	longestShortHold = 10 * time.Minute
	gpu              = "nvidia.com/gpu-a100"
)

func nodeMaintenanceOf(e *Environment) (*preservation.NodeMaintenance, error) {
	extension, err := controlplane.FindExtension(context.Background(), e.Seed, e.Namespace)
	if err != nil || extension == nil {
		return nil, err
	}
	return providerconfig.ReadNodeMaintenance(extension)
}

// needsMaintenance returns why node maintenances cannot be tried, in no particular order: the Shoot does not have them, or
// limits them, so that scenarios would wait for each other.
func needsMaintenance(e *Environment) string {
	if settings, err := nodeMaintenanceOf(e); err != nil || settings == nil {
		return "the Shoot has no node maintenances"
	} else if settings.MaxParallelOperations.String() != "0" || settings.MaxUnavailable != nil {
		return "the Shoot limits node maintenances, which are to be without limits"
	}
	return ""
}

func needsShortMaintenance(e *Environment) string {
	if reason := needsMaintenance(e); reason != "" {
		return reason
	}
	if settings, err := nodeMaintenanceOf(e); err != nil || settings.MaxHoldTime.Duration > longestShortHold {
		return fmt.Sprintf("the maxHoldTime of node maintenances is longer than %s", longestShortHold)
	}
	return ""
}

func needsShortGarbageCollection(e *Environment) string {
	if reason := needsMaintenance(e); reason != "" {
		return reason
	}
	if settings, err := nodeMaintenanceOf(e); err != nil || settings.MaxNodeMaintenanceTime.Duration > longestShortHold {
		return fmt.Sprintf("the maxNodeMaintenanceTime is longer than %s", longestShortHold)
	}
	return ""
}

// maintained: a node is cordoned, drained and handed over, and given back. In between its kubelet is away for longer than
// the health timeout, which does not cost the machine.
func maintained(p *Pool) {
	machine := p.running(2)[0]
	agent, app := p.workload(machine)
	nm := p.maintain(machine, func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.WaitForPodCompletion = &maintenancev1alpha1.WaitForPodCompletionSpec{PodSelector: "app=important"}
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{Force: true, DeleteEmptyDir: true, TimeoutSeconds: new(int32(0))}
	})
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.Expect(p.exists(app)).To(BeFalse())
	p.Expect(p.exists(agent)).To(BeTrue())
	p.Expect(nm.Finalizers).To(ContainElement(maintenancev1alpha1.Finalizer))
	p.Expect(nm.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Node"), HaveField("UID", p.node(p, machine).UID))))
	p.Expect(nm.Status.Drain).To(HaveValue(And(HaveField("DrainProgress", BeEquivalentTo(100)), HaveField("WaitForEviction", BeEmpty()))))
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node).To(And(cordonedFor(nm), withCondition("MaintenanceInProgress", corev1.ConditionTrue, HaveField("Message", ContainSubstring(nm.Name)))))
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
		g.Expect(p.phaseOf(g, nm)).To(Equal(maintenancev1alpha1.PhaseReady))
		g.Expect(nm.Annotations).To(HaveKey(maintenancev1alpha1.AnnotationReadyTime))
	})
	p.Expect(p.fresh(p, machine).Annotations).NotTo(HaveKey(preserve), "it is held when its deadline comes near, and not before")

	p.fail(machine, KubeletDead)
	p.eventually(func(g Gomega) { p.isPreserved(g, machine, failedPreserved, maintenance) })
	p.consistently(p.settings.endurance(), func(g Gomega) {
		p.isPreserved(g, machine, failedPreserved, maintenance)
		node := p.node(g, machine)
		g.Expect(node).To(cordonedFor(nm))
		g.Expect(node).NotTo(tainted())
	})
	p.fail(machine, NoFault)
	p.eventually(func(g Gomega) {
		fresh := p.fresh(g, machine)
		g.Expect(fresh.UID).To(Equal(machine.UID))
		g.Expect(fresh.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
		g.Expect(p.node(g, machine)).To(And(withCondition(corev1.NodeReady, corev1.ConditionTrue), cordonedFor(nm)))
	})

	p.giveBack(nm)
	p.untouched(machine)
	p.ordinary(machine)
}

// lostInMaintenance: a machine that does not come back from its maintenance is replaced when that is over, after the time
// that any machine has.
func lostInMaintenance(p *Pool) {
	machine := p.running(2)[0]
	nm := p.maintain(machine, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.fail(machine, KubeletDead)
	p.eventually(func(g Gomega) { p.isPreserved(g, machine, failedPreserved, maintenance) })
	ended := time.Now() // not before: it may be seen late that the object is gone
	p.giveBack(nm)
	p.consistently(time.Until(ended.Add(p.settings.Health-shortly)), func(g Gomega) { g.Expect(p.fresh(g, machine).DeletionTimestamp).To(BeNil()) })
	p.gone(machine)
	p.t.Logf("Machine %s: gone %s after its maintenance, with a health timeout of %s", machine.Name, time.Since(ended).Round(time.Second), p.settings.Health)
	p.running(2)
}

// endlessMaintenance: no object keeps a machine for longer than the longest time, also not one that replaces another.
func endlessMaintenance(p *Pool) {
	machine := p.running(2)[0]
	settings, err := nodeMaintenanceOf(p.Environment)
	p.Expect(err).NotTo(HaveOccurred())
	endless := func(name string) *maintenancev1alpha1.NodeMaintenance {
		nm := p.newMaintenance(machine, name, func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
			spec.AdditionalRequestors = []string{"gone.example.org"}
		})
		nm.Annotations = map[string]string{maintenancev1alpha1.AnnotationIgnoreGarbageCollector: "true"}
		p.create(nm)
		return nm
	}
	began := time.Now()
	first := endless(p.scenario)
	p.phase(first, maintenancev1alpha1.PhaseReady)
	ready := time.Now()
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, maintenance)
	// It began at some time in between. Clocks may differ a little.
	p.Expect(expiry).To(And(BeTemporally(">=", began.Add(settings.MaxHoldTime.Duration-shortly)), BeTemporally("<=", ready.Add(settings.MaxHoldTime.Duration+shortly))))
	p.patchMaintenance(first, `{"spec":{"additionalRequestors":null}}`)
	p.giveBack(first)
	endless(p.scenario + "-again")
	p.gone(machine)
	p.Expect(time.Now()).To(BeTemporally(">=", expiry))
	p.t.Logf("Machine %s: gone %s after its maintenance began, with a maxHoldTime of %s", machine.Name, time.Since(began).Round(time.Second), settings.MaxHoldTime.Duration)
	p.running(2)
}

// forgottenMaintenance: one that stays with its requestor for too long is deleted, to the second, and says so. One that asks
// not to be stays.
func forgottenMaintenance(p *Pool) {
	machines := p.running(2)
	settings, err := nodeMaintenanceOf(p.Environment)
	p.Expect(err).NotTo(HaveOccurred())
	forgotten, ignored := p.newMaintenance(machines[0], p.scenario+"-forgotten", nil), p.newMaintenance(machines[1], p.scenario+"-ignored", nil)
	ignored.Annotations = map[string]string{maintenancev1alpha1.AnnotationIgnoreGarbageCollector: "true"}
	p.create(ignored)
	p.phase(ignored, maintenancev1alpha1.PhaseReady)
	p.create(forgotten)
	p.phase(forgotten, maintenancev1alpha1.PhaseReady)
	p.eventually(func(g Gomega) {
		g.Expect(p.phaseOf(g, forgotten)).To(Equal(maintenancev1alpha1.PhaseReady))
		g.Expect(forgotten.Annotations).To(HaveKey(maintenancev1alpha1.AnnotationReadyTime))
	})
	ready, err := time.Parse(time.RFC3339, forgotten.Annotations[maintenancev1alpha1.AnnotationReadyTime])
	p.Expect(err).NotTo(HaveOccurred())
	due := ready.Add(settings.MaxNodeMaintenanceTime.Duration)

	p.consistently(time.Until(due)-time.Second, func(g Gomega) {
		g.Expect(p.phaseOf(g, forgotten)).To(Equal(maintenancev1alpha1.PhaseReady))
		g.Expect(forgotten.DeletionTimestamp).To(BeNil())
	})
	p.ended(forgotten)
	p.Expect(time.Now()).To(BeTemporally("<", due.Add(shortly)))
	p.waitForEvent(p.Shoot, forgotten.Namespace, forgotten.Name, garbagecollector.EventGarbageCollected, "because it was in phase Ready since")
	p.untouched(machines[0])
	p.consistently(shortly, func(g Gomega) { g.Expect(p.phaseOf(g, ignored)).To(Equal(maintenancev1alpha1.PhaseReady)) })
	p.giveBack(ignored)
	p.untouched(machines[1])
}

// maintenanceOfFailed: the node of a machine that failed and is kept may be worked on. Meanwhile it has no taint of the
// preservation, which goes on when the maintenance is over, and ends when it would have.
func maintenanceOfFailed(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })

	nm := p.maintain(machine, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.eventually(func(g Gomega) {
		p.isPreserved(g, machine, failedPreserved, "auto")
		g.Expect(builder.Noted(p.fresh(g, machine))).To(HaveKeyWithValue(builder.NoteClaims, ContainSubstring(maintenance)))
		g.Expect(p.node(g, machine)).To(And(cordonedFor(nm), Not(tainted())))
	})
	p.giveBack(nm)
	p.eventually(func(g Gomega) {
		p.isPreserved(g, machine, failedPreserved, "auto")
		g.Expect(p.node(g, machine)).To(tainted())
	})
	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
}

// terminatedInMaintenance: nothing waits for a maintenance when its machine is terminated, and none begins on a machine that
// is to be replaced.
func terminatedInMaintenance(p *Pool) {
	machine := p.running(2)[0]
	nm := p.maintain(machine, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.Expect(p.Seed.Delete(p.ctx, machine.DeepCopy())).To(Succeed())
	p.gone(machine)
	p.ended(nm)

	machines := p.running(2)
	p.rollStalled()
	late := p.newMaintenance(machines[0], p.scenario+"-late", nil)
	p.create(late)
	p.phase(late, maintenancev1alpha1.PhasePending, "replaced")
	p.consistently(shortly, func(g Gomega) { g.Expect(p.phaseOf(g, late)).To(Equal(maintenancev1alpha1.PhasePending)) })
	p.giveBack(late)
}

// rolledInMaintenance: a rolling update takes the machine under maintenance last, although it is the oldest, and does not wait for the
// end of the maintenance.
func rolledInMaintenance(p *Pool) {
	machines := p.running(2)
	p.Expect(p.Seed.Delete(p.ctx, machines[1].DeepCopy())).To(Succeed())
	p.gone(machines[1])
	machines = p.running(2)
	maintained, other := machines[0], machines[1]
	p.Expect(maintained.CreationTimestamp.Before(&other.CreationTimestamp)).To(BeTrue(), "machine-controller-manager takes the older one first")

	nm := p.maintain(maintained, nil)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.roll()
	first := p.deletedAt(other)
	p.Expect(p.fresh(p, maintained).DeletionTimestamp).To(BeNil())
	p.Expect(p.phaseOf(p, nm)).To(Equal(maintenancev1alpha1.PhaseReady))
	last := p.deletedAt(maintained)
	p.t.Logf("The machine under maintenance was the last of two, %s after the other", last.Sub(first).Round(time.Second))
	p.ended(nm)
	p.running(2)
}

// maintenanceDrain: only what is asked for is evicted, what is in the way is named, and budgets are respected for as long as
// they last.
func maintenanceDrain(p *Pool) {
	machine := p.running(2)[0]
	agent, app := p.workload(machine)
	pod := func(name string, edit func(*corev1.Pod)) *corev1.Pod {
		return p.pod(machine, metav1.NamespaceDefault, p.scenario+"-"+name, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"conformance": p.scenario + "-" + name}
			// The scheduler is not asked: no node has such a resource.
			pod.Spec.NodeName, pod.Spec.NodeSelector = machine.Labels[machinev1alpha1.NodeLabelKey], nil
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
			pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Limits
			if edit != nil {
				edit(pod)
			}
		})
	}
	bare := pod("bare", nil)
	scratch := pod("scratch", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: bare.Name, Namespace: bare.Namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: bare.Labels}},
	}
	p.create(budget)

	nm := p.maintain(machine, func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{PodEvictionFilters: []maintenancev1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "nvidia.com/gpu-*"}}}
	})
	p.phase(nm, maintenancev1alpha1.PhaseDraining, "default/"+bare.Name)
	p.phase(nm, maintenancev1alpha1.PhaseDraining, "default/"+scratch.Name)
	p.patchMaintenance(nm, `{"spec":{"drainSpec":{"force":true}}}`)
	p.phase(nm, maintenancev1alpha1.PhaseDraining, "default/"+scratch.Name)
	p.patchMaintenance(nm, `{"spec":{"drainSpec":{"deleteEmptyDir":true}}}`)
	p.phase(nm, maintenancev1alpha1.PhaseDraining, budget.Name)
	p.eventually(func(g Gomega) { g.Expect(p.exists(scratch)).To(BeFalse()) })
	p.Expect(p.exists(bare)).To(BeTrue())
	p.Expect(p.Shoot.Delete(p.ctx, budget)).To(Succeed())
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.Expect(p.exists(bare)).To(BeFalse())
	p.Expect(p.exists(app)).To(BeTrue(), "no filter selects it")
	p.Expect(p.exists(agent)).To(BeTrue())
	p.giveBack(nm)
	p.untouched(machine)
}

// maintenanceWait: pods may end by themselves before anything is done with them, for as long as the maintenance says.
func maintenanceWait(p *Pool) {
	machines := p.running(2)
	labels := map[string]string{"conformance": p.scenario}
	var pods []*corev1.Pod
	var nms []*maintenancev1alpha1.NodeMaintenance
	for i, machine := range machines {
		pods = append(pods, p.pod(machine, metav1.NamespaceDefault, fmt.Sprintf("%s-%d", p.scenario, i), func(pod *corev1.Pod) { pod.Labels = labels }))
		nm := p.newMaintenance(machine, fmt.Sprintf("%s-%d", p.scenario, i), func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
			spec.WaitForPodCompletion = &maintenancev1alpha1.WaitForPodCompletionSpec{PodSelector: "conformance=" + p.scenario}
			if i == 1 {
				spec.WaitForPodCompletion.TimeoutSeconds = 10
			}
		})
		p.create(nm)
		nms = append(nms, nm)
	}
	p.phase(nms[0], maintenancev1alpha1.PhaseWaitForPodCompletion)
	p.phase(nms[1], maintenancev1alpha1.PhaseReady)
	p.Expect(p.exists(pods[1])).To(BeTrue(), "there is no drainSpec")
	p.Expect(nms[1].Status.WaitForCompletion).To(BeEmpty())
	p.phase(nms[0], maintenancev1alpha1.PhaseWaitForPodCompletion)
	p.Expect(nms[0].Status.WaitForCompletion).To(ConsistOf("default/" + pods[0].Name))
	p.Expect(p.Shoot.Delete(p.ctx, pods[0].DeepCopy())).To(Succeed())
	p.phase(nms[0], maintenancev1alpha1.PhaseReady)
	for i, nm := range nms {
		p.giveBack(nm)
		p.untouched(machines[i])
	}
}

// requestors: others share a maintenance and keep it from ending, and one that fails is not cleaned up after. The client
// knows the text of the API alone.
func requestors(p *Pool) {
	machine := p.running(2)[0]
	object := &unstructured.Unstructured{}
	p.Expect(json.Unmarshal(fmt.Appendf(nil, `{
		"apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance",
		"metadata": {"name": %q, "namespace": "default"},
		"spec": {"requestorID": "some.one.acme.com", "nodeName": %q, "cordon": false}
	}`, p.scenario, machine.Labels[machinev1alpha1.NodeLabelKey]), object)).To(Succeed())
	p.create(object)
	nm := &maintenancev1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), Namespace: object.GetNamespace()}}
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.Expect(p.node(p, machine).Spec.Unschedulable).To(BeFalse(), "cordon: false")

	p.eventually(func(g Gomega) { // as any client that patches with a lock does, it reads again after a conflict
		g.Expect(p.phaseOf(g, nm)).To(Equal(maintenancev1alpha1.PhaseReady))
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"additionalRequestors":["other.example.org"]}}`, nm.ResourceVersion)
		g.Expect(p.Shoot.Patch(p.ctx, nm.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	})
	p.setRequestorFailed(nm, metav1.ConditionTrue)
	p.phase(nm, maintenancev1alpha1.PhaseRequestorFailed)
	p.Expect(p.Shoot.Delete(p.ctx, nm.DeepCopy())).To(Succeed())
	p.patchMaintenance(nm, `{"spec":{"additionalRequestors":null}}`)
	p.consistently(shortly, func(g Gomega) { g.Expect(p.phaseOf(g, nm)).To(Equal(maintenancev1alpha1.PhaseRequestorFailed)) })
	p.patchMaintenance(nm, `{"spec":{"additionalRequestors":["other.example.org"]}}`)
	p.setRequestorFailed(nm, metav1.ConditionFalse)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.consistently(shortly, func(g Gomega) { g.Expect(p.phaseOf(g, nm)).To(Equal(maintenancev1alpha1.PhaseReady)) })
	p.patchMaintenance(nm, `{"spec":{"additionalRequestors":null}}`)
	p.ended(nm)
	p.untouched(machine)
}

// cordonedInMaintenance: what a person has cordoned stays cordoned, and what somebody uncordons in between is put back.
func cordonedInMaintenance(p *Pool) {
	machines := p.running(2)
	cordon := func(machine *machinev1alpha1.Machine, unschedulable bool) {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
		p.Expect(p.Shoot.Patch(p.ctx, p.node(p, machine), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	byPerson, other := machines[0], machines[1]
	cordon(byPerson, true)
	first, second := p.newMaintenance(byPerson, p.scenario+"-person", nil), p.newMaintenance(other, p.scenario+"-flap", nil)
	p.create(first)
	p.create(second)
	p.phase(first, maintenancev1alpha1.PhaseReady)
	p.phase(second, maintenancev1alpha1.PhaseReady)
	p.Expect(first.Annotations).To(HaveKeyWithValue(maintenancev1alpha1.AnnotationInitiallyUnschedulable, "true"))
	p.Expect(second.Annotations).To(HaveKeyWithValue(maintenancev1alpha1.AnnotationInitiallyUnschedulable, "false"))
	cordon(other, false)
	p.eventually(func(g Gomega) { g.Expect(p.node(g, other)).To(cordonedFor(second)) })
	p.giveBack(first)
	p.giveBack(second)
	p.untouched(other)
	p.consistently(shortly, func(g Gomega) { g.Expect(p.node(g, byPerson).Spec.Unschedulable).To(BeTrue()) })
	cordon(byPerson, false)
	p.untouched(byPerson)
}

// deletedInMaintenance: an object that is deleted gives its node back in each phase, and one whose node is deleted goes with
// it.
func deletedInMaintenance(p *Pool) {
	machine := p.running(2)[0]
	waiting := func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.WaitForPodCompletion = &maintenancev1alpha1.WaitForPodCompletionSpec{PodSelector: "conformance=" + p.scenario}
	}
	draining := func(spec *maintenancev1alpha1.NodeMaintenanceSpec) { spec.DrainSpec = &maintenancev1alpha1.DrainSpec{} }
	phases := []struct {
		name string
		edit func(*maintenancev1alpha1.NodeMaintenanceSpec)
	}{{maintenancev1alpha1.PhaseWaitForPodCompletion, waiting}, {maintenancev1alpha1.PhaseDraining, draining}, {maintenancev1alpha1.PhaseReady, nil}}
	inTheWay := func(machine *machinev1alpha1.Machine, name string) {
		p.pod(machine, metav1.NamespaceDefault, p.scenario+"-"+name, func(pod *corev1.Pod) { pod.Labels = map[string]string{"conformance": p.scenario} })
	}
	inTheWay(machine, "object")
	for _, phase := range phases {
		nm := p.maintain(machine, phase.edit)
		p.phase(nm, phase.name)
		p.giveBack(nm)
		p.untouched(machine)
	}
	for i, phase := range phases {
		machine := p.running(2)[0]
		inTheWay(machine, fmt.Sprintf("node-%d", i))
		nm := p.maintain(machine, phase.edit)
		p.phase(nm, phase.name)
		p.Expect(p.Shoot.Delete(p.ctx, p.node(p, machine))).To(Succeed())
		p.ended(nm)
		p.gone(machine)
	}
	p.running(2)
}

// refusedMaintenance: what cannot be read, or has no node of a machine, stays pending and says why.
func refusedMaintenance(p *Pool) {
	machine := p.running(2)[0]
	pod := p.pod(machine, metav1.NamespaceDefault, p.scenario, nil)
	for name, refusal := range map[string]struct {
		edit func(*maintenancev1alpha1.NodeMaintenanceSpec)
		text string
	}{
		"node": {func(spec *maintenancev1alpha1.NodeMaintenanceSpec) { spec.NodeName = "nobody" }, "nobody"},
		"selector": {func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
			spec.DrainSpec = &maintenancev1alpha1.DrainSpec{PodSelector: "a b"}
		}, "a b"},
		"regex": {func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
			spec.DrainSpec = &maintenancev1alpha1.DrainSpec{Force: true, PodEvictionFilters: []maintenancev1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "nvidia.com/("}}}
		}, "nvidia.com/("},
	} {
		nm := p.newMaintenance(machine, p.scenario+"-"+name, refusal.edit)
		p.create(nm)
		p.phase(nm, maintenancev1alpha1.PhasePending, refusal.text)
	}
	p.Expect(p.exists(pod)).To(BeTrue())
	p.untouched(machine)
}

// restartInMaintenance: whatever phase a maintenance is in, it goes on after a crash, and the machine of a node that is away
// meanwhile is kept.
func restartInMaintenance(p *Pool) {
	machines := p.running(2)
	labels := map[string]string{"conformance": p.scenario}
	worker := p.pod(machines[0], metav1.NamespaceDefault, p.scenario+"-worker", func(pod *corev1.Pod) { pod.Labels = labels })
	other := p.pod(machines[0], metav1.NamespaceDefault, p.scenario+"-other", nil)
	nm := p.newMaintenance(machines[0], p.scenario, func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.WaitForPodCompletion = &maintenancev1alpha1.WaitForPodCompletionSpec{PodSelector: "conformance=" + p.scenario}
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{}
	})
	away := p.newMaintenance(machines[1], p.scenario+"-away", nil)
	p.create(nm)
	p.create(away)
	p.phase(away, maintenancev1alpha1.PhaseReady)
	p.fail(machines[1], KubeletDead)
	p.eventually(func(g Gomega) { p.isPreserved(g, machines[1], failedPreserved, maintenance) })

	crashIn := func(phase string, texts ...string) {
		p.phase(nm, phase, texts...)
		p.crash()
		p.consistently(takeover, func(g Gomega) {
			g.Expect(p.phaseOf(g, nm)).To(Equal(phase))
			g.Expect(p.phaseOf(g, away)).To(Equal(maintenancev1alpha1.PhaseReady))
			p.isPreserved(g, machines[1], failedPreserved, maintenance)
		})
	}
	crashIn(maintenancev1alpha1.PhaseWaitForPodCompletion)
	p.Expect(p.Shoot.Delete(p.ctx, worker)).To(Succeed())
	crashIn(maintenancev1alpha1.PhaseDraining, "default/"+other.Name)
	p.patchMaintenance(nm, `{"spec":{"drainSpec":{"force":true}}}`)
	crashIn(maintenancev1alpha1.PhaseReady)
	p.Expect(p.exists(other)).To(BeFalse())
	p.setRequestorFailed(nm, metav1.ConditionTrue)
	crashIn(maintenancev1alpha1.PhaseRequestorFailed)
	p.setRequestorFailed(nm, metav1.ConditionFalse)
	p.phase(nm, maintenancev1alpha1.PhaseReady)

	p.fail(machines[1], NoFault)
	for i, nm := range []*maintenancev1alpha1.NodeMaintenance{nm, away} {
		p.giveBack(nm)
		p.untouched(machines[i])
		p.ordinary(machines[i])
	}
}

// scheduledMaintenances: two requestors want all nodes of the pool, and never more than two have theirs. A slot that is given
// back is used at once, first for the requestor that is at work already.
func scheduledMaintenances(p *Pool) {
	p.scale(3)
	p.setMaxParallelOperations(2)
	defer p.setMaxParallelOperations(0)
	machines := p.running(3)
	var nms []*maintenancev1alpha1.NodeMaintenance
	for _, requestor := range []string{"first", "second"} {
		for i, machine := range machines {
			nm := p.newMaintenance(machine, fmt.Sprintf("%s-%s-%d", p.scenario, requestor, i), func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
				spec.RequestorID = requestor + ".example.org"
			})
			p.create(nm)
			nms = append(nms, nm)
		}
	}
	var longest time.Duration
	for left := len(nms); left > 0; left-- {
		var ready *maintenancev1alpha1.NodeMaintenance
		freed := time.Now()
		p.eventually(func(g Gomega) {
			ready = nil
			under := map[string]int{}
			list := &maintenancev1alpha1.NodeMaintenanceList{}
			g.Expect(p.Shoot.List(p.ctx, list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
			for _, nm := range list.Items {
				switch condition := meta.FindStatusCondition(nm.Status.Conditions, maintenancev1alpha1.ConditionReady); {
				case condition == nil || condition.Reason == maintenancev1alpha1.PhasePending:
				default:
					under[nm.Spec.NodeName]++
					if condition.Reason == maintenancev1alpha1.PhaseReady && nm.DeletionTimestamp == nil {
						ready = &nm
					}
				}
			}
			p.Expect(len(under)).To(BeNumerically("<=", 2), "%v", under)
			p.Expect(under).NotTo(ContainElement(BeNumerically(">", 1)), "%v", under)
			g.Expect(ready).NotTo(BeNil())
		})
		longest = max(longest, time.Since(freed))
		p.giveBack(ready)
	}
	p.t.Logf("All %d maintenances are over, the longest wait for the next one that was Ready was %s", len(nms), longest.Round(time.Millisecond))
	for _, machine := range machines {
		p.untouched(machine)
	}
}
