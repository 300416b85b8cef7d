// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// parallelWrites is how many machines of one MachineDeployment are written to at the same time.
const parallelWrites = 10

// nodesInterval is when to look again at what waits for the nodes to be known: one that is gone tells nobody.
const nodesInterval = 10 * time.Second

// writeTimeout bounds a write: an API server that does not answer must not keep the others waiting.
const writeTimeout = 10 * time.Second

// Reconciler carries out what is decided on the machines of a MachineDeployment.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache, SourceReader from the API server.
	Source       client.Client
	SourceReader client.Reader
	// Nodes is the shoot, read from a cache.
	Nodes Nodes
	// Holder is the way in which machine-controller-manager is told to leave a machine alone.
	Holder preservation.Holder
	// Timeouts are machine-controller-manager's defaults.
	Timeouts preservation.Timeouts
	Clock    clock.PassiveClock
	Events   Events

	notices sync.Map // what people were told in the last round, by the name of the MachineDeployment
}

// Nodes reads and writes the shoot's nodes.
type Nodes interface {
	client.Client
	// Known says that the nodes have been read once, so that one that is not there does not exist (P9).
	Known() bool
}

// Reconcile decides on all machines of a MachineDeployment and carries the decisions out.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	deployment := &machinev1alpha1.MachineDeployment{}
	if err := r.Source.Get(ctx, req.NamespacedName, deployment); err != nil {
		if apierrors.IsNotFound(err) {
			log.V(1).Info("Object is gone, stop reconciling")
			groups.forget(req.Name)
			r.notices.Delete(req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to read the MachineDeployment: %w", err)
	}

	group, err := r.group(ctx, r.Source, deployment, anyMachine)
	if err != nil {
		return reconcile.Result{}, err
	}

	now := r.Clock.Now()
	decisions := preservation.Decide(group, now)

	// The cache may not know yet what was written last, by this process or by the one before it. What would use up a
	// share is decided on what the API server has (P1).
	if slices.ContainsFunc(decisions, takesPlace) {
		if group, err = r.group(ctx, r.SourceReader, deployment, anyMachine); err != nil {
			return reconcile.Result{}, err
		}
		now = r.Clock.Now()
		decisions = preservation.Decide(group, now)
	}

	waits, err := r.carryOut(ctx, decisions, now)
	r.notify(deployment.Name, decisions)
	groups.observe(deployment, group.Share, decisions)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := until(decisions, r.Clock.Now())
	if waits && (next == 0 || next > nodesInterval) {
		next = nodesInterval
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// takesPlace says that a decision uses up a place within the share.
func takesPlace(d preservation.Decision) bool {
	return d.Target != nil && d.Target.Failed && d.Target.Cause == v1alpha1.CauseAuto && (d.Current == nil || !d.Current.Failed)
}

func anyMachine(*machinev1alpha1.Machine) bool { return true }

// group reads those machines of a MachineDeployment that are of interest through reader, and their nodes.
func (r *Reconciler) group(ctx context.Context, reader client.Reader, deployment *machinev1alpha1.MachineDeployment, interesting func(*machinev1alpha1.Machine) bool) (preservation.Group, error) {
	group := preservation.Group{
		Replicas: deployment.Spec.Replicas,
		Timeouts: r.Timeouts,
		Share:    shareOf(deployment),
		Timeout:  timeoutOf(deployment),
	}

	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return group, reconcile.TerminalError(fmt.Errorf("failed to parse the selector: %w", err))
	}
	opts := []client.ListOption{client.InNamespace(deployment.Namespace), client.MatchingLabelsSelector{Selector: selector}}

	sets := &machinev1alpha1.MachineSetList{}
	if err := r.Source.List(ctx, sets, opts...); err != nil {
		return group, fmt.Errorf("failed to list the MachineSets: %w", err)
	}
	owned, active := map[types.UID]bool{}, 0
	for _, set := range sets.Items {
		if metav1.IsControlledBy(&set, deployment) {
			owned[set.UID] = true
			if set.Spec.Replicas > 0 || set.Status.Replicas > 0 {
				active++
			}
		}
	}
	group.Rollout = active > 1

	machines := &machinev1alpha1.MachineList{}
	if err := reader.List(ctx, machines, opts...); err != nil {
		return group, fmt.Errorf("failed to list the machines: %w", err)
	}
	known := r.Nodes.Known()
	for i := range machines.Items {
		machine := &machines.Items[i]
		if owner := metav1.GetControllerOfNoCopy(machine); owner == nil || !owned[owner.UID] || !interesting(machine) {
			continue
		}
		member := preservation.Member{Machine: machine}
		if name := machine.Labels[machinev1alpha1.NodeLabelKey]; name != "" {
			if member.NodeUnknown = !known; known {
				if member.Node, err = r.node(ctx, name); err != nil {
					return group, err
				}
			}
		}
		group.Members = append(group.Members, member)
	}
	return group, nil
}

func (r *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := r.Nodes.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to read node %s: %w", name, err)
	}
	return node, nil
}

// carryOut runs the steps of all decisions. The steps that hold machines are all run before the first of the others, so
// that neither many machines nor a shoot whose API server hangs delay a hold (P9). It says whether some wait for the
// nodes.
func (r *Reconciler) carryOut(ctx context.Context, decisions []preservation.Decision, now time.Time) (waits bool, err error) {
	var runs []*run
	for i := range decisions {
		d := &decisions[i]
		if !d.Untouched() {
			runs = append(runs, &run{
				Reconciler: r,
				decision:   d,
				steps:      preservation.Steps(r.Holder, *d, r.Timeouts, now),
				machine:    d.Machine,
				node:       d.Node,
			})
		}
	}

	parallel := func(do func(*run)) {
		workqueue.ParallelizeUntil(ctx, parallelWrites, len(runs), func(i int) { do(runs[i]) })
	}
	parallel(func(run *run) { run.hold(ctx) })
	parallel(func(run *run) { run.finish(ctx) })

	errs := []error{ctx.Err()}
	for _, run := range runs {
		errs = append(errs, run.err)
		waits = waits || run.waits
	}
	return waits, errors.Join(errs...)
}

// run carries out the steps of one decision.
type run struct {
	*Reconciler
	decision *preservation.Decision
	steps    []preservation.Step
	machine  *machinev1alpha1.Machine
	node     *corev1.Node
	told     bool
	gone     bool
	waits    bool
	nodeErr  error
	err      error
}

// hold runs the steps that make the hold: the first ones, and never all.
func (r *run) hold(ctx context.Context) {
	if r.decision.Confirm && !r.confirm(ctx) {
		r.steps = nil
		return
	}
	others := slices.IndexFunc(r.steps, func(step preservation.Step) bool { return !step.Hold })
	r.do(ctx, r.steps[:others])
	r.steps = r.steps[others:]
}

// confirm says that the machine is not preserved yet, whatever the cache knows: it would get another expiry.
func (r *run) confirm(ctx context.Context) bool {
	current := &machinev1alpha1.Machine{}
	err := r.SourceReader.Get(ctx, client.ObjectKeyFromObject(r.machine), current)
	r.gone, r.err = apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	if err != nil || current.UID != r.machine.UID || preservation.ReadRecord(current) != nil {
		return false
	}
	r.machine = current
	return true
}

// finish runs the remaining steps.
func (r *run) finish(ctx context.Context) {
	r.do(ctx, r.steps)
	r.err = errors.Join(r.err, r.nodeErr)
}

func (r *run) do(ctx context.Context, steps []preservation.Step) {
	if r.decision.NodeUnknown && r.decision.Target == nil {
		// The marks on the node, and the request there, outlive the record if they are not removed before it.
		r.waits = true
		return
	}
	for _, step := range steps {
		switch {
		case r.gone, r.err != nil, step.AfterNode && r.nodeErr != nil:
			return
		case step.Machine != nil:
			err := r.editMachine(ctx, step)
			r.gone, r.err = apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		case r.node != nil && r.nodeErr == nil:
			err := r.editNode(ctx, step)
			if r.nodeErr = client.IgnoreNotFound(err); err != nil {
				r.node = nil
			}
		}
	}
}

func (r *run) editMachine(ctx context.Context, step preservation.Step) error {
	edited := r.machine.DeepCopy()
	step.Machine(edited)
	wrote, err := edit(ctx, r.Source, r.machine, edited, step)
	if !wrote {
		return err
	}
	r.machine = edited
	// The record is the transition: whatever fails after it is caught up with in silence.
	if step.Record && r.decision.Rule != "" && !r.told {
		r.transition(r.decision)
		r.told = true
	}
	return nil
}

func (r *run) editNode(ctx context.Context, step preservation.Step) error {
	edited := r.node.DeepCopy()
	step.Node(edited)
	wrote, err := edit(ctx, r.Nodes, r.node, edited, step)
	if wrote {
		r.node = edited
	}
	return err
}

// edit patches original to edited if they differ, and says whether it did.
func edit(ctx context.Context, c client.Client, original, edited client.Object, step preservation.Step) (bool, error) {
	if apiequality.Semantic.DeepEqual(original, edited) {
		return false, nil
	}
	var (
		base  = original.DeepCopyObject().(client.Object)
		opts  []client.MergeFromOption
		patch client.Patch
		err   error
	)
	if step.Lock {
		opts = append(opts, client.MergeFromWithOptimisticLock{})
	}
	if _, isNode := original.(*corev1.Node); isNode {
		// Conditions are merged by their type: the others are the kubelet's.
		patch = client.StrategicMergeFrom(base, opts...)
	} else {
		patch = client.MergeFromWithOptions(base, opts...)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if step.Status {
		err = c.Status().Patch(ctx, edited, patch)
	} else {
		err = c.Patch(ctx, edited, patch)
	}
	return err == nil, err
}

// shareOf returns the share of a MachineDeployment; nil if none, or nothing readable, is written on it.
func shareOf(deployment *machinev1alpha1.MachineDeployment) *int32 {
	share, err := strconv.ParseInt(deployment.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax], 10, 32)
	if err != nil || share < 0 {
		return nil
	}
	return new(int32(share))
}

// timeoutOf returns for how long a machine of the MachineDeployment is preserved.
func timeoutOf(deployment *machinev1alpha1.MachineDeployment) time.Duration {
	if timeout, err := time.ParseDuration(deployment.Annotations[v1alpha1.AnnotationMachinePreserveTimeout]); err == nil && timeout > 0 {
		return timeout
	}
	return v1alpha1.DefaultMachinePreserveTimeout
}

// until returns the time to the next look, 0 for none.
func until(decisions []preservation.Decision, now time.Time) time.Duration {
	var next time.Time
	for _, d := range decisions {
		if !d.Next.IsZero() && (next.IsZero() || d.Next.Before(next)) {
			next = d.Next
		}
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}
