// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
)

var _ = Describe("Kinds", func() {
	DescribeTable("have what their objects need", func(name configv1alpha1.HostKind) {
		kind, err := drivers.For(name)
		Expect(err).NotTo(HaveOccurred())
		objects := kind.New(host.Access{}).Kind.Objects()
		Expect(kind.ByObject).To(HaveLen(len(objects)))
		Expect(kind.PolicyRules).NotTo(BeEmpty())
		Expect(objects[0].GetObjectKind().GroupVersionKind().Kind).To(BeEquivalentTo(name))
		for _, object := range objects {
			gvk := object.GetObjectKind().GroupVersionKind()
			mapping, err := kind.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			Expect(err).NotTo(HaveOccurred())
			rules := kind.PolicyRules
			if mapping.Scope.Name() == "root" {
				rules = kind.ClusterPolicyRules
			}
			Expect(rules).To(ContainElement(HaveField("Resources", ContainElement(mapping.Resource.Resource))))
		}
	},
		Entry("of Metal3", configv1alpha1.HostKindBareMetalHost),
		Entry("of IronCore", configv1alpha1.HostKindServerClaim),
	)

	It("are no others", func() {
		_, err := drivers.For("Server")
		Expect(err).To(MatchError(`there is no driver for hosts of kind "Server", valid are ["BareMetalHost" "ServerClaim"]`))
	})
})
