// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

// deploymentReconciler keeps the pods of a Deployment, without ReplicaSets in between.
type deploymentReconciler struct {
	client client.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *deploymentReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	deployment := &appsv1.Deployment{}
	if err := r.client.Get(ctx, request.NamespacedName, deployment); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, r.deleteOrphans(ctx, request)
		}
		return reconcile.Result{}, fmt.Errorf("could not read the deployment: %w", err)
	}
	pods, err := r.pods(ctx, deployment)
	if err != nil {
		return reconcile.Result{}, err
	}

	wanted := wantedPods(deployment)
	for _, pod := range wanted {
		if slices.ContainsFunc(pods, func(present corev1.Pod) bool { return present.Name == pod.Name }) {
			continue
		}
		if err := r.client.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, fmt.Errorf("could not create pod %s: %w", pod.Name, err)
		}
	}
	for _, pod := range surplus(wanted, pods) {
		if err := r.client.Delete(ctx, &pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("could not delete pod %s: %w", pod.Name, err)
		}
	}

	before := deployment.DeepCopy()
	deployment.Status = deploymentStatus(deployment, pods)
	if err := r.client.Status().Patch(ctx, deployment, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("could not write the status of the deployment: %w", err)
	}
	return reconcile.Result{}, nil
}

func (r *deploymentReconciler) pods(ctx context.Context, deployment *appsv1.Deployment) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(deployment.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("could not list the pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, deployment) }), nil
}

// deleteOrphans does the garbage collection, as the seed has no controller manager.
func (r *deploymentReconciler) deleteOrphans(ctx context.Context, request reconcile.Request) error {
	list := &corev1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(request.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("could not list the pods: %w", err)
	}
	for _, pod := range list.Items {
		if owner := metav1.GetControllerOf(&pod); owner == nil || owner.Name != request.Name {
			continue
		}
		if err := r.client.Delete(ctx, &pod); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("could not delete pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// wantedPods returns the pods that the Deployment wants. Their names are predictable: a pod that is not yet in the cache
// cannot be created twice.
func wantedPods(deployment *appsv1.Deployment) []*corev1.Pod {
	hash := templateHash(deployment)
	pods := make([]*corev1.Pod, 0, 1)
	for i := range ptr.Deref(deployment.Spec.Replicas, 1) {
		template := deployment.Spec.Template.DeepCopy()
		podLabels := maps.Clone(template.Labels)
		podLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		template.Spec.NodeName = node.Name
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprintf("%s-%s-%d", deployment.Name, hash, i),
				Namespace:       deployment.Namespace,
				Labels:          podLabels,
				Annotations:     template.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
			},
			Spec: template.Spec,
		})
	}
	return pods
}

func templateHash(deployment *appsv1.Deployment) string {
	encoded, _ := json.Marshal(deployment.Spec.Template) // a pod template can always be encoded
	hash := fnv.New32a()
	_, _ = hash.Write(encoded)
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// surplus returns the pods to delete. Those of an older template live until all wanted pods are ready.
func surplus(wanted []*corev1.Pod, present []corev1.Pod) []corev1.Pod {
	names := map[string]bool{}
	for _, pod := range wanted {
		names[pod.Name] = false
	}
	var others []corev1.Pod
	for _, pod := range present {
		if _, ok := names[pod.Name]; ok {
			names[pod.Name] = isReady(&pod)
		} else if pod.DeletionTimestamp == nil {
			others = append(others, pod)
		}
	}
	for _, ready := range names {
		if !ready {
			return nil
		}
	}
	return others
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// deploymentStatus returns the status that the deployment controller would write.
func deploymentStatus(deployment *appsv1.Deployment, pods []corev1.Pod) appsv1.DeploymentStatus {
	var (
		replicas = ptr.Deref(deployment.Spec.Replicas, 1)
		hash     = templateHash(deployment)
		status   = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation,
			Conditions:         slices.Clone(deployment.Status.Conditions),
		}
	)
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		status.Replicas++
		if pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			status.UpdatedReplicas++
		}
		if isReady(&pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	status.UnavailableReplicas = max(0, replicas-status.AvailableReplicas)

	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue,
		Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."}
	if status.AvailableReplicas < replicas {
		available.Status, available.Reason, available.Message = corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
	}
	progressing := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue,
		Reason: "NewReplicaSetAvailable", Message: "All replicas are updated and available."}
	if status.UpdatedReplicas < replicas || status.Replicas > status.UpdatedReplicas || status.AvailableReplicas < replicas {
		progressing.Reason, progressing.Message = "ReplicaSetUpdated", "The replicas are being updated."
	}
	for _, condition := range []appsv1.DeploymentCondition{available, progressing} {
		setCondition(&status.Conditions, condition)
	}
	return status
}

func setCondition(conditions *[]appsv1.DeploymentCondition, condition appsv1.DeploymentCondition) {
	now := metav1.Now()
	condition.LastUpdateTime, condition.LastTransitionTime = now, now
	for i, present := range *conditions {
		if present.Type != condition.Type {
			continue
		}
		if present.Status == condition.Status {
			condition.LastTransitionTime = present.LastTransitionTime
		}
		if present.Status == condition.Status && present.Reason == condition.Reason {
			condition.LastUpdateTime = present.LastUpdateTime
		}
		(*conditions)[i] = condition
		return
	}
	*conditions = append(*conditions, condition)
}
