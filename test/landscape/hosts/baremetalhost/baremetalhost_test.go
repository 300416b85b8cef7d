// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"time"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

const (
	hard   = `{"mode":"hard"}`
	ours   = AnnotationReboot + "/ours"
	theirs = AnnotationReboot + "/theirs"
)

var _ = Describe("BareMetalHost", func() {
	var (
		key     = client.ObjectKey{Namespace: "shoot--a", Name: "m"}
		request = reconcile.Request{NamespacedName: key}
		clock   *testclock.FakePassiveClock
		c       client.Client
		pod     *corev1.Pod
		machine *machinev1alpha1.Machine
		r       *reconciler
		p       *provisioner
	)

	BeforeEach(func(ctx SpecContext) {
		podKey := simulator.PodKey(key)
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: podKey.Namespace, Name: podKey.Name, UID: "first", Labels: map[string]string{"machine-provider": "local", "machine": key.Name},
		}}
		machine = &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid"}}
		clock = testclock.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
		c = fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithStatusSubresource(New(client.ObjectKey{})).WithObjects(pod, machine).Build()
		r = &reconciler{client: c, clock: clock}
		p = &provisioner{client: c}
		Expect(p.Reconcile(ctx, request)).To(Equal(reconcile.Result{}))
	})

	host := func(ctx SpecContext) *unstructured.Unstructured {
		GinkgoHelper()
		host := New(key)
		Expect(c.Get(ctx, key, host)).To(Succeed())
		return host
	}
	// settle reconciles as often as the events of host and pod would, and returns after what time it is to be done again.
	settle := func(ctx SpecContext) time.Duration {
		GinkgoHelper()
		var result reconcile.Result
		for range 4 {
			var err error
			result, err = r.Reconcile(ctx, request)
			Expect(err).NotTo(HaveOccurred())
		}
		return result.RequeueAfter
	}
	wait := func(ctx SpecContext, duration time.Duration) {
		GinkgoHelper()
		clock.SetTime(clock.Now().Add(duration))
		settle(ctx)
	}
	// annotate sets annotations of the host, and removes those without a value.
	annotate := func(ctx SpecContext, annotations map[string]string) {
		GinkgoHelper()
		host := host(ctx)
		present := host.GetAnnotations()
		if present == nil {
			present = map[string]string{}
		}
		for name, value := range annotations {
			present[name] = value
			if value == "" {
				delete(present, name)
			}
		}
		host.SetAnnotations(present)
		Expect(c.Update(ctx, host)).To(Succeed())
		settle(ctx)
	}
	power := func(ctx SpecContext) simulator.Power {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		power, err := simulator.PowerOf(pod)
		Expect(err).NotTo(HaveOccurred())
		return power
	}

	It("should give each machine a host, and keep it when the machine is gone", func(ctx SpecContext) {
		settle(ctx)
		Expect(c.Get(ctx, key, machine)).To(Succeed())
		Expect(machine.Annotations).To(HaveKeyWithValue("metal3.io/BareMetalHost", "shoot--a/m"))
		Expect(PoweredOn(host(ctx))).To(BeTrue())
		Expect(host(ctx).Object["status"]).To(HaveKeyWithValue("provisioning", map[string]any{"state": "provisioned"}))
		consumer, _, _ := unstructured.NestedStringMap(host(ctx).Object, "spec", "consumerRef")
		Expect(consumer).To(Equal(map[string]string{
			"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "namespace": "shoot--a", "name": "m", "uid": "uid",
		}))

		Expect(c.Delete(ctx, machine)).To(Succeed())
		Expect(p.Reconcile(ctx, request)).To(Equal(reconcile.Result{}))
		settle(ctx)
		Expect(host(ctx).Object["spec"]).To(Equal(map[string]any{"online": true}))
		Expect(host(ctx).Object["status"]).To(HaveKeyWithValue("provisioning", map[string]any{"state": "available"}))
	})

	It("should have no host to release for a machine that had none", func(ctx SpecContext) {
		other := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shoot--a", Name: "other"}}
		Expect(p.Reconcile(ctx, other)).To(Equal(reconcile.Result{}))
		Expect(r.Reconcile(ctx, other)).To(Equal(reconcile.Result{}))
		Expect(c.Get(ctx, other.NamespacedName, New(other.NamespacedName))).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("should only look at pods of machines", func(ctx SpecContext) {
		Expect(hostOfPod(ctx, pod)).To(ConsistOf(request))
		Expect(hostOfPod(ctx, &corev1.Pod{})).To(BeEmpty())
	})

	It("should be off as long as a client wants it, and report that later", func(ctx SpecContext) {
		settle(ctx)
		annotate(ctx, map[string]string{ours: hard})
		Expect(power(ctx).On).To(BeFalse())
		Expect(PoweredOn(host(ctx))).To(BeTrue())
		Expect(settle(ctx)).To(Equal(ReportLag))
		wait(ctx, ReportLag)
		Expect(PoweredOn(host(ctx))).To(BeFalse())
		Expect(settle(ctx)).To(BeZero())

		wait(ctx, time.Hour)
		Expect(power(ctx).On).To(BeFalse())

		annotate(ctx, map[string]string{ours: ""})
		Expect(power(ctx).On).To(BeTrue())
		Expect(power(ctx).BootID).NotTo(Equal("first"))
		Expect(PoweredOn(host(ctx))).To(BeFalse())
		wait(ctx, ReportLag)
		Expect(PoweredOn(host(ctx))).To(BeTrue())
	})

	It("should be on only when no client is left", func(ctx SpecContext) {
		annotate(ctx, map[string]string{ours: hard, theirs: "x"})
		annotate(ctx, map[string]string{ours: ""})
		Expect(power(ctx).On).To(BeFalse())
		annotate(ctx, map[string]string{theirs: ""})
		Expect(power(ctx).On).To(BeTrue())
	})

	DescribeTable("a kernel that hangs", func(ctx SpecContext, mode string, on bool) {
		pod.Annotations = map[string]string{simulator.FailureAnnotation: string(simulator.KernelHang)}
		Expect(c.Update(ctx, pod)).To(Succeed())
		annotate(ctx, map[string]string{ours: mode})
		Expect(power(ctx).On).To(Equal(on))
		Expect(simulator.Hangs(pod)).To(Equal(on))
	},
		Entry("does not switch itself off", "{}", true),
		Entry("does not read what is no JSON", "please", true),
		Entry("is not asked", hard, false),
	)

	status := func(ctx SpecContext, field string) any {
		GinkgoHelper()
		value, _, err := unstructured.NestedFieldNoCopy(host(ctx).Object, "status", field)
		Expect(err).NotTo(HaveOccurred())
		return value
	}

	It("should say when it wrote its status, and write what has changed only", func(ctx SpecContext) {
		settle(ctx)
		Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
		Expect(status(ctx, "lastUpdated")).To(Equal("2026-03-01T12:00:00Z"))
		wait(ctx, time.Hour)
		Expect(p.Reconcile(ctx, request)).To(Equal(reconcile.Result{}))
		Expect(status(ctx, "lastUpdated")).To(Equal("2026-03-01T12:00:00Z"))
		annotate(ctx, map[string]string{ours: hard})
		wait(ctx, ReportLag)
		Expect(status(ctx, "lastUpdated")).To(Equal("2026-03-01T13:00:01Z"))
	})

	It("should be off for nobody where there is no machine on it", func(ctx SpecContext) {
		annotate(ctx, map[string]string{ours: hard})
		wait(ctx, ReportLag)
		Expect(c.Delete(ctx, machine)).To(Succeed())
		Expect(p.Reconcile(ctx, request)).To(Equal(reconcile.Result{}))
		settle(ctx)
		Expect(power(ctx).On).To(BeTrue())
	})

	Describe("that misbehaves", func() {
		misbehave := func(ctx SpecContext, misbehaviour hosts.Misbehaviour) {
			GinkgoHelper()
			settle(ctx)
			annotate(ctx, map[string]string{hosts.MisbehaviourAnnotation: string(misbehaviour)})
		}

		It("should never be off", func(ctx SpecContext) {
			misbehave(ctx, hosts.NeverOff)
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, time.Hour)
			Expect(power(ctx).On).To(BeTrue())
			Expect(PoweredOn(host(ctx))).To(BeTrue())
			misbehave(ctx, "")
			Expect(power(ctx).On).To(BeFalse())
		})

		It("should never be on again", func(ctx SpecContext) {
			misbehave(ctx, hosts.NeverOn)
			Expect(power(ctx).On).To(BeTrue())
			annotate(ctx, map[string]string{ours: hard})
			annotate(ctx, map[string]string{ours: ""})
			wait(ctx, time.Hour)
			Expect(power(ctx).On).To(BeFalse())
			Expect(PoweredOn(host(ctx))).To(BeFalse())
		})

		It("should report late", func(ctx SpecContext) {
			misbehave(ctx, hosts.LateReport)
			annotate(ctx, map[string]string{ours: hard})
			Expect(power(ctx).On).To(BeFalse())
			wait(ctx, hosts.LateReportLag-1)
			Expect(PoweredOn(host(ctx))).To(BeTrue())
			wait(ctx, 1)
			Expect(PoweredOn(host(ctx))).To(BeFalse())
		})

		It("should be serviced once when it is off, and stay off meanwhile", func(ctx SpecContext) {
			misbehave(ctx, hosts.Servicing)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			Expect(PoweredOn(host(ctx))).To(BeFalse())
			Expect(status(ctx, "operationalStatus")).To(Equal("servicing"))
			annotate(ctx, map[string]string{ours: ""})
			wait(ctx, hosts.ServicingTime-1)
			Expect(status(ctx, "operationalStatus")).To(Equal("servicing"))
			Expect(power(ctx).On).To(BeFalse())
			Expect(settle(ctx)).To(BeEquivalentTo(1))
			wait(ctx, 1)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
			Expect(power(ctx).On).To(BeTrue())
			Expect(hosts.MisbehaviourOf(host(ctx))).To(BeEmpty())
			wait(ctx, ReportLag)
			Expect(PoweredOn(host(ctx))).To(BeTrue())

			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
		})

		It("should stay off after it was serviced if a client wants it", func(ctx SpecContext) {
			misbehave(ctx, hosts.Servicing)
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			wait(ctx, hosts.ServicingTime)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
			Expect(power(ctx).On).To(BeFalse())
		})

		DescribeTable("should be serviced no longer", func(ctx SpecContext, interrupt func(SpecContext)) {
			misbehave(ctx, hosts.Servicing)
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			Expect(status(ctx, "operationalStatus")).To(Equal("servicing"))
			interrupt(ctx)
			settle(ctx)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
		},
			Entry("when nothing is to be updated", func(ctx SpecContext) { misbehave(ctx, "") }),
			Entry("when it is deprovisioned", func(ctx SpecContext) {
				Expect(c.Delete(ctx, machine)).To(Succeed())
				Expect(p.Reconcile(ctx, request)).To(Equal(reconcile.Result{}))
			}),
		)

		It("should report that it cannot be switched, until it is", func(ctx SpecContext) {
			misbehave(ctx, hosts.PowerError)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, time.Hour)
			Expect(power(ctx).On).To(BeTrue())
			Expect(PoweredOn(host(ctx))).To(BeTrue())
			Expect([]any{status(ctx, "operationalStatus"), status(ctx, "errorType"), status(ctx, "errorCount")}).To(Equal([]any{"error", "power management error", int64(1)}))
			Expect(status(ctx, "errorMessage")).NotTo(BeEmpty())

			annotate(ctx, map[string]string{ours: ""})
			misbehave(ctx, "")
			Expect(status(ctx, "errorType")).To(Equal("power management error"), "as it was not switched since")
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			Expect(PoweredOn(host(ctx))).To(BeFalse())
			Expect([]any{status(ctx, "operationalStatus"), status(ctx, "errorType"), status(ctx, "errorMessage"), status(ctx, "errorCount")}).To(Equal([]any{"OK", nil, "", int64(0)}))
		})

		It("should report that it cannot be switched on either", func(ctx SpecContext) {
			annotate(ctx, map[string]string{ours: hard})
			wait(ctx, ReportLag)
			misbehave(ctx, hosts.PowerError)
			annotate(ctx, map[string]string{ours: ""})
			Expect(power(ctx).On).To(BeFalse())
			Expect(status(ctx, "errorType")).To(Equal("power management error"))
			misbehave(ctx, "")
			Expect(power(ctx).On).To(BeTrue())
			wait(ctx, ReportLag)
			Expect(status(ctx, "operationalStatus")).To(Equal("OK"))
		})

		It("should not care whether there is a machine", func(ctx SpecContext) {
			Expect(c.Delete(ctx, pod)).To(Succeed())
			misbehave(ctx, hosts.NeverOff)
			annotate(ctx, map[string]string{ours: hard})
			Expect(PoweredOn(host(ctx))).To(BeTrue())
			misbehave(ctx, hosts.NeverOn)
			Expect(PoweredOn(host(ctx))).To(BeFalse())
			annotate(ctx, map[string]string{ours: ""})
			Expect(PoweredOn(host(ctx))).To(BeFalse())
			misbehave(ctx, "")
			Expect(PoweredOn(host(ctx))).To(BeTrue())
		})
	})
})
