// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

var _ = Describe("#Distribute", func() {
	var (
		pools     = []string{"a", "b", "c"}
		scenarios = func(count int) (scenarios []conformance.Scenario) {
			for i := range count {
				scenarios = append(scenarios, conformance.Scenario{Name: fmt.Sprint(i)})
			}
			return scenarios
		}
	)

	It("should run as many scenarios at the same time as there are pools", func(_ SpecContext) {
		var all sync.WaitGroup
		all.Add(len(pools))
		used := make(chan string, len(pools))
		conformance.Distribute(scenarios(len(pools)), pools, len(pools), func(_ conformance.Scenario, pool string) {
			used <- pool
			all.Done()
			all.Wait()
		})
		Expect([]string{<-used, <-used, <-used}).To(ConsistOf(pools))
	}, SpecTimeout(10*time.Second))

	It("should run each scenario once, and never two on a pool", func() {
		var (
			mutex    sync.Mutex
			busy     = map[string]bool{}
			ran      []string
			conflict bool
		)
		conformance.Distribute(scenarios(50), pools, len(pools), func(scenario conformance.Scenario, pool string) {
			mutex.Lock()
			conflict = conflict || busy[pool]
			busy[pool] = true
			ran = append(ran, scenario.Name)
			mutex.Unlock()
			time.Sleep(time.Millisecond)
			mutex.Lock()
			defer mutex.Unlock()
			busy[pool] = false
		})
		Expect(conflict).To(BeFalse())
		var names []string
		for _, scenario := range scenarios(50) {
			names = append(names, scenario.Name)
		}
		Expect(ran).To(ConsistOf(names))
	})

	It("should run one after another, each on the pool that has been free for longest", func() {
		var ran []string
		conformance.Distribute(scenarios(5), pools, 1, func(scenario conformance.Scenario, pool string) {
			ran = append(ran, scenario.Name+pool) // a data race if there were two
		})
		Expect(ran).To(Equal([]string{"0a", "1b", "2c", "3a", "4b"}))
	})
})
