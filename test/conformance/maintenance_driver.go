// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

// driverMaintenance: two operators share nodes and upgrade their drivers there: on an ordinary machine, and on one that is kept,
// whose node machine-controller-manager 0.62.1 uncordons again and again. Their pods start anew on a node that is cordoned. No other pod is
// left there, however many wait for that node to be open.
func driverMaintenance(p *Pool) {
	machines := p.running(2)
	p.request(machines[1], "now")
	p.preserved(machines[1], runningPreserved, "now")
	var upgrades []*upgrade
	for _, name := range []string{"gpu", "network"} {
		driver := p.driver(name, machines)
		for _, machine := range machines {
			upgrades = append(upgrades, &upgrade{Pool: p, requestor: name + ".example.org", machine: machine, driver: driver, version: "2", state: upgradeRequired})
		}
	}
	apps := []*appsv1.Deployment{p.app(machines[0]), p.app(machines[1])}

	p.advance(upgrades, podRestartRequired)
	for i, machine := range machines {
		p.leftAlone(machine, apps[i])
		late := p.pod(machine, metav1.NamespaceDefault, fmt.Sprintf("%s-late-%d", p.scenario, i), func(pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Spec.NodeSelector = machine.Labels[machinev1alpha1.NodeLabelKey], nil // without a scheduler
		})
		p.t.Logf("Node of machine %s: uncordoned", machine.Name)
		p.Expect(p.Shoot.Patch(p.ctx, p.node(p, machine), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`)))).To(Succeed())
		p.eventually(func(g Gomega) { g.Expect(p.exists(late)).To(BeFalse()) })
		p.waitForEvent(p.Shoot, metav1.NamespaceDefault, upgrades[i].newMaintenance().Name, domain.EventCordonVanished, "drained again")
		p.leftAlone(machine, apps[i])
	}
	p.advance(upgrades, upgradeDone)

	p.withdraw(machines[1])
	for i, machine := range machines {
		p.untouched(machine)
		p.ordinary(machine)
		p.eventually(func(g Gomega) { g.Expect(p.podsOn(g, machine, apps[i].Spec.Selector.MatchLabels)).To(HaveLen(1)) })
	}
}

// advance goes on with upgrades until all are in a state, and none any further.
func (p *Pool) advance(upgrades []*upgrade, state string) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		var states []string
		for _, u := range upgrades {
			if u.state != state {
				u.step(g)
			}
			states = append(states, u.state)
		}
		g.Expect(states).To(HaveEach(state))
	})
}

// driver starts a DaemonSet as those of drivers are: its pods are replaced by somebody who deletes them, and tolerate what the
// DaemonSet controller makes them tolerate and the taint of nodes with such devices. Once they run there is a new version.
func (p *Pool) driver(name string, machines []*machinev1alpha1.Machine) *appsv1.DaemonSet {
	p.t.Helper()
	var hosts []string
	for _, machine := range machines {
		hosts = append(hosts, p.node(p, machine).Labels[corev1.LabelHostname])
	}
	labels := map[string]string{"conformance": p.scenario + "-" + name}
	spec := p.podSpec(machines[0])
	spec.NodeSelector = nil
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: hosts}}}},
	}}}
	spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	driver := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.scenario + "-" + name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{driverVersion: "1"}}, Spec: spec},
		},
	}
	p.create(driver)
	p.eventually(func(g Gomega) {
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(driver), driver)).To(Succeed())
		g.Expect(driver.Status.NumberReady).To(BeEquivalentTo(len(machines)))
	})
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:"2"}}}}}`, driverVersion)
	p.Expect(p.Shoot.Patch(p.ctx, driver, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	return driver
}

// app starts a pod that comes again when it is evicted, and can go nowhere but to the machine's node.
func (p *Pool) app(machine *machinev1alpha1.Machine) *appsv1.Deployment {
	p.t.Helper()
	labels := map[string]string{"conformance": p.scenario + "-" + machine.Name}
	app := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: p.scenario + "-" + machine.Name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.podSpec(machine)},
		},
	}
	p.create(app)
	p.eventually(func(g Gomega) { g.Expect(p.podsOn(g, machine, labels)).To(HaveLen(1)) })
	return app
}

// leftAlone waits until the node of a maintenance is closed and without the app, which waits for it, for some time on end.
// The requestor sees it Ready all the time.
func (p *Pool) leftAlone(machine *machinev1alpha1.Machine, app *appsv1.Deployment) {
	p.t.Helper()
	began, alone := time.Now(), time.Time{}
	p.eventually(func(g Gomega) {
		since := alone
		alone = time.Time{}
		list := &maintenancev1alpha1.NodeMaintenanceList{}
		g.Expect(p.Shoot.List(p.ctx, list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		i := slices.IndexFunc(list.Items, func(nm maintenancev1alpha1.NodeMaintenance) bool {
			return nm.Spec.NodeName == machine.Labels[machinev1alpha1.NodeLabelKey]
		})
		g.Expect(i).To(BeNumerically(">=", 0))
		nm := &list.Items[i]
		p.Expect(domain.PhaseOf(nm)).To(Equal(maintenancev1alpha1.PhaseReady), messageOf(nm))
		g.Expect(p.node(g, machine)).To(And(cordonedFor(nm), withCondition("MaintenanceInProgress", corev1.ConditionTrue), withCondition("Drained", corev1.ConditionTrue)))
		g.Expect(nm.Status.Drain).To(HaveValue(HaveField("DrainProgress", BeEquivalentTo(100))))
		g.Expect(p.podsOn(g, machine, app.Spec.Selector.MatchLabels)).To(BeEmpty())
		if alone = since; alone.IsZero() {
			alone = time.Now()
		}
		g.Expect(time.Since(alone)).To(BeNumerically(">", 3*shortly))
	})
	p.t.Logf("Node of machine %s: no other pod is left after %s", machine.Name, alone.Sub(began).Round(time.Second))
}

// podsOn returns the pods with labels that are on the machine's node.
func (p *Pool) podsOn(g Gomega, machine *machinev1alpha1.Machine, labels map[string]string) []corev1.Pod {
	pods := &corev1.PodList{}
	g.Expect(p.Shoot.List(p.ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels(labels))).To(Succeed())
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != machine.Labels[machinev1alpha1.NodeLabelKey] })
}
