// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"context"
	"fmt"

	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
)

// vpaName is the name of the VerticalPodAutoscaler of machine-controller-manager.
const vpaName = v1beta1constants.DeploymentNameMachineControllerManager + "-vpa"

// Reconciler compares the Deployment of machine-controller-manager with what the webhook would make of it now. It never
// writes the container itself, so that there is one place that does.
type Reconciler struct {
	// Client should read from a cache.
	Client client.Client
	// Ensurer is that of the webhook.
	Ensurer genericmutator.Ensurer
	// Limiter bounds how many pods of machine-controller-manager are replaced by this controller.
	Limiter flowcontrol.RateLimiter
}

// Reconcile has the API server call the webhook if the Deployment is not as the webhook would make it. As long as that
// does not help, because the webhook is away or its caches lag behind, it returns an error and is called again later.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	deployment := &appsv1.Deployment{}
	if err := r.Client.Get(ctx, request.NamespacedName, deployment); err != nil {
		if apierrors.IsNotFound(err) {
			log.V(1).Info("Object is gone, stop reconciling")
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to get Deployment: %w", err)
	}
	if deployment.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}

	difference, err := machinecontrollermanager.Difference(ctx, r.Ensurer, deployment)
	if err != nil || difference == "" {
		return reconcile.Result{}, err
	}
	if err := r.Limiter.Wait(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to wait for the limiter: %w", err)
	}

	log.Info("Triggering the injection of the preservation controller", "reason", difference)
	if err := r.touch(ctx, deployment); err != nil {
		return reconcile.Result{}, err
	}
	// What was written while the webhook was away lacks the container's policy, too.
	if err := r.touch(ctx, &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: vpaName, Namespace: request.Namespace}}); err != nil {
		return reconcile.Result{}, err
	}

	difference, err = machinecontrollermanager.Difference(ctx, r.Ensurer, deployment)
	if err == nil && difference != "" {
		err = fmt.Errorf("the webhook has not injected the preservation controller: %s", difference)
	}
	return reconcile.Result{}, err
}

// touch has the API server call the webhook, without a change of our own that could conflict with anybody's.
func (r *Reconciler) touch(ctx context.Context, object client.Object) error {
	if err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte("{}"))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to patch %T %q: %w", object, object.GetName(), err)
	}
	return nil
}
