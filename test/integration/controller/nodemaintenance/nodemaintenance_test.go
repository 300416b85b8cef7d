// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// The definitions are those of the whole API server.
var _ = Describe("Node maintenance", Ordered, func() {
	const label = "machine-preservation.extensions.gardener.cloud/node-maintenance"

	var (
		ctx       = context.Background()
		names     = []string{"maintenanceoperatorconfigs.maintenance.nvidia.com", "nodemaintenances.maintenance.nvidia.com"}
		namespace string
		extension *extensionsv1alpha1.Extension
		config    = &maintenancev1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "kube-system"}}
	)

	eventually := func(f func(Gomega)) {
		GinkgoHelper()
		Eventually(f).WithTimeout(time.Minute).Should(Succeed())
	}
	getConfig := func(g Gomega) {
		g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
	}
	// allowed returns how many rules the sidecar has about the API.
	allowed := func() int {
		GinkgoHelper()
		role := &rbacv1.ClusterRole{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: "extensions.gardener.cloud:extension-machine-preservation:machine-preservation-controller"}, role)).To(Succeed())
		count := 0
		for _, rule := range role.Rules {
			if rule.APIGroups[0] == "maintenance.nvidia.com" {
				count++
			}
		}
		return count
	}
	managedResource := func() error {
		return env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-node-maintenance"}, &resourcesv1alpha1.ManagedResource{})
	}
	foreign := func() *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: names[1]},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "maintenance.nvidia.com",
				Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "nodemaintenances", Kind: "NodeMaintenance"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1alpha1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}
	}

	BeforeAll(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		extension = environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = environment.ProviderConfig(`,"nodeMaintenance":{"maxParallelOperations":2,"maxUnavailable":"10%"}`)
	})

	It("M17: should be refused where somebody else has brought the API, with a message that names it", func() {
		Expect(env.Client.Create(ctx, foreign())).To(Succeed())
		env.CreateExtension(ctx, extension)
		eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			g.Expect(extension.Status.LastError).NotTo(BeNil())
			g.Expect(extension.Status.LastError.Description).To(ContainSubstring("Uninstall what has brought them"))
			g.Expect(extension.Status.LastError.Description).To(ContainSubstring(names[1]))
			g.Expect(extension.Status.LastError.Codes).To(ConsistOf(BeEquivalentTo("ERR_CONFIGURATION_PROBLEM")))
		})
		Expect(managedResource()).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(allowed()).To(BeZero())
		there := foreign()
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(there), there)).To(Succeed())
		Expect(there.Labels).To(BeEmpty())
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: names[0]}, &apiextensionsv1.CustomResourceDefinition{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("M17: should bring the API when that is gone, and put the limits back to what the Shoot says", func() {
		Expect(env.Client.Delete(ctx, foreign())).To(Succeed())
		env.WaitUntilReconciled(ctx, extension)
		eventually(func(g Gomega) {
			getConfig(g)
			g.Expect(config.Spec).To(Equal(maintenancev1alpha1.MaintenanceOperatorConfigSpec{
				MaxParallelOperations:         new(intstr.FromInt32(2)),
				MaxUnavailable:                new(intstr.FromString("10%")),
				MaxNodeMaintenanceTimeSeconds: new(int32(3600)),
				LogLevel:                      "info",
			}))
		})
		for _, name := range names {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, definition)).To(Succeed())
			Expect(definition.Labels).To(HaveKeyWithValue(label, "true"))
			Expect(definition.Labels).To(HaveKeyWithValue("shoot.gardener.cloud/no-cleanup", "true"), "the deletion of the shoot does not wait for it")
		}
		Eventually(allowed).WithTimeout(time.Minute).Should(Equal(5), "they are in another ManagedResource than what was waited for")

		By("Refusing limits that nobody would read")
		eventually(func(g Gomega) { // the API server learns of a policy some time after it was written
			elsewhere := &maintenancev1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "default", Namespace: "default"}}
			g.Expect(env.Client.Create(ctx, elsewhere)).To(And(
				MatchError(ContainSubstring("nobody would read it: the limits are those of kube-system/default, and are set in the Shoot")), MatchError(apierrors.IsForbidden, "IsForbidden"),
			))
		})

		By("Changing the limits in the shoot, and writing what a scheduler writes")
		patch := client.MergeFrom(config.DeepCopy())
		config.Spec.MaxParallelOperations = new(intstr.FromInt32(100))
		config.Annotations["round"] = "7"
		Expect(env.Client.Patch(ctx, config, patch)).To(Succeed())
		eventually(func(g Gomega) {
			getConfig(g)
			g.Expect(config.Spec.MaxParallelOperations).To(HaveValue(Equal(intstr.FromInt32(2))))
		})
		Expect(config.Annotations).To(HaveKeyWithValue("round", "7"))

		By("Writing with a lock as often as a scheduler does")
		for i := range 20 {
			patch := client.MergeFromWithOptions(config.DeepCopy(), client.MergeFromWithOptimisticLock{})
			config.Annotations["round"] = fmt.Sprint(i)
			Expect(env.Client.Patch(ctx, config, patch)).To(Succeed(), "nobody else writes what is as it should be")
			time.Sleep(150 * time.Millisecond)
		}

		By("Deleting it")
		Expect(env.Client.Delete(ctx, config)).To(Succeed())
		eventually(getConfig)
	})

	It("M17: should refuse what is no limit", func() {
		for _, bad := range []intstr.IntOrString{intstr.FromInt32(-1), intstr.FromString("101%"), intstr.FromString("many")} {
			other := &maintenancev1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-", Namespace: "kube-system"}}
			other.Spec.MaxUnavailable = &bad
			Expect(env.Client.Create(ctx, other)).To(MatchError(apierrors.IsInvalid, "IsInvalid"), bad.String())
		}
	})

	It("should take what the documentation shows", func() {
		create := func(document string, object client.Object) {
			GinkgoHelper()
			shown := examples(document, yamlExample)
			Expect(shown).To(HaveLen(1))
			raw := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(shown[0]), raw)).To(Succeed())
			Expect(client.WithFieldValidation(env.Client, metav1.FieldValidationStrict).Create(ctx, raw)).To(Succeed())
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(raw), object)).To(Succeed())
		}
		Expect(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "operators"}})).To(Succeed())
		role, maintenance := &rbacv1.Role{}, &maintenancev1alpha1.NodeMaintenance{}
		create("node-maintenance.md", role)
		Expect(role.Namespace).To(Equal("operators"))
		create("node-maintenance-requestors.md", maintenance)
		Expect(maintenance.Spec.DrainSpec.PodEvictionFilters).To(HaveLen(1))

		By("Selecting it by its fields")
		for _, shown := range examples("node-maintenance-requestors.md", selectorExample) {
			selector, err := fields.ParseSelector(shown)
			Expect(err).NotTo(HaveOccurred())
			found := &maintenancev1alpha1.NodeMaintenanceList{}
			Expect(env.Client.List(ctx, found, client.MatchingFieldsSelector{Selector: selector})).To(Succeed())
			Expect(found.Items).To(HaveLen(1), shown)
		}

		By("Saying that the work has failed")
		meta.SetStatusCondition(&maintenance.Status.Conditions, metav1.Condition{Type: "Ready", Status: "True", Reason: "Ready"})
		Expect(env.Client.Status().Update(ctx, maintenance)).To(Succeed())
		shown := examples("node-maintenance-requestors.md", patchExample)
		Expect(shown).To(HaveLen(1))
		Expect(env.Client.Status().Patch(ctx, maintenance, client.RawPatch(types.JSONPatchType, []byte(shown[0])))).To(Succeed())
		Expect(meta.IsStatusConditionTrue(maintenance.Status.Conditions, maintenancev1alpha1.ConditionRequestorFailed)).To(BeTrue())
		Expect(env.Client.Delete(ctx, maintenance)).To(Succeed())
	})

	It("M17: should not make those who may edit, or are admins of namespaces, masters of nodes", func() {
		roles := &rbacv1.ClusterRoleList{}
		Expect(env.Client.List(ctx, roles)).To(Succeed())
		for _, role := range roles.Items {
			for _, rule := range role.Rules {
				if slices.Contains(rule.APIGroups, "maintenance.nvidia.com") {
					for _, aggregated := range []string{"view", "edit", "admin"} {
						Expect(role.Labels).NotTo(HaveKey("rbac.authorization.k8s.io/aggregate-to-"+aggregated), role.Name)
					}
				}
			}
		}
	})

	It("should set back what is in progress when it is disabled, leave the API and the objects, and take the permissions away", func() {
		maintenance := &maintenancev1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", Finalizers: []string{"maintenance.nvidia.com/finalizer"}},
			Spec:       maintenancev1alpha1.NodeMaintenanceSpec{RequestorID: "requestor", NodeName: "node"},
		}
		Expect(env.Client.Create(ctx, maintenance)).To(Succeed())
		meta.SetStatusCondition(&maintenance.Status.Conditions, metav1.Condition{Type: "Ready", Status: "False", Reason: "Draining"})
		Expect(env.Client.Status().Update(ctx, maintenance)).To(Succeed())
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: map[string]string{
				"machine-preservation.extensions.gardener.cloud/maintenance":        "2026-01-01T00:00:00Z",
				"machine-preservation.extensions.gardener.cloud/maintenance-cordon": string(maintenance.UID),
			}},
			Spec: corev1.NodeSpec{Unschedulable: true},
		}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		env.Configure(ctx, extension, "")
		env.WaitUntilReconciled(ctx, extension)
		eventually(func(g Gomega) { g.Expect(managedResource()).To(MatchError(apierrors.IsNotFound, "IsNotFound")) })
		Eventually(allowed).WithTimeout(time.Minute).Should(BeZero())
		secret := &corev1.Secret{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)).To(Succeed())
		Expect(secret.Annotations).NotTo(HaveKey(label))

		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Annotations).NotTo(Or(
			HaveKey("machine-preservation.extensions.gardener.cloud/maintenance"), HaveKey("machine-preservation.extensions.gardener.cloud/maintenance-cordon"),
		))
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(maintenance), maintenance)).To(Succeed())
		Expect(maintenance.Finalizers).To(BeEmpty())
		Expect(maintenance.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", "Pending"))))
		getConfig(Default)
		for _, name := range names {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, definition)).To(Succeed())
			Expect(definition.Labels).To(HaveKeyWithValue(label, "true"))
		}
	})

	It("should be enabled again with what it has left", func() {
		env.Configure(ctx, extension, `,"nodeMaintenance":{"maxParallelOperations":"5%"}`)
		env.WaitUntilReconciled(ctx, extension)
		eventually(func(g Gomega) {
			getConfig(g)
			g.Expect(config.Spec.MaxParallelOperations).To(HaveValue(Equal(intstr.FromString("5%"))))
			g.Expect(config.Spec.MaxUnavailable).To(BeNil(), "the Shoot does not set it any more")
		})
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		})
	})
})
