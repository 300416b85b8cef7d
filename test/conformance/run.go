// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// restoreTimeout bounds what is done at the end: the test may have been interrupted.
const restoreTimeout = time.Minute

// Scenario tries rules on a pool.
type Scenario struct {
	// Name is the name of the scenario.
	Name string
	// Rules are the ids of the rules that the scenario proves.
	Rules []string
	// Share is how many failed machines of the pool's first zone may be auto-preserved.
	Share int32
	// Healthy says that no machine of the shoot may be broken while the scenario runs.
	Healthy bool
	// Alone says that no other scenario may run at the same time.
	Alone bool
	// Long says that the scenario takes a quarter of an hour.
	Long bool

	// needs returns why the scenario cannot be tried in an environment, empty if it can.
	needs func(e *Environment) string
	run   func(p *Pool)
}

// Run runs all scenarios as subtests, as many at the same time as there are pools: first those that need a healthy shoot,
// then those that break machines, then those that must be alone. It leaves the pools as it found them.
func Run(ctx context.Context, t *testing.T, e *Environment) *Report {
	s, err := discover(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		if err := s.restore(ctx); err != nil {
			t.Errorf("The pools could not be restored: %v", err)
		}
	}()

	report := &Report{Title: "Machine preservation in " + e.Namespace + " with machine-controller-manager " + s.version}
	for _, group := range []struct {
		name    string
		atOnce  int
		members func(Scenario) bool
	}{
		{"healthy", len(s.pools), func(s Scenario) bool { return s.Healthy }},
		{"failing", len(s.pools), func(s Scenario) bool { return !s.Healthy && !s.Alone }},
		{"alone", 1, func(s Scenario) bool { return s.Alone }},
	} {
		t.Run(group.name, func(t *testing.T) {
			scenarios := slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !group.members(s) || e.Select != nil && !e.Select(s) })
			distribute(scenarios, s.pools, group.atOnce, func(scenario Scenario, pool string) {
				if ctx.Err() != nil {
					return // interrupted
				}
				report.Run(t, scenario.Name, scenario.Rules, func(t *testing.T) { s.try(ctx, t, report, scenario, pool) })
			})
		})
	}
	if ctx.Err() != nil {
		report.Title += " (interrupted)"
		t.Error("Interrupted")
	}
	return report
}

// distribute runs the scenarios in their order, so many at the same time, and each on a pool that no other one has. The
// pool that has been free for longest is taken.
func distribute(scenarios []Scenario, pools []string, atOnce int, run func(scenario Scenario, pool string)) {
	var (
		free  = make(chan string, len(pools))
		slots = make(chan struct{}, atOnce)
		group sync.WaitGroup
	)
	for _, pool := range pools {
		free <- pool
	}
	for _, scenario := range scenarios {
		slots <- struct{}{}
		pool := <-free
		group.Go(func() {
			defer func() {
				free <- pool
				<-slots
			}()
			run(scenario, pool)
		})
	}
	group.Wait()
}

// try runs a scenario on a pool that was made ready for it.
func (s *shoot) try(ctx context.Context, t *testing.T, report *Report, scenario Scenario, name string) {
	if scenario.needs != nil {
		if reason := scenario.needs(s.Environment); reason != "" {
			report.NotApplicable(t, reason)
		}
	}
	started := time.Now()
	p := &Pool{shoot: s, WithT: NewWithT(failing{t, t.Name(), report}), t: t, ctx: ctx, report: report, name: name, scenario: scenario.Name, settings: s.defaults}
	defer p.heal()
	p.prepare(scenario.Share)
	t.Logf("Pool %s: MachineDeployment %s was ready after %s", name, p.deploymentName, time.Since(started).Round(time.Second))
	scenario.run(p)
}
