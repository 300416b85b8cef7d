// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// fakeEnsurer injects a container with an image, unless that is empty.
type fakeEnsurer struct {
	genericmutator.NoopEnsurer
	image string
	err   error
}

func (e *fakeEnsurer) EnsureMachineControllerManagerDeployment(_ context.Context, _ extensionscontextwebhook.GardenContext, deployment, _ *appsv1.Deployment) error {
	if e.image != "" {
		pod := &deployment.Spec.Template.Spec
		pod.Containers = append(pod.Containers[:1:1], corev1.Container{Name: "machine-preservation-controller", Image: e.image})
	}
	return e.err
}

var _ = Describe("Reconciler", func() {
	const namespace = "shoot--foo--bar"

	var (
		ctx        = context.Background()
		c          client.Client
		ensurer    *fakeEnsurer
		reconciler *Reconciler
		deployment *appsv1.Deployment
		fakeClock  *testclock.FakeClock
		shoot      *gardencorev1beta1.Shoot
		// webhook is what is called when a Deployment is written.
		webhook    *fakeEnsurer
		patchError error
		// patches are the objects and the data of all patches.
		patches []string
		// podsRead are the namespaces whose pods were listed.
		podsRead []string
		// leasesRead are the namespaces whose Lease was read.
		leasesRead []string
	)

	BeforeEach(func() {
		ensurer, webhook, patchError, patches = &fakeEnsurer{image: "v1"}, &fakeEnsurer{image: "v1"}, nil, nil
		podsRead, leasesRead = nil, nil
		scheme := builder.Scheme(appsv1.AddToScheme, vpaautoscalingv1.AddToScheme, extensionsv1alpha1.AddToScheme)
		c = fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
				data, err := patch.Data(object)
				Expect(err).NotTo(HaveOccurred())
				patches = append(patches, object.GetName()+" "+string(data))
				if d, ok := object.(*appsv1.Deployment); ok && patchError == nil {
					Expect(webhook.EnsureMachineControllerManagerDeployment(ctx, nil, d, nil)).To(Succeed())
					return c.Update(ctx, d)
				}
				return patchError
			},
		}).Build()
		fakeClock = testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		apiReader := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				podsRead = append(podsRead, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				leasesRead = append(leasesRead, key.Namespace)
				if err := c.Get(ctx, key, object, opts...); err != nil {
					return err
				}
				lease := object.(*coordinationv1.Lease)
				if lease.Spec.RenewTime == nil { // as the container does
					lease.Spec.RenewTime = new(metav1.NewMicroTime(fakeClock.Now()))
				}
				return nil
			},
		})
		reconciler = &Reconciler{
			Client: c, APIReader: apiReader, Ensurer: ensurer, Config: &configv1alpha1.ControllerConfiguration{},
			Clock: fakeClock, Backoff: flowcontrol.NewFakeBackOff(time.Second, time.Minute, fakeClock),
		}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(reconciler.Config)
		shoot = &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}}

		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "machine-controller-manager"}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}}
	})

	run := func(ctx context.Context) error {
		_, err := reconciler.Reconcile(ctx, reconcile.Request{})
		return err
	}
	createCluster := func(namespace string) {
		GinkgoHelper()
		raw, err := json.Marshal(shoot)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Create(ctx, &extensionsv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}},
		})).To(Succeed())
	}
	create := func(image string) {
		GinkgoHelper()
		createCluster(deployment.Namespace)
		Expect((&fakeEnsurer{image: image}).EnsureMachineControllerManagerDeployment(ctx, nil, deployment, nil)).To(Succeed())
		Expect(c.Create(ctx, deployment)).To(Succeed())
	}
	image := func() string {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 1 {
			return containers[1].Image
		}
		return ""
	}
	bothTouched := []string{"machine-controller-manager {}", "machine-controller-manager-vpa {}"}

	DescribeTable("should have the webhook called for the Deployment and its VerticalPodAutoscaler, and for nothing that is as it should be",
		func(before string) {
			create(before)
			Expect(run(ctx)).To(Succeed())
			Expect(image()).To(Equal("v1"))
			Expect(patches).To(Equal(bothTouched))

			Expect(run(ctx)).To(Succeed())
			Expect(patches).To(HaveLen(2))
		},
		Entry("when the container is missing", ""),
		Entry("when the container is outdated", "v0"),
	)

	It("should leave the Deployment alone as long as the container could not start, or is not wanted", func() {
		create("")
		ensurer.image = ""
		Expect(run(ctx)).To(Succeed())
		Expect(patches).To(BeEmpty())
	})

	It("should leave a Deployment alone that is being deleted", func() {
		deployment.Finalizers = []string{"foregroundDeletion"}
		create("")
		Expect(c.Delete(ctx, deployment)).To(Succeed())
		Expect(run(ctx)).To(Succeed())
		Expect(patches).To(BeEmpty())
	})

	It("should do nothing without a Deployment", func() {
		Expect(run(ctx)).To(Succeed())
		Expect(patches).To(BeEmpty())
	})

	It("should try again while the webhook is away or lags behind", func() {
		create("v0")
		webhook.image = ""
		Expect(run(ctx)).To(MatchError(`failed to replace Deployment "shoot--foo--bar/machine-controller-manager": ` +
			"the webhook has not injected the preservation controller: its image is v0 instead of v1"))
		Expect(image()).To(Equal("v0"))

		webhook.image = "v1"
		Expect(run(ctx)).To(Succeed())
		Expect(image()).To(Equal("v0"), "not yet")
		fakeClock.Step(2 * time.Second)
		Expect(run(ctx)).To(Succeed())
		Expect(image()).To(Equal("v1"))
	})

	It("should return what went wrong", func() {
		create("v0")
		patchError = errors.New("fake")
		Expect(run(ctx)).To(MatchError(`failed to replace Deployment "shoot--foo--bar/machine-controller-manager": failed to patch *v1.Deployment "machine-controller-manager": fake`))

		fakeClock.Step(2 * time.Second)
		ensurer.err = errors.New("unknown")
		Expect(run(ctx)).To(MatchError(ContainSubstring("unknown")))
		Expect(patches).To(HaveLen(1), "nothing is written as long as nobody knows what is wanted")
	})

	DescribeTable("should leave shoots alone that are not to be touched",
		func(change func()) {
			change()
			create("v0")
			Expect(run(ctx)).To(Succeed())
			Expect(patches).To(BeEmpty())
		},
		Entry("failed", func() {
			shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
		}),
		Entry("ignored", func() { shoot.Annotations = map[string]string{"shoot.gardener.cloud/ignore": "true"} }),
		Entry("hibernated", func() { shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)} }),
		Entry("being deleted", func() { shoot.DeletionTimestamp = new(metav1.Now()) }),
		Entry("hibernated, and scaled down", func() {
			shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
			deployment.Spec.Replicas = new(int32(0))
		}),
	)

	It("should leave Deployments alone that belong to no shoot", func() {
		create("v0")
		Expect(c.DeleteAllOf(ctx, &extensionsv1alpha1.Cluster{})).To(Succeed())
		Expect(run(ctx)).To(Succeed())
		Expect(patches).To(BeEmpty())
	})

	Describe("waves", func() {
		var deployments []*appsv1.Deployment

		BeforeEach(func() {
			deployments = nil
			for i := range 50 {
				namespace := fmt.Sprintf("shoot--foo--%02d", i)
				createCluster(namespace)
				d := deployment.DeepCopy()
				d.Namespace = namespace
				Expect((&fakeEnsurer{image: "v0"}).EnsureMachineControllerManagerDeployment(ctx, nil, d, nil)).To(Succeed())
				d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
				Expect(c.Create(ctx, d)).To(Succeed())
				deployments = append(deployments, d)
			}
		})

		withImage := func(image string) []*appsv1.Deployment {
			GinkgoHelper()
			var found []*appsv1.Deployment
			for _, d := range deployments {
				Expect(c.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
				if d.Spec.Template.Spec.Containers[1].Image == image {
					found = append(found, d)
				}
			}
			return found
		}
		// hold has somebody get the Lease of a namespace, and renew it until a time, or for ever.
		hold := func(namespace, holder string, until *metav1.MicroTime) {
			GinkgoHelper()
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: namespace}}
			Expect(client.IgnoreNotFound(c.Delete(ctx, lease))).To(Succeed())
			lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: until}
			Expect(c.Create(ctx, lease)).To(Succeed())
		}
		// rollOne writes what the deployment controller would for one, and the kubelet for its new pod.
		rollOne := func(d *appsv1.Deployment, image string, complete, ready bool, at time.Time, change ...func(*corev1.Pod)) {
			GinkgoHelper()
			d.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(at)},
			}}
			if complete {
				d.Status.Replicas = 1
			}
			Expect(c.Status().Update(ctx, d)).To(Succeed())

			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mcm-" + image, Namespace: d.Namespace}}
			Expect(client.IgnoreNotFound(c.Delete(ctx, pod))).To(Succeed())
			pod.Labels = d.Spec.Selector.MatchLabels
			pod.Spec = d.Spec.Template.Spec
			pod.Status.StartTime = new(metav1.NewTime(at))
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "machine-preservation-controller", Ready: ready, State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)},
			}}}
			for _, f := range change {
				f(pod)
			}
			Expect(c.Create(ctx, pod)).To(Succeed())
			hold(d.Namespace, pod.Name+"_1", nil)
		}
		// roll does so for those with the image.
		roll := func(image string, complete, ready bool, at time.Time) {
			GinkgoHelper()
			for _, d := range withImage(image) {
				rollOne(d, image, complete, ready, at)
			}
		}
		after := func() time.Duration {
			GinkgoHelper()
			result, err := reconciler.Reconcile(ctx, reconcile.Request{})
			Expect(err).NotTo(HaveOccurred())
			return result.RequeueAfter
		}

		It("should reach all, one and five first, and read the pods of most once if all get ready", func() {
			var sizes []int
			seen := sets.New[string]()
			proof := 5 * time.Minute
			for len(withImage("v1")) < len(deployments) && len(sizes) < 10 {
				Expect(run(ctx)).To(Succeed())
				sizes = append(sizes, len(withImage("v1")))
				if len(sizes) > 2 {
					proof = time.Minute
				}
				for _, d := range withImage("v1") {
					if !seen.Has(d.Namespace) {
						seen.Insert(d.Namespace)
						rollOne(d, "v1", true, true, fakeClock.Now())
					}
				}
				if len(withImage("v1")) < len(deployments) {
					Expect(after()).To(Equal(proof))
					fakeClock.Step(proof - time.Second)
					Expect(after()).To(Equal(time.Second))
				} else {
					Expect(after()).To(BeZero())
				}
				Expect(withImage("v1")).To(HaveLen(sizes[len(sizes)-1]), "nobody follows before those have proved themselves")
				fakeClock.Step(time.Second)
			}
			Expect(sizes).To(Equal([]int{1, 6, 36, 50}))
			Expect(sets.New(leasesRead...)).To(HaveLen(6))
			Expect(sets.New(podsRead...)).To(HaveLen(36))
			podsRead = slices.DeleteFunc(podsRead, sets.New(leasesRead...).Has)
			Expect(podsRead).To(HaveLen(30))
		})

		DescribeTable("should not go on after one that is ready, and not at work",
			func(holder string, lapsed time.Duration) {
				Expect(run(ctx)).To(Succeed())
				roll("v1", true, true, fakeClock.Now())
				fakeClock.Step(5 * time.Minute)
				hold("shoot--foo--00", holder, new(metav1.NewMicroTime(fakeClock.Now().Add(-lapsed))))
				Expect(run(ctx)).To(Succeed())
				fakeClock.Step(time.Hour)
				hold("shoot--foo--00", holder, new(metav1.NewMicroTime(fakeClock.Now().Add(-lapsed))))
				Expect(run(ctx)).To(Succeed())
				Expect(withImage("v1")).To(HaveLen(1))

				hold("shoot--foo--00", "mcm-v1_2", new(metav1.NewMicroTime(fakeClock.Now())))
				Expect(run(ctx)).To(Succeed())
				Expect(withImage("v1")).To(HaveLen(6))
			},
			Entry("nobody holds the Lease", "", time.Duration(0)),
			Entry("somebody else does", "mcm-v10_2", time.Duration(0)),
			Entry("it does not renew it", "mcm-v1_2", 15*time.Second),
		)

		It("should not go on after one that becomes ready and ends again and again", func() {
			Expect(run(ctx)).To(Succeed())
			first := withImage("v1")[0]
			for range 10 {
				rollOne(first, "v1", true, true, fakeClock.Now(), func(pod *corev1.Pod) {
					pod.Status.StartTime = new(metav1.NewTime(fakeClock.Now().Add(-time.Hour)))
					status := &pod.Status.ContainerStatuses[0]
					status.RestartCount, status.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{ExitCode: 1}
				})
				Expect(run(ctx)).To(Succeed())
				fakeClock.Step(2 * time.Minute)
				Expect(run(ctx)).To(Succeed())
				Expect(withImage("v1")).To(HaveLen(1))
			}
			fakeClock.Step(3 * time.Minute)
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(HaveLen(6), "it has recovered")
		})

		It("should not go on after the first that does not get ready, not even after a restart, until a newer version comes", func() {
			Expect(run(ctx)).To(Succeed())
			roll("v1", false, false, fakeClock.Now())
			for range 20 {
				fakeClock.Step(time.Minute)
				reconciler = &Reconciler{Client: c, APIReader: reconciler.APIReader, Ensurer: ensurer, Config: reconciler.Config, Clock: fakeClock, Backoff: reconciler.Backoff}
				Expect(run(ctx)).To(Succeed())
				Expect(withImage("v1")).To(HaveLen(1))
			}
			Expect(after()).To(Equal(time.Minute), "it may recover")

			ensurer.image, webhook.image = "v2", "v2"
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v2")).To(HaveLen(1))
			Expect(withImage("v1")).To(HaveLen(1), "a healthy one goes first")
		})

		It("should go on after one whose other containers do not get ready, and read the pods of that one only", func() {
			Expect(run(ctx)).To(Succeed())
			roll("v1", false, true, fakeClock.Now())
			Expect(after()).To(Equal(5 * time.Minute))
			Expect(withImage("v1")).To(HaveLen(1))
			fakeClock.Step(5 * time.Minute)
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(HaveLen(6))
			Expect(podsRead).To(HaveEach("shoot--foo--00"))
		})

		It("should read no pods as long as nothing is outdated", func() {
			ensurer.image = "v0"
			roll("v0", false, false, fakeClock.Now())
			Expect(after()).To(BeZero())
			Expect(podsRead).To(BeEmpty())
		})

		It("should wait for one whose pods cannot be read, and halt if it is the first", func() {
			Expect(run(ctx)).To(Succeed())
			roll("v1", false, false, fakeClock.Now())
			reconciler.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return errors.New("fake")
				},
			})
			fakeClock.Step(5*time.Minute - time.Second)
			Expect(run(ctx)).To(MatchError(`failed to list the pods of Deployment "shoot--foo--00/machine-controller-manager": fake`))
			Expect(withImage("v1")).To(HaveLen(1))
			fakeClock.Step(time.Second)
			Expect(run(ctx)).NotTo(Succeed())
			Expect(withImage("v1")).To(HaveLen(1))
		})

		It("should replace at once what is scaled down, and not count it", func() {
			for _, d := range deployments[:10] {
				d.Spec.Replicas, d.Status = new(int32(0)), appsv1.DeploymentStatus{}
				Expect(c.Update(ctx, d)).To(Succeed())
			}
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(HaveLen(11))
			fakeClock.Step(time.Hour)
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(HaveLen(11), "the others prove nothing")
			Expect(podsRead).To(HaveEach("shoot--foo--10"))
		})

		It("should put back what is missing one by one while the waves are halted", func() {
			Expect(run(ctx)).To(Succeed())
			roll("v1", false, false, fakeClock.Now())
			fakeClock.Step(time.Hour)
			d := deployments[40]
			d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
			Expect(c.Update(ctx, d)).To(Succeed())
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(ConsistOf(HaveField("Namespace", "shoot--foo--00"), HaveField("Namespace", "shoot--foo--40")))
		})

		It("should go on with others while the webhook is called in vain", func() {
			webhook.image = ""
			Expect(run(ctx)).To(MatchError(ContainSubstring("shoot--foo--00/machine-controller-manager")))
			Expect(run(ctx)).To(MatchError(ContainSubstring("shoot--foo--01/machine-controller-manager")))

			webhook.image = "v1"
			fakeClock.Step(2 * time.Second)
			Expect(run(ctx)).To(Succeed())
			Expect(withImage("v1")).To(ConsistOf(HaveField("Namespace", "shoot--foo--00")))
		})
	})
})
