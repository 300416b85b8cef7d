// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Results", func() {
	DescribeTable("#percentile",
		func(percentage float64, expected time.Duration, durations ...time.Duration) {
			Expect(percentile(durations, percentage)).To(Equal(expected))
		},
		Entry("of nothing", 50.0, time.Duration(0)),
		Entry("of one", 99.0, time.Second, time.Second),
		Entry("minimum", 0.0, -time.Second, 2*time.Second, -time.Second, time.Second),
		Entry("median", 50.0, 2*time.Second, 3*time.Second, time.Second, 2*time.Second),
		Entry("lower median", 50.0, 2*time.Second, 4*time.Second, 3*time.Second, time.Second, 2*time.Second),
		Entry("p99 of less than a hundred", 99.0, 3*time.Second, 3*time.Second, time.Second, 2*time.Second),
		Entry("maximum", 100.0, 3*time.Second, 3*time.Second, time.Second),
	)

	It("should take p99 of 200 as the third last", func() {
		var durations []time.Duration
		for i := range 200 {
			durations = append(durations, time.Duration(i+1))
		}
		Expect(percentile(durations, 99)).To(Equal(time.Duration(198)))
	})

	It("should leave the durations in their order", func() {
		durations := []time.Duration{2, 1}
		percentile(durations, 50)
		Expect(durations).To(Equal([]time.Duration{2, 1}))
	})

	Describe("#compare", func() {
		var ours, manager *results

		BeforeEach(func() {
			well := func() *results {
				return &results{
					machines: 1000,
					few:      map[string]memory{agentSidecar: {anonymous: 9 << 20}},
					idle: idle{
						memory: map[string]memory{agentSidecar: {anonymous: 16 << 20}},
						cpu:    map[string]time.Duration{agentSidecar: idlePeriod/100 - time.Millisecond, agentManager: 3 * time.Second},
						writes: map[string]int{agentManager: 4, agentProvider: 3},
					},
					atEnd:       map[string]memory{agentSidecar: {resident: 40 << 20, peak: 50 << 20}},
					protections: protections{{took: 100 * time.Millisecond, agent: agentSidecar}},
					leads:       []time.Duration{time.Second, 0},
					drain:       4 * time.Second,
					entries:     44,
					entry:       2,
					writes:      map[string]lifetime{"now": {all: 12, ended: true}, "when-failed": {all: 21}, "auto": {all: 22, ended: true}},
				}
			}
			ours, manager = well(), well()
			ours.protections[0].took = 120 * time.Millisecond
			ours.writes = map[string]lifetime{"now": {all: 15, ended: true}, "when-failed": {all: 24, ended: true}, "auto": {all: 25, ended: true}}
		})

		missed := func() []string {
			var missed []string
			for _, row := range compare(ours, manager) {
				if row.met() == "NO" {
					missed = append(missed, row.measure)
				}
			}
			return missed
		}

		It("should meet all goals just so", func() {
			Expect(missed()).To(BeEmpty())
			Expect(allMet(compare(ours, manager))).To(BeTrue())
		})

		DescribeTable("should miss a goal",
			func(spoil func(), goals ...string) {
				spoil()
				Expect(missed()).To(Equal(goals))
				Expect(allMet(compare(ours, manager))).To(BeFalse())
			},
			Entry("memory", func() { ours.idle.memory[agentSidecar] = memory{anonymous: 16<<20 + 1} }, "memory of 1000 machines: resident, of which anonymous"),
			Entry("memory of a small shoot", func() { ours.few[agentSidecar] = memory{anonymous: 9<<20 + 1} }, "memory of 10 machines: resident, of which anonymous"),
			Entry("protection", func() { ours.protections[0].took++ }, "annotation to protection: p99"),
			Entry("protection beside a faster machine-controller-manager", func() { manager.protections[0].took-- }, "annotation to protection: p99"),
			Entry("a late hold", func() { ours.leads[1] = -1 }, "hold: late"),
			Entry("no hold", func() { ours.notHeld = 1 }, "hold: late"),
			Entry("writes", func() { ours.writes["auto"] = lifetime{all: 26, ended: true} }, "API writes of the whole pod: auto"),
			Entry("writes beside a machine-controller-manager with less", func() { manager.writes["when-failed"] = lifetime{all: 20} }, "API writes of the whole pod: when-failed"),
			Entry("a preservation that does not end", func() { ours.writes["now"] = lifetime{all: 4} }, "API writes of the whole pod: now"),
			Entry("a failure that is written down too often", func() { ours.entry = 3 }, "API writes of the failure history for a failure, of 44"),
			Entry("failures that nobody writes down", func() { ours.entries = 0 }, "API writes of the failure history for a failure, of 0"),
			Entry("drain", func() { ours.drain++ }, "drain: 30 pods gone, after the deadline"),
			Entry("writes while idle", func() { ours.idle.writes[agentSidecar] = 1 }, "idle for 2m30s: API writes"),
			Entry("time while idle", func() { ours.idle.cpu[agentSidecar] += time.Millisecond }, "idle for 2m30s: of a core"),
		)

		It("should say what was not held, and whose end was not seen", func() {
			manager.leads, manager.notHeld = []time.Duration{-time.Minute, time.Second}, 3
			Expect(manager.lateText()).To(Equal("4 of 5, 3 not held 1m30s after it"))
			Expect(lifetime{all: 5}.allText()).To(Equal("5, its end not seen"))
			Expect(lifetime{all: 5, ended: true}.allText()).To(Equal("5"))
			Expect(lifetime{own: 8}.ownText()).To(Equal("8"))
			Expect(lifetime{own: 8, refused: 1}.ownText()).To(Equal("8, and 1 refused"))
		})

		It("should say how much of the memory is the process's own", func() {
			ours.few[agentSidecar] = memory{resident: 30 << 20, anonymous: 9 << 20}
			Expect(compare(ours, manager)[1].ours).To(Equal("30.0 MiB, 9.0 MiB"))
		})
	})

	It("should print rows beneath each other, and whether goals are met", func() {
		out := &strings.Builder{}
		Expect(printTable(out, []row{
			{measure: "told", ours: "1"},
			{measure: "met", goal: "<= 2", ours: "1", manager: "3", goalIsMet: true},
			{measure: "missed", goal: "<= 2", ours: "3"},
		})).To(Succeed())
		Expect(out.String()).To(Equal(`MEASURE   GOAL   OURS   MCM'S OWN   MET
told             1                  
met       <= 2   1      3           yes
missed    <= 2   3                  NO
`))
	})
})
