// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
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
	alive := vm != nil && vm.condition != Dead && !time.Now().Before(vm.boots)
	ended := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	_, stuck := p.stuck[pod.UID]
	switch {
	case node == nil:
		if p.busy = true; time.Since(p.gone[pod.Spec.NodeName]) >= quarantine && !ended {
			p.remove("pod-gc", pod)
		}
	case isOutOfService(node) && !isNodeReady(node) && !ended:
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

// What follows is the part of the API server.

// fieldsOf returns what says whether an object is asked for, nil if all are.
func fieldsOf(query url.Values) (func(*unstructured.Unstructured) bool, error) {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if selector.Empty() {
		return nil, nil
	}
	for _, requirement := range selector.Requirements() {
		if !slices.Contains([]string{"metadata.name", "metadata.namespace", "spec.nodeName"}, requirement.Field) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	return func(object *unstructured.Unstructured) bool {
		node, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
		return selector.Matches(fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace(), "spec.nodeName": node})
	}, nil
}

// seenAs returns what a change is to who only sees the objects that are asked for, and false if it is nothing.
func (c *Change) seenAs(asked func(*unstructured.Unstructured) bool) (watch.EventType, bool) {
	if asked == nil {
		return c.Type, true
	}
	was, is := c.Before != nil && asked(c.Before), c.Type != watch.Deleted && asked(c.Object)
	switch {
	case was && is:
		return watch.Modified, true
	case is:
		return watch.Added, true
	default:
		return watch.Deleted, was
	}
}

// discovery returns what a client is told that asks whether pods can be evicted, nil for another question.
func discovery(path string) any {
	policy := metav1.GroupVersionForDiscovery{GroupVersion: policyv1.SchemeGroupVersion.String(), Version: "v1"}
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		return metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
			Groups:   []metav1.APIGroup{{Name: policyv1.GroupName, Versions: []metav1.GroupVersionForDiscovery{policy}, PreferredVersion: policy}},
		}
	case "/api/v1":
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "pods", Namespaced: true, Kind: "Pod"},
				{Name: "pods/eviction", Namespaced: true, Group: policyv1.GroupName, Version: "v1", Kind: "Eviction", Verbs: metav1.Verbs{"create"}},
			},
		}
	}
	return nil
}

// evict deletes a pod if its budget allows that, and answers as a kube-apiserver does.
func (s *APIServer) evict(by string, k key, body []byte) ([]byte, error) {
	var eviction policyv1.Eviction
	if err := json.Unmarshal(body, &eviction); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pod, err := s.podToDelete(k, opts)
	if err != nil {
		return nil, err
	}
	if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
		if err := s.takeFromBudgets(pod); err != nil {
			return nil, err
		}
	}
	if _, err := s.deleteLocked(by, k, pod, opts); err != nil {
		return nil, err
	}
	return json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// takeFromBudgets lets the budgets know that a pod will be gone; an error says that one forbids it.
func (s *APIServer) takeFromBudgets(pod *corev1.Pod) error {
	for k, change := range s.objects {
		if k.resource != "poddisruptionbudgets" || k.namespace != pod.Namespace {
			continue
		}
		budget := fromUnstructured[policyv1.PodDisruptionBudget](change.Object)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			return err
		}
		status := &budget.Status
		unhealthy := !isReady(pod) && status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0
		switch {
		case !selector.Matches(labels.Set(pod.Labels)) || unhealthy:
			continue
		case status.ObservedGeneration < budget.Generation:
			return refuseEviction(10, "The disruption budget %s is still being processed by the server.", budget.Name)
		case status.DisruptionsAllowed == 0:
			return refuseEviction(0, "The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, status.DesiredHealthy, status.CurrentHealthy)
		}
		status.DisruptionsAllowed--
		if status.DisruptedPods == nil {
			status.DisruptedPods = map[string]metav1.Time{}
		}
		status.DisruptedPods[pod.Name] = now()
		s.append("apiserver", k, watch.Modified, toUnstructured(budget), change.Object)
	}
	return nil
}

func refuseEviction(retryAfter int, format string, args ...any) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...)})
	return err
}

// deletePod deletes a pod once its grace period is over and it has no finalizers.
func (s *APIServer) deletePod(by string, k key, opts metav1.DeleteOptions) (*Change, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pod, err := s.podToDelete(k, opts)
	if err != nil {
		return nil, err
	}
	return s.deleteLocked(by, k, pod, opts)
}

func (s *APIServer) podToDelete(k key, opts metav1.DeleteOptions) (*corev1.Pod, error) {
	current := s.objects[k]
	if current == nil {
		return nil, apierrors.NewNotFound(k.groupResource(), k.name)
	}
	pod := fromUnstructured[corev1.Pod](current.Object)
	if p := opts.Preconditions; p != nil && (p.UID != nil && *p.UID != pod.UID || p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion) {
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the UID is %s, and the resource version %s", pod.UID, pod.ResourceVersion))
	}
	return pod, nil
}

func (s *APIServer) deleteLocked(by string, k key, pod *corev1.Pod, opts metav1.DeleteOptions) (*Change, error) {
	current := s.objects[k]
	grace := *pod.Spec.TerminationGracePeriodSeconds
	if opts.GracePeriodSeconds != nil {
		grace = *opts.GracePeriodSeconds
	}
	deleted := now().Add(time.Duration(grace) * time.Second)
	if pod.DeletionTimestamp != nil {
		before := *pod.DeletionGracePeriodSeconds
		if opts.GracePeriodSeconds == nil || grace >= before {
			return current, nil // a grace period only becomes shorter
		}
		deleted = pod.DeletionTimestamp.Add(time.Duration(grace-before) * time.Second)
	}
	after := current.Object.DeepCopy()
	if grace == 0 && len(pod.Finalizers) == 0 {
		return s.append(by, k, watch.Deleted, after, current.Object), nil
	}
	after.SetDeletionTimestamp(new(metav1.NewTime(deleted)))
	after.SetDeletionGracePeriodSeconds(&grace)
	return s.append(by, k, watch.Modified, after, current.Object), nil
}

// What follows is the part of the generator.

// Freeze makes the budget allow nothing for some time.
type Freeze struct{ For time.Duration }

// String implements fmt.Stringer.
func (a Freeze) String() string { return fmt.Sprintf("the budget allows nothing for %s", a.For) }

func (a Freeze) do(w *World) {
	until := time.Now().Add(a.For)
	w.oracle.hinder(until)
	w.pods.freeze(until)
}

// Stick keeps the pods of a machine from ending for some time.
type Stick struct {
	Machine   int
	Finalizer bool
	For       time.Duration
}

// String implements fmt.Stringer.
func (a Stick) String() string {
	how := "cannot be stopped"
	if a.Finalizer {
		how = "have a finalizer"
	}
	return fmt.Sprintf("the pods of machine %d %s for %s", a.Machine, how, a.For)
}

func (a Stick) do(w *World) {
	if name := w.machine(a.Machine); name != "" {
		if a.Finalizer { // else they can be deleted by force
			w.oracle.disturbMachine(name, a.For)
		}
		until := time.Now().Add(a.For)
		w.oracle.hinder(until)
		w.pods.stick(name, a.Finalizer, until)
	}
}

// What follows is the part of the oracle.

// podRules is what the oracle knows of pods, and of the nodes that they are on.
type podRules struct {
	pods map[string]*corev1.Pod
	// drains are by the names of nodes that are, or were, to be emptied by us.
	drains map[string]*drained
	// hindered is until when a drain that is not by force may be held up.
	hindered time.Time
}

// drained is a node that is to be emptied by us: that of a machine in Failed:Preserved, with the taint.
type drained struct {
	// since is when the taint was put on, and until when the last reason to empty the node went; zero if there are all.
	since, until time.Time
}

func (o *oracle) hinder(until time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.pods.hindered = later(o.pods.hindered, until)
}

// observePods is called with each change.
func (o *oracle) observePods(change *Change) {
	if o.pods.pods == nil {
		o.pods.pods, o.pods.drains = map[string]*corev1.Pod{}, map[string]*drained{}
	}
	switch change.resource {
	case "machines", "nodes":
		o.observeDrain(change.name)
	case "pods":
		pod := fromUnstructured[corev1.Pod](change.Object)
		if o.pods.pods[change.name] = pod; change.Type == watch.Deleted {
			delete(o.pods.pods, change.name)
		}
		switch {
		case change.Type == watch.Deleted || isForced(pod):
			o.seen["pod ended by "+change.By]++
		case pod.DeletionTimestamp != nil && change.Before.GetDeletionTimestamp() == nil:
			o.seen["pod evicted by "+change.By]++
		}
		if change.By == sidecarName {
			o.checkRemoval(change, pod)
		}
	}
}

func isForced(pod *corev1.Pod) bool {
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func (o *oracle) observeDrain(node string) {
	s, d := o.machines[node], o.pods.drains[node]
	taint := -1
	if s != nil && s.machine != nil && s.machine.DeletionTimestamp == nil && s.record.phase == failedPreserved && s.node != nil {
		taint = slices.IndexFunc(s.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreserved })
	}
	switch {
	case taint >= 0 && (d == nil || !d.until.IsZero()):
		d = &drained{since: time.Now()}
		if added := s.node.Spec.Taints[taint].TimeAdded; added != nil {
			d.since = added.Time
		}
		o.pods.drains[node] = d
	case taint < 0 && d != nil && d.until.IsZero():
		d.until = time.Now()
	}
}

// checkRemoval blames a pod that we have asked to go, or deleted, without being allowed to.
func (o *oracle) checkRemoval(change *Change, pod *corev1.Pod) {
	node := pod.Spec.NodeName
	s, d := o.machines[node], o.pods.drains[node]
	if o.maintenances.of(node) != nil {
		return // its requestor has asked for that
	}
	forced := change.Type == watch.Deleted || isForced(pod)
	if d == nil {
		o.blame("D1", "%s is removed by us, and the machine of %s was never %s with the taint", change.name, node, failedPreserved)
		return
	}
	excuse := d.until
	if s == nil || s.machine == nil || s.machine.DeletionTimestamp != nil {
		excuse = later(excuse, o.disturbed) // others have written that, and we may not see it
	}
	switch {
	case change.Type == watch.Modified && pod.DeletionTimestamp == nil || len(pod.Finalizers) < len(change.Before.GetFinalizers()):
		o.blame("D5", "we have written %s: %s", change.name, describe(change))
	case !d.until.IsZero() && time.Since(excuse) > soon:
		o.blame("D1", "%s is removed by us, and the machine of %s is not %s with the taint since %s", change.name, node, failedPreserved, d.until.Format(time.TimeOnly))
	case forced && time.Since(d.since) < drainTimeout-time.Second:
		o.blame("P7", "%s is deleted by force, and the drain of %s has begun at %s", change.name, node, d.since.Format(time.TimeOnly))
	case forced && len(pod.Spec.Volumes) > 0 && s != nil && s.node != nil && !isNodeReady(s.node) && time.Since(readyChanged(s.node)) > soon:
		o.blame("D10", "%s has a volume and is deleted by force, and %s does not answer since %s", change.name, node, readyChanged(s.node).Format(time.TimeOnly))
	}
}

// checkEmpty blames a pod that should have been removed by us.
func (o *oracle) checkEmpty(node string, s *subject) {
	d := o.pods.drains[node]
	if d == nil || !d.until.IsZero() || o.maintenances.of(node) != nil { // that empties the node as its requestor has asked
		return
	}
	since := later(d.since, o.maintenances.changed[node])
	if time.Since(later(since.Add(drainTimeout), later(o.disturbed, s.disturbed))) <= calm {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(o.pods.pods)) {
		pod := o.pods.pods[name]
		kept := len(pod.Spec.Volumes) > 0 && !isNodeReady(s.node)
		if pod.Spec.NodeName == node && !kept {
			o.blame("P7", "%s is still on %s, whose drain has begun at %s", name, node, d.since.Format(time.TimeOnly))
		}
	}
}

// restOfPods blames what is not as it is to be at the end.
func (o *oracle) restOfPods() {
	running := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(o.pods.pods)) {
		pod := o.pods.pods[name]
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || !isReady(pod) {
			o.blame("rest", "%s does not run on %s: %s, terminating %t", name, pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp != nil)
		}
		running[pod.Labels["app"]]++
	}
	for _, w := range workloads {
		if running[w.name] != w.replicas {
			o.blame("rest", "%d of %d pods of %s run", running[w.name], w.replicas, w.name)
		}
	}
}
