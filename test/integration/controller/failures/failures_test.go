// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failures"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

var _ = Describe("MachineFailures", Ordered, func() {
	const (
		definition = "machinefailures.machine-preservation.extensions.gardener.cloud"
		viewer     = "extensions.gardener.cloud:extension-machine-preservation:machinefailures"
	)
	var (
		ctx             = context.Background()
		extension       *extensionsv1alpha1.Extension
		sidecar, viewed client.Client
		entry           = &failure.Entry{Name: failure.NameOf("m", Start), UID: "m", Since: Start, At: Start}
	)

	as := func(user string) client.Client {
		GinkgoHelper()
		c, err := failures.NewClient(environment.As(env.Config, user))
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	eventually := func(f func(Gomega)) {
		GinkgoHelper()
		Eventually(f).WithTimeout(time.Minute).Should(Succeed())
	}
	forbidden := MatchError(apierrors.IsForbidden, "IsForbidden")
	set := func(enabled bool) {
		GinkgoHelper()
		env.Configure(ctx, extension, fmt.Sprintf(`,"failures":{"enabled":%t}`, enabled))
		env.WaitUntilReconciled(ctx, extension)
	}

	BeforeAll(func() {
		namespace := env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		extension = environment.NewExtension(namespace)
		env.CreateExtension(ctx, extension)
		env.WaitUntilReconciled(ctx, extension)
		sidecar, viewed = as("system:serviceaccount:kube-system:machine-preservation-controller"), as("viewer")
	})

	It("should be there by default, for the sidecar to write", func() {
		eventually(func(g Gomega) {
			g.Expect(sidecar.List(ctx, &failuresv1alpha1.MachineFailureList{}, client.HasLabels{failuresv1alpha1.LabelOpen}, client.Limit(10))).To(Succeed())
		})
		f := entry.New("m", failure.Found{Place: failure.Place{Pool: "pool"}, Machine: Machine("m")})
		Expect(sidecar.Create(ctx, f.DeepCopy())).To(Succeed())
		Expect(sidecar.Create(ctx, f.DeepCopy())).To(MatchError(apierrors.IsAlreadyExists, "IsAlreadyExists"))
		Expect(sidecar.Get(ctx, client.ObjectKeyFromObject(f), f)).To(Succeed())
		Expect(f.Spec.FailedSince.Time).To(BeTemporally("==", Start))
		after := entry.Complete(f, &failuresv1alpha1.MachineFailureStatus{Outcome: failuresv1alpha1.OutcomeReplaced, Reason: "NoPlace", EndedAt: metav1.NewTime(Start)})
		Expect(sidecar.Patch(ctx, after, client.MergeFrom(f))).To(Succeed())
		Expect(sidecar.Get(ctx, client.ObjectKeyFromObject(f), f)).To(Succeed())
		Expect(f.Status).To(HaveValue(HaveField("Reason", "NoPlace")))
		Expect(f.Labels).To(BeEmpty())
	})

	It("P14: should take whatever others wrote, as the sidecar cuts it, and nothing larger", func() {
		long := strings.Repeat("\u00e4\x1b", 1000)
		m, n := Machine("m"), Node("m")
		m.Spec.ProviderID, m.Labels["node"] = long, long
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: corev1.ConditionStatus(long), Reason: long, Message: long}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: long, KubeletVersion: long, OSImage: long, KernelVersion: long}
		found := failure.Found{Place: failure.Place{Pool: long, Zone: long, Host: long}, Machine: m, Node: n}
		for range 60 {
			pod := Pod("p", OwnedBy(long, long))
			pod.Name, pod.Namespace = long, long
			found.Pods = append(found.Pods, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
		}
		hostile := *entry
		hostile.Name = "hostile"
		f := hostile.New(long, found)
		Expect(sidecar.Create(ctx, f)).To(Succeed())
		f.Spec.Condition.Message = strings.Repeat("m", 257)
		Expect(sidecar.Update(ctx, f)).To(forbidden, "it patches")
		Expect(env.Client.Update(ctx, f)).NotTo(Succeed())
		Expect(sidecar.Delete(ctx, f)).To(Succeed())
	})

	It("should be read by those who may view the shoot, and written by none of them", func() {
		role := &rbacv1.ClusterRole{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: viewer}, role)).To(Succeed())
		Expect(role.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-view", "true"))
		// Nobody aggregates here: who may view has the role itself.
		Expect(viewed.List(ctx, &failuresv1alpha1.MachineFailureList{})).To(forbidden)
		Expect(env.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewer},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}},
		})).To(Succeed())
		list := &failuresv1alpha1.MachineFailureList{}
		eventually(func(g Gomega) { g.Expect(viewed.List(ctx, list)).To(Succeed()) })
		Expect(list.Items).To(HaveLen(1))
		Expect(viewed.List(ctx, list, client.MatchingFields{"spec.node": "m"})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(viewed.List(ctx, list, client.MatchingFields{"spec.pool": "other"})).To(Succeed())
		Expect(list.Items).To(BeEmpty())

		f := &failuresv1alpha1.MachineFailure{}
		Expect(viewed.Get(ctx, client.ObjectKey{Name: entry.Name}, f)).To(Succeed())
		forged := f.DeepCopy()
		forged.Spec.Reason = "Forged"
		Expect(viewed.Update(ctx, forged)).To(forbidden)
		Expect(viewed.Patch(ctx, forged, client.MergeFrom(f))).To(forbidden)
		Expect(viewed.Delete(ctx, f)).To(forbidden)
		forged.ObjectMeta = metav1.ObjectMeta{Name: "forged"}
		Expect(viewed.Create(ctx, forged)).To(forbidden)
	})

	It("should go with all that was told, and the permissions, when they are switched off, and come again", func() {
		set(false)
		eventually(func(g Gomega) {
			for _, object := range []client.Object{
				&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}},
				&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: viewer}},
			} {
				g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
			}
			role := &rbacv1.ClusterRole{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: "extensions.gardener.cloud:extension-machine-preservation:machine-preservation-controller"}, role)).To(Succeed())
			g.Expect(slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "machinefailures") })).To(BeFalse())
			g.Expect(sidecar.List(ctx, &failuresv1alpha1.MachineFailureList{})).To(forbidden)
		})
		set(true)
		eventually(func(g Gomega) {
			list := &failuresv1alpha1.MachineFailureList{}
			g.Expect(sidecar.List(ctx, list)).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		})
	})

	It("P14: should be held up by finalizers of others for five minutes only", func() {
		f := entry.New("m", failure.Found{Place: failure.Place{Pool: "pool"}, Machine: Machine("m")})
		f.Finalizers = []string{"example.com/forever"}
		owner, err := failures.NewClient(env.Config)
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Create(ctx, f)).To(Succeed())
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: viewer}}
		for _, object := range []client.Object{crd, role} {
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			before := object.DeepCopyObject().(client.Object)
			object.SetFinalizers(append(object.GetFinalizers(), f.Finalizers...))
			Expect(env.Client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
		}

		set(false)
		managed := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: extension.Namespace, Name: "extension-machine-preservation-failures"}}
		all := []client.Object{crd, role, managed}
		isGone := func(g Gomega, gone types.GomegaMatcher) {
			for _, object := range all {
				g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(gone)
			}
		}
		eventually(func(g Gomega) {
			isGone(g, Succeed())
			for _, object := range all {
				g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
			}
		})
		// The API server stamps with the real time: how long the specs before this one took must not count.
		resourceManagerClock.SetTime(crd.DeletionTimestamp.Add(4 * time.Minute))
		Consistently(func(g Gomega) { isGone(g, Succeed()) }).WithTimeout(6 * time.Second).WithPolling(time.Second).Should(Succeed())
		resourceManagerClock.Step(2 * time.Minute)
		eventually(func(g Gomega) { isGone(g, MatchError(apierrors.IsNotFound, "IsNotFound")) })

		set(true) // what was held comes back with the API
		eventually(func(g Gomega) { g.Expect(sidecar.Get(ctx, client.ObjectKeyFromObject(f), f)).To(Succeed()) })
		Expect(f.DeletionTimestamp).NotTo(BeNil())
		Expect(owner.Patch(ctx, f, client.RawPatch(apitypes.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(sidecar.Get(ctx, client.ObjectKeyFromObject(f), f)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		})
	})
})
