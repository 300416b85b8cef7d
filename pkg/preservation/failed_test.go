// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("HasFailed", func() {
	var (
		now   = Start.Add(time.Hour)
		began = now.Add(-10 * time.Minute)
	)

	DescribeTable("a machine that is released at its deadline", func(since time.Time, opts ...MachineOption) {
		opts = append([]MachineOption{
			Phase(machinev1alpha1.MachineUnknown, began), Preserved("Unknown:Preserved", "now", now.Add(time.Hour)), Annotation(prefix+"forbidden", "true"),
		}, opts...)
		decisions := Decide(Group{
			Holder: HealthTimer{}, Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3},
			Timeouts: facts.DefaultTimeouts, NodeConditions: facts.DefaultNodeConditions,
			Members: []facts.Member{{Machine: Machine("m", opts...), Node: Node("m", NotReady)}},
		}, now)
		Expect(decisions).To(HaveLen(1))
		Expect(decisions[0].IsReleased()).To(BeTrue())
		at, failed := decisions[0].HasFailed()
		Expect(failed).To(BeTrue())
		Expect(at).To(BeTemporally("==", since))
	},
		Entry("should have failed since its timer runs, whose start was never noted", began),
		Entry("should have failed since what was noted, because a hold moves the start of the timer", now.Add(-time.Hour), Annotation(prefix+"failed-since", now.Add(-time.Hour).Format(time.RFC3339))),
	)
})
