// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

const (
	minInterval = time.Second
	maxInterval = 15 * time.Second
	// idleInterval is for a node on which nothing happens before the timeout: its kubelet is dead and all pods are
	// evicted.
	idleInterval = time.Minute
	// keptInterval is for a node on which all that is left is kept. It is only for what is not seen on the node itself: a
	// pod that is gone, and the pool's setting.
	keptInterval = 5 * time.Minute

	// maxNamed is how many blockers are named, and maxBlockers how many are told apart and counted.
	maxNamed, maxBlockers = 5, 100
)

// Progress is what a step found and did.
type Progress struct {
	// Evicted pods were asked to go in this step; Waiting ones have been asked before and are still there.
	Evicted, Waiting int
	// Forced pods were deleted without waiting for the kubelet, because the drain timeout has passed. ForcedWithVolumes are those
	// among them that have volumes on a node that does not answer.
	Forced, ForcedWithVolumes int
	// Returned pods came back after others of their owner were deleted by force. They have their grace period, and Again are
	// those that were deleted in this step.
	Returned, Again int
	// NewReturns are the owners whose pods were found to have come back in this step, each once.
	NewReturns []string
	// Finalizing are pods that were deleted by force and that their finalizers keep, named with these: sorted, at most 100.
	Finalizing []string
	// Kept pods have volumes on a node that does not answer: they are left alone, because the VM may still be running them.
	Kept int
	// BlockedBy says for each pod that could not be removed why, for example by which PodDisruptionBudget: sorted, without
	// duplicates, at most 100, each with at most 128 printable characters of what the shoot answered.
	BlockedBy []string
	// Partial says that the node has further pods than those counted here: a step that runs out of time leaves them to the
	// next one.
	Partial bool
	// Incomplete says which pods could not be dealt with, nil for none.
	Incomplete error
	// Done says that nothing is left to do.
	Done bool
	// Next is after which time to take the next step. Zero if Done.
	Next time.Duration
}

// OnlyKept says that all pods are dealt with but for those that are kept.
func (p Progress) OnlyKept() bool {
	return p.Kept > 0 && p.Evicted+p.Waiting+p.Forced+p.Returned+len(p.Finalizing)+len(p.BlockedBy) == 0 && !p.Partial
}

// String returns the progress in words, for the node's condition. At most five blockers are named.
func (p Progress) String() string {
	var parts []string
	for _, part := range []struct {
		count int
		text  string
	}{
		{p.Evicted, "evicted"},
		{p.Waiting, "terminating"},
		{p.Forced, "deleted by force"},
		{p.ForcedWithVolumes, "of them with volumes that the VM may still use"},
		{p.Returned, "came back after others of their owner were deleted by force"},
		{p.Kept, "kept, because they use volumes and the VM may still run them"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.text))
		}
	}
	var clauses []string
	if len(parts) > 0 {
		clauses = append(clauses, strings.Join(parts, ", "))
	}
	if len(p.Finalizing) > 0 {
		clauses = append(clauses, "kept by finalizers: "+strings.Join(brief.First(p.Finalizing, maxNamed), "; "))
	}
	if len(p.BlockedBy) > 0 {
		clauses = append(clauses, "blocked: "+strings.Join(brief.First(p.BlockedBy, maxNamed), "; "))
	}
	if p.Partial {
		clauses = append(clauses, "other pods follow")
	}
	if len(clauses) == 0 {
		return "Pods: none."
	}
	return "Pods: " + strings.Join(clauses, "; ") + "."
}

// block keeps the order: the text must not change with the order in which pods are answered for.
func (p *Progress) block(namespace, reason string) {
	p.BlockedBy = insert(p.BlockedBy, fmt.Sprintf("namespace %s: %s", namespace, reason))
}

func (p *Progress) finalizing(name string) { p.Finalizing = insert(p.Finalizing, name) }

func insert(list []string, text string) []string {
	if i, found := slices.BinarySearch(list, text); !found && len(list) < maxBlockers {
		return slices.Insert(list, i, text)
	}
	return list
}

// interval grows with the age of the drain, and never reaches beyond the timeout. A node that leaves calls unanswered, or
// has more pods than a step reaches, takes time that other nodes need, too.
func interval(p Progress, reachable, unanswered bool, age, timeout time.Duration) time.Duration {
	next := min(max(age/4, minInterval), maxInterval)
	switch {
	case p.Partial || unanswered:
		next = maxInterval
	case p.OnlyKept():
		next = keptInterval
	case !reachable && p.Evicted == 0 && p.Forced == 0 && p.Again == 0 && len(p.BlockedBy) == 0:
		next = idleInterval
	}
	if left := timeout - age; left > 0 {
		next = min(next, left)
	}
	return next
}
