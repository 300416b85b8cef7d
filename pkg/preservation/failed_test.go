// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("HasFailed", func() {
	var (
		now   = Start.Add(time.Hour)
		began = now.Add(-10 * time.Minute)
	)

	decide := func(node *corev1.Node, opts ...MachineOption) Decision {
		decisions := Decide(Group{
			Holder: HealthTimer{}, Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3},
			Timeouts: facts.DefaultTimeouts, NodeConditions: facts.DefaultNodeConditions,
			Members: []facts.Member{{Machine: Machine("m", opts...), Node: node}},
		}, now)
		Expect(decisions).To(HaveLen(1))
		return decisions[0]
	}

	DescribeTable("a machine that is released at its deadline", func(since time.Time, opts ...MachineOption) {
		d := decide(Node("m", NotReady), append([]MachineOption{
			Phase(machinev1alpha1.MachineUnknown, began), Preserved("Unknown:Preserved", "now", now.Add(time.Hour)), Annotation(prefix+"forbidden", "true"),
		}, opts...)...)
		Expect(d.IsReleased()).To(BeTrue())
		at, failed := d.HasFailed()
		Expect(failed).To(BeTrue())
		Expect(at).To(BeTemporally("==", since))
	},
		Entry("should have failed since its timer runs, whose start was never noted", began),
		Entry("should have failed since what was noted, because a hold moves the start of the timer", now.Add(-time.Hour), Annotation(prefix+"failed-since", now.Add(-time.Hour).Format(time.RFC3339))),
	)

	It("should say nothing of a machine that is being deleted, because whoever deletes it need not have waited for a failure", func() {
		d := decide(Node("m", NotReady), Phase(machinev1alpha1.MachineFailed, began), Deleted(now))
		_, failed := d.HasFailed()
		Expect(failed).To(BeFalse())
	})

	It("should say since when the update in place of a machine has failed", func() {
		d := decide(Node("m"), Phase(machinev1alpha1.MachineInPlaceUpdateFailed, began))
		at, failed := d.HasFailed()
		Expect(failed).To(BeTrue())
		Expect(at).To(BeTemporally("==", began))
	})

	It("should be since what the record says, also while a hold moves the start of the timer", func() {
		Expect(FailedSince(Machine("m", Phase(machinev1alpha1.MachineUnknown, now), Preserved("Failed:Preserved", "auto", now), Annotation(prefix+"failed-since", began.Format(time.RFC3339))))).To(BeTemporally("==", began))
		Expect(FailedSince(Machine("m", Phase(machinev1alpha1.MachineUnknown, now)))).To(BeZero())
	})

	It("should say nothing of a machine that was released after it had failed", func() {
		d := decide(Node("m", NotReady), Phase(machinev1alpha1.MachineUnknown, began), Annotation(prefix+"released", now.Add(-time.Minute).Format(time.RFC3339)))
		_, failed := d.HasFailed()
		Expect(failed).To(BeFalse())
	})

	It("should say nothing of a machine whose deadline is yet to come", func() {
		d := decide(Node("m", NotReady), Phase(machinev1alpha1.MachineUnknown, now.Add(-time.Minute)))
		_, failed := d.HasFailed()
		Expect(failed).To(BeFalse())
	})

	DescribeTable("a machine that is preserved", func(node *corev1.Node, since time.Time, opts ...MachineOption) {
		d := decide(node, opts...)
		Expect(d.Target).NotTo(BeNil())
		at, failed := d.HasFailed()
		Expect(failed).To(Equal(!since.IsZero()))
		Expect(at).To(BeTemporally("==", since))
	},
		Entry("should have failed once it is preserved because of that", Node("m", NotReady), began, Phase(machinev1alpha1.MachineUnknown, began), Annotation(preserve, "now")),
		Entry("should have failed for as long as it is", Node("m", NotReady), now.Add(-time.Hour), Phase(machinev1alpha1.MachineUnknown, began), Annotation(preserve, "now"),
			Preserved("Failed:Preserved", "now", now.Add(time.Hour)), Annotation(prefix+"failed-since", now.Add(-time.Hour).Format(time.RFC3339))),
		Entry("should not have failed when a person asks for a healthy one", Node("m"), time.Time{}, Phase(machinev1alpha1.MachineRunning, began), Annotation(preserve, "now")),
	)

	DescribeTable("a machine that is healthy again", func(phase string, has bool) {
		d := decide(Node("m"), Phase(machinev1alpha1.MachineRunning, began), Annotation(preserve, "now"), Preserved(phase, "now", now.Add(time.Hour)))
		Expect(d.Target.Failed).To(BeFalse())
		at, failed := d.HasFailed()
		Expect(failed).To(Equal(has))
		if has {
			Expect(at).To(BeTemporally("==", began))
		}
	},
		Entry("should have failed until that is written", "Failed:Preserved", true),
		Entry("should not have failed any more once it is", "Running:Preserved", false),
	)
})
