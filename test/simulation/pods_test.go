// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestKnownDrains lets histories happen in which nodes with pods are drained, and something is in the way.
func TestKnownDrains(t *testing.T) {
	runKnown(t, map[string]known{
		"P7: a budget allows nothing on a node that answers": {History{Replicas: 3, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
		}}, seen{"pod evicted by sidecar": some, "pod ended by sidecar": some}},
		// There is no other node: those stay that the budget keeps.
		"P7: the sidecar is killed in the middle of a drain": {History{Replicas: 1, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Deadlocked}},
			{2 * time.Hour, Restart{sidecarName, 20 * time.Minute}},
		}}, seen{"pod evicted by sidecar": some, "pod ended by sidecar": some}},
		"P7: pods of a dead node are deleted by force": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
		}}, seen{"pod ended by sidecar": some}},
		"D10: a pod with a volume is kept on a dead node, and goes with it": {History{Replicas: 1, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
		}}, seen{"pod evicted by sidecar": some, "pod ended by sidecar": some, "pod ended by machine-controller": some}},
		"D1: a node is healthy again while it is drained": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{"pod evicted by sidecar": some, "Failed:Preserved > Running:Preserved": some}},
		"D5: pods have a finalizer": {History{Replicas: 2, Share: 1, Timeout: 8 * time.Hour, Events: []Event{
			{19 * time.Minute, Stick{0, true, 4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
		}}, seen{"pod evicted by sidecar": some, "pod ended by user": some}},
		"D1: machines are replaced while a budget allows nothing": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, Events: []Event{
			{19 * time.Minute, Freeze{30 * time.Minute}},
			{20 * time.Minute, Roll{}},
		}}, seen{"pod evicted by machine-controller": some}},
		"D13: drains are shown, and a node is healthy again while it is drained": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, ShowsDrains: true, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
			{time.Hour, Break{0, Healthy}},
		}}, seen{"shown: DrainInProgress": 1, "shown: Drained": 0, "Failed:Preserved > Running:Preserved": some}},
		"D13: drains are shown, and the sidecar is killed when one begins, and when it ends": {History{Replicas: 2, Share: 1, Timeout: 4 * time.Hour, ShowsDrains: true, Events: []Event{
			{20 * time.Minute, Break{0, Dead}},
			{30 * time.Minute, FailWrite{sidecarName, WriteFault{Skip: 3, Kill: true, Applied: true, Downtime: time.Minute}}},
			{time.Hour, FailWrite{sidecarName, WriteFault{Kill: true, Applied: true, Downtime: time.Minute}}},
		}}, seen{"shown: DrainInProgress": some}},
		"D13: kubectl reports a drain while one of ours is shown, and a person clears that": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, ShowsDrains: true, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
			{45 * time.Minute, ReportDrain{0, 10 * time.Minute, 20 * time.Minute}},
		}}, seen{"shown: DrainInProgress": some}},
		"D13: kubectl has reported a drain before ours begins": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, ShowsDrains: true, Events: []Event{
			{18 * time.Minute, ReportDrain{0, time.Minute, 8 * time.Hour}},
			{20 * time.Minute, Break{0, Dead}},
		}}, seen{"shown: DrainInProgress": 0}},
		// When the node is drained at last, its maintenance does not keep the machine any more.
		"D13: a node that a requestor has fails, and is healthy again": {History{Replicas: 2, Share: 1, Timeout: 2 * time.Hour, Longest: 3 * time.Hour, ShowsDrains: true, Events: []Event{
			{19 * time.Minute, Freeze{195 * time.Minute}},
			{20 * time.Minute, Maintain{Machine: 0, For: 9 * time.Hour}},
			{220 * time.Minute, Break{0, Dead}},
			{240 * time.Minute, Break{0, Healthy}},
		}}, seen{"shown: DrainInProgress": 1, "shown: Drained": 1, "Failed:Preserved > Running:Preserved": 1}},
		"D13: a requestor is done with a node whose machine has failed meanwhile": {History{Replicas: 2, Share: 1, Timeout: 2 * time.Hour, Longest: 3 * time.Hour, ShowsDrains: true, Events: []Event{
			{19 * time.Minute, Freeze{195 * time.Minute}},
			{20 * time.Minute, Maintain{Machine: 0, For: 30 * time.Minute}},
			{220 * time.Minute, Break{0, Dead}},
		}}, seen{"shown: DrainInProgress": 2, "shown: Drained": 2, "not kept > Failed:Preserved": 1}},
		"D13: drains are not to be shown any more while one is, and then are": {History{Replicas: 3, Share: 1, Timeout: 4 * time.Hour, ShowsDrains: true, Events: []Event{
			{19 * time.Minute, Freeze{4 * time.Hour}},
			{20 * time.Minute, Break{0, Deadlocked}},
			{45 * time.Minute, ShowDrains{false}},
			{70 * time.Minute, ShowDrains{true}},
		}}, seen{"shown: DrainInProgress": 1}},
		"D13, M16: a maintenance drains its node, which is shown, and another one of which kubectl reports": {History{Replicas: 3, Share: 0, Timeout: time.Hour, ShowsDrains: true, Events: []Event{
			{20 * time.Minute, Maintain{Machine: 0, For: 30 * time.Minute}},
			{2 * time.Hour, ReportDrain{1, 5 * time.Minute, 2 * time.Hour}},
			{2*time.Hour + time.Minute, Maintain{Machine: 1, For: 30 * time.Minute}},
		}}, seen{"shown: DrainInProgress": 1, "shown: Drained": 1, "maintenance Draining > Ready": 2}},
	})
}

type serve func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (s serve) RoundTrip(req *http.Request) (*http.Response, error) { return s(req), nil }

// TestEvictions asks the API server as clients do, and expects what a real one answers.
func TestEvictions(t *testing.T) {
	server := NewAPIServer("shoot")
	pods := newPods(server, newCloud(NewAPIServer("seed"), server))
	pods.read()
	pods.start(guarded, "node")
	pods.read()
	pods.show(pods.pods["web-001"], "kubelet", corev1.PodRunning, true)
	pods.read()

	config := &rest.Config{Host: "http://shoot", Transport: serve(func(req *http.Request) *http.Response { return server.Serve("test", req, nil, nil) })}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client := kubernetes.NewForConfigOrDie(config)
	of := func(node string) int {
		list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	evict := func(uid types.UID) error {
		return client.CoreV1().Pods(podNamespace).EvictV1(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "web-001"}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
	}
	remove := func(grace int64) error {
		return client.CoreV1().Pods(podNamespace).Delete(t.Context(), "web-001", metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	grace := func() int64 {
		pods.read()
		return *pods.pods["web-001"].DeletionGracePeriodSeconds
	}
	uid := pods.pods["web-001"].UID
	pods.finalize("web-001", []string{stuckFinalizer})
	pods.read()

	if of("node") != 1 || of("other") != 0 {
		t.Errorf("%d pods are on the node, and %d on another one", of("node"), of("other"))
	}
	pods.keepBudget() // one of three pods is healthy
	if err := evict(uid); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("the budget allows nothing: %v", err)
	}
	if err := evict("other"); !apierrors.IsConflict(err) {
		t.Errorf("it is another pod: %v", err)
	}
	_, _ = server.Update("test", budgetKey, true, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		budget := fromUnstructured[policyv1.PodDisruptionBudget](object)
		budget.Status.DisruptionsAllowed = 1
		return toUnstructured(budget), nil
	})
	if err := evict(uid); err != nil || grace() != 30 {
		t.Errorf("the budget allows it: %v, grace period %d", err, grace())
	}
	if pods.budget.Status.DisruptionsAllowed != 0 || len(pods.budget.Status.DisruptedPods) != 1 {
		t.Errorf("the budget does not know: %v", pods.budget.Status)
	}
	if err := evict(uid); err != nil {
		t.Errorf("it is terminating: %v", err)
	}
	if err := remove(60); err != nil || grace() != 30 {
		t.Errorf("a grace period does not become longer: %v, %d", err, grace())
	}
	pods.show(pods.pods["web-001"], "kubelet", corev1.PodRunning, false)
	if of("node") != 1 {
		t.Error("a write ends a pod whose grace period is not over")
	}
	if err := remove(0); err != nil || grace() != 0 || of("node") != 1 {
		t.Errorf("a finalizer keeps it: %v, %d, %d", err, grace(), of("node"))
	}
	if pods.finalize("web-001", nil); of("node") != 0 {
		t.Error("its last finalizer is gone")
	}
	if err := evict(uid); !apierrors.IsNotFound(err) {
		t.Errorf("it is gone: %v", err)
	}
}
