// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Record", func() {
	var (
		now      = Start.Add(time.Hour)
		timeouts = facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute}
		own      = func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}}
		}
	)

	DescribeTable("#FailedAt", func(machine *machinev1alpha1.Machine, since, want time.Time) {
		Expect((&Record{FailedSince: since}).FailedAt(machine, timeouts)).To(Equal(want))
	},
		Entry("the deadline of its health", Machine("m"), now, now.Add(10*time.Minute)),
		Entry("by its own timeout", Machine("m", own), now, now.Add(time.Minute)),
		Entry("the deadline of its creation, when it never joined", Machine("m"), Start, Start.Add(20*time.Minute)),
		Entry("never", Machine("m"), time.Time{}, time.Time{}),
	)

	DescribeTable("should know the evidence of this very failure", func(value string, failed, stored bool, began time.Time) {
		machine, record := Machine("m", Annotation(prefix+"evidence", value), Annotation(prefix+"failed-since", stamp(now))), &Record{Failed: failed, FailedSince: now}
		Expect(record.HasEvidence(machine)).To(Equal(stored))
		Expect(record.EvidenceBegan(machine, time.Time{})).To(Equal(began))
		Expect(record.EvidenceBegan(machine, began.Add(time.Second-1))).To(Equal(began), "by a process that began in the same second")
		Expect(record.EvidenceBegan(machine, began.Add(time.Second))).To(BeZero(), "by one that is gone")
	},
		Entry("stored", stamp(now), true, true, time.Time{}),
		Entry("stored of another one", stamp(Start), true, false, time.Time{}),
		Entry("of one that is over", stamp(now), false, false, time.Time{}),
		Entry("being gathered", "gathering since "+stamp(now), true, false, now),
		Entry("being gathered for another one", "gathering since "+stamp(Start), true, false, time.Time{}),
		Entry("being gathered for one that is over", "gathering since "+stamp(now), false, false, time.Time{}),
		Entry("being gathered since nobody knows when", "gathering since ever", true, false, time.Time{}),
	)

	It("should know no evidence where there is none, whatever it says of the failure", func() {
		Expect((&Record{Failed: true}).HasEvidence(Machine("m"))).To(BeFalse())
	})

	It("P1 T8: should preserve a machine until its expiry for a cause that only a later version knows, and use up no request with that", func() {
		for _, holder := range []Holder{HealthTimer{}, PreserveExpiry{}} {
			end := Start.Add(2 * time.Hour)
			g := worldOf(holder, facts.Member{Node: Node("m", NotReady), Machine: Machine("m", failing(Start.Add(time.Hour)), Preserved("Failed:Preserved", "later", end))})
			g.Share = new(int32(0))
			settle(g, Start.Add(time.Hour))
			Expect(causes(g)).To(ConsistOf("later"))
			d := Decide(g.Group, end)[0]
			Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyExpired), HaveField("ConsumeRequest", BeFalse())))
		}
	})

	It("P11: should tell each cause of which it is known why", func() {
		Expect(Causes()).To(ConsistOf("now", "when-failed", "auto", "maintenance", "remediation", "validation"))
		for _, cause := range Causes() {
			Expect(WhyBegun(cause).Rule).NotTo(BeEmpty())
		}
		Expect(WhyBegun("of another version").IsZero()).To(BeTrue())
	})
})
