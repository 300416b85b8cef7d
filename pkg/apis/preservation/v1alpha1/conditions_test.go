// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

func TestConditions(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Conditions Suite")
}

var _ = Describe("Conditions of a Node", func() {
	const conditionType corev1.NodeConditionType = "Tested"
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Date(2026, time.March, 1, 12, minutes, 0, 0, time.UTC))
	}
	node := func() *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: "Ready"},
			{Type: conditionType, Status: "True", Reason: "A", Message: "a", LastTransitionTime: at(0), LastHeartbeatTime: at(0)},
		}}}
	}

	DescribeTable("should be set, with the time at which the status changed", func(status corev1.ConditionStatus, reason, message string, changes bool, transition int) {
		n := node()
		Expect(SetCondition(n, conditionType, status, reason, message, at(1).Time)).To(Equal(changes))
		want := corev1.NodeCondition{Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: at(transition), LastHeartbeatTime: at(0)}
		if changes {
			want.LastHeartbeatTime = at(1)
		}
		Expect(n.Status.Conditions).To(Equal([]corev1.NodeCondition{{Type: "Ready"}, want}))
	},
		Entry("the same", corev1.ConditionTrue, "A", "a", false, 0),
		Entry("another message", corev1.ConditionTrue, "A", "b", true, 0),
		Entry("another reason", corev1.ConditionTrue, "B", "a", true, 0),
		Entry("another status", corev1.ConditionFalse, "A", "a", true, 1),
	)

	It("should be added and removed", func() {
		n := node()
		RemoveCondition(n, conditionType)
		Expect(ConditionOf(n, conditionType)).To(BeNil())
		Expect(SetCondition(n, conditionType, corev1.ConditionTrue, "A", "a", at(1).Time)).To(BeTrue())
		Expect(n.Status.Conditions).To(HaveLen(2))
		Expect(*ConditionOf(n, conditionType)).To(Equal(corev1.NodeCondition{Type: conditionType, Status: "True", Reason: "A", Message: "a", LastTransitionTime: at(1), LastHeartbeatTime: at(1)}))
	})
})
