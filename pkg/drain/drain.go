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
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

const (
	// pageSize is how many pods are in memory at a time, however many a node has.
	pageSize = 50
	// parallel is how many pods of a node are dealt with at a time.
	parallel = 4
	// callTimeout is how long an answer may take. stepTime after its pods are known, a step begins with no more of them.
	// Nobody waits longer than both together for what is slow to answer on another node.
	callTimeout, stepTime = 5 * time.Second, 3 * time.Second
)

// Drainer empties nodes.
type Drainer struct {
	Client kubernetes.Interface

	// positions are where to go on, by the name of a node whose last step ran out of time. Without one, after a restart for
	// example, a step begins with the first pod.
	positions sync.Map
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
func (d *Drainer) Forget(node string) { d.positions.Delete(node) }

// Step brings the drain of a node forward. Evictions respect PodDisruptionBudgets; what is still there after the timeout
// is deleted by force. It returns within seconds, whatever the shoot does: what was not reached comes first in the next
// step. An error means that some pods could not be dealt with; the progress is valid all the same, but if Next is 0 and
// it is not Done: then the pods could not even be listed.
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
		client:    d.Client,
		opts:      opts,
		now:       now,
		reachable: IsReachable(node),
	}
	timed, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	unfinished := false
	for {
		pods = slices.DeleteFunc(pods, func(p pod) bool { return p.key() <= at.after })
		reached := s.dealWith(ctx, timed, pods)
		if reached > 0 {
			at.after = pods[reached-1].key()
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

	progress := s.progress
	progress.Partial = unfinished || resumed
	switch {
	case unfinished:
		progress.Next = minInterval
	case s.left == 0 && progress.Kept == 0 && !resumed:
		progress.Done = true
	default:
		progress.Next = interval(progress, s.reachable, s.unanswered, now.Sub(opts.Since), opts.Timeout)
	}
	return progress, s.err()
}

// list returns a page of the node's pods and the token of the next page, empty for none. kubectl's own list of pods to
// drain keeps all pages, and fails as a whole when it cannot look one DaemonSet up.
func (d *Drainer) list(ctx context.Context, node, page string) ([]pod, string, error) {
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
	pods := make([]pod, len(list.Items))
	for i := range list.Items {
		pods[i] = newPod(&list.Items[i])
	}
	return pods, list.Continue, nil
}

// once makes a request without client-go's own repetitions. These would wait for as long as the answer says: the server,
// or a webhook behind it, would say how long everybody else waits.
func once(request *rest.Request) *rest.Request { return request.MaxRetries(0) }

// step is a step that is being taken.
type step struct {
	client    kubernetes.Interface
	opts      Options
	now       time.Time
	reachable bool

	mutex    sync.Mutex
	progress Progress
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
func (s *step) dealWith(ctx, timed context.Context, pods []pod) int {
	reached := make([]bool, len(pods))
	workqueue.ParallelizeUntil(timed, parallel, len(pods), func(i int) {
		reached[i] = true
		s.deal(ctx, pods[i])
	})
	if i := slices.Index(reached, false); i >= 0 {
		return i
	}
	return len(pods)
}

func (s *step) deal(ctx context.Context, p pod) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	action := plan(p, s.opts, s.reachable, s.now)
	var err error
	if action != leave && p.daemonSet != "" {
		var exists bool
		if exists, err = s.daemonSetExists(ctx, p); exists {
			action = leave
		}
	}
	if err == nil {
		switch action {
		case evict:
			err = s.evict(ctx, p)
		case force:
			err = s.delete(ctx, p)
		}
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.count(p, action, err)
}

func (s *step) count(p pod, action action, err error) {
	switch action {
	case leave:
		return
	case keep:
		if err == nil {
			s.progress.Kept++
			return
		}
	}
	s.left++

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, or one of the same name runs elsewhere. The next list shows it.
	case err != nil:
		s.progress.block(p.namespace, reasonOf(err))
		if errors.Is(err, context.DeadlineExceeded) {
			s.unanswered = true
		} else if !apierrors.IsTooManyRequests(err) {
			s.fail(fmt.Errorf("failed to remove pod %s: %s", p.key(), reasonOf(err)))
		}
	case action == wait:
		s.progress.Waiting++
	case action == evict:
		s.progress.Evicted++
	case action == force:
		s.progress.Forced++
		if p.atRisk(s.reachable) {
			s.progress.ForcedWithVolumes++
		}
	}
}

func (s *step) daemonSetExists(ctx context.Context, p pod) (bool, error) {
	err := once(s.client.AppsV1().RESTClient().Get()).Namespace(p.namespace).Resource("daemonsets").Name(p.daemonSet).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// evict does what the generated client does, but once.
func (s *step) evict(ctx context.Context, p pod) error {
	return once(s.client.PolicyV1().RESTClient().Post()).
		AbsPath("/api/v1").
		Namespace(p.namespace).
		Resource("pods").
		Name(p.name).
		SubResource("eviction").
		Body(&policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: p.name, Namespace: p.namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: thisPod(p)},
		}).
		Do(ctx).
		Error()
}

func (s *step) delete(ctx context.Context, p pod) error {
	return once(s.client.CoreV1().RESTClient().Delete()).
		Namespace(p.namespace).
		Resource("pods").
		Name(p.name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: thisPod(p)}).
		Do(ctx).
		Error()
}

// thisPod keeps a pod of the same name from being removed that was started elsewhere since the pods were listed.
func thisPod(p pod) *metav1.Preconditions { return &metav1.Preconditions{UID: &p.uid} }

func (s *step) fail(err error) {
	s.failed++
	if len(s.errs) < maxNamed {
		s.errs = append(s.errs, err)
	}
}

func (s *step) err() error {
	if more := s.failed - len(s.errs); more > 0 {
		return utilerrors.NewAggregate(append(s.errs, fmt.Errorf("and %d more", more)))
	}
	return utilerrors.NewAggregate(s.errs)
}

// reasonOf returns in few words why a call failed.
func reasonOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", callTimeout)
	}
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return text.Cut(cause.Message)
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return text.Cut(err.Error())
}
