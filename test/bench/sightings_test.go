// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("Sightings", func() {
	var seen *sightings

	BeforeEach(func() { seen = newSightings(true) })

	Describe("Node", func() {
		node := func(status corev1.ConditionStatus, reason, message string) *corev1.Node {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if reason != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: "Preserved", Status: status, Reason: reason, Message: message}}
			}
			return n
		}

		DescribeTable("should count what reports a drain",
			func(before, after *corev1.Node, expected int) {
				seen.seeNode(before, after)
				Expect(seen.drainWritesOf("n")).To(Equal(expected))
			},
			Entry("progress", node("True", "Draining", ""), node("True", "Draining", "Pods: 3 evicted."), 1),
			Entry("end", node("True", "Draining", ""), node("True", "Drained", ""), 1),
			Entry("but not another expiry", node("True", "Drained", "Drained. Machine preserved until 1."), node("True", "Drained", "Drained. Machine preserved until 2."), 0),
			Entry("but not a change of something else", node("True", "Draining", ""), node("True", "Draining", ""), 0),
			Entry("but not the beginning", node("", "", ""), node("True", "Draining", ""), 0),
			Entry("but not the failure of a preserved machine", node("True", "Preserved", ""), node("True", "Draining", ""), 0),
			Entry("but not the release", node("True", "Drained", ""), node("False", "PreservationEnded", ""), 0),
			Entry("but not what machine-controller-manager writes of its own", node("True", "Preserved", ""), node("True", "Preserved by user.", ""), 0),
		)

		DescribeTable("should count a cordon only if it belongs to the preservation, because machine-controller-manager cordons a node that it deletes, too",
			func(cordons bool, expected int) {
				seen = newSightings(cordons)
				before, after := node("", "", ""), node("", "", "")
				after.Spec.Unschedulable = true
				seen.seeNode(before, after)
				seen.seeNode(after, before)
				Expect(seen.drainWritesOf("n")).To(Equal(expected))
			},
			Entry("machine-controller-manager preserves", true, 1),
			Entry("the sidecar preserves", false, 0),
		)

		It("should tell once who has protected it", func() {
			protected := seen.expectProtection("n")
			before, after := node("", "", ""), node("", "", "")
			seen.seeNode(before, after)
			Expect(protected).NotTo(Receive())

			after.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
			after.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: "kwok", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
				{Manager: agentProvider, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:cluster-autoscaler.kubernetes.io/scale-down-disabled":{}}}}`)},
			}
			seen.seeNode(before, after)
			var sighting protectionSighting
			Expect(protected).To(Receive(&sighting))
			Expect(sighting.agent).To(Equal(agentProvider))
			seen.seeNode(after, after)
			Expect(protected).NotTo(Receive())
		})
	})

	It("should take the deadline from the first failure, and the hold from the first expiry", func() {
		machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		machine.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 2 * time.Minute}}
		machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineRunning
		seen.seeMachine(nil, machine)
		seen.expectFailure("m")
		seen.seeMachine(machine, machine)
		Expect(seen.failure("m")).To(Equal(failure{}))

		failedAt := time.Now().Truncate(time.Second)
		machine.Status.CurrentStatus.Phase, machine.Status.CurrentStatus.LastUpdateTime = machinev1alpha1.MachineUnknown, metav1.NewTime(failedAt)
		seen.seeMachine(machine, machine)
		Expect(seen.failure("m")).To(Equal(failure{deadline: failedAt.Add(2 * time.Minute)}))

		machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(failedAt.Add(time.Minute))
		machine.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: failedAt.Add(time.Hour)}
		before := time.Now()
		seen.seeMachine(machine, machine)
		first := seen.failure("m")
		Expect(first.deadline).To(Equal(failedAt.Add(2 * time.Minute)))
		Expect(first.held).To(And(BeTemporally(">=", before), BeTemporally("<=", time.Now())))
		seen.seeMachine(machine, machine)
		Expect(seen.failure("m")).To(Equal(first))

		machine.DeletionTimestamp = new(metav1.Now())
		before = time.Now()
		seen.seeMachine(machine, machine)
		Expect(seen.failure("m").gone).To(And(BeTemporally(">=", before), BeTemporally("<=", time.Now())))
	})

	It("should count the Pods of a Node until the last one is gone", func() {
		pod := &corev1.Pod{}
		onNode := pod.DeepCopy()
		onNode.Spec.NodeName = "n"
		seen.seePod(nil, pod)
		seen.seePod(pod, onNode)
		seen.seePod(nil, onNode)
		seen.seePod(onNode, onNode)
		count, gone := seen.podsOf("n")
		Expect(count).To(Equal(2))
		Expect(gone).To(BeZero())

		before := time.Now()
		seen.seePod(onNode, nil)
		seen.seePod(onNode, nil)
		count, gone = seen.podsOf("n")
		Expect(count).To(BeZero())
		Expect(gone).To(And(BeTemporally(">=", before), BeTemporally("<=", time.Now())))
	})
})
