// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "nodemaintenance-garbage-collector"

// AddToManager adds the Reconciler to a manager.
func (r *Reconciler) AddToManager(mgr manager.Manager, maintenances *maintenance.Maintenances) error {
	r.Shoot = maintenances
	r.Clock = clock.RealClock{}
	r.Recorder = maintenances.GetEventRecorder(ControllerName)
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(maintenances.Source(r.requestOf)).
		WatchesRawSource(maintenances.ConfigSource(r.everything)).
		WithOptions(pace.Options(1, pace.MinRetry, pace.MaxRetry)).
		WithLogConstructor(maintenances.Log(ControllerName)).
		Complete(pace.RetryConflicts(r))
}

// requestOf leaves out what has no time to be over.
func (r *Reconciler) requestOf(_ context.Context, nm *v1alpha1.NodeMaintenance) []reconcile.Request {
	if !domain.IsHandedOver(nm) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(nm)}}
}

func (r *Reconciler) everything(ctx context.Context) []reconcile.Request {
	var requests []reconcile.Request
	for _, nm := range maintenance.All(ctx, r.Shoot) {
		requests = append(requests, r.requestOf(ctx, nm)...)
	}
	return requests
}
