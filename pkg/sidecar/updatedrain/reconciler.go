// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package updatedrain applies drain strategies to nodes that machine-controller-manager drains because of an update of the
// shoot's workers, and reports nodes that do not drain in time. State is in objects: the Machine or the node says since when it
// is drained, and the node's condition whether the drain has failed. Only back-offs, such as for pods that come back, and when a
// selection that is dated ahead was first seen, are in memory.
package updatedrain

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain/update"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
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
	// Conditions says that others see in conditions of a node that it is being drained (D13).
	Conditions bool
	Clock      clock.PassiveClock
	Recorder   events.EventRecorder
	// Backoff puts off what failed on a node.
	Backoff *flowcontrol.Backoff

	memories sync.Map // *memory by the name of a node
}

// memory is what is remembered of a node.
type memory struct {
	ahead     update.Ahead
	deletions drain.Deletions
	failures  map[types.UID]int
}

// Reconcile does what is due on a node that is drained because of an update, and forgets any other.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, err := shoot.ReadNode(ctx, r.Nodes, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if node == nil {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	machine, err := shoot.MachineOf(ctx, r.Source, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	missed := facts.Missed{}
	if update.MayConcern(machine, node) {
		if missed, err = shoot.NewPools(r.Source).UpdateOf(ctx, machine); err != nil {
			return reconcile.Result{}, err
		}
	}
	value, _ := r.memories.LoadOrStore(node.Name, &memory{deletions: drain.Deletions{}})
	var (
		m   = value.(*memory)
		now = r.Clock.Now()
		f   = update.Facts{Node: node, Strategies: &r.Strategies, Conditions: r.Conditions, Deletions: m.deletions, Failures: m.failures}
	)
	f.Drain, m.ahead = update.DrainOf(machine, node, missed, m.ahead, now)
	if f.Drain == (update.Drain{}) {
		r.forget(node.Name)
		return reconcile.Result{}, executor.Apply(ctx, r.Nodes, update.Show(node, nil, r.Conditions, now)).Err()
	}

	var known bool
	if f.Pods, known = r.Pods.Of(node.Name); !known {
		return reconcile.Result{}, nil // it is called when they are
	}
	if f.ForceVolumes, err = shoot.ForcesVolumes(ctx, r.Source, machine); err != nil {
		return reconcile.Result{}, err
	}
	var budgetsErr error
	if namespaces := f.NeedsBudgets(now); len(namespaces) > 0 {
		f.Budgets, budgetsErr = r.Executor.Budgets(ctx, namespaces)
	}
	decision := update.Decide(f, now)
	outcome := decision.Outcome(r.Executor.Execute(ctx, decision.Due))
	m.failures = outcome.Failures
	r.tell(node, outcome.Events...)
	if decision.Failed {
		timedOut.WithLabelValues(node.Name).Set(1)
	} else {
		timedOut.DeleteLabelValues(node.Name)
	}
	if err := executor.Apply(ctx, r.Nodes, decision.Write).Err(); err != nil {
		return reconcile.Result{}, err
	}
	if decision.JustFailed {
		r.tell(node, decision.TimedOut())
	}

	result := reconcile.Result{}
	if !decision.Next.IsZero() {
		result.RequeueAfter = decision.Next.Sub(now)
	}
	failure := errors.Join(budgetsErr, outcome.Err)
	if failure == nil || outcome.Progress {
		r.Backoff.DeleteEntry(node.Name)
	}
	if failure != nil {
		logf.FromContext(ctx).Error(failure, "Not everything could be done that was due")
		r.Backoff.Next(node.Name, now)
		if retry := r.Backoff.Get(node.Name); result.RequeueAfter == 0 || retry < result.RequeueAfter {
			result.RequeueAfter = retry
		}
	}
	return result, nil
}

func (r *Reconciler) tell(node *corev1.Node, told ...update.Event) {
	for _, event := range told {
		var regarding client.Object = node
		if p := event.Pod; p != nil {
			regarding = &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			}
		}
		eventType := corev1.EventTypeNormal
		if event.Warning {
			eventType = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(regarding, nil, eventType, event.Reason, event.Action, "%s", brief.Note(event.Note))
	}
}

// forget drops what is known of a node that is not drained, or not any more.
func (r *Reconciler) forget(node string) {
	r.Pods.Forget(node)
	r.Backoff.DeleteEntry(node)
	r.memories.Delete(node)
	timedOut.DeleteLabelValues(node)
}
