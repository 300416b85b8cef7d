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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The drain in the condition", func() {
	const until = "Machine preserved until 2026-03-04T13:00:00Z."

	var (
		now     = Start.Add(time.Hour)
		expiry  = now.Add(72 * time.Hour)
		message = func(node *corev1.Node) string { return PreservedCondition(node).Message }
		// timeless is a taint of ours that says nothing of when it was put on.
		timeless = func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: taintKey, Effect: corev1.TaintEffectNoSchedule}}
		}
		clockSkew = time.Minute
		node      = func() *corev1.Node { return Node("m", Condition("Preserved", corev1.ConditionTrue, "Draining", until)) }
	)

	It("P7: should name pods that are kept, and keep machine-controller-manager from draining", func() {
		n := node()
		SetDrainProgress(n, "PodsKept", "Pods: 2 kept.", false, now)
		Expect(message(n)).To(Equal("Preserved node drained successfully. Pods: 2 kept. " + until))
		Expect(message(n)).To(ContainSubstring(machinev1alpha1.PreservedNodeDrainSuccessful))
		SetDrainProgress(n, "PodsKept", "Pods: 1 kept.", false, now)
		Expect(message(n)).To(Equal("Preserved node drained successfully. Pods: 1 kept. " + until))
		SetDrainProgress(n, "Drained", "Pods: none.", false, now)
		Expect(message(n)).To(Equal("Preserved node drained successfully. " + until))
	})

	It("P11: should not take what a budget says for the expiry", func() {
		n := node()
		for range 3 {
			SetDrainProgress(n, "DrainBlocked", "Pods: blocked: Machine preserved until Doomsday.", false, now)
			Expect(message(n)).To(Equal("Pods: blocked: Machine preserved until Doomsday. " + until))
		}
	})

	DescribeTable("P7: should have begun", func(failed, want time.Time, opts ...NodeOption) {
		Expect(DrainBegan(Node("m", opts...), failed, now)).To(BeTemporally("==", want))
	},
		Entry("with the taint", Start, now.Add(-time.Minute), Taint(taintKey, now.Add(-time.Minute))),
		Entry("not before the failure: a taint of long ago must not skip budgets", now.Add(-time.Minute), now.Add(-time.Minute), Taint(taintKey, Start)),
		Entry("with the failure, where the taint's time is yet to come: the drain must time out", Start, Start, Taint(taintKey, now.Add(clockSkew+time.Second))),
		Entry("now, where a clock was ahead", Start, now, Taint(taintKey, now.Add(clockSkew))),
		Entry("with the preservation, where nobody says since when there is the taint", time.Time{}, Start, timeless,
			func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Preserved", LastTransitionTime: metav1.NewTime(Start)})
			}),
		Entry("with the failure, where nobody says more", Start, Start, timeless),
		Entry("now, where nobody knows", time.Time{}, now),
		Entry("now, where the failure is yet to come", now.Add(time.Second), now),
	)

	It("P7: should see the taint that somebody else has put on without a time", func() {
		since, is := TaintedSince(Node("m", timeless))
		Expect([]any{since, is}).To(Equal([]any{time.Time{}, true}))
	})

	It("P5: should protect a node that has no annotations", func() {
		m := facts.Member{Machine: Machine("m"), Node: &corev1.Node{}}
		d := Decision{Member: m, Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now}}}}
		for _, step := range Steps(HealthTimer{}, d, facts.DefaultTimeouts, now) {
			Make(step, &m)
		}
		Expect(m.Node.Annotations).To(Equal(map[string]string{disabled: "true", byMCM: "true"}))
	})

	DescribeTable("P11: should be read as it was written", func(message string, want Message) {
		Expect(ReadCondition(&corev1.NodeCondition{Message: message})).To(Equal(want))
	},
		Entry("without a drain", until, Message{Until: expiry}),
		Entry("with one", "Pods: 2 kept. "+until, Message{Drain: "Pods: 2 kept.", Until: expiry}),
		Entry("with a cause", "Machine preserved until 2026-03-04T13:00:00Z (cause auto, reason MachineFailed).", Message{Until: expiry, Cause: "auto", Why: WhyMachineFailed}),
		Entry("with a cause that another version knows", "Machine preserved until 2026-03-04T13:00:00Z (cause auto, reason Quarantined).", Message{Until: expiry}),
		Entry("with a cause that somebody made up", "Machine preserved until 2026-03-04T13:00:00Z (cause evil).", Message{Until: expiry}),
		Entry("of machine-controller-manager", "Preserved node drained successfully.", Message{Drain: "Preserved node drained successfully."}),
	)

	DescribeTable("P11: should say why the machine is kept, and be read", func(cause string, why reason.Reason) {
		m := facts.Member{Machine: Machine("m"), Node: Node("m")}
		for _, step := range Steps(HealthTimer{}, Decision{Member: m, Target: &Record{Claims: []Claim{{Cause: cause, Expiry: expiry}}, Failed: true}}, facts.DefaultTimeouts, now) {
			Make(step, &m)
		}
		Expect(ReadCondition(PreservedCondition(m.Node))).To(Equal(Message{Until: expiry, Cause: cause, Why: why}))
	},
		Entry("the share", "auto", WhyMachineFailed),
		Entry("a person", "now", WhyAskedFor),
		Entry("a person, in case", "when-failed", WhyAskedInCase),
		Entry("a maintenance", "maintenance", WhyUnderMaintenance),
		Entry("a power cycle", "remediation", WhyPowerCycle),
	)

	It("P11: should begin anew where what the condition says is of no drain", func() {
		m := facts.Member{Machine: Machine("m"), Node: Node("m", Condition("Preserved", corev1.ConditionTrue, "Preserved", "Somebody wrote. "+until))}
		d := Decision{Member: m, Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now}}, Failed: true}}
		for _, step := range Steps(HealthTimer{}, d, facts.DefaultTimeouts, now) {
			Make(step, &m)
		}
		Expect(PreservedCondition(m.Node)).To(And(HaveField("Reason", "Draining"), HaveField("Message", "Machine preserved until "+stamp(now)+" (cause now, reason AskedFor).")))
	})

	It("P11: should say since when it is so, and when it was looked at last", func() {
		n, times := Node("m", Condition("Preserved", corev1.ConditionTrue, "Draining", until)), func(node *corev1.Node) []time.Time {
			return []time.Time{PreservedCondition(node).LastTransitionTime.Time, PreservedCondition(node).LastHeartbeatTime.Time}
		}
		SetDrainProgress(n, "Drained", "", false, now)
		Expect(times(n)).To(Equal([]time.Time{{}, now}))
		SetDrainProgress(n, "Drained", "", false, now.Add(time.Minute))
		Expect(times(n)).To(Equal([]time.Time{{}, now}), "nothing has changed")
		m := facts.Member{Machine: Machine("m", Preserved("Failed:Preserved", "auto", now)), Node: n}
		for _, step := range Steps(HealthTimer{}, Decision{Member: m, Current: ReadRecord(m.Machine)}, facts.DefaultTimeouts, now.Add(time.Hour)) {
			Make(step, &m)
		}
		Expect(times(m.Node)).To(Equal([]time.Time{now.Add(time.Hour), now.Add(time.Hour)}))
	})

	DescribeTable("P7: should not be told of a node whose machine is preserved no more", func(opts ...NodeOption) {
		n := Node("m", opts...)
		SetDrainProgress(n, "Drained", "", false, now)
		Expect(n).To(Equal(Node("m", opts...)))
	},
		Entry("it never was"), Entry("it was", Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", "")),
	)

	for _, progress := range []string{"Draining", "DrainBlocked", "PodsKept", "Drained"} {
		It("P11: should keep the progress when the expiry is edited: "+progress, func() {
			n := Node("m", Condition("Preserved", corev1.ConditionTrue, progress, "Pods: blocked: Machine preserved until Doomsday. "+until))
			target := &Record{Claims: []Claim{{Cause: "now", Expiry: now.Add(96 * time.Hour)}}, Failed: true}
			m := facts.Member{Machine: Machine("m"), Node: n}
			for _, step := range Steps(HealthTimer{}, Decision{Member: m, Target: target}, facts.DefaultTimeouts, now) {
				Make(step, &m)
			}
			n = m.Node
			Expect(PreservedCondition(n).Reason).To(Equal(progress))
			Expect(message(n)).To(Equal("Pods: blocked: Machine preserved until Doomsday. Machine preserved until 2026-03-05T13:00:00Z (cause now, reason AskedFor)."))
		})
	}
})
