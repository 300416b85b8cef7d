// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// shootTimeout is how long reading the nodes of one round takes at most, and writing them once more: a shoot that does not
	// answer must not delay what is to be done about hosts (P14).
	shootTimeout = 5 * time.Second
	// listTimeout bounds the list of all nodes, without which no cycle begins.
	listTimeout = 15 * time.Second
	// parallel is how many machines are written to at a time.
	parallel = 10
)

// task carries one decision out.
type task struct {
	*Reconciler
	*remediation.Decision
	// told says that there is something to tell, because it was written, and conflict that somebody else wrote first.
	told, conflict bool
	// retry is when the Node is to be written to again; zero for never.
	retry time.Time
	err   error
}

// writeMachines carries out what decisions say of Machines and of hosts, and returns how that went.
func (r *Reconciler) writeMachines(ctx context.Context, decisions []remediation.Decision) []task {
	tasks := make([]task, len(decisions))
	for i := range decisions {
		tasks[i] = task{Reconciler: r, Decision: &decisions[i]}
	}
	workqueue.ParallelizeUntil(ctx, parallel, len(tasks), func(i int) {
		tasks[i].failed(ctx, panics.Catch(ctx, func() error { tasks[i].writeMachine(ctx); return nil }))
	})
	return tasks
}

// carryOn carries out the rest, and returns when to look again.
func (r *Reconciler) carryOn(ctx context.Context, observations *observations, tasks []task) (reconcile.Result, error) {
	limited, cancel := context.WithTimeout(ctx, shootTimeout)
	defer cancel()
	workqueue.ParallelizeUntil(ctx, parallel, len(tasks), func(i int) { tasks[i].writeNode(limited, observations) })

	var (
		now  = r.Clock.Now()
		next time.Time
		errs []error
	)
	for i := range tasks {
		task := &tasks[i]
		if task.told {
			task.tell(ctx)
			count(task.Decision)
		}
		errs = append(errs, task.err)
		next = pace.Earliest(next, task.Next, task.retry)
		if task.conflict {
			next = pace.Earliest(next, now.Add(pace.MinRetry))
		}
		if task.NodeUnknown {
			next = pace.Earliest(next, now.Add(awayInterval))
		}
	}
	if limited.Err() != nil {
		next = pace.Earliest(next, now.Add(pace.MinRetry))
	}
	return reconcile.Result{RequeueAfter: pace.Until(next, now)}, errors.Join(errs...)
}

// writeMachine puts back on the host whose request it has, releases it, writes the Machine, and asks for the host to be off.
func (r *task) writeMachine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	driver := r.Driver()
	if r.Restore != nil && driver != nil {
		r.failed(ctx, driver.Restore(ctx, r.Host, *r.Restore))
	}
	if r.Release && driver != nil {
		r.failed(ctx, driver.Release(ctx, r.Host))
	}
	if r.WriteMachine != nil {
		task := executor.Run{Seed: r.Source, Timeout: callTimeout}
		task.Do(ctx, *r.WriteMachine)
		r.failed(ctx, task.Err())
		r.told = task.Written(r.Machine)
	}
	if r.PowerOff != nil && driver != nil && r.goesOn() {
		r.failed(ctx, driver.PowerOff(ctx, r.Host, *r.PowerOff))
	}
}

// goesOn says that nothing has failed of what comes before.
func (r *task) goesOn() bool { return r.err == nil && !r.conflict }

// failed notes why a write failed, if it did. What is gone needs nothing.
func (r *task) failed(ctx context.Context, err error) {
	switch {
	case pace.OnlyConflicts(err):
		// It is decided anew on what somebody else has written.
		logf.FromContext(ctx).V(1).Info("Somebody else wrote first", "machine", r.Machine.Name, "reason", err.Error())
		r.conflict = true
	case client.IgnoreNotFound(err) != nil:
		r.err = errors.Join(r.err, fmt.Errorf("failed to go on with machine %s: %w", r.Machine.Name, err))
	}
}

// writeNode writes the Node, unless that has failed a short time ago. It holds nothing else up.
func (r *task) writeNode(ctx context.Context, observations *observations) {
	if len(r.WriteNode) == 0 || !r.goesOn() {
		return
	}
	uid := r.Machine.UID
	if at := observations.retryAt(uid); r.Clock.Now().Before(at) {
		r.retry = at
		return
	}
	task := executor.Apply(ctx, r.Nodes, r.WriteNode...)
	err := task.Err()
	if pace.OnlyConflicts(err) {
		r.failed(ctx, err)
		return
	}
	r.told = r.told || err == nil && !task.Gone(r.Node)
	if observations.wrote(uid, err, r.Clock.Now()) {
		logf.FromContext(ctx).Info("Node cannot be written to", "machine", r.Machine.Name, "reason", err.Error())
	}
	r.retry = observations.retryAt(uid)
}

// tell tells the Events of a decision on the Machine and on its Node (X12).
func (r *task) tell(ctx context.Context) {
	for _, e := range r.Events {
		logf.FromContext(ctx).Info("Power cycle goes on", "machine", r.Machine.Name, "reason", e.Reason, "note", e.Note)
		eventType, action, note := corev1.EventTypeNormal, e.Reason, brief.Note(e.Note)
		if e.Warning {
			eventType = corev1.EventTypeWarning
		}
		if e.Reason == remediation.EventPrefix+v1alpha1.PowerCycleWaiting {
			// Events that differ in nothing but their notes become one, with the first note.
			action = brief.Cut(e.Note)
		}
		var related runtime.Object // a typed nil is not a nil object
		if r.Node != nil {
			related = r.Node
			r.ShootRecorder.Eventf(r.Node, nil, eventType, e.Reason, action, "%s", note)
		}
		r.Recorder.Eventf(r.Machine, related, eventType, e.Reason, action, "%s", note)
	}
}
