// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("#schedule", func() {
	It("should be the same for the same seed, and another one for another", func() {
		Expect(schedule(7, 10*time.Minute)).To(Equal(schedule(7, 10*time.Minute)))
		Expect(schedule(8, 10*time.Minute)).NotTo(Equal(schedule(7, 10*time.Minute)))
	})

	It("should know only actions that there are, in the order of their times, and fill the time", func() {
		events := schedule(7, 10*time.Minute)
		Expect(len(events)).To(BeNumerically("~", 10*time.Minute/pace, 60))
		Expect(slices.IsSortedFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })).To(BeTrue())
		for _, e := range events {
			Expect(e.at).To(BeNumerically("<", 10*time.Minute))
			Expect(slices.ContainsFunc(actions, func(a action) bool { return a.name == e.action })).To(BeTrue(), e.action)
		}
	})

	It("should have one long outage, early enough to see what follows from it, unless the run is short", func() {
		outages := func(length time.Duration) []event {
			return slices.DeleteFunc(schedule(7, length), func(e event) bool { return e.action != longOutage })
		}
		Expect(outages(10 * time.Minute)).To(HaveLen(1))
		Expect(outages(10 * time.Minute)[0].at).To(BeNumerically("<=", 5*time.Minute))
		Expect(outages(4 * time.Minute)).To(BeEmpty())
	})

	It("should have nodes worked on when the long outage begins", func() {
		events := schedule(7, 10*time.Minute)
		outage := slices.IndexFunc(events, func(e event) bool { return e.action == longOutage })
		for action, before := range map[string]time.Duration{nodeWanted: 60 * time.Second, nodeReboots: 30 * time.Second, cycleWanted: 15 * time.Second} {
			at := events[outage].at - before
			Expect(slices.ContainsFunc(events, func(e event) bool { return e.action == action && e.at == at })).To(BeTrue(), action)
		}
	})

	It("should have all that there is in a long run", func() {
		events := schedule(7, time.Hour)
		for _, action := range actions {
			Expect(slices.ContainsFunc(events, func(e event) bool { return e.action == action.name })).To(BeTrue(), action.name)
		}
	})
})

var _ = DescribeTable("#readOptions should say what is wrong", func(name, value, message string) {
	_, err := readOptions(func(key string) string {
		if key == name {
			return value
		}
		return ""
	})
	Expect(err).To(MatchError(ContainSubstring(message)))
},
	Entry("generation", "MCM", "0.60", `invalid generation "0.60"`),
	Entry("no length", "CHAOS_MINUTES", "0", `CHAOS_MINUTES="0" must be a positive number of minutes`),
	Entry("seed", "SEED", "-1", `SEED="-1" must be a number that is not negative`),
)
