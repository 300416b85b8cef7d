// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
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
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	hostscontroller "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// fakeHosts are hosts that are off on behalf of this extension.
type fakeHosts struct {
	owned []remediation.Host
	// past are the owners of cycles that are over.
	past                         []remediation.Owner
	listErr, patchErr, forgetErr error
	// onRelease is what has to be true then.
	onRelease func()
}

func (f *fakeHosts) Owned(_ context.Context, seed, namespace string) ([]remediation.Host, error) {
	return slices.DeleteFunc(slices.Clone(f.owned), func(h remediation.Host) bool { return h.Owner.Seed != seed || h.Owner.Namespace != namespace }), f.listErr
}

func (f *fakeHosts) Release(_ context.Context, h *remediation.Host) error {
	if f.patchErr != nil {
		return f.patchErr
	}
	f.onRelease()
	f.past = append(f.past, *h.Owner)
	f.owned = slices.DeleteFunc(f.owned, func(o remediation.Host) bool { return o.Name == h.Name })
	return nil
}

func (f *fakeHosts) Forget(_ context.Context, seed, namespace string) error {
	if f.forgetErr == nil {
		f.past = slices.DeleteFunc(f.past, func(o remediation.Owner) bool { return o.Seed == seed && o.Namespace == namespace })
	}
	return f.forgetErr
}

var _ = Describe("Power cycles", func() {
	const prefix = "machine-preservation.extensions.gardener.cloud/"

	var (
		ctx      = context.Background()
		log      = logr.Discard()
		c, shoot client.Client
		clock    *testclock.FakeClock
		hosts    *fakeHosts
		// hostError is why hosts cannot be reached.
		hostError error
		actuator  *Actuator
		ex        *extensionsv1alpha1.Extension
	)

	setShoot := func(fields string) {
		GinkgoHelper()
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(client.IgnoreNotFound(c.Delete(ctx, cluster.DeepCopy()))).To(Succeed())
		cluster.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot",` + fields + `}`)
		cluster.Spec.Seed = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Seed","metadata":{"name":"seed-1"}}`)}
		Expect(c.Create(ctx, cluster)).To(Succeed())
	}
	set := func(powerCycle string) {
		ex.Spec.ProviderConfig = &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig","workers":[{"name":"worker-a"%s}]}`, powerCycle)}
	}
	get := func(object client.Object, name string) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	}
	// state returns whether the container is to power-cycle hosts, and whether anybody may.
	state := func() (isOn, isAllowed bool) {
		GinkgoHelper()
		secret, role := &corev1.Secret{}, &rbacv1.Role{}
		Expect(get(secret, "shoot-access-machine-preservation-controller")).To(Succeed())
		Expect(get(role, container)).To(Succeed())
		isAllowed = slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "baremetalhosts") })
		if isAllowed {
			Expect(secret.Annotations).To(HaveKeyWithValue(prefix+"power-cycle-seed", "seed-1"))
		} else {
			Expect(secret.Annotations).NotTo(HaveKey(prefix + "power-cycle-seed"))
		}
		return secret.Annotations[prefix+"power-cycle"] == "true", isAllowed
	}
	expect := func(on, allowed bool) {
		GinkgoHelper()
		isOn, isAllowed := state()
		Expect(isOn).To(Equal(on), "switch")
		Expect(isAllowed).To(Equal(allowed), "permissions")
	}
	reconcile := func() error { return actuator.Reconcile(ctx, log, ex) }
	own := func(names ...string) {
		for _, name := range names {
			hosts.owned = append(hosts.owned, remediation.Host{Namespace: namespace, Name: name, Requested: true, Owner: &remediation.Owner{Seed: "seed-1", Namespace: namespace}})
		}
	}
	var deployment *appsv1.Deployment
	// inject has the container injected and at work.
	inject := func(args ...string) {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(c.Delete(ctx, deployment.DeepCopy()))).To(Succeed())
		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}, {Name: container, Args: args}}
		Expect(c.Create(ctx, deployment)).To(Succeed())
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "mcm", Namespace: namespace, Labels: map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Args: args}}},
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: container, Namespace: namespace}}
		for _, object := range []client.Object{pod, lease} {
			Expect(client.IgnoreNotFound(c.Delete(ctx, object.DeepCopyObject().(client.Object)))).To(Succeed())
		}
		Expect(c.Create(ctx, pod)).To(Succeed())
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("mcm_a"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: clock.Now()}}
		Expect(c.Create(ctx, lease)).To(Succeed())
	}

	BeforeEach(func() {
		scheme := newScheme()
		c = fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&machinev1alpha1.Machine{}).Build()
		shoot = fakeclient.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).Build()
		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		hostError = nil
		hosts = &fakeHosts{onRelease: func() {
			_, isAllowed := state()
			Expect(isAllowed).To(BeTrue(), "who comes to it again after a crash knows that there are hosts")
		}}
		hosts.owned = []remediation.Host{
			{Name: "of another seed", Owner: &remediation.Owner{Seed: "seed-2", Namespace: namespace}},
			{Name: "of another shoot", Owner: &remediation.Owner{Seed: "seed-1", Namespace: "shoot--foo--baz"}},
		}
		for _, h := range hosts.owned {
			hosts.past = append(hosts.past, *h.Owner)
		}
		actuator, clock, _ = newActuator(c, func() (client.Client, error) { return shoot, nil })
		actuator.Config.Hosts = &configv1alpha1.Hosts{Kind: configv1alpha1.HostKindBareMetalHost}
		actuator.HostDriver = func(context.Context, string) (hostscontroller.Driver, error) { return hosts, hostError }
		setShoot(`"spec":{` + pools + `}`)
		ex = newExtension()
		set(`,"powerCycle":{}`)
	})
	AfterEach(func() {
		Expect(hosts.owned[:2]).To(HaveEach(HaveField("Name", HavePrefix("of another"))))
	})

	Describe("X11, X15: switching on", func() {
		It("should be done where a pool has them", func() {
			hostError = errors.New("nobody asks")
			for range 2 {
				Expect(reconcile()).To(Succeed())
				expect(true, true)
			}
		})

		DescribeTable("should not be done", func(prepare func()) {
			hostError = errors.New("nobody asks")
			prepare()
			Expect(reconcile()).To(Succeed())
			expect(false, false)
		},
			Entry("where no pool has them", func() { set("") }),
			Entry("without hosts", func() { actuator.Config.Hosts = nil }),
			Entry("with hosts that are disabled", func() { actuator.Config.Hosts.Disabled = true }),
		)

		It("should be neither done nor undone with what is not valid", func() {
			set("")
			Expect(reconcile()).To(Succeed())
			set(`,"powerCycle":{"maxAttempts":9}`)
			Expect(reconcile()).To(Succeed())
			expect(false, false)

			set(`,"powerCycle":{}`)
			Expect(reconcile()).To(Succeed())
			set(`,"powerCycle":{"maxAttempts":9}`)
			Expect(reconcile()).To(Succeed())
			expect(true, true)
		})
	})

	Describe("X15: switching off", func() {
		BeforeEach(func() {
			Expect(reconcile()).To(Succeed())
			inject("--power-cycle")
			set("")
		})

		It("should wait for the container to release the hosts, then have it let go of them, then take the permissions away", func() {
			own("a")
			Expect(reconcile()).To(MatchError("waiting for the preservation controller to release 1 host"))
			expect(true, true)

			hosts.owned = hosts.owned[:2]
			Expect(reconcile()).To(MatchError("waiting for the preservation controller to release hosts"))
			expect(false, true)
			inject()
			own("late")
			Expect(reconcile()).To(Succeed())
			expect(false, false)
			Expect(hosts.owned).To(HaveLen(2))

			hostError = errors.New("nobody asks")
			Expect(reconcile()).To(Succeed())
		})

		It("should begin anew when it is switched on again meanwhile", func() {
			Expect(reconcile()).To(MatchError(ContainSubstring("to release hosts")))
			set(`,"powerCycle":{}`)
			Expect(reconcile()).To(Succeed())
			expect(true, true)
		})

		It("should go on with its end with what is not valid", func() {
			Expect(reconcile()).To(MatchError(ContainSubstring("to release hosts")))
			set(`,"powerCycle":true`)
			inject()
			Expect(reconcile()).To(Succeed())
			expect(false, false)
		})

		It("should be done when operators disable the hosts", func() {
			set(`,"powerCycle":{}`)
			actuator.Config.Hosts.Disabled = true
			inject()
			own("a")
			clock.Step(time.Minute) // nobody is at work
			Expect(reconcile()).To(Succeed())
			expect(false, false)
			Expect(hosts.owned).To(HaveLen(2))
		})

		It("should tell operators who take the hosts away too soon", func() {
			actuator.Config.Hosts = nil
			Expect(reconcile()).To(MatchError(ContainSubstring("configure hosts again with disabled: true")))
			expect(true, true)
		})

		DescribeTable("should release the hosts where no container runs", func(shoot string) {
			setShoot(shoot)
			clock.Step(time.Minute)
			if shoot != `"spec":{`+pools+`}` {
				actuator.ShootClient = func(context.Context, string) (client.Client, error) { return nil, errors.New("there is no API server") }
			} else {
				inject()
				clock.Step(time.Minute)
			}
			own("a", "b")
			Expect(reconcile()).To(Succeed())
			expect(false, false)
			Expect(hosts.owned).To(HaveLen(2))
		},
			Entry("of a shoot that is awake", `"spec":{`+pools+`}`),
			Entry("of a shoot that hibernates, with the flag on a Deployment without replicas", `"spec":{"hibernation":{"enabled":true},`+pools+`},"status":{"hibernated":true}`),
		)

		DescribeTable("should go on until all hosts are released, and know nothing of us any more", func(fail, mend func()) {
			inject()
			clock.Step(time.Minute)
			own("a")
			hosts.past = append(hosts.past, *hosts.owned[2].Owner)
			fail()
			Expect(reconcile()).To(MatchError(ContainSubstring("fake")))
			expect(false, true)
			mend()
			Expect(reconcile()).To(Succeed())
			expect(false, false)
			Expect(hosts.owned).To(HaveLen(2))
			Expect(hosts.past).To(ConsistOf(*hosts.owned[0].Owner, *hosts.owned[1].Owner))
		},
			Entry("that cannot be reached", func() { hostError = errors.New("fake") }, func() { hostError = nil }),
			Entry("that cannot be listed", func() { hosts.listErr = errors.New("fake") }, func() { hosts.listErr = nil }),
			Entry("that cannot be changed", func() { hosts.patchErr = errors.New("fake") }, func() { hosts.patchErr = nil }),
			Entry("that cannot forget", func() { hosts.forgetErr = errors.New("fake") }, func() { hosts.forgetErr = nil }),
		)

		DescribeTable("should not tell the owner of the shoot where the hosts are", func(fail func(error)) {
			inject()
			clock.Step(time.Minute)
			own("a")
			fail(fmt.Errorf("fake: %w", &url.Error{Op: "Get", URL: "https://10.1.2.3:6443/apis", Err: errors.New("dial tcp 10.1.2.3:6443: refused")}))
			Expect(reconcile()).To(MatchError(And(ContainSubstring("the hosts cannot be reached, and the log of the extension says why"), Not(ContainSubstring("10.1.2.3")))))
		},
			Entry("that cannot be reached", func(err error) { hostError = err }),
			Entry("that cannot be listed", func(err error) { hosts.listErr = err }),
			Entry("that cannot be changed", func(err error) { hosts.patchErr = err }),
			Entry("that cannot forget", func(err error) { hosts.forgetErr = err }),
		)

		DescribeTable("should come to its end where there can be no hosts", func(fail func()) {
			fail()
			Expect(reconcile()).To(MatchError(ContainSubstring("to release hosts")))
			inject()
			Expect(reconcile()).To(Succeed())
			expect(false, false)
		},
			Entry("as nothing reaches them", func() {
				hostError = fmt.Errorf("failed: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "metal"))
			}),
			Entry("as there is no such kind", func() { hosts.listErr = host.ErrNoKind }),
		)

		It("should release a host whose request somebody has taken back, without waiting for it", func() {
			own("a")
			hosts.owned[2].Requested = false
			Expect(reconcile()).To(MatchError("waiting for the preservation controller to release hosts"))
			inject()
			Expect(reconcile()).To(Succeed())
			expect(false, false)
			Expect(hosts.owned).To(HaveLen(2))
		})

		Describe("what is left on Machines and Nodes", func() {
			const needs = "host.metal3.io/external-remediation"
			var (
				other  = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule}
				taint  = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
				person = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "by-hand", Effect: corev1.TaintEffectNoExecute}
				ready  = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
			)
			node := func(taints ...corev1.Taint) *corev1.Node {
				return &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "node"},
					Spec:       corev1.NodeSpec{Taints: taints},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready, {Type: "PowerCycle", Status: corev1.ConditionFalse, Reason: "any"}}},
				}
			}
			machine := func(annotations map[string]string) *machinev1alpha1.Machine {
				return &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
					Name: "machine", Namespace: namespace, Labels: map[string]string{"node": "node"}, Annotations: annotations,
					Finalizers: []string{"machine.sapcloud.io/machine-controller-manager", prefix + "host"},
				}}
			}
			marks := func(phase, record string) map[string]string {
				return map[string]string{
					needs: "", prefix + "preserve": "now",
					prefix + "power-cycle-phase": phase, prefix + "power-cycle-attempt": "1", prefix + "power-cycle-record": record,
				}
			}
			forgotten := func(kept ...string) {
				GinkgoHelper()
				m := machine(nil)
				Expect(get(m, m.Name)).To(Succeed())
				Expect(m.Finalizers).To(ConsistOf("machine.sapcloud.io/machine-controller-manager"))
				keys := slices.Collect(maps.Keys(m.Annotations))
				Expect(keys).To(ConsistOf(kept))
			}

			DescribeTable("X15: should be removed if it is ours", func(annotations map[string]string, taints, leftTaints []corev1.Taint, left ...string) {
				Expect(shoot.Create(ctx, node(taints...))).To(Succeed())
				Expect(c.Create(ctx, machine(annotations))).To(Succeed())
				inject()
				Expect(reconcile()).To(Succeed())
				forgotten(left...)
				n := node()
				Expect(shoot.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
				Expect(n.Spec.Taints).To(ConsistOf(leftTaints))
				Expect(n.Status.Conditions).To(ConsistOf(ready))
			},
				Entry("after a cycle that nothing is kept for any more", marks("Succeeded", `{"tainted":true}`),
					[]corev1.Taint{other, taint}, []corev1.Taint{other}, prefix+"preserve"),
				Entry("after a cycle whose node a person has fenced", marks("Failed", `{"tainted":true}`),
					[]corev1.Taint{other, person}, []corev1.Taint{other, person}, prefix+"preserve"),
				Entry("of a machine that only waits, and whose node a person has fenced", marks("Waiting", `{"wait":"for something"}`),
					[]corev1.Taint{taint}, []corev1.Taint{taint}, prefix+"preserve"),
				Entry("of a machine that has a request that nobody has taken note of", map[string]string{needs: ""},
					[]corev1.Taint{taint}, []corev1.Taint{taint}, needs),
				Entry("of a record that cannot be read", map[string]string{prefix + "power-cycle-phase": "Waiting", prefix + "power-cycle-record": "{"},
					[]corev1.Taint{taint}, []corev1.Taint{taint}),
			)

			It("X15: should be removed also where there is no Node any more", func() {
				Expect(c.Create(ctx, machine(marks("Succeeded", `{"tainted":true}`)))).To(Succeed())
				inject()
				Expect(reconcile()).To(Succeed())
				forgotten(prefix + "preserve")
			})

			It("X2, X15: should stay known as long as a Node cannot be cleaned, while the Machine can be deleted", func() {
				Expect(shoot.Create(ctx, node(taint))).To(Succeed())
				Expect(c.Create(ctx, machine(marks("Succeeded", `{"tainted":true}`)))).To(Succeed())
				inject()
				awake := shoot
				shoot = interceptor.NewClient(shoot.(client.WithWatch), interceptor.Funcs{
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return errors.New("fake")
					},
				})
				Expect(reconcile()).To(MatchError("failed to write Node node: fake"))
				expect(false, true)
				forgotten(slices.Collect(maps.Keys(marks("", "")))...)

				shoot = awake
				Expect(reconcile()).To(Succeed())
				forgotten(prefix + "preserve")
				n := node()
				Expect(shoot.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
				Expect(n.Spec.Taints).To(BeEmpty())
			})

			DescribeTable("X15: should be removed before another seed takes over, also where that cannot be confirmed", func(err error) {
				Expect(shoot.Create(ctx, node(taint))).To(Succeed())
				Expect(c.Create(ctx, machine(marks("MakingNodeSafe", `{"tainted":true}`)))).To(Succeed())
				awake := shoot
				shoot = interceptor.NewClient(shoot.(client.WithWatch), interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
						return errors.Join(err, c.Patch(ctx, obj, patch, opts...))
					},
				})
				clock.Step(time.Minute)
				Expect(actuator.Migrate(ctx, log, ex)).To(Succeed())
				n := node()
				Expect(awake.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
				Expect(n.Spec.Taints).To(BeEmpty())
			},
				Entry("by a shoot that answers", nil),
				Entry("by one whose answers are errors, which migrates all the same", errors.New("fake")),
			)

			It("X10: should not be removed, nor the flag, while the container keeps a machine until its node is back", func() {
				m := machine(map[string]string{prefix + "power-cycle-phase": "Starting", prefix + "remediation": clock.Now().Add(time.Minute).Format(time.RFC3339)})
				Expect(c.Create(ctx, m)).To(Succeed())
				waiting := machine(map[string]string{prefix + "power-cycle-phase": "Waiting", prefix + "remediation": clock.Now().Add(time.Hour).Format(time.RFC3339)})
				waiting.Name = "waiting"
				Expect(c.Create(ctx, waiting)).To(Succeed())
				Expect(reconcile()).To(MatchError("waiting for the nodes of machines whose power cycles were stopped: machine"))
				expect(true, true)

				m.Annotations = map[string]string{prefix + "remediation": clock.Now().Format(time.RFC3339)}
				Expect(c.Update(ctx, m)).To(Succeed())
				Expect(reconcile()).To(MatchError(ContainSubstring("to release hosts")))
				expect(false, true)
			})

			It("X15: should be removed by the container before that goes, while there is time for both", func() {
				Expect(c.Create(ctx, machine(marks("Succeeded", `{"tainted":true}`)))).To(Succeed())
				unmarked := machine(map[string]string{needs: "", prefix + "preserve": "now"})
				unmarked.Name, unmarked.Finalizers = "unmarked", nil
				Expect(c.Create(ctx, unmarked)).To(Succeed())
				ex.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("waiting for the preservation controller to end the power cycles of machines: machine")))
				clock.Step(10 * time.Second) // the container is still at work
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("to end the power cycles")))

				clock.Step(4*time.Minute - 11*time.Second)
				inject("--power-cycle")
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("to end the power cycles")))
				clock.Step(time.Second)
				Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("is being removed")))
			})
		})
	})

	Describe("X2, X15: leaving", func() {
		BeforeEach(func() {
			Expect(reconcile()).To(Succeed())
			inject("--power-cycle")
			own("a")
			ex.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
		})
		gone := func() {
			GinkgoHelper()
			Expect(get(&corev1.Secret{}, "shoot-access-machine-preservation-controller")).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
			Expect(get(&rbacv1.Role{}, container)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		}

		It("should keep the container until it has released the hosts", func() {
			Expect(actuator.Delete(ctx, log, ex)).To(And(BeAssignableToTypeOf(&reconcilerutils.RequeueAfterError{}), MatchError(ContainSubstring("to release 1 host"))))
			Expect(get(deployment, deployment.Name)).To(Succeed())
			Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(2))

			hosts.owned = hosts.owned[:2]
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("is being removed")))
			own("late")
			clock.Step(time.Minute)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(hosts.owned).To(HaveLen(2))
			gone()
		})

		It("should release hosts that the container does not, also of a shoot that is deleted", func() {
			setShoot(`"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{` + pools + `}`)
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("to release 1 host")))
			clock.Step(time.Hour)
			hosts.patchErr = errors.New("fake")
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError("failed to release host shoot--foo--bar/a: fake"))
			expect(true, true)
			hosts.patchErr = nil
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			Expect(hosts.owned).To(HaveLen(2))
			gone()
		})

		It("P12: should set back the nodes of a shoot that goes on although its hosts cannot be reached for long", func() {
			Expect(c.Create(ctx, &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-node-maintenance", Namespace: namespace}})).To(Succeed())
			ended := 0
			actuator.EndMaintenances = func(context.Context, client.Client, time.Time) error { ended++; return nil }
			hostError = errors.New("fake")
			Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed())
			for range 20 {
				clock.Step(time.Minute)
				Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed())
			}
			hostError = nil
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			gone()
			Expect(ended).To(BeNumerically(">", 0))
		})

		It("X15, X18: should end what is preserved once the hosts are released, and set the nodes back then, however late that is", func() {
			pool, later := builder.Deployment("pool"), clock.Now().Add(3*time.Hour)
			set := builder.Set("set", pool)
			m := builder.Machine("m", builder.Of(set), builder.Phase(machinev1alpha1.MachineUnknown, clock.Now().Add(time.Hour)), builder.Preserved("Failed:Preserved", "remediation", later))
			for _, object := range []client.Object{pool, set, m} {
				object.SetNamespace(namespace)
				Expect(c.Create(ctx, object)).To(Succeed())
			}
			n := builder.Node("m", builder.Taint("node.machine.sapcloud.io/preserved", clock.Now()))
			Expect(shoot.Create(ctx, n)).To(Succeed())

			hosts.patchErr = errors.New("it is being serviced")
			for range 20 {
				clock.Step(time.Minute)
				Expect(actuator.Delete(ctx, log, ex)).NotTo(Succeed())
			}
			Expect(get(m, m.Name)).To(Succeed())
			Expect(m.Annotations).To(HaveKey(prefix + "cause"))
			hosts.patchErr = nil
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			gone()
			Expect(get(m, m.Name)).To(Succeed())
			Expect(m.Annotations).NotTo(HaveKey(prefix + "cause"))
			Expect(shoot.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
			Expect(n.Spec.Taints).To(BeEmpty())
		})

		DescribeTable("should release hosts by force as well as it can, and keep no Machine", func(err error, left int) {
			hosts.listErr = err
			machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "machine", Namespace: namespace, Finalizers: []string{prefix + "host"}}}
			Expect(c.Create(ctx, machine)).To(Succeed())
			Expect(actuator.ForceDelete(ctx, log, ex)).To(Succeed())
			Expect(hosts.owned).To(HaveLen(left))
			Expect(get(machine, machine.Name)).To(Succeed())
			Expect(machine.Finalizers).To(BeEmpty())
			gone()
		},
			Entry("all of them", nil, 2),
			Entry("none", errors.New("fake"), 3),
		)

		It("should release them before another seed takes over", func() {
			Expect(actuator.Migrate(ctx, log, ex)).To(MatchError(ContainSubstring("to stop")))
			Expect(hosts.owned).To(HaveLen(3))
			clock.Step(time.Minute)
			Expect(actuator.Migrate(ctx, log, ex)).To(Succeed())
			Expect(hosts.owned).To(HaveLen(2))
			gone()
		})

		It("should ask nobody where it was never on", func() {
			hosts.owned = hosts.owned[:2]
			set("")
			ex.DeletionTimestamp = nil
			inject()
			Expect(reconcile()).To(Succeed())
			ex.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
			hostError = errors.New("nobody asks")
			Expect(actuator.Delete(ctx, log, ex)).To(MatchError(ContainSubstring("is being removed")))
			clock.Step(time.Hour)
			Expect(actuator.Delete(ctx, log, ex)).To(Succeed())
			gone()
		})
	})
})
