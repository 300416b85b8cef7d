// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const name = "machine-preservation-controller"

var _ = Describe("Extension", func() {
	var (
		ctx       = context.Background()
		namespace string
		extension *extensionsv1alpha1.Extension
	)

	BeforeEach(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		extension = environment.NewExtension(namespace)
		DeferCleanup(func() { end(ctx, extension) })
	})

	// all returns what is deployed, by name, for Get to be filled.
	all := func() []client.Object {
		named := func(object client.Object, name string) client.Object {
			object.SetNamespace(namespace)
			object.SetName(name)
			return object
		}
		return []client.Object{
			named(&rbacv1.Role{}, name),
			named(&rbacv1.RoleBinding{}, name),
			named(&corev1.Service{}, name),
			named(&monitoringv1.ServiceMonitor{}, "shoot-"+name),
			named(&monitoringv1.PrometheusRule{}, "shoot-"+name),
			named(&corev1.ConfigMap{}, name+"-dashboards"),
			named(&corev1.Secret{}, "shoot-access-"+name),
			named(&resourcesv1alpha1.ManagedResource{}, "extension-machine-preservation-shoot"),
		}
	}
	present := func(g Gomega) {
		for _, object := range all() {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed(), "%T", object)
		}
	}
	absent := func(g Gomega) {
		for _, object := range all() {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(MatchError(apierrors.IsNotFound, "IsNotFound"), "%T", object)
		}
	}
	eventually := func(f func(Gomega)) {
		GinkgoHelper()
		Eventually(f).WithTimeout(time.Minute).Should(Succeed())
	}
	enable := func() {
		GinkgoHelper()
		env.CreateExtension(ctx, extension)
		env.WaitUntilReconciled(ctx, extension)
		present(Default)
	}
	gone := func(g Gomega) {
		g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}

	It("should deploy everything that the container needs, and take it away in the end", func() {
		enable()
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventually(gone)
		absent(Default)
	})

	It("P20: should let the container give places away before zones share any", func() {
		enable()
		for _, verb := range []string{"create", "get", "update"} {
			attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: "coordination.k8s.io", Resource: "leases"}
			if verb != "create" { // names cannot restrict it
				attributes.Name = "machine-preservation-controller-places"
			}
			eventually(func(g Gomega) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + namespace + ":machine-controller-manager", ResourceAttributes: attributes,
				}}
				g.Expect(env.Client.Create(ctx, review)).To(Succeed())
				g.Expect(review.Status.Allowed).To(BeTrue(), verb)
			})
		}
	})

	It("should stay succeeded, and tell in a condition, when the configuration is not valid any more", func() {
		env.CreateWorker(ctx, namespace, extensionsv1alpha1.WorkerPool{Name: "worker-a", Minimum: 1, Maximum: 3, Zones: []string{"0"}})
		enable()
		env.Configure(ctx, extension, `,"machineControllerManager":{"autoPreserveFailedMax":4}`)
		env.WaitUntilReconciled(ctx, extension)
		present(Default)
		Expect(extension.Status.LastError).To(BeNil())

		By("Asking for a health check")
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(env.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"check":"now"}}}`)))).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			g.Expect(extension.Status.Conditions).To(ContainElement(MatchFields(IgnoreExtras, Fields{
				"Type":   BeEquivalentTo("ControlPlaneHealthy"),
				"Status": BeEquivalentTo("False"),
				"Codes":  ConsistOf(BeEquivalentTo("ERR_CONFIGURATION_PROBLEM")),
			})))
			g.Expect(extension.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
		})
	})

	It("should take nothing away as long as the container is there", func() {
		enable()
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		labels := map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager", Image: "mcm"}, {Name: name, Image: "image"}}
		Expect(env.Client.Create(ctx, deployment)).To(Succeed())

		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(1))
		})
		present(Default)
		eventually(gone)
		absent(Default)
	})
})
