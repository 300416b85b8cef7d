// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

const (
	// parallel is how many pods of a node are dealt with at a time.
	parallel = 4
	// callTimeout is how long an answer may take. stepTime after its pods are known, a step begins with no more of them.
	// Nobody waits longer than both together for what is slow to answer on another node.
	callTimeout, stepTime = 5 * time.Second, 3 * time.Second
	// podsPage is how many pods of a node are in memory at a time. Where all are to be known, of no more than maxPods a few words are
	// kept: kube-controller-manager leaves 12,500 that have ended in a cluster, and a node has hundreds of others at most. What users
	// wrote on them may have maxPodBytes, and their list may take listTime.
	podsPage, maxPods, maxPodBytes, listTime = 50, 20_000, 32 << 20, 30 * time.Second
	// budgetsPage is how many PodDisruptionBudgets of a namespace are in memory at a time. maxBudgets is how many bytes may be kept of
	// those of all namespaces; each has the same part of it, so that none can take it from the others. maxBudgetsOf is how many a
	// namespace may have: each pod is compared with all of them.
	budgetsPage, maxBudgets, maxBudgetsOf = 20, 32 << 20, 5000
)

// Executor carries actions out.
type Executor struct{ Client kubernetes.Interface }

// Execute carries actions out, begins them in their order, and returns the error of each, nil for those that succeeded
// and those whose pod was gone. It returns within seconds, whatever the shoot does (D6).
func (e *Executor) Execute(ctx context.Context, actions []drain.Action) []error {
	timed, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	errs := slices.Repeat([]error{drain.ErrNotReached}, len(actions))
	forEach(ctx, timed, len(actions), func(ctx context.Context, i int) {
		errs[i] = panics.Catch(ctx, func() error { return e.execute(ctx, actions[i]) })
		if apierrors.IsNotFound(errs[i]) || (actions[i].Verb == drain.Delete || actions[i].Verb == drain.Terminate) && apierrors.IsConflict(errs[i]) { // or another one has its name
			errs[i] = nil
		}
	})
	for i, err := range errs {
		if err != nil && !errors.Is(err, drain.ErrNotReached) {
			errs[i] = fmt.Errorf("failed to deal with pod %s: %s", actions[i].Pod.Key(), reasonOf(err))
		}
	}
	return errs
}

// Budgets returns the PodDisruptionBudgets of namespaces. An error says of which they are not known. It returns within
// seconds, like Execute.
func (e *Executor) Budgets(ctx context.Context, namespaces []string) (drain.Budgets, error) {
	timed, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	known := make([]drain.Budgets, len(namespaces))
	errs := slices.Repeat([]error{drain.ErrNotReached}, len(namespaces))
	forEach(ctx, timed, len(namespaces), func(ctx context.Context, i int) {
		errs[i] = panics.Catch(ctx, func() (err error) {
			known[i], err = e.budgetsOf(ctx, namespaces[i], maxBudgets/len(namespaces))
			return err
		})
	})

	budgets := drain.Budgets{}
	for i, namespace := range namespaces {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("failed to list the PodDisruptionBudgets of namespace %s: %s", namespace, reasonOf(errs[i]))
			continue
		}
		maps.Copy(budgets, known[i])
	}
	return budgets, utilerrors.NewAggregate(errs)
}

// budgetsOf returns the budgets of a namespace, all of them or an error, for which it takes no more than that many bytes to know them.
func (e *Executor) budgetsOf(ctx context.Context, namespace string, most int) (drain.Budgets, error) {
	var (
		budgets drain.Budgets
		size    int
	)
	err := paging.Each(ctx, metav1.ListOptions{Limit: budgetsPage}, maxBudgetsOf, func(ctx context.Context, opts metav1.ListOptions) (*policyv1.PodDisruptionBudgetList, error) {
		page := &policyv1.PodDisruptionBudgetList{}
		return page, once(e.Client.PolicyV1().RESTClient().Get()).Namespace(namespace).Resource("poddisruptionbudgets").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Into(page)
	}, func() { budgets, size = drain.Budgets{}, 0 }, func(page *policyv1.PodDisruptionBudgetList) error {
		if size += sizeOf(page.Items); size > most {
			return fmt.Errorf("their selectors have more than %d bytes", most)
		}
		budgets.Know(namespace, page.Items)
		return nil
	})
	return budgets, err
}

// sizeOf returns about how many bytes it takes to know budgets.
func sizeOf(budgets []policyv1.PodDisruptionBudget) int {
	size := 0
	for i := range budgets {
		if size += 128; budgets[i].Spec.Selector != nil {
			size += budgets[i].Spec.Selector.Size() + 160*len(budgets[i].Spec.Selector.MatchLabels)
			for _, expression := range budgets[i].Spec.Selector.MatchExpressions {
				size += 160 + 64*len(expression.Values)
			}
		}
	}
	return size
}

// forEach calls a function with the numbers below count, in their order and some at a time, until timed is over. Each has
// the time for a call. It returns how many of the first numbers were reached; some behind them may have been as well. The
// function must not panic, or the process ends.
func forEach(ctx, timed context.Context, count int, deal func(ctx context.Context, i int)) int {
	reached := make([]bool, count)
	workqueue.ParallelizeUntil(timed, parallel, count, func(i int) {
		reached[i] = true
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		deal(ctx, i)
	})
	if i := slices.Index(reached, false); i >= 0 {
		return i
	}
	return count
}

func (e *Executor) execute(ctx context.Context, action drain.Action) error {
	switch action.Verb {
	case drain.Evict:
		return e.evict(ctx, action.Pod)
	case drain.Delete:
		return e.delete(ctx, action.Pod, new(int64(0)))
	case drain.Terminate:
		return e.delete(ctx, action.Pod, nil)
	case drain.RemoveFinalizers:
		return e.removeFinalizers(ctx, action.Pod)
	}
	return nil
}

// evict does what the generated client does, but once.
func (e *Executor) evict(ctx context.Context, p drain.Pod) error {
	return once(e.Client.PolicyV1().RESTClient().Post()).
		AbsPath("/api/v1").
		Namespace(p.Namespace).
		Resource("pods").
		Name(p.Name).
		SubResource("eviction").
		Body(&policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: thisPod(p)},
		}).
		Do(ctx).
		Error()
}

// delete leaves a pod that many seconds, nil for its own grace period.
func (e *Executor) delete(ctx context.Context, p drain.Pod, grace *int64) error {
	return once(e.Client.CoreV1().RESTClient().Delete()).
		Namespace(p.Namespace).
		Resource("pods").
		Name(p.Name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: thisPod(p)}).
		Do(ctx).
		Error()
}

// removeFinalizers is refused if the pod is another one, or has changed since it was looked at: whoever works on it in
// the meantime may be about to be done with it.
func (e *Executor) removeFinalizers(ctx context.Context, p drain.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "finalizers": nil,
	}})
	if err != nil {
		return err
	}
	return once(e.Client.CoreV1().RESTClient().Patch(types.MergePatchType)).
		Namespace(p.Namespace).
		Resource("pods").
		Name(p.Name).
		Body(patch).
		Do(ctx).
		Error()
}

// thisPod keeps a pod of the same name from being removed that was started elsewhere since the pods were listed.
func thisPod(p drain.Pod) *metav1.Preconditions { return &metav1.Preconditions{UID: &p.UID} }

// once makes a request without client-go's own repetitions. After a lost connection, a read would be repeated until callTimeout.
// Where the answer says how long to wait, so long would the repetition: the server, or a webhook behind it, would say how long
// everybody else waits.
func once(request *rest.Request) *rest.Request { return request.MaxRetries(0) }

// reasonOf returns in few words why a call failed, nothing if it did not.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", callTimeout)
	}
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return brief.Cut(cause.Message)
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return brief.Cut(err.Error())
}
