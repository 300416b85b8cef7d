// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"strings"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
	"github.com/gardener/gardener-extension-machine-preservation/test/hostile"
)

var _ = Describe("#ReadProviderConfig", func() {
	const head = `apiVersion: machine-preservation.extensions.gardener.cloud/v1alpha1
kind: MachinePreservationConfig
`

	pools := []share.Pool{{Name: "worker-a", Maximum: 3}, {Name: "worker-b", Maximum: 3}}

	readJSON := func(config string) (*preservation.MachinePreservationConfig, error) {
		return providerconfig.ReadProviderConfig(&runtime.RawExtension{Raw: []byte(config)}, pools, field.NewPath("spec", "providerConfig"))
	}
	read := func(config string) (*preservation.MachinePreservationConfig, error) {
		GinkgoHelper()
		raw, err := yaml.YAMLToJSON([]byte(config))
		Expect(err).NotTo(HaveOccurred())
		return readJSON(string(raw))
	}

	// extension is one with these fields in its configuration.
	extension := func(fields string) *extensionsv1alpha1.Extension {
		GinkgoHelper()
		raw, err := yaml.YAMLToJSON([]byte(head + fields))
		Expect(err).NotTo(HaveOccurred())
		return &extensionsv1alpha1.Extension{Spec: extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{ProviderConfig: &runtime.RawExtension{Raw: raw}}}}
	}
	// expectProblem expects an error exactly if there is to be a problem.
	expectProblem := func(err error, problem string) {
		GinkgoHelper()
		if problem != "" {
			Expect(err).To(MatchError(problem))
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
	}

	It("should return an empty configuration if there is none", func() {
		for _, raw := range []*runtime.RawExtension{nil, {}} {
			config, err := providerconfig.ReadProviderConfig(raw, pools, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(config).To(Equal(&preservation.MachinePreservationConfig{}))
		}
	})

	It("should decode every field to the internal version", func() {
		config, err := read(head + `
machineControllerManager:
  autoPreserveFailedMax: 1
  machinePreserveTimeout: 72h
  forceDeletePodsWithVolumes: true
  preferNewFailures: true
  distribution: Pool
workers:
- name: worker-a
  machineControllerManager:
    autoPreserveFailedMax: 2
    machinePreserveTimeout: 90m
    forceDeletePodsWithVolumes: false
- name: worker-b
  powerCycle:
    automatic: true
    fencing: OutOfServiceTaint
    maxAttempts: 2
    maxConcurrent: 3
    powerOffTimeout: 4m
    powerOnTimeout: 5m
    nodeStartupTimeout: 6m
  validation:
    condition: GPUHealthy
    timeout: 1h
    onTimeout: Keep
drainStrategies:
  disabled: true
  timeout: 30m
  expectedDrainTime: 5m
  pdbForceDrainTimeout: 0s
  ignoredNamespacePatterns: [kube-system, shop-.*]
drainConditions: true
nodeMaintenance:
  maxParallelOperations: 10%
  maxUnavailable: 3
  maxNodeMaintenanceTime: 2h
  logLevel: debug
  maxHoldTime: 48h
  namespaces: [operators]
evidence:
  enabled: true
  retention: 24h
  nodeLogs: true
`)
		Expect(err).NotTo(HaveOccurred())
		Expect(config).To(Equal(&preservation.MachinePreservationConfig{
			MachineControllerManager: &preservation.MachineControllerManagerSettings{
				AutoPreserveFailedMax:      new(int32(1)),
				MachinePreserveTimeout:     &metav1.Duration{Duration: 72 * time.Hour},
				ForceDeletePodsWithVolumes: new(true),
				PreferNewFailures:          new(true),
				Distribution:               new(preservation.Distribution("Pool")),
			},
			Workers: []preservation.Worker{
				{Name: "worker-a", MachineControllerManager: &preservation.MachineControllerManagerSettings{
					AutoPreserveFailedMax:      new(int32(2)),
					MachinePreserveTimeout:     &metav1.Duration{Duration: 90 * time.Minute},
					ForceDeletePodsWithVolumes: new(false),
				}},
				{Name: "worker-b", PowerCycle: &preservation.PowerCycle{
					Automatic:          new(preservation.AutomaticPowerCycle("true")),
					Fencing:            new(preservation.Fencing("OutOfServiceTaint")),
					MaxAttempts:        new(int32(2)),
					MaxConcurrent:      new(int32(3)),
					PowerOffTimeout:    &metav1.Duration{Duration: 4 * time.Minute},
					PowerOnTimeout:     &metav1.Duration{Duration: 5 * time.Minute},
					NodeStartupTimeout: &metav1.Duration{Duration: 6 * time.Minute},
				}, Validation: &preservation.Validation{
					Condition: new("GPUHealthy"),
					Timeout:   &metav1.Duration{Duration: time.Hour},
					OnTimeout: new(preservation.OnTimeout("Keep")),
				}},
			},
			DrainStrategies: &preservation.DrainStrategies{
				Disabled:                 new(true),
				Timeout:                  &metav1.Duration{Duration: 30 * time.Minute},
				ExpectedDrainTime:        &metav1.Duration{Duration: 5 * time.Minute},
				PDBForceDrainTimeout:     &metav1.Duration{},
				IgnoredNamespacePatterns: []string{"kube-system", "shop-.*"},
			},
			DrainConditions: new(true),
			NodeMaintenance: &preservation.NodeMaintenance{
				MaxParallelOperations:  new(intstr.FromString("10%")),
				MaxUnavailable:         new(intstr.FromInt32(3)),
				MaxNodeMaintenanceTime: &metav1.Duration{Duration: 2 * time.Hour},
				LogLevel:               new(preservation.LogLevel("debug")),
				MaxHoldTime:            &metav1.Duration{Duration: 48 * time.Hour},
				Namespaces:             []string{"operators"},
			},
			Evidence: &preservation.Evidence{Enabled: new(true), Retention: &metav1.Duration{Duration: 24 * time.Hour}, NodeLogs: new(true)},
		}))
	})

	It("should default drain strategies where there are any", func() {
		config, err := read(head + "drainStrategies: {}")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.DrainStrategies).To(Equal(&preservation.DrainStrategies{
			Disabled:             new(false),
			Timeout:              &metav1.Duration{Duration: 45 * time.Minute},
			ExpectedDrainTime:    &metav1.Duration{Duration: 8 * time.Minute},
			PDBForceDrainTimeout: &metav1.Duration{Duration: time.Hour},
		}))
		config, err = read(head)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.DrainStrategies).To(BeNil())
	})

	It("should default node maintenance where there is any", func() {
		config, err := read(head + "nodeMaintenance: {}")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.NodeMaintenance).To(Equal(&preservation.NodeMaintenance{
			MaxParallelOperations:  new(intstr.FromInt32(1)),
			MaxNodeMaintenanceTime: &metav1.Duration{Duration: time.Hour},
			LogLevel:               new(preservation.LogLevel("info")),
			MaxHoldTime:            &metav1.Duration{Duration: 24 * time.Hour},
		}))
		config, err = read(head)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.NodeMaintenance).To(BeNil())
	})

	It("should default evidence where it is named", func() {
		config, err := read(head + "evidence: {}")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Evidence).To(Equal(&preservation.Evidence{Enabled: new(false), Retention: &metav1.Duration{Duration: 168 * time.Hour}, NodeLogs: new(false)}))
		config, err = read(head)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Evidence).To(BeNil())
	})

	It("V1: should default the validation of pools that have one", func() {
		config, err := read(head + "workers: [{name: worker-a}, {name: worker-b, validation: {label: gpu=healthy}}]")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Workers).To(HaveExactElements(
			HaveField("Validation", BeNil()),
			HaveField("Validation", Equal(&preservation.Validation{Label: new("gpu=healthy"), Timeout: &metav1.Duration{Duration: 15 * time.Minute}, OnTimeout: new(preservation.OnTimeout("Keep"))})),
		))
	})

	It("should default the power cycles of pools that have them", func() {
		config, err := read(head + "workers: [{name: worker-a}, {name: worker-b, powerCycle: {}}]")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Workers[0].PowerCycle).To(BeNil())
		Expect(config.Workers[1].PowerCycle).To(Equal(&preservation.PowerCycle{
			Automatic:          new(preservation.AutomaticPowerCycle("false")),
			Fencing:            new(preservation.Fencing("OutOfServiceTaint")),
			MaxAttempts:        new(int32(1)),
			MaxConcurrent:      new(int32(1)),
			PowerOffTimeout:    &metav1.Duration{Duration: 10 * time.Minute},
			PowerOnTimeout:     &metav1.Duration{Duration: 10 * time.Minute},
			NodeStartupTimeout: &metav1.Duration{Duration: 10 * time.Minute},
		}))
	})

	DescribeTable("X9: should take what automatic may be for what it is",
		func(value string, want preservation.AutomaticPowerCycle) {
			config, err := read(head + "workers: [{name: worker-a, powerCycle: {automatic: " + value + "}}]")
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Workers[0].PowerCycle.Automatic).To(HaveValue(Equal(want)))
		},
		Entry("always", "true", preservation.AutomaticPowerCycle("true")),
		Entry("never", "false", preservation.AutomaticPowerCycle("false")),
		Entry("nothing, which is never", "null", preservation.AutomaticPowerCycle("false")),
		Entry("only to tell of it", "DryRun", preservation.AutomaticPowerCycle("DryRun")),
	)

	DescribeTable("power cycles of an Extension", func(fields string, want types.GomegaMatcher, problem string) {
		has, err := providerconfig.HasPowerCycle(extension(fields))
		if problem == "" {
			Expect(err).NotTo(HaveOccurred())
			Expect(has).To(want)
		} else {
			Expect(err).To(MatchError(ContainSubstring(problem)))
		}
	},
		Entry("none", "workers: [{name: worker-a}]", BeFalse(), ""),
		Entry("nothing at all", "", BeFalse(), ""),
		Entry("one", "workers: [{name: worker-a}, {name: worker-b, powerCycle: {}}]", BeTrue(), ""),
		Entry("of a pool that is gone", "workers: [{name: worker-x, powerCycle: {}}]", BeTrue(), ""),
		Entry("beside what is not valid", "nodeMaintenance: {logLevel: trace}\nworkers: [{name: worker-a, powerCycle: {}}]", BeTrue(), ""),
		Entry("what is not valid", "workers: [{name: worker-a, powerCycle: {maxAttempts: 9}}]", nil, "spec.providerConfig.workers[0].powerCycle.maxAttempts: Invalid value: 9"),
		Entry("what cannot be decoded", "workers: [{name: worker-a, powerCycle: true}]", nil, "spec.providerConfig.workers[0].powerCycle: Invalid value: true: must be an object"),
	)

	DescribeTable("node maintenance of an Extension", func(fields, problem string, want types.GomegaMatcher) {
		maintenance, err := providerconfig.ReadNodeMaintenance(extension(fields))
		expectProblem(err, problem)
		Expect(maintenance).To(want)
	},
		Entry("none", "", "", BeNil()),
		Entry("with what is not valid for the worker pools", "workers: [{name: x}]\nnodeMaintenance: {maxHoldTime: 1h}", "", HaveField("MaxHoldTime.Duration", time.Hour)),
		Entry("that is not valid", "nodeMaintenance: {logLevel: trace}",
			`spec.providerConfig.nodeMaintenance.logLevel: Unsupported value: "trace": supported values: "debug", "info", "error"`, BeNil()),
		Entry("that cannot be decoded", "nodeMaintenance: {maxHoldTime: 1}",
			`spec.providerConfig.nodeMaintenance.maxHoldTime: Invalid value: 1: must be a positive duration with units, for example "72h" or "90m"`, BeNil()),
	)

	DescribeTable("drain strategies of an Extension", func(fields, problem string, want types.GomegaMatcher) {
		strategies, err := providerconfig.ReadDrainStrategies(extension(fields))
		expectProblem(err, problem)
		Expect(strategies).To(want)
	},
		Entry("none", "", "", BeNil()),
		Entry("with what is not valid for the worker pools", "workers: [{name: x}]\ndrainStrategies: {timeout: 1h}", "", HaveField("Timeout.Duration", time.Hour)),
		Entry("with a pattern that does not compile", "drainStrategies: {ignoredNamespacePatterns: [a, '(b']}",
			"spec.providerConfig.drainStrategies.ignoredNamespacePatterns[1]: Invalid value: \"(b\": must be a regular expression: error parsing regexp: missing closing ): `(b`", BeNil()),
		Entry("that cannot be decoded", "drainStrategies: {timeout: 1}",
			`spec.providerConfig.drainStrategies.timeout: Invalid value: 1: must be a positive duration with units, for example "72h" or "90m"`, BeNil()),
	)

	DescribeTable("D13: whether nodes of an Extension show drains", func(fields string, want bool, problem string) {
		shows, err := providerconfig.ReadDrainConditions(extension(fields))
		expectProblem(err, problem)
		Expect(shows).To(Equal(want))
	},
		Entry("by default", "", false, ""),
		Entry("on", "drainConditions: true", true, ""),
		Entry("off", "drainConditions: false", false, ""),
		Entry("nothing, which is off", "drainConditions: null", false, ""),
		Entry("beside what is not valid for the worker pools", "workers: [{name: x}]\ndrainConditions: true", true, ""),
		Entry("what cannot be decoded", "drainConditions: 'true'", false, `spec.providerConfig.drainConditions: Invalid value: "true": must be true or false`),
	)

	DescribeTable("bad input",
		func(config, message string) {
			_, err := read(config)
			Expect(err).To(MatchError(message))
		},

		Entry("unknown field", head+"maxFailed: 3",
			`spec.providerConfig.maxFailed: Invalid value: 3: unknown field, valid fields are apiVersion, drainConditions, drainStrategies, evidence, failures, kind, machineControllerManager, nodeMaintenance, workers`),
		Entry("unknown field of a worker", head+"workers: [{name: a, autoPreserveFailedMax: 3}]",
			`spec.providerConfig.workers[0].autoPreserveFailedMax: Invalid value: 3: unknown field, valid fields are machineControllerManager, name, powerCycle, validation`),
		Entry("field with Gardener's own name", head+"workers: [{name: a, machineControllerManager: {autoPreserveFailedMachineMax: 3}}]",
			`spec.providerConfig.workers[0].machineControllerManager.autoPreserveFailedMachineMax: Invalid value: 3: unknown field, valid fields are autoPreserveFailedMax, distribution, forceDeletePodsWithVolumes, machinePreserveTimeout, preferNewFailures`),
		Entry("field in the wrong case", head+"machineControllerManager: {autopreservefailedmax: 3}",
			`spec.providerConfig.machineControllerManager.autopreservefailedmax: Invalid value: 3: unknown field, valid fields are autoPreserveFailedMax, distribution, forceDeletePodsWithVolumes, machinePreserveTimeout, preferNewFailures`),
		Entry("P20: distribution of another kind", head+"machineControllerManager: {distribution: 3}",
			`spec.providerConfig.machineControllerManager.distribution: Invalid value: 3: must be a string`),
		Entry("P20: distribution that there is not", head+"machineControllerManager: {distribution: pool}",
			`spec.providerConfig.machineControllerManager.distribution: Unsupported value: "pool": supported values: "Pool", "Zones"`),
		Entry("number that is too large for the type", head+"machineControllerManager: {autoPreserveFailedMax: 3000000000}",
			`spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 3000000000: must be a whole number between 0 and 2147483647`),
		Entry("number with a fraction", head+"machineControllerManager: {autoPreserveFailedMax: 1.5}",
			`spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 1.5: must be a whole number between 0 and 2147483647`),
		Entry("number as a string", head+"machineControllerManager: {autoPreserveFailedMax: 'two'}",
			`spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: "two": must be a whole number between 0 and 2147483647`),
		Entry("duration with an unknown unit", head+"workers: [{name: a, machineControllerManager: {machinePreserveTimeout: 3d}}]",
			`spec.providerConfig.workers[0].machineControllerManager.machinePreserveTimeout: Invalid value: "3d": must be a positive duration with units, for example "72h" or "90m"`),
		Entry("duration without a unit", head+"machineControllerManager: {machinePreserveTimeout: '72'}",
			`spec.providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: "72": must be a positive duration with units, for example "72h" or "90m"`),
		Entry("duration as a number", head+"machineControllerManager: {machinePreserveTimeout: 72}",
			`spec.providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: 72: must be a positive duration with units, for example "72h" or "90m"`),
		Entry("empty duration", head+"machineControllerManager: {machinePreserveTimeout: ''}",
			`spec.providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: "": must be a positive duration with units, for example "72h" or "90m"`),
		Entry("truth as a string", head+"workers: [{name: a, machineControllerManager: {forceDeletePodsWithVolumes: 'true'}}]",
			`spec.providerConfig.workers[0].machineControllerManager.forceDeletePodsWithVolumes: Invalid value: "true": must be true or false`),
		Entry("truth as an object", head+"drainConditions: {enabled: true}",
			`spec.providerConfig.drainConditions: Invalid value: {"enabled":true}: must be true or false`),
		Entry("truth as a number", head+"machineControllerManager: {forceDeletePodsWithVolumes: 1}",
			`spec.providerConfig.machineControllerManager.forceDeletePodsWithVolumes: Invalid value: 1: must be true or false`),
		Entry("automatic that is a number", head+"workers: [{name: worker-a, powerCycle: {automatic: 1}}]",
			`spec.providerConfig.workers[0].powerCycle.automatic: Invalid value: 1: must be true, false or "DryRun"`),
		Entry("automatic in the wrong case", head+"workers: [{name: worker-a, powerCycle: {automatic: dryRun}}]",
			`spec.providerConfig.workers[0].powerCycle.automatic: Invalid value: "dryRun": must be true, false or "DryRun"`),
		Entry("automatic that is true as a string", head+"workers: [{name: worker-a, powerCycle: {automatic: 'true'}}]",
			`spec.providerConfig.workers[0].powerCycle.automatic: Invalid value: "true": must be true, false or "DryRun"`),
		Entry("unknown field of the drain strategies", head+"drainStrategies: {enabled: true}",
			`spec.providerConfig.drainStrategies.enabled: Invalid value: true: unknown field, valid fields are disabled, expectedDrainTime, ignoredNamespacePatterns, pdbForceDrainTimeout, timeout`),
		Entry("drain strategies that are no object", head+"drainStrategies: true",
			`spec.providerConfig.drainStrategies: Invalid value: true: must be an object`),
		Entry("patterns that are no list", head+"drainStrategies: {ignoredNamespacePatterns: kube-system}",
			`spec.providerConfig.drainStrategies.ignoredNamespacePatterns: Invalid value: "kube-system": must be a list`),
		Entry("pattern that is no string", head+"drainStrategies: {ignoredNamespacePatterns: [a, 1]}",
			`spec.providerConfig.drainStrategies.ignoredNamespacePatterns[1]: Invalid value: 1: must be a string`),
		Entry("unknown field of evidence", head+"evidence: {size: 1}",
			`spec.providerConfig.evidence.size: Invalid value: 1: unknown field, valid fields are enabled, nodeLogs, retention`),
		Entry("evidence that is enabled by a string", head+"evidence: {enabled: 'true'}",
			`spec.providerConfig.evidence.enabled: Invalid value: "true": must be true or false`),
		Entry("retention in days", head+"evidence: {retention: 7d}",
			`spec.providerConfig.evidence.retention: Invalid value: "7d": must be a positive duration with units, for example "72h" or "90m"`),
		Entry("unknown field of node maintenance", head+"nodeMaintenance: {enabled: true}",
			`spec.providerConfig.nodeMaintenance.enabled: Invalid value: true: unknown field, valid fields are logLevel, maxHoldTime, maxNodeMaintenanceTime, maxParallelOperations, maxUnavailable, namespaces`),
		Entry("node maintenance that is no object", head+"nodeMaintenance: true",
			`spec.providerConfig.nodeMaintenance: Invalid value: true: must be an object`),
		Entry("number of nodes with a fraction", head+"nodeMaintenance: {maxParallelOperations: 1.5}",
			`spec.providerConfig.nodeMaintenance.maxParallelOperations: Invalid value: 1.5: must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("number of nodes that is too large for the type", head+"nodeMaintenance: {maxUnavailable: 3000000000}",
			`spec.providerConfig.nodeMaintenance.maxUnavailable: Invalid value: 3000000000: must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("number of nodes that is none", head+"nodeMaintenance: {maxUnavailable: [1]}",
			`spec.providerConfig.nodeMaintenance.maxUnavailable: Invalid value: [1]: must be a whole number between 0 and 2147483647, or a percentage from "0%" to "100%"`),
		Entry("namespace that is no string", head+"nodeMaintenance: {namespaces: [a, 1]}",
			`spec.providerConfig.nodeMaintenance.namespaces[1]: Invalid value: 1: must be a string`),
		Entry("workers that are no list", head+"workers: {name: a}",
			`spec.providerConfig.workers: Invalid value: {"name":"a"}: must be a list`),
		Entry("worker that is no object", head+"workers: [worker-a]",
			`spec.providerConfig.workers[0]: Invalid value: "worker-a": must be an object`),
		Entry("name that is no string", head+"workers: [{name: 1}]",
			`spec.providerConfig.workers[0].name: Invalid value: 1: must be a string`),
		Entry("several at once", head+"machineControllerManager: {autoPreserveFailedMax: a, machinePreserveTimeout: b}",
			`[spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: "a": must be a whole number between 0 and 2147483647, `+
				`spec.providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: "b": must be a positive duration with units, for example "72h" or "90m"]`),
		Entry("neither version nor kind", "{}",
			`[spec.providerConfig.apiVersion: Required value: must be "machine-preservation.extensions.gardener.cloud/v1alpha1", `+
				`spec.providerConfig.kind: Required value: must be "MachinePreservationConfig"]`),
		Entry("unknown version", "apiVersion: machine-preservation.extensions.gardener.cloud/v1\nkind: MachinePreservationConfig",
			`spec.providerConfig.apiVersion: Unsupported value: "machine-preservation.extensions.gardener.cloud/v1": supported values: "machine-preservation.extensions.gardener.cloud/v1alpha1"`),
		Entry("internal version", "apiVersion: machine-preservation.extensions.gardener.cloud/__internal\nkind: MachinePreservationConfig",
			`spec.providerConfig.apiVersion: Unsupported value: "machine-preservation.extensions.gardener.cloud/__internal": supported values: "machine-preservation.extensions.gardener.cloud/v1alpha1"`),
		Entry("unknown kind", "apiVersion: machine-preservation.extensions.gardener.cloud/v1alpha1\nkind: PreservationConfig",
			`spec.providerConfig.kind: Unsupported value: "PreservationConfig": supported values: "MachinePreservationConfig"`),
		Entry("no object", "3", `spec.providerConfig: Invalid value: 3: must be an object`),
	)

	It("should refuse a field that is set twice", func() {
		_, err := readJSON(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig","workers":[{"name":"a","name":"b"}]}`)
		Expect(err).To(MatchError(`spec.providerConfig: strict decoding error: duplicate field "workers[0].name"`))
	})

	It("should refuse what is no JSON", func() {
		_, err := readJSON("{")
		Expect(err).To(MatchError("spec.providerConfig: unexpected end of JSON input"))
	})

	It("should refuse what is not valid for the worker pools", func() {
		_, err := read(head + "workers: [{name: worker-a, machineControllerManager: {autoPreserveFailedMax: 4}}]")
		Expect(err).To(MatchError(`spec.providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 4: must be at most 3, the maximum of worker pool "worker-a"`))
	})

	Describe("hostile input", func() {
		It("should read as many bytes as are valid, and no more", func() {
			config := strings.TrimSuffix(hostile.Config(""), "}")
			config += strings.Repeat(" ", 64<<10-len(config)-1) + "}"
			Expect(readJSON(config)).NotTo(BeNil())

			_, err := readJSON(config + " ")
			Expect(err).To(MatchError("spec.providerConfig: Too long: has 65537 bytes, must have at most 65536"))
		})

		It("should refuse too many bytes without a look at them", func() {
			_, err := readJSON(strings.Repeat("[", 10<<20))
			Expect(err).To(MatchError("spec.providerConfig: Too long: has 10485760 bytes, must have at most 65536"))
		})

		for name, attack := range hostile.Configs {
			It("should tell of ten errors, and show little of the input: "+name, func() {
				config := attack(64 << 10)
				Expect(len(config)).To(BeNumerically("~", 64<<10, 100))

				_, err := readJSON(config)
				Expect(err).To(HaveOccurred())
				Expect(countErrors(err)).To(BeNumerically("<=", 11))
				Expect(len(err.Error())).To(BeNumerically("<", maxMessage))
			})

			// Allocations, unlike time, are the same on each machine. A byte of the largest input takes some dozen bytes
			// in the memory, and they are not more for larger inputs.
			It("should take memory in proportion to the input: "+name, func() {
				small, large := allocated(attack(16<<10)), allocated(attack(64<<10))
				Expect(large).To(BeNumerically("<", 16<<20))
				Expect(large).To(BeNumerically("<", 6*small+1<<20))
			})
		}

		It("should say that there are more errors than it tells of", func() {
			_, err := read(head + "workers: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
			Expect(countErrors(err)).To(Equal(11))
			Expect(err).To(MatchError(HaveSuffix(`spec.providerConfig.workers[9]: Invalid value: 1: must be an object, spec.providerConfig: Invalid value: there are more than these 10 errors]`)))

			_, err = read(head + "workers: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
			Expect(countErrors(err)).To(Equal(10))
			Expect(err).To(MatchError(HaveSuffix(`spec.providerConfig.workers[9]: Invalid value: 1: must be an object]`)))
		})

		It("should refuse more workers than there are pools", func() {
			_, err := read(head + "workers: [{name: worker-a}, {name: worker-b}, {name: worker-b}]")
			Expect(err).To(MatchError(`spec.providerConfig.workers[2].name: Duplicate value: "worker-b": each worker pool may be named only once`))
		})

		DescribeTable("should cut what it shows of the input",
			func(config, message string) {
				_, err := readJSON(config)
				Expect(err).To(MatchError(HavePrefix(message)))
			},
			Entry("name of a field", hostile.Config(`"`+strings.Repeat("a", 1000)+`":1`),
				"spec.providerConfig."+strings.Repeat("a", 256-len("spec.providerConfig.")-3)+"...: Invalid value: 1: unknown field, valid fields are apiVersion, drainConditions, drainStrategies, evidence, failures, kind, machineControllerManager, nodeMaintenance, workers"),
			Entry("text", hostile.Config(`"workers":[{"name":"`+strings.Repeat("a", 1000)+`"}]`),
				`spec.providerConfig.workers[0].name: Unsupported value: "`+strings.Repeat("a", 125)+`...": supported values: "worker-a", "worker-b"`),
			Entry("object", hostile.Config(`"workers":{"`+strings.Repeat("a", 1000)+`":1}`),
				`spec.providerConfig.workers: Invalid value: "{\"`+strings.Repeat("a", 123)+`...": must be a list`),
			Entry("number", hostile.Config(`"machineControllerManager":{"autoPreserveFailedMax":1.`+strings.Repeat("0", 10000)+`}`),
				`spec.providerConfig: json: cannot unmarshal number 1.0000000`),
		)
	})
})
