// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
)

var _ = Describe("#Decide", func() {
	var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

	many := func(count int, rollout Rollout) []Rollout {
		rollouts := make([]Rollout, 0, count)
		for i := range count {
			rollout.Namespace = fmt.Sprintf("shoot-%03d", i)
			rollouts = append(rollouts, rollout)
		}
		return rollouts
	}
	outdated := func(count int) []Rollout { return many(count, Rollout{Outdated: true, Complete: true}) }
	ready := func(count int, ago time.Duration) []Rollout {
		return many(count, Rollout{Complete: true, Since: now.Add(-ago)})
	}
	notReady := func(count int, ago time.Duration) []Rollout { return many(count, Rollout{Since: now.Add(-ago)}) }

	DescribeTable("should replace in waves, and halt",
		func(replaced int, halted bool, rollouts ...[]Rollout) {
			config := &configv1alpha1.ControllerConfiguration{}
			configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
			decision := Decide(slices.Concat(rollouts...), config, now)
			Expect(decision.Replace).To(HaveLen(replaced))
			Expect(decision.Halted).To(Equal(halted))
			if decision.Outdated > 0 {
				Expect(decision.After).To(Equal(10 * time.Second))
			} else {
				Expect(decision.After).To(BeZero())
			}
		},
		Entry("nothing", 0, false),
		Entry("nothing is outdated", 0, false, ready(50, time.Hour)),
		Entry("nothing is outdated, and much has failed", 0, false, notReady(50, time.Hour)),

		Entry("the first", 1, false, outdated(50)),
		Entry("the first is under way", 0, false, notReady(1, 5*time.Minute-time.Second), outdated(49)),
		Entry("the first is ready", 0, false, ready(1, time.Minute-time.Second), outdated(49)),
		Entry("the first has failed", 0, true, notReady(1, 5*time.Minute), outdated(49)),
		Entry("the first has failed for longer than is known", 0, true, many(1, Rollout{}), outdated(49)),
		Entry("gardenlet was faster with a few", 0, false, notReady(3, time.Minute), outdated(47)),

		Entry("the first has proved itself", 5, false, ready(1, time.Minute), outdated(49)),
		Entry("the second wave is under way", 0, false, ready(1, time.Hour), notReady(5, time.Minute), outdated(44)),
		Entry("the second wave is under way, with one that gardenlet has replaced", 1, false, ready(1, time.Hour), notReady(4, time.Minute), outdated(45)),
		Entry("the second wave has not proved itself", 0, false, ready(5, time.Hour), ready(1, time.Second), outdated(44)),
		Entry("one of the second wave has failed", 0, true, ready(5, time.Hour), notReady(1, 5*time.Minute), outdated(44)),

		Entry("the second wave has proved itself", 30, false, ready(6, time.Minute), outdated(44)),
		Entry("thirty are under way", 0, false, ready(6, time.Hour), notReady(20, time.Minute), ready(10, time.Second), outdated(44)),
		Entry("some of thirty have proved themselves", 12, false, ready(18, time.Hour), notReady(18, time.Minute), outdated(44)),
		Entry("fewer than thirty are left", 4, false, ready(400, time.Hour), outdated(4)),

		Entry("a tenth of a few has failed", 30, false, ready(18, time.Hour), notReady(2, time.Hour), outdated(44)),
		Entry("more than a tenth of a few has failed", 0, true, ready(17, time.Hour), notReady(2, time.Hour), outdated(44)),
		Entry("three of many have failed", 30, false, ready(400, time.Hour), notReady(3, time.Hour), outdated(44)),
		Entry("four of many have failed", 0, true, ready(400, time.Hour), notReady(4, time.Hour), outdated(44)),
		Entry("they have recovered", 30, false, ready(400, time.Hour), ready(1, time.Minute), notReady(3, time.Hour), outdated(44)),
		Entry("a newer version has come", 1, false, many(50, Rollout{Outdated: true})),
	)

	It("should obey the configuration", func() {
		config := &configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(5)), InjectionMaxFailedPercent: new(int32(100))}
		Expect(Decide(slices.Concat(notReady(5, time.Hour), outdated(9)), config, now).Halted).To(BeFalse())
		Expect(Decide(slices.Concat(notReady(6, time.Hour), outdated(9)), config, now).Halted).To(BeTrue())
		config = &configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(0)), InjectionMaxFailedPercent: new(int32(100))}
		Expect(Decide(slices.Concat(ready(99, time.Hour), notReady(1, time.Hour), outdated(9)), config, now).Halted).To(BeTrue())
	})

	It("should begin with the healthy ones, and leave out what is postponed", func() {
		rollouts := []Rollout{
			{Namespace: "a", Outdated: true},
			{Namespace: "b", Outdated: true, Complete: true, Postponed: true},
			{Namespace: "d", Outdated: true, Complete: true},
			{Namespace: "c", Outdated: true, Complete: true},
		}
		decision := Decide(append(rollouts, ready(1, time.Hour)...), &configv1alpha1.ControllerConfiguration{}, now)
		Expect(decision.Replace).To(Equal([]string{"c", "d", "a"}))
		Expect(decision.Outdated).To(Equal(4))
	})

	It("should choose the same again as long as the caches lag behind", func() {
		rollouts := slices.Concat(ready(1, time.Hour), outdated(49)[:9])
		for i := range rollouts {
			rollouts[i].Namespace = fmt.Sprintf("shoot-%03d", i)
		}
		chosen := Decide(rollouts, &configv1alpha1.ControllerConfiguration{}, now).Replace
		Expect(chosen).To(HaveLen(5))
		rollouts[1].Outdated, rollouts[1].Complete, rollouts[1].Since = false, false, now
		Expect(Decide(rollouts, &configv1alpha1.ControllerConfiguration{}, now).Replace).To(Equal(chosen[1:]))
	})
})
