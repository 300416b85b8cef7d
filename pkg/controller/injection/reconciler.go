// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// vpaName is the name of the VerticalPodAutoscaler of machine-controller-manager.
const vpaName = v1beta1constants.DeploymentNameMachineControllerManager + "-vpa"

// Reconciler compares the Deployments of machine-controller-manager with what the webhook would make of them now, and has
// them replaced in waves. It never writes the container itself, so that there is one place that does.
type Reconciler struct {
	// Client should read from a cache.
	Client client.Client
	// APIReader should not: pods are read of those Deployments only that have been replaced and have not settled yet, and
	// Leases of a few.
	APIReader client.Reader
	// Ensurer is that of the webhook.
	Ensurer genericmutator.Ensurer
	// Config says when the waves halt.
	Config *configv1alpha1.ControllerConfiguration
	// Clock is that of the waves.
	Clock clock.Clock
	// Backoff postpones what the webhook was called for in vain.
	Backoff *flowcontrol.Backoff

	halted bool
	// observed are the Deployments whose pods were found ready, by namespace, in the state they had then.
	observed map[string]Rollout
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
	now := r.Clock.Now()
	rollouts, errs := r.rollouts(ctx, deployments.Items, now)

	decision := Decide(rollouts, r.Config, now)
	decision.measure()
	if decision.Halted != r.halted {
		r.halted = decision.Halted
		log.Info("The injection was halted, or goes on", "halted", decision.Halted, "outdated", decision.Outdated, "failed", decision.Failed)
	}
	for _, rollout := range decision.Replace {
		key := client.ObjectKeyFromObject(rollout.deployment)
		log.Info("Triggering the injection of the preservation controller", "deployment", key, "reason", rollout.Difference.Reason)
		if err := r.replace(ctx, rollout.deployment); err != nil {
			r.Backoff.Next(rollout.Namespace, now)
			errs = append(errs, fmt.Errorf("failed to replace Deployment %q: %w", key, err))
			continue
		}
		r.Backoff.DeleteEntry(rollout.Namespace)
	}
	return reconcile.Result{RequeueAfter: decision.After}, errors.Join(errs...)
}

// rollouts returns those of a seed. How containers get on that are as they should be matters only while others are to follow.
// A Deployment that has been complete for longer than a container may take needs no closer look, as a restart would have been
// seen in its status. But a container is ready as soon as it answers, so the first ones are to hold their Lease as well.
func (r *Reconciler) rollouts(ctx context.Context, deployments []appsv1.Deployment, now time.Time) ([]Rollout, []error) {
	var (
		rollouts, replaced []Rollout
		outdated           bool
		errs               []error
	)
	for i := range deployments {
		rollout, err := r.rollout(ctx, &deployments[i], now)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("failed to look after Deployment %q: %w", client.ObjectKeyFromObject(&deployments[i]), err))
		case rollout == nil:
		case rollout.Difference.Kind == machinecontrollermanager.None:
			replaced = append(replaced, *rollout)
		default:
			rollouts = append(rollouts, *rollout)
			outdated = outdated || rollout.IsOutdated()
		}
	}
	if !outdated {
		r.observed = nil
		return append(rollouts, replaced...), errs
	}
	observed, atWork := map[string]Rollout{}, 0
	slices.SortFunc(replaced, func(a, b Rollout) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace))
	})
	for _, rollout := range replaced {
		isFirst := atWork < firstWave+secondWave
		if !isFirst && rollout.Complete && now.Sub(rollout.Since) >= patience {
			rollouts = append(rollouts, rollout)
			continue
		}
		if isLeftAlone, err := r.isLeftAlone(ctx, rollout.Namespace); err != nil {
			errs = append(errs, err)
		} else if isLeftAlone {
			continue
		}
		before, ok := r.observed[rollout.Namespace]
		if ok && !isFirst && before.deployment.ResourceVersion == rollout.deployment.ResourceVersion {
			rollout = before
		} else if err := r.observe(ctx, &rollout, isFirst, now); err != nil {
			errs = append(errs, err)
		}
		if rollout.Sidecar == SidecarReady {
			if rollout.Complete {
				observed[rollout.Namespace] = rollout
			}
			if now.Sub(rollout.Since) >= patience {
				atWork++
			}
		}
		rollouts = append(rollouts, rollout)
	}
	r.observed = observed
	return rollouts, errs
}

// rollout returns nil for what has no container and is to have none, for what is scaled down and as it should be, and for
// what is left alone.
func (r *Reconciler) rollout(ctx context.Context, deployment *appsv1.Deployment, now time.Time) (*Rollout, error) {
	if deployment.DeletionTimestamp != nil {
		return nil, nil
	}
	difference, err := machinecontrollermanager.Compare(ctx, r.Ensurer, deployment)
	if err != nil {
		return nil, err
	}
	rollout := &Rollout{
		Namespace:  deployment.Namespace,
		Difference: difference,
		ScaledDown: ptr.Deref(deployment.Spec.Replicas, 1) == 0,
		Complete:   machinecontrollermanager.IsComplete(deployment),
		Since:      machinecontrollermanager.LastProgress(deployment, now),
		deployment: deployment,
	}
	if difference.Kind == machinecontrollermanager.None {
		if rollout.ScaledDown || machinecontrollermanager.Container(deployment) == nil {
			return nil, nil
		}
		if rollout.Complete {
			rollout.Sidecar = SidecarReady
		}
		return rollout, nil
	}
	if r.Backoff.IsInBackOffSinceUpdate(deployment.Namespace, now) {
		rollout.Postponed = r.Backoff.Get(deployment.Namespace)
	}
	if isLeftAlone, err := r.isLeftAlone(ctx, deployment.Namespace); err != nil || isLeftAlone {
		return nil, err
	}
	return rollout, nil
}

// isLeftAlone returns whether there is no shoot, not yet or not any more, or pods of it need not be what they should be.
func (r *Reconciler) isLeftAlone(ctx context.Context, namespace string) (bool, error) {
	cluster, err := extensionscontroller.GetCluster(ctx, r.Client, namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to get Cluster %q: %w", namespace, err)
	}
	shoot := cluster.Shoot
	return shoot == nil || shoot.DeletionTimestamp != nil || extensionscontroller.IsFailed(cluster) ||
		extensionscontroller.IsHibernationEnabled(cluster) || gardenerutils.ShouldIgnoreShoot(true, shoot), nil
}

// observe reads the pods of a Deployment, and whether one of them holds the Lease if that is needed. Nothing is known about
// one for which that fails.
func (r *Reconciler) observe(ctx context.Context, rollout *Rollout, needsLease bool, now time.Time) error {
	sidecar, since := rollout.Sidecar, rollout.Since
	rollout.Sidecar = SidecarUnknown
	selector, err := metav1.LabelSelectorAsSelector(rollout.deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("failed to read the selector of Deployment %q: %w", client.ObjectKeyFromObject(rollout.deployment), err)
	}
	pods := &corev1.PodList{}
	if err := r.APIReader.List(ctx, pods, client.InNamespace(rollout.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("failed to list the pods of Deployment %q: %w", client.ObjectKeyFromObject(rollout.deployment), err)
	}
	if told, at := SidecarOf(machinecontrollermanager.Container(rollout.deployment), pods.Items, now); told != SidecarUnknown {
		sidecar, since = told, at
	}
	if needsLease && sidecar == SidecarReady {
		holder, err := preservationcontroller.Holder(ctx, r.APIReader, rollout.Namespace, now)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return strings.HasPrefix(holder, pod.Name+"_") }) {
			sidecar = SidecarNotReady
		}
	}
	rollout.Sidecar, rollout.Since = sidecar, since
	return nil
}

// replace has the API server call the webhook, and returns an error if the Deployment is not as it should be then.
func (r *Reconciler) replace(ctx context.Context, deployment *appsv1.Deployment) error {
	if err := machinecontrollermanager.Touch(ctx, r.Client, deployment); err != nil {
		return err
	}
	// What was written while the webhook was away lacks the container's policy, too.
	if err := machinecontrollermanager.Touch(ctx, r.Client, &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: vpaName, Namespace: deployment.Namespace}}); err != nil {
		return err
	}

	difference, err := machinecontrollermanager.Compare(ctx, r.Ensurer, deployment)
	if err == nil && difference.Kind != machinecontrollermanager.None {
		err = fmt.Errorf("the webhook has not injected the preservation controller: %s", difference.Reason)
	}
	return err
}
