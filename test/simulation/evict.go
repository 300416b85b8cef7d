// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// evict deletes a pod if its budget allows that, and answers as a kube-apiserver does.
func (s *APIServer) evict(by string, k key, body []byte) ([]byte, error) {
	var eviction policyv1.Eviction
	if err := json.Unmarshal(body, &eviction); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pod, err := s.podToDelete(k, opts)
	if err != nil {
		return nil, err
	}
	if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
		if err := s.takeFromBudgets(pod); err != nil {
			return nil, err
		}
	}
	s.evicting = true
	_, err = s.deleteLocked(by, k, pod, opts)
	if s.evicting = false; err != nil {
		return nil, err
	}
	return json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// takeFromBudgets lets the budgets know that a pod will be gone; an error says that one forbids it.
func (s *APIServer) takeFromBudgets(pod *corev1.Pod) error {
	for k, change := range s.objects {
		if k.resource != "poddisruptionbudgets" || k.namespace != pod.Namespace {
			continue
		}
		budget := fromUnstructured[policyv1.PodDisruptionBudget](change.Object)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			return err
		}
		status := &budget.Status
		unhealthy := !isReady(pod) && status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0
		switch {
		case !selector.Matches(labels.Set(pod.Labels)) || unhealthy:
			continue
		case status.ObservedGeneration < budget.Generation:
			return refuseEviction(10, "The disruption budget %s is still being processed by the server.", budget.Name)
		case status.DisruptionsAllowed == 0:
			return refuseEviction(0, "The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, status.DesiredHealthy, status.CurrentHealthy)
		}
		status.DisruptionsAllowed--
		if status.DisruptedPods == nil {
			status.DisruptedPods = map[string]metav1.Time{}
		}
		status.DisruptedPods[pod.Name] = now()
		s.append("apiserver", k, watch.Modified, toUnstructured(budget), change.Object)
	}
	return nil
}

func refuseEviction(retryAfter int, format string, args ...any) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...)})
	return err
}

// deletePod deletes a pod once its grace period is over and it has no finalizers.
func (s *APIServer) deletePod(by string, k key, opts metav1.DeleteOptions) (*Change, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pod, err := s.podToDelete(k, opts)
	if err != nil {
		return nil, err
	}
	return s.deleteLocked(by, k, pod, opts)
}

func (s *APIServer) podToDelete(k key, opts metav1.DeleteOptions) (*corev1.Pod, error) {
	current := s.objects[k]
	if current == nil {
		return nil, apierrors.NewNotFound(k.groupResource(), k.name)
	}
	pod := fromUnstructured[corev1.Pod](current.Object)
	if p := opts.Preconditions; p != nil && (p.UID != nil && *p.UID != pod.UID || p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion) {
		return nil, apierrors.NewConflict(k.groupResource(), k.name, fmt.Errorf("the UID is %s, and the resource version %s", pod.UID, pod.ResourceVersion))
	}
	return pod, nil
}

func (s *APIServer) deleteLocked(by string, k key, pod *corev1.Pod, opts metav1.DeleteOptions) (*Change, error) {
	current := s.objects[k]
	grace := *pod.Spec.TerminationGracePeriodSeconds
	if opts.GracePeriodSeconds != nil {
		grace = *opts.GracePeriodSeconds
	}
	deleted := now().Add(time.Duration(grace) * time.Second)
	if pod.DeletionTimestamp != nil {
		before := *pod.DeletionGracePeriodSeconds
		if opts.GracePeriodSeconds == nil || grace >= before {
			return current, nil // a grace period only becomes shorter
		}
		deleted = pod.DeletionTimestamp.Add(time.Duration(grace-before) * time.Second)
	}
	after := current.Object.DeepCopy()
	if grace == 0 && len(pod.Finalizers) == 0 {
		return s.append(by, k, watch.Deleted, after, current.Object), nil
	}
	after.SetDeletionTimestamp(new(metav1.NewTime(deleted)))
	after.SetDeletionGracePeriodSeconds(&grace)
	return s.append(by, k, watch.Modified, after, current.Object), nil
}
