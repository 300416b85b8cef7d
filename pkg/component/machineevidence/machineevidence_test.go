// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machineevidence_test

import (
	"context"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/machineevidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("MachineEvidence", func() {
	const (
		controlPlane = "shoot--foo--bar"
		name         = "extension-machine-preservation-evidence"
		namespace    = "machine-preservation-evidence"
		writer       = "machine-preservation-controller"
	)
	ctx := context.Background()

	It("should bring a namespace where the sidecar may write and nobody may read who is not bound, and take all of it away", func() {
		c := fakeclient.NewClientBuilder().WithScheme(builder.Scheme(resourcesv1alpha1.AddToScheme, rbacv1.AddToScheme)).Build()
		Expect(Deploy(ctx, c, controlPlane)).To(Succeed())

		managedResource := &resourcesv1alpha1.ManagedResource{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: controlPlane, Name: name}, managedResource)).To(Succeed())
		Expect(managedResource.Spec.KeepObjects).To(HaveValue(BeFalse()))
		objects, err := managedresources.GetObjects(ctx, c, controlPlane, name)
		Expect(err).NotTo(HaveOccurred())
		var kinds []string
		for _, object := range objects {
			kinds = append(kinds, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetNamespace()+"/"+object.GetName())
			Expect(object.GetLabels()).To(BeEmpty(), "no role is aggregated")
			Expect(object.GetAnnotations()).To(Equal(map[string]string{"resources.gardener.cloud/finalize-deletion-after": "5m"}), "nobody's finalizer keeps the shoot")
			switch object := object.(type) {
			case *rbacv1.Role:
				rules := map[string][]rbacv1.PolicyRule{
					"evidence-viewer": {{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}},
					writer: {
						{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "list"}},
						{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: retention.StoredNames(), Verbs: []string{"delete"}},
					},
				}
				Expect(object.Rules).To(Equal(rules[object.Name]))
			case *rbacv1.RoleBinding:
				Expect(object.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: writer}))
				Expect(object.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Name: writer, Namespace: "kube-system"}}))
			}
		}
		Expect(kinds).To(ConsistOf("Namespace /"+namespace, "Role "+namespace+"/evidence-viewer", "Role "+namespace+"/"+writer, "RoleBinding "+namespace+"/"+writer))

		Expect(Resources(c, controlPlane).Destroy(ctx)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})
