// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("What there is on a Machine because of its power cycle", func() {
	const (
		began  = "2026-03-01T12:00:00Z"
		until  = "2026-03-01T13:00:00Z"
		record = `{"began":"` + began + `","requested":"2026-03-01T11:00:00Z","awaitsGrant":true,"tainted":true,"dryRun":"2026-03-01T10:00:00Z"}`
	)
	in := func(phase string, opts ...builder.MachineOption) *machinev1alpha1.Machine {
		return builder.Machine("m", append([]builder.MachineOption{builder.Annotation(phaseKey, phase), builder.Annotation(recordKey, record)}, opts...)...)
	}
	at := func(hour int) time.Time { return time.Date(2026, 3, 1, hour, 0, 0, 0, time.UTC) }

	It("should be read", func() {
		Expect(Began(in("Starting"))).To(Equal(at(12)))
		Expect(DryRun(in(""))).To(Equal(at(10)))
		Expect(Tainted(in("Failed"))).To(BeTrue())
		Expect(Tainted(builder.Machine("m"))).To(BeFalse())
		since, awaits := AwaitsGrant(in("Waiting"))
		Expect(awaits).To(BeTrue())
		Expect(since).To(Equal(at(11)))
		_, awaits = AwaitsGrant(in("PoweringOff"))
		Expect(awaits).To(BeFalse())
	})

	DescribeTable("X10: until when it is preserved", func(phase string, want time.Time) {
		Expect(KeptUntil(in(phase, builder.Annotation(claimKey, until)))).To(Equal(want))
	},
		Entry("while its host is powered off", "PoweringOff", at(13)),
		Entry("after its cycle has failed", "Failed", at(13)),
		Entry("not because a request waits", "Waiting", time.Time{}),
	)

	DescribeTable("X8: whether it has a grant", func(phase string, now time.Time, has bool) {
		Expect(HasGrant(in(phase, builder.Annotation(prefix+"power-cycle-grant", until)), now)).To(Equal(has))
	},
		Entry("while it waits", "Waiting", at(12), true),
		Entry("not any more when the grant is over", "Waiting", at(13), false),
		Entry("not any more when the cycle has begun", "PoweringOff", at(12), false),
	)

	DescribeTable("X15: should be forgotten, but for a request that nobody has taken note of", func(phase string, requested bool) {
		m := in(phase, builder.Annotation(needsKey, ""), builder.Annotation(claimKey, until))
		m.Finalizers = []string{finalizer}
		Expect(Forget(m)).To(BeTrue())
		Expect(m.Finalizers).To(BeEmpty())
		if requested {
			Expect(m.Annotations).To(Equal(map[string]string{needsKey: ""}))
		} else {
			Expect(m.Annotations).To(BeEmpty())
		}
		Expect(Forget(m)).To(BeFalse())
	},
		Entry("that is all of one that waits", "Waiting", false),
		Entry("that of one whose cycle failed", "Failed", false),
		Entry("that is there without a phase", "", true),
	)

	DescribeTable("X16: whether nobody requests one", func(unasked bool, m facts.Member) {
		Expect((&Member{Member: m}).IsUnasked()).To(Equal(unasked))
	},
		Entry("there is none", true, facts.Member{Machine: builder.Machine("m"), Node: builder.Node("m")}),
		Entry("there is none and no Node", true, facts.Member{Machine: builder.Machine("m")}),
		Entry("the Node is not known", false, facts.Member{Machine: builder.Machine("m"), NodeUnknown: true}),
		Entry("it is on the Node", false, facts.Member{Machine: builder.Machine("m"), Node: builder.Node("m", builder.NodeAnnotation(nodeKey, "now"))}),
		Entry("it is on the Machine", false, facts.Member{Machine: builder.Machine("m", builder.Annotation(needsKey, ""))}),
	)
})
