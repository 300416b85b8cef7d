// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// podRules is what the oracle knows of pods, and of the nodes that they are on.
type podRules struct {
	pods map[string]*corev1.Pod
	// drains are by the names of nodes that are, or were, to be emptied by us.
	drains map[string]*drained
}

// drained is a node that is to be emptied by us: that of a machine in Failed:Preserved, with the taint.
type drained struct {
	// began is when the taint was put on, or when that was seen in a pool that wants a proof.
	began time.Time
	// since is when the drain goes on without a break.
	since time.Time
	// until is when the last reason to empty the node went; zero if there are all.
	until time.Time
	// cycled says that a power cycle of its host was wanted at last.
	cycled bool
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
	if s != nil && s.machine != nil && s.machine.DeletionTimestamp == nil && s.record.Phase == rules.FailedPreserved && s.node != nil {
		taint = slices.IndexFunc(s.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreserved })
	}
	switch {
	case taint >= 0 && (d == nil || !d.until.IsZero()):
		d = &drained{began: time.Now()}
		if added := s.node.Spec.Taints[taint].TimeAdded; added != nil && o.proof == "" { // else it may be of an earlier failure
			d.began = added.Time
		}
		d.since = d.began
		o.pods.drains[node] = d
	case taint < 0 && d != nil && d.until.IsZero():
		d.until = time.Now()
	case taint >= 0:
		// Whoever was killed before the drain was shown begins anew with it.
		if added := s.node.Spec.Taints[taint].TimeAdded; added != nil && added.After(d.began) && time.Since(added.Time) < soon {
			d.began, d.since = added.Time, added.Time
		}
		_, cycled := s.record.Claims[v1alpha1.CauseRemediation]
		if cycled || d.cycled { // the pods stay while a power cycle is wanted
			d.since = time.Now()
			if drain.CourseOfPreserved(s.node) == drain.NoDrain { // else the node could not be reached, and its drain goes on afterwards
				d.began = d.since
			}
		}
		d.cycled = cycled
	}
}

// checkRemoval blames a pod that we have asked to go, or deleted, without being allowed to.
func (o *oracle) checkRemoval(change *Change, pod *corev1.Pod) {
	node := pod.Spec.NodeName
	s, d := o.machines[node], o.pods.drains[node]
	forced := change.Type == watch.Deleted || isForced(pod)
	// Its requestor has asked for that, until the node is given back, which is before the maintenance is gone.
	maintained := o.maintenances.of(node) != nil && (s == nil || s.node == nil || metav1.HasAnnotation(s.node.ObjectMeta, v1alpha1.AnnotationMaintenance))
	if !change.Evicted && (maintained || !forced) && change.Before.GetDeletionTimestamp() == nil {
		o.blame("P7", "%s is deleted by us, and not evicted", change.name)
	}
	if maintained {
		return
	}
	if d == nil {
		o.blame("D1", "%s is removed by us, and the machine of %s was never %s with the taint", change.name, node, rules.FailedPreserved)
		return
	}
	excuse := d.until
	if s == nil || s.machine == nil || s.machine.DeletionTimestamp != nil {
		excuse = later(excuse, o.last(rules.Fault)) // others have written that, and we may not see it
	}
	switch {
	case change.Type == watch.Modified && pod.DeletionTimestamp == nil || len(pod.Finalizers) < len(change.Before.GetFinalizers()):
		o.blame("D5", "we have written %s: %s", change.name, describe(change))
	case !d.until.IsZero() && time.Since(excuse) > soon:
		o.blame("D1", "%s is removed by us, and the machine of %s is not %s with the taint since %s", change.name, node, rules.FailedPreserved, d.until.Format(time.TimeOnly))
	case forced && time.Since(d.began) < drainTimeout-time.Second:
		o.blame("P7", "%s is deleted by force, and the drain of %s has begun at %s", change.name, node, d.began.Format(time.TimeOnly))
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
	// A taint that could not be taken off in between is that of an earlier failure.
	failed, _ := time.Parse(time.RFC3339, s.machine.Annotations[v1alpha1.AnnotationFailedSince])
	since := later(later(d.since, failed.Add(healthTimeout)), o.maintenances.changed[node])
	if time.Since(later(since.Add(drainTimeout), later(o.last(rules.Fault), s.last(rules.Touched)))) <= calm {
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
