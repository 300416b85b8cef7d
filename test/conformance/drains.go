// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
)

const (
	// ignoredNamespace is what the Shoot's ignoredNamespacePatterns must match for scenarios to try them.
	ignoredNamespace = "conformance-ignored"
	// punctuality is how late a strategy may act, and tell so: pods are looked at for a second before.
	punctuality = 5 * time.Second
	// finalizer is one that nobody removes.
	finalizer = "conformance.example.org/nobody"
)

// needsDrainStrategies returns why drain strategies cannot be tried: the Shoot has none that act.
func needsDrainStrategies(e *Environment) string {
	extension, err := controlplane.FindExtension(context.Background(), e.Seed, e.Namespace)
	if err != nil || extension == nil {
		return "there is no Extension"
	}
	if strategies, err := providerconfig.ReadDrainStrategies(extension); err != nil || strategies == nil || *strategies.Disabled {
		return "the Shoot has no drain strategies, or they are disabled"
	}
	return ""
}

// drainStrategies returns those of the Shoot.
func (p *Pool) drainStrategies() *preservation.DrainStrategies {
	p.t.Helper()
	extension, err := p.extension(p.ctx)
	p.Expect(err).NotTo(HaveOccurred())
	strategies, err := providerconfig.ReadDrainStrategies(extension)
	p.Expect(err).NotTo(HaveOccurred())
	return strategies
}

// timedDrain: a rolling update gets past a budget that allows no eviction and past a finalizer that nobody removes, at the
// configured times, whoever cordons and uncordons the nodes. Pods of ignored namespaces are left to the drain timeout of
// machine-controller-manager, and the drain that fails because of one is told of.
func timedDrain(p *Pool) {
	strategies := p.drainStrategies()
	ignores := slices.ContainsFunc(strategies.IgnoredNamespacePatterns, func(pattern string) bool {
		compiled, err := drain.CompileNamespacePattern(pattern)
		return err == nil && compiled.MatchString(ignoredNamespace)
	})
	machines := p.running(2)
	for i, machine := range machines {
		p.protectedApp(machine, fmt.Sprintf("%s-%d-web", p.scenario, i))
		p.pod(machine, metav1.NamespaceDefault, fmt.Sprintf("%s-%d-finalizer", p.scenario, i), func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} })
	}
	failing := machines[0]
	if ignores {
		p.ensureNamespace(ignoredNamespace)
		p.pod(failing, ignoredNamespace, p.scenario, func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} })
	}

	begun := time.Now()
	p.roll()
	starts := map[string]time.Time{}
	p.eventually(func(g Gomega) {
		for _, machine := range machines {
			if _, seen := starts[machine.Name]; seen {
				continue
			}
			if fresh := p.fresh(g, machine); fresh.DeletionTimestamp != nil {
				starts[machine.Name] = fresh.DeletionTimestamp.Time
				p.flap(machine)
			}
		}
		g.Expect(starts).To(HaveLen(len(machines)))
	})
	if ignores {
		p.nodeEvent(failing, "DrainTimedOut", ignoredNamespace+"/"+p.scenario)
	}
	for _, machine := range machines {
		p.gone(machine)
	}
	p.t.Logf("The rolling update of 2 machines took %s", time.Since(begun).Round(time.Second))
	for _, machine := range machines {
		p.acted(machine, "finalizers", starts[machine.Name].Add(strategies.Timeout.Duration))
		p.acted(machine, "PDB delete", starts[machine.Name].Add(providerconfig.PDBDeadline(strategies)))
	}
	p.waitForEvent(p.Shoot, metav1.NamespaceDefault, fmt.Sprintf("%s-0-finalizer", p.scenario), "FinalizersRemoved", `drain strategy "finalizers"`)
	p.Expect(p.strategiesOf(failing, ignoredNamespace)).To(BeEmpty())
	p.running(2)
}

// stuckDrain: a rolling update gets past pods on nodes whose kubelets are dead. One with a volume is not risked.
func stuckDrain(p *Pool) {
	strategies := p.drainStrategies()
	machines := p.running(2)
	var volumes []*corev1.Pod
	for i, machine := range machines {
		p.pod(machine, metav1.NamespaceDefault, fmt.Sprintf("%s-%d-stateless", p.scenario, i), nil)
		volumes = append(volumes, p.pod(machine, metav1.NamespaceDefault, fmt.Sprintf("%s-%d-stateful", p.scenario, i), func(pod *corev1.Pod) {
			// It need not be bound: the scheduler is not asked.
			pod.Spec.NodeName, pod.Spec.NodeSelector = machine.Labels[machinev1alpha1.NodeLabelKey], nil
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "conformance"},
			}}}
		}))
	}
	for _, machine := range machines {
		p.fail(machine, KubeletDead)
	}
	p.roll()

	starts := map[string]time.Time{}
	p.eventually(func(g Gomega) {
		for _, machine := range machines {
			if fresh := p.fresh(g, machine); fresh.DeletionTimestamp != nil {
				starts[machine.Name] = fresh.DeletionTimestamp.Time
			}
		}
		g.Expect(starts).NotTo(BeEmpty())
	})
	first := slices.IndexFunc(machines, func(m *machinev1alpha1.Machine) bool { return !starts[m.Name].IsZero() })
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, machines[first])).To(withCondition("NodeDrain", corev1.ConditionTrue, HaveField("Message", ContainSubstring("default/"+volumes[first].Name))))
	})
	p.Expect(p.exists(volumes[first])).To(BeTrue())
	p.gone(machines[first])
	p.acted(machines[first], "stuck", starts[machines[first].Name].Add(strategies.Timeout.Duration))
	p.gone(machines[1-first])
	for i, machine := range machines {
		p.Expect(p.strategiesOf(machine, volumes[i].Name)).To(BeEmpty())
	}
	p.running(2)
}

// cordonedByPerson: what a person cordons is none of the strategies' business.
func cordonedByPerson(p *Pool) {
	strategies := p.drainStrategies()
	machine := p.running(2)[0]
	pod := p.pod(machine, metav1.NamespaceDefault, p.scenario, func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} })
	p.Expect(p.Shoot.Patch(p.ctx, p.node(p, machine), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)))).To(Succeed())
	p.Expect(p.Shoot.Delete(p.ctx, pod.DeepCopy())).To(Succeed())
	p.consistently(max(strategies.Timeout.Duration, providerconfig.PDBDeadline(strategies))+punctuality, func(g Gomega) {
		g.Expect(p.exists(pod)).To(BeTrue())
		g.Expect(p.node(g, machine).Status.Conditions).NotTo(ContainElement(HaveField("Type", BeEquivalentTo("NodeDrain"))))
	})
	p.Expect(p.strategiesOf(machine, "")).To(BeEmpty())
}

// disabledStrategies: a drain that fails is told of, and nothing is done with the pod that it fails because of.
func disabledStrategies(p *Pool) {
	p.setDrainStrategiesDisabled(true)
	defer p.setDrainStrategiesDisabled(false)
	machine := p.running(2)[0]
	pod := p.pod(machine, metav1.NamespaceDefault, p.scenario, func(pod *corev1.Pod) { pod.Finalizers = []string{finalizer} })
	p.roll()
	p.eventually(func(g Gomega) {
		g.Expect(p.node(g, machine)).To(withCondition("NodeDrain", corev1.ConditionTrue,
			HaveField("Reason", "DrainTimedOut"), HaveField("Message", ContainSubstring(metav1.NamespaceDefault+"/"+pod.Name))))
	})
	p.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	p.Expect(pod.Finalizers).To(ContainElement(finalizer))
	p.Expect(p.strategiesOf(machine, "")).To(BeEmpty())
}

// shownDrains: where the Shoot says so, the nodes of a machine that fails and of a maintenance show their drains in conditions of Kubernetes,
// which come and go. What kubectl drain has reported stays. Once the Shoot does not say so any more, nothing of that is left.
func shownDrains(p *Pool) {
	const isTrue, isFalse = corev1.ConditionTrue, corev1.ConditionFalse
	set := func(shown bool) {
		p.t.Logf("Drains are shown: %t", shown)
		p.setFlag("--drain-conditions", shown, func(config *v1alpha1.MachinePreservationConfig) { config.DrainConditions = &shown })
	}
	set(true)
	defer set(false)
	machines := p.running(2)
	failing, maintained := machines[0], machines[1]
	for i, machine := range machines[:2] {
		p.protectedApp(machine, fmt.Sprintf("%s-%d", p.scenario, i))
	}
	drains := func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{Force: true}
	}

	p.fail(failing, NodeCondition)
	p.preserved(failing, failedPreserved, "auto")
	p.showsDrain(failing, "MachinePreservation", isTrue, isFalse)
	nm := p.maintain(maintained, drains)
	p.phase(nm, maintenancev1alpha1.PhaseDraining)
	p.showsDrain(maintained, "NodeMaintenance", isTrue, isFalse)
	for i := range 2 {
		p.Expect(p.Shoot.Delete(p.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", p.scenario, i), Namespace: metav1.NamespaceDefault}})).To(Succeed())
	}
	p.drained(failing)
	p.showsDrain(failing, "MachinePreservation", isFalse, isTrue)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.showsDrain(maintained, "NodeMaintenance", isFalse, isTrue)
	p.giveBack(nm)
	p.untouched(maintained)
	p.fail(failing, NoFault)
	p.preserved(failing, runningPreserved, "auto")
	p.showsDrain(failing, "", "", "")

	report := `{"status":{"conditions":[{"type":"DrainInProgress","status":"False","reason":"KubectlDrainCompleted"},{"type":"Drained","status":"True","reason":"KubectlDrainCompleted"}]}}`
	p.Expect(p.Shoot.Status().Patch(p.ctx, p.node(p, maintained), client.RawPatch(types.StrategicMergePatchType, []byte(report)))).To(Succeed())
	nm = p.newMaintenance(maintained, p.scenario+"-reported", drains)
	p.create(nm)
	p.phase(nm, maintenancev1alpha1.PhaseReady)
	p.giveBack(nm)
	p.showsDrain(maintained, "KubectlDrainCompleted", isFalse, isTrue)
	patch := `{"status":{"conditions":[{"type":"DrainInProgress","$patch":"delete"},{"type":"Drained","$patch":"delete"}]}}`
	p.Expect(p.Shoot.Status().Patch(p.ctx, p.node(p, maintained), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))).To(Succeed())
	p.untouched(maintained)

	p.fail(failing, NodeCondition)
	p.preserved(failing, failedPreserved, "auto")
	p.showsDrain(failing, "MachinePreservation", isFalse, isTrue)
	set(false)
	p.preserved(failing, failedPreserved, "auto")
	p.showsDrain(failing, "", "", "")
}

// showsDrain waits until the machine's node shows how far its drain is, in conditions with a reason, or shows nothing.
func (p *Pool) showsDrain(machine *machinev1alpha1.Machine, reason string, inProgress, drained corev1.ConditionStatus) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		for t, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{drain.ConditionDrainInProgress: inProgress, drain.ConditionDrained: drained} {
			if status == "" {
				g.Expect(v1alpha1.ConditionOf(node, t)).To(BeNil())
			} else {
				g.Expect(node).To(withCondition(t, status, HaveField("Reason", reason)))
			}
		}
	})
}

// comparedDrains: a rolling update past budgets that allow no eviction takes as long as the drain timeouts of its machines
// without strategies, and as long as they say with them.
func comparedDrains(p *Pool) {
	const drainTimeout = 4 * time.Minute
	p.setDrainTimeout(drainTimeout)
	took := map[bool]time.Duration{}
	for _, disabled := range []bool{false, true} {
		p.setDrainStrategiesDisabled(disabled)
		defer p.setDrainStrategiesDisabled(false)
		machines := p.running(2)
		for i, machine := range machines {
			p.protectedApp(machine, fmt.Sprintf("%s-%t-%d", p.scenario, disabled, i))
		}
		begun := time.Now()
		p.roll()
		p.Eventually(func(g Gomega) {
			for _, machine := range machines {
				g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
			}
		}).WithContext(p.ctx).WithTimeout(2*drainTimeout + p.settings.patience()).WithPolling(pollInterval).Should(Succeed())
		took[disabled] = time.Since(begun).Round(time.Second)
		p.t.Logf("The rolling update of 2 machines took %s, strategies disabled: %t", took[disabled], disabled)
		p.running(2)
	}
	p.Expect(took[true]).To(BeNumerically(">", drainTimeout))
	p.Expect(took[false]).To(BeNumerically("<", drainTimeout))
}

// setDrainTimeout makes machine-controller-manager wait that long for the machines' nodes to drain.
func (p *Pool) setDrainTimeout(timeout time.Duration) {
	p.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"drainTimeout":%q}}}}`, timeout)
	p.Expect(p.Seed.Patch(p.ctx, p.deployment(p), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	p.eventually(func(g Gomega) {
		for _, machine := range p.machines(g) {
			g.Expect(machine.Spec.MachineConfiguration).To(HaveValue(HaveField("MachineDrainTimeout", HaveValue(HaveField("Duration", timeout)))))
		}
	})
}

// setDrainStrategiesDisabled writes the setting into the provider configuration, and waits until the container has been
// replaced.
func (p *Pool) setDrainStrategiesDisabled(disabled bool) {
	p.t.Helper()
	p.t.Logf("Drain strategies disabled: %t", disabled)
	p.setFlag("--drain-strategies-disabled", disabled, func(config *v1alpha1.MachinePreservationConfig) { config.DrainStrategies.Disabled = &disabled })
}

// setFlag edits the provider configuration, and waits until the container has been replaced by one with a flag, or without.
func (p *Pool) setFlag(flag string, set bool, edit func(*v1alpha1.MachinePreservationConfig)) {
	p.t.Helper()
	p.eventually(func(g Gomega) { g.Expect(p.editConfig(edit)).To(Succeed()) })
	p.eventually(func(g Gomega) {
		deployment := &appsv1.Deployment{}
		g.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: machineControllerManager}, deployment)).To(Succeed())
		g.Expect(slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, flag)
		})).To(Equal(set))
		status := deployment.Status
		g.Expect(status.ObservedGeneration).To(BeNumerically(">=", deployment.Generation))
		g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.AvailableReplicas}).To(HaveEach(*deployment.Spec.Replicas))
	})
}

// flap uncordons and cordons the machine's node.
func (p *Pool) flap(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	for _, unschedulable := range []bool{false, true} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
		p.Expect(client.IgnoreNotFound(p.Shoot.Patch(p.ctx, node, patch))).To(Succeed())
	}
}

// acted checks that a strategy acted on the machine's node at its time for the first time.
func (p *Pool) acted(machine *machinev1alpha1.Machine, strategy string, at time.Time) {
	p.t.Helper()
	var events []eventsv1.Event
	p.eventually(func(g Gomega) { // Events are told beside what is done
		events = p.strategiesOf(machine, fmt.Sprintf("Drain strategy %q", strategy))
		g.Expect(events).NotTo(BeEmpty(), strategy)
	})
	p.t.Logf("Machine %s: %s after the deadline: %s", machine.Name, events[0].EventTime.Sub(at).Round(time.Millisecond), events[0].Note)
	p.Expect(events[0].EventTime.Time).To(And(BeTemporally(">=", at), BeTemporally("<=", at.Add(punctuality))), strategy)
}

// strategiesOf returns the Events that tell which strategies acted on the machine's node, and contain a text, in the order
// of their times.
func (p *Pool) strategiesOf(machine *machinev1alpha1.Machine, text string) []eventsv1.Event {
	p.t.Helper()
	list := &eventsv1.EventList{}
	p.Expect(p.Shoot.List(p.ctx, list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	matcher := And(HaveField("Reason", "DrainStrategyActed"), HaveField("Regarding.Name", machine.Labels[machinev1alpha1.NodeLabelKey]), HaveField("Note", ContainSubstring(text)))
	list.Items = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		matches, err := matcher.Match(e)
		return err != nil || !matches
	})
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return list.Items
}

// protectedApp starts a Deployment on the machine's node, and a budget that allows no eviction of its pod.
func (p *Pool) protectedApp(machine *machinev1alpha1.Machine, name string) {
	p.t.Helper()
	labels := map[string]string{"conformance": name}
	p.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.podSpec(machine)},
		},
	})
	p.create(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "conformance", Operator: metav1.LabelSelectorOpIn, Values: []string{name}}}},
		},
	})
	p.eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(p.Shoot.List(p.ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels(labels))).To(Succeed())
		g.Expect(pods.Items).To(HaveExactElements(HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// pod starts a pod on the machine's node, and takes it away at the end of the scenario whatever finalizers it has.
func (p *Pool) pod(machine *machinev1alpha1.Machine, namespace, name string, edit func(*corev1.Pod)) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: p.podSpec(machine)}
	if edit != nil {
		edit(pod)
	}
	// What is registered first comes last: the pod is deleted, and then rid of its finalizers.
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), restoreTimeout)
		defer cancel()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(p.Shoot.Patch(ctx, pod.DeepCopy(), patch)); err != nil {
			p.t.Errorf("Pod %s still has finalizers: %v", name, err)
		}
	})
	p.create(pod)
	p.eventually(func(g Gomega) {
		fresh := &corev1.Pod{}
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(pod), fresh)).To(Succeed())
		g.Expect(fresh.Status.Phase).To(Equal(corev1.PodRunning))
	})
	return pod
}

func (p *Pool) podSpec(machine *machinev1alpha1.Machine) corev1.PodSpec {
	p.t.Helper()
	return corev1.PodSpec{
		Containers:                    []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
		NodeSelector:                  map[string]string{corev1.LabelHostname: p.node(p, machine).Labels[corev1.LabelHostname]},
		TerminationGracePeriodSeconds: new(int64(1)),
	}
}

// ensureNamespace creates a namespace in which pods can be created.
func (p *Pool) ensureNamespace(name string) {
	p.t.Helper()
	p.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	p.eventually(func(g Gomega) {
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})).To(Succeed())
	})
}
