// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"context"
	"errors"
	"fmt"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
)

// vpaName is the name of the VerticalPodAutoscaler of machine-controller-manager.
const vpaName = v1beta1constants.DeploymentNameMachineControllerManager + "-vpa"

// Reconciler compares the Deployments of machine-controller-manager with what the webhook would make of them now, and has
// them replaced in waves. It never writes the container itself, so that there is one place that does.
type Reconciler struct {
	// Client should read from a cache.
	Client client.Client
	// Ensurer is that of the webhook.
	Ensurer genericmutator.Ensurer
	// Config says when the waves halt.
	Config *configv1alpha1.ControllerConfiguration
	// Clock is that of the waves.
	Clock clock.Clock
	// Backoff postpones what the webhook was called for in vain.
	Backoff *flowcontrol.Backoff

	halted bool
}

// Reconcile looks at the whole seed, whatever the request is. It has the API server call the webhook for the Deployments
// of the next wave. Where that does not help, because the webhook is away or its caches lag behind, it returns an error,
// and other Deployments go first until that one is tried again.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	deployments := &appsv1.DeploymentList{}
	if err := r.Client.List(ctx, deployments); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to list Deployments: %w", err)
	}
	r.Backoff.GC()
	var (
		rollouts []Rollout
		errs     []error
		byName   = make(map[string]*appsv1.Deployment, len(deployments.Items))
		now      = r.Clock.Now()
	)
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		rollout, err := r.rollout(ctx, deployment, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to look after Deployment %q: %w", client.ObjectKeyFromObject(deployment), err))
		}
		if rollout != nil {
			rollouts = append(rollouts, *rollout)
			byName[deployment.Namespace] = deployment
		}
	}

	decision := Decide(rollouts, r.Config, now)
	decision.measure()
	if decision.Halted != r.halted {
		r.halted = decision.Halted
		log.Info("The injection was halted, or goes on", "halted", decision.Halted, "outdated", decision.Outdated, "failed", decision.Failed)
	}
	for _, namespace := range decision.Replace {
		if err := r.replace(ctx, byName[namespace]); err != nil {
			r.Backoff.Next(namespace, now)
			errs = append(errs, fmt.Errorf("failed to replace Deployment %q: %w", client.ObjectKeyFromObject(byName[namespace]), err))
			continue
		}
		r.Backoff.DeleteEntry(namespace)
	}
	return reconcile.Result{RequeueAfter: decision.After}, errors.Join(errs...)
}

// rollout returns nil for what is left alone: its pods are not what they should be for other reasons, or there are none.
func (r *Reconciler) rollout(ctx context.Context, deployment *appsv1.Deployment, now time.Time) (*Rollout, error) {
	if deployment.DeletionTimestamp != nil || ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return nil, nil
	}
	difference, err := machinecontrollermanager.Difference(ctx, r.Ensurer, deployment)
	if err != nil {
		return nil, err
	}
	if difference == "" && machinecontrollermanager.Container(deployment) == nil {
		return nil, nil // it is not to have one
	}
	cluster, err := extensionscontroller.GetCluster(ctx, r.Client, deployment.Namespace)
	if err != nil {
		// Without a Cluster there is no shoot yet, or no more.
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to get Cluster: %w", err)
	}
	shoot := cluster.Shoot
	if shoot == nil || shoot.DeletionTimestamp != nil || extensionscontroller.IsFailed(cluster) ||
		extensionscontroller.IsHibernationEnabled(cluster) || gardenerutils.ShouldIgnoreShoot(true, shoot) {
		return nil, nil
	}

	return &Rollout{
		Namespace: deployment.Namespace,
		Outdated:  difference != "",
		Postponed: r.Backoff.IsInBackOffSinceUpdate(deployment.Namespace, now),
		Complete:  machinecontrollermanager.IsComplete(deployment),
		Since:     machinecontrollermanager.LastProgress(deployment, now),
	}, nil
}

// replace has the API server call the webhook, and returns an error if the Deployment is not as it should be then.
func (r *Reconciler) replace(ctx context.Context, deployment *appsv1.Deployment) error {
	difference, err := machinecontrollermanager.Difference(ctx, r.Ensurer, deployment)
	if err != nil {
		return err
	}
	logf.FromContext(ctx).Info("Triggering the injection of the preservation controller", "deployment", client.ObjectKeyFromObject(deployment), "reason", difference)
	if err := r.touch(ctx, deployment); err != nil {
		return err
	}
	// What was written while the webhook was away lacks the container's policy, too.
	if err := r.touch(ctx, &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: vpaName, Namespace: deployment.Namespace}}); err != nil {
		return err
	}

	difference, err = machinecontrollermanager.Difference(ctx, r.Ensurer, deployment)
	if err == nil && difference != "" {
		err = fmt.Errorf("the webhook has not injected the preservation controller: %s", difference)
	}
	return err
}

// touch has the API server call the webhook, without a change of our own that could conflict with anybody's.
func (r *Reconciler) touch(ctx context.Context, object client.Object) error {
	if err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte("{}"))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to patch %T %q: %w", object, object.GetName(), err)
	}
	return nil
}
