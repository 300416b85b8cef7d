// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1/validation"
)

func hours(n time.Duration) *metav1.Duration { return &metav1.Duration{Duration: n * time.Hour} }

var _ = Describe("#ValidateControllerConfiguration", func() {
	It("should accept the defaults", func() {
		config := &configv1alpha1.ControllerConfiguration{}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
		Expect(ValidateControllerConfiguration(config)).To(BeEmpty())
	})

	It("should name every bad field", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax:      new(int32(-1)),
			MachinePreserveTimeout:     &metav1.Duration{Duration: 9 * time.Second},
			MaxMachinePreserveTimeout:  &metav1.Duration{Duration: 9 * time.Second},
			MaxNodeMaintenanceOvertime: &metav1.Duration{Duration: -time.Second},
		}).ToAggregate()).To(MatchError(
			`[autoPreserveFailedMax: Invalid value: -1: must not be negative, maxMachinePreserveTimeout: Invalid value: "9s": must be at least 10s, machinePreserveTimeout: Invalid value: "9s": must be at least 10s, maxNodeMaintenanceOvertime: Invalid value: "-1s": must not be negative]`,
		))
	})

	It("P13: should not accept a default that is longer than what is allowed", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			MachinePreserveTimeout:    &metav1.Duration{Duration: 72 * time.Hour},
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: 24 * time.Hour},
		}).ToAggregate()).To(MatchError(
			`machinePreserveTimeout: Invalid value: "72h0m0s": must not be longer than maxMachinePreserveTimeout, which is 24h0m0s`,
		))
	})

	It("should not accept a default that is greater than what is allowed", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(3)), MaxAutoPreserveFailed: new(int32(2)),
		}).ToAggregate()).To(MatchError(`autoPreserveFailedMax: Invalid value: 3: must not be greater than maxAutoPreserveFailed, which is 2`))
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(2)), MaxAutoPreserveFailed: new(int32(2)),
		})).To(BeEmpty())
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax: new(int32(0)), MaxAutoPreserveFailed: new(int32(-1)),
		}).ToAggregate()).To(MatchError(`maxAutoPreserveFailed: Invalid value: -1: must not be negative`))
	})

	It("P18: should accept a limit of machine-hours, and none that allows nothing", func() {
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{MaxMachineHours: new(int32(1))})).To(BeEmpty())
		Expect(ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{MaxMachineHours: new(int32(0))}).ToAggregate()).
			To(MatchError(`maxMachineHours: Invalid value: 0: must be at least 1`))
	})

	DescribeTable("X11: hosts",
		func(hosts configv1alpha1.Hosts, longest time.Duration, messages ...string) {
			configv1alpha1.SetDefaults_Hosts(&hosts)
			if hosts.Quarantine != nil {
				configv1alpha1.SetDefaults_Quarantine(hosts.Quarantine)
			}
			var actual []string
			for _, err := range ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{Hosts: &hosts, MaxMachinePreserveTimeout: &metav1.Duration{Duration: longest}}) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},
		Entry("BareMetalHosts", configv1alpha1.Hosts{Kind: "BareMetalHost", Automatic: true, ShootRequests: true}, 5*time.Hour),
		Entry("BareMetalHosts elsewhere", configv1alpha1.Hosts{Kind: "BareMetalHost", KubeconfigSecretName: "metal3"}, 5*time.Hour),
		Entry("ServerClaims", configv1alpha1.Hosts{Kind: "ServerClaim", KubeconfigSecretName: "metal", PXEBootKeepsDisks: true, PowerOffEnforced: true}, 5*time.Hour),
		Entry("no kind", configv1alpha1.Hosts{}, 5*time.Hour, `hosts.kind: Required value: must be one of ["BareMetalHost" "ServerClaim"]`),
		Entry("another kind", configv1alpha1.Hosts{Kind: "Server"}, 5*time.Hour, `hosts.kind: Unsupported value: "Server": supported values: "BareMetalHost", "ServerClaim"`),
		Entry("ServerClaims of which nothing is known", configv1alpha1.Hosts{Kind: "ServerClaim"}, 5*time.Hour,
			`hosts.kubeconfigSecretName: Required value: must be set for ServerClaims, because each shoot would see all Servers of the seed otherwise`,
			`hosts.pxeBootKeepsDisks: Invalid value: false: must be true for ServerClaims, because metal-operator boots Servers that it finds off by PXE`,
			`hosts.powerOffEnforced: Invalid value: false: must be true for ServerClaims, because without --enforce-power-off metal-operator does not power off Servers that hang`),
		Entry("a name that is none", configv1alpha1.Hosts{Kind: "BareMetalHost", KubeconfigSecretName: "a/b"}, 5*time.Hour,
			`hosts.kubeconfigSecretName: Invalid value: "a/b": must be the name of a Secret: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`),
		Entry("machines that are not kept for long enough", configv1alpha1.Hosts{Kind: "BareMetalHost"}, 5*time.Hour-time.Second,
			`maxMachinePreserveTimeout: Invalid value: "4h59m59s": must be at least 5h0m0s if hosts are configured: a power cycle may take 3h0m0s, and hosts.maxServicing adds 2h0m0s`),
		Entry("X18: machines that are not kept for as long as their hosts are serviced", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxServicing: hours(24)}, 26*time.Hour,
			`maxMachinePreserveTimeout: Invalid value: "26h0m0s": must be at least 27h0m0s if hosts are configured: a power cycle may take 3h0m0s, and hosts.maxServicing adds 24h0m0s`),
		Entry("X18: hosts that are hardly serviced", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxServicing: &metav1.Duration{Duration: 10 * time.Minute}}, 3*time.Hour+10*time.Minute),
		Entry("X18: hosts that are serviced for too short a time", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxServicing: hours(0)}, 5*time.Hour,
			`hosts.maxServicing: Invalid value: "0s": must be between 10m0s and 24h0m0s`),
		Entry("X18: hosts that are serviced for too long", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxServicing: hours(25)}, 5*time.Hour,
			`hosts.maxServicing: Invalid value: "25h0m0s": must be between 10m0s and 24h0m0s`),
		Entry("X8: limits", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxPerShoot: new(int32(1)), MaxPerSeed: new(int32(1))}, 5*time.Hour),
		Entry("X8: limits that let none through", configv1alpha1.Hosts{Kind: "BareMetalHost", MaxPerShoot: new(int32(0)), MaxPerSeed: new(int32(-1))}, 5*time.Hour,
			`hosts.maxPerShoot: Invalid value: 0: must be at least 1. To have no limit, omit the field`,
			`hosts.maxPerSeed: Invalid value: -1: must be at least 1. To have no limit, omit the field`),
	)

	DescribeTable("quarantine",
		func(kind configv1alpha1.HostKind, quarantine configv1alpha1.Quarantine, messages ...string) {
			hosts := configv1alpha1.Hosts{Kind: kind, KubeconfigSecretName: "metal", PXEBootKeepsDisks: true, PowerOffEnforced: true, Quarantine: &quarantine}
			configv1alpha1.SetDefaults_Hosts(&hosts)
			configv1alpha1.SetDefaults_Quarantine(&quarantine)
			var actual []string
			for _, err := range ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{Hosts: &hosts, MaxMachinePreserveTimeout: hours(5)}) {
				actual = append(actual, err.Error())
			}
			Expect(actual).To(HaveExactElements(messages))
		},
		Entry("the defaults", configv1alpha1.HostKindServerClaim, configv1alpha1.Quarantine{}),
		Entry("the least", configv1alpha1.HostKindServerClaim, configv1alpha1.Quarantine{Failures: new(int32(2)), Period: hours(24)}),
		Entry("of what cannot be", configv1alpha1.HostKindBareMetalHost, configv1alpha1.Quarantine{},
			"hosts.quarantine: Forbidden: is supported for ServerClaims only: nothing prevents that another machine gets a BareMetalHost"),
		Entry("after one failure", configv1alpha1.HostKindServerClaim, configv1alpha1.Quarantine{Failures: new(int32(1))},
			"hosts.quarantine.failures: Invalid value: 1: must be at least 2. To put no hosts into quarantine, omit quarantine"),
		Entry("too short", configv1alpha1.HostKindServerClaim, configv1alpha1.Quarantine{Period: hours(23)},
			`hosts.quarantine.period: Invalid value: "23h0m0s": must be between 24h0m0s and 720h0m0s`),
		Entry("too long", configv1alpha1.HostKindServerClaim, configv1alpha1.Quarantine{Period: hours(721)},
			`hosts.quarantine.period: Invalid value: "721h0m0s": must be between 24h0m0s and 720h0m0s`),
	)

	DescribeTable("P16: storm", func(storm configv1alpha1.Storm, messages ...string) {
		configv1alpha1.SetDefaults_Storm(&storm)
		var actual []string
		for _, err := range ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{Storm: &storm}) {
			actual = append(actual, err.Error())
		}
		Expect(actual).To(HaveExactElements(messages))
	},
		Entry("a number", configv1alpha1.Storm{MaxFailing: new(int32(1))}),
		Entry("a percentage", configv1alpha1.Storm{MaxFailingPercent: new(int32(100)), SettlingTime: hours(6)}),
		Entry("both", configv1alpha1.Storm{MaxFailing: new(int32(3)), MaxFailingPercent: new(int32(1)), SettlingTime: &metav1.Duration{Duration: 10 * time.Second}}),
		Entry("no limit", configv1alpha1.Storm{}, "storm.maxFailing: Required value: maxFailing or maxFailingPercent must be set. To count no machines, omit storm"),
		Entry("limits that let none through", configv1alpha1.Storm{MaxFailing: new(int32(0)), MaxFailingPercent: new(int32(0))},
			"storm.maxFailing: Invalid value: 0: must be at least 1. To have only a percentage as the limit, omit the field",
			"storm.maxFailingPercent: Invalid value: 0: must be between 1 and 100. To have only a number as the limit, omit the field"),
		Entry("more than all", configv1alpha1.Storm{MaxFailingPercent: new(int32(101))},
			"storm.maxFailingPercent: Invalid value: 101: must be between 1 and 100. To have only a number as the limit, omit the field"),
		Entry("no time to settle", configv1alpha1.Storm{MaxFailing: new(int32(1)), SettlingTime: hours(0)}, `storm.settlingTime: Invalid value: "0s": must be between 10s and 6h0m0s`),
		Entry("too much time to settle", configv1alpha1.Storm{MaxFailing: new(int32(1)), SettlingTime: hours(7)}, `storm.settlingTime: Invalid value: "7h0m0s": must be between 10s and 6h0m0s`),
	)

	DescribeTable("evidence", func(evidence configv1alpha1.Evidence, messages ...string) {
		configv1alpha1.SetDefaults_Evidence(&evidence)
		var actual []string
		for _, err := range ValidateControllerConfiguration(&configv1alpha1.ControllerConfiguration{Evidence: &evidence}) {
			actual = append(actual, err.Error())
		}
		Expect(actual).To(HaveExactElements(messages))
	},
		Entry("the defaults", configv1alpha1.Evidence{}),
		Entry("the least", configv1alpha1.Evidence{Budget: new(resource.MustParse("1Mi")), SeedBudget: new(resource.MustParse("16Mi")), MaxRetention: &metav1.Duration{Duration: time.Hour}}),
		Entry("too little", configv1alpha1.Evidence{Budget: new(resource.MustParse("1M"))}, `evidence.budget: Invalid value: "1M": must be at least 1Mi`),
		Entry("too little for a seed", configv1alpha1.Evidence{SeedBudget: new(resource.MustParse("15Mi"))},
			`evidence.seedBudget: Invalid value: "15Mi": must be at least 16Mi, because each control plane on the seed may store at least 64Ki`),
		Entry("less for all than for one", configv1alpha1.Evidence{Budget: new(resource.MustParse("18Mi")), SeedBudget: new(resource.MustParse("17Mi"))}, `evidence.seedBudget: Invalid value: "17Mi": must not be less than budget, which is 18Mi`),
		Entry("too short", configv1alpha1.Evidence{MaxRetention: &metav1.Duration{Duration: time.Minute}}, `evidence.maxRetention: Invalid value: "1m0s": must be between 1h0m0s and 720h0m0s`),
		Entry("too long", configv1alpha1.Evidence{MaxRetention: &metav1.Duration{Duration: 721 * time.Hour}}, `evidence.maxRetention: Invalid value: "721h0m0s": must be between 1h0m0s and 720h0m0s`),
	)

	DescribeTable("injection",
		func(config configv1alpha1.ControllerConfiguration, message string) {
			errs := ValidateControllerConfiguration(&config).ToAggregate()
			if message == "" {
				Expect(errs).NotTo(HaveOccurred())
				return
			}
			Expect(errs).To(MatchError(message))
		},
		Entry("with the next reconciliation", configv1alpha1.ControllerConfiguration{Injection: new(configv1alpha1.InjectionWithNextReconciliation)}, ""),
		Entry("no failure and all of them", configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(0)), InjectionMaxFailedPercent: new(int32(100))}, ""),
		Entry("no such way", configv1alpha1.ControllerConfiguration{Injection: new(configv1alpha1.Injection("Never"))},
			`injection: Unsupported value: "Never": supported values: "InWaves", "WithNextReconciliation"`),
		Entry("a negative number", configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(-1))}, `injectionMaxFailed: Invalid value: -1: must not be negative`),
		Entry("a negative share", configv1alpha1.ControllerConfiguration{InjectionMaxFailedPercent: new(int32(-1))}, `injectionMaxFailedPercent: Invalid value: -1: must be between 0 and 100`),
		Entry("more than all", configv1alpha1.ControllerConfiguration{InjectionMaxFailedPercent: new(int32(101))}, `injectionMaxFailedPercent: Invalid value: 101: must be between 0 and 100`),
	)
})
