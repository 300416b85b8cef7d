// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecrd_test

import (
	"context"
	"errors"

	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
)

var _ = Describe("Schemas", func() {
	var (
		ctx      = context.Background()
		c        client.Client
		getError error
		schemas  *Schemas
	)

	BeforeEach(func() {
		getError = nil
		scheme := runtime.NewScheme()
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		c = fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if getError != nil {
					return getError
				}
				return c.Get(ctx, key, object, opts...)
			},
		}).Build()
		schemas = &Schemas{Machines: c, MachineDeployments: c}
	})

	expect := func(machines, machineDeployments bool) {
		GinkgoHelper()
		Expect(schemas.MachinesCanExpire(ctx)).To(Equal(machines))
		Expect(schemas.MachineDeploymentsCanPreserve(ctx)).To(Equal(machineDeployments))
	}

	// change edits the schema at a path.
	change := func(name string, edit func(map[string]apiextensionsv1.JSONSchemaProps), path ...string) {
		GinkgoHelper()
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(c.Get(ctx, client.ObjectKey{Name: name}, crd)).To(Succeed())
		properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		for _, element := range path {
			properties = properties[element].Properties
		}
		edit(properties)
		Expect(c.Update(ctx, crd)).To(Succeed())
	}

	It("should know neither field without the definitions", func() {
		expect(false, false)
	})

	It("should follow upgrades and downgrades", func() {
		crds, err := machinecontrollermanager.NewCRD(c)
		Expect(err).NotTo(HaveOccurred())
		Expect(crds.Deploy(ctx)).To(Succeed())
		expect(true, true)

		change("machines.machine.sapcloud.io", func(p map[string]apiextensionsv1.JSONSchemaProps) { delete(p, "preserveExpiryTime") }, "status", "currentStatus")
		expect(false, true)
		change("machinedeployments.machine.sapcloud.io", func(p map[string]apiextensionsv1.JSONSchemaProps) { delete(p, "autoPreserveFailedMachineMax") }, "spec")
		expect(false, false)

		Expect(crds.Deploy(ctx)).To(Succeed())
		expect(true, true)
	})

	It("should return errors", func() {
		getError = errors.New("fake")
		_, err := schemas.MachinesCanExpire(ctx)
		Expect(err).To(MatchError(`failed to get CustomResourceDefinition "machines.machine.sapcloud.io": fake`))
		_, err = schemas.MachineDeploymentsCanPreserve(ctx)
		Expect(err).To(MatchError(`failed to get CustomResourceDefinition "machinedeployments.machine.sapcloud.io": fake`))
	})
})
