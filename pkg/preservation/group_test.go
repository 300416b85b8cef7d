// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Group", func() {
	It("should be what the MachineDeployment says, and the rest as before", func() {
		base := Group{Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: facts.DefaultTimeouts}
		Expect(base.Of(Deployment("d", Share("2"), Replicas(5), InPlace,
			DeploymentAnnotation(prefix+"machine-preserve-timeout", "1h"), DeploymentAnnotation(prefix+"forbidden", "true")))).
			To(Equal(Group{Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: facts.DefaultTimeouts, Share: new(int32(2)), Timeout: time.Hour, Pool: facts.Pool{Forbidden: true, Replicas: 5, InPlace: true}}))
		Expect(base.Of(Deployment("d", Share("-1"), DeploymentAnnotation(prefix+"machine-preserve-timeout", "0s")))).
			To(And(HaveField("Share", BeNil()), HaveField("Timeout", 72*time.Hour)))
	})
})

var _ = Describe("What is shown", func() {
	until := time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)

	DescribeTable("P11: should be read from the condition", func(message, drain string, at time.Time) {
		shown, until := ReadCondition(&corev1.NodeCondition{Message: message})
		Expect(shown).To(Equal(drain))
		Expect(until).To(Equal(at))
	},
		Entry("without a drain", "Machine preserved until 2026-03-04T13:00:00Z.", "", until),
		Entry("with one", "Pods: 1 evicted. Machine preserved until 2026-03-04T13:00:00Z.", "Pods: 1 evicted.", until),
		Entry("with what another one wrote", "whatever", "whatever", time.Time{}),
	)
})
