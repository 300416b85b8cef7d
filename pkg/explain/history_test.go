// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

func entries(all ...*failuresv1alpha1.MachineFailure) []failuresv1alpha1.MachineFailure {
	var list []failuresv1alpha1.MachineFailure
	for _, f := range all {
		list = append(list, *f)
	}
	return list
}

var deadlock = Bad("KernelDeadlock", "DockerHung", "task docker:20744 blocked for more than 120 seconds.")

// failures is a ledger that another machine, host and pool are in as well.
func failures() []failuresv1alpha1.MachineFailure {
	day := func(n int) time.Time { return now.AddDate(0, 0, n) }
	return entries(
		EntryOf("old", day(-9), OnHost("bmh-7"), deadlock),
		EntryOf("m", day(-1), OnHost("bmh-7"), deadlock, Ended(failuresv1alpha1.OutcomeReplaced, day(-1).Add(5*time.Minute), preservation.WhyNoPlace.Text), WithEvidence("machine-preservation-evidence-3")),
		EntryOf("young", day(-2), OnHost("bmh-7")),
		EntryOf("joins-never", day(-3), NoNode, func(f *failuresv1alpha1.MachineFailure) { f.Spec.Pool = "b" }),
	)
}

func namesOf(h History) string {
	var names []string
	for _, f := range h.Failures {
		names = append(names, f.Spec.Machine)
	}
	return strings.Join(names, " ")
}

func saysOf(repeats []Repeat) []string {
	var says []string
	for _, r := range repeats {
		says = append(says, r.Say("of these"))
	}
	return says
}

var _ = Describe("The history of failures", func() {
	DescribeTable("should have what is looked for, the last one first", func(filter Filter, names string) {
		Expect(namesOf(HistoryOf(failures(), filter, now))).To(Equal(names))
	},
		Entry("all", Filter{}, "m young joins-never old"),
		Entry("a machine", Filter{Name: "joins-never"}, "joins-never"),
		Entry("a node", Filter{Name: "young"}, "young"),
		Entry("a pool", Filter{Pool: "a"}, "m young old"),
		Entry("a host", Filter{Host: "bmh-7"}, "m young old"),
		Entry("a reason, as people write it", Filter{Reason: "kerneldeadlock"}, "m old"),
		Entry("all of that", Filter{Name: "m", Pool: "a", Host: "bmh-7", Reason: "KernelDeadlock"}, "m"),
		Entry("what is in another pool", Filter{Name: "m", Pool: "b"}, ""),
	)

	It("should say what happened more than once, the most frequent first", func() {
		Expect(saysOf(HistoryOf(failures(), Filter{}, now).Repeats)).To(Equal([]string{
			"3 of these in pool a within 8 days",
			"3 of these on host bmh-7 within 8 days",
			"2 of these in pool a with reason KernelDeadlock within 8 days",
		}))
	})

	DescribeTable("should say within which time", func(apart time.Duration, want string) {
		h := HistoryOf(entries(EntryOf("one", now, OnHost("h")), EntryOf("two", now.Add(-apart), OnHost("h"))), Filter{}, now)
		Expect(saysOf(h.Repeats)).To(ContainElement("2 of these on host h" + want))
	},
		Entry("none", time.Duration(0), ""),
		Entry("seconds", 10*time.Second, " within a minute"),
		Entry("a minute", time.Minute, " within a minute"),
		Entry("minutes", 61*time.Second, " within 2 minutes"),
		Entry("hours", 90*time.Minute, " within 2 hours"),
		Entry("days", 25*time.Hour, " within 2 days"),
		Entry("nine days", 9*24*time.Hour, " within 9 days"),
	)

	It("should count failures without a time, and have them last", func() {
		timeless := EntryOf("timeless", now, OnHost("h"))
		timeless.Spec.FailedAt = metav1.Time{}
		h := HistoryOf(entries(timeless, EntryOf("one", now, OnHost("h")), EntryOf("two", now.Add(-time.Hour), OnHost("h"))), Filter{}, now)
		Expect(namesOf(h)).To(Equal("one two timeless"))
		Expect(saysOf(h.Repeats)).To(ContainElement("3 of these on host h within 60 minutes"))
	})
})

// thereNow is what the shoot alone says of a node, or of none.
func thereNow(nodes ...corev1.Node) *observed.Snapshot {
	return &observed.Snapshot{Time: now, Shoot: observed.Shoot{Nodes: nodes}}
}

var _ = Describe("The page on a failure", func() {
	page := func(ledger Ledger, known *observed.Snapshot, name string) string {
		GinkgoHelper()
		p, err := PageOf(ledger, known, name, now)
		Expect(err).NotTo(HaveOccurred())
		return p.String()
	}

	DescribeTable("should tell all that is known", func(file string, failure *failuresv1alpha1.MachineFailure, known func() *observed.Snapshot) {
		ledger := Ledger{Entries: failures()}
		if failure != nil {
			ledger.Entries = entries(failure)
		}
		golden.Expect(file, page(ledger, known(), "m"))
	},
		Entry("of a machine that is gone, on a host that fails again and again", "why-gone.txt", nil, func() *observed.Snapshot { return thereNow() }),
		Entry("of one that never joined", "why-never-joined.txt", EntryOf("m", now.Add(-time.Hour), NoNode, Ended(failuresv1alpha1.OutcomeReplaced, now.Add(-50*time.Minute), preservation.WhyNoShare.Text),
			func(f *failuresv1alpha1.MachineFailure) {
				f.Spec.Decision.Reason, f.Spec.Decision.Text = preservation.WhyNoShare.ID, preservation.WhyNoShare.Text
			}), func() *observed.Snapshot { return thereNow() }),
		Entry("of one that is kept", "why-kept.txt", EntryOf("m", now.Add(-time.Hour), WasKept("auto")), func() *observed.Snapshot {
			known := thereNow(*Node("m", notReadySince(now.Add(-70*time.Minute)), shown("auto", "Drained", "", now.Add(time.Hour)), Taint("node.machine.sapcloud.io/preserved", now.Add(-time.Hour))))
			known.Shoot.Events = []eventsv1.Event{event("Node", "m", told{"MachinePreserved", "MachineFailed", "Machine is Failed:Preserved until tomorrow."}, now.Add(-59*time.Minute)),
				event("Node", "m", told{"MachinePreserved", "AskedFor", "It was asked for long before."}, now.Add(-2*time.Hour))}
			return known
		}),
		Entry("of one that recovered after a power cycle", "why-recovered.txt", EntryOf("m", now.Add(-time.Hour), WasKept("remediation"), OnHost("bmh-7"), Ended(failuresv1alpha1.OutcomeRecovered, now.Add(-30*time.Minute), preservation.WhyHealthyAgain.Text),
			func(f *failuresv1alpha1.MachineFailure) { f.Spec.Reason, f.Status.PowerCycled = "PowerCycled", true }), func() *observed.Snapshot { return thereNow(*Node("m")) }),
		Entry("of one whose entry says nothing", "why-empty.txt", &failuresv1alpha1.MachineFailure{Spec: failuresv1alpha1.MachineFailureSpec{Node: "m"}}, func() *observed.Snapshot { return thereNow() }),
		Entry("of one that did not fail", "why-no-entry.txt", EntryOf("other", now), func() *observed.Snapshot { return thereNow(*Node("m")) }),
		Entry("of one that never joined and is kept, to an operator", "why-never-joined-seed.txt", EntryOf("m", now.Add(-time.Hour), NoNode, WasKept("now")),
			situation{machine: []MachineOption{func(m *machinev1alpha1.Machine) { delete(m.Labels, "node") }, NeverJoined, Preserved("Failed:Preserved", "now", now.Add(time.Hour)), Annotation("node.machine.sapcloud.io/preserve", "now")}, noNode: true}.known),
		Entry("to an operator", "why-seed.txt", EntryOf("m", now.Add(-time.Hour), WasKept("auto")), situation{machine: []MachineOption{Preserved("Failed:Preserved", "auto", now.Add(time.Hour))}, node: []NodeOption{NotReady}}.known),
	)

	It("should find the node of a machine, and not take what has its name now for it", func() {
		failure := EntryOf("m", now.Add(-time.Hour), Ended(failuresv1alpha1.OutcomeReplaced, now.Add(-50*time.Minute), ""), func(f *failuresv1alpha1.MachineFailure) { f.Spec.Node = "ip-1" })
		ledger := Ledger{Entries: entries(failure)}
		Expect(ledger.NodeOf("m")).To(Equal("ip-1"))
		Expect(ledger.NodeOf("ip-1")).To(Equal("ip-1"))
		Expect(ledger.NodeOf("other")).To(Equal("other"))

		node := Node("ip-1")
		node.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
		Expect(page(ledger, thereNow(*node), "m")).To(ContainSubstring("Node ip-1 exists."))
		node.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		Expect(page(ledger, thereNow(*node), "m")).To(And(ContainSubstring("another machine has its name or its node's name: 'kubectl preserve explain ip-1'"), Not(ContainSubstring("Node ip-1 exists"))))
		ledger.Entries[0].Status.Outcome = failuresv1alpha1.OutcomeRecovered
		Expect(page(ledger, thereNow(*node), "ip-1")).To(ContainSubstring("Node ip-1 exists."))

		By("saying the same to operators")
		ledger.Entries[0].Status.Outcome = failuresv1alpha1.OutcomeReplaced
		other := thereNow(*node)
		alone := page(ledger, other, "m")
		other.Seed = situation{}.known().Seed
		other.Seed.Machines = slices.DeleteFunc(other.Seed.Machines, func(m machinev1alpha1.Machine) bool { return m.Name == "m" })
		other.Seed.Machine("other").Labels["node"] = "ip-1"
		Expect(page(ledger, other, "m")).To(Equal(alone))

		known := situation{}.known()
		ledger.Entries[0].Spec.Machine, ledger.Entries[0].Spec.Node = "former", "m"
		Expect(page(ledger, known, "m")).To(ContainSubstring("another machine has its name"))
	})

	DescribeTable("should say what is not known", func(missing error, node bool, unknown, want string) {
		known := thereNow()
		if node {
			known = thereNow(*Node("m"))
		}
		if unknown != "" {
			known.Missing = []observed.Missing{{Thing: observed.WhatNode, Reason: unknown}}
		}
		p, err := PageOf(Ledger{Missing: missing}, known, "m", now)
		if node {
			Expect(err).NotTo(HaveOccurred())
			Expect(p.String()).To(ContainSubstring(want))
			return
		}
		Expect(err).To(MatchError(want))
	},
		Entry("the ledger, of a node that is there", errDenied, true, "", "What is not known\n  Whether it failed before: ask for ClusterRole view.\n"),
		Entry("the ledger, of one that is not", errDenied, false, "", `node "m" does not exist, and ask for ClusterRole view`),
		Entry("the ledger and the node", errDenied, false, "nodes are forbidden", `node "m" is not known: nodes are forbidden, and ask for ClusterRole view`),
		Entry("a name", nil, false, "", `node "m" does not exist, and the failure history has no failure of it: 'kubectl preserve history' shows all failures`),
	)

	It("should tell of a machine that is gone though nodes cannot be read", func() {
		known := thereNow()
		known.Missing = []observed.Missing{{Thing: observed.WhatNode, Reason: "nodes are forbidden"}}
		Expect(page(Ledger{Entries: failures()}, known, "m")).To(And(ContainSubstring("KernelDeadlock"), ContainSubstring(`Whether the machine still exists: node "m" is not known: nodes are forbidden.`)))
	})

	It("should put no name into a command that a shell takes for more", func() {
		for _, name := range []string{"m; rm -rf ~", "$(id)", "-h", "m`id`", "m\nid", "m'"} {
			failure := EntryOf(name, now, OnHost(name), Bad(corev1.NodeConditionType(name), "", ""), Ended(failuresv1alpha1.OutcomeReplaced, now, ""), WithEvidence(name))
			failure.Spec.Pool = name
			text := page(Ledger{Entries: entries(failure, failure)}, thereNow(), name)
			for _, command := range strings.Split(text, "'kubectl ")[1:] {
				command, _, _ = strings.Cut(command, "'")
				Expect(command).To(MatchRegexp(`^preserve [A-Za-z -]+$`))
			}
		}
	})
})

type denied struct{}

func (denied) Error() string { return "ask for ClusterRole view" }

var errDenied = denied{}

func (s situation) known() *observed.Snapshot { return s.snapshot("") }

// FuzzPage has an entry that anybody may have written: nothing of it is in what people read that a terminal would obey.
func FuzzPage(f *testing.F) {
	for _, failure := range failures() {
		written, err := json.Marshal(failure)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(written)
	}
	f.Add([]byte(`{"spec":{"machine":"m","node":"m","pods":[{},{"name":"\u001b[2J"}],"condition":{"message":"\u001b[2J","since":"2026-03-01T12:00:00Z"},"failedAt":"9999-12-31T23:59:59Z"},"status":{"outcome":"\u009b31m"}}`))
	f.Add([]byte(`{"spec":{"machine":"m","reason":"\u202e","host":"\r","pool":"\u001b]0;x\u0007","failedAt":"0001-01-01T00:00:01Z","morePods":true}}`))
	f.Fuzz(func(t *testing.T, written []byte) {
		entry := failuresv1alpha1.MachineFailure{}
		if json.Unmarshal(written, &entry) != nil {
			return
		}
		again := *entry.DeepCopy()
		again.Name += "-again"
		ledger := Ledger{Entries: []failuresv1alpha1.MachineFailure{entry, again}}
		for _, known := range []*observed.Snapshot{thereNow(), thereNow(*Node("m")), situation{}.known()} {
			for _, name := range []string{"m", entry.Spec.Node, entry.Spec.Machine} {
				p, err := PageOf(ledger, known, name, now)
				if err != nil {
					continue
				}
				for _, r := range p.String() {
					if !unicode.IsPrint(r) && r != '\n' {
						t.Fatalf("%q is in %q", r, p.String())
					}
				}
			}
		}
		for _, r := range HistoryOf(ledger.Entries, Filter{}, now).Repeats {
			if said := r.Say("failures"); strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q", said)
			}
		}
	})
}
