// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failure_test

import (
	"fmt"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix = "machine-preservation.extensions.gardener.cloud/"
	health = 10 * time.Minute
)

var (
	now       = Start.Add(time.Hour)
	timeouts  = facts.Timeouts{Health: health, Creation: 20 * time.Minute, Drain: 2 * time.Hour}
	unhealthy = facts.DefaultNodeConditions

	failed   = Phase(machinev1alpha1.MachineUnknown, now.Add(-health))
	begun    = now.Add(-health)
	expiry   = now.Add(time.Hour)
	released = Annotation(prefix+"released", now.Add(-time.Minute).Format(time.RFC3339))
)

// unready makes a node unhealthy since a time.
func unready(since time.Time) NodeOption {
	return func(n *corev1.Node) {
		NotReady(n)
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	}
}

// keptFailed makes a machine one in Failed:Preserved for a cause.
func keptFailed(cause string) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		failed(m)
		Preserved("Failed:Preserved", cause, expiry)(m)
	}
}

// cycling is a power cycle in a phase that began at some time.
func cycling(phase string, at time.Time) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		Annotation(prefix+"power-cycle-phase", phase)(m)
		Annotation(prefix+"power-cycle-record", fmt.Sprintf(`{"began":%q}`, at.Format(time.RFC3339)))(m)
	}
}

func decide(holder preservation.Holder, share int32, members ...facts.Member) []preservation.Decision {
	return preservation.Decide(preservation.Group{
		Holder: holder, Share: &share, Timeout: time.Hour, MaxTimeout: 336 * time.Hour, Pool: facts.Pool{Replicas: 3},
		Timeouts: timeouts, NodeConditions: unhealthy, Members: members,
	}, now)
}

var _ = Describe("Of", func() {
	member := func(node *corev1.Node, opts ...MachineOption) facts.Member {
		return facts.Member{Machine: Machine("m", opts...), Node: node}
	}

	DescribeTable("a failure is known at the deadline, with what was decided", func(share int32, m facts.Member, name string, decision failuresv1alpha1.Decision) {
		for _, holder := range []preservation.Holder{preservation.HealthTimer{}, preservation.PreserveExpiry{}} {
			decisions := decide(holder, share, m)
			entry := failure.Of(&decisions[0], timeouts, now)
			if name == "" {
				Expect(entry).To(BeNil())
				continue
			}
			Expect(entry).NotTo(BeNil())
			Expect(entry.Name).To(Equal(name))
			Expect(entry.At).To(Equal(now))
			entry.Decision.Text = ""
			Expect(entry.Decision).To(Equal(decision))
		}
	},
		Entry("T6: a machine that the share has no place for", int32(0), member(Node("m", NotReady), failed), failure.NameOf("m", begun), failuresv1alpha1.Decision{Reason: "NoShare"}),
		Entry("T5: one that it has a place for", int32(1), member(Node("m", NotReady), failed), failure.NameOf("m", begun), failuresv1alpha1.Decision{Kept: true, Cause: "auto", Reason: "MachineFailed"}),
		Entry("T5: one that was kept before, as the record says", int32(0), member(Node("m", NotReady), keptFailed("when-failed")), failure.NameOf("m", begun), failuresv1alpha1.Decision{Kept: true, Cause: "when-failed", Reason: "AskedInCase"}),
		Entry("P1: one that was kept, and is let go of as it fails again", int32(0), member(Node("m", NotReady), failed, Preserved("Unknown:Preserved", "auto", expiry)), failure.NameOf("m", begun), failuresv1alpha1.Decision{Reason: "FailedAgain"}),
		Entry("one that never joined", int32(0), member(nil, NeverJoined, Created(now.Add(-timeouts.Creation)), Phase(machinev1alpha1.MachinePending, now)), failure.NameOf("m", now.Add(-timeouts.Creation)), failuresv1alpha1.Decision{Reason: "NoShare"}),
		Entry("H4: one that is about to fail", int32(1), member(Node("m", NotReady), Phase(machinev1alpha1.MachineUnknown, now.Add(time.Second-health))), "", failuresv1alpha1.Decision{}),
		Entry("H4: one that is held in the margin", int32(1), member(Node("m", NotReady), Phase(machinev1alpha1.MachineUnknown, now.Add(time.Second-health)), HeldUntil(now.Add(time.Second), "auto", expiry)), "", failuresv1alpha1.Decision{}),
		Entry("H1: one that is healthy, and machine-controller-manager has yet to see it", int32(0), member(Node("m"), failed), "", failuresv1alpha1.Decision{}),
		Entry("a healthy one", int32(1), member(Node("m")), "", failuresv1alpha1.Decision{}),
		Entry("T8: one that was let go of after its failure, for which there is an entry", int32(0), member(Node("m", NotReady), failed, released), "", failuresv1alpha1.Decision{}),
		Entry("one whose update in place has failed", int32(0), member(Node("m"), Phase(machinev1alpha1.MachineInPlaceUpdateFailed, begun)), failure.NameOf("m", begun), failuresv1alpha1.Decision{}),
		Entry("X10: one that is power-cycled, and has not failed", int32(0), member(Node("m"), Annotation(prefix+"power-cycle-phase", "Starting"), Annotation(prefix+"power-cycle-record", `{"began":"2026-03-01T12:30:00Z"}`)), failure.NameOf("m", Start.Add(30*time.Minute)), failuresv1alpha1.Decision{}),
		Entry("X10: one that is power-cycled, as its unreadable record says", int32(0), member(Node("m"), Created(Start), Annotation(prefix+"power-cycle-phase", "Starting"), Annotation(prefix+"power-cycle-record", "rubbish")), failure.NameOf("m", Start), failuresv1alpha1.Decision{}),
		Entry("X10: one whose power cycle waits", int32(0), member(Node("m"), Annotation(prefix+"power-cycle-phase", "Waiting")), "", failuresv1alpha1.Decision{}),
		// No sidecar led when these failed.
		Entry("one that is being deleted after its node was bad for long enough", int32(0), member(Node("m", unready(now.Add(-health))), Deleted(now)), failure.NameOf("m", begun), failuresv1alpha1.Decision{Reason: "Undecided"}),
		Entry("one of those with a health timeout of its own", int32(0), member(Node("m", unready(now.Add(-time.Minute))), Deleted(now), func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}}
		}), failure.NameOf("m", now.Add(-time.Minute)), failuresv1alpha1.Decision{Reason: "Undecided"}),
		Entry("one of those without a health timeout", int32(0), member(Node("m", unready(Start)), Deleted(now), func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{DisableHealthTimeout: new(true)}
		}), "", failuresv1alpha1.Decision{}),
		Entry("one that was deleted before that", int32(0), member(Node("m", unready(now.Add(time.Second-health))), Deleted(now)), "", failuresv1alpha1.Decision{}),
		Entry("a healthy one that is deleted", int32(0), member(Node("m"), Deleted(now)), "", failuresv1alpha1.Decision{}),
		Entry("one whose node is gone already", int32(0), member(nil, Deleted(now)), "", failuresv1alpha1.Decision{}),
		Entry("one that never joined, and is being deleted", int32(0), member(nil, NeverJoined, Deleted(Start.Add(timeouts.Creation))), failure.NameOf("m", Start), failuresv1alpha1.Decision{Reason: "Undecided"}),
		Entry("one that was deleted before it had to join", int32(0), member(nil, NeverJoined, Deleted(Start.Add(timeouts.Creation-time.Second))), "", failuresv1alpha1.Decision{}),
		Entry("T10: one that is kept, and being deleted", int32(1), member(Node("m", NotReady), keptFailed("auto"), Deleted(now)), failure.NameOf("m", begun), failuresv1alpha1.Decision{Kept: true, Cause: "auto", Reason: "MachineFailed"}),
	)

	DescribeTable("whether a failure has a reason that is known", func(expected bool, claims []preservation.Claim, opts ...MachineOption) {
		record := &preservation.Record{Failed: true, FailedSince: begun, Claims: claims}
		entry := failure.Of(&preservation.Decision{Member: member(Node("m", NotReady), opts...), Current: record, Target: record}, timeouts, now)
		Expect(entry).NotTo(BeNil())
		Expect(entry.Expected).To(Equal(expected))
	},
		Entry("none is", false, []preservation.Claim{{Cause: "auto"}}),
		Entry("M12: somebody works on the node", true, []preservation.Claim{{Cause: "auto"}, {Cause: "maintenance"}}),
		Entry("X10: the host was switched off before", true, []preservation.Claim{{Cause: "remediation"}}, cycling("Starting", begun)),
		Entry("X10: the host was switched off because of it", false, []preservation.Claim{{Cause: "remediation"}}, cycling("Starting", begun.Add(time.Second))),
		Entry("X10: the power cycle before is over", false, []preservation.Claim{{Cause: "auto"}}, cycling("", begun)),
	)

	It("should have one name for one failure, whatever the length of the machine's", func() {
		long := strings.Repeat("m", 300)
		Expect(failure.NameOf(long, begun)).To(HaveLen(253))
		Expect(failure.NameOf("m", begun)).NotTo(Equal(failure.NameOf("m", begun.Add(time.Second))))
		Expect(failure.NameOf("m", begun)).To(MatchRegexp(`^m-[a-z0-9]+$`))
	})
})

var _ = Describe("Look", func() {
	entry := func(change func(*failure.Entry)) *failure.Entry {
		e := &failure.Entry{Name: failure.NameOf("m", begun), UID: "machine-m", Since: begun, Decision: failuresv1alpha1.Decision{Kept: true, Cause: "auto", Reason: "MachineFailed"}}
		change(e)
		return e
	}
	kept := func(*failure.Entry) {}
	notKept := func(e *failure.Entry) { e.Decision = failuresv1alpha1.Decision{Reason: "NoPlace"} }
	expired := func(e *failure.Entry) { e.Release(preservation.WhyExpired) }
	const preserve = "node.machine.sapcloud.io/preserve"
	stopped := func(m *machinev1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = nil }
	look := func(opts ...MachineOption) *facts.Member {
		return &facts.Member{Machine: Machine("m", opts...), Node: Node("m")}
	}

	DescribeTable("how it ends", func(change func(*failure.Entry), looks []*facts.Member, outcome failuresv1alpha1.Outcome, reason string) {
		e := entry(change)
		for i, m := range looks {
			status := e.Look(m, unhealthy, now)
			if i < len(looks)-1 || outcome == "" {
				Expect(status).To(BeNil(), "look %d", i)
				continue
			}
			Expect(status).NotTo(BeNil())
			Expect(status.Outcome).To(Equal(outcome))
			Expect(status.Reason).To(Equal(reason))
			Expect(status.EndedAt.Time).To(Equal(now))
		}
	},
		Entry("T7: healthy again", kept, []*facts.Member{look()}, failuresv1alpha1.OutcomeRecovered, "HealthyAgain"),
		Entry("H1: healthy, and machine-controller-manager has yet to see it", kept, []*facts.Member{look(failed)}, failuresv1alpha1.Outcome(""), ""),
		Entry("H1: taken for Running, and still recorded as failed", kept, []*facts.Member{look(Preserved("Failed:Preserved", "auto", expiry))}, failuresv1alpha1.Outcome(""), ""),
		Entry("X10: healthy, while its host is still being power-cycled", kept, []*facts.Member{look(Annotation(prefix+"power-cycle-phase", "Starting"))}, failuresv1alpha1.Outcome(""), ""),
		Entry("T6: not kept, and gone", notKept, []*facts.Member{look(Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "NoPlace"),
		Entry("T6: not kept, and gone without anybody seeing it", notKept, []*facts.Member{nil}, failuresv1alpha1.OutcomeReplaced, "NoPlace"),
		Entry("T8: kept until it expired", expired, []*facts.Member{look(failed), look(Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "Expired"),
		Entry("T8: let go of before a restart", kept, []*facts.Member{look(failed, released, Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "HadItsTime"),
		Entry("T10: kept, and deleted by somebody", kept, []*facts.Member{look(keptFailed("auto"), Deleted(now)), look(Deleted(now), released), nil}, failuresv1alpha1.OutcomeDeleted, "Deleted"),
		Entry("T8: ended by machine-controller-manager >= 0.62, which was first", kept,
			[]*facts.Member{look(keptFailed("auto"), ExpiryInStatus(expiry), stopped, Phase(machinev1alpha1.MachineFailed, now), Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "EndedNatively"),
		Entry("R4: somebody forbids to keep it, and machine-controller-manager was first", kept,
			[]*facts.Member{look(keptFailed("auto"), Annotation(preserve, "false"), Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "Stopped"),
		Entry("T8: its time is over, and machine-controller-manager was first", kept,
			[]*facts.Member{look(failed, Preserved("Failed:Preserved", "auto", now), Deleted(now)), nil}, failuresv1alpha1.OutcomeReplaced, "Expired"),
		Entry("T10: deleted by somebody, of which machine-controller-manager has taken note", kept,
			[]*facts.Member{look(keptFailed("auto"), ExpiryInStatus(expiry), stopped, Phase(machinev1alpha1.MachineTerminating, now), Deleted(now)), nil}, failuresv1alpha1.OutcomeDeleted, "Deleted"),
		Entry("T10: kept by machine-controller-manager >= 0.62, and deleted by somebody", kept,
			[]*facts.Member{look(keptFailed("auto"), ExpiryInStatus(expiry), Deleted(now)), nil}, failuresv1alpha1.OutcomeDeleted, "Deleted"),
		Entry("kept, and gone without anybody seeing it", kept, []*facts.Member{nil}, failuresv1alpha1.OutcomeDeleted, "Unseen"),
		Entry("X10: power-cycled only, and gone", func(e *failure.Entry) { notKept(e); e.OnlyPowerCycled = true }, []*facts.Member{nil}, failuresv1alpha1.OutcomeDeleted, "Unseen"),
	)

	It("should say that the host was power-cycled", func() {
		e := entry(kept)
		Expect(e.Look(look(Annotation(prefix+"power-cycle-phase", "Starting")), unhealthy, now)).To(BeNil())
		Expect(e.Look(look(), unhealthy, now).PowerCycled).To(BeTrue())

		e = entry(kept)
		Expect(e.Look(look(), unhealthy, now).PowerCycled).To(BeFalse())
		e.Learn(&failure.Entry{PowerCycled: true})
		e.Learn(&failure.Entry{})
		Expect(e.Look(look(), unhealthy, now).PowerCycled).To(BeTrue())
	})

	It("should not take for kept what was decided otherwise, nor forget that it was", func() {
		later := &failure.Entry{Decision: failuresv1alpha1.Decision{Reason: "FailedTooEarly"}}
		e := entry(kept)
		e.Learn(later)
		Expect(e.Decision.Kept).To(BeFalse(), "it could not be held")
		e.Learn(&failure.Entry{Going: true, Decision: failuresv1alpha1.Decision{Reason: "Undecided"}})
		Expect(e.Decision.Reason).To(Equal("FailedTooEarly"), "what it is being deleted for was decided before")
		e = entry(expired)
		e.Learn(later)
		Expect(e.Decision.Kept).To(BeTrue())
		Expect(e.Look(nil, unhealthy, now).Reason).To(Equal("Expired"))
		e = entry(expired)
		e.Learn(&failure.Entry{Going: true, Decision: failuresv1alpha1.Decision{Kept: true, Cause: "auto", Reason: "MachineFailed"}})
		Expect(e.Look(nil, unhealthy, now).Reason).To(Equal("Expired"), "it is deleted before its record is gone")
	})

	DescribeTable("whose failure it is", func(opts []MachineOption, isOf bool) {
		Expect(entry(kept).IsOf(Machine("m", opts...))).To(Equal(isOf))
	},
		Entry("the machine's", nil, true),
		Entry("that of one before it", []MachineOption{func(m *machinev1alpha1.Machine) { m.UID = "other" }}, false),
		Entry("that of the one that was restored", []MachineOption{func(m *machinev1alpha1.Machine) { m.UID = "other" }, keptFailed("auto")}, true),
	)
})

var _ = Describe("New", func() {
	e := &failure.Entry{Name: failure.NameOf("m", begun), UID: "machine-m", Since: begun, At: now}
	node := func(opts ...NodeOption) *corev1.Node {
		n := Node("m", opts...)
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "b", KubeletVersion: "v1.36.0", OSImage: "Garden Linux 2000", KernelVersion: "6.12"}
		return n
	}

	It("should say what is known", func() {
		pod := metav1.PartialObjectMetadata{ObjectMeta: Pod("p", OwnedBy("ReplicaSet", "r")).ObjectMeta}
		f := e.New("m", failure.Found{
			Place: failure.Place{Pool: "pool", Zone: "z", Host: "h"}, Machine: Machine("m"), Node: node(unready(begun)), Unhealthy: unhealthy,
			Pods: []metav1.PartialObjectMetadata{pod}, MorePods: true,
		})
		Expect(f.Name).To(Equal(e.Name))
		Expect(f.Labels).To(Equal(map[string]string{failuresv1alpha1.LabelOpen: "true"}))
		Expect(f.Status).To(BeNil())
		Expect(f.Spec).To(Equal(failuresv1alpha1.MachineFailureSpec{
			Machine: "m", MachineUID: "machine-m", Node: "m", Pool: "pool", Zone: "z", ProviderID: "local:///m", Host: "h", Reason: "Ready",
			Condition:   &failuresv1alpha1.BadCondition{Type: "Ready", Status: "Unknown", Since: metav1.NewTime(begun)},
			FailedSince: metav1.NewTime(begun), FailedAt: metav1.NewTime(now),
			BootID: "b", KubeletVersion: "v1.36.0", OSImage: "Garden Linux 2000", KernelVersion: "6.12",
			Pods: []failuresv1alpha1.Pod{{Namespace: pod.Namespace, Name: "p", Owner: "ReplicaSet/r"}}, MorePods: true,
		}))
	})

	DescribeTable("the reason", func(m *machinev1alpha1.Machine, onlyPowerCycled bool, reason string) {
		e := *e
		e.OnlyPowerCycled = onlyPowerCycled
		Expect(e.New("m", failure.Found{Machine: m, Node: Node("m", NotReady), Unhealthy: unhealthy}).Spec.Reason).To(Equal(reason))
	},
		Entry("the first of the bad conditions", Machine("m"), false, "Ready"),
		Entry("it was power-cycled, whatever else is bad", Machine("m"), true, "PowerCycled"),
	)

	It("P14: should bound all that others wrote", func() {
		long := strings.Repeat("ä\x1b", 1000)
		m := Machine("m", NeverJoined)
		m.Spec.ProviderID, m.Labels["node"] = long, long
		n := Node("m")
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", Reason: long, Message: long}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: long, KubeletVersion: long, OSImage: long, KernelVersion: long}
		found := failure.Found{Place: failure.Place{Pool: long, Zone: long, Host: long}, Machine: m, Node: n}
		for range 60 {
			pod := Pod("p", OwnedBy(long, long))
			pod.Name, pod.Namespace = long, long
			found.Pods = append(found.Pods, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
		}
		s := e.New(long, found).Spec
		for _, text := range []string{s.Machine, s.Node, s.Pool, s.Zone, s.ProviderID, s.Host, s.BootID, s.KubeletVersion, s.OSImage, s.KernelVersion, s.Condition.Reason, s.Condition.Message, s.Pods[0].Name, s.Pods[0].Namespace} {
			Expect(len([]rune(text))).To(And(BeNumerically("<=", 256), BeNumerically(">", 200)))
			Expect(text).NotTo(ContainSubstring("\x1b"))
		}
		Expect(len([]rune(s.Pods[0].Owner))).To(BeNumerically("<=", 320))
		Expect(s.Pods).To(HaveLen(50))
		Expect(s.MorePods).To(BeTrue())
	})

	It("should say that there are more pods only if there are", func() {
		pods := make([]metav1.PartialObjectMetadata, 51)
		Expect(e.New("m", failure.Found{Machine: Machine("m"), Pods: pods[:50]}).Spec.MorePods).To(BeFalse())
		Expect(e.New("m", failure.Found{Machine: Machine("m"), Pods: pods}).Spec.MorePods).To(BeTrue())
	})

	It("should complete an entry, and leave it otherwise as it is", func() {
		before := e.New("m", failure.Found{Machine: Machine("m")})
		decided := *e
		decided.Decision.Reason = "NoPlace"
		after := decided.Complete(before, &failuresv1alpha1.MachineFailureStatus{Outcome: failuresv1alpha1.OutcomeReplaced})
		Expect(after.Labels).To(BeEmpty())
		Expect(after.Status.Outcome).To(Equal(failuresv1alpha1.OutcomeReplaced))
		Expect(after.Spec.Decision.Reason).To(Equal("NoPlace"))
		Expect(before.Status).To(BeNil())
		opened := failure.Opened(before)
		Expect(opened.Since).To(BeTemporally("==", begun))
		Expect(opened.Name).To(Equal(e.Name))
		Expect(opened.PowerCycled || opened.OnlyPowerCycled).To(BeFalse())
		before.Spec.Reason = failure.ReasonPowerCycled
		Expect(failure.Opened(before).PowerCycled && failure.Opened(before).OnlyPowerCycled).To(BeTrue())
	})
})

var _ = Describe("Superfluous", func() {
	It("should name the oldest that are complete, and then the oldest of the others", func() {
		var all []metav1.PartialObjectMetadata
		for i := range 210 {
			m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%03d", 210-i), CreationTimestamp: metav1.NewTime(Start.Add(time.Duration(-i) * time.Minute))}}
			if i != 205 && i != 207 {
				m.Labels = map[string]string{failuresv1alpha1.LabelOpen: "true"}
			}
			all = append(all, m)
		}
		var names []string
		for _, m := range failure.Superfluous(all) {
			names = append(names, m.Name)
		}
		Expect(names).To(Equal([]string{"003", "005", "001", "002", "004", "006", "007", "008", "009", "010"}))
		Expect(failure.Superfluous(all[:200])).To(BeEmpty())
	})
})

var _ = DescribeTable("MetricReason is one of a list of ours", func(reason, expected string) {
	Expect(failure.MetricReason(reason)).To(Equal(expected))
	Expect(failure.MetricReasons).To(ContainElement(expected))
},
	Entry("a node that is not ready", "Ready", "Ready"),
	Entry("one of machine-controller-manager's conditions", "KernelDeadlock", "KernelDeadlock"),
	Entry("one of ours", "NeverJoined", "NeverJoined"),
	Entry("anything else", "GPUBroken", "other"),
)
