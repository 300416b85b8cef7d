// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package scheduler gives slots to the NodeMaintenances of a shoot.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// pageSize is how many objects are in memory at a time.
	pageSize = 100
	// readTimeout is how long an answer to a page may take, and listTimeout how long all pages may: there may be pages without an end (P14).
	readTimeout, listTimeout = 10 * time.Second, 5 * time.Minute
)

// Reconciler schedules what may be scheduled.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	Shoot  maintenance.Client
	// Nodes reads nodes from a cache, and Live everything of the shoot from the API server.
	Nodes, Live client.Reader
	// Namespaces are those from which objects are taken.
	Namespaces domain.Namespaces
	Clock      clock.PassiveClock
	Recorder   events.EventRecorder
}

// Reconcile looks at what is in the caches, and where that leaves something to be scheduled, takes a round on live reads. The
// caches may lag: what changes them brings the next look.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !r.Shoot.Known() {
		return reconcile.Result{}, nil // it is called when they are
	}
	config := &v1alpha1.MaintenanceOperatorConfig{}
	if err := executor.Call(ctx, readTimeout, func(ctx context.Context) error { return r.Live.Get(ctx, maintenance.ConfigKey, config) }); err != nil {
		if apierrors.IsNotFound(err) {
			logf.FromContext(ctx).Info("Nothing is scheduled without the configuration", "key", maintenance.ConfigKey)
			return reconcile.Result{}, nil // it is called when there is one
		}
		return reconcile.Result{}, fmt.Errorf("failed to read the configuration: %w", brief.CutError(err))
	}
	// The caches come first: each change makes a round, so that a freed slot is used within a second (M11), and most have nothing to schedule.
	cached, err := r.decide(ctx, reading{r.Shoot, r.Nodes, 0}, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	tell(cached)
	logf.FromContext(ctx).V(1).Info("Looked at the caches", "used", cached.Slots.Used, "free", cached.Slots.Free, "pending", cached.Phases[v1alpha1.PhasePending],
		"scheduled", len(cached.Scheduled), "withdrawn", len(cached.Withdrawn))
	if len(cached.Scheduled)+len(cached.Withdrawn) == 0 {
		return reconcile.Result{}, nil
	}

	live, err := r.decide(ctx, reading{r.Live, r.Live, pageSize}, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	withdrawErr := r.writeEach(ctx, live.Withdrawn, domain.Request.Withdraw) // others have slots all the same (P12)
	if live.Promise != nil {
		if run := executor.Apply(ctx, r.Shoot, *live.Promise); run.Err() != nil || run.Gone(config) {
			return reconcile.Result{}, errors.Join(withdrawErr, run.Err())
		}
	}
	return reconcile.Result{}, errors.Join(withdrawErr, r.writeEach(ctx, live.Scheduled, domain.Request.Schedule))
}

// reading is where a round reads from, and how many objects at a time, 0 for all at once.
type reading struct {
	maintenances, nodes client.Reader
	pageSize            int64
}

// decide reads everything and decides.
func (r *Reconciler) decide(ctx context.Context, from reading, config *v1alpha1.MaintenanceOperatorConfig) (domain.Scheduling, error) {
	var round *domain.Round
	if err := r.each(ctx, from.maintenances, from.pageSize, &v1alpha1.NodeMaintenanceList{}, func() { round = domain.NewRound(config, r.Namespaces) }, func(obj runtime.Object) {
		round.AddMaintenance(obj.(*v1alpha1.NodeMaintenance))
	}); err != nil {
		return domain.Scheduling{}, fmt.Errorf("failed to list the NodeMaintenances: %w", err)
	}
	if err := r.each(ctx, from.nodes, from.pageSize, &corev1.NodeList{}, round.ForgetNodes, func(obj runtime.Object) {
		round.AddNode(obj.(*corev1.Node))
	}); err != nil {
		return domain.Scheduling{}, fmt.Errorf("failed to list the nodes: %w", err)
	}
	decided, err := round.Decide()
	if len(decided.Unknown) > 0 {
		pools := shoot.NewPools(r.Source)
		for _, node := range decided.Unknown {
			machine, err := maintenance.MachineOf(ctx, pools, node.Name, node.ShowsUpdate)
			if err != nil {
				return domain.Scheduling{}, err
			}
			node.SetMachine(machine)
		}
		decided, err = round.Decide()
	}
	if err != nil {
		return domain.Scheduling{}, reconcile.TerminalError(fmt.Errorf("nothing is scheduled with this configuration: %w", err))
	}
	return decided, nil
}

// each lists objects, as many at a time as a page has, and uses each. It must not be kept. begin is called before the first, also if the list
// begins once more.
func (r *Reconciler) each(ctx context.Context, reader client.Reader, pageSize int64, empty client.ObjectList, begin func(), use func(runtime.Object)) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return brief.CutError(paging.Each(ctx, metav1.ListOptions{Limit: pageSize}, shoot.MaxListed, func(ctx context.Context, opts metav1.ListOptions) (client.ObjectList, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		err := executor.Call(ctx, readTimeout, func(ctx context.Context) error {
			return reader.List(ctx, list, client.Limit(opts.Limit), client.Continue(opts.Continue))
		})
		if pageSize == 0 { // a cache sets a token that it does not take
			list.SetContinue("")
		}
		return list, err
	}, begin, func(list client.ObjectList) error {
		return meta.EachListItem(list, func(obj runtime.Object) error { use(obj); return nil })
	}))
}

// writeEach writes on each of what was requested. One that has changed since, or of which this fails because of that, is looked
// at anew.
func (r *Reconciler) writeEach(ctx context.Context, requests []domain.Request, edit func(domain.Request, *v1alpha1.NodeMaintenance, time.Time) *intent.Write) error {
	var errs []error
	for _, request := range requests {
		if err := r.write(ctx, request, edit); client.IgnoreNotFound(err) != nil && !pace.OnlyConflicts(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) write(ctx context.Context, request domain.Request, edit func(domain.Request, *v1alpha1.NodeMaintenance, time.Time) *intent.Write) error {
	nm := &v1alpha1.NodeMaintenance{}
	if err := executor.Call(ctx, readTimeout, func(ctx context.Context) error { return r.Live.Get(ctx, request.NamespacedName, nm) }); err != nil {
		return fmt.Errorf("failed to read NodeMaintenance %s: %w", request.NamespacedName, brief.CutError(err))
	}
	write := edit(request, nm, r.Clock.Now())
	if write == nil {
		return nil
	}
	run := executor.Apply(ctx, r.Shoot, *write)
	after := executor.Latest(run, nm)
	if phase := domain.PhaseOf(after); phase != domain.PhaseOf(nm) {
		logf.FromContext(ctx).Info("Scheduled", "nodeMaintenance", request.NamespacedName, "node", request.Node)
		maintenance.Tell(r.Recorder, domain.Event{Maintenance: after, Reason: domain.EventConditionChanged, Note: phase})
	}
	return run.Err()
}
