// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatorconfig

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "maintenanceoperatorconfig"

// minRetry is after which time what failed is tried again at first.
const minRetry = 100 * time.Millisecond

// AddToManager adds the Reconciler to a manager of the control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, maintenances *maintenance.Maintenances) error {
	r.Shoot = maintenances
	r.Clock = clock.RealClock{}
	r.Recorder = maintenances.GetEventRecorder(ControllerName)
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(maintenances.ConfigsSource(requestOf)).
		WithOptions(pace.Options(1, minRetry, pace.MaxRetry)).
		WithLogConstructor(maintenances.Log(ControllerName)).
		Complete(pace.RetryConflicts(r))
}

func requestOf(_ context.Context, config *v1alpha1.MaintenanceOperatorConfig) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(config)}}
}
