// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Group", func() {
	It("should be what the MachineDeployment says, and the rest as before", func() {
		base := Group{Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: facts.DefaultTimeouts}
		Expect(base.Of(Deployment("d", Share("2"), Replicas(5), InPlace,
			DeploymentAnnotation(prefix+"machine-preserve-timeout", "1h"), DeploymentAnnotation(prefix+"forbidden", "true")))).
			To(Equal(Group{Name: "d", Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: facts.DefaultTimeouts, Share: new(int32(2)), Timeout: time.Hour, Pool: facts.Pool{Forbidden: true, Replicas: 5, InPlace: true}}))
		for share, timeout := range map[string]string{"": "", "-1": "0s", "two": "soon", "4294967296": "-1h"} {
			Expect(base.Of(Deployment("d", Share(share), DeploymentAnnotation(prefix+"machine-preserve-timeout", timeout)))).
				To(And(HaveField("Share", BeNil()), HaveField("Timeout", 72*time.Hour)), "%s %s", share, timeout)
		}
		Expect(base.Of(Deployment("d", DeploymentAnnotation(prefix+"shared-in-pool", "worker"))).SharedIn).To(Equal("worker"), "P20")
		Expect(base.Of(Deployment("d", Share("0"))).Share).To(HaveValue(BeZero()))
		validation := func(settings string) *Validation {
			return base.Of(Deployment("d", DeploymentAnnotation(prefix+"validation-settings", settings))).Validation
		}
		Expect(validation(`{"condition":"GPUHealthy","timeout":"5m"}`)).To(Equal(&Validation{Condition: "GPUHealthy", Timeout: 5 * time.Minute}), "V1")
		Expect(validation(`{"label":"example.com/gpu=healthy=yes","timeout":"5m"}`)).To(Equal(&Validation{Key: "example.com/gpu", Value: "healthy=yes", Timeout: 5 * time.Minute}), "V1")
		Expect(validation(`rubbish`)).To(BeNil())
	})
})
