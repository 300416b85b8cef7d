// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package clusterautoscaler

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/clusterautoscaler"
)

// settleTime is how long it takes at most until the caches of all replicas have seen a change.
const settleTime = 5 * time.Second

// Reconciler gives the cluster-autoscaler of a shoot the flag when the first share comes, and takes it away when the last
// one goes. In between, the webhook keeps it there while gardenlet writes the Deployment.
type Reconciler struct {
	// Client should read from a cache.
	Client client.Client
	// APIReader reads the Deployment: shares change rarely, and no cache is worth it.
	APIReader client.Reader
	// Limiter bounds how many pods of the cluster-autoscaler are replaced by this controller.
	Limiter flowcontrol.RateLimiter
}

// Reconcile writes the Deployment of the cluster-autoscaler if there is one that is not as it should be.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := r.Client.List(ctx, deployments, client.InNamespace(request.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	wanted := clusterautoscaler.Wanted(deployments.Items)

	autoscaler := &appsv1.Deployment{}
	if err := r.APIReader.Get(ctx, request.NamespacedName, autoscaler); err != nil {
		if apierrors.IsNotFound(err) {
			log.V(1).Info("Object is gone, stop reconciling")
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to get Deployment: %w", err)
	}
	// Who writes the command meanwhile is not to be overwritten.
	patch := client.StrategicMergeFrom(autoscaler.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if autoscaler.DeletionTimestamp != nil || !clusterautoscaler.Apply(autoscaler, wanted) {
		return reconcile.Result{}, nil
	}
	if err := r.Limiter.Wait(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to wait for the limiter: %w", err)
	}

	log.Info("Patching Deployment", "scalesWithUnreadyNodes", wanted)
	if err := r.Client.Patch(ctx, autoscaler, patch); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("failed to patch Deployment: %w", err)
	}
	// A webhook of a replica whose cache lags may have undone it, and no event would tell.
	if clusterautoscaler.Apply(autoscaler, wanted) {
		return reconcile.Result{RequeueAfter: settleTime}, nil
	}
	return reconcile.Result{}, nil
}
