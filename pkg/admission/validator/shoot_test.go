// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/admission/validator"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// option changes one thing of a Shoot.
type option func(*gardencorev1beta1.Shoot)

// newShoot returns a Shoot with three extensions, ours in the middle, and two worker pools: "a" has the zones 1 to 3 and
// may run system components, "b" has no zones.
func newShoot(options ...option) *gardencorev1beta1.Shoot {
	shoot := &gardencorev1beta1.Shoot{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}
	shoot.Spec.Extensions = []gardencorev1beta1.Extension{{Type: "first"}, {Type: "machine-preservation"}, {Type: "last"}}
	shoot.Spec.Provider.Workers = []gardencorev1beta1.Worker{
		{Name: "a", Maximum: 9, Zones: []string{"1", "2", "3"}},
		{Name: "b", Maximum: 4, SystemComponents: &gardencorev1beta1.WorkerSystemComponents{Allow: false}},
	}
	for _, apply := range options {
		apply(shoot)
	}
	return shoot
}

// config sets the provider configuration to the given fields.
func config(fields string) option {
	return rawConfig("apiVersion: machine-preservation.extensions.gardener.cloud/v1alpha1\nkind: MachinePreservationConfig\n" + fields)
}

func rawConfig(config string) option {
	raw, err := yaml.YAMLToJSON([]byte(config))
	Expect(err).NotTo(HaveOccurred())
	return func(shoot *gardencorev1beta1.Shoot) {
		shoot.Spec.Extensions[1].ProviderConfig = &runtime.RawExtension{Raw: raw}
	}
}

// pool changes a worker pool.
func pool(index int, change func(*gardencorev1beta1.Worker)) option {
	return func(shoot *gardencorev1beta1.Shoot) { change(&shoot.Spec.Provider.Workers[index]) }
}

// own sets the Shoot's own fields of a worker pool.
func own(index int, number *int32, timeout time.Duration) option {
	settings := &gardencorev1beta1.MachineControllerManagerSettings{AutoPreserveFailedMachineMax: number}
	if timeout != 0 {
		settings.MachinePreserveTimeout = &metav1.Duration{Duration: timeout}
	}
	return pool(index, func(w *gardencorev1beta1.Worker) { w.MachineControllerManagerSettings = settings })
}

// drainTimeout sets the Shoot's own drain timeout of a worker pool.
func drainTimeout(index int, timeout time.Duration) option {
	return pool(index, func(w *gardencorev1beta1.Worker) {
		w.MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	})
}

// nodeConditions sets the node conditions that make machines of a pool unhealthy.
func nodeConditions(index int, types ...string) option {
	return pool(index, func(w *gardencorev1beta1.Worker) {
		w.MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{NodeConditions: types}
	})
}

// reconciledBy sets the version of Gardener that has reconciled the Shoot last.
func reconciledBy(version string) option {
	return func(shoot *gardencorev1beta1.Shoot) { shoot.Status.Gardener.Version = version }
}

func disabled(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Extensions[1].Disabled = new(true) }

func removed(shoot *gardencorev1beta1.Shoot) {
	shoot.Spec.Extensions = []gardencorev1beta1.Extension{{Type: "first"}}
}

func workerless(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Provider.Workers = nil }

// sent says whether gardener-apiserver sends a request to the webhook. There is no old Shoot if one is created.
func sent(oldShoot, newShoot *gardencorev1beta1.Shoot) bool {
	GinkgoHelper()
	var expressions []admissioncel.ExpressionAccessor
	for _, condition := range validator.MatchConditions() {
		expressions = append(expressions, new(matchconditions.MatchCondition(condition)))
	}
	compiler := admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(expressions, admissioncel.OptionalVariableDeclarations{}, environment.NewExpressions),
		new(admissionregistrationv1.Fail), "webhook", "validating", "test")

	// A nil of the type of a Shoot would not be taken for none.
	var oldObject runtime.Object
	operation := apiserveradmission.Create
	if oldShoot != nil {
		oldObject, operation = oldShoot, apiserveradmission.Update
	}
	attributes := apiserveradmission.NewAttributesRecord(newShoot, oldObject, gardencorev1beta1.SchemeGroupVersion.WithKind("Shoot"), newShoot.Namespace, newShoot.Name,
		gardencorev1beta1.SchemeGroupVersion.WithResource("shoots"), "", operation, nil, false, nil)
	result := matcher.Match(context.Background(), &apiserveradmission.VersionedAttributes{
		Attributes: attributes, VersionedObject: newShoot, VersionedOldObject: oldObject,
	}, nil, nil)
	Expect(result.Error).NotTo(HaveOccurred())
	return result.Matches
}

// bad is a configuration that is never valid, and invalid is what is said about it.
const (
	bad     = "workers: [{name: x}]"
	invalid = `spec.extensions[1].providerConfig.workers[0].name: Unsupported value: "x": supported values: "a", "b"`
)

var _ = Describe("Shoot", func() {
	ctx := context.Background()

	Describe("errors", func() {
		// What is wrong with a configuration is up to the packages helper and validation, and tested there.
		DescribeTable("should name the path in the Shoot",
			func(with option, messages ...string) {
				Expect(sent(nil, newShoot(with))).To(BeTrue())
				warnings, err := validator.Shoot{}.ValidateCreate(ctx, newShoot(with))
				Expect(warnings).To(BeEmpty())
				Expect(err).To(Satisfy(apierrors.IsInvalid))
				status := err.(apierrors.APIStatus).Status()
				Expect(status.Details.Kind).To(Equal("Shoot"))
				Expect(status.Details.Name).To(Equal("foo"))
				var actual []string
				for _, cause := range status.Details.Causes {
					actual = append(actual, cause.Field+": "+cause.Message)
				}
				Expect(actual).To(Equal(messages))
			},
			Entry("of what cannot be decoded", config("maxFailed: 3\nworkers: 4"),
				`spec.extensions[1].providerConfig.maxFailed: Invalid value: 3: unknown field, valid fields are apiVersion, drainConditions, drainStrategies, evidence, failures, kind, machineControllerManager, nodeMaintenance, workers`,
				`spec.extensions[1].providerConfig.workers: Invalid value: 4: must be a list`),
			Entry("of what is not valid", config("machineControllerManager: {autoPreserveFailedMax: 9, machinePreserveTimeout: 0s}"),
				`spec.extensions[1].providerConfig.machineControllerManager.machinePreserveTimeout: Invalid value: "0s": must be at least 10s`,
				`spec.extensions[1].providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 9: must be at most 8, one less than the maximum of worker pool "a", because system components may run there`,
				`spec.extensions[1].providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 9: must be at most 4, the maximum of worker pool "b"`),
		)

		It("should pass on what has no path", func() {
			_, err := validator.Shoot{}.ValidateCreate(ctx, newShoot(func(shoot *gardencorev1beta1.Shoot) {
				shoot.Spec.Extensions[1].ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",` +
					`"kind":"MachinePreservationConfig","workers":[],"workers":[]}`)}
			}))
			Expect(err).To(MatchError(`spec.extensions[1].providerConfig: strict decoding error: duplicate field "workers"`))
		})
	})

	DescribeTable("warnings",
		func(shoot *gardencorev1beta1.Shoot, expected ...string) {
			warnings, err := validator.Shoot{Limits: &configv1alpha1.ControllerConfiguration{
				AutoPreserveFailedMax:     new(int32(1)), // is not looked at
				MaxAutoPreserveFailed:     new(int32(4)),
				MaxMachinePreserveTimeout: &metav1.Duration{Duration: 336 * time.Hour},
			}}.ValidateCreate(ctx, shoot)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveExactElements(expected))
		},

		Entry("the extension is not there", newShoot(removed, own(0, new(int32(1)), 0))),
		Entry("there is no configuration", newShoot()),
		Entry("the Shoot has no workers", newShoot(workerless),
			`spec.extensions[1]: no machine is preserved, because the Shoot has no workers`),

		Entry("the Shoot is self-hosted", newShoot(pool(0, func(w *gardencorev1beta1.Worker) { w.ControlPlane = &gardencorev1beta1.WorkerControlPlane{} }),
			own(0, new(int32(1)), 0)),
			`spec.extensions[1]: no machine is preserved, because self-hosted Shoots are not supported`),

		// What operators allow
		Entry("as much as the operators allow", newShoot(config("machineControllerManager: {autoPreserveFailedMax: 4, machinePreserveTimeout: 336h}"))),
		Entry("more and longer than the operators allow, for all pools",
			newShoot(pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum = 5 }), config("machineControllerManager: {autoPreserveFailedMax: 5, machinePreserveTimeout: 337h}")),
			`spec.extensions[1].providerConfig.machineControllerManager.autoPreserveFailedMax: 5 is more than the operators allow, so 4 is used: no more machines of a worker pool are auto-preserved at a time`,
			`spec.extensions[1].providerConfig.machineControllerManager.machinePreserveTimeout: 337h0m0s is longer than the operators allow, so 336h0m0s is used: no machine is preserved for longer`),
		Entry("more and longer than the operators allow, in the Shoot's own fields",
			newShoot(own(0, new(int32(6)), 400*time.Hour)),
			`spec.provider.workers[0].machineControllerManager.autoPreserveFailedMachineMax: 6 is more than the operators allow, so 4 is used: no more machines of a worker pool are auto-preserved at a time`,
			`spec.provider.workers[0].machineControllerManager.machinePreserveTimeout: 400h0m0s is longer than the operators allow, so 336h0m0s is used: no machine is preserved for longer`),
		Entry("more than the operators allow for all pools, and less for each of them",
			newShoot(config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 3}}, {name: b, machineControllerManager: {autoPreserveFailedMax: 3}}]\nmachineControllerManager: {autoPreserveFailedMax: 8}"))),
		Entry("more than the operators allow, of which zones get nothing",
			newShoot(pool(0, func(w *gardencorev1beta1.Worker) { w.Zones = []string{"1", "2", "3", "4", "5"} }), config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 5}}]")),
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: 5 is more than the operators allow, so 4 is used: no more machines of a worker pool are auto-preserved at a time`,
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: 4 is distributed over the zones of worker pool "a" as 1, 1, 1, 1, 0: in zone "5", failed machines are preserved only on request`),
		Entry("Gardener that waits, for as long as the operators allow",
			newShoot(reconciledBy("v1.146.3"), config("machineControllerManager: {machinePreserveTimeout: 400h}")),
			`spec.extensions[1]: with Gardener v1.146.3, each change of the Shoot waits for preserved failed machines, and fails while there are any: for up to 336h0m0s, unless a request or the operators set another time. Gardener 1.147.0 and later do not wait for them`,
			`spec.extensions[1].providerConfig.machineControllerManager.machinePreserveTimeout: 400h0m0s is longer than the operators allow, so 336h0m0s is used: no machine is preserved for longer`),

		// Power cycles
		Entry("X11: power cycles without hosts", newShoot(config("workers: [{name: a}, {name: b, powerCycle: {automatic: true}}]")),
			`spec.extensions[1].providerConfig.workers[1].powerCycle: has no effect, because the landscape has no hosts that can be power-cycled`),

		// Precedence
		Entry("number and timeout are in the Shoot's own fields as well",
			newShoot(own(1, new(int32(3)), time.Hour), config("workers: [{name: b, machineControllerManager: {autoPreserveFailedMax: 2, machinePreserveTimeout: 90m}}]")),
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: 2 overrides 3 in spec.provider.workers[1].machineControllerManager.autoPreserveFailedMachineMax`,
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager.machinePreserveTimeout: 1h30m0s overrides 1h0m0s in spec.provider.workers[1].machineControllerManager.machinePreserveTimeout`),
		Entry("other fields are in the Shoot",
			newShoot(own(1, new(int32(3)), 0), config("workers: [{name: b, machineControllerManager: {machinePreserveTimeout: 90m}}]"))),
		Entry("fields of other pools are in the Shoot",
			newShoot(own(1, new(int32(3)), time.Hour), config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 3, machinePreserveTimeout: 90m}}]"))),
		Entry("the Shoot's own fields win over those for all pools",
			newShoot(own(0, new(int32(3)), time.Hour), config("machineControllerManager: {autoPreserveFailedMax: 4, machinePreserveTimeout: 90m}"))),

		// Distribution
		Entry("one zone gets nothing of a pool's number",
			newShoot(config("workers: [{name: b}, {name: a, machineControllerManager: {autoPreserveFailedMax: 2}}]")),
			`spec.extensions[1].providerConfig.workers[1].machineControllerManager.autoPreserveFailedMax: 2 is distributed over the zones of worker pool "a" as 1, 1, 0: in zone "3", failed machines are preserved only on request`),
		Entry("two zones get nothing of the number for all pools",
			newShoot(config("machineControllerManager: {autoPreserveFailedMax: 1}")),
			`spec.extensions[1].providerConfig.machineControllerManager.autoPreserveFailedMax: 1 is distributed over the zones of worker pool "a" as 1, 0, 0: in zone "2" or "3", failed machines are preserved only on request`),
		Entry("two zones get nothing of the number in the Shoot",
			newShoot(own(0, new(int32(1)), 0), config("machineControllerManager: {autoPreserveFailedMax: 3}")),
			`spec.provider.workers[0].machineControllerManager.autoPreserveFailedMachineMax: 1 is distributed over the zones of worker pool "a" as 1, 0, 0: in zone "2" or "3", failed machines are preserved only on request`),
		Entry("P20: no zone gets nothing of the number of a pool that shares its places", newShoot(config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 1, distribution: Pool}}]"))),
		Entry("every zone gets something, although not the same", newShoot(config("machineControllerManager: {autoPreserveFailedMax: 4}"))),
		Entry("every zone gets as much", newShoot(config("machineControllerManager: {autoPreserveFailedMax: 3}"))),
		Entry("no zone gets anything", newShoot(config("machineControllerManager: {autoPreserveFailedMax: 0}"))),

		// Pools that cannot keep machines
		Entry("settings for a pool without machines",
			newShoot(pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum = 0 }), config("workers: [{name: b, machineControllerManager: {machinePreserveTimeout: 1h}}]")),
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager: has no effect while the maximum of worker pool "b" is 0`),
		Entry("settings for a pool with one machine, which may run system components",
			newShoot(pool(0, func(w *gardencorev1beta1.Worker) { w.Maximum = 1 }), config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 0, forceDeletePodsWithVolumes: false}}]")),
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager: applies only to machines that are preserved on request: worker pool "a" has no auto-preservation, because its only machine may run system components`),
		Entry("the number 0 for such pools, which the number for all pools makes necessary",
			newShoot(pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum = 0 }), pool(0, func(w *gardencorev1beta1.Worker) { w.Maximum = 1 }),
				config("workers: [{name: a, machineControllerManager: {autoPreserveFailedMax: 0}}, {name: b, machineControllerManager: {autoPreserveFailedMax: 0}}]\nmachineControllerManager: {autoPreserveFailedMax: 2}"))),
		Entry("settings for a pool with one machine, which does not run system components",
			newShoot(pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum = 1 }), config("workers: [{name: b, machineControllerManager: {machinePreserveTimeout: 1h}}]"))),

		// Gardener that waits
		Entry("Gardener that waits for machines that are kept, for the default time",
			newShoot(reconciledBy("v1.146.3")),
			`spec.extensions[1]: with Gardener v1.146.3, each change of the Shoot waits for preserved failed machines, and fails while there are any: for up to 72h0m0s, unless a request or the operators set another time. Gardener 1.147.0 and later do not wait for them`),
		Entry("Gardener that waits for machines that are kept, for the longest time of all pools",
			newShoot(reconciledBy("1.130.0-dev"), config("workers: [{name: b, machineControllerManager: {machinePreserveTimeout: 2h}}]\nmachineControllerManager: {machinePreserveTimeout: 1h}")),
			`spec.extensions[1]: with Gardener 1.130.0-dev, each change of the Shoot waits for preserved failed machines, and fails while there are any: for up to 2h0m0s, unless a request or the operators set another time. Gardener 1.147.0 and later do not wait for them`),
		Entry("Gardener that does not wait for machines that are kept", newShoot(reconciledBy("v1.147.0"))),
		Entry("Gardener of a version that says nothing", newShoot(reconciledBy("latest"))),

		// Force
		Entry("pods with volumes are deleted by force",
			newShoot(config("workers: [{name: b, machineControllerManager: {forceDeletePodsWithVolumes: true}}]\nmachineControllerManager: {forceDeletePodsWithVolumes: true}")),
			`spec.extensions[1].providerConfig.workers[0].machineControllerManager.forceDeletePodsWithVolumes: true can destroy data: if a node does not answer although its machine still runs, pods run twice with the same volume`,
			`spec.extensions[1].providerConfig.machineControllerManager.forceDeletePodsWithVolumes: true can destroy data: if a node does not answer although its machine still runs, pods run twice with the same volume`),
		Entry("pods with volumes are not deleted by force", newShoot(config("machineControllerManager: {forceDeletePodsWithVolumes: false}"))),

		// Drain strategies
		Entry("the defaults of the strategies", newShoot(config("drainStrategies: {}"))),
		Entry("protected pods go before all others",
			newShoot(config("drainStrategies: {pdbForceDrainTimeout: 0s}")),
			`spec.extensions[1].providerConfig.drainStrategies.pdbForceDrainTimeout: pods that a PodDisruptionBudget protects are deleted after 8m0s, sooner than all others, which are deleted after 45m0s`),
		Entry("protected pods go with all others", newShoot(config("drainStrategies: {pdbForceDrainTimeout: 37m}"))),
		Entry("a deadline is beyond the drain timeout of a pool",
			newShoot(drainTimeout(1, time.Hour), config("drainStrategies: {}")),
			`spec.extensions[1].providerConfig.drainStrategies.pdbForceDrainTimeout: has no effect for worker pool "b": it passes 1h8m0s after the drain began, but machine-controller-manager deletes all pods by force after its machineDrainTimeout of 1h0m0s`),
		Entry("both deadlines are beyond the drain timeout that is the default",
			newShoot(drainTimeout(1, 5*time.Hour), config("drainStrategies: {timeout: 3h, pdbForceDrainTimeout: 4h}")),
			`spec.extensions[1].providerConfig.drainStrategies.timeout: has no effect for worker pool "a": it passes 3h0m0s after the drain began, but machine-controller-manager deletes all pods by force after its machineDrainTimeout of 2h0m0s`,
			`spec.extensions[1].providerConfig.drainStrategies.pdbForceDrainTimeout: has no effect for worker pool "a": it passes 4h8m0s after the drain began, but machine-controller-manager deletes all pods by force after its machineDrainTimeout of 2h0m0s`),
		// Conditions of drains
		Entry("D13: drains that are shown", newShoot(config("drainConditions: true"))),
		Entry("D13: drains that make machines unhealthy", newShoot(nodeConditions(1, "DiskPressure", "DrainInProgress"), config("drainConditions: true")),
			`spec.provider.workers[1].machineControllerManager.nodeConditions: with DrainInProgress, machine-controller-manager takes each machine for unhealthy whose node shows a drain in this condition, and replaces the machine after its machineHealthTimeout`),
		Entry("D13: drains that would make machines unhealthy, and are not shown", newShoot(nodeConditions(1, "DrainInProgress"), config("drainConditions: false"))),
		// Node maintenance
		Entry("the defaults of node maintenance", newShoot(config("nodeMaintenance: {}"))),
		Entry("no maintenance begins", newShoot(config("nodeMaintenance: {maxUnavailable: 0%}")),
			`spec.extensions[1].providerConfig.nodeMaintenance.maxUnavailable: 0% means that no maintenance begins on an available node`),
		Entry("all nodes at once", newShoot(config("nodeMaintenance: {maxParallelOperations: 0}")),
			`spec.extensions[1].providerConfig.nodeMaintenance.maxParallelOperations: 0 means no limit: if requestors ask for all nodes, all are drained at once. To limit that, set a higher number or maxUnavailable`),
		Entry("as many nodes as may be unavailable", newShoot(config("nodeMaintenance: {maxParallelOperations: 0, maxUnavailable: 10%}"))),
		Entry("machines that are kept for longer than is allowed", newShoot(config("nodeMaintenance: {maxHoldTime: 337h}")),
			`spec.extensions[1].providerConfig.nodeMaintenance.maxHoldTime: 337h0m0s is longer than the operators allow, so 336h0m0s is used: no machine is preserved for longer`),
		Entry("machines that are kept for less long than they are worked on", newShoot(config("nodeMaintenance: {maxHoldTime: 1h}")),
			`spec.extensions[1].providerConfig.nodeMaintenance.maxHoldTime: after 1h0m0s of maintenance, machine-controller-manager replaces the machine if its node fails, although the requestor may work on the node for 1h0m0s from when it is Ready (maxNodeMaintenanceTime)`),
		Entry("nothing is done anyway", newShoot(drainTimeout(1, time.Minute), config("drainStrategies: {disabled: true, pdbForceDrainTimeout: 0s}"))),
	)

	DescribeTable("should accept what the documentation shows", func(name string) {
		page, err := os.ReadFile("../../../docs/usage/" + name)
		Expect(err).NotTo(HaveOccurred())
		_, examples, found := strings.Cut(string(page), "```yaml\nspec:\n")
		Expect(found).To(BeTrue())
		for example := range strings.SplitSeq(examples, "```yaml\nspec:\n") {
			example, _, _ = strings.Cut("spec:\n"+example, "```\n")
			shoot := &gardencorev1beta1.Shoot{}
			Expect(yaml.UnmarshalStrict([]byte(example), shoot)).To(Succeed())
			Expect(shoot.Spec.Extensions).To(HaveExactElements(HaveField("ProviderConfig", Not(BeNil()))))

			shoot.Spec.Provider.Workers = []gardencorev1beta1.Worker{{Name: "worker-a", Maximum: 3}}
			Expect(validator.Shoot{}.ValidateCreate(ctx, shoot)).To(BeEmpty())
		}
	},
		Entry("of the configuration", "configuration.md"),
		Entry("of frequent questions", "../concepts/faq.md"),
		Entry("of drain strategies", "drain-strategies.md"),
		Entry("of node maintenance", "node-maintenance.md"),
	)

	Describe("match conditions", func() {
		It("should not send a new Shoot without the extension", func() {
			Expect(sent(nil, newShoot(removed))).To(BeFalse())
			Expect(sent(nil, newShoot(disabled))).To(BeFalse())
		})

		It("should send a change of each field that is looked at of a worker pool", func() {
			changes := map[string]option{
				"Name":                   pool(1, func(w *gardencorev1beta1.Worker) { w.Name = "c" }),
				"Maximum":                pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum++ }),
				"SystemComponents":       pool(1, func(w *gardencorev1beta1.Worker) { w.SystemComponents = nil }),
				"Zones":                  pool(1, func(w *gardencorev1beta1.Worker) { w.Zones = []string{"1"} }),
				"AutoPreserveFailedMax":  own(1, new(int32(1)), 0),
				"MachinePreserveTimeout": own(1, nil, time.Hour),
				"MachineDrainTimeout":    drainTimeout(1, time.Hour),
				"NodeConditions":         nodeConditions(1, "DiskPressure"),
			}
			for _, field := range reflect.VisibleFields(reflect.TypeFor[share.Pool]()) {
				Expect(changes).To(HaveKey(field.Name))
				before, after := newShoot(), newShoot(changes[field.Name])
				Expect(sent(before, after)).To(BeTrue(), field.Name)

				expected, changed := share.PoolsOfShoot(before.Spec.Provider.Workers), share.PoolsOfShoot(after.Spec.Provider.Workers)
				reflect.ValueOf(&expected[1]).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(changed[1]).FieldByIndex(field.Index))
				Expect(changed).To(Equal(expected), "no other field is changed")
			}
		})

		// gardener-apiserver refuses a Shoot if the evaluation costs more than it allows.
		It("should be affordable for more worker pools than fit into a Shoot", func() {
			many := func(shoot *gardencorev1beta1.Shoot) {
				worker := gardencorev1beta1.Worker{Maximum: 3, Zones: []string{"1", "2", "3"}, MachineControllerManagerSettings: &gardencorev1beta1.MachineControllerManagerSettings{
					AutoPreserveFailedMachineMax: new(int32(1)), MachinePreserveTimeout: &metav1.Duration{Duration: time.Hour},
					NodeConditions: []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure"},
				}}
				for i := range 10000 {
					worker.Name = fmt.Sprintf("worker-%d", i)
					shoot.Spec.Provider.Workers = append(shoot.Spec.Provider.Workers, worker)
				}
			}
			raw, err := json.Marshal(newShoot(many))
			Expect(err).NotTo(HaveOccurred())
			Expect(len(raw)).To(BeNumerically(">", 1536<<10), "etcd takes no more")
			Expect(sent(newShoot(many), newShoot(many))).To(BeFalse())
			Expect(sent(newShoot(many), newShoot(many, pool(10000, func(w *gardencorev1beta1.Worker) { w.Maximum++ })))).To(BeTrue())
		})
	})

	DescribeTable("X11: warnings of power cycles",
		func(limits *configv1alpha1.ControllerConfiguration, fields string, expected ...string) {
			warnings, err := validator.Shoot{Limits: limits}.ValidateCreate(ctx, newShoot(config("workers: [{name: a"+fields+"}]")))
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveExactElements(expected))
		},
		Entry("none", &configv1alpha1.ControllerConfiguration{}, ""),
		Entry("the landscape is not known", nil, ", powerCycle: {automatic: true}"),
		Entry("no hosts any more", &configv1alpha1.ControllerConfiguration{Hosts: &configv1alpha1.Hosts{Disabled: true}}, ", powerCycle: {}",
			`spec.extensions[1].providerConfig.workers[0].powerCycle: has no effect, because the landscape has no hosts that can be power-cycled`),
		Entry("hosts", &configv1alpha1.ControllerConfiguration{Hosts: &configv1alpha1.Hosts{}}, ", powerCycle: {}"),
		Entry("automatic that is not allowed", &configv1alpha1.ControllerConfiguration{Hosts: &configv1alpha1.Hosts{}}, ", powerCycle: {automatic: true}",
			`spec.extensions[1].providerConfig.workers[0].powerCycle.automatic: true has no effect, because the operators do not allow it: machines are power-cycled only on request. To see which would be power-cycled, set DryRun`),
		Entry("only to be told", &configv1alpha1.ControllerConfiguration{Hosts: &configv1alpha1.Hosts{}}, ", powerCycle: {automatic: DryRun}"),
		Entry("automatic that is allowed", &configv1alpha1.ControllerConfiguration{Hosts: &configv1alpha1.Hosts{Automatic: true}}, ", powerCycle: {automatic: true}"),
	)

	Describe("evidence", func() {
		const (
			asks    = "evidence: {enabled: true}"
			refused = `spec.extensions[1].providerConfig.evidence.enabled: Invalid value: true: must be false, because the operators have not enabled evidence`
			warned  = `spec.extensions[1].providerConfig.evidence.enabled: true has no effect, because the operators have not enabled evidence`
		)
		off, on := &configv1alpha1.ControllerConfiguration{}, &configv1alpha1.ControllerConfiguration{Evidence: &configv1alpha1.Evidence{Enabled: true}}
		atMost := func(retention time.Duration) *configv1alpha1.ControllerConfiguration {
			return &configv1alpha1.ControllerConfiguration{Evidence: &configv1alpha1.Evidence{Enabled: true, MaxRetention: &metav1.Duration{Duration: retention}}}
		}
		larger := pool(0, func(w *gardencorev1beta1.Worker) { w.Maximum++ })

		DescribeTable("should be refused where operators have not enabled it", func(limits *configv1alpha1.ControllerConfiguration, fields, message string) {
			warnings, err := validator.Shoot{Limits: limits}.ValidateCreate(ctx, newShoot(config(fields)))
			Expect(warnings).To(BeEmpty())
			if message == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
			Entry("not asked for", off, "evidence: {retention: 24h}", ""),
			Entry("not enabled", off, asks, refused),
			Entry("no longer enabled", &configv1alpha1.ControllerConfiguration{Evidence: &configv1alpha1.Evidence{}}, asks, refused),
			Entry("enabled", on, asks, ""),
			Entry("the landscape is not known", nil, asks, ""),
			Entry("as long as it may be kept", atMost(200*time.Hour), "evidence: {enabled: true, retention: 200h}", ""),
			Entry("longer", atMost(200*time.Hour), "evidence: {enabled: true, retention: 201h}", `evidence.retention: Invalid value: "201h0m0s": must be at most 200h0m0s, because the operators do not allow more`),
			Entry("longer by default", atMost(100*time.Hour), asks, `evidence.retention: Invalid value: "168h0m0s": must be at most 100h0m0s, because the operators do not allow more`),
		)

		DescribeTable("should not be asked for anew for longer than operators allow, and those be warned that have asked before", func(before, after string, isRefused bool) {
			warnings, err := validator.Shoot{Limits: atMost(100 * time.Hour)}.ValidateUpdate(ctx, newShoot(config(before)), newShoot(config(after), larger))
			if isRefused {
				Expect(err).To(MatchError(ContainSubstring("evidence.retention")))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveExactElements(HaveSuffix("0m0s is longer than the operators allow, so 100h0m0s is used")))
		},
			Entry("unchanged", "evidence: {enabled: true, retention: 200h}", "evidence: {enabled: true, retention: 200h}", false),
			Entry("shorter", "evidence: {enabled: true, retention: 200h}", "evidence: {enabled: true, retention: 101h}", false),
			Entry("longer", "evidence: {enabled: true, retention: 200h}", "evidence: {enabled: true, retention: 201h}", true),
			Entry("enabled anew", "evidence: {retention: 200h}", "evidence: {enabled: true, retention: 200h}", true),
		)

		DescribeTable("should be refused only to who has not asked for it before", func(oldShoot, newShoot *gardencorev1beta1.Shoot, message string) {
			warnings, err := validator.Shoot{Limits: off}.ValidateUpdate(ctx, oldShoot, newShoot)
			if message != "" {
				Expect(err).To(MatchError(ContainSubstring(message)))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveExactElements(warned))
		},
			Entry("asked for anew", newShoot(config("evidence: {}")), newShoot(config(asks)), refused),
			Entry("a new extension", newShoot(removed), newShoot(config(asks)), refused),
			Entry("an extension that was disabled", newShoot(config(asks), disabled), newShoot(config(asks)), refused),
			Entry("another change", newShoot(config(asks)), newShoot(config(asks), larger), ""),
		)
	})

	Describe("updates", func() {
		update := func(oldShoot, newShoot *gardencorev1beta1.Shoot) error {
			warnings, err := validator.Shoot{}.ValidateUpdate(ctx, oldShoot, newShoot)
			Expect(warnings).To(BeEmpty())
			return err
		}

		DescribeTable("should refuse what is invalid after the update",
			func(oldShoot, newShoot *gardencorev1beta1.Shoot, message string) {
				Expect(sent(oldShoot, newShoot)).To(BeTrue())
				Expect(update(oldShoot, newShoot)).To(MatchError(ContainSubstring(message)))
			},
			Entry("new extension", newShoot(removed), newShoot(config(bad)), invalid),
			Entry("enabled extension", newShoot(config(bad), disabled), newShoot(config(bad)), invalid),
			Entry("new configuration", newShoot(), newShoot(config(bad)), invalid),
			Entry("changed configuration", newShoot(config("workers: [{name: a}]")), newShoot(config(bad)), invalid),
			Entry("one mistake for another", newShoot(config("workers: [{name: y}]")), newShoot(config(bad)), invalid),
			Entry("renamed pool",
				newShoot(config("workers: [{name: c}]"), pool(0, func(w *gardencorev1beta1.Worker) { w.Name = "c" })),
				newShoot(config("workers: [{name: c}]")),
				`spec.extensions[1].providerConfig.workers[0].name: Unsupported value: "c": supported values: "a", "b"`),
			Entry("smaller pool",
				newShoot(config("workers: [{name: b, machineControllerManager: {autoPreserveFailedMax: 4}}]")),
				newShoot(config("workers: [{name: b, machineControllerManager: {autoPreserveFailedMax: 4}}]"), pool(1, func(w *gardencorev1beta1.Worker) { w.Maximum = 3 })),
				`must be at most 3, the maximum of worker pool "b"`),
			Entry("pool for system components",
				newShoot(config("workers: [{name: b, machineControllerManager: {autoPreserveFailedMax: 4}}]")),
				newShoot(config("workers: [{name: b, machineControllerManager: {autoPreserveFailedMax: 4}}]"), pool(1, func(w *gardencorev1beta1.Worker) { w.SystemComponents = nil })),
				`must be at most 3, one less than the maximum of worker pool "b", because system components may run there`),
			Entry("number that is taken from the Shoot",
				newShoot(config("machineControllerManager: {autoPreserveFailedMax: 5}"), own(1, new(int32(4)), 0)),
				newShoot(config("machineControllerManager: {autoPreserveFailedMax: 5}")),
				`must be at most 4, the maximum of worker pool "b"`),
		)

		DescribeTable("should let through",
			func(oldShoot, newShoot *gardencorev1beta1.Shoot) {
				Expect(sent(oldShoot, newShoot)).To(BeFalse())
				Expect(update(oldShoot, newShoot)).To(Succeed())
			},
			Entry("a Shoot in deletion", newShoot(), newShoot(config(bad), func(shoot *gardencorev1beta1.Shoot) { shoot.DeletionTimestamp = new(metav1.Now()) })),
			Entry("what was invalid before", newShoot(config(bad)), newShoot(config(bad))),
			Entry("other fields of what was invalid before", newShoot(config(bad)), newShoot(config(bad), func(shoot *gardencorev1beta1.Shoot) {
				shoot.Labels = map[string]string{"foo": "bar"}
				shoot.Spec.Kubernetes.Version = "1.2.3"
				shoot.Spec.Provider.Workers[0].Minimum = 1
				shoot.Spec.Provider.Workers[0].MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{MaxEvictRetries: new(int32(3))}
				shoot.Spec.Extensions = append([]gardencorev1beta1.Extension{{Type: "new"}}, shoot.Spec.Extensions...)
				shoot.Status.TechnicalID = "shoot--foo"
			})),
			Entry("a disabled extension", newShoot(config(bad)), newShoot(config(bad), disabled)),
			Entry("a change of a disabled extension", newShoot(disabled), newShoot(config(bad), disabled)),
			Entry("a removed extension", newShoot(config(bad)), newShoot(removed)),
		)

		one := config("machineControllerManager: {autoPreserveFailedMax: 1}")
		timeout := config("workers: [{name: a, machineControllerManager: {machinePreserveTimeout: 1h}}]")

		It("should not repeat warnings", func() {
			Expect(validator.Shoot{}.ValidateUpdate(ctx, newShoot(one), newShoot(one))).To(BeEmpty())
		})

		DescribeTable("should warn of what the update changes",
			func(oldShoot, newShoot *gardencorev1beta1.Shoot) {
				Expect(sent(oldShoot, newShoot)).To(BeTrue())
				Expect(validator.Shoot{}.ValidateUpdate(ctx, oldShoot, newShoot)).To(HaveLen(1))
			},
			Entry("a new extension", newShoot(removed, own(0, new(int32(1)), 0)), newShoot(own(0, new(int32(1)), 0))),
			Entry("a new configuration", newShoot(), newShoot(one)),
			Entry("the number", newShoot(one), newShoot(config("machineControllerManager: {autoPreserveFailedMax: 2}"))),
			Entry("the zones", newShoot(one), newShoot(one, pool(0, func(w *gardencorev1beta1.Worker) { w.Zones = []string{"1", "2"} }))),
			Entry("the number in the Shoot", newShoot(own(0, new(int32(1)), 0)), newShoot(own(0, new(int32(2)), 0))),
			Entry("the timeout in the Shoot", newShoot(timeout, own(0, nil, time.Minute)), newShoot(timeout, own(0, nil, time.Hour))),
			Entry("the drain timeout in the Shoot", newShoot(config("drainStrategies: {}"), drainTimeout(0, 2*time.Hour)), newShoot(config("drainStrategies: {}"), drainTimeout(0, time.Hour))),
			Entry("D13: the node conditions in the Shoot", newShoot(config("drainConditions: true")), newShoot(config("drainConditions: true"), nodeConditions(0, "DrainInProgress"))),
		)
	})
})
