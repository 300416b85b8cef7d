// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
)

var _ = Describe("Options", func() {
	parse := func(args ...string) *Options {
		GinkgoHelper()
		opts := &Options{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		opts.AddFlags(flags)
		Expect(flags.Parse(args)).To(Succeed())
		return opts
	}
	valid := []string{"--namespace=shoot--a--b", "--target-kubeconfig=/kubeconfig", "--holder=health-timer"}

	It("should set what the flags say, and the defaults of machine-controller-manager for the rest", func() {
		Expect(parse(append(valid, "--node-conditions=ReadonlyFilesystem,GPUFault")...).NodeConditions).To(Equal([]string{"ReadonlyFilesystem", "GPUFault"}))
		Expect(parse(append(valid, "--node-conditions=")...).NodeConditions).To(BeEmpty())
		Expect(parse(append(valid, "--machine-health-timeout=5m")...)).To(Equal(&Options{
			Namespace:          "shoot--a--b",
			ControlKubeconfig:  "inClusterConfig",
			TargetKubeconfig:   "/kubeconfig",
			Holder:             "health-timer",
			MaxPreserveTimeout: 336 * time.Hour,
			Timeouts:           facts.Timeouts{Health: 5 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
			NodeConditions:     []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"},
			Storm:              facts.StormLimits{SettlingTime: 10 * time.Minute},
			DrainStrategies: DrainStrategies{
				Strategies: drain.Strategies{Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute, PDBForceDrainTimeout: time.Hour},
			},
			NodeMaintenance:        NodeMaintenance{MaxHoldTime: 24 * time.Hour, MaxOvertime: 24 * time.Hour},
			PowerCycle:             PowerCycle{MaxServicing: 2 * time.Hour},
			Evidence:               Evidence{Retention: 168 * time.Hour, Budget: 8 << 20},
			MetricsBindAddress:     ":10260",
			HealthProbeBindAddress: ":10261",
		}))
	})

	It("D13: should show drains only if the flags say so", func() {
		Expect(parse(append(valid, "--drain-conditions")...).DrainConditions).To(BeTrue())
	})

	It("M17: should take maintenances from the namespaces that the flags say", func() {
		Expect(parse(append(valid, "--node-maintenance", "--node-maintenance-max-hold-time=36h", "--node-maintenance-max-overtime=0s", "--node-maintenance-namespaces=a,b")...).NodeMaintenance).
			To(Equal(NodeMaintenance{Enabled: true, MaxHoldTime: 36 * time.Hour, Namespaces: []string{"a", "b"}}))
	})

	It("P16, X21: should count failures that come at once only if the flags say so", func() {
		Expect(parse(valid...).Storm.Enabled()).To(BeFalse())
		Expect(parse(append(valid, "--storm-max-failing=3", "--storm-max-failing-percent=30", "--storm-settling-time=5m")...).Storm).
			To(Equal(facts.StormLimits{MaxFailing: 3, MaxFailingPercent: 30, SettlingTime: 5 * time.Minute}))
	})

	It("should store evidence only if the flags say so", func() {
		Expect(parse(append(valid, "--evidence", "--evidence-retention=24h", "--evidence-budget=2097152", "--evidence-node-logs")...).Evidence).
			To(Equal(Evidence{Enabled: true, Retention: 24 * time.Hour, Budget: 2 << 20, NodeLogs: true}))
	})

	It("X15: should power-cycle hosts only if the flags say so", func() {
		Expect(parse(append(valid, "--power-cycle", "--host-kind=BareMetalHost", "--seed-name=seed", "--host-kubeconfig=/hosts", "--power-cycle-shoot-requests")...).PowerCycle).
			To(Equal(PowerCycle{Enabled: true, HostKind: "BareMetalHost", SeedName: "seed", HostKubeconfig: "/hosts", ShootRequests: true, MaxServicing: 2 * time.Hour}))
	})

	It("P18: should count machine-hours only if the flags say so", func() {
		Expect(parse(append(valid, "--max-machine-hours=500")...).MaxMachineHours).To(BeEquivalentTo(500))
	})

	It("X8, X18: should bound power cycles as the flags say", func() {
		Expect(parse(append(valid, "--power-cycle", "--power-cycle-max-per-shoot=2", "--power-cycle-grants", "--power-cycle-max-servicing=1h")...).PowerCycle).
			To(Equal(PowerCycle{Enabled: true, MaxPerShoot: 2, Grants: true, MaxServicing: time.Hour}))
	})

	It("should put hosts into quarantine as the flags say", func() {
		Expect(parse(append(valid, "--quarantine-failures=4", "--quarantine-period=48h")...).PowerCycle.Quarantine).
			To(Equal(quarantine.Settings{Failures: 4, Period: 48 * time.Hour}))
	})

	DescribeTable("#Validate", func(args []string, messages ...string) {
		err := parse(append(valid, args...)...).Validate()
		if len(messages) == 0 {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(HaveOccurred())
		Expect(strings.Split(err.Error(), "\n")).To(Equal(messages))
	},
		Entry("the holder for machine-controller-manager < 0.62", nil),
		Entry("the holder for machine-controller-manager >= 0.62", []string{"--holder=preserve-expiry"}),
		Entry("no namespace", []string{"--namespace="}, "--namespace must be set"),
		Entry("no control kubeconfig", []string{"--control-kubeconfig="}, "--control-kubeconfig must be set"),
		Entry("no target kubeconfig", []string{"--target-kubeconfig="}, "--target-kubeconfig must be set"),
		Entry("no retention", []string{"--evidence-retention=0s"}, "--evidence-retention=0s must be greater than 0"),
		Entry("next to no budget", []string{"--evidence-budget=1048575"}, "--evidence-budget=1048575 must be at least 1048576"),
		Entry("no holder", []string{"--holder="}, `--holder="" must be preserve-expiry or health-timer`),
		Entry("an unknown holder", []string{"--holder=mcm"}, `--holder="mcm" must be preserve-expiry or health-timer`),
		Entry("P13: a time that is too short for any request", []string{"--max-machine-preserve-timeout=9s"}, "--max-machine-preserve-timeout=9s must be at least 10s"),
		Entry("P18: less than no machine-hours", []string{"--max-machine-hours=-1"}, "--max-machine-hours=-1 must not be negative"),
		Entry("no health timeout", []string{"--machine-health-timeout=0"}, "--machine-health-timeout=0s must be greater than 0"),
		Entry("a negative creation timeout", []string{"--machine-creation-timeout=-1s"}, "--machine-creation-timeout=-1s must be greater than 0"),
		Entry("a negative drain timeout", []string{"--machine-drain-timeout=-1h"}, "--machine-drain-timeout=-1h0m0s must be greater than 0"),
		Entry("no timeout of drain strategies", []string{"--drain-strategies-timeout=0"}, "--drain-strategies-timeout=0s must be greater than 0"),
		Entry("no expected drain time", []string{"--expected-drain-time=0"}, "--expected-drain-time=0s must be greater than 0"),
		Entry("an overtime that is over before it begins", []string{"--node-maintenance-max-overtime=-1s"}, "--node-maintenance-max-overtime=-1s must not be negative"),
		Entry("no time to hold machines for maintenances", []string{"--node-maintenance-max-hold-time=0"}, "--node-maintenance-max-hold-time=0s must be greater than 0"),
		Entry("a pattern that does not compile, which must not keep machines from being preserved", []string{"--drain-ignored-namespace-pattern=("}),
		Entry("D5: times of drain strategies that are too long, which must not either", []string{"--drain-strategies-timeout=2562047h47m", "--expected-drain-time=2562047h47m", "--pdb-force-drain-timeout=2562047h47m"}),
		Entry("hosts", []string{"--power-cycle", "--host-kind=ServerClaim", "--seed-name=seed"}),
		Entry("hosts that there is no driver for", []string{"--power-cycle", "--host-kind=Toaster", "--seed-name=seed"},
			`--host-kind: there is no driver for hosts of kind "Toaster", valid are ["BareMetalHost" "ServerClaim"]`),
		Entry("hosts that know no seed", []string{"--power-cycle", "--host-kind=BareMetalHost"}, "--seed-name must be set"),
		Entry("X8: less than no machines of a shoot", []string{"--power-cycle-max-per-shoot=-1"}, "--power-cycle-max-per-shoot=-1 must not be negative"),
		Entry("P16: limits of a storm that are none", []string{"--storm-max-failing=-1", "--storm-max-failing-percent=101", "--storm-settling-time=0"},
			"--storm-max-failing=-1 must not be negative", "--storm-max-failing-percent=101 must be between 0 and 100", "--storm-settling-time=0s must be greater than 0"),
		Entry("X18: no time for hosts that are being serviced", []string{"--power-cycle-max-servicing=0"}, "--power-cycle-max-servicing=0s must be greater than 0"),
		Entry("everything at once", []string{"--namespace=", "--holder=x", "--machine-drain-timeout=0"},
			"--namespace must be set", `--holder="x" must be preserve-expiry or health-timer`, "--machine-drain-timeout=0s must be greater than 0"),
	)
})

var _ = DescribeTable("Drain strategies", func(args []string, disabled bool, ignored ...string) {
	opts := &Options{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	opts.AddFlags(flags)
	Expect(flags.Parse(append(args, "--drain-strategies"))).To(Succeed())
	Expect(opts.DrainStrategies.Enabled).To(BeTrue())
	strategies, err := StrategiesOf(opts)
	Expect(strategies.Disabled).To(Equal(disabled))
	if err == nil {
		for _, namespace := range ignored {
			Expect(strategies.Ignores(namespace)).To(BeTrue(), namespace)
		}
	} else {
		Expect(err).To(MatchError(ignored[0]))
	}
},
	Entry("do everything", nil, false),
	Entry("are disabled", []string{"--drain-strategies-disabled"}, true),
	Entry("ignore namespaces, with commas in a pattern", []string{"--drain-ignored-namespace-pattern=a", "--drain-ignored-namespace-pattern=b{1,3}"}, false, "a", "bb"),
	Entry("D3: do nothing with a pattern that does not compile", []string{"--drain-ignored-namespace-pattern=a", "--drain-ignored-namespace-pattern=("}, true,
		"--drain-ignored-namespace-pattern=\"(\" cannot be used: error parsing regexp: missing closing ): `(`"),
)

var _ = Describe("Command", func() {
	It("should not start with flags that cannot be used", func(ctx SpecContext) {
		cmd := NewCommand()
		cmd.SetArgs([]string{"--namespace=a", "--target-kubeconfig=b", "--holder=c"})
		Expect(cmd.ExecuteContext(ctx)).To(MatchError(`--holder="c" must be preserve-expiry or health-timer`))
	})

	It("should say which kubeconfig cannot be read", func(ctx SpecContext) {
		cmd := NewCommand()
		cmd.SetArgs([]string{"--namespace=a", "--control-kubeconfig=/does/not/exist", "--target-kubeconfig=b", "--holder=health-timer"})
		Expect(cmd.ExecuteContext(ctx)).To(MatchError(HavePrefix("failed to read --control-kubeconfig: ")))
	})

	It("should take no arguments", func(ctx SpecContext) {
		cmd := NewCommand()
		cmd.SetArgs([]string{"now"})
		Expect(cmd.ExecuteContext(ctx)).To(MatchError(ContainSubstring(`unknown command "now"`)))
	})
})
