// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What befalls machines that somebody works on: requestors ask for nodes, reboot them and give them back, and hosts are
// power-cycled.

// deploy gives the nodes some pods, which a drain has to do with and a budget protects.
func (c *chaos) deploy(ctx context.Context) error {
	object, labels := metav1.ObjectMeta{Name: "chaos", Namespace: metav1.NamespaceDefault}, map[string]string{"app": "chaos"}
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(6)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(2)),
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
		}},
	} {
		if err := c.shoot.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// bit says whether a bit of the number that chooses is set. The lowest ones choose the machine.
func (e event) bit(n int) bool { return e.which>>(16+n)&1 == 1 }

func isReady(nm *maintenancev1alpha1.NodeMaintenance) bool {
	return rules.PhaseOf(nm) == maintenancev1alpha1.PhaseReady && nm.DeletionTimestamp == nil
}

func requestorFailed(nm *maintenancev1alpha1.NodeMaintenance) bool {
	return meta.IsStatusConditionTrue(nm.Status.Conditions, maintenancev1alpha1.ConditionRequestorFailed)
}

// maintenances returns those for which it holds, in the order of their names.
func (c *chaos) maintenances(ctx context.Context, holds func(*maintenancev1alpha1.NodeMaintenance) bool) ([]*maintenancev1alpha1.NodeMaintenance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &maintenancev1alpha1.NodeMaintenanceList{}
	if err := c.shoot.List(ctx, list); err != nil {
		return nil, err
	}
	var suitable []*maintenancev1alpha1.NodeMaintenance
	for i := range list.Items {
		if holds(&list.Items[i]) {
			suitable = append(suitable, &list.Items[i])
		}
	}
	slices.SortFunc(suitable, func(a, b *maintenancev1alpha1.NodeMaintenance) int { return cmp.Compare(a.Name, b.Name) })
	return suitable, nil
}

// oneMaintenance chooses one for which it holds.
func (c *chaos) oneMaintenance(ctx context.Context, e event, holds func(*maintenancev1alpha1.NodeMaintenance) bool) (*maintenancev1alpha1.NodeMaintenance, error) {
	suitable, err := c.maintenances(ctx, holds)
	if len(suitable) == 0 {
		return nil, err
	}
	return suitable[e.of(len(suitable))], nil
}

// askForNode asks for a node, now and then for two requestors at once, or for one that does not exist.
func askForNode(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, hasNode)
	if m == nil {
		return "", err
	}
	node := m.Labels[machinev1alpha1.NodeLabelKey]
	if (e.which>>40)%12 == 0 {
		node = "nobody"
	}
	spec := maintenancev1alpha1.NodeMaintenanceSpec{NodeName: node, Cordon: new(!e.bit(0) || !e.bit(1))}
	if e.bit(2) {
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{Force: e.bit(3), DeleteEmptyDir: e.bit(4), TimeoutSeconds: new(int32(30))}
	}
	if e.bit(5) && e.bit(6) {
		spec.WaitForPodCompletion = &maintenancev1alpha1.WaitForPodCompletionSpec{PodSelector: "app=chaos", TimeoutSeconds: 5}
	}
	requestors := []string{"gpu.example.org", "network.example.org", "firmware.example.org"}
	count := 1
	if e.bit(7) && e.bit(8) {
		count = 2
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text := ""
	for i := range count {
		nm := &maintenancev1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("chaos-%08x-%d", e.which>>32, i), Namespace: metav1.NamespaceDefault},
			Spec:       spec,
		}
		nm.Spec.RequestorID = requestors[(e.of(len(requestors))+i)%len(requestors)]
		if e.bit(9) && e.bit(10) {
			metav1.SetMetaDataAnnotation(&nm.ObjectMeta, maintenancev1alpha1.AnnotationIgnoreGarbageCollector, "true")
		}
		if err := c.shoot.Create(ctx, nm); err != nil {
			return "", err
		}
		text += fmt.Sprintf("%s for %s of %s, cordon %t, drain %t, wait %t; ", nm.Name, node, nm.Spec.RequestorID, *spec.Cordon, spec.DrainSpec != nil, spec.WaitForPodCompletion != nil)
	}
	return text, nil
}

// deleteMaintenance gives a node back, most often one that was handed over.
func deleteMaintenance(ctx context.Context, c *chaos, e event) (string, error) {
	nm, err := c.oneMaintenance(ctx, e, func(nm *maintenancev1alpha1.NodeMaintenance) bool {
		return nm.DeletionTimestamp == nil && (e.bit(0) && e.bit(1) || isReady(nm))
	})
	if nm == nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return nm.Name + ", " + rules.PhaseOf(nm), c.shoot.Delete(ctx, nm)
}

func (c *chaos) patchMaintenance(ctx context.Context, nm *maintenancev1alpha1.NodeMaintenance, edit func()) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before := nm.DeepCopy()
	edit()
	return c.shoot.Patch(ctx, nm, client.MergeFrom(before))
}

// shareMaintenance lets another requestor join a maintenance that is under way, or the last one leave.
func shareMaintenance(ctx context.Context, c *chaos, e event) (string, error) {
	nm, err := c.oneMaintenance(ctx, e, func(nm *maintenancev1alpha1.NodeMaintenance) bool {
		if e.bit(0) {
			return len(nm.Spec.AdditionalRequestors) > 0
		}
		return nm.DeletionTimestamp == nil
	})
	if nm == nil {
		return "", err
	}
	var requestors []string
	if !e.bit(0) {
		requestors = []string{"guest.example.org"}
	}
	return fmt.Sprintf("%s, additional requestors %q", nm.Name, requestors), c.patchMaintenance(ctx, nm, func() { nm.Spec.AdditionalRequestors = requestors })
}

// failRequestor lets a requestor that has a node fail, or go on.
func failRequestor(ctx context.Context, c *chaos, e event) (string, error) {
	nm, err := c.oneMaintenance(ctx, e, func(nm *maintenancev1alpha1.NodeMaintenance) bool {
		return requestorFailed(nm) || e.bit(0) && isReady(nm)
	})
	if nm == nil {
		return "", err
	}
	failed := !requestorFailed(nm)
	return fmt.Sprintf("%s, failed %t", nm.Name, failed), c.setRequestorFailed(ctx, nm, failed)
}

func (c *chaos) setRequestorFailed(ctx context.Context, nm *maintenancev1alpha1.NodeMaintenance, failed bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status := metav1.ConditionFalse
	if failed {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: maintenancev1alpha1.ConditionRequestorFailed, Status: status, Reason: "Chaos"})
	return c.shoot.Status().Update(ctx, nm)
}

// rebootMaintained lets the kubelet of a node that was handed over be away for a while, which may be longer than the health
// timeout, or for good.
func rebootMaintained(ctx context.Context, c *chaos, e event) (string, error) {
	ready, err := c.maintenances(ctx, isReady)
	if err != nil {
		return "", err
	}
	m, err := c.one(ctx, e, func(m *machinev1alpha1.Machine) bool {
		return !c.isBroken(m.Name) && slices.ContainsFunc(ready, func(nm *maintenancev1alpha1.NodeMaintenance) bool {
			return nm.Spec.NodeName == m.Labels[machinev1alpha1.NodeLabelKey]
		})
	})
	if m == nil {
		return "", err
	}
	text := m.Name + " for good"
	if !e.bit(0) || !e.bit(1) {
		away := e.between(5*time.Second, time.Minute)
		text = fmt.Sprintf("%s for %s", m.Name, away.Round(time.Second))
		time.AfterFunc(away, func() {
			if !c.isBroken(m.Name) { // it has recovered before
				return
			}
			if err := c.heal(context.WithoutCancel(ctx), m.Name); client.IgnoreNotFound(err) != nil {
				c.say(fmt.Sprintf("- %s does not come back: %v", m.Name, err))
			}
		})
	}
	return text, c.hurt(ctx, m.Name, simulator.KubeletDead)
}

func uncordon(ctx context.Context, c *chaos, e event) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &corev1.NodeList{}
	if err := c.shoot.List(ctx, list); err != nil {
		return "", err
	}
	nodes := slices.DeleteFunc(list.Items, func(node corev1.Node) bool { return !node.Spec.Unschedulable })
	if len(nodes) == 0 {
		return "", nil
	}
	node := &nodes[e.of(len(nodes))]
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = false
	return node.Name, c.shoot.Patch(ctx, node, patch)
}

// askForPowerCycle asks as a health checker does, or as a person in the shoot does, half of the time for a machine that fails.
func askForPowerCycle(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, func(m *machinev1alpha1.Machine) bool {
		return hasNode(m) && (c.isBroken(m.Name) || e.bit(0)) && !metav1.HasAnnotation(m.ObjectMeta, v1alpha1.AnnotationNeedsRemediation)
	})
	if m == nil {
		return "", err
	}
	if e.bit(1) && e.bit(2) {
		node, err := c.node(ctx, m)
		if node == nil {
			return "", err
		}
		return m.Name + " on the Node", c.annotate(ctx, c.shoot, node, map[string]any{v1alpha1.AnnotationPowerCycle: v1alpha1.PowerCycleNow})
	}
	return m.Name, c.annotate(ctx, c.seed, m, map[string]any{v1alpha1.AnnotationNeedsRemediation: ""})
}

func withdrawOnePowerCycle(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, func(m *machinev1alpha1.Machine) bool {
		return metav1.HasAnnotation(m.ObjectMeta, v1alpha1.AnnotationNeedsRemediation)
	})
	if m == nil {
		return "", err
	}
	return m.Name, c.annotate(ctx, c.seed, m, map[string]any{v1alpha1.AnnotationNeedsRemediation: nil})
}

// misbehaviours are those of hosts. Most are only late, and some obey again.
var misbehaviours = []any{
	string(hosts.LateReport), string(hosts.LateReport), string(hosts.LateReport), string(hosts.NeverOff), string(hosts.NeverOn), string(hosts.OldBootID), nil, nil, nil,
}

func misbehave(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, hasNode)
	if m == nil {
		return "", err
	}
	misbehaviour := misbehaviours[(e.which>>16)%uint64(len(misbehaviours))]
	host := baremetalhost.New(client.ObjectKeyFromObject(m))
	return fmt.Sprintf("%s %v", m.Name, misbehaviour), c.annotate(ctx, c.seed, host, map[string]any{hosts.MisbehaviourAnnotation: misbehaviour})
}

func newHostList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	kind := baremetalhost.New(client.ObjectKey{}).GroupVersionKind()
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	return list
}

// withdrawPowerCycle withdraws what asks for a power cycle. One that has begun goes on.
func (c *chaos) withdrawPowerCycle(ctx context.Context, m *machinev1alpha1.Machine, node *corev1.Node) error {
	if node != nil && metav1.HasAnnotation(node.ObjectMeta, v1alpha1.AnnotationPowerCycle) {
		if err := c.annotate(ctx, c.shoot, node, map[string]any{v1alpha1.AnnotationPowerCycle: nil}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if !metav1.HasAnnotation(m.ObjectMeta, v1alpha1.AnnotationNeedsRemediation) {
		return nil
	}
	return client.IgnoreNotFound(c.annotate(ctx, c.seed, m, map[string]any{v1alpha1.AnnotationNeedsRemediation: nil}))
}

// endMaintenances lets all requestors give up, and adds what is left.
func (c *chaos) endMaintenances(ctx context.Context, left map[string][]string) error {
	all, err := c.maintenances(ctx, func(*maintenancev1alpha1.NodeMaintenance) bool { return true })
	if err != nil {
		return err
	}
	for _, nm := range all {
		c.oracle.mutex.Lock()
		name := c.oracle.machineOf(nm.Spec.NodeName)
		c.oracle.mutex.Unlock()
		left[name] = append(left[name], fmt.Sprintf("NodeMaintenance %s is %s, finalizers %q", nm.Name, rules.PhaseOf(nm), nm.Finalizers))
		if requestorFailed(nm) {
			err = c.setRequestorFailed(ctx, nm, false)
		}
		if err == nil && len(nm.Spec.AdditionalRequestors) > 0 {
			err = c.patchMaintenance(ctx, nm, func() { nm.Spec.AdditionalRequestors = nil })
		}
		if err == nil && nm.DeletionTimestamp == nil {
			err = c.shoot.Delete(ctx, nm)
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		err = nil
	}
	return nil
}

// settleHosts lets all hosts obey, also those of machines that are gone, and adds what is left.
func (c *chaos) settleHosts(ctx context.Context, left map[string][]string) error {
	list := newHostList()
	if err := c.seed.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		host := &list.Items[i]
		if found := rules.LeftoversOfHost(host); len(found) > 0 {
			left[host.GetName()] = append(left[host.GetName()], found...)
		}
		if _, misbehaves := host.GetAnnotations()[hosts.MisbehaviourAnnotation]; misbehaves {
			if err := c.annotate(ctx, c.seed, host, map[string]any{hosts.MisbehaviourAnnotation: nil}); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}
