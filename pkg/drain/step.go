// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drain decides how nodes are drained: what happens to which pod, when to look again (D12), and what is reported. It
// uses no client and no clock.
package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// Options say how the drain of a failed node goes about.
type Options struct {
	// Since is when the drain began.
	Since time.Time
	// Timeout is how long after that pods are deleted by force.
	Timeout time.Duration
	// ForceVolumes says to delete pods with volumes by force also from a node that does not answer. If its VM is alive, the
	// same pod then runs twice with the same volume.
	ForceVolumes bool
}

// Policy returns the stages of P7.
func (o Options) Policy() Policy {
	return Policy{Timeout: o.Timeout, Stages: []Stage{
		evict,
		{Name: "force", After: o.Timeout, Selector: Selector{AllPods, AnyState}, Verb: Delete},
	}}
}

// ErrNotReached is the error of an action that there was no time left for.
var ErrNotReached = errors.New("earlier calls took too long")

// Step is a step of the drain of a failed node. It is not for concurrent use.
type Step struct {
	Options
	Now time.Time
	// Reachable says that the node answers.
	Reachable bool
	// Resumed says that the step before did not reach all pods: this one begins with those.
	Resumed bool
	// Deletions are those of earlier steps.
	Deletions Deletions

	progress Progress
	// done are the deletions of this step.
	done []Action
	// left counts the pods that may still be there, without the kept ones.
	left int
	// unanswered says that a call got no answer in time.
	unanswered bool
	// errs are the first errors, and failed is the number of all.
	errs   []error
	failed int
}

// Plan returns what is to be done with the pods, in their order.
func (s *Step) Plan(pods []Pod) []Action {
	for i := range pods {
		pods[i].AtRisk = pods[i].Volumes && !s.Reachable && !s.ForceVolumes
	}
	actions, _, _ := Plan(s.Now, s.Since, pods, nil, s.Deletions, s.Policy())
	return actions
}

// Count counts what became of a pod. The error is that of the action, and the reason says it in few words.
func (s *Step) Count(action Action, err error, reason string) {
	if action.Verb == Keep && err == nil {
		s.progress.Kept++
		return
	}
	s.left++
	if err == nil && (action.Verb == Delete || action.Verb == Terminate) {
		s.done = append(s.done, action)
	}

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, or one of the same name runs elsewhere. The next list shows it.
	case err != nil:
		s.progress.block(action.Pod.Namespace, reason)
		if errors.Is(err, context.DeadlineExceeded) {
			s.unanswered = true
		} else if !apierrors.IsTooManyRequests(err) {
			s.Fail(fmt.Errorf("failed to remove pod %s: %s", action.Pod.Key(), reason))
		}
	case action.Verb == Wait && action.Pod.Forced:
		s.progress.finalizing(action.Pod.NameAt(s.Now))
	case action.Returned:
		s.progress.Returned++
		if action.Verb != Wait {
			s.progress.Again++
		}
	case action.Verb == Wait:
		s.progress.Waiting++
	case action.Verb == Evict:
		s.progress.Evicted++
	case action.Verb == Delete:
		s.progress.Forced++
		if action.Pod.Volumes && !s.Reachable {
			s.progress.ForcedWithVolumes++
		}
	}
}

// Fail takes down an error.
func (s *Step) Fail(err error) {
	s.failed++
	if len(s.errs) < maxNamed {
		s.errs = append(s.errs, err)
	}
}

// End returns what the step found and did, and notes what it deleted in the deletions. Unfinished says that it did not reach all pods.
func (s *Step) End(unfinished bool) Progress {
	progress := s.progress
	progress.NewReturns = s.Deletions.Note(s.done, s.Now)
	progress.Partial = unfinished || s.Resumed
	if more := s.failed - len(s.errs); more > 0 {
		s.errs = append(s.errs, errors.New(brief.More(more)))
	}
	progress.Incomplete = utilerrors.NewAggregate(s.errs)
	switch {
	case unfinished:
		progress.Next = minInterval
	case s.left == 0 && progress.Kept == 0 && !s.Resumed:
		progress.Done = true
	default:
		progress.Next = interval(progress, s.Reachable, s.unanswered, s.Now.Sub(s.Since), s.Timeout)
	}
	return progress
}
