// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package failuredrain drains the nodes of machines in Failed:Preserved. All state is on the node: the taint says since when the
// node is drained, and the condition how far the drain is.
package failuredrain

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation/failuredrain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// markInterval is when to look again at a node whose mark and whose machine do not agree.
const markInterval = 5 * time.Second

// Drainer takes one step of a drain, and forgets the node when there is none to take.
type Drainer interface {
	Step(ctx context.Context, node *corev1.Node, opts drain.Options, now time.Time) (drain.Progress, error)
	Forget(node string)
}

// Reconciler takes one step of the drain of one node at a time.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	// Nodes is the shoot.
	Nodes client.Client
	// Drainer does the work on the pods.
	Drainer Drainer
	// Timeouts are machine-controller-manager's defaults.
	Timeouts facts.Timeouts
	// Maintenance says that AnnotationMaintenance on a Node counts.
	Maintenance bool
	// Conditions says that others see in conditions of a node how its drain goes (D13), Strategies that this is so of drains for updates as well.
	Conditions, Strategies bool
	Clock                  clock.PassiveClock
	Recorder               events.EventRecorder
}

// Reconcile takes a step if the node is that of a machine in Failed:Preserved, is not drained yet, and nobody else drains
// it. From other nodes it removes what was shown of drains that have ended (D13).
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, err := shoot.ReadNode(ctx, r.Nodes, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if node == nil || !domain.IsDraining(node) {
		r.Drainer.Forget(req.Name)
		if node == nil || !domain.IsStray(node) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, executor.Apply(ctx, r.Nodes, domain.Sweep(node, r.Conditions, r.Strategies)).Err()
	}
	machine, err := shoot.MachineOf(ctx, r.Source, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if machine == nil {
		r.Drainer.Forget(node.Name)
		return reconcile.Result{}, nil
	}
	update, err := shoot.NewPools(r.Source).UpdateOf(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch domain.OwnerOf(machine, node, update.Outdated, r.Maintenance && facts.IsMaintained(node)) {
	case domain.Preservation:
	case domain.MCM, domain.Maintenance:
		r.Drainer.Forget(node.Name)
		return reconcile.Result{}, nil
	default:
		// Either cache may be behind the other: the mark on the node may be on its way in or out.
		return reconcile.Result{RequeueAfter: markInterval}, nil
	}

	now, timeouts := r.Clock.Now(), r.Timeouts.For(machine)
	forceVolumes, err := shoot.ForcesVolumes(ctx, r.Source, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	progress, err := r.Drainer.Step(ctx, node, drain.Options{
		Since:        preservation.DrainBegan(node, preservation.ReadRecord(machine).FailedAt(machine, timeouts), now),
		Timeout:      timeouts.Drain,
		ForceVolumes: forceVolumes,
	}, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods.WithLabelValues("evicted").Add(float64(progress.Evicted))
	pods.WithLabelValues("forced").Add(float64(progress.Forced))
	pods.WithLabelValues("again").Add(float64(progress.Again))
	if len(progress.NewReturns) > 0 {
		r.tell(node, domain.Event{Type: corev1.EventTypeWarning, Reason: domain.EventPodsCameBack, Note: drain.ReturnsText(progress.NewReturns)})
	}
	if progress.Incomplete != nil {
		logf.FromContext(ctx).Error(progress.Incomplete, "Drain step was incomplete")
	}
	if err := r.report(ctx, node, progress, now); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: progress.Next}, nil
}

// report writes the progress into the node's condition if it differs from what is there.
func (r *Reconciler) report(ctx context.Context, node *corev1.Node, progress drain.Progress, now time.Time) error {
	write, told := domain.Show(node, progress, r.Conditions, now)
	run := executor.Apply(ctx, r.Nodes, write)
	if !run.Written(node) {
		return run.Err()
	}
	for _, event := range told {
		r.tell(node, event)
	}
	return nil
}

func (r *Reconciler) tell(node *corev1.Node, event domain.Event) {
	r.Recorder.Eventf(node, nil, event.Type, event.Reason, "Drain", "%s", brief.Note(event.Note))
}
