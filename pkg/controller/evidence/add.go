// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence limits how many bytes of evidence a seed stores, fairly: control planes with the most evidence store less,
// and control planes with little evidence store all of it. Only the leading replica does this.
package evidence

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "evidence"

// AddToManager adds the controller to the manager.
func (r *Reconciler) AddToManager(mgr manager.Manager) error {
	r.Client = mgr.GetClient()
	r.APIReader = mgr.GetAPIReader()
	r.Recorder = mgr.GetEventRecorder("machine-preservation-" + ControllerName)

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(pace.Once(reconcile.Request{NamespacedName: client.ObjectKey{Name: "seed"}})).
		WithOptions(pace.Options(1, time.Second, time.Minute)).
		Complete(r)
}
