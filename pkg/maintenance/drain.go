// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// wait waits for pods (M4).
func (d *decision) wait(nm *v1alpha1.NodeMaintenance) {
	drained := func() {
		d.setPhase(nm, v1alpha1.PhaseDraining, "Draining the node.", func(s *v1alpha1.NodeMaintenanceStatus) { s.WaitForCompletion = nil })
	}
	spec := nm.Spec.WaitForPodCompletion
	if spec == nil {
		drained()
		return
	}
	selector, err := waitSelector(spec)
	if err != nil {
		d.setPhase(nm, v1alpha1.PhaseWaitForPodCompletion, "Nothing is done, because the spec is not valid: "+err.Error()+".", nil)
		return
	}
	since, ok := d.timeOn(nm, v1alpha1.AnnotationWaitStartTime)
	if !ok {
		return
	}
	d.WatchPods = true
	if !d.PodsKnown {
		return
	}
	keys := keysOf(waitedFor(d.Pods, selector))
	deadline := since.Add(time.Duration(spec.TimeoutSeconds) * time.Second)
	if len(keys) == 0 || spec.TimeoutSeconds > 0 && !d.now.Before(deadline) {
		drained()
		return
	}
	message := fmt.Sprintf("Waiting since %s for pods to complete: %s.", formatTime(since), first(keys))
	d.setPhase(nm, v1alpha1.PhaseWaitForPodCompletion, message, func(s *v1alpha1.NodeMaintenanceStatus) { s.WaitForCompletion = keys })
	if spec.TimeoutSeconds > 0 {
		d.wake(deadline)
	}
}

// timeOn returns the time of an annotation. If there is none that can be read, now is written, and it returns false.
func (d *decision) timeOn(nm *v1alpha1.NodeMaintenance, key string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, nm.Annotations[key])
	if err == nil && !at.After(d.now) {
		return at, true
	}
	d.editMaintenance(nm, func(nm *v1alpha1.NodeMaintenance) {
		metav1.SetMetaDataAnnotation(&nm.ObjectMeta, key, formatTime(d.now))
	})
	return time.Time{}, false
}

const (
	// minDrainTimeout is the shortest time after which a drain begins anew: each time is written.
	minDrainTimeout = 30 * time.Second
	// timedOutInterval is how often people are told that a drain begins anew, at most, after the first time.
	timedOutInterval = 5 * time.Minute
)

// drain drains the node (M5).
func (d *decision) drain(nm *v1alpha1.NodeMaintenance) {
	if nm.Spec.DrainSpec == nil {
		d.handOver(nm, func(s *v1alpha1.NodeMaintenanceStatus) { s.Drain = nil })
		return
	}
	switch left, progress, done := d.evict(nm, 0); {
	case done:
		d.handOver(nm, progress)
	case left != "":
		message := left
		if began, attempt, ok := drainTimes(nm); ok && attempt.After(began) {
			message = fmt.Sprintf("Draining since %s, retried at %s. %s", formatTime(began), formatTime(attempt), left)
		} else if ok {
			message = fmt.Sprintf("Draining since %s. %s", formatTime(began), left)
		}
		d.setPhase(nm, v1alpha1.PhaseDraining, message, progress)
	}
}

// evict goes on with a drain. It returns in words what is left, empty for what is not known, how that changes the status, and
// whether nothing is left, which it is not before pods have been looked out for for some time.
func (d *decision) evict(nm *v1alpha1.NodeMaintenance, lookout time.Duration) (left string, edit func(*v1alpha1.NodeMaintenanceStatus), done bool) {
	spec := nm.Spec.DrainSpec
	filter, err := newFilter(spec)
	if err != nil {
		return "Nothing is done, because the spec is not valid: " + err.Error() + ".", nil, false
	}
	began, attempt, ok := drainTimes(nm)
	if !ok || began.After(d.now) || attempt.After(d.now) {
		d.startDrain(nm, d.now)
		return "", nil, false
	}
	d.WatchPods = true
	if !d.PodsKnown {
		return "", nil, false
	}

	selected, blocked := filter.split(d.Pods)
	edit = func(s *v1alpha1.NodeMaintenanceStatus) { progress(s, len(d.Pods), selected) }
	if len(selected) == 0 {
		looked := attempt
		if d.CordonedAt.After(looked) {
			looked = d.CordonedAt
		}
		switch looked = looked.Add(lookout); {
		case d.now.Before(looked):
			d.wake(looked)
		case d.PodsUnread: // why is another text each time, which would be written each time
			return "It is not known whether pods are left, because they cannot be listed.", nil, false
		case !d.PodsLive:
			d.ReadPods = true
		default:
			return "", edit, true
		}
		return "", nil, false
	}

	timeout := time.Duration(ptr.Deref(spec.TimeoutSeconds, v1alpha1.DefaultDrainTimeoutSeconds)) * time.Second
	if timeout > 0 {
		timeout = max(timeout, minDrainTimeout)
	}
	actions, next, failed := drain.Plan(d.now, attempt, selected, nil, nil, drain.EvictionPolicy(timeout))
	obstacles := slices.Concat(blocked, d.stuck(selected), d.Refused)
	if failed && timeout > 0 {
		note := fmt.Sprintf("The node is not drained after %s, and the drain is retried. Pods left: %s.", d.now.Sub(began).Round(time.Second), first(keysOf(selected)))
		if len(obstacles) > 0 {
			note += " Blocked by: " + first(obstacles) + "."
		}
		if told := attempt.Sub(began) / timedOutInterval; attempt.Equal(began) || d.now.Sub(began)/timedOutInterval > told {
			d.Events = append(d.Events, Event{Maintenance: nm, Warning: true, Reason: EventDrainTimedOut, Note: note})
		}
		d.startDrain(nm, began)
		return "", nil, false
	}
	left = "Pods left: " + first(keysOf(selected)) + "."
	if len(obstacles) > 0 {
		left += " Blocked by: " + first(obstacles) + "."
	}

	if timeout > 0 && !next.IsZero() {
		d.wake(next)
	}
	actions = slices.DeleteFunc(actions, func(a drain.Action) bool { return a.Verb == drain.Wait })
	switch {
	case len(blocked) > 0 || len(actions) == 0 || d.isOpen(nm): // others would come
	case d.now.Before(d.EvictAfter):
		d.wake(d.EvictAfter)
	default:
		d.Actions = actions
	}
	return left, edit, false
}

// stuck returns which pods should have ended by now, with the reason: finalizers keep them, or the kubelet is away, and nobody else
// ends them.
func (d *decision) stuck(pods []drain.Pod) []string {
	var stuck []string
	for _, pod := range pods {
		switch {
		case pod.GraceEnds.IsZero() || facts.IsReady(d.Node) && len(pod.Finalizers) == 0:
		case d.now.Before(pod.GraceEnds):
			d.wake(pod.GraceEnds)
		case len(pod.Finalizers) > 0:
			stuck = append(stuck, pod.NameAt(d.now))
		default:
			stuck = append(stuck, pod.Key()+" (its node does not answer)")
		}
	}
	return stuck
}

// startDrain begins a drain, or begins one anew that began at the given time.
func (d *decision) startDrain(nm *v1alpha1.NodeMaintenance, began time.Time) {
	d.editMaintenance(nm, func(nm *v1alpha1.NodeMaintenance) {
		metav1.SetMetaDataAnnotation(&nm.ObjectMeta, v1alpha1.AnnotationDrainStartTime, formatTime(began)+"/"+formatTime(d.now))
	})
	if nm.Status.Drain != nil {
		d.editStatus(nm, func(s *v1alpha1.NodeMaintenanceStatus) { s.Drain = &v1alpha1.DrainStatus{} })
	}
}

func drainTimes(nm *v1alpha1.NodeMaintenance) (began, attempt time.Time, ok bool) {
	first, second, _ := strings.Cut(nm.Annotations[v1alpha1.AnnotationDrainStartTime], "/")
	began, err := time.Parse(time.RFC3339, first)
	if err != nil {
		return time.Time{}, time.Time{}, false
	}
	attempt, err = time.Parse(time.RFC3339, second)
	return began, attempt, err == nil
}

// progress writes how far a drain is, and if it has just begun, from where.
func progress(s *v1alpha1.NodeMaintenanceStatus, total int, left []drain.Pod) {
	status := v1alpha1.DrainStatus{}
	if s.Drain != nil {
		status = *s.Drain
	}
	if status.TotalPods == 0 {
		status.TotalPods, status.EvictionPods = count(total), count(len(left))
	}
	status.DrainProgress = 100
	if status.EvictionPods > 0 {
		gone := max(int(status.EvictionPods)-len(left), 0)
		status.DrainProgress = count(gone * 100 / int(status.EvictionPods))
	} else if len(left) > 0 {
		status.DrainProgress = 0
	}
	status.WaitForEviction = keysOf(left)
	s.Drain = &status
}

func count(n int) int32 {
	if n < 0 || n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(n)
}
