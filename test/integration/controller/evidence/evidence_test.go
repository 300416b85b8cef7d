// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"fmt"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

var _ = Describe("Evidence in the shoot", Ordered, func() {
	const namespace = "machine-preservation-evidence"
	var (
		ctx       = context.Background()
		extension *extensionsv1alpha1.Extension
		forbidden = MatchError(apierrors.IsForbidden, "IsForbidden")
		sidecar   = "system:serviceaccount:kube-system:machine-preservation-controller"
		key       = client.ObjectKey{Namespace: namespace, Name: retention.StoredNames()[0]}
	)

	as := func(user string) client.Client {
		GinkgoHelper()
		c, err := client.New(environment.As(env.Config, user), client.Options{Scheme: env.Client.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	bind := func(namespace, user, kind, role string) {
		GinkgoHelper()
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
		if namespace == "" {
			Expect(env.Client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref, Subjects: subjects})).To(Succeed())
			return
		}
		Expect(env.Client.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, RoleRef: ref, Subjects: subjects})).To(Succeed())
	}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: retention.ShootType, Immutable: new(true), Data: map[string][]byte{"bundle.tar.gz": []byte("x")}}
	}
	list := func(user, namespace string) error {
		return as(user).List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
	}
	eventually := func(f func(Gomega)) {
		GinkgoHelper()
		Eventually(f).WithTimeout(time.Minute).Should(Succeed())
	}
	set := func(enabled bool) {
		GinkgoHelper()
		env.Configure(ctx, extension, fmt.Sprintf(`,"evidence":{"enabled":%t}`, enabled))
		env.WaitUntilReconciled(ctx, extension)
	}

	BeforeAll(func() {
		controlPlane := env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, controlPlane, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		extension = environment.NewExtension(controlPlane)
		env.CreateExtension(ctx, extension)
		// Nobody aggregates here: this is what ClusterRole view has.
		bind("", "viewer", "ClusterRole", "system:aggregate-to-view")
	})

	It("should have no namespace and no permission where it is not stored", func() {
		set(false)
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(list(sidecar, namespace)).To(forbidden)
		Expect(as(sidecar).Create(ctx, secret(key.Name))).To(forbidden)
	})

	It("should have a namespace where the sidecar writes, and no more than that", func() {
		set(true)
		eventually(func(g Gomega) { g.Expect(list(sidecar, namespace)).To(Succeed()) })
		c := as(sidecar)
		Expect(c.Create(ctx, secret(key.Name))).To(Succeed())
		Expect(c.Get(ctx, key, &corev1.Secret{})).To(forbidden)
		Expect(c.Patch(ctx, secret(key.Name), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}}}`)))).To(forbidden)
		Expect(list(sidecar, "kube-system")).To(forbidden)
		Expect(list(sidecar, "")).To(forbidden)
		Expect(env.Client.Create(ctx, secret("other"))).To(Succeed())
		Expect(c.Delete(ctx, secret("other"))).To(forbidden)
		Expect(c.Delete(ctx, secret(key.Name))).To(Succeed())
		Expect(c.Create(ctx, secret(key.Name))).To(Succeed())
	})

	It("should be read by those who are bound, and by no viewer of the whole shoot", func() {
		Expect(as("viewer").List(ctx, &corev1.ConfigMapList{}, client.InNamespace("kube-system"))).To(Succeed(), "that is why it is no ConfigMap")
		Expect(list("viewer", namespace)).To(forbidden)
		Expect(as("viewer").Get(ctx, key, &corev1.Secret{})).To(forbidden)
		Expect(list("bound", namespace)).To(forbidden)

		bind(namespace, "bound", "Role", "evidence-viewer")
		eventually(func(g Gomega) { g.Expect(list("bound", namespace)).To(Succeed()) })
		c := as("bound")
		Expect(c.Get(ctx, key, &corev1.Secret{})).To(Succeed())
		Expect(c.Delete(ctx, secret(key.Name))).To(forbidden)
		Expect(c.Create(ctx, secret("forged"))).To(forbidden)
		Expect(list("bound", "kube-system")).To(forbidden)
		Expect(list("bound", "")).To(forbidden)
	})

	It("should have its permissions put right", func() {
		role := &rbacv1.Role{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "machine-preservation-controller"}, role)).To(Succeed())
		want := role.DeepCopy()
		role.Rules = nil
		Expect(env.Client.Update(ctx, role)).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
			g.Expect(role.Rules).To(Equal(want.Rules))
		})
	})

	It("should go with all of it when it is switched off", func() {
		set(false)
		eventually(func(g Gomega) {
			// Nobody empties namespaces here: what is in it goes with it.
			there := &corev1.Namespace{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: namespace}, there)).To(Succeed())
			g.Expect(there.DeletionTimestamp).NotTo(BeNil())
			roles := &rbacv1.RoleList{}
			g.Expect(env.Client.List(ctx, roles, client.InNamespace(namespace))).To(Succeed())
			g.Expect(roles.Items).To(BeEmpty())
			g.Expect(list(sidecar, namespace)).To(forbidden)
			g.Expect(list("bound", namespace)).To(forbidden)
		})
		Expect(env.Client.Create(ctx, secret("later"))).To(forbidden, "nothing more is stored")
	})
})
