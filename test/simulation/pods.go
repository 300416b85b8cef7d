// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// gracePeriod is how long a pod is given to end. It takes shutdown.
	gracePeriod, shutdown = 30 * time.Second, 5 * time.Second
	// quarantine is how long a node must be gone until its pods are collected.
	quarantine = 40 * time.Second
	// disruption is how long an eviction counts whose pod does not terminate.
	disruption = 2 * time.Minute

	podNamespace   = "default"
	stuckFinalizer = "simulation/stuck"
)

// workload is what is to run in the shoot. Its pods stay on a node that is not ready: nobody but a drain takes them away.
type workload struct {
	name, kind string
	replicas   int
}

var (
	// guarded is the one with a budget.
	guarded   = workload{"web", "ReplicaSet", 3}
	workloads = []workload{
		guarded,
		{"batch", "ReplicaSet", 2},
		// Its pod has a volume and always the same name.
		{"db", "StatefulSet", 1},
	}
	budgetKey = key{"poddisruptionbudgets", podNamespace, guarded.name}
)

// Pods are the pods of the shoot with all who look after them: the controllers and the scheduler, the disruption controller,
// the kubelets, the node lifecycle and the garbage collector.
type Pods struct {
	shoot *APIServer
	cloud *Cloud
	mutex sync.Mutex
	// version is up to where the log was read, and what follows what was read of it.
	version int
	pods    map[string]*corev1.Pod
	nodes   map[string]*corev1.Node
	gone    map[string]time.Time // since when there is a node no more
	budget  *policyv1.PodDisruptionBudget
	// busy says that there is something to look after although nothing has changed.
	busy bool
	// frozen is until when the budget allows nothing, stuck until when a pod does not end.
	frozen time.Time
	stuck  map[types.UID]time.Time
}

func newPods(shoot *APIServer, cloud *Cloud) *Pods {
	_, err := shoot.Create(user, budgetKey, toUnstructured(&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
		Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": guarded.name}},
		MaxUnavailable: new(intstr.FromInt32(1)),
	}}))
	if err != nil {
		panic(err) // there is nothing yet
	}
	return &Pods{
		shoot: shoot, cloud: cloud, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, gone: map[string]time.Time{},
		stuck: map[types.UID]time.Time{},
	}
}

// freeze makes the budget allow nothing until some time.
func (p *Pods) freeze(until time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.frozen, p.busy = later(p.frozen, until), true
}

// stick keeps the pods of a node from ending until some time: their kubelet cannot stop them, or they have a finalizer.
func (p *Pods) stick(node string, finalizer bool, until time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.read()
	for _, name := range slices.Sorted(maps.Keys(p.pods)) {
		pod := p.pods[name]
		if pod.Spec.NodeName != node || pod.DeletionTimestamp != nil {
			continue
		}
		if p.stuck[pod.UID], p.busy = later(p.stuck[pod.UID], until), true; finalizer {
			p.finalize(name, []string{stuckFinalizer})
		}
	}
}

func (p *Pods) finalize(name string, finalizers []string) {
	_, _ = p.shoot.Update(user, podKey(name), false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object = object.DeepCopy()
		object.SetFinalizers(finalizers)
		return object, nil
	})
}

// mend takes back what hinders pods from ending.
func (p *Pods) mend() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.frozen, p.busy = time.Time{}, true
	for uid := range p.stuck {
		p.stuck[uid] = time.Time{}
	}
}

// read takes over what has changed, and says whether something has.
func (p *Pods) read() bool {
	changes, _ := p.shoot.Since(p.version)
	p.version += len(changes)
	changed := false
	for _, change := range changes {
		switch gone := change.Type == watch.Deleted; change.resource {
		case "pods":
			if p.pods[change.name] = fromUnstructured[corev1.Pod](change.Object); gone {
				delete(p.pods, change.name)
			}
		case "nodes":
			if p.nodes[change.name] = fromUnstructured[corev1.Node](change.Object); gone {
				delete(p.nodes, change.name)
				p.gone[change.name] = change.At
			}
		case "poddisruptionbudgets":
			p.budget = fromUnstructured[policyv1.PodDisruptionBudget](change.Object)
		default:
			continue
		}
		changed = true
	}
	return changed
}

// tick lets everybody look at what is due. What one has written the others see now or at the next tick.
func (p *Pods) tick() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.cloud.mutex.Lock()
	defer p.cloud.mutex.Unlock()
	if p.cloud.shootAway || !p.read() && !p.busy {
		return
	}
	p.busy = false
	p.release()
	for _, name := range slices.Sorted(maps.Keys(p.pods)) {
		p.lookAfter(p.pods[name])
	}
	p.read()
	p.replace()
	p.read()
	p.keepBudget()
}

// release lets pods end that were stuck.
func (p *Pods) release() {
	for _, name := range slices.Sorted(maps.Keys(p.pods)) {
		pod := p.pods[name]
		until, stuck := p.stuck[pod.UID]
		if !stuck {
			continue
		}
		if time.Now().Before(until) {
			p.busy = true
			continue
		}
		if delete(p.stuck, pod.UID); len(pod.Finalizers) > 0 {
			p.finalize(name, nil)
		}
	}
	p.read()
}

// lookAfter does what a kubelet, the node lifecycle and the garbage collector do with a pod.
func (p *Pods) lookAfter(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	vm, node := p.cloud.find(pod.Spec.NodeName), p.nodes[pod.Spec.NodeName]
	alive := vm != nil && vm.condition != Dead && !vm.off && !time.Now().Before(vm.boots)
	ended := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	_, stuck := p.stuck[pod.UID]
	switch {
	case node == nil:
		if p.busy = true; time.Since(p.gone[pod.Spec.NodeName]) >= quarantine && !ended {
			p.remove("pod-gc", pod)
		}
	case rules.IsOutOfService(node) && !isNodeReady(node) && !ended:
		p.remove("pod-gc", pod)
	case pod.DeletionTimestamp != nil:
		p.busy = true
		begun := pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
		if alive && !ended && (!stuck || len(pod.Finalizers) > 0) && time.Since(begun) >= shutdown {
			p.remove("kubelet", pod)
		}
	case pod.Status.Phase == corev1.PodPending:
		if p.busy = true; alive && vm.condition != NotReady {
			p.show(pod, "kubelet", corev1.PodRunning, true)
		}
	case isReady(pod) && !isNodeReady(node):
		p.show(pod, "node-lifecycle", pod.Status.Phase, false)
	case !isReady(pod) && isNodeReady(node) && alive:
		p.show(pod, "kubelet", pod.Status.Phase, true)
	}
}

func (p *Pods) remove(by string, pod *corev1.Pod) {
	_, _ = p.shoot.deletePod(by, podKey(pod.Name), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

func (p *Pods) show(pod *corev1.Pod, by string, phase corev1.PodPhase, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	_, _ = p.shoot.Update(by, podKey(pod.Name), true, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		pod := pod.DeepCopy()
		pod.Status = corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now()}}}
		return toUnstructured(pod), nil
	})
}

// replace starts pods for those that are missing, where nodes let them.
func (p *Pods) replace() {
	for _, w := range workloads {
		missing := w.replicas
		for _, pod := range p.pods {
			if pod.Labels["app"] == w.name && (pod.DeletionTimestamp == nil || w.kind == "StatefulSet") {
				missing--
			}
		}
		for range missing {
			node := p.schedule(w)
			if node == "" {
				break // until nodes change
			}
			p.start(w, node)
			p.read()
		}
	}
}

func (p *Pods) start(w workload, node string) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: w.name + "-", Labels: map[string]string{"app": w.name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: w.kind, Name: w.name, UID: types.UID(w.name), Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(gracePeriod / time.Second))},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	name := ""
	if w.kind == "StatefulSet" {
		name = w.name + "-0"
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	_, _ = p.shoot.Create("workloads", podKey(name), toUnstructured(pod))
}

// schedule returns the node for another pod of a workload: the one with the fewest, empty if there is none that lets pods in.
func (p *Pods) schedule(w workload) string {
	type load struct {
		node             string
		avoid, own, pods int
	}
	var loads []load
	for name, node := range p.nodes {
		l := load{node: name}
		allowed := isNodeReady(node) && !node.Spec.Unschedulable
		for _, taint := range node.Spec.Taints {
			if l.avoid++; taint.Effect != corev1.TaintEffectPreferNoSchedule {
				allowed = false
			}
		}
		if !allowed {
			continue
		}
		for _, pod := range p.pods {
			if pod.Spec.NodeName != name {
				continue
			}
			if l.pods++; pod.Labels["app"] == w.name {
				l.own++
			}
		}
		loads = append(loads, l)
	}
	if len(loads) == 0 {
		return ""
	}
	return slices.MinFunc(loads, func(a, b load) int {
		return cmp.Or(a.avoid-b.avoid, a.own-b.own, a.pods-b.pods, cmp.Compare(a.node, b.node))
	}).node
}

// keepBudget writes the budget's status, as the disruption controller does, and its spec, as its user wants it.
func (p *Pods) keepBudget() {
	unavailable := intstr.FromInt32(1)
	if time.Now().Before(p.frozen) {
		p.busy, unavailable = true, intstr.FromInt32(0)
	}
	if *p.budget.Spec.MaxUnavailable != unavailable {
		_, _ = p.shoot.Update(user, budgetKey, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			budget := fromUnstructured[policyv1.PodDisruptionBudget](object)
			budget.Spec.MaxUnavailable = &unavailable
			return toUnstructured(budget), nil
		})
		p.read()
	}

	budget := p.budget.DeepCopy()
	status := &budget.Status
	for name, at := range status.DisruptedPods {
		if pod := p.pods[name]; pod == nil || pod.DeletionTimestamp != nil || time.Since(at.Time) > disruption {
			delete(status.DisruptedPods, name)
		} else {
			p.busy = true
		}
	}
	status.ObservedGeneration = budget.Generation
	status.ExpectedPods = int32(guarded.replicas)
	status.DesiredHealthy = status.ExpectedPods - unavailable.IntVal
	status.CurrentHealthy = 0
	for name, pod := range p.pods {
		if _, disrupted := status.DisruptedPods[name]; pod.Labels["app"] == guarded.name && pod.DeletionTimestamp == nil && isReady(pod) && !disrupted {
			status.CurrentHealthy++
		}
	}
	status.DisruptionsAllowed = max(0, status.CurrentHealthy-status.DesiredHealthy)
	if !apiequality.Semantic.DeepEqual(budget.Status, p.budget.Status) {
		_, _ = p.shoot.Update("disruption", budgetKey, true, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return toUnstructured(budget), nil
		})
	}
}

func podKey(name string) key { return key{"pods", podNamespace, name} }

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// readyChanged returns since when a node is ready, or is not.
func readyChanged(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return node.CreationTimestamp.Time
}
