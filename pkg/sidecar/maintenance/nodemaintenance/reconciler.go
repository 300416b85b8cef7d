// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package nodemaintenance carries out the NodeMaintenances of each node: it prepares the node, hands it over, and takes it back.
// All state is in objects.
package nodemaintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// maxSteps is more than there are steps from one end of a maintenance to the other.
const maxSteps = 40

// Executor deals with pods.
type Executor interface {
	Execute(ctx context.Context, actions []drain.Action) []error
}

// Reconciler looks at one node at a time: when something changes that decides on its maintenances, and at each deadline.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	// Shoot reads from a cache with maintenance.IndexNode.
	Shoot maintenance.Client
	// Config returns the configuration that counts, nil if there is none or nobody knows.
	Config func(context.Context) (*v1alpha1.MaintenanceOperatorConfig, error)
	// Nodes reads nodes from a cache. Live reads them, and NodeMaintenances, from the API server.
	Nodes, Live client.Reader
	Pods        drainer.Pods
	// ReadPods reads the pods of a node from the API server.
	ReadPods func(ctx context.Context, node string) ([]drain.Pod, error)
	Executor Executor
	// Namespaces are those from which objects are taken.
	Namespaces domain.Namespaces
	// Preservation is how machines are preserved, without what is of a single MachineDeployment.
	Preservation preservation.Group
	Clock        clock.PassiveClock
	Recorder     events.EventRecorder
	// Evictions puts off evictions that were refused, and Cordons cordons that somebody takes away.
	Evictions, Cordons *flowcontrol.Backoff

	memories sync.Map // *memory by the name of a node
}

// memory is what is remembered of a node.
type memory struct {
	domain.Memory
	// phases are since when a NodeMaintenance is in a phase.
	phases map[types.UID]since
}

type since struct {
	phase string
	time  time.Time
}

// Reconcile does what is due for the maintenances of a node. One write follows the other, until there is nothing to do but
// to wait.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Shoot.Known() {
		return reconcile.Result{}, nil // it is called when they are
	}
	facts, err := r.read(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if facts == nil {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	value, _ := r.memories.LoadOrStore(req.Name, &memory{phases: map[types.UID]since{}})
	m := value.(*memory)
	facts.Memory = m.Memory

	outcome, err := r.run(ctx, req.Name, facts, m)
	m.Memory = facts.Memory
	next, overdueErr := r.tellOverdue(ctx, req.Name, facts)
	next, err = pace.Earliest(outcome.Next, next), errors.Join(err, overdueErr)
	if isUnderWay(err) { // what is watched is needed when it is tried again
		return reconcile.Result{}, err
	}
	if !outcome.WatchPods {
		r.Pods.Forget(req.Name)
		r.Evictions.DeleteEntry(req.Name)
		m.Refused, m.EvictAfter = nil, time.Time{}
	}
	if next.IsZero() {
		return reconcile.Result{}, err
	}
	after := pace.Until(next, r.Clock.Now())
	switch { // what cannot be written of others keeps nothing from its time (P12)
	case pace.OnlyConflicts(err):
		after = min(after, pace.MinRetry)
	case err != nil:
		logf.FromContext(ctx).Error(err, "Failed to write another maintenance of the node")
		after = min(after, pace.MaxRetry)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// read returns what is known of a node, nil for nothing that matters.
func (r *Reconciler) read(ctx context.Context, name string) (*domain.Facts, error) {
	list := &v1alpha1.NodeMaintenanceList{}
	if err := r.Shoot.List(ctx, list, client.MatchingFields{maintenance.IndexNode: name}); err != nil {
		return nil, fmt.Errorf("failed to list the NodeMaintenances: %w", err)
	}
	node := &corev1.Node{}
	if len(list.Items) == 0 {
		if err := r.Nodes.Get(ctx, client.ObjectKey{Name: name}, node); err != nil || !domain.IsMarked(node) {
			return nil, client.IgnoreNotFound(err)
		}
	}
	known := &domain.Facts{Node: node, Namespaces: r.Namespaces, DrainConditions: r.Preservation.DrainConditions}
	for i := range list.Items {
		known.Maintenances = append(known.Maintenances, &list.Items[i])
	}
	if name == "" || len(content.IsPathSegmentName(name)) > 0 { // of no node: the client would refuse to ask for it
		known.Node = nil
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, executor.Timeout)
	defer cancel()
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("failed to read the node: %w", brief.CutError(err))
		}
		known.Node = nil
		return known, nil
	}
	var err error
	pools := shoot.NewPools(r.Source)
	if known.Machine, err = maintenance.MachineOf(ctx, pools, name, facts.IsUpdatedInPlace(node)); err != nil {
		return nil, err
	}
	known.Machine.Hold, err = maintenance.HoldOf(ctx, pools, r.Preservation, node, r.Clock.Now())
	return known, err
}

// run decides and carries out until there is nothing to do but to wait, or nothing succeeds. It returns the last outcome.
func (r *Reconciler) run(ctx context.Context, node string, facts *domain.Facts, m *memory) (domain.Outcome, error) {
	var (
		outcome domain.Outcome
		readErr error
	)
	for range maxSteps {
		now := r.Clock.Now()
		outcome = domain.Decide(*facts, now)
		if !outcome.ReadMaintenances { // else those that are there may be others
			m.observe(facts.Maintenances, now)
			facts.EndingSince = outcome.EndingSince
		}

		changed, err := r.write(ctx, facts, &outcome)
		if outcome.PutBack {
			r.Cordons.Next(node, now)
			facts.CordonedAt, facts.CordonAfter = now, now.Add(r.Cordons.Get(node))
		}
		for _, event := range outcome.Events {
			r.tell(ctx, event)
		}
		if changed {
			continue
		}
		// What is under way may have been deleted, or changed, since it was read.
		if isUnderWay(err) {
			return outcome, errors.Join(readErr, err)
		}
		// What else cannot be written is tried again later. It is not what the rest depends on.
		switch {
		case outcome.ReadMaintenances:
			if failed := r.readLive(ctx, facts); failed != nil {
				return outcome, errors.Join(underWayError{failed}, err)
			}
		case outcome.WatchPods && !facts.PodsKnown:
			if facts.Pods, facts.PodsKnown = r.Pods.Of(node); !facts.PodsKnown {
				return outcome, err // it is called when they are
			}
		case outcome.ReadPods:
			if pods, failed := r.ReadPods(ctx, node); failed != nil {
				facts.PodsUnread, readErr = true, underWayError{failed}
			} else {
				facts.Pods, facts.PodsLive = pods, true
			}
		case len(outcome.Actions) > 0:
			r.act(ctx, node, facts, outcome.Actions)
		default:
			return outcome, errors.Join(readErr, err)
		}
	}
	return outcome, underWayError{errors.New("there is always something left to do")}
}

// underWayError is an error of a write on the node or on a maintenance that is under way, or of what else that needs. It is a type,
// because a sentinel that is joined to a conflict ("%w: %w") is none itself: pace.OnlyConflicts would be false.
type underWayError struct{ error }

// Error implements error.
func (e underWayError) Error() string { return "failed to go on: " + e.error.Error() }

// Unwrap returns what it is an error of.
func (e underWayError) Unwrap() error { return e.error }

func isUnderWay(err error) bool {
	_, ok := errors.AsType[underWayError](err)
	return ok
}

// write carries writes out, and returns whether the facts have changed by that: what was written are the facts from then on,
// and what is gone is none any more. An Event of what was not written is left out, and so is that a cordon was put back.
func (r *Reconciler) write(ctx context.Context, facts *domain.Facts, outcome *domain.Outcome) (bool, error) {
	var (
		run    = executor.Apply(ctx, r.Shoot, outcome.Writes...)
		failed = func(nm *v1alpha1.NodeMaintenance) bool { return run.ErrOf(nm) != nil || run.Gone(nm) }
		errs   []error
	)
	outcome.Events = slices.DeleteFunc(outcome.Events, func(e domain.Event) bool { return failed(e.Maintenance) })
	if node := facts.Node; node != nil {
		outcome.PutBack = outcome.PutBack && run.Written(node)
		if err := run.ErrOf(node); err != nil {
			errs = append(errs, underWayError{err})
		}
		if facts.Node = executor.Latest(run, node); run.Gone(node) {
			facts.Node = nil
		}
	}
	for i, nm := range facts.Maintenances {
		err := run.ErrOf(nm)
		if err != nil && domain.InProgress(nm) {
			err = underWayError{err}
		}
		errs = append(errs, err)
		facts.Maintenances[i] = executor.Latest(run, nm)
	}
	facts.Maintenances = slices.DeleteFunc(facts.Maintenances, func(nm *v1alpha1.NodeMaintenance) bool {
		return run.Gone(nm) || nm.DeletionTimestamp != nil && len(nm.Finalizers) == 0
	})
	return run.Changed(), errors.Join(errs...)
}

// readLive reads the maintenances of a node from the API server. One that is gone is none any more, unless another one has its name. Where
// none is under way, the cache may not know the one that is: it came after the watch broke, and another controller began it.
func (r *Reconciler) readLive(ctx context.Context, facts *domain.Facts) error {
	var live []*v1alpha1.NodeMaintenance
	for _, cached := range facts.Maintenances {
		nm := &v1alpha1.NodeMaintenance{}
		err := executor.Call(ctx, executor.Timeout, func(ctx context.Context) error { return r.Live.Get(ctx, client.ObjectKeyFromObject(cached), nm) })
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("failed to read a NodeMaintenance: %w", brief.CutError(err))
		case err == nil && nm.Spec.NodeName == cached.Spec.NodeName:
			live = append(live, nm)
		}
	}
	if !slices.ContainsFunc(live, domain.InProgress) {
		var err error
		if live, err = r.listLive(ctx, facts.Node.Name); err != nil {
			return err
		}
	}
	facts.Maintenances, facts.MaintenancesLive = live, true
	return nil
}

const (
	// pageSize is how many NodeMaintenances are in memory at a time.
	pageSize = 100
	// listTime is how long it may take to list them.
	listTime = 30 * time.Second
)

// listLive returns the maintenances of a node that the API server has.
func (r *Reconciler) listLive(ctx context.Context, node string) (live []*v1alpha1.NodeMaintenance, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	err = paging.Each(ctx, metav1.ListOptions{Limit: pageSize}, shoot.MaxListed, func(ctx context.Context, opts metav1.ListOptions) (*v1alpha1.NodeMaintenanceList, error) {
		list := &v1alpha1.NodeMaintenanceList{}
		return list, executor.Call(ctx, executor.Timeout, func(ctx context.Context) error {
			return r.Live.List(ctx, list, client.Limit(opts.Limit), client.Continue(opts.Continue))
		})
	}, func() { live = nil }, func(list *v1alpha1.NodeMaintenanceList) error {
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == node {
				live = append(live, list.Items[i].DeepCopy()) // not the whole page
			}
		}
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to list the NodeMaintenances: %w", brief.CutError(err))
	}
	return live, nil
}

// act carries actions out, and puts off the next ones.
func (r *Reconciler) act(ctx context.Context, node string, facts *domain.Facts, actions []drain.Action) {
	facts.Refused = nil
	for _, err := range r.Executor.Execute(ctx, actions) {
		if err != nil && !slices.Contains(facts.Refused, err.Error()) && len(facts.Refused) < maxRefused {
			facts.Refused = append(facts.Refused, err.Error())
		}
	}
	slices.Sort(facts.Refused)
	logf.FromContext(ctx).V(1).Info("Dealt with pods", "actions", len(actions), "inTheWay", facts.Refused)
	now := r.Clock.Now()
	if len(facts.Refused) == 0 {
		r.Evictions.DeleteEntry(node)
	}
	r.Evictions.Next(node, now)
	facts.EvictAfter = now.Add(r.Evictions.Get(node))
}

// maxRefused is how many obstacles of a drain are told apart.
const maxRefused = 100

func (r *Reconciler) tell(ctx context.Context, event domain.Event) {
	log := logf.FromContext(ctx).WithValues("nodeMaintenance", client.ObjectKeyFromObject(event.Maintenance), "reason", event.Reason, "note", event.Note)
	if event.Reason == domain.EventDrainTimedOut {
		drainsFailed.WithLabelValues().Inc()
	}
	log.Info("Maintenance goes on")
	maintenance.Tell(r.Recorder, event)
}

// forget drops what is known of a node without maintenances.
func (r *Reconciler) forget(node string) {
	r.Pods.Forget(node)
	r.Evictions.DeleteEntry(node)
	r.Cordons.DeleteEntry(node)
	r.memories.Delete(node)
	overdue.DeleteLabelValues(node)
}
