// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

// TestReport has scenarios that pass and that cannot be tried.
func TestReport(t *testing.T) {
	g, report := NewWithT(t), &conformance.Report{}
	var name string
	report.Run(t, "good", []string{"T1", "P1"}, func(t *testing.T) { name = t.Name() })
	report.Run(t, "impossible", []string{"P9"}, func(t *testing.T) { report.NotApplicable(t, "there is no way") })
	g.Expect(name).To(Equal("TestReport/good_T1_P1"))
	g.Expect([]conformance.Outcome{report.Outcome("T1"), report.Outcome("P1"), report.Outcome("P9")}).To(Equal([]conformance.Outcome{conformance.Passed, conformance.Passed, conformance.NotApplicable}))
	g.Expect(report.Markdown()).To(ContainSubstring("| P9   | not applicable | impossible (not applicable) |\n"))
	g.Expect(report.Markdown()).To(HaveSuffix("Not applicable are:\n\n- impossible: there is no way.\n"))
}

var _ = Describe("Report", func() {
	DescribeTable("#Outcome",
		func(expected conformance.Outcome, outcomes ...conformance.Outcome) {
			report := &conformance.Report{}
			for _, outcome := range outcomes {
				report.Record("scenario", outcome, "", "T1", "P1")
			}
			report.Record("other", conformance.Failed, "", "T2")
			Expect(report.Outcome("P1")).To(Equal(expected))
		},
		Entry("nothing was tried", conformance.NotRun),
		Entry("all passed", conformance.Passed, conformance.Passed, conformance.Passed),
		Entry("one of them failed", conformance.Failed, conformance.Passed, conformance.Failed, conformance.NotApplicable),
		Entry("some cannot be tried", conformance.Passed, conformance.NotApplicable, conformance.Passed),
		Entry("some cannot be tried, in another order", conformance.Passed, conformance.Passed, conformance.NotApplicable),
		Entry("none can be tried", conformance.NotApplicable, conformance.NotApplicable, conformance.NotApplicable),
	)

	Describe("#Markdown", func() {
		It("should be a table of all rules in their order", func() {
			report := &conformance.Report{Title: "Somewhere"}
			report.Record("second", conformance.Passed, "", "R1")
			report.Record("first", conformance.Failed, "", "R1", "T10")
			report.Record("never-joined", conformance.NotApplicable, "machines join", "P9")
			report.Record("joins-late", conformance.NotApplicable, "machines join", "T7", "P9")
			report.Record("provider", conformance.Passed, "")

			lines := strings.Split(report.Markdown(), "\n")
			Expect(lines[:7]).To(Equal([]string{
				"# Somewhere",
				"",
				"94 rules: 0 passed, 2 failed, 2 not applicable, 90 not run.",
				"",
				"| rule | result         | scenarios |",
				"| ---- | -------------- | --------- |",
				"| R1   | failed         | first (failed), second |",
			}))
			Expect(lines).To(ContainElements(
				"| R2   | not run        |  |",
				"| T10  | failed         | first (failed) |",
				"| P9   | not applicable | joins-late (not applicable), never-joined (not applicable) |",
				"Beside the rules: provider (passed).",
				"- joins-late, never-joined: machines join.",
			))
			Expect(lines).To(HaveLen(6 + len(conformance.Rules()) + 11))
			Expect(lines[len(lines)-5:]).To(Equal([]string{"", "Failed are:", "", "- first: its output says why", ""}))
		})

		It("should end with what failed, and where", func() {
			report, t := &conformance.Report{}, &quiet{}
			g := report.Failing(t, "parent/broken")
			fail := func() { g.Expect(strings.Repeat("é", 100)).To(BeEmpty()) }
			fail()
			Expect(t.failures).To(Equal(1))
			report.Record("broken", conformance.Failed, report.Reason("parent/broken"))
			Expect(report.Markdown()).To(MatchRegexp(`\nFailed are:\n\n- broken: report_test.go:\d+ > report_test.go:\d+: Expected\n      <string>: é+\n  to be empty\n$`))
		})
	})

	It("should have a scenario for each rule, and no two with the same name", func() {
		var names, rules []string
		for _, scenario := range conformance.Scenarios() {
			names = append(names, scenario.Name)
			rules = append(rules, scenario.Rules...)
		}
		without := map[string]string{
			"D8": "metrics cannot be read through the APIs",
		}
		for _, rule := range conformance.Rules() {
			if _, ok := without[rule.ID]; ok {
				continue
			}
			Expect(rules).To(ContainElement(rule.ID))
			rules = slices.DeleteFunc(rules, func(id string) bool { return id == rule.ID })
		}
		Expect(rules).To(BeEmpty(), "these rules do not exist")
		slices.Sort(names)
		Expect(slices.Compact(slices.Clone(names))).To(Equal(names))
	})
})

// quiet is a test that goes on when it has failed.
type quiet struct{ failures int }

func (*quiet) Helper()                 {}
func (q *quiet) Fatalf(string, ...any) { q.failures++ }
