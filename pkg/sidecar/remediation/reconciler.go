// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package remediation power-cycles the hosts of machines. All state is in objects.
package remediation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// awayInterval is when to look again at what waits for the shoot: when its API server is back, nobody tells.
	awayInterval = 10 * time.Second
	// callTimeout bounds each call to an API server.
	callTimeout = 10 * time.Second
)

// Reconciler carries out what is decided on the hosts of the machines of a MachineDeployment.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache, SourceReader from the API server.
	Source       client.Client
	SourceReader client.Reader
	Nodes        Nodes
	// Driver returns what reads and switches the hosts, nil as long as they are not known.
	Driver func() *host.Driver
	// ReadNodeContents returns what there still is of a node in the API server of the shoot.
	ReadNodeContents func(ctx context.Context, node string) (remediation.NodeContents, error)
	// Seed is the name by which hosts know the seed.
	Seed string
	// AllowNodes says that power cycles may be asked for on Nodes (X11).
	AllowNodes bool
	// MaxPerShoot is how many machines are cycled at a time, 0 for any number. With NeedsGrant, the extension has a say in that
	// (X8).
	MaxPerShoot int32
	NeedsGrant  bool
	// Storm says when too many machines of the shoot fail at the same time (X21).
	Storm facts.StormLimits
	// MaxServicing is for how long the machine of a host that is being serviced is preserved (X18).
	MaxServicing time.Duration
	// QuietTime is for how long a healthy machine has no request before one is believed to be for a healthy machine, remediation's
	// default if it is 0 (X16).
	QuietTime time.Duration
	// Evidence says that the evidence of failures is stored (X9), by this process since it is Leading.
	Evidence bool
	Leading  *pace.Leading
	// Timeouts are machine-controller-manager's defaults, NodeConditions the types of the node conditions that it takes a
	// machine for unhealthy by (H1).
	Timeouts       facts.Timeouts
	NodeConditions []string
	Clock          clock.PassiveClock
	// Recorder tells of Events on Machines, ShootRecorder on Nodes.
	Recorder, ShootRecorder events.EventRecorder

	// Counting is a semaphore of one, held from when the Others are read live until the Machines of the group are written: two groups would
	// each see the nodes that the other is about to take away as ready (X8). It has a queue: who never got it would miss the deadline of
	// its cycle (X5).
	Counting *semaphore.Weighted

	observations sync.Map // *observations by reconcile.Request
}

// Nodes reads and writes the shoot's nodes.
type Nodes interface {
	client.Client
	// GetAPIReader returns a reader that asks the shoot's API server.
	GetAPIReader() client.Reader
	// Synced says that all nodes are known as they are now.
	Synced() bool
	// Back returns since when they are, again or for the first time; zero if nobody knows.
	Back() time.Time
}

// Reconcile decides on all machines of a MachineDeployment, or on those of none if the request has no name, and carries the
// decisions out. What follows from that is decided when the objects that were written are seen. It returns an error if it
// could not read what to decide on, or reach a Machine or a host.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	value, _ := r.observations.LoadOrStore(req, newObservations())
	observations := value.(*observations)

	decisions, err := r.decide(ctx, req, observations, nil, false)
	var tasks []task
	if slices.ContainsFunc(decisions, func(d remediation.Decision) bool { return d.Confirm }) {
		decisions, tasks, err = r.confirm(ctx, req, observations, decisions)
	} else {
		tasks = r.writeMachines(ctx, decisions)
	}
	if err != nil && decisions == nil {
		return reconcile.Result{}, err
	}
	if decisions == nil {
		forget(labelOf(req))
		r.observations.Delete(req)
		return reconcile.Result{}, nil
	}
	result, carryErr := r.carryOn(ctx, observations, tasks)
	observe(labelOf(req), decisions)
	return result, errors.Join(err, carryErr)
}

// confirm decides on what is read live until all that was decided rests on that, and writes the machines and their hosts as it was
// decided. A cache may not know yet what was written last. To release a host because of that would begin its cycle anew. A group that may
// begin a cycle or power a host off waits until no other one is being confirmed. Others do not, because they may have a host to release
// (X5): they begin nothing.
func (r *Reconciler) confirm(ctx context.Context, req reconcile.Request, observations *observations, decisions []remediation.Decision) ([]remediation.Decision, []task, error) {
	counts := slices.ContainsFunc(decisions, func(d remediation.Decision) bool { return d.ConfirmOthers })
	if counts {
		if err := r.Counting.Acquire(ctx, 1); err != nil {
			return nil, nil, err
		}
		defer r.Counting.Release(1)
	}
	decisions, err := remediation.Confirm(decisions, func(live sets.Set[types.UID]) ([]remediation.Decision, error) {
		return r.decide(ctx, req, observations, live, counts)
	})
	return decisions, r.writeMachines(ctx, decisions), err
}

// decide returns the decisions on a group, of which so many machines are read live, and the Others if countLive says so, nil if there is
// none. With an error, some hosts are not known as they are.
func (r *Reconciler) decide(ctx context.Context, req reconcile.Request, observations *observations, live sets.Set[types.UID], countLive bool) ([]remediation.Decision, error) {
	group, err := r.group(ctx, req, observations, live, countLive)
	if group == nil {
		return nil, err
	}
	decisions := remediation.Decide(*group, r.Clock.Now())
	if r.readContents(ctx, observations, group, decisions) {
		decisions = remediation.Decide(*group, r.Clock.Now())
	}
	if group.Settings != nil && group.Others == nil {
		for i := range decisions { // nobody tells when the nodes are known
			decisions[i].Next = pace.Earliest(decisions[i].Next, r.Clock.Now().Add(awayInterval))
		}
	}
	return decisions, err
}

// readContents completes the group with what is left on the nodes that are out of service, and says whether that is more than
// was known. What was read a short time ago is not read again, unless nothing was left then, and neither is what could not be read. What
// the shoot does not answer in time counts as unknown, and delays nothing else for longer than that (P14).
func (r *Reconciler) readContents(ctx context.Context, observations *observations, group *remediation.Group, decisions []remediation.Decision) bool {
	var wanted []int
	for i, d := range decisions {
		if d.ReadNodeContents {
			wanted = append(wanted, i)
		}
	}
	patient, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	known := make([]bool, len(wanted))
	workqueue.ParallelizeUntil(ctx, parallel, len(wanted), func(n int) {
		i := wanted[n]
		d := decisions[i]
		left := observations.left(d.Machine.UID)
		if old := !r.Clock.Now().Before(left.time.Add(remediation.PollInterval)); old || left.err == nil && left.NodeContents == (remediation.NodeContents{}) {
			left.time = r.Clock.Now()
			left.err = panics.Catch(ctx, func() error {
				read, err := r.ReadNodeContents(patient, d.Node.Name)
				if err == nil {
					left.NodeContents = read
				}
				return err
			})
			if left.err != nil {
				left.time = r.Clock.Now() // it may have taken long
				logf.FromContext(ctx).Info("Not known what is left of a node", "machine", d.Machine.Name, "reason", left.err.Error())
			}
			observations.leave(d.Machine.UID, left)
		}
		if known[n] = left.err == nil; known[n] {
			group.Members[i].NodeContents = &left.NodeContents
		}
	})
	return slices.Contains(known, true)
}
