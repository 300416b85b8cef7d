// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"context"
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

// fakeBMCs has the names of the Servers whose BMC runs.
type fakeBMCs map[string]int

func (f fakeBMCs) start(_ context.Context, server string) (int, error) {
	f[server] = 42
	return 42, nil
}

func (f fakeBMCs) stop(_ context.Context, server string) error {
	delete(f, server)
	return nil
}

var _ = Describe("reconciler", func() {
	var (
		key     = client.ObjectKey{Namespace: "shoot--a", Name: "m"}
		machine *machinev1alpha1.Machine
		pod     *corev1.Pod
		c       client.Client
		bmcs    fakeBMCs
		r       *reconciler
	)

	BeforeEach(func() {
		podKey := simulator.PodKey(key)
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podKey.Namespace, Name: podKey.Name, UID: "first", Labels: map[string]string{
			"machine": key.Name, labelListed: "local",
		}}}
		machine = &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		c = fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithObjects(machine, pod).
			WithStatusSubresource(NewServer(key), newObject(kindBootConfiguration, key)).Build()
		bmcs = fakeBMCs{}
		r = &reconciler{client: c, clock: testclock.NewFakePassiveClock(time.Now()), bmcs: bmcs, ignore: "ignore"}
	})

	settle := func(ctx SpecContext) {
		GinkgoHelper()
		for range 3 {
			Expect(r.Reconcile(ctx, reconcile.Request{NamespacedName: key})).To(Equal(reconcile.Result{}))
		}
	}
	read := func(ctx SpecContext, object *unstructured.Unstructured) map[string]any {
		GinkgoHelper()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		return object.Object
	}

	It("should give a machine a Server that is discovered, and claimed", func(ctx SpecContext) {
		settle(ctx)
		Expect(read(ctx, NewServerClaim(key))["spec"]).To(Equal(map[string]any{
			"power": "On", "image": "landscape", "serverRef": map[string]any{"name": "shoot--a.m"},
		}))
		server := NewServer(key)
		Expect(read(ctx, server)["status"]).To(Equal(map[string]any{"state": "Reserved", "powerState": "On"}))
		Expect(server.GetAnnotations()).To(BeEmpty())
		port, _, _ := unstructured.NestedInt64(server.Object, "spec", "bmc", "protocol", "port")
		Expect(port).To(BeEquivalentTo(42))
		claimed, _, _ := unstructured.NestedString(server.Object, "spec", "serverClaimRef", "name")
		Expect(claimed).To(Equal("m"))
		Expect(machineOfServer(ctx, server)).To(ConsistOf(reconcile.Request{NamespacedName: key}))
	})

	It("should give a machine the provider id of its claim, and nobody a reason to take its Pod for an orphan", func(ctx SpecContext) {
		settle(ctx)
		Expect(c.Get(ctx, key, machine)).To(Succeed())
		Expect(machine.Spec.ProviderID).To(BeEmpty())
		machine.Spec.ProviderID = pod.Name
		Expect(c.Update(ctx, machine)).To(Succeed())
		begin := r.clock.Now()
		for _, passed := range []time.Duration{0, listTime - time.Second} { // a list may have the Pod for so long
			r.clock = testclock.NewFakePassiveClock(begin.Add(passed))
			Expect(r.Reconcile(ctx, reconcile.Request{NamespacedName: key})).To(Equal(reconcile.Result{RequeueAfter: listTime - passed}))
			Expect(c.Get(ctx, key, machine)).To(Succeed())
			Expect(machine.Spec.ProviderID).To(Equal(pod.Name))
			Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			Expect(pod.Labels).To(Equal(map[string]string{"machine": key.Name}))
		}
		r.clock = testclock.NewFakePassiveClock(begin.Add(listTime))
		settle(ctx)
		Expect(c.Get(ctx, key, machine)).To(Succeed())
		Expect(machine.Spec.ProviderID).To(Equal("ironcore-metal://shoot--a/m"))
	})

	It("should have metal-operator choose among Servers that stay, and give a machine one of its own if it finds none", func(ctx SpecContext) {
		spare := NewSpare(hosts.IronCore07, "s")
		Expect(c.Create(ctx, spare)).To(Succeed())
		once := func() reconcile.Result {
			GinkgoHelper()
			result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
			Expect(err).NotTo(HaveOccurred())
			return result
		}
		claim := NewServerClaim(key)
		specifyClaim(claim, "")
		claim.SetCreationTimestamp(metav1.NewTime(r.clock.Now().Add(time.Second - bindTime)))
		Expect(c.Create(ctx, claim)).To(Succeed())
		Expect(once()).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
		Expect(read(ctx, claim)["spec"]).NotTo(HaveKey("serverRef"))

		By("Having it bind the claim")
		specifyClaim(claim, spare.GetName())
		Expect(c.Update(ctx, claim)).To(Succeed())
		Expect(unstructured.SetNestedStringMap(spare.Object, map[string]string{"namespace": key.Namespace, "name": key.Name}, "spec", "serverClaimRef")).To(Succeed())
		Expect(c.Update(ctx, spare)).To(Succeed())
		spare.Object["status"] = map[string]any{"powerState": "Off"}
		Expect(c.Status().Update(ctx, spare)).To(Succeed())
		Expect(once()).To(BeZero())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(simulator.PowerOf(pod)).To(HaveField("On", BeFalse()))
		Expect(machineOfServer(ctx, spare)).To(ConsistOf(reconcile.Request{NamespacedName: key}))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(NewServer(key)), NewServer(key))).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

		By("Having it bind none")
		Expect(c.Delete(ctx, claim)).To(Succeed())
		claim = NewServerClaim(key)
		specifyClaim(claim, "")
		claim.SetCreationTimestamp(metav1.NewTime(r.clock.Now().Add(-bindTime)))
		Expect(c.Create(ctx, claim)).To(Succeed())
		once()
		Expect(serverOf(&unstructured.Unstructured{Object: read(ctx, claim)})).To(Equal("shoot--a.m"))
		read(ctx, NewServer(key))
	})

	It("should leave a Server that lasts where it is", func(ctx SpecContext) {
		settle(ctx)
		server := NewServer(key)
		read(ctx, server)
		server.SetAnnotations(map[string]string{AnnotationLasting: "true"})
		Expect(c.Update(ctx, server)).To(Succeed())
		Expect(c.Delete(ctx, machine)).To(Succeed())
		settle(ctx)
		Expect(c.Get(ctx, key, NewServerClaim(key))).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		read(ctx, server)
		Expect(bmcs).NotTo(BeEmpty())
	})

	It("should leave to others what they have changed", func(ctx SpecContext) {
		settle(ctx)
		claim := NewServerClaim(key)
		Expect(unstructured.SetNestedField(read(ctx, claim), "Off", "spec", "power")).To(Succeed())
		Expect(c.Update(ctx, claim)).To(Succeed())
		settle(ctx)
		power, _, _ := unstructured.NestedString(read(ctx, claim), "spec", "power")
		Expect(power).To(Equal("Off"))
	})

	It("should report that a boot configuration is ready", func(ctx SpecContext) {
		configuration := newObject(kindBootConfiguration, key)
		Expect(c.Create(ctx, configuration)).To(Succeed())
		settle(ctx)
		Expect(read(ctx, configuration)["status"]).To(Equal(map[string]any{"state": "Ready"}))
	})

	DescribeTable("switches the machine as the Server reports it", func(ctx SpecContext, state string, on bool) {
		settle(ctx)
		report := func(state string) {
			server := NewServer(key)
			Expect(unstructured.SetNestedField(read(ctx, server), state, "status", "powerState")).To(Succeed())
			Expect(c.Status().Update(ctx, server)).To(Succeed())
			settle(ctx)
		}
		report(state)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		power, err := simulator.PowerOf(pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(power.On).To(Equal(on))
	},
		Entry("on", "On", true),
		Entry("off", "Off", false),
		Entry("not off yet", "PoweringOff", true),
	)

	It("should let a machine come back with the boot id that it had, if its Server is to", func(ctx SpecContext) {
		settle(ctx)
		for _, state := range []string{"Off", "On"} {
			server := NewServer(key)
			Expect(unstructured.SetNestedField(read(ctx, server), state, "status", "powerState")).To(Succeed())
			Expect(c.Status().Update(ctx, server)).To(Succeed())
			server.SetAnnotations(map[string]string{hosts.MisbehaviourAnnotation: string(hosts.OldBootID)})
			Expect(c.Update(ctx, server)).To(Succeed())
			settle(ctx)
		}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		power, err := simulator.PowerOf(pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(power.On).To(BeTrue())
		Expect(power.BootID).To(Equal("first"))
	})

	It("should take the host with the machine, the claim first", func(ctx SpecContext) {
		settle(ctx)
		Expect(c.Delete(ctx, machine)).To(Succeed())
		once := func() {
			GinkgoHelper()
			Expect(r.Reconcile(ctx, reconcile.Request{NamespacedName: key})).To(Equal(reconcile.Result{}))
		}
		once()
		Expect(c.Get(ctx, key, NewServerClaim(key))).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		read(ctx, NewServer(key))
		once()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(NewServer(key)), NewServer(key))).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(bmcs).NotTo(BeEmpty())
		once()
		Expect(bmcs).To(BeEmpty())
	})
})
