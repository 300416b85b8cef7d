// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package operatorconfig shows on each MaintenanceOperatorConfig whether its limits apply. It decides nothing.
package operatorconfig

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
)

// EventNotUsed says why limits do not apply.
const EventNotUsed = "MaintenanceConfigNotUsed"

// Reconciler looks at one MaintenanceOperatorConfig at a time: when it changes.
type Reconciler struct {
	// Shoot reads from a cache.
	Shoot    client.Client
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
}

// Reconcile writes the condition of a MaintenanceOperatorConfig.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	config := &v1alpha1.MaintenanceOperatorConfig{}
	if err := r.Shoot.Get(ctx, req.NamespacedName, config); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if config.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	after := config.DeepCopy()
	condition := domain.UsedCondition(config, r.Clock.Now())
	if !meta.SetStatusCondition(&after.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	if run := executor.Apply(ctx, r.Shoot, intent.Write{Before: config, After: after, Status: true, Lock: true}); !run.Written(config) {
		return reconcile.Result{}, run.Err()
	}
	if condition.Status == metav1.ConditionFalse {
		r.Recorder.Eventf(config, nil, corev1.EventTypeWarning, EventNotUsed, condition.Reason, "%s", brief.Note(condition.Message))
	}
	return reconcile.Result{}, nil
}
