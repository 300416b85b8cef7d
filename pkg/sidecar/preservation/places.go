// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
)

// Places that all MachineDeployments of a pool use are given away under a Lease (P20). Before a place is given to a machine, three things
// are done in this order:
//
//  1. The Lease is read, and then all machines of the pool, from the API server. What is decided on counts the machines that have a place,
//     and those that were granted one without having it yet.
//  2. The grant is added to the Lease, on the condition that nobody else has written that since. Else all is done anew.
//  3. The place is written on the Machine, on the condition that nobody else has written that since it was read.
//
// So there is one order in which places are granted, whoever grants them: another MachineDeployment, or another process that is the leader,
// or thinks that it is. A place that was granted before is either on its machine by the time that the machines are read, or a grant.
//
// A grant ends when its machine shows the place, or has changed since, because then the condition of step 3 does not hold. If something else is
// written on the machine before the place, that is not known. Then, or if a process dies in between, or is frozen, and the machine does not
// change, the grant is ended after grantTime by a write of the Machine: whoever still comes with the place has the condition of step 3 against
// them. What makes the sum hold is that condition and no time. The time is only so long that nobody is disturbed who is just about to write.

const (
	// grantTime is for how long a place is granted. The place is written on the machine at the third call after that at the latest: the
	// first reads the machine again, the second puts its deadline off. Each has callTimeout.
	grantTime = time.Minute
	// lockAttempts is how often is tried to grant places while others do. lockRetry is when it is tried again after that, or if the
	// Lease cannot be read or written: several times within the margin in which a machine waits for its place (H4).
	lockAttempts, lockRetry = 5, 5 * time.Second
)

// grant is a place that was given to a machine, and may not be written on it yet.
type grant struct {
	Pool    string      `json:"pool"`
	Machine string      `json:"machine"`
	UID     types.UID   `json:"uid"`
	At      metav1.Time `json:"at"`
	// Version is the resource version of the Machine on which the place is written, empty if something else is written on it before.
	Version string `json:"version,omitempty"`
}

// isUsed says that the place is written on the machine, or cannot be written any more.
func (g grant) isUsed(machine *machinev1alpha1.Machine, now time.Time) bool {
	return preservation.ReadRecord(machine).HasPlace(now) || g.Version != "" && g.Version != machine.ResourceVersion
}

// grants are what the Lease had when it was read.
type grants struct {
	lease  *coordinationv1.Lease
	exists bool
	all    []grant
}

// errUnreadable says that nobody can know which places are granted. It is written by hand, and mended by hand.
var errUnreadable = errors.New("annotation " + v1alpha1.AnnotationGrants + " is not valid JSON: remove it")

func (r *Reconciler) readGrants(ctx context.Context, namespace string) (*grants, error) {
	g := &grants{lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PlacesLease, Namespace: namespace}}}
	err := executor.Call(ctx, callTimeout, func(ctx context.Context) error {
		return r.SourceReader.Get(ctx, client.ObjectKeyFromObject(g.lease), g.lease)
	})
	switch {
	case apierrors.IsNotFound(err):
		return g, nil
	case err != nil:
		return nil, fmt.Errorf("failed to read Lease %s: %w", v1alpha1.PlacesLease, err)
	}
	g.exists = true
	if value, ok := g.lease.Annotations[v1alpha1.AnnotationGrants]; ok && json.Unmarshal([]byte(value), &g.all) != nil {
		return nil, fmt.Errorf("failed to read Lease %s: %w", v1alpha1.PlacesLease, errUnreadable)
	}
	return g, nil
}

// drop drops the grants that are used, by the machines of a group and those elsewhere. It returns the machines that have one left.
func (g *grants) drop(group preservation.Group, now time.Time) sets.Set[types.UID] {
	machines, granted := map[types.UID]*machinev1alpha1.Machine{}, sets.New[types.UID]()
	for _, in := range append([]preservation.Group{group}, group.Elsewhere...) {
		for _, m := range in.Members {
			machines[m.Machine.UID] = m.Machine
		}
	}
	g.all = slices.DeleteFunc(g.all, func(grant grant) bool {
		if grant.Pool != group.SharedIn {
			return now.Sub(grant.At.Time) > 24*time.Hour // the pool may be gone
		}
		if machine := machines[grant.UID]; machine != nil && grant.isUsed(machine, now) {
			return true
		}
		granted.Insert(grant.UID)
		return false
	})
	return granted
}

// first returns when the first grant of a pool ends, zero if there is none.
func (g *grants) first(pool string) (end time.Time) {
	for _, grant := range g.all {
		if at := grant.At.Add(grantTime); grant.Pool == pool && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	return end
}

// endGrants ends the grants of a pool that are too old, and returns whether there were any. Those that it cannot end go on: the place may be
// written at any time.
func (r *Reconciler) endGrants(ctx context.Context, g *grants, pool string) bool {
	before, now := len(g.all), r.Clock.Now()
	g.all = slices.DeleteFunc(g.all, func(grant grant) bool {
		if grant.Pool != pool || now.Before(grant.At.Add(grantTime)) {
			return false
		}
		err := r.endGrant(ctx, g.lease.Namespace, grant, now)
		if err != nil {
			logf.FromContext(ctx).V(1).Info("Grant of a place could not be ended", "machine", grant.Machine, "pool", pool, "reason", err.Error())
		}
		return err == nil
	})
	return len(g.all) < before
}

// endGrant changes the Machine, unless it is gone or shows the place: a process that has read it before cannot write the place any more.
func (r *Reconciler) endGrant(ctx context.Context, namespace string, grant grant, now time.Time) error {
	machine := &machinev1alpha1.Machine{}
	err := executor.Call(ctx, callTimeout, func(ctx context.Context) error {
		return r.SourceReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: grant.Machine}, machine)
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && machine.UID != grant.UID:
		return nil
	case err != nil:
		return err
	case grant.isUsed(machine, now):
		return nil
	}
	edit := func(change func(*machinev1alpha1.Machine)) error {
		before := machine.DeepCopy()
		change(machine)
		return client.IgnoreNotFound(executor.Call(ctx, callTimeout, func(ctx context.Context) error {
			return r.Source.Patch(ctx, machine, client.MergeFrom(before))
		}))
	}
	if err := edit(func(m *machinev1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationGrantEnded, now.UTC().Format(time.RFC3339Nano))
	}); err != nil {
		return err
	}
	// What stays there does no harm, and goes with the next record.
	_ = edit(func(m *machinev1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationGrantEnded) })
	return nil
}

// grant gives places to those decisions that take one. It fails if somebody else has written the Lease since.
func (r *Reconciler) grant(ctx context.Context, g *grants, pool string, takers []*preservation.Decision, now time.Time) error {
	taking := sets.New[types.UID]()
	for _, d := range takers {
		taking.Insert(d.Machine.UID)
	}
	all := slices.DeleteFunc(slices.Clone(g.all), func(grant grant) bool { return taking.Has(grant.UID) })
	for _, d := range takers {
		given := grant{Pool: pool, Machine: d.Machine.Name, UID: d.Machine.UID, At: metav1.NewTime(now)}
		if steps := preservation.Steps(r.Holder, *d, r.Timeouts, now); len(steps) > 0 && steps[0].Record {
			given.Version = d.Machine.ResourceVersion
		}
		all = append(all, given)
	}
	value, err := json.Marshal(all)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&g.lease.ObjectMeta, v1alpha1.AnnotationGrants, string(value))
	err = executor.Call(ctx, callTimeout, func(ctx context.Context) error {
		if !g.exists {
			return r.Source.Create(ctx, g.lease)
		}
		return r.Source.Update(ctx, g.lease)
	})
	if err != nil {
		return fmt.Errorf("failed to write Lease %s: %w", v1alpha1.PlacesLease, err)
	}
	return nil
}

// decideLocked decides on what the API server has, and grants the places that the decisions take. Where it cannot, it decides that none is
// given away. It returns when to look again because of grants, zero for never.
func (r *Reconciler) decideLocked(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, busy map[types.UID]*task) (preservation.Group, []preservation.Decision, time.Time, time.Time, error) {
	pool := deployment.Annotations[v1alpha1.AnnotationSharedInPool]
	var failure error
	for range lockAttempts {
		granted, err := r.readGrants(ctx, deployment.Namespace)
		if err != nil {
			failure = err
			break
		}
		ended := r.endGrants(ctx, granted, pool)
		group, decisions, now, err := r.decide(ctx, r.SourceReader, deployment, busy, func(g *preservation.Group) { g.Granted = granted.drop(*g, r.Clock.Now()) })
		if err != nil {
			return group, nil, now, time.Time{}, err
		}
		var takers []*preservation.Decision
		for i := range decisions {
			if decisions[i].TakesPlace() {
				takers = append(takers, &decisions[i])
			}
		}
		if len(takers) == 0 && !ended {
			return group, decisions, now, granted.first(pool), nil
		}
		failure = r.grant(ctx, granted, pool, takers, now)
		switch {
		case failure == nil:
			return group, decisions, now, granted.first(pool), nil
		case apierrors.IsConflict(failure), apierrors.IsAlreadyExists(failure): // somebody else was first
		default:
			// It may have been written all the same: then these places are granted, until the grants end.
			return r.decideUnlocked(ctx, deployment, busy, failure)
		}
	}
	return r.decideUnlocked(ctx, deployment, busy, failure)
}

// decideUnlocked decides that no place is given away, and all else as ever (P12).
func (r *Reconciler) decideUnlocked(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, busy map[types.UID]*task, why error) (preservation.Group, []preservation.Decision, time.Time, time.Time, error) {
	if err := ctx.Err(); err != nil {
		return preservation.Group{}, nil, time.Time{}, time.Time{}, err
	}
	errorsTotal.WithLabelValues(poolOf(deployment), kindLease).Inc()
	logf.FromContext(ctx).Info("No machine gets a place, because the places of its pool could not be locked", "pool", poolOf(deployment), "reason", why.Error())
	group, decisions, now, err := r.decide(ctx, r.SourceReader, deployment, busy, func(g *preservation.Group) { g.Unlocked = true })
	return group, decisions, now, now.Add(lockRetry), err
}

// forOthers are the reasons for which a machine is released because of how many places others have.
var forOthers = []reason.Reason{preservation.WhyShareLowered, preservation.WhyShareUsedUp, preservation.WhyFailedAgain, preservation.WhyNewFailure}

// restsOnSum says that a decision takes a place, or releases a machine, because of how many places others have.
func restsOnSum(d preservation.Decision) bool {
	return d.TakesPlace() || slices.ContainsFunc(forOthers, d.Why.Is)
}

// readElsewhere reads the other MachineDeployments of the pool, and their machines through reader.
func (r *Reconciler) readElsewhere(ctx context.Context, reader client.Reader, deployment *machinev1alpha1.MachineDeployment, group *preservation.Group) error {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := r.Source.List(ctx, deployments, client.InNamespace(deployment.Namespace)); err != nil {
		return fmt.Errorf("failed to list the MachineDeployments: %w", err)
	}
	for i := range deployments.Items {
		other := &deployments.Items[i]
		if other.Name == deployment.Name || !isInPool(other, group.SharedIn) {
			continue
		}
		elsewhere, err := r.group(ctx, reader, other, anyMachine)
		if err != nil {
			return err
		}
		if other.DeletionTimestamp != nil { // nobody tells it how many places there are
			elsewhere.Share = nil
		}
		if err := r.readNodes(ctx, elsewhere.Members); err != nil {
			return err
		}
		group.Elsewhere = append(group.Elsewhere, elsewhere)
	}
	return nil
}

// isInPool says that a MachineDeployment belongs to a pool, whether it knows that places are shared there or not.
func isInPool(deployment *machinev1alpha1.MachineDeployment, pool string) bool {
	return deployment.Annotations[v1alpha1.AnnotationSharedInPool] == pool || deployment.Labels[facts.LabelPool] == pool || poolOf(deployment) == pool
}
