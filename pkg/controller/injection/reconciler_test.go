// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"context"
	"errors"

	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
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
		// webhook is what is called when a Deployment is written.
		webhook    *fakeEnsurer
		patchError error
		// patches are the objects and the data of all patches.
		patches []string
	)

	BeforeEach(func() {
		ensurer, webhook, patchError, patches = &fakeEnsurer{image: "v1"}, &fakeEnsurer{image: "v1"}, nil, nil
		scheme := runtime.NewScheme()
		Expect(appsv1.AddToScheme(scheme)).To(Succeed())
		Expect(vpaautoscalingv1.AddToScheme(scheme)).To(Succeed())
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
		reconciler = &Reconciler{Client: c, Ensurer: ensurer, Limiter: flowcontrol.NewFakeAlwaysRateLimiter()}

		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}}
	})

	run := func(ctx context.Context) error {
		_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(deployment)})
		return err
	}
	create := func(image string) {
		GinkgoHelper()
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
		Expect(run(ctx)).To(MatchError("the webhook has not injected the preservation controller: its image is v0 instead of v1"))
		Expect(image()).To(Equal("v0"))

		webhook.image = "v1"
		Expect(run(ctx)).To(Succeed())
		Expect(image()).To(Equal("v1"))
	})

	It("should return what went wrong", func() {
		create("v0")
		patchError = errors.New("fake")
		Expect(run(ctx)).To(MatchError(`failed to patch *v1.Deployment "machine-controller-manager": fake`))

		ensurer.err = errors.New("unknown")
		Expect(run(ctx)).To(MatchError(ContainSubstring("unknown")))
		Expect(patches).To(HaveLen(1), "nothing is written as long as nobody knows what is wanted")
	})

	It("should wait for the limiter before it writes, and not for what is as it should be", func() {
		create("v0")
		limiter := flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
		reconciler.Limiter = limiter
		Expect(run(ctx)).To(Succeed(), "one is granted")
		Expect(run(ctx)).To(Succeed(), "it is as it should be")

		ensurer.image = "v2"
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		Expect(run(ctx)).To(MatchError(ContainSubstring("failed to wait for the limiter")))
		Expect(patches).To(Equal(bothTouched))
	})
})
