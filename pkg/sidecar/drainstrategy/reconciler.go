// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drainstrategy helps nodes that machine-controller-manager drains because of an update of the shoot's workers,
// and tells of those that fail to drain. State is in objects: the Machine or the node says since when it is drained, the
// node's condition whether that has failed. In memory are but back-offs, such as that of pods that come back, and when a
// selection that is dated ahead was first seen.
package drainstrategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Executor reads budgets and deals with pods.
type Executor interface {
	Budgets(ctx context.Context, namespaces []string) (drain.Budgets, error)
	Execute(ctx context.Context, actions []drain.Action) []error
}

// Reconciler looks at one node at a time: when something changes that decides on its drain, and at each deadline.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	// Nodes is the shoot.
	Nodes    client.Client
	Pods     drainer.Pods
	Executor Executor
	// Strategies are those of the Shoot.
	Strategies drain.Strategies
	Clock      clock.PassiveClock
	Recorder   events.EventRecorder
	// Backoff puts off what failed on a node.
	Backoff *flowcontrol.Backoff

	// failures are, by the name of a node, how often what is due failed on its pods.
	failures sync.Map
	// deletions are, by the name of a node, what was deleted there by force.
	deletions sync.Map
	// selections are the times of selections that were yet to come.
	selections selections
}

// Reconcile does what is due on a node that is drained because of an update, and forgets any other.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Nodes.Get(ctx, req.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to read the node: %w", err)
	}
	machine, because, since, err := r.cause(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if because == causeNone {
		r.forget(node.Name)
		return reconcile.Result{}, r.setCondition(ctx, node, nil)
	}

	pods, known := r.Pods.Of(node.Name)
	if !known {
		return reconcile.Result{}, nil // it is called when they are
	}
	forceVolumes, err := shoot.ForcesVolumes(ctx, r.Source, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods = r.concerned(pods, !forceVolumes && !drain.IsReachable(node))
	return r.drain(ctx, &nodeDrain{node: node, pods: pods, because: because, since: since, now: r.Clock.Now(), policy: r.Strategies.Policy()})
}

// cause returns the machine of a node, and because of what and since when that is drained.
func (r *Reconciler) cause(ctx context.Context, node *corev1.Node) (*machinev1alpha1.Machine, cause, time.Time, error) {
	machine, err := shoot.MachineOf(ctx, r.Source, node.Name)
	if err != nil || machine == nil || machine.DeletionTimestamp == nil && !preservation.IsSelectedForUpdate(node) {
		return nil, causeNone, time.Time{}, err
	}
	update, err := shoot.UpdateOf(ctx, r.Source, machine)
	if err != nil {
		return nil, causeNone, time.Time{}, err
	}
	because, since := causeOf(machine, node, update)
	if because == causeInPlaceUpdate {
		since = r.selections.bound(node, since, notBefore(machine, update), r.Clock.Now())
	}
	return machine, because, since, nil
}

// concerned returns the pods that a drain waits for (D3), with what is known of them here.
func (r *Reconciler) concerned(pods []drain.Pod, silent bool) []drain.Pod {
	var concerned []drain.Pod
	for _, pod := range pods {
		if pod.Belongs() {
			continue
		}
		pod.AtRisk = silent && pod.Volumes
		pod.Ignored = r.Strategies.Ignores(pod.Namespace)
		concerned = append(concerned, pod)
	}
	return concerned
}

// nodeDrain is the drain of a node as it is now.
type nodeDrain struct {
	node       *corev1.Node
	pods       []drain.Pod
	because    cause
	since, now time.Time
	policy     drain.Policy
}

// drain does what is due, and shows how the drain goes.
func (r *Reconciler) drain(ctx context.Context, d *nodeDrain) (reconcile.Result, error) {
	budgets, budgetsErr := r.budgets(ctx, d)
	actions, next, failed := drain.Plan(d.now, d.since, d.pods, budgets, r.deletionsOf(d.node.Name), d.policy)
	actErr := errors.Join(budgetsErr, r.act(ctx, d, actions))

	// Once failed, it stays so until the drain ends, also across a restart.
	before := conditionOf(d.node)
	failedBefore := d.hasFailed(before)
	failed = len(d.pods) > 0 && (failed || failedBefore)
	if failed {
		timedOut.WithLabelValues(d.node.Name).Set(1)
	} else {
		timedOut.DeleteLabelValues(d.node.Name)
	}
	if err := r.setCondition(ctx, d.node, d.condition(actions, failed, before)); err != nil {
		return reconcile.Result{}, err
	}
	if failed && !failedBefore {
		r.tell(d.node, corev1.EventTypeWarning, EventDrainTimedOut, "%s", d.leftText())
	}

	result := reconcile.Result{}
	if !next.IsZero() {
		result.RequeueAfter = next.Sub(d.now)
	}
	if actErr == nil {
		r.Backoff.DeleteEntry(d.node.Name)
		return result, nil
	}
	logf.FromContext(ctx).Error(actErr, "Not everything could be done that was due")
	r.Backoff.Next(d.node.Name, d.now)
	if retry := r.Backoff.Get(d.node.Name); result.RequeueAfter == 0 || retry < result.RequeueAfter {
		result.RequeueAfter = retry
	}
	return result, nil
}

// budgets returns those of the namespaces of pods that something may be due for, and nothing before that.
func (r *Reconciler) budgets(ctx context.Context, d *nodeDrain) (drain.Budgets, error) {
	if !slices.ContainsFunc(d.policy.Stages, func(s drain.Stage) bool { return !d.now.Before(d.since.Add(s.After)) }) {
		return nil, nil
	}
	namespaces := sets.New[string]()
	for _, pod := range d.pods {
		if !pod.Ignored {
			namespaces.Insert(pod.Namespace)
		}
	}
	return r.Executor.Budgets(ctx, sets.List(namespaces))
}

// act carries out what is due, in the order of the stages, and tells what was done. A pod on which it fails does not stop
// it.
func (r *Reconciler) act(ctx context.Context, d *nodeDrain, actions []drain.Action) error {
	var due []drain.Action
	for i := range d.policy.Stages {
		for _, action := range actions {
			if action.Stage == &d.policy.Stages[i] && action.Verb != drain.Keep {
				due = append(due, action)
			}
		}
	}
	if len(due) == 0 {
		r.failures.Delete(d.node.Name)
		return nil
	}
	// Pods that hang, as a webhook does, must not take the time of those that do not.
	before, after := r.failuresOf(d.node.Name), map[types.UID]int{}
	slices.SortStableFunc(due, func(a, b drain.Action) int { return cmp.Compare(before[a.Pod.UID], before[b.Pod.UID]) })

	var (
		errs    = r.Executor.Execute(ctx, due)
		done    = map[*drain.Stage][]drain.Pod{}
		carried []drain.Action
	)
	for i, action := range due {
		after[action.Pod.UID] = before[action.Pod.UID]
		switch {
		case errs[i] == nil:
			if carried = append(carried, action); action.Returned {
				continue // of these, one Event tells for all
			}
			done[action.Stage] = append(done[action.Stage], action.Pod)
			r.tellPod(d, action)
		case !errors.Is(errs[i], drain.ErrNotReached):
			after[action.Pod.UID]++
		}
	}
	r.failures.Store(d.node.Name, after)
	if owners := r.deletionsOf(d.node.Name).Note(carried, d.now); len(owners) > 0 {
		r.tell(d.node, corev1.EventTypeWarning, EventPodsCameBack, "%s", drain.ReturnsText(owners))
	}
	if len(carried) > 0 {
		r.Backoff.DeleteEntry(d.node.Name)
	}
	for i := range d.policy.Stages {
		if pods := done[&d.policy.Stages[i]]; len(pods) > 0 {
			r.tellStage(d, &d.policy.Stages[i], pods)
		}
	}
	err := utilerrors.NewAggregate(firstOf(errs))
	if err != nil && slices.ContainsFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, drain.ErrNotReached) }) {
		r.tell(d.node, corev1.EventTypeWarning, EventStrategyFailed, "%s", err)
	}
	return err
}

func (r *Reconciler) failuresOf(node string) map[types.UID]int {
	if failures, ok := r.failures.Load(node); ok {
		return failures.(map[types.UID]int)
	}
	return nil
}

// deletionsOf returns what was deleted on a node. Only the one who looks at the node uses it.
func (r *Reconciler) deletionsOf(node string) drain.Deletions {
	deletions, _ := r.deletions.LoadOrStore(node, drain.Deletions{})
	return deletions.(drain.Deletions)
}

// firstOf returns the first errors. Each is short, and there may be as many as pods.
func firstOf(errs []error) []error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if more := len(errs) - maxNamed; more > 0 {
		return append(errs[:maxNamed], errors.New(text.More(more)))
	}
	return errs
}

// forget drops what is known of a node that is not drained, or not any more.
func (r *Reconciler) forget(node string) {
	r.Pods.Forget(node)
	r.Backoff.DeleteEntry(node)
	r.failures.Delete(node)
	r.deletions.Delete(node)
	r.selections.forget(node)
	timedOut.DeleteLabelValues(node)
}
