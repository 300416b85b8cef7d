// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

var _ = Describe("MaintenanceOperatorConfig", func() {
	config := func(namespace, name, parallel string) *v1alpha1.MaintenanceOperatorConfig {
		c := &v1alpha1.MaintenanceOperatorConfig{Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value(parallel)}}
		c.Namespace, c.Name, c.Generation = namespace, name, 3
		return c
	}

	DescribeTable("should say whether its limits count", func(c *v1alpha1.MaintenanceOperatorConfig, status metav1.ConditionStatus, reason, message string) {
		condition := UsedCondition(c, begin)
		Expect(condition).To(And(HaveField("Type", v1alpha1.ConditionUsed), HaveField("Status", status), HaveField("Reason", reason),
			HaveField("ObservedGeneration", BeEquivalentTo(3)), HaveField("LastTransitionTime.Time", begin)))
		Expect(condition.Message).To(ContainSubstring(message))
		Expect(IsConfig(c)).To(Equal(reason != v1alpha1.ReasonElsewhere))
	},
		Entry("the one that counts", config(v1alpha1.ConfigNamespace, v1alpha1.ConfigName, "2"), metav1.ConditionTrue, v1alpha1.ReasonUsed, "These limits apply."),
		Entry("that of another namespace", config("other", v1alpha1.ConfigName, "2"), metav1.ConditionFalse, v1alpha1.ReasonElsewhere, "has no effect"),
		Entry("that of another name", config(v1alpha1.ConfigNamespace, "other", "2"), metav1.ConditionFalse, v1alpha1.ReasonElsewhere, "has no effect"),
		Entry("one that is not valid", config(v1alpha1.ConfigNamespace, v1alpha1.ConfigName, "many"), metav1.ConditionFalse, v1alpha1.ReasonInvalid, "No maintenance is scheduled"),
	)

	It("should not schedule anything by limits that are not valid", func() {
		_, err := NewRound(config(v1alpha1.ConfigNamespace, v1alpha1.ConfigName, "many"), nil).Decide()
		Expect(err).To(HaveOccurred())
	})

	It("M9: should say for how long a maintenance may be ready", func() {
		Expect(MaxReadyTime(&v1alpha1.MaintenanceOperatorConfigSpec{})).To(Equal(v1alpha1.DefaultMaxNodeMaintenanceTimeSeconds * time.Second))
		Expect(MaxReadyTime(&v1alpha1.MaintenanceOperatorConfigSpec{MaxNodeMaintenanceTimeSeconds: new(int32(90))})).To(Equal(90 * time.Second))
	})
})
