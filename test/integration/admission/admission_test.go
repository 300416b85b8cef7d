// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"os"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// option changes one thing of a Shoot.
type option func(*gardencorev1beta1.Shoot)

// newShoot returns the Shoot of the example under another name. Its pool worker-a has 6 machines in two zones, 2 failed ones
// of which are kept.
func newShoot(name string, options ...option) *gardencorev1beta1.Shoot {
	GinkgoHelper()
	data, err := os.ReadFile("../../../example/shoot.yaml")
	Expect(err).NotTo(HaveOccurred())
	shoot := &gardencorev1beta1.Shoot{}
	Expect(yaml.UnmarshalStrict(data, shoot)).To(Succeed())
	shoot.Name = name
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
	return func(shoot *gardencorev1beta1.Shoot) {
		raw, err := yaml.YAMLToJSON([]byte(config))
		Expect(err).NotTo(HaveOccurred())
		shoot.Spec.Extensions[0].ProviderConfig = &runtime.RawExtension{Raw: raw}
	}
}

// pool adds a pool like worker-a, without Gardener's own fields.
func pool(name string, maximum int32, zones ...string) option {
	return func(shoot *gardencorev1beta1.Shoot) {
		worker := shoot.Spec.Provider.Workers[0].DeepCopy()
		worker.Name, worker.Minimum, worker.Maximum, worker.Zones = name, 0, maximum, zones
		worker.MachineControllerManagerSettings = nil
		shoot.Spec.Provider.Workers = append(shoot.Spec.Provider.Workers, *worker)
	}
}

func purpose(purpose gardencorev1beta1.ShootPurpose) option {
	return func(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Purpose = &purpose }
}

func maximum(maximum int32) option {
	return func(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Provider.Workers[0].Maximum = maximum }
}

func renamed(name string) option {
	return func(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Provider.Workers[0].Name = name }
}

// finalizer stands for that of gardenlet: the Shoot stays while it is being deleted.
func finalizer(shoot *gardencorev1beta1.Shoot) { shoot.Finalizers = []string{"example.com/gardenlet"} }

func removed(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Extensions = nil }

func workerless(shoot *gardencorev1beta1.Shoot) {
	shoot.Spec.Provider.Workers, shoot.Spec.CredentialsBindingName, shoot.Spec.Networking = nil, nil, nil
	shoot.Spec.Extensions[0].ProviderConfig = nil
}

func disabled(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Extensions[0].Disabled = new(true) }

// own sets Gardener's own fields of worker-a.
func own(shoot *gardencorev1beta1.Shoot) {
	shoot.Spec.Provider.Workers[0].MachineControllerManagerSettings = &gardencorev1beta1.MachineControllerManagerSettings{
		AutoPreserveFailedMachineMax: new(int32(1)),
		MachinePreserveTimeout:       &metav1.Duration{Duration: 48 * time.Hour},
	}
}

// expectApplied expects that kubectl says what it has done, and each warning on a line.
func expectApplied(shoot *gardencorev1beta1.Shoot, verb string, warnings ...string) {
	GinkgoHelper()
	result := garden.apply(shoot)
	Expect(result.err).NotTo(HaveOccurred(), result.stderr)
	Expect(result.stdout).To(Equal("shoot.core.gardener.cloud/" + shoot.Name + " " + verb + "\n"))
	var stderr strings.Builder
	for _, warning := range warnings {
		stderr.WriteString("Warning: " + warning + "\n")
	}
	Expect(result.stderr).To(Equal(stderr.String()))
}

// expectRefused expects that kubectl says what is wrong, and that nothing has happened.
func expectRefused(shoot *gardencorev1beta1.Shoot, messages ...string) {
	GinkgoHelper()
	before := version(shoot.Name)
	result := garden.apply(shoot)
	Expect(result.err).To(HaveOccurred())
	Expect(result.stdout).To(BeEmpty())
	expected := "The Shoot \"" + shoot.Name + "\" is invalid: "
	if len(messages) == 1 {
		expected += messages[0] + "\n"
	} else {
		expected += "\n* " + strings.Join(messages, "\n* ") + "\n"
	}
	Expect(result.stderr).To(Equal(expected))
	Expect(version(shoot.Name)).To(Equal(before))
}

// version returns the resource version of a Shoot, "" if there is none.
func version(name string) string {
	GinkgoHelper()
	result := garden.kubectl("", "get", "shoot", name, "--namespace=garden-local", "--ignore-not-found", "--output=jsonpath={.metadata.resourceVersion}")
	Expect(result.err).NotTo(HaveOccurred(), result.stderr)
	return result.stdout
}

const (
	forAll = "spec.extensions[0].providerConfig.machineControllerManager"
	first  = "spec.extensions[0].providerConfig.workers[0]"
	ofPool = first + ".machineControllerManager"
	native = "spec.provider.workers[0].machineControllerManager"
)

// bad is a bad configuration, and badMessage is what kubectl says about it.
var (
	bad        = config("workers: [{name: worker-x}]")
	badMessage = first + `.name: Unsupported value: "worker-x": supported values: "worker-a"`
)

var _ = Describe("Admission", Ordered, ContinueOnFailure, func() {
	var admission *environment.Running

	BeforeAll(func(ctx SpecContext) {
		expectApplied(newShoot("older", bad, finalizer), "created")

		admission = startAdmission(ctx)
		// gardener-apiserver calls the webhook once it has seen the registration.
		Eventually(func() string {
			return garden.apply(newShoot("foo", bad), "--dry-run=server").stderr
		}).WithTimeout(environment.StartTimeout).Should(ContainSubstring("is invalid"))
	})

	It("should have its certificates and its Lease in the runtime cluster, and its registration in the garden", func(ctx SpecContext) {
		registration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gardener-extension-machine-preservation-admission"}}
		Eventually(func(g Gomega) { // the owner is set with the next write
			g.Expect(garden.client.Get(ctx, client.ObjectKeyFromObject(registration), registration)).To(Succeed())
			g.Expect(registration.OwnerReferences).To(HaveExactElements(HaveField("Name", "garden")))
		}).WithTimeout(environment.StartTimeout).Should(Succeed())
		Expect(registration.Webhooks).To(HaveExactElements(And(
			HaveField("Name", "validator.machine-preservation-admission.extensions.gardener.cloud"),
			HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Fail))),
			HaveField("ObjectSelector.MatchLabels", Equal(map[string]string{"extensions.extensions.gardener.cloud/machine-preservation": "true"})),
			HaveField("TimeoutSeconds", HaveValue(BeEquivalentTo(5))),
			HaveField("MatchConditions", HaveLen(3)),
			HaveField("Rules", HaveExactElements(HaveField("Rule.Resources", HaveExactElements("shoots")))),
		)))
		Expect(runtimeCluster.client.Get(ctx, client.ObjectKeyFromObject(registration), registration)).To(Satisfy(apierrors.IsNotFound))

		secrets := &corev1.SecretList{}
		Expect(runtimeCluster.client.List(ctx, secrets, client.InNamespace(namespace))).To(Succeed())
		Expect(secrets.Items).To(HaveLen(3), "CA, its bundle, certificate")
		Expect(garden.client.List(ctx, secrets)).To(Succeed())
		Expect(secrets.Items).To(HaveExactElements(HaveField("Name", "local")))

		lease := &coordinationv1.Lease{}
		Expect(runtimeCluster.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-preservation-admission-leader-election"}, lease)).To(Succeed())
	})

	// A Shoot is created and changed, with and without Gardener's own fields.
	for _, with := range []struct {
		name   string
		fields option
		// What kubectl warns of after the first and after the second good configuration.
		first, second []string
	}{
		{name: "plain", fields: func(*gardencorev1beta1.Shoot) {}},
		{
			name:   "with-own",
			fields: own,
			first: []string{
				ofPool + ".autoPreserveFailedMax: 2 overrides 1 in " + native + ".autoPreserveFailedMachineMax",
				ofPool + ".machinePreserveTimeout: 24h0m0s overrides 48h0m0s in " + native + ".machinePreserveTimeout",
			},
			second: []string{
				ofPool + ".autoPreserveFailedMax: 3 overrides 1 in " + native + ".autoPreserveFailedMachineMax",
			},
		},
	} {
		Describe(with.name, func() {
			It("should accept a good configuration", func() {
				expectApplied(newShoot(with.name, with.fields), "created", with.first...)
			})

			It("should say nothing if something else changes", func() {
				expectApplied(newShoot(with.name, with.fields, purpose("development")), "configured")
			})

			It("should refuse a bad configuration", func() {
				expectRefused(newShoot("new-"+with.name, with.fields, config("workers: [{name: worker-a, machineControllerManager: {autoPreserveFailedMax: 6}}]")),
					ofPool+`.autoPreserveFailedMax: Invalid value: 6: must be at most 5, one less than the maximum of worker pool "worker-a", because system components may run there`)
			})

			It("should refuse a bad configuration after a good one", func() {
				expectRefused(newShoot(with.name, with.fields, config("workers: [{name: worker-a, machineControllerManager: {machinePreserveTimeout: 0s}}]")),
					ofPool+`.machinePreserveTimeout: Invalid value: "0s": must be at least 10s`)
			})

			It("should refuse a smaller pool under a good configuration", func() {
				expectRefused(newShoot(with.name, with.fields, maximum(2)),
					ofPool+`.autoPreserveFailedMax: Invalid value: 2: must be at most 1, one less than the maximum of worker pool "worker-a", because system components may run there`)
			})

			It("should refuse another pool under a good configuration", func() {
				expectRefused(newShoot(with.name, with.fields, renamed("worker-b")),
					first+`.name: Unsupported value: "worker-a": supported values: "worker-b"`)
			})

			It("should accept another good configuration", func() {
				expectApplied(newShoot(with.name, with.fields, config("workers: [{name: worker-a, machineControllerManager: {autoPreserveFailedMax: 3}}]")), "configured", with.second...)
			})

			It("should accept that the extension is removed", func() {
				expectApplied(newShoot(with.name, with.fields, removed), "configured")
			})
		})
	}

	DescribeTable("should name all mistakes at once",
		func(change option, messages ...string) { expectRefused(newShoot("mistakes", change), messages...) },
		Entry("kind and version", rawConfig("{apiVersion: machine-preservation.extensions.gardener.cloud/v1, kind: PreservationConfig}"),
			`spec.extensions[0].providerConfig.apiVersion: Unsupported value: "machine-preservation.extensions.gardener.cloud/v1": supported values: "machine-preservation.extensions.gardener.cloud/v1alpha1"`,
			`spec.extensions[0].providerConfig.kind: Unsupported value: "PreservationConfig": supported values: "MachinePreservationConfig"`),
		Entry("neither kind nor version", rawConfig("{}"),
			`spec.extensions[0].providerConfig.apiVersion: Required value: must be "machine-preservation.extensions.gardener.cloud/v1alpha1"`,
			`spec.extensions[0].providerConfig.kind: Required value: must be "MachinePreservationConfig"`),
		Entry("fields", config("workers: [{name: worker-a, machineControllerManager: {autoPreserveFailedMachineMax: 2}}]"),
			ofPool+`.autoPreserveFailedMachineMax: Invalid value: 2: unknown field, valid fields are autoPreserveFailedMax, distribution, forceDeletePodsWithVolumes, machinePreserveTimeout, preferNewFailures`),
		Entry("types", config("machineControllerManager: {autoPreserveFailedMax: two, machinePreserveTimeout: 3d, forceDeletePodsWithVolumes: 1}\nworkers: [worker-a]"),
			forAll+`.autoPreserveFailedMax: Invalid value: "two": must be a whole number between 0 and 2147483647`,
			forAll+`.forceDeletePodsWithVolumes: Invalid value: 1: must be true or false`,
			forAll+`.machinePreserveTimeout: Invalid value: "3d": must be a positive duration with units, for example "72h" or "90m"`,
			first+`: Invalid value: "worker-a": must be an object`),
		Entry("names", config("workers: [{name: worker-a}, {name: worker-x}, {name: worker-a}, {}]"),
			`spec.extensions[0].providerConfig.workers[1].name: Unsupported value: "worker-x": supported values: "worker-a"`,
			`spec.extensions[0].providerConfig.workers[2].name: Duplicate value: "worker-a": each worker pool may be named only once`,
			`spec.extensions[0].providerConfig.workers[3].name: Required value: must be the name of a worker pool`),
		Entry("values", config("machineControllerManager: {autoPreserveFailedMax: -1, machinePreserveTimeout: -1h}\nworkers: [{name: worker-a, machineControllerManager: {autoPreserveFailedMax: 6}}]"),
			ofPool+`.autoPreserveFailedMax: Invalid value: 6: must be at most 5, one less than the maximum of worker pool "worker-a", because system components may run there`,
			forAll+`.autoPreserveFailedMax: Invalid value: -1: must not be negative`,
			forAll+`.machinePreserveTimeout: Invalid value: "-1h0m0s": must be at least 10s`),
	)

	It("should give all warnings at once", func() {
		expectApplied(newShoot("warnings", own,
			pool("three-zones", 6, "0", "1", "2"), pool("one-machine", 1, "0"), pool("none", 0, "0"),
			config(`
machineControllerManager: {forceDeletePodsWithVolumes: true}
workers:
- {name: three-zones, machineControllerManager: {autoPreserveFailedMax: 2}}
- {name: one-machine, machineControllerManager: {machinePreserveTimeout: 1h}}
- {name: none, machineControllerManager: {machinePreserveTimeout: 1h}}
`)), "created",
			`spec.extensions[0].providerConfig.workers[1].machineControllerManager: applies only to machines that are preserved on request: worker pool "one-machine" has no auto-preservation, because its only machine may run system components`,
			`spec.extensions[0].providerConfig.workers[2].machineControllerManager: has no effect while the maximum of worker pool "none" is 0`,
			forAll+`.forceDeletePodsWithVolumes: true can destroy data: if a node does not answer although its machine still runs, pods run twice with the same volume`,
			native+`.autoPreserveFailedMachineMax: 1 is distributed over the zones of worker pool "worker-a" as 1, 0: in zone "1", failed machines are preserved only on request`,
			ofPool+`.autoPreserveFailedMax: 2 is distributed over the zones of worker pool "three-zones" as 1, 1, 0: in zone "2", failed machines are preserved only on request`)
	})

	It("should not look at a disabled extension", func() {
		expectApplied(newShoot("disabled", bad, disabled), "created")
		expectRefused(newShoot("disabled", bad), badMessage)
		expectApplied(newShoot("disabled"), "configured")
		expectApplied(newShoot("disabled", bad, disabled), "configured")
	})

	It("should not stand in the way of what is older", func() {
		expectApplied(newShoot("older", bad, finalizer, purpose("development")), "configured")
		expectRefused(newShoot("older", bad, finalizer, purpose("development"), maximum(7)), badMessage)

		for _, arguments := range []string{
			"annotate shoot older confirmation.gardener.cloud/deletion=true",
			"delete shoot older --wait=false",
			`patch shoot older --type=merge --patch={"metadata":{"finalizers":null}}`,
		} {
			result := garden.kubectl("", append(strings.Fields(arguments), "--namespace=garden-local")...)
			Expect(result.err).NotTo(HaveOccurred(), result.stderr)
		}
		Expect(version("older")).To(BeEmpty())
	})

	It("should warn of a Shoot without workers, if Gardener lets it through", func() {
		shoot := newShoot("workerless", workerless)
		result := garden.apply(shoot)
		Expect(result.err).To(HaveOccurred())
		Expect(result.stderr).To(ContainSubstring(`given Shoot is workerless and uses non-supported extension type: spec.extensions[0].type ("machine-preservation")`))

		result = garden.kubectl("", "patch", "controllerregistration", "machine-preservation", "--type=json", `--patch=[{"op":"add","path":"/spec/resources/0/workerlessSupported","value":true}]`)
		Expect(result.err).NotTo(HaveOccurred(), result.stderr)
		Eventually(func() error { return garden.apply(shoot, "--dry-run=server").err }).WithTimeout(environment.StartTimeout).Should(Succeed())
		expectApplied(shoot, "created", "spec.extensions[0]: no machine is preserved, because the Shoot has no workers")
	})

	It("should be waited for by nobody but who changes what is validated", func() {
		expectApplied(newShoot("waits"), "created")
		admission.Stop()
		for _, shoot := range []*gardencorev1beta1.Shoot{
			newShoot("new"),
			newShoot("waits", maximum(7)),
			newShoot("waits", own),
			newShoot("waits", config("workers: []")),
			newShoot("disabled"),
		} {
			result := garden.apply(shoot)
			Expect(result.err).To(HaveOccurred())
			Expect(result.stderr).To(ContainSubstring("failed calling webhook"))
		}

		expectApplied(newShoot("goes-on", removed), "created")
		expectApplied(newShoot("disabled", disabled, config("workers: []")), "configured")
		expectApplied(newShoot("waits", purpose("development")), "configured")
		expectApplied(newShoot("waits", func(shoot *gardencorev1beta1.Shoot) { shoot.Spec.Provider.Workers[0].Minimum = 1 }), "configured")
		expectApplied(newShoot("waits", disabled), "configured")
		expectApplied(newShoot("waits", removed), "configured")
	})
})
