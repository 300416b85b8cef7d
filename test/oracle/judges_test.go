// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var (
	now   = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	world = World{
		Aftermath: 90 * time.Second, Lasts: map[Kind]time.Duration{Killed: 30 * time.Second},
		Lag: 2 * time.Second, Late: 45 * time.Second, Noticed: 20 * time.Second, Margin: 40 * time.Second, Settling: 30 * time.Second, PowerOff: time.Minute,
	}
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// failing is a machine that has failed for so many minutes.
func failing(minutes int) Failing { return Failing{From: ago(time.Duration(minutes) * time.Minute)} }

// excuse is one that was over some time ago.
func excuse(kind Kind, d time.Duration) (e Excuses) {
	e.Add(At(ago(d), kind))
	return e
}

// goesOn is one that is not over.
func goesOn(kind Kind) (e Excuses) {
	e.Add(Excuse{Kind: kind, From: ago(time.Hour)})
	return e
}

// kept is a machine that is kept for another hour.
func kept(phase string, causes ...string) Machine {
	m := Machine{Status: machinev1alpha1.MachineUnknown, Kept: true, Phase: phase, Claims: map[string]time.Time{}, Expiry: now.Add(time.Hour)}
	for _, cause := range causes {
		m.Claims[cause] = m.Expiry
	}
	return m
}

// gate is that of a machine that came back an hour ago, and waits for another one.
var gate = Gate{Since: ago(time.Hour), Until: now.Add(time.Hour)}

// beBlamed expects a violation of a rule, or none.
func beBlamed(v *Violation, rule string) {
	GinkgoHelper()
	if rule == "" {
		Expect(v).To(BeNil())
		return
	}
	Expect(v).To(HaveField("Rule", rule))
}

var _ = Describe("judges", func() {
	DescribeTable("T8, P8, T5: the end of a preservation", func(was Machine, excuses Excuses, blamed bool, edit ...func(*World, *End)) {
		for _, terminating := range []bool{false, true} {
			w, end := world, End{Was: was, Is: Machine{Status: was.Status, Terminating: terminating}, At: now, Since: ago(time.Hour), Early: time.Second}
			for _, edit := range edit {
				edit(&w, &end)
			}
			why, v := w.Ended(end, nil, excuses)
			Expect(why).To(WithTransform(func(why string) bool { return why == "" }, Equal(blamed)))
			switch {
			case !blamed:
				beBlamed(v, "")
			case terminating:
				beBlamed(v, "P8")
			default:
				beBlamed(v, "T8")
			}
		}
	},
		Entry("without a reason", kept(FailedPreserved, "auto"), nil, true),
		Entry("at its expiry", Machine{Kept: true, Expiry: now.Add(time.Second)}, nil, false),
		Entry("right before it", Machine{Kept: true, Expiry: now.Add(2 * time.Second)}, nil, true),
		Entry("with something that was done", kept(FailedPreserved, "auto"), excuse(Requested, 90*time.Second), false),
		Entry("with something that was done long ago", kept(FailedPreserved, "auto"), excuse(Requested, 91*time.Second), true),
		Entry("P3: with an update that takes long", kept(FailedPreserved, "auto"), goesOn(RollingUpdate), false),
		Entry("with what ends nothing", kept(FailedPreserved, "auto"), excuse(ShootAway, 0), true),
		Entry("M13: with the end of the maintenance", kept(FailedPreserved, "maintenance"), excuse(MaintenanceOver, 0), false),
		Entry("M13: with the end of the maintenance, and it is kept for something else", kept(FailedPreserved, "auto"), excuse(MaintenanceOver, 0), true),
		Entry("X10: with the end of the power cycle", kept(FailedPreserved, "auto", "remediation"), excuse(PowerCycleOver, 0), false),
		Entry("V3: only its validation kept it", kept(RunningPreserved, "validation"), nil, false),
		Entry("V3: something else kept it as well", kept(RunningPreserved, "auto", "validation"), nil, true),
		Entry("P1: it had recovered, and finds no place", kept(RunningPreserved, "auto"), nil, false, func(_ *World, e *End) { e.Full = true }),
		Entry("P1: it had recovered, and there is one", kept(RunningPreserved, "auto"), nil, true),
		Entry("P1: it had recovered, and a person keeps it", kept(RunningPreserved, "now"), nil, true, func(_ *World, e *End) { e.Full = true }),
		Entry("P1: it had not recovered", kept(FailedPreserved, "auto"), nil, true, func(_ *World, e *End) { e.Full = true }),
		Entry("H4: it is healthy in the margin", kept("", "auto"), nil, false, func(_ *World, e *End) { e.Is.Status, e.Since = machinev1alpha1.MachineRunning, ago(40*time.Second) }),
		Entry("H4: it is healthy long after that", kept("", "auto"), nil, true, func(_ *World, e *End) { e.Is.Status = machinev1alpha1.MachineRunning }),
		Entry("H4: it is lost in the margin", kept("", "auto"), nil, true, func(_ *World, e *End) { e.Since = ago(time.Second) }),
		Entry("M12: the sidecar was killed, and it is worked on", kept(RunningPreserved, "maintenance"), excuse(Killed, 30*time.Second), false),
		Entry("M12: the sidecar was killed long ago", kept(RunningPreserved, "maintenance"), excuse(Killed, 31*time.Second), true),
		Entry("M12: the sidecar was killed later", kept(RunningPreserved, "maintenance"), excuse(Killed, -time.Second), true),
		Entry("M12: the sidecar was killed, and it is held", kept(FailedPreserved, "maintenance"), excuse(Killed, 0), true),
		Entry("the sidecar was killed, and a person keeps it", kept(RunningPreserved, "now"), excuse(Killed, 0), true),
		Entry("the sidecar was killed, and MCM 0.61 is to be held", kept(RunningPreserved, "now"), excuse(Killed, 0), false, func(w *World, _ *End) { w.HoldsLate = true }),
	)

	DescribeTable("V2: a node that takes pods without a proof", func(g Gate, proven bool, excuses Excuses, blamed bool) {
		rule := ""
		if blamed {
			rule = "V2"
		}
		beBlamed(world.Opened(g, proven, now, nil, excuses), rule)
	},
		Entry("whose machine came back", gate, false, nil, true),
		Entry("with a proof", gate, true, nil, false),
		Entry("whose machine has not come back", Gate{}, false, nil, false),
		Entry("after the timeout", Gate{Since: ago(time.Hour), Until: now}, false, nil, false),
		Entry("with something that was done", gate, false, excuse(Vetoed, time.Minute), false),
		Entry("with something that was done long ago", gate, false, excuse(Vetoed, 2*time.Minute), true),
		Entry("after a fault", gate, false, excuse(Fault, 0), true),
	)

	DescribeTable("V3, V4: a node that takes no pods", func(m Machine, g Gate, proven time.Time, excuses Excuses, rule string) {
		beBlamed(world.Closed(m, g, proven, now, nil, excuses), rule)
	},
		Entry("which waits", kept(RunningPreserved, "validation"), gate, time.Time{}, nil, ""),
		Entry("after the timeout", kept(RunningPreserved, "auto", "validation"), Gate{Since: ago(time.Hour), Until: ago(time.Minute)}, time.Time{}, nil, "V4"),
		Entry("right after the timeout", kept(RunningPreserved, "validation"), Gate{Since: ago(time.Hour), Until: ago(time.Second)}, time.Time{}, nil, ""),
		Entry("although there is a proof", kept(RunningPreserved, "validation"), gate, ago(time.Minute), nil, "V3"),
		Entry("with a proof that has just come", kept(RunningPreserved, "validation"), gate, ago(time.Second), nil, ""),
		Entry("with a fault", kept(RunningPreserved, "validation"), gate, ago(time.Minute), excuse(Fault, 0), ""),
		Entry("which is not validated", kept(RunningPreserved, "auto"), gate, ago(time.Minute), nil, ""),
	)

	It("V3: should know a proof from what was reported before", func() {
		node := func(c corev1.NodeCondition) *corev1.Node {
			return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}}}
		}
		before, after := metav1.NewTime(ago(2*time.Hour)), metav1.NewTime(now)
		Expect(gate.IsProven(nil, "Good")).To(BeFalse())
		Expect(gate.IsProven(node(corev1.NodeCondition{Type: "Good", Status: "True", LastHeartbeatTime: before, LastTransitionTime: before}), "Good")).To(BeFalse())
		Expect(gate.IsProven(node(corev1.NodeCondition{Type: "Good", Status: "True", LastHeartbeatTime: after, LastTransitionTime: before}), "Good")).To(BeTrue())
		Expect(gate.IsProven(node(corev1.NodeCondition{Type: "Good", Status: "True", LastHeartbeatTime: before, LastTransitionTime: after}), "Good")).To(BeTrue())
		Expect(gate.IsProven(node(corev1.NodeCondition{Type: "Good", Status: "False", LastHeartbeatTime: after, LastTransitionTime: after}), "Good")).To(BeFalse())
		Expect(gate.IsProven(node(corev1.NodeCondition{Type: "Bad", Status: "True", LastHeartbeatTime: after, LastTransitionTime: after}), "Good")).To(BeFalse())
	})

	DescribeTable("M12: a machine that need not be kept although its node is under maintenance", func(m Machine, onNode string, work Work, excuses Excuses, needNot bool) {
		if work.Taken.IsZero() {
			work.Taken = ago(time.Hour)
		}
		Expect(world.Unkept(m, onNode, work, now, nil, excuses)).To(WithTransform(func(why string) bool { return why != "" }, Equal(needNot)))
	},
		Entry("no reason", Machine{}, "", Work{}, nil, false),
		Entry("another expiry, which has passed", Machine{Kept: true, Phase: FailedPreserved, Expiry: ago(time.Hour)}, "", Work{}, nil, false),
		Entry("something that was done", Machine{}, "", Work{}, excuse(Deleted, time.Minute), true),
		Entry("something that was done long ago", Machine{}, "", Work{}, excuse(Deleted, 2*time.Minute), false),
		Entry("an edit long ago", Machine{}, "", Work{}, excuse(ExpiryEdited, 10*time.Minute), true),
		Entry("the end of something else", kept(FailedPreserved, "remediation"), "", Work{}, excuse(PowerCycleOver, 0), false),
		Entry("the end of it", Machine{}, "", Work{Ending: now.Add(time.Second)}, nil, true),
		Entry("an end that comes later", Machine{}, "", Work{Ending: now.Add(time.Minute)}, nil, false),
		Entry("its beginning", Machine{}, "", Work{Taken: ago(30 * time.Second)}, nil, true),
		Entry("some time after that", Machine{}, "", Work{Taken: ago(31 * time.Second)}, nil, false),
		Entry("a release before", Machine{Released: ago(time.Hour)}, "", Work{Anew: now}, nil, true),
		Entry("a release of what was counted anew", Machine{Released: now}, "", Work{Anew: ago(time.Hour)}, nil, false),
		Entry("false on the Machine", Machine{Request: "false"}, "", Work{}, nil, true),
		Entry("false on the Node", Machine{}, "false", Work{}, nil, true),
		Entry("a sidecar that was killed, and it had not failed", Machine{}, "", Work{}, excuse(Killed, 30*time.Second), true),
		Entry("a sidecar that was killed, and it was held", kept(FailedPreserved, "maintenance"), "", Work{}, excuse(Killed, 0), false),
	)

	DescribeTable("P1: the machines that use the share", func(m Machine, uses bool) {
		Expect(m.UsesShare(now)).To(Equal(uses))
	},
		Entry("one that has failed", kept(FailedPreserved, "auto"), true),
		Entry("one that is about to", kept("", "auto"), true),
		Entry("one that has recovered", kept(RunningPreserved, "auto"), false),
		Entry("one that a person keeps", kept(FailedPreserved, "when-failed"), false),
		Entry("one that a person keeps, with what is left of a place", kept(FailedPreserved, "when-failed", "auto"), false),
		Entry("one that a person has kept until now, with what is left of a place", until(ago(time.Minute-1), "when-failed", kept(FailedPreserved, "when-failed", "auto")), false),
		Entry("one that a person has kept, and that was not released", until(ago(time.Minute), "when-failed", kept(FailedPreserved, "when-failed", "auto")), true),
		Entry("one that a person keeps, with a place", func() Machine { m := kept(FailedPreserved, "when-failed", "auto"); m.Placed = true; return m }(), true),
		Entry("one that somebody works on beside that", kept(FailedPreserved, "auto", "remediation"), true),
		Entry("one that had its time, and that somebody works on", func() Machine { m := kept(FailedPreserved, "auto", "remediation"); m.Claims["auto"] = now; return m }(), false),
	)

	It("P1, M10: should blame more than there may be", func() {
		beBlamed(OverShare([]string{"a", "b"}, 2), "")
		beBlamed(OverShare([]string{"a", "b"}, 1), "P1")
		beBlamed(OverPool([]string{"a", "b"}, 2), "")
		beBlamed(OverPool([]string{"a", "b"}, 1), "P20")
		beBlamed(TooMany([]string{"a", "b"}, 2), "")
		beBlamed(TooMany([]string{"a", "b"}, 1), "M10")
	})

	It("P18: should blame what is kept for more machine-hours than there are", func() {
		beBlamed(OverHours(nil, time.Hour), "")
		beBlamed(OverHours([]string{"a"}, time.Hour), "P18")
		Expect(Machine{Claims: map[string]time.Time{"auto": now, "now": now.Add(time.Hour), "when-failed?": now.Add(2 * time.Hour), "maintenance": now.Add(3 * time.Hour)}}.AskedUntil()).To(Equal(now.Add(time.Hour)))
		Expect(Machine{Claims: map[string]time.Time{"remediation": now}}.AskedUntil()).To(BeZero())
	})

	DescribeTable("H1: a machine that is taken for healthy", func(is Machine, broken time.Time, excuses Excuses, rule string) {
		beBlamed(world.TakenForHealthy(kept(FailedPreserved, "now"), is, broken, now, excuses), rule)
	},
		Entry("and is broken", kept(RunningPreserved, "now"), ago(21*time.Second), nil, "H1"),
		Entry("and is not", kept(RunningPreserved, "now"), time.Time{}, nil, ""),
		Entry("and has just been broken", kept(RunningPreserved, "now"), ago(20*time.Second), nil, ""),
		Entry("and nobody can see that it is broken", kept(RunningPreserved, "now"), ago(time.Minute), goesOn(Blind), ""),
		Entry("or is still failed", kept(FailedPreserved, "now"), ago(time.Minute), nil, ""),
		Entry("or is let go", Machine{}, ago(time.Minute), nil, ""),
	)

	DescribeTable("P10: a machine that is kept beyond its expiry", func(beyond time.Duration, excuses Excuses, rule string) {
		beBlamed(world.Overdue(Machine{Kept: true, Expiry: ago(beyond)}, now, excuses), rule)
	},
		Entry("for a moment", 45*time.Second, nil, ""),
		Entry("for longer", 46*time.Second, nil, "P10"),
		Entry("while the shoot is away", time.Hour, goesOn(ShootAway), ""),
		Entry("right after the sidecar was killed", time.Hour, excuse(Killed, 45*time.Second), ""),
		Entry("some time after that", time.Hour, excuse(Killed, 46*time.Second), "P10"),
	)

	DescribeTable("P16, X21: how many machines fail at the same time", func(l Limits, machines int, certain, possible bool, failing ...Failing) {
		l.Settling, l.Together = 10*time.Minute, 10*time.Minute
		actual, maybe := l.Exceeded(failing, machines, now, time.Minute)
		Expect([]bool{actual, maybe}).To(Equal([]bool{certain, possible}))
	},
		Entry("without a limit", Limits{}, 3, false, false, failing(5), failing(5), failing(5)),
		Entry("as many as may", Limits{Number: 2}, 9, false, false, failing(5), failing(5)),
		Entry("more than may", Limits{Number: 1}, 9, true, true, failing(5), failing(5)),
		Entry("more than a part of them, rounded up", Limits{Percent: 30}, 4, true, true, failing(5), failing(5), failing(5)),
		Entry("as many as that part", Limits{Percent: 30}, 4, false, false, failing(5), failing(5)),
		Entry("the lower of both limits", Limits{Number: 3, Percent: 30}, 4, true, true, failing(5), failing(5), failing(5)),
		Entry("one after the other", Limits{Number: 1}, 9, false, true, failing(5), failing(15)),
		Entry("one that is healthy again", Limits{Number: 1}, 9, true, true, failing(5), Failing{From: ago(5 * time.Minute), Until: ago(4 * time.Minute)}),
		Entry("one that is healthy again for about the settling time", Limits{Number: 1}, 9, false, true, failing(5), Failing{From: ago(12 * time.Minute), Until: ago(10 * time.Minute)}),
		Entry("one that is healthy again for longer", Limits{Number: 1}, 9, false, false, failing(5), Failing{From: ago(12 * time.Minute), Until: ago(11 * time.Minute)}),
		Entry("one of which nobody can be sure", Limits{Number: 1}, 9, false, true, failing(5), Failing{From: ago(5 * time.Minute), Doubtful: true}),
	)

	DescribeTable("P16, X21: what begins automatically", func(since time.Time, excuses Excuses, rule string) {
		beBlamed(world.BegunInStorm("P16", "begins to be auto-preserved", since, now, excuses), rule)
	},
		Entry("while there is no storm", time.Time{}, nil, ""),
		Entry("while there is one", ago(time.Minute), nil, "P16"),
		Entry("while there is one that nobody can have seen", ago(time.Second), nil, ""),
		Entry("while nobody can see nodes", ago(time.Minute), goesOn(Blind), ""),
	)

	DescribeTable("X1: a node that is made safe", func(host *Host, rule string) {
		beBlamed(world.MadeSafe(host, now), rule)
	},
		Entry("while its host is off", &Host{}, ""),
		Entry("while its host is on", &Host{On: true, OnSince: ago(2 * time.Second)}, "X1"),
		Entry("while its host is asked to be off", &Host{On: true, OnSince: ago(time.Hour), Asked: ago(time.Minute)}, "X1"),
		Entry("a moment before its host was on again", &Host{On: true, OnSince: ago(time.Second)}, ""),
		Entry("without a host", nil, "X1"),
	)

	DescribeTable("X5, X2: a host that is asked to be off", func(asked time.Duration, gone bool, excuses Excuses, rule string) {
		beBlamed(world.KeptOff(&Host{Asked: ago(asked)}, gone, now, excuses), rule)
	},
		Entry("until its deadline", 105*time.Second, false, nil, ""),
		Entry("beyond it", 106*time.Second, false, nil, "X5"),
		Entry("beyond it while the shoot is away", 106*time.Second, false, goesOn(ShootAway), "X5"),
		Entry("beyond it while nobody is there", 106*time.Second, false, excuse(Killed, 0), ""),
		Entry("as its machine is gone", 45*time.Second, true, nil, ""),
		Entry("long after its machine is gone", 46*time.Second, true, nil, "X2"),
	)

	Describe("M3: a cordon that is taken away", func() {
		var cordon Cordon
		see := func(cordoned bool) { cordon.See(&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: cordoned}}, now) }
		judge := func(after time.Duration, excuses ...Excuses) *Violation {
			return world.PutBack(cordon, ago(time.Hour), now.Add(after), excuses...)
		}

		BeforeEach(func() {
			cordon = Cordon{}
			see(true)
		})

		It("should be put back, the later the more often it was taken away", func() {
			beBlamed(judge(time.Hour), "")
			see(false)
			beBlamed(judge(47*time.Second), "")
			beBlamed(judge(48*time.Second), "M3")
			beBlamed(judge(48*time.Second, goesOn(ShootAway)), "")
			for range 20 {
				see(true)
				see(false)
			}
			beBlamed(judge(LongestCordon+45*time.Second), "")
			beBlamed(judge(LongestCordon+46*time.Second), "M3")
		})

		It("should be blamed only since the node was handed over", func() {
			see(false)
			beBlamed(world.PutBack(cordon, now.Add(time.Hour), now.Add(time.Hour+47*time.Second)), "")
			beBlamed(world.PutBack(cordon, now.Add(time.Hour), now.Add(time.Hour+48*time.Second)), "M3")
		})
	})
})

// until returns the machine with another end of a claim.
func until(at time.Time, cause string, m Machine) Machine {
	m.Claims[cause] = at
	return m
}
