// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes the NodeMaintenances that were Ready for too long (M9).
package garbagecollector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// EventGarbageCollected says that a NodeMaintenance was deleted, as nobody had done so for too long.
const EventGarbageCollected = "MaintenanceGarbageCollected"

// Maintenances knows their configuration as well.
type Maintenances interface {
	maintenance.Client
	// Config returns the configuration that counts, nil if there is none or nobody knows.
	Config(ctx context.Context) (*v1alpha1.MaintenanceOperatorConfig, error)
}

// Reconciler looks at one NodeMaintenance at a time: when it changes, and when its time is over.
type Reconciler struct {
	Shoot    Maintenances
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
}

// Reconcile deletes a NodeMaintenance whose time is over.
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
	now := r.Clock.Now()
	since, ok := domain.ReadySince(nm, now)
	if !ok || config == nil {
		return reconcile.Result{}, nil
	}
	limit := time.Duration(ptr.Deref(config.Spec.MaxNodeMaintenanceTimeSeconds, v1alpha1.DefaultMaxNodeMaintenanceTimeSeconds)) * time.Second
	if left := since.Add(limit).Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}

	deleteCtx, cancel := context.WithTimeout(ctx, shoot.WriteTimeout)
	defer cancel()
	// It may have changed since: the requestor may have asked to keep it.
	precondition := client.Preconditions{UID: &nm.UID, ResourceVersion: &nm.ResourceVersion}
	if err := r.Shoot.Delete(deleteCtx, nm.DeepCopy(), precondition); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("failed to delete the NodeMaintenance: %w", text.CutError(err)))
	}
	logf.FromContext(ctx).Info("Deleted a NodeMaintenance that was ready for too long", "since", since)
	maintenance.Tell(r.Recorder, domain.Event{
		Maintenance: nm, Warning: true, Reason: EventGarbageCollected,
		Note: fmt.Sprintf("Deleted, as it was Ready since %s, longer than %s.", since.UTC().Format(time.RFC3339), limit),
	})
	return reconcile.Result{}, nil
}
