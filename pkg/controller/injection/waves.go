// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"cmp"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
)

const (
	// No more than these are replaced until one of them, and until all of them, have settled.
	firstWave  = 1
	secondWave = 5
	// lastWave is how many are under way at most from then on. As each is for the time of proof at least, it is also how
	// many are replaced in a minute at most.
	lastWave = 30

	// proof is how long a container has to be ready until others follow: one that ends soon after it has become ready never
	// is for so long. Those of the first two waves have to be for as long as patience.
	proof = time.Minute
	// patience is how long a container may take to become ready until it counts as failed, and how long one that was
	// restarted has to run until it counts as ready.
	patience = 5 * time.Minute
	// pause is how long the waves are halted until the pods, which are not watched, are looked at again.
	pause = time.Minute
)

// beforeStart are the reasons of containers that wait for their pod: its volumes, its network, its init containers.
var beforeStart = []string{"", "ContainerCreating", "PodInitializing"}

// Sidecar is what the pods of machine-controller-manager tell about the container of the preservation controller.
type Sidecar string

const (
	// SidecarUnknown is that they tell nothing: there is no pod, or it cannot start for reasons that are not the container's.
	SidecarUnknown Sidecar = ""
	// SidecarReady is that it is ready.
	SidecarReady Sidecar = "Ready"
	// SidecarNotReady is that it is not.
	SidecarNotReady Sidecar = "NotReady"
)

// Rollout is what the waves depend on of one Deployment of machine-controller-manager.
type Rollout struct {
	// Namespace is that of the shoot's control plane.
	Namespace string
	// Difference is what the webhook would change.
	Difference machinecontrollermanager.Difference
	// Postponed is how long the webhook is not to be called at most, because it was called in vain.
	Postponed time.Duration
	// ScaledDown is whether it is to have no pods, so that none is replaced.
	ScaledDown bool
	// Complete is whether all pods are of the current template and ready.
	Complete bool
	// Sidecar is what its pods tell if there is no difference.
	Sidecar Sidecar
	// Since is when the container became ready, when the pod of one that is not was given to a node, or when the Deployment
	// made its last progress if nothing is known about the container. The zero value is long ago.
	Since time.Time

	// deployment is what the reconciler has found.
	deployment *appsv1.Deployment
}

// IsOutdated returns whether it has a container that is to be replaced later.
func (r *Rollout) IsOutdated() bool {
	return !r.ScaledDown && (r.Difference.Kind == machinecontrollermanager.Outdated || r.Difference.Kind == machinecontrollermanager.Broken)
}

// Decision is what follows from the state of all Deployments of a seed.
type Decision struct {
	// Replace are the Deployments that the webhook is to be called for.
	Replace []Rollout
	// Halted is whether none is replaced because of those that failed.
	Halted bool
	// Outdated is how many Deployments are still to be replaced, UnderWay how many were replaced and have neither proved
	// themselves nor failed, and Failed how many failed.
	Outdated, UnderWay, Failed int
	// After is when to decide again if no Deployment changes before, 0 if there is nothing to wait for.
	After time.Duration
}

// Decide returns which Deployments are replaced next. It depends on nothing but what they and their pods tell, so that a
// restart carries on, and a view of them that is out of date leads to the same Deployments once more and not to others.
// Those whose container is missing go first, and do not wait for the first two waves: it is no upgrade that took it away.
// Then healthy ones do. A replaced one that nothing is known about holds up the others as long as one that is not ready
// may, and counts neither for nor against them then, unless none has proved itself: then it may be the version because of
// which pods cannot start.
func Decide(rollouts []Rollout, config *configv1alpha1.ControllerConfiguration, now time.Time) Decision {
	var (
		decision   Decision
		candidates []Rollout
		missing    []Rollout
		// unknown are those that nothing is known about for long.
		proven, unknown int
		// In what times replaced ones settle, and what was postponed is to be tried again.
		settle, retry []time.Duration
	)
	proof := proofOf(rollouts, now)
	for _, rollout := range rollouts {
		age, kind := now.Sub(rollout.Since), rollout.Difference.Kind
		if rollout.IsOutdated() {
			decision.Outdated++
		}
		switch {
		case rollout.Postponed > 0 && kind != machinecontrollermanager.None:
			retry = append(retry, rollout.Postponed)
		case rollout.ScaledDown:
			decision.Replace = append(decision.Replace, rollout)
		case kind == machinecontrollermanager.Missing:
			missing = append(missing, rollout)
		case kind != machinecontrollermanager.None:
			candidates = append(candidates, rollout)
		case rollout.Sidecar == SidecarReady && age >= proof:
			proven++
		case rollout.Sidecar == SidecarReady:
			decision.UnderWay++
			settle = append(settle, proof-age)
		case age < patience:
			decision.UnderWay++
			settle = append(settle, patience-age)
		case rollout.Sidecar == SidecarNotReady:
			decision.Failed++
		default:
			unknown++
		}
	}
	if proven == 0 {
		decision.Failed += unknown
	}

	settled := proven + decision.Failed
	replaced := settled + decision.UnderWay
	tolerated := min(int(ptr.Deref(config.InjectionMaxFailed, 0)), int(ptr.Deref(config.InjectionMaxFailedPercent, 0))*replaced/100)
	room := lastWave - decision.UnderWay
	if decision.Outdated > 0 && decision.Failed > tolerated {
		decision.Halted = true
		retry = append(retry, pause)
		candidates = nil
		room = firstWave - decision.UnderWay
	}
	first := next(missing, room)
	if decision.Outdated > 0 || len(missing) > len(first) {
		retry = append(retry, settle...)
	}
	switch {
	case settled < firstWave:
		room = firstWave - replaced
	case settled < firstWave+secondWave:
		room = firstWave + secondWave - replaced
	}
	decision.Replace = slices.Concat(decision.Replace, first, next(candidates, room-len(first)))
	if len(retry) > 0 {
		decision.After = slices.Min(retry)
	}
	return decision
}

// next returns which Deployments are the next if there is room for so many.
func next(rollouts []Rollout, room int) []Rollout {
	slices.SortFunc(rollouts, func(a, b Rollout) int {
		if a.Complete != b.Complete {
			if a.Complete {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Namespace, b.Namespace)
	})
	return rollouts[:min(max(room, 0), len(rollouts))]
}

// proofOf returns how long a container has to be ready until others follow. The first two waves are few enough to wait for
// what ends only after some minutes.
func proofOf(rollouts []Rollout, now time.Time) time.Duration {
	settled := 0
	for _, rollout := range rollouts {
		if rollout.Difference.Kind == machinecontrollermanager.None && rollout.Sidecar != SidecarUnknown && now.Sub(rollout.Since) >= patience {
			settled++
		}
	}
	if settled < firstWave+secondWave {
		return patience
	}
	return proof
}

// SidecarOf returns what the pods of a Deployment with this container tell, and since when. The newest pod counts that has
// it: the ReplicaSet before may have got a newer one, when its pod was evicted. A webhook may have the image pulled from
// elsewhere. One that was restarted is not ready until it has run for as long as one may take to become ready: otherwise one
// that ends again and again would prove itself in between.
func SidecarOf(container *corev1.Container, pods []corev1.Pod, now time.Time) (Sidecar, time.Time) {
	var newest *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		isCurrent := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return c.Name == container.Name && path.Base(c.Image) == path.Base(container.Image) && slices.Equal(c.Args, container.Args)
		})
		if isCurrent && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed &&
			(newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	if newest == nil {
		return SidecarUnknown, time.Time{}
	}
	i := slices.IndexFunc(newest.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container.Name })
	if i < 0 {
		return SidecarUnknown, time.Time{}
	}
	status := newest.Status.ContainerStatuses[i]
	if status.State.Waiting != nil && slices.Contains(beforeStart, status.State.Waiting.Reason) {
		return SidecarUnknown, time.Time{}
	}
	if running := status.State.Running; status.Ready && running != nil {
		restarted := status.RestartCount > 0 && status.LastTerminationState.Terminated != nil
		if !restarted || now.Sub(running.StartedAt.Time) >= patience {
			return SidecarReady, running.StartedAt.Time
		}
	}
	return SidecarNotReady, ptr.Deref(newest.Status.StartTime, newest.CreationTimestamp).Time
}
