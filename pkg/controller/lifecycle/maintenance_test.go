// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
)

var _ = Describe("Node maintenance", func() {
	const definition = "nodemaintenances.maintenance.nvidia.com"

	var (
		ctx   = context.Background()
		log   = logr.Discard()
		c     client.Client
		clock *testclock.FakeClock
		// shoot is the API server of the shoot, unless it answers with an error.
		shoot      client.Client
		shootError error
		// ended is how often maintenances were set back, and what it found.
		ended    []string
		endError error
		recorder *events.FakeRecorder
		actuator *Actuator
		ex       *extensionsv1alpha1.Extension
	)

	setShoot := func(fields string) {
		GinkgoHelper()
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		raw := `{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot",` + fields + `}`
		cluster.Spec.Shoot.Raw = []byte(raw)
		if err := c.Create(ctx, cluster); err != nil {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			cluster.Spec.Shoot.Raw = []byte(raw)
			Expect(c.Update(ctx, cluster)).To(Succeed())
		}
	}
	awake := func() { setShoot(`"spec":{` + pools + `}`) }
	hibernated := func() {
		setShoot(`"spec":{"hibernation":{"enabled":true},` + pools + `},"status":{"hibernated":true}`)
	}

	set := func(fields string) {
		ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"%s}`, fields)}
	}
	get := func(object client.Object, name string) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	}
	// allowed returns what the sidecar may do with something.
	allowed := func(resource string) []string {
		GinkgoHelper()
		objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-shoot")
		Expect(err).NotTo(HaveOccurred())
		var verbs []string
		for _, object := range objects {
			if role, ok := object.(*rbacv1.ClusterRole); ok {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, resource) {
						verbs = append(verbs, rule.Verbs...)
					}
				}
			}
		}
		return verbs
	}
	flagged := func() bool {
		GinkgoHelper()
		secret := &corev1.Secret{}
		Expect(get(secret, "shoot-access-machine-preservation-controller")).To(Succeed())
		return secret.Annotations["machine-preservation.extensions.gardener.cloud/node-maintenance"] == "true"
	}
	brought := func() bool {
		GinkgoHelper()
		err := get(&resourcesv1alpha1.ManagedResource{}, "extension-machine-preservation-node-maintenance")
		Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
		return err == nil
	}
	expectOn := func() {
		GinkgoHelper()
		Expect(brought()).To(BeTrue())
		Expect(flagged()).To(BeTrue())
		Expect(allowed("nodemaintenances")).To(ContainElement("delete"))
		Expect(allowed("customresourcedefinitions")).To(BeEmpty())
	}
	expectOff := func() {
		GinkgoHelper()
		Expect(brought()).To(BeFalse())
		Expect(flagged()).To(BeFalse())
		Expect(allowed("nodemaintenances")).To(BeEmpty())
	}
	expectWaiting := func(err error, cause string) {
		GinkgoHelper()
		Expect(err).To(MatchError(ContainSubstring(cause)))
		Expect(err).NotTo(BeAssignableToTypeOf(&reconcilerutils.RequeueAfterError{}), "it would not be called again")
		Expect(v1beta1helper.ExtractErrorCodes(err)).To(BeEmpty())
	}
	reconcile := func() error { return actuator.Reconcile(ctx, log, ex) }

	BeforeEach(func() {
		scheme := newScheme()
		c = fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		shoot, shootError = fakeclient.NewClientBuilder().WithScheme(scheme).Build(), nil
		ended, endError = nil, nil
		actuator, clock, recorder = newActuator(c, func() (client.Client, error) { return shoot, shootError })
		actuator.EndMaintenances = func(_ context.Context, shootClient client.Client, _ time.Time) error {
			Expect(shootClient).To(BeIdenticalTo(shoot))
			Expect(allowed("nodemaintenances")).NotTo(BeEmpty(), "it takes the permissions of the sidecar")
			Expect(flagged()).To(BeFalse())
			ended = append(ended, "ended")
			return endError
		}
		awake()
		ex = newExtension()
		set(`,"nodeMaintenance":{}`)
	})

	Describe("enabling", func() {
		It("should bring the API and the permissions, and have the container take care of it", func() {
			Expect(reconcile()).To(Succeed())
			expectOn()
			Expect(reconcile()).To(Succeed(), "twice is as good as once")
			expectOn()
		})

		It("should need nothing of the shoot where it is not enabled", func() {
			set("")
			shootError = errors.New("nobody asks")
			Expect(reconcile()).To(Succeed())
			expectOff()
			Expect(allowed("customresourcedefinitions")).To(BeEmpty())
			Expect(ended).To(BeEmpty())
		})

		It("should not be enabled with what is not valid", func() {
			set("")
			Expect(reconcile()).To(Succeed())
			set(`,"nodeMaintenance":{"logLevel":"trace"}`)
			Expect(reconcile()).To(Succeed())
			expectOff()
			Expect(ended).To(BeEmpty())
			Expect(recorder.Events).To(BeEmpty())
		})

		DescribeTable("should stay as it is with what is not valid, and tell", func(fields, what string) {
			set(`,"nodeMaintenance":{"maxUnavailable":7}`)
			Expect(reconcile()).To(Succeed())
			before, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-node-maintenance")
			Expect(err).NotTo(HaveOccurred())

			set(fields)
			shootError = errors.New("nobody asks")
			Expect(reconcile()).To(Succeed())
			expectOn()
			Expect(managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-node-maintenance")).To(Equal(before))
			Expect(ended).To(BeEmpty())
			Expect(recorder.Events).To(Receive(And(HavePrefix("Warning InvalidConfiguration node maintenance is not changed, because its settings are not valid: "), ContainSubstring(what))))

			By("Disabling it")
			shootError = nil
			set("")
			Expect(reconcile()).To(Succeed())
			expectOff()
			Expect(ended).To(HaveLen(1))
		},
			Entry("a limit", `,"nodeMaintenance":{"logLevel":"trace"}`, "logLevel"),
			Entry("what cannot be decoded", `,"nodeMaintenance":true`, "nodeMaintenance"),
			Entry("something else that cannot be decoded", `,"drainStrategies":true`, "drainStrategies"),
		)

		It("should change the limits", func() {
			Expect(reconcile()).To(Succeed())
			set(`,"nodeMaintenance":{"maxUnavailable":7}`)
			shootError = errors.New("nobody asks")
			Expect(reconcile()).To(Succeed())
			objects, err := managedresources.GetObjects(ctx, c, namespace, "extension-machine-preservation-node-maintenance")
			Expect(err).NotTo(HaveOccurred())
			Expect(objects).To(ContainElement(HaveField("Spec.MaxUnavailable", HaveValue(Equal(intstr.FromInt32(7))))))
		})

		DescribeTable("should wait for gardener-resource-manager, and change nothing meanwhile", func(err error, forbidden bool) {
			if forbidden {
				shoot = interceptor.NewClient(shoot.(client.WithWatch), interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return err
					},
				})
			} else {
				actuator.ShootClient = ShootClient(c) // the access secret has no token
			}
			expectWaiting(reconcile(), "waiting for access to the shoot: ")
			expectOff()
			Expect(allowed("customresourcedefinitions")).To(Equal([]string{"get"}))
		},
			Entry("to write the token", nil, false),
			Entry("to bring the permissions", apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, definition, errors.New("fake")), true),
			Entry("to have the identity known", apierrors.NewUnauthorized("fake"), true),
		)

		It("should tell of a shoot that does not answer", func() {
			shootError = errors.New("fake")
			Expect(reconcile()).To(MatchError("failed to look who takes care of NodeMaintenances: fake"))
			expectOff()
		})

		It("M17: should refuse to share the API with somebody else, as the user's error, and change nothing else", func() {
			Expect(shoot.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}})).To(Succeed())
			err := reconcile()
			Expect(err).To(MatchError(And(ContainSubstring(definition), ContainSubstring("Uninstall"))))
			Expect(v1beta1helper.ExtractErrorCodes(err)).To(Equal([]gardencorev1beta1.ErrorCode{"ERR_CONFIGURATION_PROBLEM"}))
			expectOff()

			By("Uninstalling it")
			Expect(shoot.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}})).To(Succeed())
			Expect(reconcile()).To(Succeed())
			expectOn()
		})

		It("M17: should go on where the label of ours was removed later", func() {
			Expect(reconcile()).To(Succeed())
			Expect(shoot.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}})).To(Succeed())
			Expect(reconcile()).To(Succeed())
			expectOn()
		})

		It("should wait until a hibernated shoot wakes up", func() {
			hibernated()
			shootError = errors.New("there is no API server")
			Expect(reconcile()).To(Succeed())
			expectOff()
			awake()
			shootError = nil
			Expect(reconcile()).To(Succeed())
			expectOn()
		})
	})

	Describe("disabling", func() {
		var deployment *appsv1.Deployment

		BeforeEach(func() {
			Expect(reconcile()).To(Succeed())
			expectOn()
			set("")
			deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}, {Name: container}}
			Expect(c.Create(ctx, deployment)).To(Succeed())
		})

		flags := func(args ...string) {
			GinkgoHelper()
			Expect(get(deployment, deployment.Name)).To(Succeed())
			deployment.Spec.Template.Spec.Containers[1].Args = args
			Expect(c.Update(ctx, deployment)).To(Succeed())
		}
		lead := func(pod string, args ...string) {
			GinkgoHelper()
			Expect(c.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace, Labels: map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Args: args}}},
			})).To(Succeed())
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: container, Namespace: namespace}}
			Expect(client.IgnoreNotFound(c.Delete(ctx, lease.DeepCopy()))).To(Succeed())
			lease.Spec = coordinationv1.LeaseSpec{
				HolderIdentity:       new(pod + "_a-b-c"),
				LeaseDurationSeconds: new(int32(15)),
				RenewTime:            &metav1.MicroTime{Time: clock.Now()},
			}
			Expect(c.Create(ctx, lease)).To(Succeed())
		}

		It("should set back what is in progress, and take the permissions away, in this order", func() {
			Expect(reconcile()).To(Succeed())
			Expect(ended).To(HaveLen(1))
			expectOff()

			shootError = errors.New("nobody asks")
			Expect(reconcile()).To(Succeed())
			Expect(ended).To(HaveLen(1))
		})

		It("should wait until the container has no part in it", func() {
			flags("--node-maintenance", "--holder=a")
			lead("mcm-1", "--node-maintenance")
			expectWaiting(reconcile(), "to release node maintenance")
			Expect(flagged()).To(BeFalse(), "it has the webhook take the flag away")
			Expect(brought()).To(BeTrue())

			By("Replacing the container")
			flags("--holder=a")
			expectWaiting(reconcile(), "to release node maintenance")
			Expect(ended).To(BeEmpty())

			By("Handing the Lease over")
			lead("mcm-2", "--holder=a")
			Expect(reconcile()).To(Succeed())
			Expect(ended).To(HaveLen(1))
			expectOff()
		})

		It("P12: should call the webhook for the container itself, because gardenlet waits for the Extension, and others may not call it", func() {
			flags("--node-maintenance", "--holder=a")
			patched := 0
			actuator.Client = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					mcm, isDeployment := object.(*appsv1.Deployment)
					if !isDeployment {
						return c.Patch(ctx, object, patch, opts...)
					}
					Expect(patch.Data(object)).To(MatchJSON("{}"), "what others write is not touched")
					Expect(flagged()).To(BeFalse(), "the webhook takes the flag away because of that")
					patched++
					mcm.Spec.Template.Spec.Containers[1].Args = []string{"--holder=a"}
					return c.Update(ctx, mcm)
				},
			})
			expectWaiting(reconcile(), "to release node maintenance")
			Expect(patched).To(Equal(1))
			Expect(reconcile()).To(Succeed())
			Expect(patched).To(Equal(1), "it is called no more")
			expectOff()
		})

		It("should not wait for a container that is gone", func() {
			lead("mcm-1", "--node-maintenance")
			Expect(c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mcm-1", Namespace: namespace}})).To(Succeed())
			expectWaiting(reconcile(), "to release node maintenance")
			clock.Step(15 * time.Second)
			Expect(reconcile()).To(Succeed())
			expectOff()
		})

		It("should keep the permissions until all is set back", func() {
			endError = errors.New("fake")
			Expect(reconcile()).To(MatchError("failed to set back the maintenances in progress: fake"))
			Expect(brought()).To(BeTrue())
			Expect(flagged()).To(BeFalse())
			Expect(allowed("nodemaintenances")).To(ContainElement("patch"))

			endError = nil
			Expect(reconcile()).To(Succeed())
			expectOff()
		})

		It("should neither go on nor begin anew with what is not valid", func() {
			endError = errors.New("fake")
			Expect(reconcile()).To(MatchError(ContainSubstring("fake")))
			Expect(ended).To(HaveLen(1))

			endError = nil
			set(`,"nodeMaintenance":true`)
			Expect(reconcile()).To(Succeed())
			Expect(ended).To(HaveLen(1))
			Expect(brought()).To(BeTrue())
			Expect(flagged()).To(BeFalse())
			Expect(allowed("nodemaintenances")).To(ContainElement("patch"))
		})

		It("should begin anew when it is enabled again meanwhile", func() {
			flags("--node-maintenance")
			expectWaiting(reconcile(), "to release node maintenance")
			set(`,"nodeMaintenance":{}`)
			Expect(reconcile()).To(Succeed())
			expectOn()
			Expect(ended).To(BeEmpty())
		})

		It("should go on when a hibernated shoot wakes up", func() {
			hibernated()
			shootError = errors.New("there is no API server")
			Expect(reconcile()).To(Succeed())
			Expect(brought()).To(BeTrue())
			Expect(flagged()).To(BeFalse())

			awake()
			shootError = nil
			Expect(reconcile()).To(Succeed())
			Expect(ended).To(HaveLen(1))
			expectOff()
		})
	})

	Describe("leaving", func() {
		BeforeEach(func() {
			Expect(reconcile()).To(Succeed())
			actuator.EndMaintenances = func(context.Context, client.Client, time.Time) error {
				ended = append(ended, "ended")
				Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller")).To(Succeed())
				return endError
			}
			ex.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
		})

		It("should set back what is in progress when the extension is disabled", func() {
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(ended).To(HaveLen(1))
			Expect(brought()).To(BeFalse())
			Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller")).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		})

		It("P14: should not try without end", func() {
			endError = errors.New("fake")
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("fake")))
			Expect(brought()).To(BeTrue())
			clock.Step(10 * time.Minute)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(brought()).To(BeFalse())
		})

		It("P14: should wait as long when nobody was there to delete the Extension at first, and not anew with each process", func() {
			ex.DeletionTimestamp, ex.Finalizers = nil, []string{"extensions.gardener.cloud/machine-preservation"}
			Expect(c.Create(ctx, ex)).To(Succeed())
			Expect(c.Delete(ctx, ex)).To(Succeed())
			remove := func() error {
				Expect(get(ex, ex.Name)).To(Succeed())
				return actuator.Delete(ctx, log, ex)
			}
			endError = errors.New("fake")
			clock.Step(time.Hour)
			Expect(remove()).To(MatchError(ContainSubstring("fake")), "what is on nodes must not stay there for that")
			Expect(ex.Annotations).To(HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/deleting-since", "2026-01-01T01:00:00Z"))
			clock.Step(10*time.Minute - time.Second)
			Expect(remove()).To(MatchError(ContainSubstring("fake")))
			clock.Step(time.Second)
			Expect(remove()).To(Succeed())
			Expect(brought()).To(BeFalse())
		})

		It("should wait for nothing when the shoot is deleted", func() {
			setShoot(`"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{` + pools + `}`)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(ended).To(BeEmpty())
			Expect(brought()).To(BeFalse())
		})

		It("should wait for nothing when the shoot is deleted by force", func() {
			Expect(actuator.ForceDelete(ctx, log, ex)).To(Succeed())
			Expect(ended).To(BeEmpty())
			Expect(brought()).To(BeFalse())
		})

		DescribeTable("D11 D13: what nodes show of drains", func(fields string, asked bool, left ...string) {
			set(`,"nodeMaintenance":{}` + fields)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			for _, c := range []corev1.NodeCondition{{Type: "Ready"}, {Type: "NodeDrain"}, {Type: "DrainInProgress", Reason: "MachineUpdate"}, {Type: "Drained", Reason: "KubectlDrainCompleted"}} {
				c.Status = corev1.ConditionTrue
				node.Status.Conditions = append(node.Status.Conditions, c)
			}
			Expect(shoot.Create(ctx, node)).To(Succeed())
			listed := false
			shoot = interceptor.NewClient(shoot.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					listed = true
					return c.List(ctx, list, opts...)
				},
			})
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(listed).To(Equal(asked))
			Expect(shoot.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			var types []string
			for _, c := range node.Status.Conditions {
				types = append(types, string(c.Type))
			}
			Expect(types).To(ConsistOf(left))
		},
			Entry("should be removed, but for what is somebody else's", `,"drainConditions":true`, true, "Ready", "Drained"),
			Entry("should be removed also where only drain strategies show them", `,"drainStrategies":{"timeout":"45m"}`, true, "Ready", "Drained"),
			Entry("should not be asked for where they never showed any", "", false, "Ready", "NodeDrain", "DrainInProgress", "Drained"),
			Entry("should not be asked for where what is configured is not valid", `,"drainConditions":"yes"`, false, "Ready", "NodeDrain", "DrainInProgress", "Drained"),
		)

		It("should leave what is in progress to the next seed", func() {
			Expect(actuator.Migrate(ctx, log, ex)).To(Succeed())
			Expect(ended).To(BeEmpty())
			Expect(brought()).To(BeFalse())

			By("Restoring it there")
			ex.DeletionTimestamp = nil
			for _, name := range []string{definition, "maintenanceoperatorconfigs.maintenance.nvidia.com"} {
				Expect(shoot.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: map[string]string{"machine-preservation.extensions.gardener.cloud/node-maintenance": "true"},
				}})).To(Succeed())
			}
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			expectOn()
		})

		It("should not fail to restore a shoot for which it was refused", func() {
			Expect(actuator.Migrate(ctx, log, ex)).To(Succeed())
			Expect(shoot.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}})).To(Succeed())
			ex.DeletionTimestamp = nil
			Expect(actuator.Restore(ctx, log, ex)).To(Succeed())
			expectOff()
		})
	})
})
