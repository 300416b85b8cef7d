// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig/validation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("#ValidateMachinePreservationConfig", func() {
	pools := []share.Pool{
		{Name: "system", Maximum: 5, SystemComponents: true},
		{Name: "gpu", Maximum: 3},
		{Name: "native", Maximum: 2, AutoPreserveFailedMax: new(int32(3))},
	}

	number := func(n int32) *preservation.MachineControllerManagerSettings {
		return &preservation.MachineControllerManagerSettings{AutoPreserveFailedMax: &n}
	}
	timeout := func(d time.Duration) *preservation.MachineControllerManagerSettings {
		return &preservation.MachineControllerManagerSettings{MachinePreserveTimeout: &metav1.Duration{Duration: d}}
	}
	worker := func(name string, settings *preservation.MachineControllerManagerSettings) preservation.Worker {
		return preservation.Worker{Name: name, MachineControllerManager: settings}
	}

	DescribeTable("valid",
		func(config preservation.MachinePreservationConfig) {
			Expect(ValidateMachinePreservationConfig(&config, pools, field.NewPath("providerConfig"))).To(BeEmpty())
		},

		Entry("nothing", preservation.MachinePreservationConfig{}),
		Entry("worker without settings", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", nil)}}),
		Entry("zero", preservation.MachinePreservationConfig{MachineControllerManager: number(0)}),
		Entry("the greatest numbers", preservation.MachinePreservationConfig{
			MachineControllerManager: number(3),
			Workers:                  []preservation.Worker{worker("system", number(4))},
		}),
		Entry("default that is too large for a pool with a number of its own", preservation.MachinePreservationConfig{
			MachineControllerManager: number(4),
			Workers:                  []preservation.Worker{worker("gpu", number(1))},
		}),
		Entry("default that is too large for the pools with a number of their own, here or in the Shoot", preservation.MachinePreservationConfig{
			MachineControllerManager: number(6),
			Workers:                  []preservation.Worker{worker("gpu", number(1)), worker("system", number(1))},
		}),
		Entry("timeouts", preservation.MachinePreservationConfig{
			MachineControllerManager: timeout(72 * time.Hour),
			Workers:                  []preservation.Worker{worker("gpu", timeout(10*time.Second))},
		}),
	)

	DescribeTable("invalid",
		func(config preservation.MachinePreservationConfig, messages ...string) {
			var actual []string
			for _, err := range ValidateMachinePreservationConfig(&config, pools, field.NewPath("providerConfig")) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(Equal(messages))
		},

		Entry("unknown pool", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("worker-x", number(99))}},
			`providerConfig.workers[0].name: Unsupported value: "worker-x": supported values: "system", "gpu", "native"`),
		Entry("no name", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("", nil)}},
			`providerConfig.workers[0].name: Required value: must be the name of a worker pool`),
		Entry("duplicate name", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", nil), worker("system", nil), worker("gpu", nil)}},
			`providerConfig.workers[2].name: Duplicate value: "gpu": each worker pool may be named only once`),
		Entry("negative number of a worker", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", number(-1))}},
			`providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: -1: must not be negative`),
		Entry("negative default", preservation.MachinePreservationConfig{MachineControllerManager: number(-2)},
			`providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: -2: must not be negative`),
		Entry("number above the maximum", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", number(4))}},
			`providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 4: must be at most 3, the maximum of worker pool "gpu"`),
		Entry("number that leaves nothing for system components", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("system", number(5))}},
			`providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 5: must be at most 4, one less than the maximum of worker pool "system", because system components may run there`),
		Entry("number above the maximum of a pool with a number in the Shoot", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("native", number(3))}},
			`providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 3: must be at most 2, the maximum of worker pool "native"`),
		Entry("default that is too large for both pools", preservation.MachinePreservationConfig{MachineControllerManager: number(2147483647)},
			`providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 2147483647: must be at most 4, one less than the maximum of worker pool "system", because system components may run there`,
			`providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 2147483647: must be at most 3, the maximum of worker pool "gpu"`),
		Entry("default that is too large for the pool without a number of its own", preservation.MachinePreservationConfig{
			MachineControllerManager: number(4),
			Workers:                  []preservation.Worker{worker("gpu", timeout(time.Hour))},
		},
			`providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 4: must be at most 3, the maximum of worker pool "gpu"`),
		Entry("zero timeout of a worker", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", timeout(0))}},
			`providerConfig.workers[0].machineControllerManager.machinePreserveTimeout: Invalid value: "0s": must be at least 10s`),
		Entry("timeout that is too short", preservation.MachinePreservationConfig{Workers: []preservation.Worker{worker("gpu", timeout(9999*time.Millisecond))}},
			`providerConfig.workers[0].machineControllerManager.machinePreserveTimeout: Invalid value: "9.999s": must be at least 10s`),
		Entry("negative default timeout", preservation.MachinePreservationConfig{MachineControllerManager: timeout(-time.Hour)},
			`providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: "-1h0m0s": must be at least 10s`),
	)

	const longest = 8760 * time.Hour
	DescribeTable("drain strategies",
		func(edit func(*preservation.DrainStrategies), messages ...string) {
			strategies := &preservation.DrainStrategies{
				Disabled:             new(false),
				Timeout:              &metav1.Duration{Duration: 45 * time.Minute},
				ExpectedDrainTime:    &metav1.Duration{Duration: 8 * time.Minute},
				PDBForceDrainTimeout: &metav1.Duration{Duration: time.Hour},
			}
			edit(strategies)
			var actual []string
			for _, err := range ValidateMachinePreservationConfig(&preservation.MachinePreservationConfig{DrainStrategies: strategies}, pools, field.NewPath("providerConfig")) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},

		Entry("defaults", func(*preservation.DrainStrategies) {}),
		Entry("shortest", func(s *preservation.DrainStrategies) {
			s.Timeout.Duration, s.ExpectedDrainTime.Duration, s.PDBForceDrainTimeout.Duration = time.Nanosecond, time.Nanosecond, 0
		}),
		Entry("patterns", func(s *preservation.DrainStrategies) { s.IgnoredNamespacePatterns = []string{"", "kube-.*", "a|b"} }),
		Entry("no timeout", func(s *preservation.DrainStrategies) { s.Timeout.Duration = 0 },
			`providerConfig.drainStrategies.timeout: Invalid value: "0s": must be greater than 0s`),
		Entry("negative times", func(s *preservation.DrainStrategies) {
			s.Timeout.Duration, s.ExpectedDrainTime.Duration, s.PDBForceDrainTimeout.Duration = -time.Second, -time.Second, -time.Second
		},
			`providerConfig.drainStrategies.timeout: Invalid value: "-1s": must be greater than 0s`,
			`providerConfig.drainStrategies.expectedDrainTime: Invalid value: "-1s": must be greater than 0s`,
			`providerConfig.drainStrategies.pdbForceDrainTimeout: Invalid value: "-1s": must not be negative`),
		Entry("no expected time", func(s *preservation.DrainStrategies) { s.ExpectedDrainTime.Duration = 0 },
			`providerConfig.drainStrategies.expectedDrainTime: Invalid value: "0s": must be greater than 0s`),
		Entry("longest", func(s *preservation.DrainStrategies) {
			s.Timeout.Duration, s.ExpectedDrainTime.Duration, s.PDBForceDrainTimeout.Duration = longest, longest, longest
		}),
		Entry("times that are too long", func(s *preservation.DrainStrategies) {
			s.Timeout.Duration, s.ExpectedDrainTime.Duration, s.PDBForceDrainTimeout.Duration = longest+1, longest+1, math.MaxInt64
		},
			`providerConfig.drainStrategies.timeout: Invalid value: "8760h0m0.000000001s": must be at most 8760h0m0s`,
			`providerConfig.drainStrategies.expectedDrainTime: Invalid value: "8760h0m0.000000001s": must be at most 8760h0m0s`,
			`providerConfig.drainStrategies.pdbForceDrainTimeout: Invalid value: "2562047h47m16.854775807s": must be at most 8760h0m0s`),
		Entry("expected time beyond the timeout", func(s *preservation.DrainStrategies) { s.Timeout.Duration = time.Minute },
			`providerConfig.drainStrategies.expectedDrainTime: Invalid value: "8m0s": must be at most 1m0s, the timeout`),
		Entry("pattern that does not compile", func(s *preservation.DrainStrategies) { s.IgnoredNamespacePatterns = []string{"a", "*"} },
			"providerConfig.drainStrategies.ignoredNamespacePatterns[1]: Invalid value: \"*\": must be a regular expression: error parsing regexp: missing argument to repetition operator: `*`"),
		Entry("too many patterns", func(s *preservation.DrainStrategies) { s.IgnoredNamespacePatterns = make([]string, 33) },
			`providerConfig.drainStrategies.ignoredNamespacePatterns: Too many: 33: must have at most 32 items`),
	)

	DescribeTable("evidence", func(retention time.Duration, messages ...string) {
		evidence := &preservation.Evidence{Enabled: new(false), Retention: &metav1.Duration{Duration: retention}}
		var actual []string
		for _, err := range ValidateMachinePreservationConfig(&preservation.MachinePreservationConfig{Evidence: evidence}, pools, field.NewPath("providerConfig")) {
			actual = append(actual, err.Error())
		}
		Expect(actual).To(HaveExactElements(messages))
	},
		Entry("default", 168*time.Hour),
		Entry("shortest", time.Hour),
		Entry("longest", 720*time.Hour),
		Entry("too short", time.Hour-time.Second, `providerConfig.evidence.retention: Invalid value: "59m59s": must be between 1h0m0s and 720h0m0s`),
		Entry("too long", 720*time.Hour+time.Second, `providerConfig.evidence.retention: Invalid value: "720h0m1s": must be between 1h0m0s and 720h0m0s`),
	)

	DescribeTable("node maintenance",
		func(edit func(*preservation.NodeMaintenance), messages ...string) {
			maintenance := &preservation.NodeMaintenance{
				MaxParallelOperations:  new(intstr.FromInt32(1)),
				MaxNodeMaintenanceTime: &metav1.Duration{Duration: time.Hour},
				LogLevel:               new(preservation.LogLevel("info")),
				MaxHoldTime:            &metav1.Duration{Duration: 24 * time.Hour},
			}
			edit(maintenance)
			var actual []string
			for _, err := range ValidateMachinePreservationConfig(&preservation.MachinePreservationConfig{NodeMaintenance: maintenance}, pools, field.NewPath("providerConfig")) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},

		Entry("defaults", func(*preservation.NodeMaintenance) {}),
		Entry("smallest", func(m *preservation.NodeMaintenance) {
			*m.MaxParallelOperations, m.MaxUnavailable = intstr.FromInt32(0), new(intstr.FromString("0%"))
			m.MaxNodeMaintenanceTime.Duration, m.MaxHoldTime.Duration = time.Second, 10*time.Second
		}),
		Entry("largest", func(m *preservation.NodeMaintenance) {
			*m.MaxParallelOperations, m.MaxUnavailable = intstr.FromString("100%"), new(intstr.FromInt32(math.MaxInt32))
			m.MaxNodeMaintenanceTime.Duration = math.MaxInt32 * time.Second
			for i := range 32 {
				m.Namespaces = append(m.Namespaces, fmt.Sprintf("n%d", i))
			}
		}),
		Entry("negative numbers", func(m *preservation.NodeMaintenance) {
			*m.MaxParallelOperations, m.MaxUnavailable = intstr.FromInt32(-1), new(intstr.FromString("-1%"))
		},
			`providerConfig.nodeMaintenance.maxParallelOperations: Invalid value: -1: must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`,
			`providerConfig.nodeMaintenance.maxUnavailable: Invalid value: "-1%": must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("no percentages", func(m *preservation.NodeMaintenance) {
			*m.MaxParallelOperations, m.MaxUnavailable = intstr.FromString("10"), new(intstr.FromString("101%"))
		},
			`providerConfig.nodeMaintenance.maxParallelOperations: Invalid value: "10": must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`,
			`providerConfig.nodeMaintenance.maxUnavailable: Invalid value: "101%": must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("percentages that the API server does not accept", func(m *preservation.NodeMaintenance) {
			*m.MaxParallelOperations, m.MaxUnavailable = intstr.FromString("05%"), new(intstr.FromString("%"))
		},
			`providerConfig.nodeMaintenance.maxParallelOperations: Invalid value: "05%": must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`,
			`providerConfig.nodeMaintenance.maxUnavailable: Invalid value: "%": must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("times that are too short", func(m *preservation.NodeMaintenance) {
			m.MaxNodeMaintenanceTime.Duration, m.MaxHoldTime.Duration = time.Millisecond, 9*time.Second
		},
			`providerConfig.nodeMaintenance.maxNodeMaintenanceTime: Invalid value: "1ms": must be between 1s and 596523h14m7s`,
			`providerConfig.nodeMaintenance.maxHoldTime: Invalid value: "9s": must be at least 10s`),
		Entry("time that is too long", func(m *preservation.NodeMaintenance) {
			m.MaxNodeMaintenanceTime.Duration = math.MaxInt32*time.Second + time.Second
		}, `providerConfig.nodeMaintenance.maxNodeMaintenanceTime: Invalid value: "596523h14m8s": must be between 1s and 596523h14m7s`),
		Entry("time with a fraction of a second", func(m *preservation.NodeMaintenance) { m.MaxNodeMaintenanceTime.Duration = 1500 * time.Millisecond },
			`providerConfig.nodeMaintenance.maxNodeMaintenanceTime: Invalid value: "1.5s": must be a whole number of seconds`),
		Entry("level", func(m *preservation.NodeMaintenance) { *m.LogLevel = "warn" },
			`providerConfig.nodeMaintenance.logLevel: Unsupported value: "warn": supported values: "debug", "info", "error"`),
		Entry("namespaces", func(m *preservation.NodeMaintenance) { m.Namespaces = []string{"a", "*", "a"} },
			`providerConfig.nodeMaintenance.namespaces[1]: Invalid value: "*": must be the name of a namespace: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`providerConfig.nodeMaintenance.namespaces[2]: Duplicate value: "a": each namespace may be named only once`),
		Entry("too many namespaces", func(m *preservation.NodeMaintenance) { m.Namespaces = make([]string, 33) },
			`providerConfig.nodeMaintenance.namespaces: Too many: 33: must have at most 32 items`),
	)

	DescribeTable("X5, X6, X8: power cycles",
		func(edit func(*preservation.PowerCycle), messages ...string) {
			minutes := func(n time.Duration) *metav1.Duration { return &metav1.Duration{Duration: n * time.Minute} }
			powerCycle := &preservation.PowerCycle{
				Automatic: new(preservation.AutomaticPowerCycle("false")), Fencing: new(preservation.Fencing("OutOfServiceTaint")),
				MaxAttempts: new(int32(1)), MaxConcurrent: new(int32(1)),
				PowerOffTimeout: minutes(10), PowerOnTimeout: minutes(10), NodeStartupTimeout: minutes(10),
			}
			edit(powerCycle)
			config := &preservation.MachinePreservationConfig{Workers: []preservation.Worker{{Name: "system"}, {Name: "gpu", PowerCycle: powerCycle}}}
			var actual []string
			for _, err := range ValidateMachinePreservationConfig(config, pools, field.NewPath("providerConfig")) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},

		Entry("defaults", func(*preservation.PowerCycle) {}),
		Entry("smallest", func(p *preservation.PowerCycle) {
			p.PowerOffTimeout.Duration, p.PowerOnTimeout.Duration, p.NodeStartupTimeout.Duration = time.Minute, time.Minute, time.Minute
		}),
		Entry("largest", func(p *preservation.PowerCycle) {
			*p.MaxAttempts, *p.MaxConcurrent = 5, math.MaxInt32
			p.PowerOffTimeout.Duration, p.PowerOnTimeout.Duration, p.NodeStartupTimeout.Duration = time.Hour, time.Hour, time.Hour
		}),
		Entry("fencing", func(p *preservation.PowerCycle) { *p.Fencing = "DeleteNode" },
			`providerConfig.workers[1].powerCycle.fencing: Unsupported value: "DeleteNode": supported values: "OutOfServiceTaint"`),
		Entry("no attempt", func(p *preservation.PowerCycle) { *p.MaxAttempts = 0 },
			`providerConfig.workers[1].powerCycle.maxAttempts: Invalid value: 0: must be between 1 and 5`),
		Entry("too many attempts", func(p *preservation.PowerCycle) { *p.MaxAttempts = 6 },
			`providerConfig.workers[1].powerCycle.maxAttempts: Invalid value: 6: must be between 1 and 5`),
		Entry("no machine at a time", func(p *preservation.PowerCycle) { *p.MaxConcurrent = 0 },
			`providerConfig.workers[1].powerCycle.maxConcurrent: Invalid value: 0: must be at least 1`),
		Entry("timeouts", func(p *preservation.PowerCycle) {
			p.PowerOffTimeout.Duration, p.PowerOnTimeout.Duration, p.NodeStartupTimeout.Duration = 59*time.Second, -time.Minute, time.Hour+time.Second
		},
			`providerConfig.workers[1].powerCycle.powerOffTimeout: Invalid value: "59s": must be between 1m0s and 1h0m0s`,
			`providerConfig.workers[1].powerCycle.powerOnTimeout: Invalid value: "-1m0s": must be between 1m0s and 1h0m0s`,
			`providerConfig.workers[1].powerCycle.nodeStartupTimeout: Invalid value: "1h0m1s": must be between 1m0s and 1h0m0s`),
	)

	DescribeTable("V1: validation",
		func(edit func(*preservation.Validation), messages ...string) {
			validation := &preservation.Validation{Condition: new("GPUHealthy"), Timeout: &metav1.Duration{Duration: 15 * time.Minute}, OnTimeout: new(preservation.OnTimeout("Keep"))}
			edit(validation)
			config := &preservation.MachinePreservationConfig{Workers: []preservation.Worker{{Name: "system"}, {Name: "gpu", Validation: validation}}}
			var actual []string
			for _, err := range ValidateMachinePreservationConfig(config, pools, field.NewPath("providerConfig")) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},

		Entry("a condition", func(*preservation.Validation) {}),
		Entry("a condition of somebody's domain", func(v *preservation.Validation) { *v.Condition = "example.com/GPUHealthy" }),
		Entry("a label", func(v *preservation.Validation) { v.Condition, v.Label = nil, new("example.com/gpu=healthy") }),
		Entry("a label without a value", func(v *preservation.Validation) { v.Condition, v.Label = nil, new("healthy=") }),
		Entry("shortest", func(v *preservation.Validation) { v.Timeout.Duration = time.Minute }),
		Entry("longest", func(v *preservation.Validation) { v.Timeout.Duration = 24 * time.Hour }),
		Entry("nothing", func(v *preservation.Validation) { v.Condition = nil },
			`providerConfig.workers[1].validation.condition: Required value: either condition or label must be set`),
		Entry("both", func(v *preservation.Validation) { v.Label = new("healthy=yes") },
			`providerConfig.workers[1].validation.label: Invalid value: "healthy=yes": must not be set, because condition is set: only one of them can be the proof`),
		Entry("what is no condition", func(v *preservation.Validation) { *v.Condition = "GPU healthy" },
			`providerConfig.workers[1].validation.condition: Invalid value: "GPU healthy": must be the type of a Node condition, for example "GPUHealthy": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`),
		Entry("a condition that is too long", func(v *preservation.Validation) {
			*v.Condition = strings.Repeat("a", 70) + "/" + strings.Repeat("b", 60)
		},
			`providerConfig.workers[1].validation.condition: Too long: may not be more than 128 bytes`),
		Entry("a label without a key", func(v *preservation.Validation) { v.Condition, v.Label = nil, new("healthy") },
			`providerConfig.workers[1].validation.label: Invalid value: "healthy": must be a label as key=value, for example "example.com/gpu=healthy"`),
		Entry("timeout too short", func(v *preservation.Validation) { v.Timeout.Duration = 59 * time.Second },
			`providerConfig.workers[1].validation.timeout: Invalid value: "59s": must be between 1m0s and 24h0m0s`),
		Entry("timeout too long", func(v *preservation.Validation) { v.Timeout.Duration = 25 * time.Hour },
			`providerConfig.workers[1].validation.timeout: Invalid value: "25h0m0s": must be between 1m0s and 24h0m0s`),
		Entry("what there is no means for", func(v *preservation.Validation) { *v.OnTimeout = "Replace" },
			`providerConfig.workers[1].validation.onTimeout: Invalid value: "Replace": must be Keep: machine-controller-manager replaces no machine that is healthy. Delete the Node to have its machine replaced`),
		Entry("what there is not", func(v *preservation.Validation) { *v.OnTimeout = "replace" },
			`providerConfig.workers[1].validation.onTimeout: Unsupported value: "replace": supported values: "Keep"`),
	)

	DescribeTable("V1: conditions that mean something else already", func(condition string) {
		validation := &preservation.Validation{Condition: &condition, Timeout: &metav1.Duration{Duration: 15 * time.Minute}, OnTimeout: new(preservation.OnTimeout("Keep"))}
		Expect(ValidateValidation(validation, nil)).To(ConsistOf(HaveField("Detail", ContainSubstring("uses this condition for something else"))))
	},
		Entry(nil, "Ready"), Entry(nil, "MemoryPressure"), Entry(nil, "DiskPressure"), Entry(nil, "NetworkUnavailable"), Entry(nil, "KernelDeadlock"), Entry(nil, "ReadonlyFilesystem"),
		Entry(nil, "InPlaceUpdate"), Entry(nil, "Preserved"), Entry(nil, "PowerCycle"), Entry(nil, "NodeDrain"), Entry(nil, "Drained"), Entry(nil, "MaintenanceInProgress"),
	)

	It("should refuse every name if there are no pools", func() {
		config := preservation.MachinePreservationConfig{
			MachineControllerManager: number(1),
			Workers:                  []preservation.Worker{worker("gpu", number(1))},
		}
		Expect(ValidateMachinePreservationConfig(&config, nil, field.NewPath("providerConfig")).ToAggregate()).To(MatchError(
			`providerConfig.workers[0].name: Invalid value: "gpu": the Shoot has no worker pools`,
		))
	})
})
