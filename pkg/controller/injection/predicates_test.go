// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
)

var _ = Describe("Predicates", func() {
	Describe("#DeploymentPredicate", func() {
		newDeployment := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Generation: 1}}
			change(deployment)
			return deployment
		}

		DescribeTable("should select changes on which the injection depends",
			func(change func(*appsv1.Deployment), selected bool) {
				before, after := newDeployment(func(*appsv1.Deployment) {}), newDeployment(change)
				Expect(DeploymentPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(selected))
			},
			Entry("specification", func(d *appsv1.Deployment) { d.Generation++ }, true),
			Entry("labels", func(d *appsv1.Deployment) { d.Labels = map[string]string{"foo": "bar"} }, true),
			Entry("status", func(d *appsv1.Deployment) { d.Status.ReadyReplicas++ }, false),
			Entry("all pods have become ready", func(d *appsv1.Deployment) {
				d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
			}, true),
			Entry("another Deployment", func(d *appsv1.Deployment) { d.Generation++; d.Name = "kube-apiserver" }, false),
		)

		It("should select Deployments that come, not those that go", func() {
			deployment := newDeployment(func(*appsv1.Deployment) {})
			Expect(DeploymentPredicate().Create(event.CreateEvent{Object: deployment})).To(BeTrue())
			Expect(DeploymentPredicate().Delete(event.DeleteEvent{Object: deployment})).To(BeFalse())
		})
	})

	Describe("#AccessSecretPredicate", func() {
		It("should select access secrets that come, and get their token", func() {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller"}}
			Expect(AccessSecretPredicate().Create(event.CreateEvent{Object: secret})).To(BeTrue())
			Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: secret, ObjectNew: secret})).To(BeFalse())
			Expect(AccessSecretPredicate().Delete(event.DeleteEvent{Object: secret})).To(BeFalse())

			withToken := secret.DeepCopy()
			withToken.Annotations = map[string]string{"serviceaccount.resources.gardener.cloud/token-renew-timestamp": "2026-01-01T12:00:00Z"}
			Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: secret, ObjectNew: withToken})).To(BeTrue())
			Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: withToken, ObjectNew: withToken})).To(BeFalse())
			Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: withToken, ObjectNew: secret})).To(BeFalse())

			for _, name := range []string{"node-maintenance", "evidence", "machine-hours", "power-cycle"} {
				with := withToken.DeepCopy()
				with.Annotations["machine-preservation.extensions.gardener.cloud/"+name] = "true"
				Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: withToken, ObjectNew: with})).To(BeTrue(), name)
				Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: with, ObjectNew: withToken})).To(BeTrue(), name)
				Expect(AccessSecretPredicate().Update(event.UpdateEvent{ObjectOld: with, ObjectNew: with})).To(BeFalse(), name)
			}

			secret.Name = "shoot-access-machine-controller-manager"
			Expect(AccessSecretPredicate().Create(event.CreateEvent{Object: secret})).To(BeFalse())
		})
	})
})
