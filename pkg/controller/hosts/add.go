// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package hosts releases hosts that are off for longer than their power cycle allows, if no preservation controller is running
// that could release them (X19).
package hosts

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "hosts"
	// concurrentSyncs is more than one, so that a cluster of hosts that does not answer holds up only its own.
	concurrentSyncs = 5
)

// NewFinder returns the Finder of a manager, for the hosts of the component configuration.
func NewFinder(mgr manager.Manager, hosts *configv1alpha1.Hosts) *Finder {
	return &Finder{
		Reader:       mgr.GetCache(),
		APIReader:    mgr.GetAPIReader(),
		Driver:       NewDriverOf(mgr.GetAPIReader(), mgr.GetClient(), hosts),
		MaxServicing: ptr.Deref(hosts.MaxServicing, metav1.Duration{}).Duration,
		Clock:        clock.RealClock{},
	}
}

// AddToManager adds the controller to the manager, whose cache is to have those Machines only that have LabelPowerCycle.
func (r *Reconciler) AddToManager(mgr manager.Manager) error {
	r.Recorder = mgr.GetEventRecorder("machine-preservation-" + ControllerName)

	namespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: object.GetNamespace()}}}
	})
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(pace.Options(concurrentSyncs, time.Second, time.Minute)).
		WatchesMetadata(&machinev1alpha1.Machine{}, namespace, builder.WithPredicates(MachinePredicate())).
		WatchesMetadata(&corev1.Secret{}, namespace, builder.WithPredicates(AccessSecretPredicate())).
		Watches(&machinev1alpha1.MachineDeployment{}, namespace, builder.WithPredicates(MachineDeploymentPredicate())).
		Complete(r)
}
