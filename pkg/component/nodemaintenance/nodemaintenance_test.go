// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"context"
	"errors"
	"time"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("NodeMaintenance", func() {
	const (
		namespace = "shoot--foo--bar"
		name      = "extension-machine-preservation-node-maintenance"
		label     = "machine-preservation.extensions.gardener.cloud/node-maintenance"

		configs, maintenances = "maintenanceoperatorconfigs.maintenance.nvidia.com", "nodemaintenances.maintenance.nvidia.com"
	)

	var (
		ctx      = context.Background()
		c        client.Client
		settings *preservation.NodeMaintenance
	)

	BeforeEach(func() {
		scheme := builder.Scheme(resourcesv1alpha1.AddToScheme, apiextensionsv1.AddToScheme, maintenancev1alpha1.AddToScheme)
		c = fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		settings = &preservation.NodeMaintenance{
			MaxParallelOperations:  new(intstr.FromString("10%")),
			MaxUnavailable:         new(intstr.FromInt32(3)),
			MaxNodeMaintenanceTime: &metav1.Duration{Duration: 2 * time.Hour},
			LogLevel:               new(preservation.LogLevel("debug")),
		}
	})

	managedResource := func() *resourcesv1alpha1.ManagedResource {
		GinkgoHelper()
		managedResource := &resourcesv1alpha1.ManagedResource{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, managedResource)).To(Succeed())
		return managedResource
	}
	// manifests returns what is brought into the shoot, by name.
	manifests := func() map[string]client.Object {
		GinkgoHelper()
		objects, err := managedresources.GetObjects(ctx, c, namespace, name)
		Expect(err).NotTo(HaveOccurred())
		all := map[string]client.Object{}
		for _, object := range objects {
			all[object.GetName()] = object
		}
		return all
	}

	It("should bring the definitions with our label, and the limits that the Shoot sets", func() {
		Expect(Deploy(ctx, c, namespace, settings)).To(Succeed())
		Expect(manifests()).To(HaveLen(3))
		for _, name := range []string{configs, maintenances} {
			Expect(manifests()[name]).To(BeAssignableToTypeOf(&apiextensionsv1.CustomResourceDefinition{}))
			Expect(manifests()[name].GetLabels()).To(Equal(map[string]string{label: "true"}))
		}
		Expect(manifests()["default"]).To(Equal(&maintenancev1alpha1.MaintenanceOperatorConfig{
			TypeMeta:   metav1.TypeMeta{APIVersion: "maintenance.nvidia.com/v1alpha1", Kind: "MaintenanceOperatorConfig"},
			ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "kube-system"},
			Spec: maintenancev1alpha1.MaintenanceOperatorConfigSpec{
				MaxParallelOperations:         new(intstr.FromString("10%")),
				MaxUnavailable:                new(intstr.FromInt32(3)),
				MaxNodeMaintenanceTimeSeconds: new(int32(7200)),
				LogLevel:                      "debug",
			},
		}))
	})

	It("should set no limit that the Shoot does not set, and 0 where it does", func() {
		settings.MaxUnavailable, *settings.MaxParallelOperations = nil, intstr.FromInt32(0)
		Expect(Deploy(ctx, c, namespace, settings)).To(Succeed())
		spec := manifests()["default"].(*maintenancev1alpha1.MaintenanceOperatorConfig).Spec
		Expect(spec.MaxUnavailable).To(BeNil())
		Expect(spec.MaxParallelOperations).To(HaveValue(Equal(intstr.FromInt32(0))))
	})

	It("should leave in the shoot what is there, and nothing in the seed", func() {
		Expect(Deploy(ctx, c, namespace, settings)).To(Succeed())
		Expect(managedResource().Spec).To(Equal(resourcesv1alpha1.ManagedResourceSpec{
			SecretRefs:   []corev1.LocalObjectReference{{Name: "managedresource-" + name}},
			InjectLabels: map[string]string{"shoot.gardener.cloud/no-cleanup": "true"},
			KeepObjects:  new(true),
		}))
		Expect(managedResource().Labels).To(Equal(map[string]string{"origin": "gardener-extension-machine-preservation"}))

		Expect(Resources(c, namespace).Destroy(ctx)).To(Succeed())
		Expect(Resources(c, namespace).Destroy(ctx)).To(Succeed(), "twice is as good as once")
		for _, list := range []client.ObjectList{&corev1.SecretList{}, &resourcesv1alpha1.ManagedResourceList{}} {
			Expect(c.List(ctx, list)).To(Succeed())
			Expect(list).To(HaveField("Items", BeEmpty()))
		}
	})

	It("should not write into what is being deleted", func() {
		state := func() shootresources.State {
			GinkgoHelper()
			state, err := Resources(c, namespace).State(ctx)
			Expect(err).NotTo(HaveOccurred())
			return state
		}
		Expect(state()).To(Equal(shootresources.Absent))
		Expect(Deploy(ctx, c, namespace, settings)).To(Succeed())
		Expect(state()).To(Equal(shootresources.Present))

		terminating := managedResource()
		terminating.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
		Expect(c.Update(ctx, terminating)).To(Succeed())
		Expect(Resources(c, namespace).Destroy(ctx)).To(Succeed())
		Expect(state()).To(Equal(shootresources.Terminating))
		err := Deploy(ctx, c, namespace, settings)
		Expect(err).To(MatchError(shootresources.ErrTerminating))
		Expect(err).To(MatchError(`ManagedResource "extension-machine-preservation-node-maintenance" is being deleted`))
	})

	Describe("#Check", func() {
		create := func(name string, labels map[string]string) {
			GinkgoHelper()
			Expect(c.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})).To(Succeed())
		}

		It("should have nothing against a shoot without the API, or with ours", func() {
			Expect(Check(ctx, c)).To(Succeed())
			for _, name := range DefinitionNames() {
				create(name, map[string]string{label: "true"})
			}
			Expect(Check(ctx, c)).To(Succeed())
		})

		It("should name what somebody else has brought, and what to do about it", func() {
			create(configs, map[string]string{label: "true"})
			create(maintenances, map[string]string{"app.kubernetes.io/managed-by": "Helm"})
			err := Check(ctx, c)
			foreign, ok := errors.AsType[*ForeignError](err)
			Expect(ok).To(BeTrue())
			Expect(foreign.Definitions).To(Equal([]string{maintenances}))
			Expect(err).To(MatchError("node maintenance cannot be enabled: the shoot has nodemaintenances.maintenance.nvidia.com, without the label " +
				"machine-preservation.extensions.gardener.cloud/node-maintenance. Uninstall what has brought them, such as the NVIDIA maintenance operator, " +
				"and delete them, or remove nodeMaintenance from the provider configuration"))
		})

		It("should not take an error for an answer", func() {
			failing := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errors.New("fake")
				},
			})
			Expect(Check(ctx, failing)).To(MatchError(ContainSubstring("fake")))
		})
	})
})
