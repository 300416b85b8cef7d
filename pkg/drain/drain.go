// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drain empties a node step by step. A step lists the pods, asks for evictions, and returns: nothing waits and
// nothing sleeps, so that a handful of goroutines drain any number of nodes at the same time (P7).
package drain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
)

const (
	minInterval = time.Second
	maxInterval = 15 * time.Second
	// idleInterval is for a node on which nothing happens before the timeout: its kubelet is dead and all pods are
	// evicted.
	idleInterval = time.Minute
)

// Progress is what a step found and did.
type Progress struct {
	// Evicted pods were asked to go in this step; Waiting ones have been asked before and are still there.
	Evicted, Waiting int
	// Forced pods were deleted without waiting for the kubelet, as the drain timeout has passed. ForcedWithVolumes are those
	// among them that have volumes on a node that does not answer.
	Forced, ForcedWithVolumes int
	// Kept pods have volumes on a node that does not answer: they are left alone, as the VM may still be running them.
	Kept int
	// BlockedBy says for each eviction that was refused which PodDisruptionBudget it was, without duplicates.
	BlockedBy []string
	// Done says that nothing is left to do.
	Done bool
	// Next is after which time to take the next step. Zero if Done.
	Next time.Duration
}

// String returns the progress in words, for the node's condition.
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
		{p.Kept, "kept as they use volumes and the VM may still run them"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.text))
		}
	}
	var clauses []string
	if len(parts) > 0 {
		clauses = append(clauses, strings.Join(parts, ", "))
	}
	if len(p.BlockedBy) > 0 {
		clauses = append(clauses, "blocked: "+strings.Join(p.BlockedBy, "; "))
	}
	if len(clauses) == 0 {
		return "Pods: none."
	}
	return "Pods: " + strings.Join(clauses, "; ") + "."
}

// Options say how a drain goes about.
type Options struct {
	// Since is when the drain began.
	Since time.Time
	// Timeout is how long after that pods are deleted by force.
	Timeout time.Duration
	// ForceVolumes says to delete pods with volumes by force also from a node that does not answer. If its VM is alive, the
	// same pod then runs twice with the same volume.
	ForceVolumes bool
}

// Drainer empties nodes.
type Drainer struct {
	Client kubernetes.Interface
}

// Step brings the drain of a node forward. Evictions respect PodDisruptionBudgets; what is still there after the timeout
// is deleted by force. An error means that some pods could not be dealt with; the progress is valid all the same, but if
// Next is 0 and it is not Done: then the pods could not even be listed.
func (d *Drainer) Step(ctx context.Context, node *corev1.Node, opts Options, now time.Time) (Progress, error) {
	helper := &drain.Helper{
		Ctx:                 ctx,
		Client:              d.Client,
		Force:               true,
		IgnoreAllDaemonSets: true,
		DeleteEmptyDirData:  true,
		Out:                 io.Discard,
		ErrOut:              io.Discard,
	}

	list, errs := helper.GetPodsForDeletion(node.Name)
	if len(errs) > 0 {
		return Progress{}, fmt.Errorf("failed to list the pods of node %s: %w", node.Name, utilerrors.NewAggregate(errs))
	}

	var (
		progress    Progress
		pods        = list.Pods()
		reachable   = isReady(node)
		timedOut    = !now.Before(opts.Since.Add(opts.Timeout))
		dealWithPod = func(pod *corev1.Pod) error {
			atRisk := !reachable && usesVolumes(pod)
			switch {
			case timedOut && atRisk && !opts.ForceVolumes:
				progress.Kept++
				return nil
			case timedOut:
				progress.Forced++
				if atRisk {
					progress.ForcedWithVolumes++
				}
				return d.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
					GracePeriodSeconds: new(int64(0)),
					Preconditions:      thisPod(pod),
				})
			case pod.DeletionTimestamp != nil:
				progress.Waiting++
				return nil
			}
			err := d.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: thisPod(pod)},
			})
			if apierrors.IsTooManyRequests(err) {
				progress.block(pod, err)
				return nil
			}
			if err == nil {
				progress.Evicted++
			}
			return err
		}
	)
	errs = nil
	for i := range pods {
		if err := dealWithPod(&pods[i]); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("failed to remove pod %s/%s: %w", pods[i].Namespace, pods[i].Name, err))
		}
	}

	progress.Done = len(pods) == progress.Kept && len(errs) == 0
	if !progress.Done {
		progress.Next = interval(progress, reachable, now.Sub(opts.Since), opts.Timeout)
	}
	return progress, utilerrors.NewAggregate(errs)
}

// interval grows with the age of the drain, and never reaches beyond the timeout.
func interval(p Progress, reachable bool, age, timeout time.Duration) time.Duration {
	next := min(max(age/4, minInterval), maxInterval)
	if !reachable && p.Evicted == 0 && p.Forced == 0 && len(p.BlockedBy) == 0 {
		next = idleInterval
	}
	if left := timeout - age; left > 0 {
		next = min(next, left)
	}
	return next
}

func (p *Progress) block(pod *corev1.Pod, err error) {
	reason := err.Error()
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		reason = cause.Message
	}
	if text := fmt.Sprintf("namespace %s: %s", pod.Namespace, reason); !slices.Contains(p.BlockedBy, text) {
		p.BlockedBy = append(p.BlockedBy, text)
	}
}

// thisPod keeps a pod of the same name from being removed that was started elsewhere since the pods were listed.
func thisPod(pod *corev1.Pod) *metav1.Preconditions { return &metav1.Preconditions{UID: &pod.UID} }

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// usesVolumes says that the same pod, started elsewhere, would share storage with this one.
func usesVolumes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}
