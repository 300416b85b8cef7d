// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package gardenlet

import (
	"context"
	"errors"
	"fmt"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/controllerutils"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// ShootReconciler reconciles each generation of the Shoots that are scheduled to the Seed.
type ShootReconciler struct {
	Client   client.Client
	Clock    clock.PassiveClock
	Identity gardencorev1beta1.Gardener
	// Apply does what is to be done in the seed, and waits for the machines.
	Apply func(context.Context, *gardencorev1beta1.Shoot, *gardencorev1beta1.CloudProfile, *gardencorev1beta1.Seed) error
	// Delete takes all back, and waits until it is gone.
	Delete func(ctx context.Context, shootName string) error
}

// AddToManager adds the controller to the manager of the garden.
func (r *ShootReconciler) AddToManager(mgr manager.Manager) error {
	return builder.
		ControllerManagedBy(mgr).
		Named("shoot").
		For(&gardencorev1beta1.Shoot{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentSyncs}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *ShootReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shoot := &gardencorev1beta1.Shoot{}
	if err := r.Client.Get(ctx, request.NamespacedName, shoot); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case ptr.Deref(shoot.Spec.SeedName, "") != seedName:
		return reconcile.Result{}, nil
	case shoot.DeletionTimestamp == nil:
		if err := controllerutils.AddFinalizers(ctx, r.Client, shoot, gardencorev1beta1.GardenerName); err != nil {
			return reconcile.Result{}, fmt.Errorf("could not add the finalizer: %w", err)
		}
	case !controllerutil.ContainsFinalizer(shoot, gardencorev1beta1.GardenerName):
		return reconcile.Result{}, nil
	}

	if err := r.reportStart(ctx, shoot); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.operate(ctx, shoot); err != nil {
		return reconcile.Result{}, errors.Join(err, r.reportError(ctx, shoot, err))
	}
	if err := r.reportSuccess(ctx, shoot); err != nil {
		return reconcile.Result{}, err
	}
	// gardener-apiserver allows for it only when the deletion has been reported as successful.
	if shoot.DeletionTimestamp != nil {
		if err := controllerutils.RemoveFinalizers(ctx, r.Client, shoot, gardencorev1beta1.GardenerName); err != nil {
			return reconcile.Result{}, fmt.Errorf("could not remove the finalizer: %w", err)
		}
	}
	return reconcile.Result{}, nil
}

func (r *ShootReconciler) operate(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	if shoot.DeletionTimestamp != nil {
		return r.Delete(ctx, shoot.Name)
	}
	cloudProfile, err := gardenerutils.GetCloudProfile(ctx, r.Client, shoot)
	if err != nil {
		return fmt.Errorf("could not read the CloudProfile: %w", err)
	}
	on := &gardencorev1beta1.Seed{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: seedName}, on); err != nil {
		return fmt.Errorf("could not read Seed %s: %w", seedName, err)
	}
	return r.Apply(ctx, shoot, cloudProfile, on)
}

func (r *ShootReconciler) reportStart(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	operation := v1beta1helper.ComputeOperationType(shoot.ObjectMeta, shoot.Status.LastOperation)
	return r.report(ctx, shoot, func() {
		shoot.Status.Gardener = r.Identity
		shoot.Status.UID = shoot.UID
		shoot.Status.TechnicalID = seed.ControlPlaneNamespace(shoot.Name)
		shoot.Status.SeedName = shoot.Spec.SeedName
		shoot.Status.ObservedGeneration = shoot.Generation
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{
			Type:        operation,
			State:       gardencorev1beta1.LastOperationStateProcessing,
			Description: string(operation) + " of the Shoot has begun.",
		}
	})
}

func (r *ShootReconciler) reportError(ctx context.Context, shoot *gardencorev1beta1.Shoot, err error) error {
	return r.report(ctx, shoot, func() {
		shoot.Status.LastOperation.State = gardencorev1beta1.LastOperationStateError
		shoot.Status.LastOperation.Description = err.Error() + " Operation will be retried."
		shoot.Status.LastErrors = []gardencorev1beta1.LastError{*v1beta1helper.LastError(err.Error())}
	})
}

func (r *ShootReconciler) reportSuccess(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	return r.report(ctx, shoot, func() {
		shoot.Status.IsHibernated = v1beta1helper.HibernationIsEnabled(shoot)
		shoot.Status.LastOperation.State = gardencorev1beta1.LastOperationStateSucceeded
		shoot.Status.LastOperation.Progress = 100
		shoot.Status.LastOperation.Description = string(shoot.Status.LastOperation.Type) + " of the Shoot has succeeded."
		shoot.Status.LastErrors = nil
	})
}

func (r *ShootReconciler) report(ctx context.Context, shoot *gardencorev1beta1.Shoot, change func()) error {
	patch := client.MergeFrom(shoot.DeepCopy())
	change()
	shoot.Status.LastOperation.LastUpdateTime = metav1.NewTime(r.Clock.Now())
	if err := r.Client.Status().Patch(ctx, shoot, patch); err != nil {
		return fmt.Errorf("could not report the status: %w", err)
	}
	return nil
}
