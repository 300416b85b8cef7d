// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package clusterautoscaler_test

import (
	"context"
	"errors"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/clusterautoscaler"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/clusterautoscaler"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	mark = "machine-preservation.extensions.gardener.cloud/max-total-unready-percentage"
	flag = "--max-total-unready-percentage=100"
)

// autoscaler returns the Deployment as gardenlet writes it, with more arguments.
func autoscaler(arguments ...string) *appsv1.Deployment {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cluster-autoscaler", Namespace: builder.Namespace}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:    "cluster-autoscaler",
		Command: slices.Concat([]string{"./cluster-autoscaler", "--cloud-provider=mcm"}, arguments),
	}}
	return deployment
}

// marked returns it with a flag that is ours.
func marked(arguments ...string) *appsv1.Deployment {
	deployment := autoscaler(arguments...)
	deployment.Spec.Template.Annotations = map[string]string{mark: "100"}
	return deployment
}

func machineDeployment(name, share string) *machinev1alpha1.MachineDeployment {
	return builder.Deployment(name, builder.Share(share), builder.DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/machine-preserve-timeout", "72h0m0s"))
}

var _ = Describe("#Wanted", func() {
	DescribeTable("should look for a share",
		func(expected bool, deployments ...*machinev1alpha1.MachineDeployment) {
			var items []machinev1alpha1.MachineDeployment
			for _, deployment := range deployments {
				items = append(items, *deployment)
			}
			Expect(clusterautoscaler.Wanted(items)).To(Equal(expected))
		},
		Entry("no MachineDeployment", false),
		Entry("no annotations", false, builder.Deployment("a")),
		Entry("0", false, machineDeployment("a", "0")),
		Entry("nonsense", false, machineDeployment("a", "many")),
		Entry("one of two", true, machineDeployment("a", "0"), machineDeployment("b", "1")),
	)
})

var _ = Describe("#Apply", func() {
	DescribeTable("should change nothing but a flag of ours",
		func(deployment *appsv1.Deployment, wanted, changed bool, expected *appsv1.Deployment) {
			Expect(clusterautoscaler.Apply(deployment, wanted)).To(Equal(changed))
			Expect(deployment.Spec.Template.Spec).To(Equal(expected.Spec.Template.Spec))
			Expect(deployment.Spec.Template.Annotations).To(HaveLen(len(expected.Spec.Template.Annotations)))
			Expect(deployment.Spec.Template.Annotations[mark]).To(Equal(expected.Spec.Template.Annotations[mark]))

			Expect(clusterautoscaler.Apply(deployment, wanted)).To(BeFalse(), "twice makes no difference")
		},
		Entry("first share", autoscaler(), true, true, marked(flag)),
		Entry("no share", autoscaler(), false, false, autoscaler()),
		Entry("share", marked(flag), true, false, marked(flag)),
		Entry("last share has gone", marked(flag), false, true, autoscaler()),
		Entry("gardenlet's own flag", autoscaler(flag), true, false, autoscaler(flag)),
		Entry("gardenlet's own flag without a share", autoscaler(flag), false, false, autoscaler(flag)),
		Entry("somebody's percentage", autoscaler("--max-total-unready-percentage=60"), true, false, autoscaler("--max-total-unready-percentage=60")),
		Entry("no such container", &appsv1.Deployment{}, true, false, &appsv1.Deployment{}),
	)
})

var _ = Describe("Reconciler", func() {
	var (
		ctx        = context.Background()
		c          client.Client
		reconciler *Reconciler
		// undo is what a webhook with an old cache would do to the written Deployment.
		undo       func(*appsv1.Deployment)
		patchError error
		patches    int
	)

	BeforeEach(func() {
		undo, patchError, patches = nil, nil, 0
		c = fakeclient.NewClientBuilder().WithScheme(builder.Scheme(appsv1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				patches++
				if patchError != nil {
					return patchError
				}
				if err := c.Patch(ctx, object, patch, opts...); err != nil || undo == nil {
					return err
				}
				undo(object.(*appsv1.Deployment))
				return c.Update(ctx, object)
			},
		}).Build()
		reconciler = &Reconciler{Client: c, APIReader: c, Limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	})

	run := func() (reconcile.Result, error) {
		return reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(autoscaler())})
	}
	create := func(objects ...client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
	}
	command := func() []string {
		GinkgoHelper()
		deployment := autoscaler()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		return deployment.Spec.Template.Spec.Containers[0].Command
	}

	It("should write the flag with the first share, and take it away with the last one", func() {
		a, b := machineDeployment("a", "1"), machineDeployment("b", "0")
		create(autoscaler(), a, b)
		Expect(run()).To(Equal(reconcile.Result{}))
		Expect(command()).To(Equal([]string{"./cluster-autoscaler", "--cloud-provider=mcm", flag}))

		Expect(run()).To(Equal(reconcile.Result{}))
		Expect(patches).To(Equal(1))

		Expect(c.Delete(ctx, a)).To(Succeed())
		Expect(run()).To(Equal(reconcile.Result{}))
		Expect(command()).To(Equal([]string{"./cluster-autoscaler", "--cloud-provider=mcm"}))
	})

	It("should do nothing in a shoot without a cluster-autoscaler, and not look at the shares of others", func() {
		other := machineDeployment("a", "1")
		other.Namespace = "other"
		create(other)
		Expect(run()).To(Equal(reconcile.Result{}))

		create(autoscaler())
		Expect(run()).To(Equal(reconcile.Result{}))
		Expect(patches).To(BeZero())
	})

	It("should not overwrite what somebody else writes meanwhile", func() {
		create(autoscaler(), machineDeployment("a", "1"))
		reconciler.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if err := c.Get(ctx, key, object, opts...); err != nil {
					return err
				}
				newer := object.DeepCopyObject().(*appsv1.Deployment)
				newer.Spec.Template.Spec.Containers[0].Command = []string{"./cluster-autoscaler", "--new"}
				return c.Update(ctx, newer)
			},
		})

		_, err := run()
		Expect(err).To(MatchError(apierrors.IsConflict, "IsConflict"))
		Expect(command()).To(Equal([]string{"./cluster-autoscaler", "--new"}))
	})

	It("should look again when a webhook has undone it", func() {
		create(autoscaler(), machineDeployment("a", "1"))
		undo = func(deployment *appsv1.Deployment) { clusterautoscaler.Apply(deployment, false) }
		Expect(run()).To(Equal(reconcile.Result{RequeueAfter: 5 * time.Second}))
	})

	It("should wait for the limiter before it replaces a pod, and return what fails", func() {
		create(autoscaler(), machineDeployment("a", "1"))
		patchError = errors.New("fake")
		_, err := run()
		Expect(err).To(MatchError("failed to patch Deployment: fake"))

		reconciler.Limiter = flowcontrol.NewFakeNeverRateLimiter()
		_, err = run()
		Expect(err).To(MatchError(ContainSubstring("failed to wait for the limiter")))
		Expect(patches).To(Equal(1))
	})
})
