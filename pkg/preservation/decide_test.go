// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"slices"
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

const (
	preserve = "node.machine.sapcloud.io/preserve"
	timeout  = "machine-preservation.extensions.gardener.cloud/timeout"
	share    = "machine-preservation.extensions.gardener.cloud/share"
	released = "machine-preservation.extensions.gardener.cloud/released"

	preservedSince = "machine-preservation.extensions.gardener.cloud/preserved-since"

	maintenance     = "machine-preservation.extensions.gardener.cloud/maintenance"
	maintainedSince = "machine-preservation.extensions.gardener.cloud/maintained-since"
	remediation     = "machine-preservation.extensions.gardener.cloud/remediation"
	remediatedUntil = "machine-preservation.extensions.gardener.cloud/remediated-until"

	criticalComponents = "node.gardener.cloud/critical-components-not-ready"
)

var _ = Describe("Decide", func() {
	var (
		now    = Start.Add(time.Hour)
		later  = now.Add(time.Hour)
		past   = now.Add(-time.Second)
		expiry = now.Add(72 * time.Hour)
		// longest is until when a machine may be kept that begins to be.
		longest = now.Add(336 * time.Hour)

		// Ten minutes have passed; all but the margin of 30 seconds have passed, or that and one second more.
		failing  = Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute))
		near     = Phase(machinev1alpha1.MachineUnknown, now.Add(-570*time.Second))
		healthy  = Phase(machinev1alpha1.MachineUnknown, now.Add(-569*time.Second))
		deadline = now.Add(30 * time.Second)
	)

	group := func(share int32, members ...facts.Member) Group {
		return Group{
			Holder:         HealthTimer{},
			Share:          &share,
			Timeout:        72 * time.Hour,
			MaxTimeout:     336 * time.Hour,
			Pool:           facts.Pool{Replicas: 3},
			Timeouts:       facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
			NodeConditions: facts.DefaultNodeConditions,
			Members:        members,
		}
	}
	onMachine := func(opts ...MachineOption) facts.Member {
		return facts.Member{Machine: Machine("m", opts...), Node: Node("m")}
	}
	onNode := func(value string, opts ...MachineOption) facts.Member {
		return facts.Member{Machine: Machine("m", opts...), Node: Node("m", NodeAnnotation(preserve, value))}
	}

	var (
		noVM   = func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" }
		rolls  = func(g *Group) { g.Rollout = true }
		quiet  = Phase(machinev1alpha1.MachineRunning, now.Add(-10*time.Second))
		auto   = []Claim{{Cause: "auto", Expiry: expiry}}
		person = []Claim{{Cause: "now", Expiry: expiry}}
	)
	// taken makes the machine one whose hold was removed by somebody else, in whose place something was set aside.
	taken := func(aside string) []MachineOption {
		return []MachineOption{Annotation(prefix+"request", aside), Annotation(prefix+"expiry-in-status", "machine-m")}
	}
	comesBack := now.Add(quietTime) // P13
	twoClaims := Annotation(prefix+"claims", "auto="+later.Format(time.RFC3339)+",now="+expiry.Format(time.RFC3339))
	unhealthy := func(opts ...MachineOption) facts.Member {
		return facts.Member{Machine: Machine("m", opts...), Node: Node("m", NotReady)}
	}

	type outcome struct {
		Rule    Rule
		Target  *Record
		Next    time.Time
		Refused bool
		Consume bool
	}
	outcomes := func(g Group) []outcome {
		var result []outcome
		for _, d := range Decide(g, now) {
			if d.Target != nil {
				target := *d.Target
				target.FailedSince, target.Since = time.Time{}, time.Time{}
				d.Target = &target
			}
			result = append(result, outcome{Rule: d.Rule, Target: d.Target, Next: d.Next, Refused: d.Verdict == Refused, Consume: d.ConsumeRequest})
		}
		return result
	}

	DescribeTable("R2: the request", func(want Request, m facts.Member) {
		Expect(RequestOf(m, 336*time.Hour)).To(Equal(want))
	},
		Entry("the pool's counts, whatever is on the node: it is put back", Request{Value: "when-failed", OnNode: true, Templated: true}, onNode("now", Templated("when-failed"))),
		Entry("the pool's counts before it is on the node", Request{Value: "when-failed", OnNode: true, Templated: true}, onMachine(Templated("when-failed"), Annotation(preserve, "now"))),
		Entry("P9: the pool's counts while nobody can read the node", Request{Value: "when-failed", OnNode: true, Templated: true},
			facts.Member{Machine: Machine("m", Templated("when-failed"), Annotation(lastApplied, "when-failed")), NodeUnknown: true}),
		Entry("what machine-controller-manager has written on a Machine is nobody's", Request{}, onMachine(Annotation(preserve, "auto-preserved"))),
		Entry("P14: on a node it is invalid", Request{OnNode: true, Invalid: "auto-preserved"}, onNode("auto-preserved")),
		Entry("P14: what is spent on the node asks for nothing", Request{OnNode: true, Spent: "now"}, onNode("now", Annotation(prefix+"spent-request", "now"))),
		Entry("P14: on the Machine it asks again", Request{Value: "now"}, onMachine(Annotation(preserve, "now"), Annotation(prefix+"spent-request", "now"))),
		Entry("R4: false, which was taken from the Machine together with the hold", Request{Value: "false"}, onMachine(taken("Machine:false")...)),
		Entry("R4: false, which was taken from the node together with the hold", Request{Value: "false", OnNode: true}, onMachine(taken("Node:false")...)),
		Entry("R5: a timeout that nobody can read", Request{Value: "now", InvalidTimeout: "soon"}, onMachine(Annotation(preserve, "now"), Annotation(timeout, "soon"))),
	)

	DescribeTable("one machine",
		func(m facts.Member, share int32, want outcome) {
			Expect(outcomes(group(share, m))).To(Equal([]outcome{want}))
		},

		Entry("healthy, nothing asked for", onMachine(), int32(1), outcome{}),
		Entry("R1 T1: now on a running machine", onMachine(Annotation(preserve, "now")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("R1: true is an alias of now", onNode("true"), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("T1: now on a machine that is unhealthy but has not failed", onNode("now", healthy), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: now.Add(time.Second)}),
		Entry("T1: now on a machine that has never joined", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachinePending, now), Created(now), Annotation(preserve, "now"))}, int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: now.Add(20*time.Minute - 30*time.Second)}),
		Entry("R2: the node's false beats the machine's now", facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m", NodeAnnotation(preserve, "false"))}, int32(1), outcome{}),
		Entry("R2: the node's empty value beats the machine's now", facts.Member{Machine: Machine("m", Annotation(preserve, "now")), Node: Node("m", NodeAnnotation(preserve, ""))}, int32(1), outcome{}),
		Entry("R2: a machine without a node can be asked for", facts.Member{Machine: Machine("m", Annotation(preserve, "now"))}, int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("R2 P9: the last known request of a node that cannot be read", facts.Member{Machine: Machine("m", Annotation("node.machine.sapcloud.io/last-applied-node-preserve-value", "now")), NodeUnknown: true}, int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("R3: an invalid value starts nothing", onNode("yes"), int32(0), outcome{}),
		Entry("R3: an invalid value stops nothing", onNode("yes", Preserved("Running:Preserved", "now", later)), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: later}),
		Entry("R3: an invalid value does not outlive the expiry", onNode("yes", Preserved("Running:Preserved", "now", past)), int32(0),
			outcome{Rule: "T3", Consume: true, Next: comesBack}),
		Entry("R4: false forbids auto-preservation", onNode("false", failing), int32(1), outcome{}),
		Entry("R4 T8: false stops a preservation", onNode("false", failing, Preserved("Failed:Preserved", "auto", later)), int32(1), outcome{Rule: "T8"}),
		Entry("R5: the request's own timeout", onMachine(Annotation(preserve, "now"), Annotation(timeout, "2h")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now.Add(2 * time.Hour)}}}, Next: now.Add(2 * time.Hour)}),
		Entry("R5: the shortest timeout", onMachine(Annotation(preserve, "now"), Annotation(timeout, "10s")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now.Add(10 * time.Second)}}}, Next: now.Add(10 * time.Second)}),
		Entry("R5: the longest timeout", onMachine(Annotation(preserve, "now"), Annotation(timeout, "336h")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: longest}}}, Next: longest}),
		Entry("R5: a shorter one is ignored", onMachine(Annotation(preserve, "now"), Annotation(timeout, "9.999s")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("R5: a longer one is ignored", onMachine(Annotation(preserve, "now"), Annotation(timeout, "336h0m1s")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("R5: an invalid timeout is ignored", onMachine(Annotation(preserve, "now"), Annotation(timeout, "-2h")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),

		Entry("T2: a preserved machine fails", onNode("now", failing, Preserved("Running:Preserved", "now", later)), int32(0),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}, Failed: true}, Next: later}),
		Entry("T2: asking never shortens: with a free place, the share's time is counted from the failure",
			onNode("now", failing, Preserved("Running:Preserved", "now", later)), int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}, {Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: later}),
		Entry("T2 R5: it is the pool's time, and not that of the request",
			facts.Member{Machine: Machine("m", failing, Preserved("Running:Preserved", "now", later)), Node: Node("m", NodeAnnotation(preserve, "now"), NodeAnnotation(timeout, "1h"))}, int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}, {Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: later}),
		Entry("T2: also if the machine is asked for in the moment in which it fails", onNode("now", failing), int32(1),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}, {Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("T2: not without a VM, which is no evidence",
			facts.Member{Machine: Machine("m", NeverJoined, Phase(machinev1alpha1.MachinePending, now), Annotation(preserve, "now"), Preserved("Pending:Preserved", "now", later), func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" })}, int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}, Failed: true}, Next: later}),
		Entry("T2: an auto-preserved machine that recovered and fails again is a new failure", unhealthy(failing, Preserved("Running:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: later}),
		Entry("T2 H4: before the deadline it may yet recover", unhealthy(near, Preserved("Running:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: RuleMargin, Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}, {Cause: "auto", Expiry: expiry, Tentative: true}}, FailsAt: deadline, Share: 1}, Next: deadline}),
		Entry("T2 H4: without a place it waits until the deadline as it is", unhealthy(near, Preserved("Running:Preserved", "auto", later), Annotation(share, "1")), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Share: 1}, Next: deadline}),
		Entry("T2 H4: when it has recovered, the old expiry stands",
			onMachine(HeldUntil(deadline, "auto", expiry), Annotation(prefix+"claims", "auto="+later.Format(time.RFC3339)+",auto?="+expiry.Format(time.RFC3339)), Annotation(prefix+"phase", "Unknown:Preserved"), Annotation(share, "1")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Share: 1}, Next: later}),
		Entry("T2 H4 P6: nor is it lost then what an operator has edited meanwhile",
			onMachine(HeldUntil(deadline, "now", expiry.Add(time.Hour)), Annotation(preserve, "now"), Annotation(prefix+"claims", "now="+later.Format(time.RFC3339)+",auto?="+expiry.Format(time.RFC3339)), Annotation(prefix+"phase", "Unknown:Preserved"), Annotation(share, "1")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry.Add(time.Hour)}}, Share: 1}, Next: expiry.Add(time.Hour)}),
		Entry("T2 H4: who withdraws the request before the deadline has not asked",
			unhealthy(near, HeldUntil(deadline, "now", expiry), Annotation(prefix+"claims", "now="+later.Format(time.RFC3339)+",auto?="+expiry.Format(time.RFC3339)), Annotation(prefix+"phase", "Unknown:Preserved"), Annotation(share, "1")), int32(1),
			outcome{Rule: RuleClaims, Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, FailsAt: deadline, Provisional: true, Share: 1}, Next: deadline}),
		Entry("T3: the expiry of a running machine", onNode("now", Preserved("Running:Preserved", "now", now)), int32(0), outcome{Rule: "T3", Consume: true, Next: comesBack}),
		Entry("T3: one second before the expiry", onNode("now", Preserved("Running:Preserved", "now", now.Add(time.Second))), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now.Add(time.Second)}}}, Next: now.Add(time.Second)}),
		Entry("T3: the request was withdrawn", onMachine(Preserved("Running:Preserved", "now", later)), int32(0), outcome{Rule: "T3", Next: comesBack}),
		Entry("T3: now became when-failed", onNode("when-failed", Preserved("Running:Preserved", "now", later)), int32(0), outcome{Rule: "T3", Next: comesBack}),
		Entry("T4: when-failed, not failed yet", onNode("when-failed", healthy), int32(0), outcome{Next: now.Add(time.Second)}),
		Entry("T4: when-failed is not limited by the share", onNode("when-failed", failing), int32(0),
			outcome{Rule: "T4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: expiry}}, Failed: true}, Next: expiry}),
		Entry("T5: within the share", onMachine(failing), int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("R5 T5: a timeout without a request is nobody's", onMachine(failing, Annotation(timeout, "1h")), int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("R5 T5: a timeout beside what is no request", onMachine(failing, Annotation(preserve, "yes"), Annotation(timeout, "1h")), int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("T5: a machine that never joined", facts.Member{Machine: Machine("m", NeverJoined, Phase(machinev1alpha1.MachinePending, now))}, int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("H3: a machine that is in phase Failed is being terminated", onMachine(Phase(machinev1alpha1.MachineFailed, now)), int32(1),
			outcome{Refused: true}),
		Entry("H3: whatever was asked for", onNode("now", Phase(machinev1alpha1.MachineFailed, now)), int32(1),
			outcome{Refused: true, Consume: true}),
		Entry("H3: a machine with a VM that cannot be created", onMachine(Phase(machinev1alpha1.MachineCrashLoopBackOff, now)), int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("H3: without a VM", onMachine(Phase(machinev1alpha1.MachineCrashLoopBackOff, now), func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" }), int32(1), outcome{}),
		Entry("H3: a machine whose update in place failed is not terminated", onMachine(Phase(machinev1alpha1.MachineInPlaceUpdateFailed, now.Add(-10*time.Minute))), int32(1), outcome{}),
		Entry("H2: a machine that waits for the components on its node cannot be held",
			facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachinePending, now)), Node: Node("m", Taint(criticalComponents, now))}, int32(1), outcome{}),
		Entry("H2: nor if it was asked for before",
			facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachinePending, now), Annotation(preserve, "now"), Preserved("Pending:Preserved", "now", later)), Node: Node("m", Taint(criticalComponents, now))}, int32(1),
			outcome{Rule: "T3", Consume: true}),
		Entry("H4: now in the margin of one that is held already", onNode("now", near, HeldUntil(deadline, "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: RuleClaims, Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}, {Cause: "auto", Expiry: expiry, Tentative: true}}, FailsAt: deadline, Share: 1}, Next: deadline}),
		Entry("T4: when-failed on an auto-preserved machine that is about to fail again is not limited by the share",
			unhealthy(near, Annotation(preserve, "when-failed"), Preserved("Unknown:Preserved", "auto", later)), int32(0),
			outcome{Rule: RuleClaims, Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}, {Cause: "when-failed", Expiry: expiry}}, FailsAt: deadline}, Next: deadline}),
		Entry("P6: what machine-controller-manager preserved while nobody else was there keeps its expiry",
			onNode("now", func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(later))
			}), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: later}),
		Entry("H4: the margin before the deadline", onMachine(near), int32(1),
			outcome{Rule: "H4", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: expiry}}, FailsAt: deadline, Provisional: true, Share: 1}, Next: deadline}),
		Entry("H4: when-failed in the margin", onNode("when-failed", near), int32(0),
			outcome{Rule: "H4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: expiry}}, FailsAt: deadline, Provisional: true}, Next: deadline}),
		Entry("T4 R5 H4: when-failed in the margin, for less time than is left", onMachine(near, Annotation(preserve, "when-failed"), Annotation(timeout, "20s")), int32(0),
			outcome{Rule: "H4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: deadline.Add(20 * time.Second)}}, FailsAt: deadline, Provisional: true}, Next: deadline}),
		Entry("R5 H4: when-failed in the margin, for a little more time than is left", onMachine(near, Annotation(preserve, "when-failed"), Annotation(timeout, "31s")), int32(0),
			outcome{Rule: "H4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: deadline.Add(30 * time.Second)}}, FailsAt: deadline, Provisional: true}, Next: deadline}),
		Entry("R5 H4: when-failed in the margin, for a minute", onMachine(near, Annotation(preserve, "when-failed"), Annotation(timeout, "1m")), int32(0),
			outcome{Rule: "H4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: now.Add(time.Minute)}}, FailsAt: deadline, Provisional: true}, Next: deadline}),
		Entry("T4 R5 H4: when-failed of one that is held already, for less time than is left",
			unhealthy(near, HeldUntil(deadline, "auto", later), Annotation(share, "1"), Annotation(preserve, "when-failed"), Annotation(timeout, "10s")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: deadline.Add(10 * time.Second)}}, FailsAt: deadline, Provisional: true, Share: 1}, Next: deadline}),
		Entry("R5: now in the margin, for less time than is left", onMachine(near, Annotation(preserve, "now"), Annotation(timeout, "20s")), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: now.Add(20 * time.Second)}}, FailsAt: deadline}, Next: now.Add(20 * time.Second)}),
		Entry("T8 R5: when-failed of a machine that failed before, whose hold is about to end",
			unhealthy(near, Preserved("Failed:Preserved", "auto", deadline), Annotation(share, "1"), Annotation(preserve, "when-failed"), Annotation(timeout, "10s")), int32(1),
			outcome{Rule: "claims", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: deadline}, {Cause: "when-failed", Expiry: now.Add(10 * time.Second)}}, Failed: true, Share: 1}, Next: now.Add(10 * time.Second)}),
		Entry("H4: now in the margin", onNode("now", near), int32(0),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}, FailsAt: deadline}, Next: deadline}),
		Entry("H4: no place in the margin: there may be one at the deadline", onMachine(near), int32(0), outcome{Next: deadline}),
		Entry("H4: healthy before the deadline", onMachine(HeldUntil(deadline, "auto", later)), int32(1), outcome{Rule: "H4"}),
		Entry("H4: healthy, and machine-controller-manager has yet to see it", onMachine(failing, HeldUntil(past, "auto", later)), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, FailsAt: past, Provisional: true, Share: 1}, Next: later}),
		Entry("H4: a preserved machine that is healthy before its deadline stays preserved",
			onNode("now", Preserved("Running:Preserved", "now", later), Annotation(prefix+"fails-at", "2026-03-01T13:00:30Z")), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: later}),
		Entry("H4 T5: the deadline", unhealthy(failing, HeldUntil(now, "auto", later)), int32(1),
			outcome{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("H4 T4: the deadline of one that was asked for", unhealthy(failing, Annotation(preserve, "when-failed"), HeldUntil(now, "when-failed", later)), int32(0),
			outcome{Rule: "T4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: later}}, Failed: true}, Next: later}),
		Entry("H4 T1 P11: the deadline of one that is asked for at that very moment begins the preservation", unhealthy(failing, Annotation(preserve, "now"), HeldUntil(now, "auto", later)), int32(1),
			outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}, {Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: expiry}),
		Entry("H1: Running proves nothing while the node is not ready", unhealthy(Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("H1: nor while the node is unhealthy in another way",
			facts.Member{Machine: Machine("m", Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), Node: Node("m", Condition("KernelDeadlock", corev1.ConditionUnknown, "", ""))}, int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("H1: a condition that machine-controller-manager does not look at does not count",
			facts.Member{Machine: Machine("m", Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), Node: Node("m", Condition("Odd", corev1.ConditionTrue, "", ""))}, int32(1),
			outcome{Rule: "T7", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Share: 1}, Next: later}),
		Entry("H1: nor does Running while there is no node", facts.Member{Machine: Machine("m", Preserved("Failed:Preserved", "auto", later), Annotation(share, "1"))}, int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("T5: not before the margin", onMachine(healthy), int32(1), outcome{Next: now.Add(time.Second)}),
		Entry("T5: a machine without a VM is no evidence", onMachine(failing, func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" }), int32(1), outcome{Next: time.Time{}}),
		Entry("T5: machine-controller-manager ignores the health timeout", onMachine(failing, func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{DisableHealthTimeout: new(true)}
		}), int32(1), outcome{}),
		Entry("T6: no share", onMachine(failing), int32(0), outcome{}),
		Entry("T7: the node is healthy again", onMachine(Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: "T7", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Share: 1}, Next: later}),
		Entry("T8: the expiry of a failed machine", onMachine(failing, Preserved("Failed:Preserved", "auto", now)), int32(1), outcome{Rule: "T8", Consume: true}),
		Entry("T8: the request was withdrawn", onMachine(failing, Preserved("Failed:Preserved", "when-failed", later)), int32(0), outcome{Rule: "T8"}),
		Entry("T8: a released machine is not preserved once more", onMachine(failing, Annotation(released, "2026-03-01T12:00:00Z")), int32(1), outcome{}),
		Entry("T10: a machine that is deleted", onMachine(Deleted(now), Annotation(preserve, "now"), Preserved("Running:Preserved", "now", later)), int32(1), outcome{Rule: "T10"}),
		Entry("T10: a machine that is deleted is not held", onMachine(Deleted(now), failing), int32(1), outcome{}),

		Entry("T8: one look at the expiry, and none before that because the hold makes the timer run out then",
			unhealthy(Phase(machinev1alpha1.MachineUnknown, later.Add(-10*time.Minute)), Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("T8: a failed machine that is asked for when-failed instead of now goes on",
			onNode("when-failed", failing, Preserved("Failed:Preserved", "now", later)), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: later}}, Failed: true}, Next: later}),
		Entry("T9 P1: a place is given back with the recovery, also if people keep the machine that fails again",
			unhealthy(failing, Annotation(preserve, "now"), Preserved("Running:Preserved", "now", expiry), twoClaims, Annotation(share, "1")), int32(0),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}, {Cause: "now", Expiry: expiry}}, Failed: true}, Next: later}),
		Entry("T2: a free place does not shorten what the share has claimed before",
			unhealthy(failing, Annotation(preserve, "now"), Preserved("Running:Preserved", "auto", expiry.Add(time.Hour)), Annotation(prefix+"claims", "now="+later.Format(time.RFC3339)+",auto="+expiry.Add(time.Hour).Format(time.RFC3339))), int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}, {Cause: "auto", Expiry: expiry.Add(time.Hour)}}, Failed: true, Share: 1}, Next: later}),
		Entry("T2 H4: at the deadline the share's claim stands",
			unhealthy(failing, Annotation(preserve, "now"), HeldUntil(now, "now", expiry), Annotation(prefix+"claims", "now="+later.Format(time.RFC3339)+",auto?="+expiry.Format(time.RFC3339)), Annotation(prefix+"phase", "Unknown:Preserved"), Annotation(share, "1")), int32(1),
			outcome{Rule: "T2", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}, {Cause: "auto", Expiry: expiry}}, Failed: true, Share: 1}, Next: later}),
		Entry("T4: the share claims nothing beside when-failed", unhealthy(failing, Annotation(preserve, "when-failed")), int32(1),
			outcome{Rule: "T4", Target: &Record{Claims: []Claim{{Cause: "when-failed", Expiry: expiry}}, Failed: true}, Next: expiry}),
		Entry("H4 R4: false in the margin, of which nobody is told", onNode("false", near, HeldUntil(deadline, "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: RuleMargin, Next: deadline}),
		Entry("P6: the expiry in the status counts", onNode("now", Preserved("Running:Preserved", "now", past), ExpiryInStatus(later)), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: later}),
		Entry("P6: not that of another Machine, which this one was before its control plane was migrated",
			onNode("now", Preserved("Running:Preserved", "now", later), ExpiryInStatus(expiry), Annotation(prefix+"expiry-in-status", "machine-before")), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: later}),
		Entry("P10: an expiry that was made unreadable begins anew", onNode("now", Preserved("Running:Preserved", "now", later), Annotation("machine-preservation.extensions.gardener.cloud/expiry-time", "soon")), int32(0),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("claims add up: a person asks for an auto-preserved machine", onNode("now", failing, Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), int32(1),
			outcome{Rule: RuleClaims, Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}, {Cause: "now", Expiry: expiry}}, Failed: true, Share: 1}, Next: later}),
		Entry("claims add up: the request is withdrawn", onMachine(failing, Preserved("Failed:Preserved", "now", expiry), twoClaims, Annotation(share, "1")), int32(1),
			outcome{Rule: RuleClaims, Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}),
		Entry("claims add up: the last expiry ends all", onNode("now", failing, Preserved("Failed:Preserved", "now", past), twoClaims), int32(1),
			outcome{Rule: "T8", Consume: true}),
		Entry("claims add up: false ends all", onNode("false", failing, Preserved("Failed:Preserved", "now", expiry), twoClaims), int32(1), outcome{Rule: "T8"}),
		Entry("claims add up P6: an operator shortens all", onNode("now", failing, Preserved("Failed:Preserved", "now", now.Add(time.Minute)), twoClaims, Annotation(share, "1")), int32(1),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: now.Add(time.Minute)}, {Cause: "now", Expiry: now.Add(time.Minute)}}, Failed: true, Share: 1}, Next: now.Add(time.Minute)}),
	)

	It("T5: should take over what machine-controller-manager had auto-preserved", func() {
		m := onMachine(Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), ExpiryInStatus(later))
		g := group(1, m)
		g.Holder = PreserveExpiry{}
		Expect(outcomes(g)).To(Equal([]outcome{{Rule: "T5", Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, Failed: true, Share: 1}, Next: later}}))
	})

	DescribeTable("P11: should know why a machine is not kept", func(m facts.Member, share int32, why reason.Reason, verdict Verdict, edits ...func(*Group)) {
		g := group(share, m)
		for _, edit := range edits {
			edit(&g)
		}
		Expect(Decide(g, now)[0]).To(And(HaveField("Target", BeNil()), HaveField("Why", why), HaveField("Verdict", verdict)))
	},
		Entry("T6: there is no share", onMachine(failing), int32(0), WhyNoShare, Untold),
		Entry("T6: nobody knows the share", onMachine(failing), int32(0), WhyShareUnknown, Untold, func(g *Group) { g.Share = nil }),
		Entry("T6: there is no VM", onMachine(failing, noVM), int32(1), WhyNoVM, Untold),
		Entry("R4: a person does not want it", onNode("false", failing), int32(1), WhyDenied, Untold),
		Entry("P4: no machine is wanted", onNode("now"), int32(1), WhyNoReplicas, Untold, func(g *Group) { g.Replicas = 0 }),
		Entry("T8: it has had its time, also for when-failed", onNode("when-failed", failing, Annotation(released, "2026-03-01T12:00:00Z")), int32(1), WhyHadItsTime, Refused),
		Entry("H2: it waits for components", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachinePending, now)), Node: Node("m", Taint(criticalComponents, now), NodeAnnotation(preserve, "now"))}, int32(1), WhyComponentsNotReady, Refused),
		Entry("H2: it waits for components after an initialisation that failed", facts.Member{Machine: Machine("m", Phase(machinev1alpha1.MachineCrashLoopBackOff, now)), Node: Node("m", Taint(criticalComponents, now), NodeAnnotation(preserve, "now"))}, int32(1), WhyComponentsNotReady, Refused),
		Entry("H3: it failed too early for the place that is free", onMachine(Phase(machinev1alpha1.MachineFailed, now)), int32(1), WhyFailedTooEarly, Refused),
		Entry("P3: the place that is free is not given during an update", onMachine(failing), int32(1), WhyUpdating, Refused, rolls),
		Entry("P3: there is none to be given", onMachine(failing), int32(0), WhyNoShare, Untold, rolls),
		Entry("P3: nothing has happened yet", onMachine(near), int32(1), WhyUpdating, Untold, rolls),
		Entry("P3 T8: it has had its time before", onMachine(failing, Annotation(released, "2026-03-01T12:00:00Z")), int32(1), WhyUpdating, Untold, rolls),
		Entry("P3: a person asked", onNode("when-failed", failing), int32(1), WhyUpdating, Refused, rolls),
		Entry("R6: operators forbid it, and nobody has lost a place by that", onMachine(failing, Annotation(prefix+"forbidden", "true")), int32(0), WhyForbidden, Untold),
	)

	DescribeTable("P1: should say that a place is taken", func(taken bool, current, target *Record) {
		Expect((&Decision{Current: current, Target: target}).TakesPlace()).To(Equal(taken))
	},
		Entry("by a machine that fails", true, nil, &Record{Claims: auto, Failed: true}),
		Entry("by one that is about to", true, nil, &Record{Claims: auto, FailsAt: now}),
		Entry("by one that fails again", true, &Record{Claims: auto}, &Record{Claims: auto, Failed: true}),
		Entry("beside the claim of a person", true, &Record{Claims: person, Failed: true}, &Record{Claims: slices.Concat(person, auto), Failed: true}),
		Entry("not by one that has it", false, &Record{Claims: auto, FailsAt: now}, &Record{Claims: auto, Failed: true}),
		Entry("not by one that has recovered", false, nil, &Record{Claims: auto}),
		Entry("not by a person", false, nil, &Record{Claims: person, Failed: true}),
		Entry("not by one that is let go", false, &Record{Claims: auto}, nil),
	)

	DescribeTable("T5: should leave what machine-controller-manager has auto-preserved as it is, until the share is known", func(untouched bool, opts ...MachineOption) {
		g := group(0, onMachine(append(opts, Phase(machinev1alpha1.MachineFailed, now))...))
		g.Holder, g.Share = PreserveExpiry{}, nil
		Expect(Steps(g.Holder, Decide(g, now)[0], g.Timeouts, now) == nil).To(Equal(untouched))
	},
		Entry("auto-preserved", true, Annotation(preserve, "auto-preserved"), Native(later)),
		Entry("auto-preserved, and the annotation is yet to come", true, Native(later)),
		Entry("held at a request that was withdrawn", false, Annotation(lastApplied, "when-failed"), Native(later)),
		Entry("held by us until a moment ago", false, ExpiryInStatus(later)),
	)

	It("T6: should end for good what machine-controller-manager has auto-preserved and there is no place for", func() {
		g := group(0, onMachine(Phase(machinev1alpha1.MachineFailed, now), Annotation(preserve, "auto-preserved"), Native(later)))
		g.Holder = PreserveExpiry{}
		round(g, now)
		machine := g.Members[0].Machine
		Expect(machine.Annotations).NotTo(HaveKey(preserve))
		Expect(machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now), "without an expiry, machine-controller-manager would begin anew where it may preserve machines")
	})

	It("T5: should take over what machine-controller-manager has auto-preserved before its annotation comes, and keep it when that has come", func() {
		g := group(1, onMachine(Phase(machinev1alpha1.MachineFailed, now), Native(later)))
		g.Holder = PreserveExpiry{}
		decisions, _ := round(g, now)
		Expect(decisions[0].Why).To(Equal(WhyPreservedNatively))
		Expect(decisions[0].Target.Expiry()).To(BeTemporally("==", later))
		Annotation(preserve, "auto-preserved")(g.Members[0].Machine)
		for range 3 {
			decisions, _ = round(g, now.Add(time.Second))
		}
		Expect(decisions[0].Current.Cause()).To(Equal("auto"))
		Expect(decisions[0].Current.Expiry()).To(BeTemporally("==", later))
		Expect(g.Members[0].Machine.Annotations).To(HaveKeyWithValue(preserve, "now"))
		Expect(g.Members[0].Machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", later))
	})

	DescribeTable("P6 T5: should take over the expiry of machine-controller-manager where people may know it", func(want time.Time, m facts.Member) {
		g := group(1, m)
		g.Holder = PreserveExpiry{}
		Expect(Decide(g, now)[0].Target.Expiry()).To(BeTemporally("==", want))
	},
		Entry("they asked while nobody else was there", later, onNode("now", quiet, Native(later))),
		Entry("it is only a moment old: a race", expiry, onNode("now", Phase(machinev1alpha1.MachineRunning, now.Add(-9*time.Second)), Native(later))),
		Entry("it is over", expiry, onNode("now", quiet, Native(past))),
		Entry("it is left over from a hold of ours", expiry, onNode("now", quiet, ExpiryInStatus(later))),
		Entry("they asked for a time of their own", now.Add(2*time.Hour), onMachine(quiet, Native(later), Annotation(preserve, "now"), Annotation(timeout, "2h"))),
		Entry("it has auto-preserved the machine", later, onMachine(Phase(machinev1alpha1.MachineFailed, now), Native(later), Annotation(preserve, "auto-preserved"))),
		Entry("it has auto-preserved the machine, and the annotation is yet to come", later, onMachine(Phase(machinev1alpha1.MachineFailed, now), Native(later))),
		Entry("P14: the node says what is only for Machines", expiry, onNode("auto-preserved", Phase(machinev1alpha1.MachineFailed, now), Native(later))),
		Entry("it had auto-preserved the machine, and that is over", expiry, onMachine(failing, Native(past), Annotation(preserve, "auto-preserved"))),
		Entry("nobody knows why it holds", expiry, onMachine(failing, Native(later))),
		Entry("it was to auto-preserve the machine, and has not", expiry, onMachine(failing, Annotation(preserve, "auto-preserved"))),
	)

	It("P11: should say that machine-controller-manager had auto-preserved a machine only if it had", func() {
		for why, m := range map[reason.Reason]facts.Member{
			WhyPreservedNatively: onMachine(Phase(machinev1alpha1.MachineFailed, now), Native(later), Annotation(preserve, "auto-preserved")),
			WhyMachineFailed:     onMachine(failing),
			WhyAskedFor:          onMachine(Phase(machinev1alpha1.MachineRunning, now), Native(later), Annotation(preserve, "now")),
		} {
			g := group(1, m)
			g.Holder = PreserveExpiry{}
			Expect(Decide(g, now)[0].Why).To(Equal(why))
		}
	})

	DescribeTable("H3: should rely on machine-controller-manager to keep a machine that it has marked Failed", func(kept bool, m facts.Member) {
		g := group(0, m)
		g.Holder = PreserveExpiry{}
		Phase(machinev1alpha1.MachineFailed, now)(m.Machine)
		Expect(Decide(g, now)[0].Target != nil).To(Equal(kept))
	},
		Entry("where it finds the request on the node", true, onNode("when-failed")),
		Entry("where it may find that", true, facts.Member{Machine: Machine("m", Annotation(preserve, "now")), NodeUnknown: true}),
		Entry("where it finds that on a machine that never had a node", true, facts.Member{Machine: Machine("m", Annotation(preserve, "now"), func(m *machinev1alpha1.Machine) { m.Labels = nil })}),
		Entry("not where it looks for the node in vain", false, facts.Member{Machine: Machine("m", Annotation(preserve, "now"))}),
		Entry("not where nothing is asked for", false, onMachine()),
	)

	DescribeTable("P3: rollout", func(m facts.Member, want outcome) {
		g := group(1, m)
		g.Rollout = true
		Expect(outcomes(g)).To(Equal([]outcome{want}))
	},
		Entry("nothing is auto-preserved, and people are told of the free place", onMachine(failing), outcome{Refused: true}),
		Entry("without a VM there is nothing to tell", onMachine(failing, func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = "" }), outcome{}),
		Entry("nothing is held in the margin", onMachine(near), outcome{Next: deadline}),
		Entry("when-failed is not honoured", onNode("when-failed", failing), outcome{Refused: true, Consume: true}),
		Entry("nor is now", onNode("now", failing), outcome{Refused: true, Consume: true}),
		Entry("now is for a machine that has not failed", onNode("now"), outcome{Rule: "T1", Target: &Record{Claims: []Claim{{Cause: "now", Expiry: expiry}}}, Next: expiry}),
		Entry("a preserved machine that fails is replaced", unhealthy(failing, Annotation(preserve, "now"), Preserved("Running:Preserved", "now", later)), outcome{Rule: "P3", Consume: true}),
		Entry("one that is about to fail may yet recover", unhealthy(near, Annotation(preserve, "now"), Preserved("Running:Preserved", "now", later)),
			outcome{Target: &Record{Claims: []Claim{{Cause: "now", Expiry: later}}}, Next: deadline}),
		Entry("a failed one is released", onMachine(failing, Preserved("Failed:Preserved", "auto", later), Annotation(share, "1")), outcome{Rule: "P3", Consume: true}),
		Entry("one that is held for its deadline may yet recover", unhealthy(near, HeldUntil(deadline, "auto", later), Annotation(share, "1")),
			outcome{Target: &Record{Claims: []Claim{{Cause: "auto", Expiry: later}}, FailsAt: deadline, Provisional: true, Share: 1}, Next: deadline}),
	)

	DescribeTable("P3: update in place", func(m facts.Member, rule Rule) {
		g := group(1, m)
		g.Rollout, g.InPlace = true, true
		Expect(Decide(g, now)[0].Rule).To(Equal(rule))
	},
		Entry("two MachineSets are no rollout", unhealthy(failing), Rule("T5")),
		Entry("the node is being updated", facts.Member{Machine: Machine("m", failing), Node: Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", ""))}, Rule("")),
		Entry("its update has failed", facts.Member{Machine: Machine("m", failing), Node: Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "UpdateFailed", ""))}, Rule("T5")),
	)

	It("P4: should begin nothing when no machine is wanted", func() {
		g := group(1, onNode("now", failing))
		g.Replicas = 0
		Expect(Decide(g, now)[0].Target).To(BeNil())
	})

	It("should neither begin nor end an auto-preservation while the share is unknown", func() {
		held := facts.Member{Machine: Machine("held", failing, Preserved("Failed:Preserved", "auto", later), Annotation(share, "1"))}
		g := group(0, onMachine(failing), held)
		g.Share = nil
		decisions := Decide(g, now)
		Expect(decisions[0].Target).To(BeNil())
		Expect(decisions[0].Verdict).To(Equal(Untold))
		Expect(decisions[1].Target).NotTo(BeNil())
	})

	Describe("P1: the share", func() {
		unknown := func(name string, since time.Time, opts ...MachineOption) facts.Member {
			return facts.Member{Machine: Machine(name, append([]MachineOption{Phase(machinev1alpha1.MachineUnknown, since)}, opts...)...)}
		}
		kept := func(g Group) []string {
			var names []string
			for _, d := range Decide(g, now) {
				if d.Target != nil {
					names = append(names, d.Machine.Name)
				}
			}
			return names
		}
		auto := func(name string, opts ...MachineOption) facts.Member {
			return unknown(name, Start, append([]MachineOption{Preserved("Failed:Preserved", "auto", later), Annotation(share, "2")}, opts...)...)
		}

		It("T5: should go to those that fail first, in any order of arrival", func() {
			a, b, c := unknown("a", Start.Add(3*time.Second)), unknown("b", Start.Add(time.Second)), unknown("c", Start.Add(2*time.Second))
			Expect(kept(group(2, a, b, c))).To(ConsistOf("b", "c"))
			Expect(kept(group(2, c, b, a))).To(ConsistOf("b", "c"))
		})

		It("should refuse the rest, and say so", func() {
			decisions := Decide(group(1, unknown("a", Start), unknown("b", Start)), now)
			Expect(decisions[1].Verdict).To(Equal(Refused))
			Expect(decisions[1].Target).To(BeNil())
		})

		It("should count explicitly preserved machines, whatever they are preserved for", func() {
			asked := facts.Member{Machine: Machine("asked", failing, Preserved("Failed:Preserved", "when-failed", later)), Node: Node("asked", NodeAnnotation(preserve, "when-failed"))}
			Expect(kept(group(1, asked, unknown("a", Start)))).To(ConsistOf("asked"))
		})

		It("should not count a machine that is preserved but healthy", func() {
			recovered := facts.Member{Machine: Machine("recovered", Preserved("Running:Preserved", "auto", later))}
			Expect(kept(group(1, recovered, unknown("a", Start)))).To(ConsistOf("recovered", "a"))
		})

		It("should not be exceeded by an auto-preserved machine that recovered and fails again", func() {
			again := unknown("again", Start, Preserved("Running:Preserved", "auto", later))
			Expect(kept(group(1, again, auto("a", Annotation(share, "1"))))).To(ConsistOf("a"))
		})

		It("should not be exceeded by one that failed again for a person who asks no more", func() {
			both := Annotation(prefix+"claims", "auto="+later.Format(time.RFC3339)+",now="+expiry.Format(time.RFC3339))
			again := unknown("again", Start, Preserved("Failed:Preserved", "now", expiry), both)
			Expect(kept(group(1, again, auto("a", Annotation(share, "1"))))).To(ConsistOf("a"))
			Expect(Decide(group(1, again, auto("a", Annotation(share, "1"))), now)[0].Why).To(Equal(WhyShareUsedUp))
		})

		DescribeTable("T3: should not be taken again because of a request that has had its time", func(phase string, placed MachineOption, why reason.Reason) {
			claims := Annotation(prefix+"claims", "auto="+later.Format(time.RFC3339)+",now="+now.Format(time.RFC3339))
			asked := unknown("asked", Start, Preserved(phase, "auto", later), placed, claims)
			asked.Node = Node("asked", NotReady, NodeAnnotation(preserve, "now"))
			other := auto("other", Created(Start.Add(time.Minute)), Annotation(share, "1"))
			Expect(Decide(group(1, asked, other), now)[0]).To(And(HaveField("Target", BeNil()), HaveField("Why", why), HaveField("ConsumeRequest", true)))
		},
			Entry("when the machine fails again", "Running:Preserved", Annotation(share, "1"), WhyFailedAgain),
			Entry("T9: when the share is lowered", "Failed:Preserved", Annotation(share, "2"), WhyShareLowered),
		)

		It("T2: should wait for a place that is about to be free", func() {
			again := unknown("again", Start, Preserved("Running:Preserved", "auto", later))
			ending := auto("ending", Annotation(share, "1"), Annotation(preserve, "false"))
			decisions := Decide(group(1, again, ending), now)
			Expect(decisions[0].Target).To(Equal(decisions[0].Current))
			Expect(decisions[0].Rule).To(BeEmpty())
			Expect(decisions[1].Target).To(BeNil())
			g := group(1, again, ending)
			round(g, now)
			Expect(g.Members[0].Machine.Status).To(Equal(again.Machine.Status), "H3: it is not held yet, so its deadline is not put off")
		})

		DescribeTable("T2: should be had beside the claim of a person only if a place is free", func(free bool, other facts.Member) {
			asked := facts.Member{Machine: Machine("asked", failing, Preserved("Running:Preserved", "now", later)), Node: Node("asked", NodeAnnotation(preserve, "now"), NotReady)}
			Expect(Decide(group(1, asked, other), now)[0].TakesPlace()).To(Equal(free))
		},
			Entry("it is", true, facts.Member{Machine: Machine("other")}),
			Entry("another machine has it", false, auto("other", Annotation(share, "1"))),
			Entry("another machine is about to give it back", false, auto("other", Annotation(share, "1"), Annotation(preserve, "false"))),
		)

		Describe("P16: in a storm", func() {
			stormy := func(share int32, members ...facts.Member) Group {
				g := group(share, members...)
				g.Storm = facts.Storm{Failing: 4, Machines: 9, Limit: 3, Next: now.Add(time.Minute)}
				return g
			}

			It("should serve nobody anew, say so at the deadline, and look again", func() {
				d := Decide(stormy(2, unknown("a", Start)), now)[0]
				Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyStorm), HaveField("Verdict", Refused), HaveField("Next", now.Add(time.Minute))))
				Expect(d.WaitsForStorm()).To(BeTrue())
				reason, note := d.Event()
				Expect(reason).To(Equal(EventRefused))
				Expect(note).To(Equal("Machine failed and is not preserved for now because too many machines of the shoot fail at the same time: 4 of 9, and at most 3 may. It can still be preserved if it has not been replaced when fewer fail"))
			})

			It("H4: should hold nobody whose deadline is near, and tell nobody", func() {
				d := Decide(stormy(2, unknown("a", now.Add(-10*time.Minute+10*time.Second))), now)[0]
				Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyStorm), HaveField("Verdict", Untold), HaveField("Next", now.Add(10*time.Second))))
			})

			It("should say the same of one that machine-controller-manager has marked Failed meanwhile", func() {
				d := Decide(stormy(2, facts.Member{Machine: Machine("a", Phase(machinev1alpha1.MachineFailed, now))}), now)[0]
				Expect(d).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyStorm), HaveField("Verdict", Refused)))
			})

			It("should serve when it is over", func() {
				g := stormy(1, unknown("a", Start), unknown("b", Start.Add(time.Second)))
				g.Storm.Failing = 3
				Expect(kept(g)).To(ConsistOf("a"))
			})

			DescribeTable("should say what is more to the point", func(share *int32, why reason.Reason, verdict Verdict, members ...facts.Member) {
				g := stormy(0, append([]facts.Member{unknown("a", Start)}, members...)...)
				g.Share = share
				Expect(Decide(g, now)[0]).To(And(HaveField("Why", why), HaveField("Verdict", verdict)))
			},
				Entry("no place is free", new(int32(1)), WhyNoPlace, Refused, auto("b", Annotation(share, "1"))),
				Entry("there is no place", new(int32(0)), WhyNoShare, Untold),
				Entry("nobody knows how many there are", nil, WhyShareUnknown, Untold),
			)

			It("should leave alone what is preserved already, and what people ask for", func() {
				asked := facts.Member{Machine: Machine("asked", failing), Node: Node("asked", NodeAnnotation(preserve, "when-failed"), NotReady)}
				again := unknown("again", Start, Preserved("Running:Preserved", "auto", later))
				Expect(kept(stormy(4, asked, again, auto("kept", Annotation(share, "4"))))).To(ConsistOf("asked", "again", "kept"))
			})

			It("P15: should let go of nobody for a new failure", func() {
				a, b := auto("a"), auto("b")
				a.Node, b.Node = Node("a", NotReady), Node("b", NotReady)
				c := unknown("c", Start)
				c.Node = Node("c", Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))
				g := stormy(2, a, b, c)
				g.PrefersNew, g.NodeConditions = true, facts.DefaultNodeConditions
				Expect(kept(g)).To(ConsistOf("a", "b"))
			})
		})

		Describe("P15: where new failures are preferred", func() {
			deadlocked := func(n *corev1.Node) { Condition("KernelDeadlock", corev1.ConditionTrue, "", "")(n) }
			failed := func(name string, since time.Time, bad NodeOption, opts ...MachineOption) facts.Member {
				m := unknown(name, since, append([]MachineOption{Preserved("Failed:Preserved", "auto", later), Annotation(share, "2"), Annotation(prefix+"failed-since", since.UTC().Format(time.RFC3339))}, opts...)...)
				m.Node = Node(name, bad)
				return m
			}
			fails := func(name string, since time.Time, bad NodeOption) facts.Member {
				m := unknown(name, since)
				m.Node = Node(name, bad)
				return m
			}
			preferring := func(share int32, members ...facts.Member) Group {
				g := group(share, members...)
				g.PrefersNew, g.NodeConditions = true, facts.DefaultNodeConditions
				return g
			}
			early, late := Start.Add(-2*time.Hour), Start.Add(-time.Hour)

			It("should serve what fails for a new reason first", func() {
				g := preferring(2, failed("a", early, NotReady), fails("b", Start, NotReady), fails("c", Start.Add(time.Second), deadlocked))
				Expect(kept(g)).To(ConsistOf("a", "c"))
				g.PrefersNew = false
				Expect(kept(g)).To(ConsistOf("a", "b"))
			})

			It("should let go of the last of those that show the same, and serve the new one when its place is free", func() {
				a, b, c := failed("a", early, NotReady), failed("b", late, NotReady), fails("c", Start, deadlocked)
				g := preferring(2, b, a, c)
				decisions := Decide(g, now)
				Expect(decisions[0]).To(And(HaveField("Target", BeNil()), HaveField("Rule", RuleNewFailure), HaveField("Why", WhyNewFailure), HaveField("Verdict", Told)))
				Expect(decisions[1].Target).NotTo(BeNil())
				Expect(decisions[2].Target).To(BeNil(), "until the place is free")
				Expect(kept(preferring(2, a, c))).To(ConsistOf("a", "c"))
				g.PrefersNew = false
				Expect(kept(g)).To(ConsistOf("a", "b"))
			})

			DescribeTable("should let go of nothing", func(members ...facts.Member) {
				Expect(kept(preferring(2, append(members, fails("c", Start, deadlocked))...))).To(ContainElements("a", "b"))
			},
				Entry("that nobody else shows", failed("a", early, NotReady), failed("b", late, func(n *corev1.Node) { Condition("ReadonlyFilesystem", corev1.ConditionTrue, "", "")(n) })),
				Entry("when it is not new", failed("a", early, deadlocked), failed("b", late, deadlocked)),
				Entry("that people ask for", failed("a", early, NotReady, Preserved("Failed:Preserved", "when-failed", later), Annotation(preserve, "when-failed")),
					failed("b", late, NotReady, Preserved("Failed:Preserved", "when-failed", later), Annotation(preserve, "when-failed"))),
			)

			It("H4: should let go of nothing for a machine that is healthy again before its deadline", func() {
				Expect(kept(preferring(2, failed("a", early, NotReady), failed("b", late, NotReady), fails("c", Start, func(*corev1.Node) {})))).To(ConsistOf("a", "b"))
			})

			It("should let go of nothing where people have more machines kept than the share", func() {
				asked := failed("asked", early, NotReady, Preserved("Failed:Preserved", "when-failed", later), Annotation(preserve, "when-failed"))
				Expect(kept(preferring(1, asked, failed("a", late, NotReady, Annotation(share, "1"))))).To(ConsistOf("asked", "a"))
				Expect(kept(preferring(1, asked, failed("a", late, NotReady, Annotation(share, "1")), fails("c", Start, deadlocked)))).To(ConsistOf("asked", "a"))
			})

			It("should let go of no more than there are new reasons", func() {
				members := []facts.Member{failed("a", early, NotReady), failed("b", late, NotReady), failed("d", Start.Add(-time.Minute), NotReady),
					fails("c", Start, deadlocked), fails("e", Start, deadlocked)}
				Expect(kept(preferring(3, members...))).To(ConsistOf("a", "b"))
			})

			It("should wait for a place that is about to be free, and let go of nothing for it", func() {
				a, b := failed("a", early, NotReady), failed("b", late, NotReady, Annotation(preserve, "false"))
				d := failed("d", late, NotReady)
				Expect(kept(preferring(3, a, b, d, fails("c", Start, deadlocked)))).To(ConsistOf("a", "d"))
			})
		})

		It("should be found again when it is known, after a machine failed again while it was not", func() {
			g := group(1, unknown("again", Start, Preserved("Running:Preserved", "auto", later), Annotation(share, "1")), auto("a", Annotation(share, "1")))
			g.Share = nil
			Expect(kept(g)).To(ConsistOf("again", "a"))
			Expect(Decide(g, now)[0].Target).To(And(HaveField("Failed", true), HaveField("Share", int32(0))))

			Expect(kept(group(1, auto("again", Annotation(share, "")), auto("a", Annotation(share, "1"))))).To(ConsistOf("a"))
		})

		It("T9: should let go of the oldest auto-preserved machines when it was lowered", func() {
			g := group(1, auto("young", Created(Start.Add(time.Minute))), auto("old"))
			Expect(kept(g)).To(ConsistOf("young"))
			Expect(Decide(g, now)[1]).To(And(HaveField("Why", WhyShareLowered), HaveField("Next", BeZero())))
		})

		It("T9: should never let go of an explicit request", func() {
			asked := facts.Member{Machine: Machine("asked", failing, Preserved("Failed:Preserved", "when-failed", later)), Node: Node("asked", NodeAnnotation(preserve, "when-failed"))}
			Expect(kept(group(1, asked, auto("a"), auto("b")))).To(ConsistOf("asked"))
		})

		It("T9: should not take an explicit request that came later for a lowered share", func() {
			asked := facts.Member{Machine: Machine("asked", failing, Preserved("Failed:Preserved", "when-failed", later)), Node: Node("asked", NodeAnnotation(preserve, "when-failed"))}
			Expect(kept(group(1, asked, auto("a", Annotation(share, "1"))))).To(ConsistOf("asked", "a"))
		})
	})

	It("should not depend on anything but its arguments", func() {
		m := onNode("when-failed", failing)
		before := m.Machine.DeepCopy()
		first, second := Decide(group(1, m), now), Decide(group(1, m), now)
		Expect(first).To(Equal(second))
		Expect(m.Machine).To(Equal(before))
	})

	DescribeTable("H4: should hold a machine with a tenth of its own timeout left, at most", func(rule Rule, phase machinev1alpha1.MachinePhase, ago time.Duration) {
		m := onMachine(Created(now.Add(-ago)), Phase(phase, now.Add(-ago)), func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: duration(time.Minute), MachineCreationTimeout: duration(2 * time.Minute)}
		})
		Expect(Decide(group(1, m), now)[0].Rule).To(Equal(rule))
	},
		Entry("of its health", RuleMargin, machinev1alpha1.MachineUnknown, 54*time.Second),
		Entry("of its health, not before", Rule(""), machinev1alpha1.MachineUnknown, 53*time.Second),
		Entry("of its creation", RuleMargin, machinev1alpha1.MachinePending, 108*time.Second),
		Entry("of its creation, not before", Rule(""), machinev1alpha1.MachinePending, 107*time.Second),
	)

	DescribeTable("should leave alone what is not preserved and carries nothing of a preservation", func(m facts.Member, nothing bool) {
		d := Decide(group(0, m), now)[0]
		Expect(Steps(HealthTimer{}, d, facts.DefaultTimeouts, now) == nil).To(Equal(nothing))
	},
		Entry("failing", onMachine(failing), true),
		Entry("a request that is not synced", onNode("false"), false),
		Entry("our taint", facts.Member{Machine: Machine("m"), Node: Node("m", Taint("node.machine.sapcloud.io/preserved", now))}, false),
		Entry("the condition", facts.Member{Machine: Machine("m"), Node: Node("m", Condition("Preserved", corev1.ConditionTrue, "", ""))}, false),
		Entry("the condition of one that was released", facts.Member{Machine: Machine("m"), Node: Node("m", Condition("Preserved", corev1.ConditionFalse, "", ""))}, true),
		Entry("P3: machine-controller-manager's own protection", facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"))}, true),
		Entry("protection that was left over", facts.Member{Machine: Machine("m"), Node: Node("m", NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"), Condition("Preserved", corev1.ConditionFalse, "", ""))}, false),
	)
})
