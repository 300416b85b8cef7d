// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes NodeMaintenances that were Ready for too long (M9), and ends NodeMaintenances that requestors
// do not release in time (M7).
package garbagecollector

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
)

// Reasons of Events.
const (
	// EventGarbageCollected says that a NodeMaintenance was deleted, because nobody had done so for too long.
	EventGarbageCollected = "MaintenanceGarbageCollected"
	// EventEnded says for whom a NodeMaintenance that was deleted had waited too long, so that its node is given back.
	EventEnded = "MaintenanceEnded"
)

// Maintenances knows their configuration as well.
type Maintenances interface {
	maintenance.Client
	// Config returns the configuration that counts, nil if there is none or nobody knows.
	Config(ctx context.Context) (*v1alpha1.MaintenanceOperatorConfig, error)
}

// Reconciler looks at one NodeMaintenance at a time: when it changes, and when its time is over.
type Reconciler struct {
	Shoot Maintenances
	// MaxOvertime is for how much longer than it may be Ready a NodeMaintenance is kept by a requestor that has failed, or after it
	// was deleted by additional ones; 0 for ever.
	MaxOvertime time.Duration
	Clock       clock.PassiveClock
	Recorder    events.EventRecorder
}

// Reconcile deletes a NodeMaintenance whose time is over, or ends one that is deleted. It writes once: what is left to do
// follows from what was written, whoever sees it next.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Shoot.Known() {
		return reconcile.Result{}, nil // it is called when they are
	}
	nm := &v1alpha1.NodeMaintenance{}
	if err := r.Shoot.Get(ctx, req.NamespacedName, nm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	config, err := r.Shoot.Config(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to read the configuration: %w", err)
	}
	if config == nil {
		return reconcile.Result{}, nil
	}
	now, bounds := r.Clock.Now(), domain.Bounds{Max: domain.MaxReadyTime(&config.Spec), Overtime: r.MaxOvertime}
	ends := bounds.Ends(nm, now)
	switch {
	case ends.At.IsZero():
		return reconcile.Result{}, nil
	case ends.At.After(now):
		return reconcile.Result{RequeueAfter: ends.At.Sub(now)}, nil
	}
	act := r.delete
	if nm.DeletionTimestamp != nil {
		act = r.end
	}
	return reconcile.Result{}, act(ctx, nm, ends.Since, ends.At.Sub(ends.Since))
}

// delete deletes a NodeMaintenance as it was read: the requestor may have asked to keep it since.
func (r *Reconciler) delete(ctx context.Context, nm *v1alpha1.NodeMaintenance, since time.Time, limit time.Duration) error {
	if run := executor.Apply(ctx, r.Shoot, intent.Write{Before: nm, Delete: true, Lock: true}); !run.Written(nm) {
		return run.Err()
	}
	logf.FromContext(ctx).Info("Deleted a NodeMaintenance that had its node for too long", "since", since, "phase", domain.PhaseOf(nm))
	r.tell(nm, EventGarbageCollected, "The NodeMaintenance was deleted, because it was in phase %s since %s, longer than %s.", domain.PhaseOf(nm), since.UTC().Format(time.RFC3339), limit)
	return nil
}

// end has one that is deleted wait for nobody any more. What comes of that is up to the controller of NodeMaintenances.
func (r *Reconciler) end(ctx context.Context, nm *v1alpha1.NodeMaintenance, since time.Time, limit time.Duration) error {
	after := nm.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationEnded, "true")
	if run := executor.Apply(ctx, r.Shoot, intent.Write{Before: nm, After: after, Lock: true}); !run.Written(nm) {
		return run.Err()
	}
	logf.FromContext(ctx).Info("Ended a NodeMaintenance that was not released in time", "since", since, "phase", domain.PhaseOf(nm))
	waitsFor := "its requestor has failed"
	if !domain.RequestorFailed(nm) {
		waitsFor = "its additional requestors have not released it"
	}
	r.tell(nm, EventEnded, "The maintenance was ended, because %s, and it has been in phase %s since %s, longer than %s. The node is given back.", waitsFor, domain.PhaseOf(nm), since.UTC().Format(time.RFC3339), limit)
	return nil
}

func (r *Reconciler) tell(nm *v1alpha1.NodeMaintenance, reason, format string, args ...any) {
	maintenance.Tell(r.Recorder, domain.Event{Maintenance: nm, Warning: true, Reason: reason, Note: fmt.Sprintf(format, args...)})
}
