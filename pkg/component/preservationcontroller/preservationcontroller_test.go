// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller_test

import (
	"context"
	"errors"
	"slices"
	"time"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("PreservationController", func() {
	const namespace = "shoot--foo--bar"

	var (
		ctx        = context.Background()
		c          client.Client
		controller component.Deployer
	)

	BeforeEach(func() {
		scheme := builder.Scheme(admissionregistrationv1.AddToScheme, rbacv1.AddToScheme, resourcesv1alpha1.AddToScheme, monitoringv1.AddToScheme)
		c = fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		controller = New(c, namespace, Values{})
	})

	get := func(object client.Object, name string) client.Object {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
		return object
	}

	It("should deploy a Role of its own for the ServiceAccount of machine-controller-manager", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())

		role := get(&rbacv1.Role{}, "machine-preservation-controller").(*rbacv1.Role)
		Expect(role.Rules).To(Equal([]rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"machine-preservation-controller", "machine-preservation-controller-places"}, Verbs: []string{"get", "update"}},
		}))
		binding := get(&rbacv1.RoleBinding{}, "machine-preservation-controller").(*rbacv1.RoleBinding)
		Expect(binding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "machine-preservation-controller"}))
		Expect(binding.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "machine-controller-manager", Namespace: namespace}}))
	})

	It("P20: should delete the Lease of places", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())
		places := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-preservation-controller-places"}}
		Expect(c.Create(ctx, places)).To(Succeed())
		Expect(controller.Destroy(ctx)).To(Succeed())
		Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(places), places))).To(BeTrue())
	})

	It("should deploy an access secret for an identity of its own in the shoot", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())

		secret := get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").(*corev1.Secret)
		Expect(secret.Labels).To(Equal(map[string]string{
			"resources.gardener.cloud/purpose": "token-requestor",
			"resources.gardener.cloud/class":   "shoot",
		}))
		Expect(secret.Annotations).To(Equal(map[string]string{
			"serviceaccount.resources.gardener.cloud/name":             "machine-preservation-controller",
			"serviceaccount.resources.gardener.cloud/namespace":        "kube-system",
			"serviceaccount.resources.gardener.cloud/inject-ca-bundle": "true",
		}))
	})

	It("should deploy the permissions in the shoot, and no others than are needed", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())

		managedResource := get(&resourcesv1alpha1.ManagedResource{}, "extension-machine-preservation-shoot").(*resourcesv1alpha1.ManagedResource)
		Expect(managedResource.Labels).To(Equal(map[string]string{"origin": "gardener-extension-machine-preservation"}))
		Expect(managedResource.Spec.Class).To(BeNil())
		Expect(managedResource.Spec.KeepObjects).To(HaveValue(BeFalse()))

		objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
		Expect(err).NotTo(HaveOccurred())
		meta := metav1.ObjectMeta{
			Name:        "extensions.gardener.cloud:extension-machine-preservation:machine-preservation-controller",
			Annotations: map[string]string{"resources.gardener.cloud/finalize-deletion-after": "5m"},
		}
		Expect(objects).To(ConsistOf(
			&rbacv1.ClusterRole{
				TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
				ObjectMeta: meta,
				Rules: []rbacv1.PolicyRule{
					{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
					{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
					{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "delete"}},
					{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
					{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}},
					{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
				},
			},
			&rbacv1.ClusterRoleBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "extensions.gardener.cloud:extension-machine-preservation:machine-preservation-controller"},
				Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "machine-preservation-controller", Namespace: "kube-system"}},
			},
		))
	})

	// policies returns what refuses something in the shoot.
	policies := func() []client.Object {
		GinkgoHelper()
		objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
		Expect(err).NotTo(HaveOccurred())
		return slices.DeleteFunc(objects, func(object client.Object) bool {
			return object.GetName() != "maintenanceoperatorconfigs.machine-preservation.extensions.gardener.cloud"
		})
	}
	role := func() []rbacv1.PolicyRule {
		GinkgoHelper()
		objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
		Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			if role, ok := object.(*rbacv1.ClusterRole); ok {
				Expect(role.Labels).To(BeEmpty(), "it is aggregated into no other role")
				return role.Rules
			}
		}
		return nil
	}

	It("should allow what drain strategies need only where there are some", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())
		without := role()
		for disabled, verbs := range map[bool][]string{false: {"watch", "patch"}, true: {"watch"}} {
			Expect(New(c, namespace, Values{DrainStrategies: &preservation.DrainStrategies{Disabled: &disabled}}).Deploy(ctx)).To(Succeed())
			Expect(role()).To(Equal(slices.Concat(without, []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs},
				{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
			})), "disabled: %t", disabled)
		}
		Expect(controller.Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(without), "and takes it away again")
	})

	It("should allow what evidence needs only where it is stored, and delete it where it no longer is", func() {
		stored := func() []string {
			list := &corev1.ConfigMapList{}
			Expect(c.List(ctx, list)).To(Succeed())
			var names []string
			for _, item := range list.Items {
				names = append(names, item.Namespace+"/"+item.Name)
			}
			return names
		}
		inSeed := func() []rbacv1.PolicyRule {
			return get(&rbacv1.Role{}, "machine-preservation-controller").(*rbacv1.Role).Rules
		}
		store := func(namespace, name string, labels map[string]string) {
			Expect(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}})).To(Succeed())
		}
		Expect(controller.Deploy(ctx)).To(Succeed())
		without, withoutInSeed := role(), inSeed()

		Expect(New(c, namespace, Values{Evidence: true}).Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(slices.Concat(without, []rbacv1.PolicyRule{
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"list"}},
			{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"list"}},
			{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
		})))
		evidence := role()
		Expect(New(c, namespace, Values{Evidence: true, NodeLogs: true}).Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(append(slices.Clone(evidence), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}})))
		Expect(New(c, namespace, Values{Evidence: true}).Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(evidence), "and takes it away again")
		Expect(New(c, namespace, Values{NodeLogs: true}).Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(without))
		Expect(New(c, namespace, Values{Evidence: true}).Deploy(ctx)).To(Succeed())
		Expect(inSeed()).To(Equal(slices.Concat(withoutInSeed, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "list"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: retention.StoredNames(), Verbs: []string{"patch", "delete"}},
		})))

		const slot = "machine-preservation-evidence-07"
		ours := map[string]string{"machine-preservation.extensions.gardener.cloud/evidence": "true"}
		store(namespace, slot, ours)
		store(namespace, "other", nil)
		store(namespace, "labelled", ours)
		store(namespace, "machine-preservation-evidence-cap", map[string]string{"machine-preservation.extensions.gardener.cloud/evidence": "cap"})
		store("shoot--foo--other", slot, ours)
		Expect(New(c, namespace, Values{Evidence: true}).Deploy(ctx)).To(Succeed())
		Expect(stored()).To(ContainElement(namespace + "/" + slot))

		Expect(controller.Deploy(ctx)).To(Succeed())
		Expect(role()).To(Equal(without), "and takes it away again")
		Expect(inSeed()).To(Equal(withoutInSeed))
		Expect(stored()).To(ConsistOf(namespace+"/other", namespace+"/labelled", namespace+"/machine-preservation-controller-dashboards", "shoot--foo--other/"+slot))
		Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()).NotTo(HaveKey("machine-preservation.extensions.gardener.cloud/evidence"))

		store(namespace, slot, ours)
		Expect(controller.Deploy(ctx)).To(Succeed())
		Expect(stored()).To(ContainElement(namespace+"/"+slot), "nobody looks where nothing was ever stored")
		Expect(controller.Destroy(ctx)).To(Succeed())
		Expect(stored()).To(ConsistOf(namespace+"/other", namespace+"/labelled", "shoot--foo--other/"+slot))
	})

	It("P17: should let the account of machine-hours be kept only where they are counted, and delete it with the rest", func() {
		rules := func() []rbacv1.PolicyRule {
			GinkgoHelper()
			return get(&rbacv1.Role{}, "machine-preservation-controller").(*rbacv1.Role).Rules
		}
		Expect(controller.Deploy(ctx)).To(Succeed())
		without := rules()
		Expect(New(c, namespace, Values{MachineHours: true}).Deploy(ctx)).To(Succeed())
		Expect(rules()).To(Equal(slices.Concat(without, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"machine-preservation-hours"}, Verbs: []string{"get", "update"}},
		})))
		const mark = "machine-preservation.extensions.gardener.cloud/machine-hours"
		Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()).To(HaveKeyWithValue(mark, "true"))
		account := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-preservation-hours"}}
		Expect(c.Create(ctx, account)).To(Succeed())
		Expect(controller.Deploy(ctx)).To(Succeed())
		Expect(rules()).To(Equal(without))
		Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()).NotTo(HaveKey(mark))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(account), account)).To(Succeed())
		Expect(controller.Destroy(ctx)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(account), account)).To(Succeed(), "it may not be deleted where they are not counted")
		Expect(New(c, namespace, Values{MachineHours: true}).Destroy(ctx)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(account), account)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("should delete stored evidence whose time is over: in a hibernated shoot, nobody else does", func() {
		store := func(name string, annotations map[string]string) {
			Expect(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(name), Annotations: annotations, Labels: map[string]string{"machine-preservation.extensions.gardener.cloud/evidence": "true"},
			}})).To(Succeed())
		}
		expires := func(at time.Time) map[string]string {
			return map[string]string{"machine-preservation.extensions.gardener.cloud/evidence-expires": at.UTC().Format(time.RFC3339)}
		}
		names := retention.StoredNames()
		store(names[0], expires(time.Now().Add(-time.Minute)))
		store(names[1], expires(time.Now().Add(time.Hour)))
		store(names[2], nil)
		store(names[3], map[string]string{"machine-preservation.extensions.gardener.cloud/evidence-expires": "today"})
		store("other", expires(time.Now().Add(-time.Minute)))
		replaced := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, ok := obj.(*corev1.ConfigMap); ok && slices.Contains(names, obj.GetName()) {
				Expect((&client.DeleteOptions{}).ApplyOptions(opts).Preconditions).To(HaveValue(HaveField("UID", HaveValue(BeEquivalentTo(obj.GetName())))), "another may have its name by now")
			}
			return c.Delete(ctx, obj, opts...)
		}})
		Expect(New(replaced, namespace, Values{Evidence: true, Now: time.Now()}).Deploy(ctx)).To(Succeed())

		list := &corev1.ConfigMapList{}
		Expect(c.List(ctx, list, client.HasLabels{"machine-preservation.extensions.gardener.cloud/evidence"})).To(Succeed())
		var left []string
		for _, item := range list.Items {
			left = append(left, item.Name)
		}
		Expect(left).To(ConsistOf(names[1], names[2], names[3], "other"))
	})

	It("should leave stored evidence that it may not delete, and delete it as soon as it may", func() {
		isAllowed := true
		restricted := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if !isAllowed {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		}})
		annotation := func() string {
			return get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()["machine-preservation.extensions.gardener.cloud/evidence"]
		}
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-preservation-evidence-50", Labels: map[string]string{"machine-preservation.extensions.gardener.cloud/evidence": "true"}}}
		Expect(New(restricted, namespace, Values{Evidence: true}).Deploy(ctx)).To(Succeed())
		Expect(c.Create(ctx, stored)).To(Succeed())
		Expect(annotation()).To(Equal("true"))

		isAllowed = false
		for range 2 {
			Expect(New(restricted, namespace, Values{}).Deploy(ctx)).To(Succeed())
			Expect(annotation()).To(Equal("left"), "it is not stored, but not forgotten")
		}
		get(&corev1.ConfigMap{}, stored.Name)

		isAllowed = true
		Expect(New(restricted, namespace, Values{}).Deploy(ctx)).To(Succeed())
		Expect(annotation()).To(BeEmpty())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(stored), stored)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

		isAllowed = false
		Expect(New(restricted, namespace, Values{}).Destroy(ctx)).To(Succeed(), "the extension can be disabled")
	})

	It("M17: should allow what node maintenance needs only while it is on, or comes to its end", func() {
		const annotation = "machine-preservation.extensions.gardener.cloud/node-maintenance"
		annotations := func() map[string]string {
			return get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()
		}
		deploy := func(stage MaintenanceStage) {
			GinkgoHelper()
			Expect(New(c, namespace, Values{NodeMaintenance: stage}).Deploy(ctx)).To(Succeed())
		}
		deploy(MaintenanceOff)
		without := role()
		Expect(annotations()).NotTo(HaveKey(annotation))

		Expect(policies()).To(BeEmpty())
		deploy(MaintenanceBeginning)
		Expect(policies()).To(BeEmpty())
		Expect(role()).To(Equal(slices.Concat(without, []rbacv1.PolicyRule{{
			APIGroups:     []string{"apiextensions.k8s.io"},
			Resources:     []string{"customresourcedefinitions"},
			ResourceNames: []string{"maintenanceoperatorconfigs.maintenance.nvidia.com", "nodemaintenances.maintenance.nvidia.com"},
			Verbs:         []string{"get"},
		}})))
		Expect(annotations()).NotTo(HaveKey(annotation))

		on := slices.Concat(without, []rbacv1.PolicyRule{
			{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"nodemaintenances"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
			{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"nodemaintenances/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"maintenanceoperatorconfigs"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"maintenanceoperatorconfigs/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"maintenanceoperatorconfigs"}, ResourceNames: []string{"default"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"watch"}},
		})
		deploy(MaintenanceOn)
		Expect(role()).To(Equal(on))
		Expect(policies()).To(ConsistOf(
			BeAssignableToTypeOf(&admissionregistrationv1.ValidatingAdmissionPolicy{}), BeAssignableToTypeOf(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}),
		))
		Expect(annotations()).To(HaveKeyWithValue(annotation, "true"))

		deploy(MaintenanceEnding)
		Expect(role()).To(Equal(on))
		Expect(policies()).To(BeEmpty(), "nobody reads any")
		Expect(annotations()).NotTo(HaveKey(annotation), "the container is to let go of it")

		deploy(MaintenanceOff)
		Expect(role()).To(Equal(without))
	})

	It("X15: should allow what power cycles need only while they are on, or come to their end", func() {
		const on, seed = "machine-preservation.extensions.gardener.cloud/power-cycle", "machine-preservation.extensions.gardener.cloud/power-cycle-seed"
		annotations := func() map[string]string {
			return get(&corev1.Secret{}, "shoot-access-machine-preservation-controller").GetAnnotations()
		}
		inSeed := func() []rbacv1.PolicyRule {
			return get(&rbacv1.Role{}, "machine-preservation-controller").(*rbacv1.Role).Rules[2:]
		}
		deploy := func(powerCycle *PowerCycle) {
			GinkgoHelper()
			Expect(New(c, namespace, Values{PowerCycle: powerCycle}).Deploy(ctx)).To(Succeed())
		}
		deploy(nil)
		without := role()
		Expect(inSeed()).To(BeEmpty())
		Expect(annotations()).NotTo(Or(HaveKey(on), HaveKey(seed)))

		with := slices.Concat(without, []rbacv1.PolicyRule{
			{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}},
		})
		hosts := &configv1alpha1.Hosts{Kind: "BareMetalHost"}
		for _, ending := range []bool{false, true} {
			deploy(&PowerCycle{Hosts: hosts, Seed: "seed-1", Ending: ending})
			Expect(role()).To(Equal(with))
			Expect(inSeed()).To(Equal([]rbacv1.PolicyRule{{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"get", "list", "watch", "patch"}}}))
			Expect(annotations()).To(HaveKeyWithValue(seed, "seed-1"))
			if ending {
				Expect(annotations()).NotTo(HaveKey(on), "the container is to let go of it")
			} else {
				Expect(annotations()).To(HaveKeyWithValue(on, "true"))
			}
		}
		for _, hosts := range []*configv1alpha1.Hosts{{Kind: "BareMetalHost", KubeconfigSecretName: "metal"}, {Kind: "ServerClaim", KubeconfigSecretName: "metal"}} {
			deploy(&PowerCycle{Hosts: hosts, Seed: "seed-1"})
			Expect(inSeed()).To(BeEmpty(), "they are in another cluster")
			Expect(role()).To(Equal(with))
		}

		deploy(nil)
		Expect(role()).To(Equal(without))
		Expect(inSeed()).To(BeEmpty())
		Expect(annotations()).NotTo(Or(HaveKey(on), HaveKey(seed)))
	})

	It("should use only Secrets that a role can name", func() {
		names := sets.New[string]()
		remember := func(object client.Object) {
			if _, ok := object.(*corev1.Secret); ok {
				names.Insert(object.GetName())
			}
		}
		controller = New(interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				object.SetName(key.Name)
				remember(object)
				return c.Get(ctx, key, object, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
				remember(object)
				return c.Create(ctx, object, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
				remember(object)
				return c.Delete(ctx, object, opts...)
			},
		}), namespace, Values{})

		Expect(controller.Deploy(ctx)).To(Succeed())
		managedResource := get(&resourcesv1alpha1.ManagedResource{}, "extension-machine-preservation-shoot").(*resourcesv1alpha1.ManagedResource)
		managedResource.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: "gardenlet-kubeconfig"}}
		Expect(c.Update(ctx, managedResource)).To(Succeed())
		Expect(controller.Deploy(ctx)).To(Succeed())
		managedResource = get(managedResource, managedResource.Name).(*resourcesv1alpha1.ManagedResource)
		Expect(managedResource.Spec.SecretRefs).To(Equal([]corev1.LocalObjectReference{{Name: "managedresource-extension-machine-preservation-shoot"}}))
		managedResource.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: "gardenlet-kubeconfig"}}
		Expect(c.Update(ctx, managedResource)).To(Succeed())
		Expect(controller.Destroy(ctx)).To(Succeed())

		Expect(names.UnsortedList()).To(ConsistOf("shoot-access-machine-preservation-controller", "managedresource-extension-machine-preservation-shoot"))
	})

	It("should take the permissions in the shoot away after the access to it", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())
		failing := New(interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
				if object.GetName() == "shoot-access-machine-preservation-controller" {
					return errors.New("fake")
				}
				return c.Delete(ctx, object, opts...)
			},
		}), namespace, Values{})

		Expect(failing.Destroy(ctx)).To(MatchError("failed to delete access secret: fake"))
		get(&resourcesv1alpha1.ManagedResource{}, "extension-machine-preservation-shoot")
	})

	It("should leave nothing behind", func() {
		Expect(controller.Deploy(ctx)).To(Succeed())
		Expect(controller.Deploy(ctx)).To(Succeed(), "twice is as good as once")
		Expect(c.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: namespace}})).To(Succeed(), "as the container does")
		Expect(controller.Destroy(ctx)).To(Succeed())
		Expect(controller.Destroy(ctx)).To(Succeed(), "twice is as good as once")

		for _, list := range []client.ObjectList{
			&corev1.SecretList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &resourcesv1alpha1.ManagedResourceList{},
			&corev1.ServiceList{}, &corev1.ConfigMapList{}, &coordinationv1.LeaseList{}, &monitoringv1.ServiceMonitorList{}, &monitoringv1.PrometheusRuleList{},
		} {
			Expect(c.List(ctx, list)).To(Succeed())
			Expect(list).To(HaveField("Items", BeEmpty()))
		}
	})
})
