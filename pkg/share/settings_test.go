// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("#SettingsFor", func() {
	hours := func(h int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(h) * time.Hour} }

	DescribeTable("precedence of the number",
		func(own, shoot, all *int32, expected int) {
			settings := SettingsFor(
				Pool{Name: "pool", Maximum: 100, AutoPreserveFailedMax: shoot},
				&preservation.MachinePreservationConfig{
					MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: all},
					Workers: []preservation.Worker{
						{Name: "other", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(99))}},
						{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: own}},
					},
				},
				&configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(4)), MachinePreserveTimeout: hours(72)},
			)
			Expect(settings.AutoPreserveFailedMax).To(BeEquivalentTo(expected))
			Expect(settings.MachinePreserveTimeout).To(Equal(72*time.Hour), "each field is looked up by itself")
		},

		Entry("provider configuration for the pool", new(int32(1)), new(int32(2)), new(int32(3)), 1),
		Entry("explicit zero for the pool", new(int32(0)), new(int32(2)), new(int32(3)), 0),
		Entry("the Shoot's own field", nil, new(int32(2)), new(int32(3)), 2),
		Entry("explicit zero of the Shoot", nil, new(int32(0)), new(int32(3)), 0),
		Entry("provider configuration for all pools", nil, nil, new(int32(3)), 3),
		Entry("defaults", nil, nil, nil, 4),
	)

	DescribeTable("precedence of the timeout",
		func(own, shoot, all *metav1.Duration, expected time.Duration) {
			settings := SettingsFor(
				Pool{Name: "pool", Maximum: 1, MachinePreserveTimeout: shoot},
				&preservation.MachinePreservationConfig{
					MachineControllerManager: &preservation.MachineControllerManagerSettings{MachinePreserveTimeout: all},
					Workers:                  []preservation.Worker{{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{MachinePreserveTimeout: own}}},
				},
				&configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(0)), MachinePreserveTimeout: hours(4)},
			)
			Expect(settings.MachinePreserveTimeout).To(Equal(expected))
		},

		Entry("provider configuration for the pool", hours(1), hours(2), hours(3), time.Hour),
		Entry("the Shoot's own field", nil, hours(2), hours(3), 2*time.Hour),
		Entry("provider configuration for all pools", nil, nil, hours(3), 3*time.Hour),
		Entry("defaults", nil, nil, nil, 4*time.Hour),
	)

	DescribeTable("precedence of whether pods with volumes may be deleted by force, and new failures are preferred",
		func(own, all *bool, expected bool) {
			settings := SettingsFor(
				Pool{Name: "pool", Maximum: 1, AutoPreserveFailedMax: new(int32(1))},
				&preservation.MachinePreservationConfig{
					MachineControllerManager: &preservation.MachineControllerManagerSettings{ForceDeletePodsWithVolumes: all, PreferNewFailures: all},
					Workers: []preservation.Worker{
						{Name: "other", MachineControllerManager: &preservation.MachineControllerManagerSettings{ForceDeletePodsWithVolumes: new(true), PreferNewFailures: new(true)}},
						{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{ForceDeletePodsWithVolumes: own, PreferNewFailures: own}},
					},
				},
				&configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(0)), MachinePreserveTimeout: hours(4)},
			)
			Expect(settings).To(Equal(Settings{AutoPreserveFailedMax: 1, MachinePreserveTimeout: 4 * time.Hour, ForceDeletePodsWithVolumes: expected, PreferNewFailures: expected}))
		},

		Entry("provider configuration for the pool", new(true), new(false), true),
		Entry("explicit false for the pool", new(false), new(true), false),
		Entry("provider configuration for all pools", nil, new(true), true),
		Entry("explicit false for all pools", nil, new(false), false),
		Entry("nothing but for another pool", nil, nil, false),
	)

	DescribeTable("P20: precedence of who may use the places", func(own, all *preservation.Distribution, shared string) {
		settings := func(distribution *preservation.Distribution) *preservation.MachineControllerManagerSettings {
			return &preservation.MachineControllerManagerSettings{Distribution: distribution}
		}
		Expect(SettingsFor(Pool{Name: "pool", Maximum: 1}, &preservation.MachinePreservationConfig{
			MachineControllerManager: settings(all),
			Workers:                  []preservation.Worker{{Name: "pool", MachineControllerManager: settings(own)}},
		}, nil).SharedIn).To(Equal(shared))
	},
		Entry("the pool says so", new(preservation.Distribution("Pool")), new(preservation.Distribution("Zones")), "pool"),
		Entry("the pool says something else", new(preservation.Distribution("Zones")), new(preservation.Distribution("Pool")), ""),
		Entry("all pools", nil, new(preservation.Distribution("Pool")), "pool"),
		Entry("nobody says anything", nil, nil, ""),
	)

	It("should fall back to the defaults where nothing is set at all", func() {
		defaults := &configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(1)), MachinePreserveTimeout: hours(2)}
		Expect(SettingsFor(Pool{Name: "pool", Maximum: 3}, &preservation.MachinePreservationConfig{}, defaults)).
			To(Equal(Settings{AutoPreserveFailedMax: 1, MachinePreserveTimeout: 2 * time.Hour}))
	})

	It("V1: should have the validation of the pool, and of no other", func() {
		config := &preservation.MachinePreservationConfig{Workers: []preservation.Worker{
			{Name: "pool", Validation: &preservation.Validation{Label: new("gpu=healthy"), Timeout: hours(1), OnTimeout: new(preservation.OnTimeout("Keep"))}},
		}}
		Expect(SettingsFor(Pool{Name: "pool"}, config, nil).Validation).To(Equal(&v1alpha1.Validation{Label: new("gpu=healthy"), Timeout: hours(1), OnTimeout: new(v1alpha1.OnTimeoutKeep)}))
		Expect(SettingsFor(Pool{Name: "other"}, config, nil).Validation).To(BeNil())
	})

	It("P13: should cut a timeout to what operators allow", func() {
		defaults := &configv1alpha1.ControllerConfiguration{MachinePreserveTimeout: hours(1), MaxMachinePreserveTimeout: hours(3)}
		for set, expected := range map[int]time.Duration{2: 2 * time.Hour, 3: 3 * time.Hour, 2562047: 3 * time.Hour} {
			Expect(SettingsFor(Pool{MachinePreserveTimeout: hours(set)}, &preservation.MachinePreservationConfig{}, defaults).MachinePreserveTimeout).To(Equal(expected))
		}
	})

	DescribeTable("should cut a number to what operators allow, whoever sets it",
		func(pool Pool, config preservation.MachinePreservationConfig, expected int) {
			defaults := &configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(3)), MaxAutoPreserveFailed: new(int32(3))}
			pool.Name, pool.Maximum = "pool", 9
			Expect(SettingsFor(pool, &config, defaults).AutoPreserveFailedMax).To(BeEquivalentTo(expected))
		},
		Entry("nobody", Pool{}, preservation.MachinePreservationConfig{}, 3),
		Entry("less for the pool", Pool{}, preservation.MachinePreservationConfig{Workers: []preservation.Worker{
			{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(2))}},
		}}, 2),
		Entry("more for the pool", Pool{}, preservation.MachinePreservationConfig{Workers: []preservation.Worker{
			{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(4))}},
		}}, 3),
		Entry("more for all pools", Pool{}, preservation.MachinePreservationConfig{
			MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(4))},
		}, 3),
		Entry("more in the Shoot", Pool{AutoPreserveFailedMax: new(int32(4))}, preservation.MachinePreservationConfig{}, 3),
	)

	DescribeTable("X9, X11: should have hosts power-cycled as far as operators allow it",
		func(hosts *configv1alpha1.Hosts, automatic preservation.AutomaticPowerCycle, matcher types.GomegaMatcher) {
			powerCycle := &preservation.PowerCycle{Automatic: &automatic, MaxAttempts: new(int32(2)), PowerOffTimeout: hours(1)}
			config := &preservation.MachinePreservationConfig{Workers: []preservation.Worker{{Name: "other"}, {Name: "pool", PowerCycle: powerCycle}}}
			defaults := &configv1alpha1.ControllerConfiguration{Hosts: hosts}
			Expect(SettingsFor(Pool{Name: "pool"}, config, defaults).PowerCycle).To(matcher)
			Expect(powerCycle.Automatic).To(HaveValue(Equal(automatic)), "it is not written to")
			for _, name := range []string{"other", "none"} {
				Expect(SettingsFor(Pool{Name: name}, config, defaults).PowerCycle).To(BeNil())
			}
			Expect(SettingsFor(Pool{Name: "pool"}, config, nil).PowerCycle).To(BeNil())
		},
		Entry("no hosts", nil, preservation.AutomaticPowerCycle("true"), BeNil()),
		Entry("no hosts any more", &configv1alpha1.Hosts{Disabled: true, Automatic: true}, preservation.AutomaticPowerCycle("true"), BeNil()),
		Entry("allowed, not wanted", &configv1alpha1.Hosts{Automatic: true}, preservation.AutomaticPowerCycle("false"),
			Equal(&v1alpha1.PowerCycle{Automatic: new(v1alpha1.AutomaticFalse), MaxAttempts: new(int32(2)), PowerOffTimeout: hours(1)})),
		Entry("wanted, not allowed", &configv1alpha1.Hosts{}, preservation.AutomaticPowerCycle("true"),
			Equal(&v1alpha1.PowerCycle{Automatic: new(v1alpha1.AutomaticFalse), MaxAttempts: new(int32(2)), PowerOffTimeout: hours(1)})),
		Entry("allowed and wanted", &configv1alpha1.Hosts{Automatic: true}, preservation.AutomaticPowerCycle("true"),
			Equal(&v1alpha1.PowerCycle{Automatic: new(v1alpha1.AutomaticTrue), MaxAttempts: new(int32(2)), PowerOffTimeout: hours(1)})),
		Entry("only to be told, which needs nobody's leave", &configv1alpha1.Hosts{}, preservation.AutomaticPowerCycle("DryRun"),
			Equal(&v1alpha1.PowerCycle{Automatic: new(v1alpha1.AutomaticDryRun), MaxAttempts: new(int32(2)), PowerOffTimeout: hours(1)})),
	)

	It("should cut a default to what is valid for the pool", func() {
		defaults := &configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(5)), MachinePreserveTimeout: hours(1)}
		pool := Pool{Maximum: 3, SystemComponents: true}
		Expect(SettingsFor(pool, &preservation.MachinePreservationConfig{}, defaults).AutoPreserveFailedMax).To(BeEquivalentTo(2))
	})
})

var _ = Describe("#ValuesFor", func() {
	hours := func(h int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(h) * time.Hour} }
	// told returns values as text: by whom, where, and what.
	told := func(values Values) []string {
		var all []string
		for _, v := range values.AutoPreserveFailedMax {
			all = append(all, fmt.Sprintf("%s %s = %d", v.Source, v.Path, v.Value))
		}
		for _, v := range values.MachinePreserveTimeout {
			all = append(all, fmt.Sprintf("%s %s = %s", v.Source, v.Path, v.Value))
		}
		for _, v := range values.ForceDeletePodsWithVolumes {
			all = append(all, fmt.Sprintf("%s %s = %t", v.Source, v.Path, v.Value))
		}
		return all
	}
	config := &preservation.MachinePreservationConfig{
		MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(3)), MachinePreserveTimeout: hours(3), ForceDeletePodsWithVolumes: new(true)},
		Workers: []preservation.Worker{
			{Name: "other", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(9)), MachinePreserveTimeout: hours(9)}},
			{Name: "pool", MachineControllerManager: &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: new(int32(-1)), MachinePreserveTimeout: hours(1), ForceDeletePodsWithVolumes: new(false)}},
			{Name: "empty"},
		},
	}
	defaults := &configv1alpha1.ControllerConfiguration{AutoPreserveFailedMax: new(int32(4)), MachinePreserveTimeout: hours(4)}
	configPath, poolPath := field.NewPath("config"), field.NewPath("workers").Index(7)

	It("should name every value that is set in the order of precedence, with its source and field, valid or not", func() {
		pool := Pool{Name: "pool", AutoPreserveFailedMax: new(int32(2)), MachinePreserveTimeout: hours(2)}
		Expect(told(ValuesFor(pool, poolPath, config, configPath, defaults))).To(Equal([]string{
			"pool config.workers[1].machineControllerManager.autoPreserveFailedMax = -1",
			"shoot workers[7].machineControllerManager.autoPreserveFailedMachineMax = 2",
			"all-pools config.machineControllerManager.autoPreserveFailedMax = 3",
			"defaults <nil> = 4",
			"pool config.workers[1].machineControllerManager.machinePreserveTimeout = 1h0m0s",
			"shoot workers[7].machineControllerManager.machinePreserveTimeout = 2h0m0s",
			"all-pools config.machineControllerManager.machinePreserveTimeout = 3h0m0s",
			"defaults <nil> = 4h0m0s",
			"pool config.workers[1].machineControllerManager.forceDeletePodsWithVolumes = false",
			"all-pools config.machineControllerManager.forceDeletePodsWithVolumes = true",
		}))
	})

	It("should leave out what is not set", func() {
		Expect(told(ValuesFor(Pool{Name: "empty", MachinePreserveTimeout: hours(2)}, poolPath, config, configPath, nil))).To(Equal([]string{
			"all-pools config.machineControllerManager.autoPreserveFailedMax = 3",
			"shoot workers[7].machineControllerManager.machinePreserveTimeout = 2h0m0s",
			"all-pools config.machineControllerManager.machinePreserveTimeout = 3h0m0s",
			"all-pools config.machineControllerManager.forceDeletePodsWithVolumes = true",
		}))
	})

	It("should have no source where nothing is set", func() {
		values := ValuesFor(Pool{Name: "pool"}, nil, &preservation.MachinePreservationConfig{}, nil, nil)
		Expect(told(values)).To(BeEmpty())
		Expect(values.AutoPreserveFailedMax.Effective()).To(Equal(Value[int32]{}))
	})
})
