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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The machine that a node shows", func() {
	var (
		now     = Start.Add(time.Hour)
		until   = now.Add(time.Hour)
		created = func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(Start) }
		// since has a condition be as it is since then.
		since = func(t time.Time, conditionType corev1.NodeConditionType) NodeOption {
			return func(n *corev1.Node) { v1alpha1.ConditionOf(n, conditionType).LastTransitionTime = metav1.NewTime(t) }
		}
		kept = func(n *corev1.Node) {
			Condition("Preserved", corev1.ConditionTrue, "Preserved", "Machine preserved until "+stamp(until)+".")(n)
			since(now.Add(-time.Minute), "Preserved")(n)
		}
		asked      = func(value string) NodeOption { return NodeAnnotation(preserve, value) }
		maintained = NodeAnnotation(maintenance, stamp(now))
		protected  = NodeAnnotation(disabled, "true")
		cycled     = Condition("PowerCycle", corev1.ConditionTrue, v1alpha1.PowerCyclePoweringOff, "")
		tainted    = Taint(taintKey, now)
		down       = func(t time.Time) NodeOption {
			return func(n *corev1.Node) { NotReady(n); since(t, corev1.NodeReady)(n) }
		}
		claims = func(causes ...string) (claims []Claim) {
			for _, cause := range causes {
				claims = append(claims, Claim{Cause: cause, Expiry: until})
			}
			return claims
		}
		running, unknown = machinev1alpha1.MachineRunning, machinev1alpha1.MachineUnknown
	)

	It("V1: should not have failed while it awaits its validation, although the taint is there", func() {
		awaiting := Condition("Preserved", corev1.ConditionTrue, v1alpha1.ReasonAwaitingValidation, "Machine preserved until "+stamp(until)+".")
		Expect(ReadRecord(Shown(Node("m", created, awaiting, tainted), now)).Failed).To(BeFalse())
	})

	// All that the shoot's own people see, in kubectl and in the explanation, is made of this.
	DescribeTable("P11: should be the one that it is most likely to be", func(phase machinev1alpha1.MachinePhase, updated time.Time, want *Record, opts ...NodeOption) {
		machine := Shown(Node("m", append([]NodeOption{created}, opts...)...), now)
		Expect(machine.Status.CurrentStatus).To(Equal(machinev1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(updated)}))
		if want != nil && len(want.Claims) > 0 && !want.Claims[0].Expiry.IsZero() {
			want.Since = now.Add(-time.Minute)
		}
		Expect(ReadRecord(machine)).To(Equal(want))
	},
		Entry("nobody keeps it", running, Start, nil),
		Entry("nobody keeps it any more", running, Start, nil, asked("now"), Condition("Preserved", corev1.ConditionFalse, "", "Machine preserved until "+stamp(until)+".")),
		Entry("the share keeps it", running, Start, &Record{Claims: claims("auto")}, kept),
		Entry("now", running, Start, &Record{Claims: claims("now")}, kept, asked("now")),
		Entry("when-failed", running, Start, &Record{Claims: claims("when-failed")}, kept, asked("when-failed")),
		Entry("now, and a maintenance", running, Start, &Record{Claims: claims("now", "maintenance")}, kept, asked("now"), maintained),
		Entry("M12: a maintenance, because it has not failed", running, Start, &Record{Claims: claims("maintenance")}, kept, asked("when-failed"), maintained),
		Entry("M12: both, because it has failed", running, Start, &Record{Claims: claims("when-failed", "maintenance"), Failed: true, FailedSince: Start}, kept, asked("when-failed"), maintained, tainted),
		Entry("X10: a power cycle, because it has not failed", running, Start, &Record{Claims: claims("remediation"), RemediatedUntil: until}, kept, asked("when-failed"), cycled),
		Entry("X10: a power cycle that waits", running, Start, &Record{Claims: claims("remediation"), RemediatedUntil: until}, kept,
			Condition("PowerCycle", corev1.ConditionFalse, v1alpha1.PowerCycleWaiting, "")),
		Entry("X10: not one that is over", running, Start, &Record{Claims: claims("auto")}, kept, Condition("PowerCycle", corev1.ConditionFalse, v1alpha1.PowerCycleSucceeded, "")),
		Entry("M12: it is protected, and nobody says until when", running, Start, &Record{Claims: []Claim{{Cause: "maintenance"}}}, maintained, protected),
		Entry("M12: it is protected, whatever else it looks like", unknown, Start, &Record{Claims: []Claim{{Cause: "maintenance"}}}, maintained, protected, down(Start),
			Condition("Preserved", corev1.ConditionFalse, "", "")),
		Entry("R4: it is not protected against false", running, Start, nil, maintained, protected, asked("false")),
		Entry("M12: it is not protected yet", running, Start, nil, maintained),
		Entry("M12: somebody else has protected it", running, Start, nil, protected),
		Entry("M12: it is held", running, Start, &Record{Claims: claims("maintenance")}, maintained, protected, kept),
		Entry("it has failed, as the taint says", running, Start, &Record{Claims: claims("auto"), Failed: true, FailedSince: Start}, kept, tainted),
		Entry("it has failed, as its time says", unknown, now.Add(-10*time.Minute), &Record{Claims: claims("auto"), Failed: true, FailedSince: now.Add(-10 * time.Minute)}, kept, down(now.Add(-10*time.Minute))),
		Entry("it has not failed yet", unknown, now.Add(-599*time.Second), &Record{Claims: claims("auto")}, kept, down(now.Add(-599*time.Second))),
		Entry("it is unhealthy, and nobody says since when", unknown, now, nil, Condition("KernelDeadlock", corev1.ConditionTrue, "", "")),
		Entry("its node does not say whether it is ready", unknown, now, nil, func(n *corev1.Node) { n.Status.Conditions = nil }),
	)

	DescribeTable("P11: should be asked for what its condition tells, also where the Node asks for nothing, or carries a hold", func(cause, want string, opts ...NodeOption) {
		told := Condition("Preserved", corev1.ConditionTrue, "Preserved", "Machine preserved until "+stamp(until)+" (cause "+cause+", reason "+WhyBegun(cause).ID+").")
		node := Node("m", append([]NodeOption{created, told}, opts...)...)
		machine := Shown(node, now)
		Expect(ReadRecord(machine).Claims).To(Equal(claims(cause)))
		Expect(RequestOf(facts.Member{Machine: machine, Node: node}, 336*time.Hour).Value).To(Equal(want))
	},
		Entry("an operator asks on the Machine", "now", "now"),
		Entry("an operator asks on the Machine in case it fails", "when-failed", "when-failed"),
		Entry("the Node carries a hold", "when-failed", "when-failed", asked("now")),
		Entry("the Node asks for the same", "now", "now", asked("now")),
		Entry("the Node asks for something else", "now", "when-failed", asked("when-failed")),
		Entry("nobody asks", "auto", ""),
	)

	It("X10: should ask for the power cycle for as long as it is kept", func() {
		Expect(Shown(Node("m", kept, cycled), now).Annotations).To(HaveKeyWithValue(remediation, stamp(until)))
		Expect(Shown(Node("m", kept), now).Annotations).NotTo(HaveKey(remediation))
	})

	It("P11: should be believed by its cause and expiry alone, where those are known better", func() {
		machine := Shown(Node("m", kept, asked("now"), maintained), now)
		machine.Annotations[prefix+"cause"] = "auto"
		DropClaims(machine)
		Expect(ReadRecord(machine).Claims).To(Equal(claims("auto")))
	})
})
