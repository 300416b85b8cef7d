// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("StormOf", func() {
	const now = 300 // minutes after Start
	var (
		limits = StormLimits{MaxFailing: 2, SettlingTime: 10 * time.Minute}
		count  = func(limits StormLimits, minute int, members ...Member) Storm {
			for i := range members {
				members[i].Machine.Name = fmt.Sprintf("m-%d", i)
			}
			since := func(m *machinev1alpha1.Machine) (since time.Time) {
				if value, ok := m.Annotations["since"]; ok {
					since, _ = time.Parse(time.RFC3339, value)
				}
				return since
			}
			return StormOf(members, since, limits, DefaultTimeouts, []string{"Bad"}, at(minute))
		}
		// member is a machine whose node has been ready, or not, since some minute.
		member = func(ready string, since int, opts ...MachineOption) Member {
			node := Node("n", func(n *corev1.Node) {
				n.CreationTimestamp = metav1.NewTime(Start)
				n.Status.Conditions = []corev1.NodeCondition{condition("Ready", ready, since)}
			})
			return Member{Machine: Machine("m", opts...), Node: node}
		}
		silent   = func(since int, opts ...MachineOption) Member { return member("Unknown", since, opts...) }
		healthy  = func() Member { return member("True", 1) }
		back     = func(since int) Member { return member("True", since) }
		withNode = func(m Member, opts ...NodeOption) Member {
			for _, opt := range opts {
				opt(m.Node)
			}
			return m
		}
		bad = func(since int) NodeOption {
			return func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, condition("Bad", "True", since))
			}
		}
		lastKnown = func(since int) MachineOption {
			return func(m *machinev1alpha1.Machine) {
				m.Status.Conditions = []corev1.NodeCondition{condition("Ready", "Unknown", since)}
			}
		}
		phase = func(phase machinev1alpha1.MachinePhase, since int) MachineOption { return Phase(phase, at(since)) }
		kept  = func(since int) MachineOption { return Annotation("since", at(since).Format(time.RFC3339)) }
	)

	DescribeTable("P16, X21: how many machines fail at the same time", func(want int, members ...Member) {
		Expect(count(limits, now, members...).Failing).To(Equal(want))
	},
		Entry("none of healthy ones", 0, healthy(), healthy()),
		Entry("those whose nodes are not ready", 2, silent(now), silent(now-5), healthy()),
		Entry("one that is ready and unhealthy", 1, withNode(healthy(), Condition("Bad", "True", "", "")), healthy()),
		Entry("one that is unhealthy by a condition that does not count", 0, withNode(healthy(), Condition("Odd", "True", "", ""))),
		Entry("one without a node that machine-controller-manager doubts", 1, Member{Machine: Machine("m", phase("Unknown", now-5))}),
		Entry("one of which only machine-controller-manager knows the node", 1, Member{Machine: Machine("m", phase("Unknown", now-5)), NodeUnknown: true}),
		Entry("not one whose node is not known", 0, Member{Machine: Machine("m"), NodeUnknown: true}),

		Entry("one that has recovered, until it has settled", 1, back(now-9), healthy()),
		Entry("not one that has settled", 0, back(now-10), healthy()),
		Entry("one that has recovered, with one whose failure began before", 2, back(now-1), silent(now-200)),
		Entry("one that has yet to settle, with one whose failure began afterwards", 2, back(now-5), silent(now-4)),
		Entry("not one that has just joined", 0, withNode(back(now-1), func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(at(now - 2)) })),
		Entry("not one that joined slowly", 0, withNode(back(now-1), func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(at(now - 11)) })),

		Entry("failures that began within the window", 3, silent(now-30), silent(now-35), silent(now-40)),
		Entry("not those that began one after the other", 1, silent(now-30), silent(now-41), silent(now-52)),
		Entry("within the health timeout of the machine, if that is longer", 2, silent(now-30), silent(now-41, func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 11 * time.Minute}}
		})),
		Entry("a preserved one from when it failed, however its timer was shifted", 1, silent(now-5), silent(now-5, phase("Unknown", now-5), kept(now-100))),
		Entry("one whose node has told of another failure since, from the first one on", 1, silent(now-5), silent(now-5, phase("Unknown", now-100))),

		Entry("one that is ready and unhealthy from when it became that, although machine-controller-manager doubts it only since a reset of its timer", 2,
			silent(now-30), withNode(member("True", now-28, phase("Unknown", now-1)), bad(now-28)), healthy()),
		Entry("one that has lost its node from when that was not ready", 2,
			silent(now-30), Member{Machine: Machine("m", phase("Unknown", now-1), lastKnown(now-28))}),
		Entry("one that has lost its node, and was not ready once before, as one of now", 2,
			silent(now-5), Member{Machine: Machine("m", phase("Unknown", now-4), lastKnown(now-200))}),
		Entry("those that have long had what makes them unhealthy only since the list of conditions has changed", 3,
			withNode(member("True", 1, phase("Unknown", now-1)), bad(now-30)), withNode(member("True", 1, phase("Unknown", now-1)), bad(now-48*60)),
			withNode(member("True", 1, phase("Unknown", now-1)), bad(now-250)), healthy()),
		Entry("P14: one of whose bad conditions one has no time", 2, silent(now-30),
			withNode(silent(now-28, phase("Unknown", now-1)), Condition("Bad", "True", "", ""))),

		Entry("not one that is being deleted", 0, silent(now-5, Deleted(at(now)))),
		Entry("not one that is terminating", 0, silent(now-5, phase("Terminating", now))),
		Entry("not one that is being created", 0, silent(now-5, phase("Pending", now-5))),
		Entry("not one that never joined", 0, Member{Machine: Machine("m", phase("Unknown", now-5), NeverJoined)}),
		Entry("not one whose node is maintained", 0, withNode(silent(now-5), NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", ""))),
		Entry("not one that is updated in place", 0, silent(now-5, phase("InPlaceUpdating", now-5))),

		Entry("P14: a failure in the future counts as one of now", 2, silent(now+100), silent(now)),
		Entry("P14: a recovery in the future counts as one of now", 1, back(now+100)),
		Entry("P14: a failure without a time counts as one of now", 2, withNode(silent(0), func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Time{} }), silent(now)),
	)

	DescribeTable("P16, X21: when so many are too many", func(limits StormLimits, machines, failing int, limit int, storm bool) {
		limits.SettlingTime = time.Minute
		var members []Member
		for i := range machines {
			if members = append(members, healthy()); i < failing {
				members[i] = silent(now - 5)
			}
		}
		s := count(limits, now, append(members, Member{Machine: Machine("m", phase("Pending", now))})...)
		Expect(s.IsOn()).To(Equal(storm))
		if limits.Enabled() {
			Expect(s).To(And(HaveField("Machines", machines), HaveField("Failing", failing), HaveField("Limit", limit)))
		}
	},
		Entry("never without a limit", StormLimits{}, 3, 3, 0, false),
		Entry("not as many as may", StormLimits{MaxFailing: 2}, 9, 2, 2, false),
		Entry("more than may", StormLimits{MaxFailing: 2}, 9, 3, 2, true),
		Entry("more than a percentage, rounded up", StormLimits{MaxFailingPercent: 30}, 4, 3, 2, true),
		Entry("not as many as that", StormLimits{MaxFailingPercent: 30}, 4, 2, 2, false),
		Entry("the percentage is at least one machine", StormLimits{MaxFailingPercent: 1}, 1, 1, 1, false),
		Entry("the percentage, if that is lower", StormLimits{MaxFailing: 3, MaxFailingPercent: 30}, 4, 3, 2, true),
		Entry("the number, if that is lower", StormLimits{MaxFailing: 1, MaxFailingPercent: 100}, 4, 2, 1, true),
	)

	It("P16, X21: should be over when the machines have settled, and say when", func() {
		members := []Member{silent(now - 30), back(now - 5), back(now - 3), healthy()}
		s := count(limits, now, members...)
		Expect(s.IsOn()).To(BeTrue())
		Expect(s.Next).To(Equal(at(now + 5)))
		s = count(limits, now+5, members...)
		Expect(s.IsOn()).To(BeFalse())
		Expect(s.Next).To(BeZero())
	})

	It("P16, X21: should hold nothing up for ever", func() {
		members := []Member{silent(now), silent(now), silent(now)}
		s := count(limits, now+24*60-1, members...)
		Expect(s.IsOn()).To(BeTrue())
		Expect(s.Next).To(Equal(at(now + 24*60)))
		Expect(count(limits, now+24*60, members...).Failing).To(BeZero())
	})
})
