// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drain empties a node step by step. A step lists the pods, asks for evictions, and returns: nothing waits but
// for answers, and for these not long, so that a handful of goroutines drain any number of nodes at the same time (P7).
package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// pageSize is how many pods are in memory at a time, however many a node has.
const pageSize = 50

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
		{Name: "evict", Selector: Selector{AllPods, NotTerminating}, Verb: Evict},
		{Name: "force", After: o.Timeout, Selector: Selector{AllPods, AnyState}, Verb: Delete},
	}}
}

// Drainer empties nodes.
type Drainer struct {
	Client kubernetes.Interface

	// positions are where to go on, by the name of a node whose last step ran out of time. Without one, after a restart for
	// example, a step begins with the first pod.
	positions sync.Map
	// deletions are what was deleted by force, by the name of a node.
	deletions sync.Map
}

// position is a place in the list of a node's pods.
type position struct {
	// page is the token of a page, empty for the first, and after the key of the last pod there that was dealt with.
	page, after string
}

// IsReachable says that the node answers: a pod that was deleted there has ended.
func IsReachable(node *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// Forget drops what is known of a node that is no longer drained.
func (d *Drainer) Forget(node string) {
	d.positions.Delete(node)
	d.deletions.Delete(node)
}

// Step brings the drain of a node forward. Evictions respect PodDisruptionBudgets; what is still there after the timeout
// is deleted by force. It returns within seconds, whatever the shoot does: what was not reached comes first in the next
// step. An error means that nothing was done, as the pods could not be listed.
func (d *Drainer) Step(ctx context.Context, node *corev1.Node, opts Options, now time.Time) (Progress, error) {
	var at position
	if v, ok := d.positions.LoadAndDelete(node.Name); ok {
		at = v.(position)
	}
	resumed := at != position{}

	pods, next, err := d.list(ctx, node.Name, at.page)
	if err != nil {
		return Progress{}, err
	}

	s := &step{
		executor:  &Executor{Client: d.Client},
		opts:      opts,
		now:       now,
		reachable: IsReachable(node),
	}
	if v, ok := d.deletions.Load(node.Name); ok {
		s.deletions = v.(Deletions)
	}
	timed, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	unfinished := false
	for {
		pods = slices.DeleteFunc(pods, func(p Pod) bool { return p.Key() <= at.after })
		reached := s.dealWith(ctx, timed, pods)
		if reached > 0 {
			at.after = pods[reached-1].Key()
		}
		if reached < len(pods) {
			unfinished = true
			break
		}
		if next == "" {
			break
		}
		at = position{page: next}
		if unfinished = timed.Err() != nil; unfinished {
			break
		}
		if pods, next, err = d.list(ctx, node.Name, at.page); err != nil {
			unfinished = true
			s.fail(err)
			break
		}
	}
	if unfinished {
		d.positions.Store(node.Name, at)
	}

	if s.deletions == nil && len(s.done) > 0 {
		s.deletions = Deletions{}
		d.deletions.Store(node.Name, s.deletions)
	}
	progress := s.progress
	progress.NewReturns = s.deletions.Note(s.done, now)
	progress.Partial = unfinished || resumed
	progress.Incomplete = s.err()
	switch {
	case unfinished:
		progress.Next = minInterval
	case s.left == 0 && progress.Kept == 0 && !resumed:
		progress.Done = true
		d.deletions.Delete(node.Name)
	default:
		progress.Next = interval(progress, s.reachable, s.unanswered, now.Sub(opts.Since), opts.Timeout)
	}
	return progress, nil
}

// list returns a page of the node's pods and the token of the next page, empty for none. kubectl's own list of pods to
// drain keeps all pages, and fails as a whole when it cannot look one DaemonSet up.
func (d *Drainer) list(ctx context.Context, node, page string) ([]Pod, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	list := &corev1.PodList{}
	if err := once(d.Client.CoreV1().RESTClient().Get()).
		Resource("pods").
		VersionedParams(&metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
			Limit:         pageSize,
			Continue:      page,
		}, scheme.ParameterCodec).
		Do(ctx).
		Into(list); err != nil {
		return nil, "", fmt.Errorf("failed to list the pods of node %s: %s", node, reasonOf(err))
	}
	pods := make([]Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = NewPod(&list.Items[i])
	}
	return pods, list.Continue, nil
}

// step is a step that is being taken.
type step struct {
	executor  *Executor
	opts      Options
	now       time.Time
	reachable bool
	// deletions are those of earlier steps.
	deletions Deletions

	mutex    sync.Mutex
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

// dealWith deals with the pods, in their order, until timed is over. It returns how many of the first pods it has dealt
// with; it may have dealt with some behind them.
func (s *step) dealWith(ctx, timed context.Context, pods []Pod) int {
	for i := range pods {
		pods[i].AtRisk = pods[i].Volumes && !s.reachable && !s.opts.ForceVolumes
	}
	actions, _, _ := Plan(s.now, s.opts.Since, pods, nil, s.deletions, s.opts.Policy())
	return forEach(ctx, timed, len(actions), func(ctx context.Context, i int) { s.deal(ctx, actions[i]) })
}

// deal leaves alone what belongs to its node: mirror pods, and those of a DaemonSet that exists and will not replace them
// as they have not ended.
func (s *step) deal(ctx context.Context, action Action) {
	p := action.Pod
	if p.Mirror {
		return
	}
	stays := false
	err := panics.Catch(ctx, func() (err error) {
		if p.DaemonSet != "" && !p.Finished {
			if stays, err = s.daemonSetExists(ctx, p); stays || err != nil {
				return err
			}
		}
		return s.executor.execute(ctx, action)
	})
	if !stays {
		s.count(action, err)
	}
}

func (s *step) count(action Action, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
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
		s.progress.block(action.Pod.Namespace, reasonOf(err))
		if errors.Is(err, context.DeadlineExceeded) {
			s.unanswered = true
		} else if !apierrors.IsTooManyRequests(err) {
			s.fail(fmt.Errorf("failed to remove pod %s: %s", action.Pod.Key(), reasonOf(err)))
		}
	case action.Verb == Wait && action.Pod.Forced:
		s.progress.finalizing(action.Pod.NameAt(s.now))
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
		if action.Pod.Volumes && !s.reachable {
			s.progress.ForcedWithVolumes++
		}
	}
}

func (s *step) daemonSetExists(ctx context.Context, p Pod) (bool, error) {
	err := once(s.executor.Client.AppsV1().RESTClient().Get()).Namespace(p.Namespace).Resource("daemonsets").Name(p.DaemonSet).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (s *step) fail(err error) {
	s.failed++
	if len(s.errs) < maxNamed {
		s.errs = append(s.errs, err)
	}
}

func (s *step) err() error {
	if more := s.failed - len(s.errs); more > 0 {
		return utilerrors.NewAggregate(append(s.errs, errors.New(text.More(more))))
	}
	return utilerrors.NewAggregate(s.errs)
}
