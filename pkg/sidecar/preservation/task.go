// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"errors"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// patience is how long a round waits for the tasks that it has begun (P12).
var patience = 2 * time.Second

const (
	// parallelTasks is how many machines of one MachineDeployment are written to at the same time while the API servers
	// answer in time. However they answer, there is one task for a machine at most.
	parallelTasks = 10
	// confirmTimeout bounds the live read of a node that a hold waits for.
	confirmTimeout = 3 * time.Second
)

// task carries out the steps of one decision. What it changes is its own until it has ended.
type task struct {
	*Reconciler
	decision *preservation.Decision
	pool     string
	steps    []intent.Write
	// claimed is the machine with the place within the share that the task is about to write; nil if it is about none.
	claimed *machinev1alpha1.Machine
	// granted says that the place was granted for the Machine as it was decided on (P20).
	granted bool

	writes   executor.Run
	recorded bool

	// held is closed when the steps that make the hold were run, proceed when the others may be, ended after those.
	held, proceed, ended chan struct{}
	// left says that the round has not waited for the end. Guarded by the backlog.
	left bool
}

// pending returns a task for each decision that there is something to be written for. It says whether some wait for the
// nodes. Where the node could not be cleaned, and nothing is left to be cleaned, the next round removes the mark of that (P14). The places
// of the pool may be shared (P20).
func (r *Reconciler) pending(decisions []preservation.Decision, pool string, shared bool, now time.Time) (tasks []*task, waits bool) {
	for i := range decisions {
		d := &decisions[i]
		steps := preservation.Steps(r.Holder, *d, r.Timeouts, now)
		if len(steps) == 0 {
			waits = waits || d.NodeDenied
			continue
		}
		if d.NodeUnknown && d.Target == nil && !d.NodeDenied {
			// The marks on the node, and the request there, outlive the record if they are not removed before it.
			waits = true
			continue
		}
		task := &task{
			Reconciler: r,
			decision:   d,
			pool:       pool,
			steps:      steps,
			held:       make(chan struct{}),
			proceed:    make(chan struct{}),
			ended:      make(chan struct{}),
		}
		if !d.Confirm && !slices.ContainsFunc(steps, preservation.Changes) {
			continue
		}
		task.writes = executor.Run{Seed: r.Source, Shoot: r.Nodes, Timeout: callTimeout, Subject: d.Machine, Wrote: task.wrote}
		if d.TakesPlace() {
			task.claimed, task.granted = d.Machine.DeepCopy(), shared
			for i := range task.steps {
				step := &task.steps[i]
				step.Lock = step.Lock || step.Record && shared // the grant may have ended since
				if step.Record {
					step.Edit(task.claimed)
				}
			}
		}
		tasks = append(tasks, task)
	}
	return tasks, waits
}

// carryOut begins tasks, and waits for their end as long as its patience lasts: neither many machines nor an API server
// that hangs delay what is to be done for other machines (P12). The steps that hold machines are run before all others
// (P9). It returns the tasks that have ended; whenever another one does, lookAgain is called. The context must outlive the
// round: it is the controller's.
func (r *Reconciler) carryOut(ctx context.Context, m *backlog, begun []*task, lookAgain func()) []*task {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	each := func(start func(*task) <-chan struct{}) {
		// None may be left out, or it would be under way for ever.
		workqueue.ParallelizeUntil(context.WithoutCancel(ctx), parallelTasks, len(begun), func(i int) {
			select {
			case <-start(begun[i]):
			case <-waiting.Done():
			}
		})
	}
	each(func(task *task) <-chan struct{} {
		go task.do(ctx, m, lookAgain)
		return task.held
	})
	each(func(task *task) <-chan struct{} {
		close(task.proceed)
		return task.ended
	})
	return m.leave(begun)
}

func (r *task) uid() types.UID { return r.decision.Machine.UID }

func (r *task) do(ctx context.Context, m *backlog, lookAgain func()) {
	defer close(r.ended)
	// One that does not end is under way for ever: nothing else is written to its machine.
	err := panics.Catch(ctx, func() error { r.hold(ctx); return nil })
	close(r.held)
	<-r.proceed
	if err == nil {
		err = panics.Catch(ctx, func() error { r.finish(ctx); return nil })
	}
	r.writes.Fail(r.decision.Machine, err)
	if r.report(ctx, m).left {
		lookAgain()
	}
}

// finish runs the steps that are left.
func (r *task) finish(ctx context.Context) {
	switch {
	case r.releases():
		r.readNode(ctx)
		d := *r.decision
		d.Node = r.node()
		r.steps = preservation.Steps(r.Holder, d, r.Timeouts, r.Clock.Now())
	case r.restsOnCache() && !r.isRecorded(ctx):
		return
	}
	r.writes.Do(ctx, r.steps...)
}

// hold runs the steps that make the hold: the first ones.
func (r *task) hold(ctx context.Context) {
	if r.decision.Confirm && !r.confirm(ctx) {
		r.steps = nil
		return
	}
	others := slices.IndexFunc(r.steps, func(step intent.Write) bool { return !step.Hold })
	if others < 0 {
		others = len(r.steps)
	}
	r.writes.Do(ctx, r.steps[:others]...)
	r.steps = r.steps[others:]
	// A machine that is being terminated by now is not told to be preserved (H3).
	if r.recorded && !r.writes.Gone(r.decision.Machine) && r.machine().DeletionTimestamp == nil {
		r.transition(r.decision, r.pool)
	}
}

// confirm says that the machine is neither preserved nor deleted yet and that the request still stands, whatever the caches know: it
// would get another expiry.
func (r *task) confirm(ctx context.Context) bool {
	if !r.writes.Read(ctx, r.SourceReader, r.decision.Machine) {
		return false
	}
	machine := r.machine()
	if r.granted && machine.ResourceVersion != r.decision.Machine.ResourceVersion {
		return false
	}
	if machine.UID != r.decision.Machine.UID || machine.DeletionTimestamp != nil || preservation.ReadRecord(machine) != nil {
		return false
	}

	member := facts.Member{Machine: machine, Node: r.node(), NodeUnknown: r.decision.NodeUnknown}
	if r.decision.Request.OnNode && member.Node != nil {
		// Where the shoot's API server is not there, the machine will not be either if it is not held (P9).
		if r.readNode(ctx); r.nodeErr() != nil && !r.decision.Target.Failing() {
			return false
		}
		member.Node = r.node()
	}
	return preservation.RequestOf(member, r.MaxTimeout).Value == r.decision.Request.Value
}

// releases says that the record is about to be removed, or the mark that the node could not be cleaned: nobody would look for what is on the
// node any more.
func (r *task) releases() bool {
	isLast := r.decision.Current != nil || preservation.ReadNotes(r.decision.Machine).NodeUncleaned
	return isLast && r.decision.Target == nil && r.node() != nil && r.NodeReader != nil
}

// restsOnCache says that the node is about to be marked for a record that is in the cache, and that was not written now. The task before
// may have removed the record: nobody would look for marks that were put on the node after that.
func (r *task) restsOnCache() bool {
	return r.decision.Current != nil && r.decision.Target != nil && !r.writes.Written(r.decision.Machine) &&
		slices.ContainsFunc(r.steps, preservation.Changes)
}

// isRecorded says that the machine has a record, whatever the cache knows. The writes go on from what was decided on: what locks them is that
// the machine has not changed since.
func (r *task) isRecorded(ctx context.Context) bool {
	machine := &machinev1alpha1.Machine{}
	r.writes.Fail(r.decision.Machine, executor.Call(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.SourceReader.Get(ctx, client.ObjectKeyFromObject(r.decision.Machine), machine)
	}))
	return machine.UID == r.uid() && preservation.ReadRecord(machine) != nil
}

// readNode reads the node as it is now. The cache may not know yet what the task before has put there.
func (r *task) readNode(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	r.writes.Read(ctx, r.NodeReader, r.decision.Node)
}

// machine returns the machine as it was read or written last.
func (r *task) machine() *machinev1alpha1.Machine {
	return executor.Latest(&r.writes, r.decision.Machine)
}

// node returns the node as it was read or written last, nil if there is none, or none any more.
func (r *task) node() *corev1.Node {
	if r.decision.Node == nil || r.writes.Gone(r.decision.Node) {
		return nil
	}
	return executor.Latest(&r.writes, r.decision.Node)
}

func (r *task) nodeErr() error {
	if r.decision.Node == nil {
		return nil
	}
	return r.writes.ErrOf(r.decision.Node)
}

// wrote tells of the transition once the record is written: whatever fails after it is caught up with in silence.
func (r *task) wrote(ctx context.Context, step intent.Write) {
	if !step.Record || r.decision.Rule == "" || r.recorded {
		return
	}
	r.recorded = true
	if !step.Hold {
		r.transition(r.decision, r.pool)
	}
	why := r.nodeErr()
	if why == nil && r.decision.NodeUnknown {
		why = errors.New("it could not be read for too long")
	}
	if r.decision.Target == nil && why != nil {
		logf.FromContext(ctx).Info("Released a machine, but not cleaned up its node", "machine", r.decision.Machine.Name, "pool", r.pool, "reason", why.Error())
		r.Events.both(r.decision, corev1.EventTypeWarning, preservation.EventNodeDenied, "Machine is released, but taint, annotations and condition of its preservation may still be on its node: "+why.Error())
	}
}

// report tells the backlog that the task has ended, and logs its failure.
func (r *task) report(ctx context.Context, m *backlog) outcome {
	o := m.end(r, r.Clock.Now())
	failure := r.writes.Err()
	if failure == nil || ctx.Err() != nil {
		return o
	}

	log := logf.FromContext(ctx).WithValues("machine", r.decision.Machine.Name, "pool", r.pool, "retryAfter", o.backoff.String())
	trouble := false
	for kind, err := range map[string]error{kindMachine: r.writes.ErrOf(r.decision.Machine), kindNode: r.nodeErr()} {
		// A conflict is no trouble: somebody else wrote first, and what they wrote is decided on anew.
		if err != nil && !pace.OnlyConflicts(err) {
			errorsTotal.WithLabelValues(r.pool, kind).Inc()
			trouble = true
		}
	}
	if trouble && o.news {
		log.Error(failure, "Failed to carry out a decision")
	} else {
		log.V(1).Info("Decision could not be carried out", "reason", failure.Error())
	}
	return o
}
