// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// sightings is what the watches have shown, and when.
type sightings struct {
	mutex sync.Mutex
	// cordons says that what preserves a machine cordons its node for the drain: machine-controller-manager does, the sidecar does not.
	cordons bool
	// protected gets who protects a Node from the cluster-autoscaler.
	protected map[string]chan<- protectionSighting
	failures  map[string]*failure
	// drainWrites counts the changes of a Node that the preservation makes for its drain: progress in the condition Preserved, and a cordon.
	drainWrites map[string]int
	// podGone is when the last Pod of a Node was gone.
	podGone map[string]time.Time
	pods    map[string]int
}

// protectionSighting is when a Node was seen to be protected, and the agent that has written it.
type protectionSighting struct {
	at    time.Time
	agent string
}

// failure is what became of a machine that fails. The times are zero if it was not seen.
type failure struct {
	// deadline is when machine-controller-manager takes the machine for failed.
	deadline time.Time
	// held is when the machine had an expiry, which is written after the annotation: machine-controller-manager keeps its
	// hands off from then on.
	held time.Time
	// gone is when the machine was deleted.
	gone time.Time
}

func newSightings(cordons bool) *sightings {
	return &sightings{
		cordons:     cordons,
		protected:   map[string]chan<- protectionSighting{},
		failures:    map[string]*failure{},
		drainWrites: map[string]int{},
		podGone:     map[string]time.Time{},
		pods:        map[string]int{},
	}
}

// observe makes the watches tell what they see.
func (s *sightings) observe(ctx context.Context, b *bench) error {
	if err := observe(ctx, b.shootCache, &corev1.Node{}, s.seeNode); err != nil {
		return err
	}
	if err := observe(ctx, b.shootCache, &corev1.Pod{}, s.seePod); err != nil {
		return err
	}
	return observe(ctx, b.seedCache, &machinev1alpha1.Machine{}, s.seeMachine)
}

func (s *sightings) seeNode(before, after *corev1.Node) {
	if before == nil || after == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if protected := s.protected[after.Name]; protected != nil && isProtected(after) {
		protected <- protectionSighting{at: time.Now(), agent: protectorOf(after)}
		delete(s.protected, after.Name)
	}
	if cordoned := after.Spec.Unschedulable && !before.Spec.Unschedulable; cordoned && s.cordons || reportsDrain(before, after) {
		s.drainWrites[after.Name]++
	}
}

func isProtected(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true"
}

func protectorOf(node *corev1.Node) string {
	for _, managed := range node.ManagedFields {
		if managed.FieldsV1 != nil && strings.Contains(managed.FieldsV1.GetRawString(), `"f:`+v1alpha1.AnnotationScaleDownDisabled+`"`) {
			return managed.Manager
		}
	}
	return ""
}

func reportsDrain(before, after *corev1.Node) bool {
	was, is := preservation.PreservedCondition(before), preservation.PreservedCondition(after)
	return was != nil && is != nil && isDraining(was) && isDraining(is) && (was.Reason != is.Reason || progressOf(was) != progressOf(is))
}

// progressOf returns what the message says of the drain, before it says until when the machine is preserved.
func progressOf(condition *corev1.NodeCondition) string {
	progress, _, _ := strings.Cut(condition.Message, "Machine preserved until ")
	return progress
}

func isDraining(condition *corev1.NodeCondition) bool {
	switch condition.Reason {
	case v1alpha1.ReasonDraining, v1alpha1.ReasonDrainBlocked, v1alpha1.ReasonDrained:
		return condition.Status == corev1.ConditionTrue
	}
	return false
}

func (s *sightings) seePod(before, after *corev1.Pod) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case after == nil && before.Spec.NodeName != "":
		s.pods[before.Spec.NodeName]--
		s.podGone[before.Spec.NodeName] = time.Now()
	case after != nil && after.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == ""):
		s.pods[after.Spec.NodeName]++
	}
}

func (s *sightings) seeMachine(_, after *machinev1alpha1.Machine) {
	if after == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	f := s.failures[after.Name]
	if f == nil {
		return
	}
	now, status := time.Now(), after.Status.CurrentStatus
	// The hold may move the time from which machine-controller-manager counts: what it was first is what matters.
	if f.deadline.IsZero() && status.Phase == machinev1alpha1.MachineUnknown {
		f.deadline = status.LastUpdateTime.Add(after.Spec.MachineHealthTimeout.Duration)
	}
	if f.held.IsZero() && status.PreserveExpiryTime != nil {
		f.held = now
	}
	if f.gone.IsZero() && after.DeletionTimestamp != nil {
		f.gone = now
	}
}

// expectProtection returns a channel that tells when a Node is seen to be protected.
func (s *sightings) expectProtection(node string) <-chan protectionSighting {
	seen := make(chan protectionSighting, 1)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.protected[node] = seen
	return seen
}

// expectFailure lets the watch look at a machine.
func (s *sightings) expectFailure(machine string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.failures[machine] = &failure{}
}

// failure returns what has become of a machine so far.
func (s *sightings) failure(machine string) failure {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return *s.failures[machine]
}

// podsOf returns the number of Pods on a Node, and when the last one that has gone was gone.
func (s *sightings) podsOf(node string) (int, time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.pods[node], s.podGone[node]
}

func (s *sightings) drainWritesOf(node string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.drainWrites[node]
}
