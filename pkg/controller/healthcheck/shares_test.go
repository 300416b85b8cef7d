// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"fmt"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
)

var _ = Describe("Shares", func() {
	const namespace = "shoot--foo--bar"

	var (
		ctx       = context.Background()
		c         client.Client
		check     *Shares
		extension *extensionsv1alpha1.Extension
	)

	BeforeEach(func() {
		c = newClient()
		defaults := &configv1alpha1.ControllerConfiguration{}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(defaults)
		check = &Shares{
			Reader:  c,
			Planner: &controlplane.Planner{Reader: c, Defaults: defaults},
			Schemas: &machinecrd.Schemas{Machines: c, MachineDeployments: c},
		}

		extension = &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		extension.Spec.Type = "machine-preservation"
		extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",` +
			`"kind":"MachinePreservationConfig","machineControllerManager":{"autoPreserveFailedMax":2}}`)}
		Expect(c.Create(ctx, extension)).To(Succeed())
		Expect(c.Create(ctx, &extensionsv1alpha1.Worker{
			ObjectMeta: metav1.ObjectMeta{Name: "bar", Namespace: namespace},
			Spec:       extensionsv1alpha1.WorkerSpec{Pools: []extensionsv1alpha1.WorkerPool{{Name: "pool", Maximum: 4, Zones: []string{"a", "b"}}}},
		})).To(Succeed())
		Expect(c.Create(ctx, &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "class-a", Namespace: namespace},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"},
		})).To(Succeed())
		Expect(c.Create(ctx, &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: "class-x", Namespace: namespace},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "x"},
		})).To(Succeed())
	})

	create := func(name, pool, class string, annotations map[string]string) *machinev1alpha1.MachineDeployment {
		GinkgoHelper()
		deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{"worker.gardener.cloud/pool": pool}, Annotations: annotations,
		}}
		deployment.Spec.Template.Spec.Class.Name = class
		Expect(c.Create(ctx, deployment)).To(Succeed())
		return deployment
	}
	share := map[string]string{
		"machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max": "1",
		"machine-preservation.extensions.gardener.cloud/machine-preserve-timeout": "72h0m0s",
	}
	configure := func(maximum int) {
		GinkgoHelper()
		extension.Spec.ProviderConfig.Raw = fmt.Appendf(nil, `{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1",`+
			`"kind":"MachinePreservationConfig","workers":[{"name":"pool","machineControllerManager":{"autoPreserveFailedMax":%d}}]}`, maximum)
		Expect(c.Update(ctx, extension)).To(Succeed())
	}
	createCluster := func(pool string) {
		GinkgoHelper()
		if pool == "" {
			return
		}
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":{"provider":{"workers":[` + pool + `]}}}`)
		Expect(c.Create(ctx, cluster)).To(Succeed())
	}
	expect := func(matcher types.GomegaMatcher) {
		GinkgoHelper()
		Expect(check.Check(ctx, namespace)).To(matcher)
	}

	It("should be healthy when each MachineDeployment has its share", func() {
		create("a", "pool", "class-a", share)
		expect(beHealthy())
	})

	It("should be healthy without MachineDeployments, and without the extension", func() {
		expect(beHealthy())
		Expect(c.Delete(ctx, extension)).To(Succeed())
		create("a", "pool", "class-a", nil)
		expect(beHealthy())
	})

	DescribeTable("should tell which MachineDeployment has not its share, and why",
		func(pool, class string, annotations map[string]string, detail string) {
			create("md", pool, class, annotations)
			expect(beProgressing(Equal(detail)))
		},
		Entry("no zone of the pool", "pool", "class-x", share,
			`MachineDeployment "md" gets no share: nodeTemplate.zone "x" of its MachineClass "class-x" is none of the zones ["a" "b"] of worker pool "pool"`),
		Entry("no pool", "", "class-a", nil, `MachineDeployment "md" gets no share: there is no worker pool "" or no MachineClass "class-a"`),
		Entry("no such class", "pool", "class-b", nil, `MachineDeployment "md" gets no share: there is no worker pool "pool" or no MachineClass "class-b"`),
		Entry("not written", "pool", "class-a", nil, `MachineDeployment "md" does not have its share yet`),
		Entry("another share", "pool", "class-a", map[string]string{"machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max": "7"},
			`MachineDeployment "md" does not have its share yet`),
	)

	It("should tell of all of them", func() {
		create("one", "pool", "class-x", nil)
		create("two", "pool", "class-a", nil)
		expect(beProgressing(And(HavePrefix(`MachineDeployment "one" gets no share: `), HaveSuffix(`; MachineDeployment "two" does not have its share yet`))))
	})

	It("should leave out those of a pool that was removed, because Gardener deletes them when all others are available", func() {
		create("a", "pool", "class-a", share)
		create("md", "removed", "class-a", share)
		create("gone", "removed", "class-b", share)
		expect(beHealthy())
	})

	It("should not leave out those of a pool of another name, where a pool has none", func() {
		create("md", "mangled", "class-a", share)
		expect(beProgressing(Equal(`MachineDeployment "md" gets no share: there is no worker pool "mangled" or no MachineClass "class-a"`)))
	})

	It("should leave out those that are being deleted", func() {
		deployment := create("md", "pool", "class-b", nil)
		deployment.Finalizers = []string{"foo"}
		Expect(c.Update(ctx, deployment)).To(Succeed())
		Expect(c.Delete(ctx, deployment)).To(Succeed())
		expect(beHealthy())
	})

	DescribeTable("should tell that the configuration is not valid for the pools as they are now", func(shoot string) {
		create("a", "pool", "class-a", share)
		configure(5)
		createCluster(shoot)
		expect(beUnhealthy(And(HavePrefix("the shares are not updated, because the configuration is not valid: spec.providerConfig.workers[0]"), ContainSubstring("must be at most")),
			gardencorev1beta1.ErrorConfigurationProblem))
	},
		Entry("without a Cluster", ""),
		Entry("nor for those of the Shoot", `{"name":"pool","maximum":4}`),
	)

	It("should wait for the Worker when the configuration is valid for the pools of the Shoot", func() {
		create("a", "pool", "class-a", share)
		configure(5)
		createCluster(`{"name":"pool","maximum":6}`)
		expect(beProgressing(And(HavePrefix("the shares are not updated yet, because the Worker does not have the worker pools of the Shoot yet: spec.providerConfig.workers[0]"), ContainSubstring("must be at most"))))
	})

	It("should not read the Cluster when the configuration is valid for the Worker", func() {
		create("a", "pool", "class-a", share)
		createCluster(`{"maximum":"none"}`)
		expect(beHealthy())
		configure(5)
		_, err := check.Check(ctx, namespace)
		Expect(err).To(MatchError(ContainSubstring("failed to get Shoot: ")))
	})
})
