// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// nodesInterval is when to look again at what waits for the nodes to be known: one that is gone tells nobody.
	nodesInterval = 10 * time.Second
	// callTimeout bounds each call to an API server.
	callTimeout = 10 * time.Second
)

// Reconciler carries out what is decided on the machines of a MachineDeployment.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache, SourceReader from the API server.
	Source       client.Client
	SourceReader client.Reader
	// Nodes is the shoot, read from a cache, NodeReader reads its nodes from the API server. End does without the latter.
	Nodes      Nodes
	NodeReader client.Reader
	// Holder is the way in which machine-controller-manager is told to leave a machine alone.
	Holder preservation.Holder
	// MaxTimeout is for how long a machine is preserved at most (P13). End does without.
	MaxTimeout time.Duration
	// Timeouts are machine-controller-manager's defaults.
	Timeouts facts.Timeouts
	// NodeConditions are the types of the node conditions that machine-controller-manager takes a machine for unhealthy by,
	// beside Ready (H1).
	NodeConditions []string
	// Storm says when too many machines of the shoot fail at the same time (P16). End does without.
	Storm facts.StormLimits
	// Maintenance says how maintenances of nodes preserve machines. End does without.
	Maintenance preservation.MaintenanceOptions
	// Remediation says how power cycles of hosts preserve machines. End does without.
	Remediation preservation.RemediationOptions
	// DrainConditions says that others see in conditions of a node how its drain goes (D13). End removes them.
	DrainConditions bool
	// Hours keeps account of machine-hours, and limits them. Nil: nobody does. End does without.
	Hours  *Hours
	Clock  clock.PassiveClock
	Events Events
	// Ledgers take note of failures.
	Ledgers []Ledger

	backlogs sync.Map // *backlog by reconcile.Request
	pools    sync.Map // string by the name of a MachineDeployment
	// enqueue adds to the workqueue. Nil: there is none.
	enqueue func(reconcile.Request)
}

// Nodes reads and writes the shoot's nodes.
type Nodes interface {
	client.Client
	// Known says that the nodes have been read once, so that one that is not there does not exist (P9).
	Known() bool
}

// Ledger takes note of what was decided, and waits for nothing.
type Ledger interface {
	Observe(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time)
	// Forget takes note that a MachineDeployment is gone, and its pool if that is not empty.
	Forget(deployment, pool string)
}

// Reconcile decides on all machines of a MachineDeployment and carries the decisions out. It returns an error only if it
// could not read what to decide on. A write that fails is tried again by the time that the result says (P12).
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	deployment := &machinev1alpha1.MachineDeployment{}
	if err := r.Source.Get(ctx, req.NamespacedName, deployment); err != nil {
		if apierrors.IsNotFound(err) {
			log.V(1).Info("Object is gone, stop reconciling")
			r.forget(ctx, req.Name)
			r.backlogs.Delete(req)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to read the MachineDeployment: %w", err)
	}

	r.pools.Store(req.Name, poolOf(deployment))
	value, _ := r.backlogs.LoadOrStore(req, newBacklog())
	backlog := value.(*backlog)
	// This comes before the reads: a task that ends in between is counted as under way, and not as one that never was.
	busy := backlog.busy()

	var grantsEnd time.Time
	group, decisions, now, err := r.decide(ctx, r.Source, deployment, busy, nil)
	// The cache may not know yet what was written last, by this process or by the one before it. What would use up a
	// share is decided on what the API server has (P1).
	switch {
	case err != nil:
	case group.SharedIn != "" && slices.ContainsFunc(decisions, restsOnSum):
		group, decisions, now, grantsEnd, err = r.decideLocked(ctx, deployment, busy)
	case slices.ContainsFunc(decisions, func(d preservation.Decision) bool { return d.TakesPlace() }):
		group, decisions, now, err = r.decide(ctx, r.SourceReader, deployment, busy, nil)
	}
	if err != nil {
		return reconcile.Result{}, err
	}

	for i := range decisions {
		decisions[i].NodeDenied = backlog.denied(&decisions[i], now)
	}
	r.Hours.open(ctx, deployment, decisions, now)
	pool := poolOf(deployment)
	pending, waits := r.pending(decisions, pool, group.SharedIn != "", now)
	ended := r.carryOut(ctx, backlog, backlog.begin(pending, busy, now), func() {
		if r.enqueue != nil {
			r.enqueue(req)
		}
	})
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err
	}
	r.notify(backlog, deployment, group, decisions)
	r.tellHours(deployment, decisions)
	for _, ledger := range r.Ledgers {
		_ = panics.Catch(ctx, func() error { ledger.Observe(deployment, decisions, now); return nil })
	}
	observe(deployment, group, ended, now)
	if r.Storm.Enabled() {
		observeStorm(group.Storm)
	}

	next := pace.Earliest(pace.Earliest(backlog.retry(), grantsEnd), nextOf(decisions))
	next = pace.Earliest(next, r.Hours.save(ctx, deployment.Name, now))
	if waits {
		next = pace.Earliest(next, now.Add(nodesInterval))
	}
	next = pace.Earliest(next, group.Storm.Next)
	if slices.ContainsFunc(decisions, func(d preservation.Decision) bool { return d.WaitsForStorm() }) {
		next = pace.Earliest(next, now.Add(facts.StormInterval))
	}
	return reconcile.Result{RequeueAfter: pace.Until(next, r.Clock.Now())}, nil
}

// forget drops what is known of a MachineDeployment that is gone, and of its pool if it was the last one.
func (r *Reconciler) forget(ctx context.Context, deployment string) {
	forget(deployment)
	r.Hours.forget(deployment)
	value, _ := r.pools.LoadAndDelete(deployment)
	pool, _ := value.(string)
	r.pools.Range(func(_, other any) bool {
		if other == pool {
			pool = ""
		}
		return pool != ""
	})
	if pool != "" {
		forgetPool(pool)
	}
	for _, ledger := range r.Ledgers {
		_ = panics.Catch(ctx, func() error { ledger.Forget(deployment, pool); return nil })
	}
}

// decide reads a MachineDeployment's machines through reader and decides on them. Those that are being given a place
// within the share count as having it: their record may be written, or not, at any time (P1). The group may be adjusted before.
func (r *Reconciler) decide(ctx context.Context, reader client.Reader, deployment *machinev1alpha1.MachineDeployment, busy map[types.UID]*task, adjust func(*preservation.Group)) (preservation.Group, []preservation.Decision, time.Time, error) {
	group, err := r.read(ctx, reader, deployment)
	if err == nil {
		r.readLiveLabels(ctx, group)
	}
	now := r.Clock.Now()
	if err != nil {
		return group, nil, now, err
	}
	if adjust != nil {
		adjust(&group)
	}
	group.Hours = r.observeHours(ctx, deployment, group.Members, now)
	claimed := group
	claimed.Members = slices.Clone(group.Members)
	for i := range claimed.Members {
		if task := busy[claimed.Members[i].Machine.UID]; task != nil && task.claimed != nil {
			claimed.Members[i].Machine = task.claimed
		}
	}
	return group, preservation.Decide(claimed, now), now, nil
}

// read reads a MachineDeployment's machines through reader, with all that a decision on them depends on.
func (r *Reconciler) read(ctx context.Context, reader client.Reader, deployment *machinev1alpha1.MachineDeployment) (preservation.Group, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	group, err := r.group(ctx, reader, deployment, anyMachine)
	if err == nil {
		err = r.readNodes(ctx, group.Members)
	}
	if err == nil && group.SharedIn != "" {
		err = r.readElsewhere(ctx, reader, deployment, &group)
	}
	if err == nil && r.Storm.Enabled() {
		group.Storm, err = r.storm(ctx, deployment.Namespace, r.Clock.Now())
	}
	return group, err
}

// readLiveLabels reads from the API server the nodes whose labels the cache does not have. What cannot be read stays as the cache has it. An API
// server that does not answer takes no time from other reads, and little from holds that are due (P12).
func (r *Reconciler) readLiveLabels(ctx context.Context, group preservation.Group) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	workqueue.ParallelizeUntil(ctx, parallelTasks, len(group.Members), func(i int) {
		m := &group.Members[i]
		if !group.MissesLabels(*m) {
			return
		}
		_ = panics.Catch(ctx, func() error {
			node, err := shoot.ReadNode(ctx, r.NodeReader, m.Node.Name)
			if node != nil {
				m.Node = node
			}
			return err
		})
	})
}

// storm counts the machines of the shoot that fail, by what the caches have (P16).
func (r *Reconciler) storm(ctx context.Context, namespace string, now time.Time) (facts.Storm, error) {
	machines := &machinev1alpha1.MachineList{}
	if err := r.Source.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return facts.Storm{}, fmt.Errorf("failed to list the machines: %w", err)
	}
	members := make([]facts.Member, len(machines.Items))
	for i := range machines.Items {
		members[i] = facts.Member{Machine: &machines.Items[i], NodeUnknown: machines.Items[i].Labels[machinev1alpha1.NodeLabelKey] != ""}
	}
	if err := r.readNodes(ctx, members); err != nil {
		return facts.Storm{}, err
	}
	return facts.StormOf(members, preservation.FailedSince, r.Storm, r.Timeouts, r.NodeConditions, now), nil
}

func anyMachine(*machinev1alpha1.Machine) bool { return true }

// group reads those machines of a MachineDeployment that are of interest through reader. Their nodes are not known yet.
func (r *Reconciler) group(ctx context.Context, reader client.Reader, deployment *machinev1alpha1.MachineDeployment, interesting func(*machinev1alpha1.Machine) bool) (preservation.Group, error) {
	group := preservation.Group{
		Holder:          r.Holder,
		Timeouts:        r.Timeouts,
		NodeConditions:  r.NodeConditions,
		Maintenance:     r.Maintenance,
		Remediation:     r.Remediation,
		DrainConditions: r.DrainConditions,
		MaxTimeout:      r.MaxTimeout,
	}.Of(deployment)

	machines, rollout, err := shoot.MachinesOf(ctx, r.Source, reader, deployment)
	if err != nil {
		return group, err
	}
	group.Rollout = rollout
	for _, machine := range machines {
		if interesting(machine) {
			group.Members = append(group.Members, facts.Member{Machine: machine, NodeUnknown: machine.Labels[machinev1alpha1.NodeLabelKey] != ""})
		}
	}
	return group, nil
}

// readNodes reads the nodes of machines as far as they can be read. It returns the errors of the others, which stay unknown.
func (r *Reconciler) readNodes(ctx context.Context, members []facts.Member) error {
	if !r.Nodes.Known() {
		return nil
	}
	errs := make([]error, len(members))
	// End reads them from the shoot, which may take its time for some of them (P12).
	workqueue.ParallelizeUntil(ctx, parallelTasks, len(members), func(i int) {
		if m := &members[i]; m.NodeUnknown {
			errs[i] = executor.Call(ctx, callTimeout, func(ctx context.Context) (err error) {
				m.Node, err = shoot.ReadNode(ctx, r.Nodes, m.Machine.Labels[machinev1alpha1.NodeLabelKey])
				return err
			})
			m.NodeUnknown = errs[i] != nil
		}
	})
	return errors.Join(append(errs, ctx.Err())...)
}

// nextOf returns when the first of the decisions is due to be looked at again, zero for never.
func nextOf(decisions []preservation.Decision) time.Time {
	var next time.Time
	for _, d := range decisions {
		next = pace.Earliest(next, d.Next)
	}
	return next
}
