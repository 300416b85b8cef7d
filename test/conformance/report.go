// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/onsi/gomega/types"
)

// maxFailure is how much of a failure's message the report repeats, in bytes.
const maxFailure = 1200

// Outcome is how a scenario came out, or a rule.
type Outcome string

const (
	// Passed says that all that was tried came out as the rule says.
	Passed Outcome = "passed"
	// Failed says that something did not.
	Failed Outcome = "failed"
	// NotApplicable says that it cannot be tried here.
	NotApplicable Outcome = "not applicable"
	// NotRun says that it was not selected.
	NotRun Outcome = "not run"
)

// Report says for each rule how its scenarios came out.
type Report struct {
	// Title says what was tried.
	Title string

	mutex   sync.Mutex
	results []result
	// reasons are why scenarios are not applicable or failed, by the names of their tests.
	reasons map[string]string
}

type result struct {
	scenario string
	rules    []string
	outcome  Outcome
	reason   string
}

// Run runs a scenario as a subtest with the ids of its rules in its name, and takes down how it comes out.
func (r *Report) Run(t *testing.T, scenario string, rules []string, run func(t *testing.T)) {
	t.Run(strings.Join(slices.Concat([]string{scenario}, rules), " "), func(t *testing.T) {
		defer func() {
			outcome := Passed
			switch {
			case t.Failed():
				outcome = Failed
			case t.Skipped():
				outcome = NotApplicable
			}
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.results = append(r.results, result{scenario, rules, outcome, r.reasons[t.Name()]})
		}()
		run(t)
	})
}

// failing is a test of gomega's that has the report take down how a scenario failed: the output of a scenario is far from its
// outcome where many run at the same time.
type failing struct {
	types.GomegaTestingT
	name   string
	report *Report
}

// Fatalf takes down the message and where it came from, and ends the scenario.
func (f failing) Fatalf(format string, args ...any) {
	f.Helper()
	message := strings.TrimSpace(fmt.Sprintf(format, args...))
	f.report.mutex.Lock()
	f.report.because(f.name, calledFrom()+": "+strings.ToValidUTF8(message[:min(len(message), maxFailure)], string(utf8.RuneError)))
	f.report.mutex.Unlock()
	f.GomegaTestingT.Fatalf(format, args...)
}

// calledFrom returns the lines of this package that are being executed, the scenario's first.
func calledFrom() string {
	var (
		callers = make([]uintptr, 50)
		lines   []string
	)
	for frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]); ; {
		frame, more := frames.Next()
		if file := filepath.Base(frame.File); strings.Contains(frame.File, "/test/conformance/") && file != "run.go" && file != "report.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", file, frame.Line))
		}
		if !more {
			slices.Reverse(lines)
			return strings.Join(lines, " > ")
		}
	}
}

// because takes down the reason of the outcome of the test with the name. The caller holds the mutex.
func (r *Report) because(name, reason string) {
	if r.reasons == nil {
		r.reasons = map[string]string{}
	}
	r.reasons[name] = reason
}

// NotApplicable ends the scenario of the test: it cannot be tried here, for a reason.
func (r *Report) NotApplicable(t *testing.T, reason string) {
	t.Helper()
	r.mutex.Lock()
	r.because(t.Name(), reason)
	r.mutex.Unlock()
	t.Skip("Not applicable: " + reason)
}

// Outcome returns how a rule came out: it has failed if one of its scenarios has, and is not applicable if none of them
// could be tried.
func (r *Report) Outcome(rule string) Outcome {
	outcome := NotRun
	for _, result := range r.of(rule) {
		switch {
		case result.outcome == Failed:
			return Failed
		case result.outcome == Passed, outcome == NotRun:
			outcome = result.outcome
		}
	}
	return outcome
}

// Markdown returns the report as a table in Markdown.
func (r *Report) Markdown() string {
	var (
		out    strings.Builder
		counts = map[Outcome]int{}
	)
	for _, rule := range Rules() {
		counts[r.Outcome(rule.ID)]++
	}
	fmt.Fprintf(&out, "# %s\n\n%d rules:", r.Title, len(Rules()))
	separator := " "
	for _, outcome := range []Outcome{Passed, Failed, NotApplicable, NotRun} {
		if counts[outcome] > 0 || outcome == Passed || outcome == Failed {
			fmt.Fprintf(&out, "%s%d %s", separator, counts[outcome], outcome)
			separator = ", "
		}
	}
	fmt.Fprintf(&out, ".\n\n| rule | result         | scenarios |\n| ---- | -------------- | --------- |\n")
	for _, rule := range Rules() {
		fmt.Fprintf(&out, "| %-4s | %-14s | %s |\n", rule.ID, r.Outcome(rule.ID), describe(r.of(rule.ID)))
	}
	if others := r.of(""); len(others) > 0 {
		fmt.Fprintf(&out, "\nBeside the rules: %s.\n", describe(others))
	}
	if reasons := r.reasonsOf(NotApplicable); len(reasons) > 0 {
		fmt.Fprintf(&out, "\nNot applicable are:\n\n")
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(&out, "- %s: %s.\n", strings.Join(slices.Sorted(slices.Values(reasons[reason])), ", "), reason)
		}
	}
	if reasons := r.reasonsOf(Failed); len(reasons) > 0 {
		fmt.Fprintf(&out, "\nFailed are:\n")
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(&out, "\n- %s: %s\n", strings.Join(slices.Sorted(slices.Values(reasons[reason])), ", "), strings.ReplaceAll(cmp.Or(reason, "its output says why"), "\n", "\n  "))
		}
	}
	return out.String()
}

// of returns the results of a rule's scenarios in the order of their names; for no rule those of scenarios without one.
func (r *Report) of(rule string) []result {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var results []result
	for _, result := range r.results {
		if slices.Contains(result.rules, rule) || rule == "" && len(result.rules) == 0 {
			results = append(results, result)
		}
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.scenario, b.scenario) })
	return results
}

// reasonsOf returns the scenarios of an outcome by its reason.
func (r *Report) reasonsOf(outcome Outcome) map[string][]string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	reasons := map[string][]string{}
	for _, result := range r.results {
		if result.outcome == outcome {
			reasons[result.reason] = append(reasons[result.reason], result.scenario)
		}
	}
	return reasons
}

func describe(results []result) string {
	texts := make([]string, 0, len(results))
	for _, result := range results {
		text := result.scenario
		if result.outcome != Passed || len(result.rules) == 0 {
			text += fmt.Sprintf(" (%s)", result.outcome)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
