// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
)

const (
	// No more than these are replaced until one of them, and until all of them, have settled.
	firstWave  = 1
	secondWave = 5
	// lastWave is how many are under way at most from then on. As each is for the time of proof at least, it is also how
	// many are replaced in a minute at most.
	lastWave = 30

	// proof is how long a Deployment has to be complete until others follow: a container that ends soon after it has become
	// ready never is for so long.
	proof = time.Minute
	// patience is how long a Deployment may make no progress until it counts as failed.
	patience = 5 * time.Minute

	// pause is how long to wait for Deployments that are under way. Their status is not watched: each pod changes it
	// several times.
	pause = 10 * time.Second
)

// Rollout is what the waves depend on of one Deployment of machine-controller-manager.
type Rollout struct {
	// Namespace is that of the shoot's control plane.
	Namespace string
	// Outdated is whether the webhook would change the Deployment.
	Outdated bool
	// Postponed is whether the webhook was called in vain, and is not to be called again yet.
	Postponed bool
	// Complete is whether all pods are of the current template and ready.
	Complete bool
	// Since is when the Deployment became complete, or made its last progress towards that. The zero value is long ago.
	Since time.Time
}

// Decision is what follows from the state of all Deployments of a seed.
type Decision struct {
	// Replace are the namespaces of the Deployments that the webhook is to be called for.
	Replace []string
	// Halted is whether none is replaced because of those that failed.
	Halted bool
	// Outdated is how many Deployments are still to be replaced, UnderWay how many were replaced and have neither proved
	// themselves nor failed, and Failed how many failed.
	Outdated, UnderWay, Failed int
	// After is when to decide again, 0 if there is nothing to wait for.
	After time.Duration
}

// Decide returns which Deployments are replaced next. It depends on nothing but what the Deployments tell, so that a
// restart carries on, and a view of them that is out of date leads to the same Deployments once more and not to others.
// Healthy ones go first: what is not ready for a reason of its own would say nothing about the container.
func Decide(rollouts []Rollout, config *configv1alpha1.ControllerConfiguration, now time.Time) Decision {
	var (
		decision   Decision
		candidates []Rollout
		proven     int
	)
	for _, rollout := range rollouts {
		age := now.Sub(rollout.Since)
		switch {
		case rollout.Outdated:
			decision.Outdated++
			if !rollout.Postponed {
				candidates = append(candidates, rollout)
			}
		case rollout.Complete && age >= proof:
			proven++
		case !rollout.Complete && age >= patience:
			decision.Failed++
		default:
			decision.UnderWay++
		}
	}
	if decision.Outdated == 0 {
		return decision
	}

	settled := proven + decision.Failed
	replaced := settled + decision.UnderWay
	tolerated := min(int(ptr.Deref(config.InjectionMaxFailed, 0)), int(ptr.Deref(config.InjectionMaxFailedPercent, 0))*replaced/100)
	decision.After = pause
	if decision.Failed > tolerated {
		decision.Halted = true
		return decision
	}

	room := lastWave - decision.UnderWay
	switch {
	case settled < firstWave:
		room = firstWave - replaced
	case settled < firstWave+secondWave:
		room = firstWave + secondWave - replaced
	}
	slices.SortFunc(candidates, func(a, b Rollout) int {
		if a.Complete != b.Complete {
			if a.Complete {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Namespace, b.Namespace)
	})
	for _, candidate := range candidates[:min(max(room, 0), len(candidates))] {
		decision.Replace = append(decision.Replace, candidate.Namespace)
	}
	return decision
}
