// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"strings"

	gardencorevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencoreinstall "github.com/gardener/gardener/pkg/apis/core/install"
	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

var _ = Describe("Examples", func() {
	var (
		scheme *runtime.Scheme
		decode = func(file string) []runtime.Object {
			GinkgoHelper()
			decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
			var objects []runtime.Object
			for i, document := range strings.Split(read(file), "\n---\n") {
				if i == 0 { // the header
					continue
				}
				object, _, err := decoder.Decode([]byte(document), nil, nil)
				Expect(err).NotTo(HaveOccurred(), document)
				objects = append(objects, object)
			}
			return objects
		}
		ref = func(chart charts.Chart) string {
			return "europe-docker.pkg.dev/gardener-project/public/charts/gardener/extensions/" +
				readYAML(chart, "Chart.yaml")["name"].(string) + ":" + strings.TrimSpace(read("../VERSION"))
		}
	)

	BeforeEach(func() {
		scheme = runtime.NewScheme()
		gardencoreinstall.Install(scheme)
		Expect(operatorv1alpha1.AddToScheme(scheme)).To(Succeed())
	})

	It("should register the extension with gardener-operator", func() {
		extension := one[*operatorv1alpha1.Extension](decode("../example/extension.yaml"))
		deployment := extension.Spec.Deployment
		Expect(deployment.ExtensionDeployment.Helm.OCIRepository.Ref).To(HaveValue(Equal(ref(charts.Extension))))
		Expect(deployment.AdmissionDeployment.RuntimeCluster.Helm.OCIRepository.Ref).To(HaveValue(Equal(ref(charts.AdmissionRuntime))))
		Expect(deployment.AdmissionDeployment.VirtualCluster.Helm.OCIRepository.Ref).To(HaveValue(Equal(ref(charts.AdmissionApplication))))
		expectResources(extension.Spec.Resources)
	})

	It("should register the extension without gardener-operator", func() {
		objects := decode("../example/controller-registration.yaml")
		deployment := one[*gardencorev1.ControllerDeployment](objects)
		registration := one[*gardencorev1beta1.ControllerRegistration](objects)
		Expect(objects).To(HaveLen(2))

		internalDeployment, internalRegistration := &gardencore.ControllerDeployment{}, &gardencore.ControllerRegistration{}
		scheme.Default(registration)
		Expect(scheme.Convert(deployment, internalDeployment, nil)).To(Succeed())
		Expect(scheme.Convert(registration, internalRegistration, nil)).To(Succeed())
		Expect(gardencorevalidation.ValidateControllerDeployment(internalDeployment)).To(BeEmpty())
		Expect(gardencorevalidation.ValidateControllerRegistration(internalRegistration)).To(BeEmpty())

		Expect(deployment.Helm.OCIRepository.Ref).To(HaveValue(Equal(ref(charts.Extension))))
		Expect(registration.Spec.Deployment.DeploymentRefs).To(ConsistOf(gardencorev1beta1.DeploymentRef{Name: deployment.Name}))
		expectResources(registration.Spec.Resources)
	})
})

func expectResources(resources []gardencorev1beta1.ControllerResource) {
	GinkgoHelper()
	Expect(resources).To(HaveLen(1))
	resource := resources[0]
	Expect(resource.Kind).To(Equal("Extension"))
	Expect(resource.Type).To(Equal(v1alpha1.ExtensionType))
	Expect(resource.ClusterCompatibility).To(ConsistOf(gardencorev1beta1.ClusterTypeShoot))
	Expect(resource.AutoEnable).To(BeEmpty())
	Expect(resource.WorkerlessSupported).To(BeNil())
	Expect(resource.Lifecycle).To(Equal(&gardencorev1beta1.ControllerResourceLifecycle{
		Reconcile: new(gardencorev1beta1.AfterKubeAPIServer),
		Delete:    new(gardencorev1beta1.BeforeKubeAPIServer),
		Migrate:   new(gardencorev1beta1.BeforeKubeAPIServer),
	}))
}
