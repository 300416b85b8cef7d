// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Reconciler", func() {
	const (
		namespace = "shoot--foo--bar"
		maxKey    = "machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max"
		timeKey   = "machine-preservation.extensions.gardener.cloud/machine-preserve-timeout"
		forceKey  = "machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes"
	)

	var (
		ctx      context.Context
		c        client.Client
		recorder *events.FakeRecorder
		patches  int
		// undo is what a webhook with an old cache would do to a written MachineDeployment.
		undo func(*machinev1alpha1.MachineDeployment)
		// deny is the name of a MachineDeployment that cannot be written.
		deny string
		// listError is what an attempt to list Machines ends with.
		listError error
		now       = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

		reconciler *Reconciler
		worker     *extensionsv1alpha1.Worker
		extension  *extensionsv1alpha1.Extension
	)

	create := func(objects ...client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
	}
	machineDeployment := func(name, pool, class string) *machinev1alpha1.MachineDeployment {
		return &machinev1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"worker.gardener.cloud/pool": pool}},
			Spec: machinev1alpha1.MachineDeploymentSpec{
				AutoPreserveFailedMachineMax: 1,
				Replicas:                     2,
				Selector:                     &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}},
				Template:                     machinev1alpha1.MachineTemplateSpec{Spec: machinev1alpha1.MachineSpec{Class: machinev1alpha1.ClassSpec{Name: class}}},
			},
		}
	}
	machineClass := func(name, zone string) *machinev1alpha1.MachineClass {
		return &machinev1alpha1.MachineClass{
			ObjectMeta:   metav1.ObjectMeta{Name: name, Namespace: namespace},
			NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: zone},
		}
	}
	reconcileWorker := func() reconcile.Result {
		GinkgoHelper()
		result, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(worker)})
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	get := func(name string) *machinev1alpha1.MachineDeployment {
		GinkgoHelper()
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment)).To(Succeed())
		return deployment
	}
	configure := func(config string) {
		GinkgoHelper()
		extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig",` + config + `}`)}
		Expect(c.Update(ctx, extension)).To(Succeed())
	}

	enableNativeFields := func() {
		GinkgoHelper()
		create(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "machinedeployments.machine.sapcloud.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1",
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Properties: map[string]apiextensionsv1.JSONSchemaProps{"autoPreserveFailedMachineMax": {}}},
				}}},
			}}},
		})
	}

	BeforeEach(func() {
		ctx = context.Background()
		patches, undo, deny, listError = 0, nil, "", nil
		recorder = events.NewFakeRecorder(10)

		c = fakeclient.NewClientBuilder().WithScheme(builder.Scheme(extensionsv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, machines := list.(*metav1.PartialObjectMetadataList); machines && listError != nil {
					return listError
				}
				return c.List(ctx, list, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				patches++
				if object.GetName() == deny {
					return errors.New("denied")
				}
				if err := c.Patch(ctx, object, patch, opts...); err != nil || undo == nil {
					return err
				}
				undo(object.(*machinev1alpha1.MachineDeployment))
				return c.Update(ctx, object)
			},
		}).Build()

		reconciler = &Reconciler{
			Client:    c,
			APIReader: c,
			Planner: &controlplane.Planner{Reader: c, Defaults: &configv1alpha1.ControllerConfiguration{
				AutoPreserveFailedMax:  new(int32(0)),
				MachinePreserveTimeout: &metav1.Duration{Duration: 72 * time.Hour},
			}},
			Schemas:  &machinecrd.Schemas{Machines: c, MachineDeployments: c},
			Recorder: recorder,
			Clock:    testclock.NewFakePassiveClock(now),
		}

		worker = &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Name: "bar", Namespace: namespace}}
		worker.Spec.Region = "region"
		worker.Spec.Pools = []extensionsv1alpha1.WorkerPool{{Name: "worker-a", Maximum: 6, Zones: []string{"a", "b"}}}
		extension = &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		extension.Spec.Type = "machine-preservation"
		create(worker, extension,
			machineClass("class-1", "a"), machineClass("class-2", "b"),
			machineDeployment("md-1", "worker-a", "class-1"), machineDeployment("md-2", "worker-a", "class-2"),
		)
		configure(`"workers":[{"name":"worker-a","machineControllerManager":{"autoPreserveFailedMax":3,"machinePreserveTimeout":"24h"}}]`)
	})

	It("should write the shares, and nothing when nothing has changed", func() {
		Expect(reconcileWorker()).To(BeZero())
		Expect(get("md-1").Annotations).To(Equal(map[string]string{maxKey: "2", timeKey: "24h0m0s"}))
		Expect(get("md-2").Annotations).To(Equal(map[string]string{maxKey: "1", timeKey: "24h0m0s"}))
		Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1), "there is no definition with the native fields")
		Expect(patches).To(Equal(2))

		reconcileWorker()
		Expect(patches).To(Equal(2))
		Expect(recorder.Events).To(BeEmpty())
	})

	It("P2: should write the maximum that the cluster-autoscaler is given, and none where it changes nothing", func() {
		const key = "machine-preservation.extensions.gardener.cloud/maximum"
		sizes := func(minimum, maximum int32) {
			GinkgoHelper()
			worker.Status.MachineDeployments = []extensionsv1alpha1.MachineDeployment{{Name: "md-1", Minimum: minimum, Maximum: maximum}, {Name: "md-2", Minimum: 2, Maximum: 2}, {Name: "gone", Maximum: 9}}
			Expect(c.Update(ctx, worker)).To(Succeed())
			reconcileWorker()
		}
		sizes(1, 3)
		Expect(get("md-1").Annotations).To(HaveKeyWithValue(key, "3"))
		Expect(get("md-2").Annotations).NotTo(HaveKey(key))
		Expect(get("md-2").Annotations).To(HaveKeyWithValue(maxKey, "1"))
		Expect(patches).To(Equal(2))
		sizes(1, 4)
		Expect(get("md-1").Annotations).To(HaveKeyWithValue(key, "4"))
		Expect(patches).To(Equal(3))
		sizes(4, 4)
		Expect(get("md-1").Annotations).NotTo(HaveKey(key))
		Expect(patches).To(Equal(4))
	})

	// lease is that of the preservation controller, which is at work since then.
	lease := func(since time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: namespace}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("mcm-0_1"), AcquireTime: new(metav1.NewMicroTime(since)), RenewTime: new(metav1.NewMicroTime(now)), LeaseDurationSeconds: new(int32(15)),
		}}
	}

	It("should write the native fields where the resource has them, and the number when the preservation controller is at work and knows the share", func() {
		enableNativeFields()
		Expect(reconcileWorker()).To(Equal(reconcile.Result{RequeueAfter: 30 * time.Second}))
		Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))
		create(lease(now.Add(-time.Second)))
		Expect(reconcileWorker()).To(BeZero())
		Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeZero())
		Expect(get("md-1").Spec.Template.Spec.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 24 * time.Hour})))
		Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
	})

	Describe("when machine-controller-manager has auto-preserved machines", func() {
		const preserve = "node.machine.sapcloud.io/preserve"
		var machine *machinev1alpha1.Machine
		lookAgain := reconcile.Result{RequeueAfter: 5 * time.Second}

		BeforeEach(func() {
			enableNativeFields()
			machine = &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name: "m-1", Namespace: namespace, Labels: map[string]string{"name": "md-1"}, Annotations: map[string]string{preserve: "auto-preserved"},
			}}
			create(machine)
		})

		It("should let it go on, for that MachineDeployment only, until they are taken over", func() {
			Expect(reconcileWorker()).To(Equal(reconcile.Result{RequeueAfter: 30 * time.Second}))
			Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))

			By("Starting the preservation controller")
			create(lease(now.Add(-59 * time.Second)))
			Expect(reconcileWorker()).To(Equal(lookAgain))
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))
			Expect(get("md-2").Spec.AutoPreserveFailedMachineMax).To(BeZero())

			By("Taking the machine over")
			machine.Annotations[preserve] = "now"
			Expect(c.Update(ctx, machine)).To(Succeed())
			Expect(reconcileWorker()).To(BeZero())
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeZero())
		})

		It("should leave them to it until the preservation controller knows the share, however long that is at work", func() {
			create(lease(now.Add(-time.Hour)))
			Expect(reconcileWorker()).To(Equal(lookAgain))
			Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))
		})

		DescribeTable("should let it give them up", func(prepare func()) {
			reconcileWorker() // the share is known
			prepare()
			Expect(reconcileWorker()).To(BeZero())
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeZero())
		},
			Entry("when the preservation controller has left them", func() { create(lease(now.Add(-time.Minute))) }),
			Entry("when they have no place", func() { configure(`"machineControllerManager":{"autoPreserveFailedMax":0}`) }),
			Entry("when the pool has no machines", func() {
				deployment := get("md-1")
				deployment.Spec.Replicas = 0
				Expect(c.Update(ctx, deployment)).To(Succeed())
				create(lease(now.Add(-time.Second)))
			}),
			Entry("when they are being deleted", func() {
				create(lease(now.Add(-time.Second)))
				machine.Finalizers = []string{"machine.sapcloud.io/machine-controller-manager"}
				Expect(c.Update(ctx, machine)).To(Succeed())
				Expect(c.Delete(ctx, machine)).To(Succeed())
			}),
		)

		It("should wait for a preservation controller whose Lease is over", func() {
			old := lease(now.Add(-time.Hour))
			old.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-15 * time.Second)))
			create(old)
			Expect(reconcileWorker()).To(Equal(reconcile.Result{RequeueAfter: 30 * time.Second}))
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))
		})

		It("P12: should write the shares all the same when it cannot know, and say so", func() {
			listError = errors.New("fake")
			_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(worker)})
			Expect(err).To(MatchError(ContainSubstring(`failed to list Machines: fake`)))
			Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
			Expect(get("md-1").Spec.AutoPreserveFailedMachineMax).To(BeEquivalentTo(1))
		})
	})

	It("should write for each MachineDeployment of a pool that pods with volumes may be deleted by force, and take it back", func() {
		worker.Spec.Pools = append(worker.Spec.Pools, extensionsv1alpha1.WorkerPool{Name: "worker-b", Maximum: 1})
		Expect(c.Update(ctx, worker)).To(Succeed())
		create(machineDeployment("md-3", "worker-b", "class-1"))

		configure(`"workers":[{"name":"worker-a","machineControllerManager":{"forceDeletePodsWithVolumes":true}}]`)
		reconcileWorker()
		Expect(get("md-1").Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s", forceKey: "true"}))
		Expect(get("md-2").Annotations).To(HaveKeyWithValue(forceKey, "true"))
		Expect(get("md-3").Annotations).NotTo(HaveKey(forceKey))
		count := patches
		reconcileWorker()
		Expect(patches).To(Equal(count))

		configure(`"machineControllerManager":{"forceDeletePodsWithVolumes":true},"workers":[{"name":"worker-a","machineControllerManager":{"forceDeletePodsWithVolumes":false}}]`)
		reconcileWorker()
		Expect(get("md-1").Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s"}))
		Expect(get("md-3").Annotations).To(HaveKeyWithValue(forceKey, "true"))
	})

	It("should find MachineDeployments by the label of their nodes if they have none", func() {
		deployment := machineDeployment("md-3", "", "class-3")
		deployment.Labels = nil
		deployment.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "worker-b"}
		worker.Spec.Pools = append(worker.Spec.Pools, extensionsv1alpha1.WorkerPool{Name: "worker-b", Maximum: 1, Zones: []string{"a"}})
		Expect(c.Update(ctx, worker)).To(Succeed())
		create(deployment, machineClass("class-3", "a"))

		reconcileWorker()
		Expect(get("md-3").Annotations).To(Equal(map[string]string{maxKey: "0", timeKey: "72h0m0s"}))
	})

	It("should leave MachineDeployments of other pools alone", func() {
		create(machineDeployment("md-old", "worker-old", "class-1"))
		reconcileWorker()
		Expect(get("md-old").Annotations).To(BeEmpty())
	})

	It("should wait for a MachineClass that is not there yet", func() {
		create(machineDeployment("md-3", "worker-a", "class-3"))
		reconcileWorker()
		Expect(get("md-3").Annotations).To(BeEmpty())
		Expect(recorder.Events).To(BeEmpty())
	})

	It("should say what is missing if there is no share for a MachineDeployment", func() {
		create(machineDeployment("md-3", "worker-a", "class-3"), machineClass("class-3", "c"))
		reconcileWorker()
		Expect(get("md-3").Annotations).To(BeEmpty())
		Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
		Expect(recorder.Events).To(Receive(Equal(`Warning ShareNotPlaced MachineDeployment "md-3" gets no share: ` +
			`nodeTemplate.zone "c" of its MachineClass "class-3" is none of the zones ["a" "b"] of worker pool "worker-a"`)))
	})

	DescribeTable("should change nothing when the configuration is not valid",
		func(config, message string) {
			reconcileWorker()
			before := []*machinev1alpha1.MachineDeployment{get("md-1"), get("md-2")}

			configure(config)
			reconcileWorker()
			Expect([]*machinev1alpha1.MachineDeployment{get("md-1"), get("md-2")}).To(Equal(before))
			Expect(recorder.Events).To(Receive(Equal("Warning InvalidConfiguration The shares are not updated, because the configuration is not valid: " + message)))
		},
		Entry("unknown field", `"foo":1`, `spec.providerConfig.foo: Invalid value: 1: unknown field, valid fields are apiVersion, drainConditions, drainStrategies, evidence, failures, kind, machineControllerManager, nodeMaintenance, workers`),
		Entry("number above the maximum", `"machineControllerManager":{"autoPreserveFailedMax":7}`,
			`spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 7: must be at most 6, the maximum of worker pool "worker-a"`),
		Entry("unknown pool", `"workers":[{"name":"worker-x"}]`, `spec.providerConfig.workers[0].name: Unsupported value: "worker-x": supported values: "worker-a"`),
	)

	It("should wait for the Worker, without an Event, when the configuration is valid for the pools of the Shoot", func() {
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":{"provider":{"workers":[{"name":"worker-a","maximum":6},{"name":"worker-b"}]}}}`)
		create(cluster)
		reconcileWorker()
		configure(`"workers":[{"name":"worker-a","machineControllerManager":{"autoPreserveFailedMax":4}},{"name":"worker-b"}]`)
		reconcileWorker()
		Expect(get("md-1").Annotations).To(HaveKeyWithValue(maxKey, "2"))
		Expect(patches).To(Equal(2))

		worker.Spec.Pools = append(worker.Spec.Pools, extensionsv1alpha1.WorkerPool{Name: "worker-b"})
		Expect(c.Update(ctx, worker)).To(Succeed())
		reconcileWorker()
		Expect(get("md-2").Annotations).To(HaveKeyWithValue(maxKey, "2"))
		Expect(recorder.Events).To(BeEmpty())

		configure(`"workers":[{"name":"worker-c"}]`)
		reconcileWorker()
		Expect(recorder.Events).To(Receive(HavePrefix("Warning InvalidConfiguration ")))
	})

	DescribeTable("should remove its annotations, and nothing else, when the extension is disabled",
		func(disable func()) {
			deployment := get("md-1")
			deployment.Annotations = map[string]string{"foo": "bar"}
			Expect(c.Update(ctx, deployment)).To(Succeed())
			configure(`"machineControllerManager":{"forceDeletePodsWithVolumes":true}`)
			reconcileWorker()
			Expect(get("md-1").Annotations).To(HaveLen(4))

			disable()
			expected := get("md-1")
			expected.Annotations = map[string]string{"foo": "bar"}
			reconcileWorker()
			actual := get("md-1")
			expected.ResourceVersion = actual.ResourceVersion
			Expect(actual).To(Equal(expected))
			Expect(get("md-2").Annotations).To(BeEmpty())

			count := patches
			reconcileWorker()
			Expect(patches).To(Equal(count))
		},
		Entry("deleted", func() { Expect(c.Delete(ctx, extension)).To(Succeed()) }),
		Entry("being deleted", func() {
			extension.Finalizers = []string{"extensions.gardener.cloud/machine-preservation"}
			Expect(c.Update(ctx, extension)).To(Succeed())
			Expect(c.Delete(ctx, extension)).To(Succeed())
		}),
		Entry("of another type", func() {
			extension.Spec.Type = "other"
			Expect(c.Update(ctx, extension)).To(Succeed())
		}),
	)

	It("should never write to shoots without the extension", func() {
		Expect(c.Delete(ctx, extension)).To(Succeed())
		reconcileWorker()
		Expect(patches).To(BeZero())
	})

	It("should leave a MachineDeployment alone that is being deleted", func() {
		deployment := get("md-1")
		deployment.Finalizers = []string{"machine.sapcloud.io/machine-controller-manager"}
		Expect(c.Update(ctx, deployment)).To(Succeed())
		Expect(c.Delete(ctx, deployment)).To(Succeed())
		reconcileWorker()
		Expect(get("md-1").Annotations).To(BeEmpty())
		Expect(get("md-2").Annotations).To(HaveKeyWithValue(maxKey, "1"))
	})

	It("should pass the share on while the MachineDeployment that had it is being deleted", func() {
		reconcileWorker()
		old := get("md-1")
		old.Finalizers = []string{"machine.sapcloud.io/machine-controller-manager"}
		Expect(c.Update(ctx, old)).To(Succeed())
		create(machineDeployment("md-1-new", "worker-a", "class-1"))
		reconcileWorker()
		Expect(get("md-1-new").Annotations).To(HaveKeyWithValue(maxKey, "0"))

		Expect(c.Delete(ctx, old)).To(Succeed())
		reconcileWorker()
		Expect(get("md-1-new").Annotations).To(HaveKeyWithValue(maxKey, "2"))
	})

	It("should look again if a webhook has undone what it wrote", func() {
		undo = func(deployment *machinev1alpha1.MachineDeployment) { deployment.Annotations[maxKey] = "5" }
		Expect(reconcileWorker()).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
	})

	DescribeTable("P12: should go on with the others when it fails on one MachineDeployment, and say so",
		func(change func(), isRight func(*machinev1alpha1.MachineDeployment)) {
			change()
			deny = "md-1"
			_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(worker)})
			Expect(err).To(MatchError(`failed to patch MachineDeployment "md-1": denied`))
			isRight(get("md-2"))

			deny = ""
			Expect(reconcileWorker()).To(BeZero())
			isRight(get("md-1"))
		},
		Entry("when shares are written", func() {}, func(deployment *machinev1alpha1.MachineDeployment) {
			Expect(deployment.Annotations).To(HaveKeyWithValue(timeKey, "24h0m0s"))
		}),
		Entry("P10: when the extension is disabled", func() {
			reconcileWorker()
			Expect(c.Delete(ctx, extension)).To(Succeed())
		}, func(deployment *machinev1alpha1.MachineDeployment) {
			Expect(deployment.Annotations).To(BeEmpty())
		}),
	)

	It("should do nothing when the Worker is gone", func() {
		Expect(c.Delete(ctx, worker)).To(Succeed())
		Expect(reconcileWorker()).To(BeZero())
		Expect(patches).To(BeZero())
	})
})
