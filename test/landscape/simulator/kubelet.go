// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startKubelet does on a Node what a kubelet does that has just started: it reports its port. The first one after a boot starts the
// containers again as well, which ended with the power, and reports the boot. The Node is not ready then until kwok serves it.
func (r *reconciler) startKubelet(ctx context.Context, node *corev1.Node, bootID string, port int32) error {
	before := node.DeepCopy()
	if node.Status.NodeInfo.BootID != bootID {
		if err := r.restartPods(ctx, node.Name); err != nil {
			return err
		}
		node.Status.NodeInfo.BootID = bootID
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == corev1.NodeReady {
				node.Status.Conditions[i] = kubeletStarts(r.now())
			}
		}
	} else if node.Status.DaemonEndpoints.KubeletEndpoint.Port == port {
		return nil
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	if err := r.shoot.Status().Patch(ctx, node, client.StrategicMergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not report the boot of the node: %w", err)
	}
	return nil
}

func kubeletStarts(now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type:               corev1.NodeReady,
		Status:             corev1.ConditionFalse,
		Reason:             "KubeletNotReady",
		Message:            "the kubelet has just started",
		LastHeartbeatTime:  now,
		LastTransitionTime: now,
	}
}

// restartPods leaves alone what kwok will take care of: pods that have not been started yet, and those that terminate.
func (r *reconciler) restartPods(ctx context.Context, nodeName string) error {
	pods := &corev1.PodList{}
	if err := r.shoot.List(ctx, pods, client.MatchingFields{"spec.nodeName": nodeName}); err != nil {
		return fmt.Errorf("could not list the pods of the node: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		before := pod.DeepCopy()
		restart(&pod.Status, r.now())
		if err := r.shoot.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("could not restart pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	return nil
}

func restart(status *corev1.PodStatus, now metav1.Time) {
	for i := range status.ContainerStatuses {
		container := &status.ContainerStatuses[i]
		terminated := &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", FinishedAt: now}
		if container.State.Running != nil {
			terminated.StartedAt = container.State.Running.StartedAt
		}
		container.LastTerminationState = corev1.ContainerState{Terminated: terminated}
		container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		container.RestartCount++
	}
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type != corev1.ContainersReady && condition.Type != corev1.PodReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			condition.Status, condition.LastTransitionTime = corev1.ConditionTrue, now
		}
	}
}
