// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinefailures_test

import (
	"context"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinefailures"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("MachineFailures", func() {
	const (
		namespace = "shoot--foo--bar"
		name      = "extension-machine-preservation-failures"
	)
	ctx := context.Background()

	It("should bring the API, which who may view the shoot may read, and take all of it away", func() {
		scheme := builder.Scheme(resourcesv1alpha1.AddToScheme, apiextensionsv1.AddToScheme, rbacv1.AddToScheme)
		c := fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		Expect(Deploy(ctx, c, namespace)).To(Succeed())

		managedResource := &resourcesv1alpha1.ManagedResource{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, managedResource)).To(Succeed())
		Expect(managedResource.Spec.KeepObjects).To(HaveValue(BeFalse()))
		objects, err := managedresources.GetObjects(ctx, c, namespace, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveLen(2))
		for _, object := range objects {
			Expect(object.GetAnnotations()).To(HaveKeyWithValue("resources.gardener.cloud/finalize-deletion-after", "5m"), "nobody's finalizer keeps the shoot")
			switch object := object.(type) {
			case *apiextensionsv1.CustomResourceDefinition:
				Expect(object.Name).To(Equal("machinefailures.machine-preservation.extensions.gardener.cloud"))
				Expect(object.Spec.Scope).To(Equal(apiextensionsv1.ClusterScoped))
				Expect(object.Spec.Names.ShortNames).To(Equal([]string{"mf"}))
			case *rbacv1.ClusterRole:
				Expect(object.Labels).To(Equal(map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}))
				Expect(object.Rules).To(Equal([]rbacv1.PolicyRule{{
					APIGroups: []string{"machine-preservation.extensions.gardener.cloud"}, Resources: []string{"machinefailures"}, Verbs: []string{"get", "list", "watch"},
				}}))
			default:
				Fail("unexpected " + object.GetName())
			}
		}

		Expect(Resources(c, namespace).Destroy(ctx)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})
