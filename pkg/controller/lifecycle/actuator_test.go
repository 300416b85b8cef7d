// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Actuator", func() {
	var (
		ctx   = context.Background()
		log   = logr.Discard()
		c     client.Client
		clock *testclock.FakeClock
		// shoot is what Delete gets to end preservations, unless there is an error.
		shoot      client.Client
		shootError error
		recorder   *events.FakeRecorder
		// inject is what the webhook does when the Deployment of machine-controller-manager is written.
		inject func(*appsv1.Deployment)
		// patches are those of the Deployment.
		patches int

		actuator   extension.Actuator
		ex         *extensionsv1alpha1.Extension
		deployment *appsv1.Deployment
	)

	BeforeEach(func() {
		inject, patches = func(*appsv1.Deployment) {}, 0
		scheme := newScheme()
		c = fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&machinev1alpha1.Machine{}).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := c.Patch(ctx, object, patch, opts...); err != nil {
					return err
				}
				if d, ok := object.(*appsv1.Deployment); ok {
					patches++
					inject(d)
					return c.Update(ctx, d)
				}
				return nil
			},
		}).Build()
		shoot, shootError = fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).Build(), nil
		actuator, clock, recorder = newActuator(c, func() (client.Client, error) { return shoot, shootError })

		cluster, err := json.Marshal(&gardencorev1beta1.Shoot{
			TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
			Spec:     gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: []gardencorev1beta1.Worker{{Name: "worker-a", Maximum: 3}}}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Create(ctx, &extensionsv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: cluster}},
		})).To(Succeed())

		ex = newExtension()
		configure(ex, 2)

		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}, {Name: "machine-controller-manager-provider-local"}}
		deployment.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "kubeconfig"}}
	})

	containers := func() []string {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		var names []string
		for _, container := range deployment.Spec.Template.Spec.Containers {
			names = append(names, container.Name)
		}
		return names
	}
	addContainer := func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		if !slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == container }) {
			pod.Containers = append(pod.Containers, corev1.Container{Name: container})
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "kubeconfig-machine-preservation"})
		}
	}
	deployed := func() bool {
		GinkgoHelper()
		secret := &corev1.Secret{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)
		Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
		return err == nil
	}
	beDeleted := func() {
		ex.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
	}

	Describe("#Reconcile", func() {
		It("should deploy what the container needs, even before there is a machine-controller-manager", func() {
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeTrue())
		})

		It("should leave machine-controller-manager alone", func() {
			Expect(c.Create(ctx, deployment)).To(Succeed())
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			Expect(patches).To(BeZero())
		})

		It("should deploy nothing when the configuration is not valid from the beginning, and mark the error as the user's", func() {
			configure(ex, 3)

			err := actuator.Reconcile(ctx, log, ex)
			Expect(err).To(MatchError(`invalid configuration: spec.providerConfig.machineControllerManager.autoPreserveFailedMax: Invalid value: 3: ` +
				`must be at most 2, one less than the maximum of worker pool "worker-a", because system components may run there`))
			Expect(v1beta1helper.ExtractErrorCodes(err)).To(Equal([]gardencorev1beta1.ErrorCode{"ERR_CONFIGURATION_PROBLEM"}))
			Expect(deployed()).To(BeFalse())
		})

		It("should not fail when the configuration is not valid any more, and renew what is deployed", func() {
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: container, Namespace: namespace}}
			Expect(c.Delete(ctx, role)).To(Succeed())
			configure(ex, 3)

			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeTrue())
			Expect(c.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		})

		It("should fail when it cannot tell whether it deployed something before", func() {
			configure(ex, 3)
			actuator = &Actuator{Clock: clock, Client: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if _, ok := object.(*corev1.Secret); ok {
						return errors.New("fake")
					}
					return c.Get(ctx, key, object, opts...)
				},
			})}

			err := actuator.Reconcile(ctx, log, ex)
			Expect(err).To(MatchError(`failed to get Secret "shoot-access-machine-preservation-controller": fake`))
			Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())
		})
	})

	type operation func(extension.Actuator, context.Context, logr.Logger, *extensionsv1alpha1.Extension) error

	DescribeTable("should deploy nothing for a self-hosted shoot", func(operation operation) {
		ex.Namespace = "kube-system"
		Expect(operation(actuator, ctx, log, ex)).To(Succeed())
		secrets := &corev1.SecretList{}
		Expect(c.List(ctx, secrets)).To(Succeed())
		Expect(secrets.Items).To(BeEmpty())
	},
		Entry("when it reconciles", operation(extension.Actuator.Reconcile)),
		Entry("when it restores", operation(extension.Actuator.Restore)),
	)

	DescribeTable("should fail without the Shoot", func(operation operation) {
		ex.Namespace = "other"
		Expect(operation(actuator, ctx, log, ex)).To(MatchError(ContainSubstring("failed to get Shoot")))
		Expect(c.Create(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "other"}})).To(Succeed())
		Expect(operation(actuator, ctx, log, ex)).To(MatchError(`there is no Shoot in Cluster "other"`))
	},
		Entry("when it reconciles", operation(extension.Actuator.Reconcile)),
		Entry("when it restores", operation(extension.Actuator.Restore)),
	)

	It("should create the ManagedResource anew when it was disabled while the shoot was hibernated, not what gardener-resource-manager is about to take away", func() {
		managedResource := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-shoot", Namespace: namespace}}
		get := func() error { return c.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource) }
		sleep := func(enabled bool) {
			GinkgoHelper()
			cluster := &extensionsv1alpha1.Cluster{}
			Expect(c.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
			cluster.Spec.Shoot.Raw = fmt.Appendf(nil, `{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":{"hibernation":{"enabled":%t},`+
				`"provider":{"workers":[{"name":"worker-a","maximum":3}]}},"status":{"hibernated":true}}`, enabled)
			Expect(c.Update(ctx, cluster)).To(Succeed())
		}

		Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
		sleep(true)
		Expect(get()).To(Succeed())
		managedResource.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
		Expect(c.Update(ctx, managedResource)).To(Succeed())
		disabled := ex.DeepCopy()
		disabled.DeletionTimestamp = new(metav1.NewTime(clock.Now()))
		Expect(actuator.Delete(ctx, log, disabled)).To(Succeed())

		By("Enabling it before the shoot wakes up")
		Expect(get()).To(Succeed())
		terminating := managedResource.ResourceVersion
		Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed(), "there is nobody to wait for")

		By("Waking up")
		sleep(false)
		err := actuator.Reconcile(ctx, log, ex)
		Expect(err).To(MatchError(ContainSubstring(`ManagedResource "extension-machine-preservation-shoot" is being deleted`)))
		Expect(err).NotTo(BeAssignableToTypeOf(&reconcilerutils.RequeueAfterError{}), "it would not be called again")
		Expect(get()).To(Succeed())
		Expect(managedResource.ResourceVersion).To(Equal(terminating))
		Expect(deployed()).To(BeFalse(), "the container would have no permissions in the shoot")

		managedResource.Finalizers = nil
		Expect(c.Update(ctx, managedResource)).To(Succeed())
		Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
		Expect(get()).To(Succeed())
		Expect(managedResource.DeletionTimestamp).To(BeNil())
		Expect(deployed()).To(BeTrue())
	})

	DescribeTable("should allow what drain strategies need only where there are valid ones", func(fields string, want bool) {
		ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + fields + `}`)}
		for _, operation := range []func(context.Context, logr.Logger, *extensionsv1alpha1.Extension) error{actuator.Restore, actuator.Reconcile} {
			Expect(operation(ctx, log, ex)).To(Succeed())
			objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
			Expect(err).NotTo(HaveOccurred())
			var allowed []string
			for _, object := range objects {
				if role, ok := object.(*rbacv1.ClusterRole); ok {
					for _, rule := range role.Rules {
						allowed = append(allowed, rule.Resources...)
					}
				}
			}
			Expect(slices.Contains(allowed, "poddisruptionbudgets")).To(Equal(want))
		}
	},
		Entry("there are none", ``, false),
		Entry("there are some", `,"drainStrategies":{}`, true),
		Entry("they are disabled", `,"drainStrategies":{"disabled":true}`, true),
		Entry("a pattern does not compile", `,"drainStrategies":{"ignoredNamespacePatterns":["("]}`, false),
		Entry("nothing but the rest is not valid", `,"drainStrategies":{},"workers":[{"name":"x"}]`, true),
	)

	It("should store evidence as it is configured, and as before if that is not valid, where operators allow it", func() {
		enabled := &configv1alpha1.Evidence{Enabled: true}
		for _, step := range []struct {
			fields           string
			allowed          *configv1alpha1.Evidence
			stores, nodeLogs bool
		}{
			{`,"evidence":{"enabled":true}`, nil, false, false},
			{`,"evidence":{"enabled":true,"retention":"1s"}`, enabled, false, false},
			{`,"evidence":{"enabled":true}`, enabled, true, false},
			{`,"evidence":{"enabled":true,"retention":"1s"}`, enabled, true, false},
			{`,"evidence":{"enabled":true},"workers":[{"name":"x"}]`, enabled, true, false},
			{`,"evidence":{}`, enabled, false, false},
			{`,"evidence":{"enabled":true}`, enabled, true, false},
			{`,"evidence":{"enabled":true}`, &configv1alpha1.Evidence{}, false, false},
			{`,"evidence":{"enabled":true,"retention":"1s"}`, enabled, false, false},
			{`,"evidence":{"enabled":true}`, enabled, true, false},
			{`,"evidence":{"enabled":true,"nodeLogs":true}`, enabled, true, true},
			{`,"evidence":{"nodeLogs":true}`, enabled, false, false},
			{`,"evidence":{"enabled":true,"nodeLogs":true}`, &configv1alpha1.Evidence{}, false, false},
			{`,"evidence":{"enabled":true,"retention":"1s"}`, nil, false, false},
		} {
			actuator.(*Actuator).Config.Evidence = step.allowed
			ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + step.fields + `}`)}
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			role := &rbacv1.Role{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: container}, role)).To(Succeed())
			Expect(slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "configmaps") })).To(Equal(step.stores), step.fields)
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-evidence"}, &resourcesv1alpha1.ManagedResource{})
			Expect(err == nil).To(Equal(step.stores), "its namespace in the shoot: "+step.fields)
			objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
			Expect(err).NotTo(HaveOccurred())
			Expect(slices.ContainsFunc(objects, func(object client.Object) bool {
				role, ok := object.(*rbacv1.ClusterRole)
				return ok && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "nodes/proxy") })
			})).To(Equal(step.nodeLogs), step.fields)
		}
	})

	It("should have failures told of by default, as before if the configuration is not valid, and remove the API where they are not", func() {
		allowed := &configv1alpha1.Failures{Enabled: true}
		for _, step := range []struct {
			fields  string
			allowed *configv1alpha1.Failures
			tells   bool
		}{
			{`,"failures":{"enabled":7}`, nil, false},
			{``, nil, true},
			{`,"failures":{}`, allowed, true},
			{`,"failures":{"enabled":7}`, allowed, true},
			{`,"workers":[{"name":"x"}]`, nil, true},
			{`,"failures":{"enabled":false}`, nil, false},
			{`,"failures":{"enabled":7}`, nil, false},
			{`,"failures":{"enabled":true}`, nil, true},
			{`,"failures":{"enabled":true}`, &configv1alpha1.Failures{}, false},
		} {
			actuator.(*Actuator).Config.Failures = step.allowed
			ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + step.fields + `}`)}
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
			Expect(err).NotTo(HaveOccurred())
			Expect(slices.ContainsFunc(objects, func(object client.Object) bool {
				role, ok := object.(*rbacv1.ClusterRole)
				return ok && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "machinefailures") })
			})).To(Equal(step.tells), step.fields)
			secret := &corev1.Secret{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)).To(Succeed())
			marked, isMarked := secret.Annotations["machine-preservation.extensions.gardener.cloud/failures"]
			Expect(isMarked).To(Equal(step.tells), step.fields+marked)
			err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-failures"}, &resourcesv1alpha1.ManagedResource{})
			Expect(err == nil).To(Equal(step.tells), step.fields)
		}
	})

	It("should do without them as long as a former API goes, and deploy all else", func() {
		Expect(c.Create(ctx, &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{
			Name: "extension-machine-preservation-failures", Namespace: namespace, Finalizers: []string{"x"},
		}})).To(Succeed())
		Expect(c.Delete(ctx, &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-failures", Namespace: namespace}})).To(Succeed())
		Expect(actuator.Restore(ctx, log, ex)).To(MatchError(ContainSubstring("is being deleted")))
		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)).To(Succeed())
		Expect(secret.Annotations).NotTo(HaveKey("machine-preservation.extensions.gardener.cloud/failures"))
	})

	It("should store evidence in the seed as long as a former namespace in the shoot goes", func() {
		former := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-evidence", Namespace: namespace, Finalizers: []string{"x"}}}
		Expect(c.Create(ctx, former)).To(Succeed())
		Expect(c.Delete(ctx, former)).To(Succeed())
		actuator.(*Actuator).Config.Evidence = &configv1alpha1.Evidence{Enabled: true}
		ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig","evidence":{"enabled":true}}`)}
		Expect(actuator.Restore(ctx, log, ex)).To(MatchError(ContainSubstring("is being deleted")))
		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)).To(Succeed())
		Expect(secret.Annotations).To(HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/evidence", "true"))
	})

	Describe("#Restore", func() {
		It("should do what Reconcile does", func() {
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeTrue())
		})

		It("should not fail when the configuration is not valid", func() {
			configure(ex, 3)
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeTrue())
		})
	})

	Describe("#Delete", func() {
		BeforeEach(func() {
			addContainer(deployment)
			Expect(c.Create(ctx, deployment)).To(Succeed())
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			beDeleted()
		})

		It("should remove the container first, and what it needed when it is gone", func() {
			err := actuator.Delete(ctx, log, ex)
			var requeue *reconcilerutils.RequeueAfterError
			Expect(errors.As(err, &requeue)).To(BeTrue())
			Expect(requeue.RequeueAfter).To(Equal(5 * time.Second))
			Expect(deployed()).To(BeTrue())
			Expect(containers()).To(Equal([]string{"machine-controller-manager", "machine-controller-manager-provider-local"}))
			Expect(deployment.Spec.Template.Spec.Volumes).To(Equal([]corev1.Volume{{Name: "kubeconfig"}}))

			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeFalse())
		})

		It("should not wait without end for a webhook that adds the container back", func() {
			inject = addContainer
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("the preservation controller is being removed")))
			clock.Step(5*time.Minute - time.Second)
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("the preservation controller is being removed")))
			clock.Step(time.Second)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeFalse())
		})

		Context("when machines are preserved", func() {
			BeforeEach(func() {
				Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed())
				Expect(containers()).NotTo(ContainElement(container))

				pool := Deployment("pool", Share("1"))
				set := Set("set", pool)
				machine := Machine("m", Phase(machinev1alpha1.MachineUnknown, clock.Now().Add(time.Hour)), Preserved("Failed:Preserved", "auto", clock.Now().Add(time.Hour)), Of(set))
				for _, object := range []client.Object{pool, set, machine} {
					object.SetNamespace(namespace)
					Expect(c.Create(ctx, object)).To(Succeed())
				}
				Expect(shoot.Create(ctx, Node("m", Taint("node.machine.sapcloud.io/preserved", clock.Now())))).To(Succeed())
			})

			machine := func() *machinev1alpha1.Machine {
				GinkgoHelper()
				machine := &machinev1alpha1.Machine{}
				Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "m"}, machine)).To(Succeed())
				return machine
			}
			const cause = "machine-preservation.extensions.gardener.cloud/cause"

			It("P10: should end the preservations", func() {
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
				Expect(machine().Annotations).NotTo(HaveKey(cause))
				Expect(machine().Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("<", clock.Now().Add(-10*time.Minute)))
				node := &corev1.Node{}
				Expect(shoot.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
				Expect(node.Spec.Taints).To(BeEmpty())
				Expect(recorder.Events).To(Receive(ContainSubstring("no longer preserved because " + preservation.WhyDisabled.Text)))
				Expect(deployed()).To(BeFalse())
			})

			It("should wait until no preservation controller is at work any more", func() {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: container, Namespace: namespace}}
				lease.Spec = coordinationv1.LeaseSpec{
					HolderIdentity:       new("pod"),
					LeaseDurationSeconds: new(int32(15)),
					RenewTime:            &metav1.MicroTime{Time: clock.Now()},
				}
				Expect(c.Create(ctx, lease)).To(Succeed())
				clock.Step(14 * time.Second)
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("is being removed")))
				Expect(machine().Annotations).To(HaveKey(cause))

				clock.Step(2 * time.Second)
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
				Expect(machine().Annotations).NotTo(HaveKey(cause))
			})

			It("should try again when the shoot cannot be reached", func() {
				shootError = errors.New("fake")
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError("failed to end the preservations: failed to create the client for the shoot: fake"))
				Expect(machine().Annotations).To(HaveKey(cause))
				Expect(deployed()).To(BeTrue())
			})

			It("should go on taking away what is deployed, whatever annotations are left on machines", func() {
				managedResource := &resourcesv1alpha1.ManagedResource{}
				Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-shoot"}, managedResource)).To(Succeed())
				managedResource.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
				Expect(c.Update(ctx, managedResource)).To(Succeed())
				var requeue *reconcilerutils.RequeueAfterError
				err := actuator.Delete(ctx, log, ex)
				Expect(errors.As(err, &requeue)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring(`ManagedResource "extension-machine-preservation-shoot" is being deleted`)))

				kept := machine()
				metav1.SetMetaDataAnnotation(&kept.ObjectMeta, "machine-preservation.extensions.gardener.cloud/timeout", "1h")
				Expect(c.Update(ctx, kept)).To(Succeed())
				Expect(c.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)).To(Succeed())
				managedResource.Finalizers = nil
				Expect(c.Update(ctx, managedResource)).To(Succeed())
				actuator.(*Actuator).ShootClient = ShootClient(c)
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			})

			It("P14: should not wait without end for a shoot that cannot be reached", func() {
				shootError = errors.New("fake")
				clock.Step(10*time.Minute - time.Second)
				Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed())
				clock.Step(time.Second)
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
				Expect(machine().Annotations).NotTo(HaveKey(cause))
				Expect(deployed()).To(BeFalse())
			})

			It("P14: should not wait without end for a shoot that denies to change nodes", func() {
				shoot = interceptor.NewClient(shoot.(client.WithWatch), interceptor.Funcs{
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "m", errors.New("denied by evil "+strings.Repeat("x", 1<<20)))
					},
				})
				err := actuator.Delete(ctx, log, ex)
				Expect(err).To(MatchError(ContainSubstring("denied by evil")))
				Expect(len(err.Error())).To(BeNumerically("<", 300))
				Expect(machine().Annotations).To(HaveKey(cause))
				clock.Step(10 * time.Minute)
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
				Expect(machine().Annotations).NotTo(HaveKey(cause))
				Expect(recorder.Events).To(Receive(ContainSubstring("no longer preserved")))
				Expect(recorder.Events).To(Receive(ContainSubstring("Machine is released, but taint, annotations and condition of its preservation may still be on its node")))
			})

			It("T10: should leave the machines of a shoot alone that is deleted", func() {
				cluster := &extensionsv1alpha1.Cluster{}
				Expect(c.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
				cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`)
				Expect(c.Update(ctx, cluster)).To(Succeed())
				Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
				Expect(machine().Annotations).To(HaveKey(cause))
				Expect(deployed()).To(BeFalse())
			})
		})

		It("should not wait for gardener-resource-manager while the shoot is hibernated", func() {
			managedResource := &resourcesv1alpha1.ManagedResource{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-shoot"}, managedResource)).To(Succeed())
			managedResource.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
			Expect(c.Update(ctx, managedResource)).To(Succeed())
			hibernate := func(status string) {
				cluster := &extensionsv1alpha1.Cluster{}
				Expect(c.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
				cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":{"hibernation":{"enabled":true}},"status":` + status + `}`)
				Expect(c.Update(ctx, cluster)).To(Succeed())
			}
			Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed(), "the container is removed first")

			hibernate(`{}`)
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("is being deleted")))
			hibernate(`{"hibernated":true}`)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(c.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)).To(Succeed())
			Expect(managedResource.DeletionTimestamp).NotTo(BeNil())
		})

		It("should succeed without a machine-controller-manager", func() {
			Expect(c.Delete(ctx, deployment)).To(Succeed())
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeFalse())
		})
	})

	Describe("#ForceDelete", func() {
		It("should remove the container, and wait for nothing", func() {
			addContainer(deployment)
			Expect(c.Create(ctx, deployment)).To(Succeed())
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			managedResource := &resourcesv1alpha1.ManagedResource{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "extension-machine-preservation-shoot"}, managedResource)).To(Succeed())
			managedResource.Finalizers = []string{"resources.gardener.cloud/gardener-resource-manager"}
			Expect(c.Update(ctx, managedResource)).To(Succeed())
			beDeleted()

			Expect(actuator.ForceDelete(ctx, log, ex)).To(Succeed())
			Expect(deployed()).To(BeFalse())
			Expect(containers()).NotTo(ContainElement(container))
		})
	})

	Describe("#Migrate", func() {
		It("should remove the container before what it mounts", func() {
			addContainer(deployment)
			Expect(c.Create(ctx, deployment)).To(Succeed())
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			inject = func(*appsv1.Deployment) { Expect(deployed()).To(BeTrue()) }
			Expect(actuator.Migrate(ctx, log, ex)).To(Succeed())
			Expect(containers()).NotTo(ContainElement(container))
			Expect(deployed()).To(BeFalse())
		})

		It("should keep the resources in the shoot", func() {
			Expect(actuator.Reconcile(ctx, log, ex)).To(Succeed())
			for name, keep := range map[string]bool{"node-maintenance": true, "evidence": false} {
				Expect(c.Create(ctx, &resourcesv1alpha1.ManagedResource{
					ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-" + name, Namespace: namespace},
					Spec:       resourcesv1alpha1.ManagedResourceSpec{KeepObjects: new(keep)},
				})).To(Succeed())
			}
			kept := map[string]bool{}
			c = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
					if _, ok := object.(*resourcesv1alpha1.ManagedResource); ok {
						managedResource := &resourcesv1alpha1.ManagedResource{}
						Expect(c.Get(ctx, client.ObjectKeyFromObject(object), managedResource)).To(Succeed())
						kept[object.GetName()] = *managedResource.Spec.KeepObjects
					}
					return c.Delete(ctx, object, opts...)
				},
			})

			Expect((&Actuator{Client: c, Clock: clock}).Migrate(ctx, log, ex)).To(Succeed())
			Expect(kept).To(Equal(map[string]bool{
				"extension-machine-preservation-shoot":            true,
				"extension-machine-preservation-node-maintenance": true,
				"extension-machine-preservation-failures":         true,
				"extension-machine-preservation-evidence":         true,
			}))
			Expect(deployed()).To(BeFalse())
		})
	})
})

func configure(ex *extensionsv1alpha1.Extension, autoPreserveFailedMax int) {
	GinkgoHelper()
	config, err := json.Marshal(map[string]any{
		"apiVersion":               "machine-preservation.extensions.gardener.cloud/v1alpha1",
		"kind":                     "MachinePreservationConfig",
		"machineControllerManager": map[string]any{"autoPreserveFailedMax": autoPreserveFailedMax},
	})
	Expect(err).NotTo(HaveOccurred())
	ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: config}
}
