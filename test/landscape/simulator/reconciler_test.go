// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
)

var _ = Describe("reconciler", func() {
	const (
		controlPlane = "shoot--local--a"
		machineName  = "worker-1"
		podName      = "machine-worker-1"
	)

	var (
		seed, shoot client.Client
		recorder    *events.FakeRecorder
		r           *reconciler
		pod         *corev1.Pod
		machine     *machinev1alpha1.Machine
		clock       *testclock.FakePassiveClock
	)

	BeforeEach(func() {
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "infra-" + controlPlane, Name: podName, UID: "1", Labels: map[string]string{labelMachine: machineName}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "node"}}},
		}
		machine = &machinev1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: machineName},
			Spec:       machinev1alpha1.MachineSpec{Class: machinev1alpha1.ClassSpec{Name: "class"}},
		}
		seed = fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithStatusSubresource(&corev1.Pod{}).WithObjects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controlPlane}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: podName + "-userdata"}},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: podName}},
			&machinev1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "class"},
				NodeTemplate: &machinev1alpha1.NodeTemplate{
					InstanceType: "local", Region: "region", Zone: "zone-a",
					Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), "gpu": resource.MustParse("0")},
				},
			},
			pod, machine,
		).WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(ctx context.Context, c client.Client, _ string, object, binding client.Object, _ ...client.SubResourceCreateOption) error {
			bound := object.DeepCopyObject().(*corev1.Pod)
			bound.Spec.NodeName = binding.(*corev1.Binding).Target.Name
			return c.Update(ctx, bound)
		}}).Build()
		shoot = fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }).Build()
		clock = testclock.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
		recorder = events.NewFakeRecorder(10)
		kubelets, err := newKubelets()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { kubelets.forget(pod.Name) })
		r = &reconciler{seed: seed, shoot: shoot, recorder: recorder, kubeletVersion: "v1.2.3", kubelets: kubelets, clock: clock}
	})

	// settle reconciles as often as the events of the pod would make the simulator do.
	settle := func(ctx SpecContext) {
		GinkgoHelper()
		for range 4 {
			_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(client.IgnoreNotFound(seed.Get(ctx, client.ObjectKeyFromObject(pod), pod))).To(Succeed())
	}
	assignNode := func(ctx SpecContext) {
		GinkgoHelper()
		machine.Spec.ProviderID = podName
		machine.Labels = map[string]string{machinev1alpha1.NodeLabelKey: podName}
		Expect(seed.Update(ctx, machine)).To(Succeed())
	}
	fail := func(ctx SpecContext, failure Failure) {
		GinkgoHelper()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, FailureAnnotation, string(failure))
		Expect(seed.Update(ctx, pod)).To(Succeed())
		settle(ctx)
	}
	node := func(ctx SpecContext) *corev1.Node {
		GinkgoHelper()
		node := &corev1.Node{}
		err := shoot.Get(ctx, client.ObjectKey{Name: podName}, node)
		if apierrors.IsNotFound(err) {
			return nil
		}
		Expect(err).NotTo(HaveOccurred())
		return node
	}

	It("registers the node only when machine-controller-manager knows it", func(ctx SpecContext) {
		settle(ctx)
		Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		Expect(pod.Status.PodIP).To(HavePrefix("10."))
		Expect(hasJoined(pod)).To(BeFalse())
		Expect(node(ctx)).To(BeNil())

		assignNode(ctx)
		settle(ctx)
		Expect(hasJoined(pod)).To(BeTrue())
		Expect(node(ctx).Labels).To(And(
			HaveKeyWithValue(corev1.LabelTopologyZone, "zone-a"),
			HaveKeyWithValue(corev1.LabelTopologyRegion, "region"),
			HaveKeyWithValue(corev1.LabelInstanceTypeStable, "local"),
			HaveKeyWithValue(corev1.LabelHostname, podName),
			HaveKeyWithValue(kwok.LabelKubelet, kwok.KubeletAlive),
		))
		Expect(node(ctx).Status.Capacity).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourcePods), Not(HaveKey(corev1.ResourceName("gpu")))))
		Expect(node(ctx).Status.NodeInfo.KubeletVersion).To(Equal("v1.2.3"))
		Expect(node(ctx).Status.NodeInfo.BootID).To(BeEquivalentTo(pod.UID))
	})

	// journal asks the kubelet at the port that the Node reports for what it has logged since a boot.
	journal := func(ctx SpecContext, boot string) (string, error) {
		GinkgoHelper()
		roots := x509.NewCertPool()
		roots.AddCert(r.kubelets.certificate.Leaf)
		asks := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
		url := fmt.Sprintf("https://127.0.0.1:%d/logs/?query=kubelet&boot=%s", node(ctx).Status.DaemonEndpoints.KubeletEndpoint.Port, boot)
		response, err := asks.Get(url)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}

	It("lets the kubelet die and come back", func(ctx SpecContext) {
		assignNode(ctx)
		settle(ctx)
		Expect(journal(ctx, "0")).To(ContainSubstring(`"Starting kubelet" bootID="` + string(pod.UID) + `"`))
		fail(ctx, KubeletDead)
		Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
		_, err := journal(ctx, "0")
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
		fail(ctx, NodeNotReady)
		Expect(journal(ctx, "0")).To(WithTransform(func(text string) int { return strings.Count(text, "Starting kubelet") }, Equal(2)))
		Expect(node(ctx).Labels).To(HaveKey(kwok.LabelKubelet))
		Expect(node(ctx).Annotations).To(HaveKeyWithValue(kwok.AnnotationReady, "false"))
		fail(ctx, Healthy)
		Expect(node(ctx).Annotations).NotTo(HaveKey(kwok.AnnotationReady))
		Expect(recorder.Events).To(BeEmpty())
	})

	It("shows a kubelet that is dead once more to whoever reports for it all the same", func(ctx SpecContext) {
		assignNode(ctx)
		settle(ctx)
		fail(ctx, KubeletDead)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: podName}}
		Expect(shoot.Create(ctx, lease)).To(Succeed())
		ended := clock.Now()
		for _, look := range []struct {
			renewed, again time.Duration
			shown          bool
		}{
			{renewed: silentTime, again: 2 * silentTime},
			{renewed: silentTime + time.Second, again: time.Second, shown: true},
			{renewed: silentTime + time.Second, again: 2 * silentTime},
		} {
			clock.SetTime(clock.Now().Add(2 * silentTime))
			lease.Spec.RenewTime = &metav1.MicroTime{Time: ended.Add(look.renewed)}
			Expect(shoot.Update(ctx, lease)).To(Succeed())
			Expect(r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})).To(Equal(reconcile.Result{RequeueAfter: look.again}))
			_, shown := node(ctx).Labels[kwok.LabelKubelet]
			Expect(shown).To(Equal(look.shown))
		}
	})

	Describe("with a host", func() {
		power := func(ctx SpecContext, on bool, bootID string) {
			GinkgoHelper()
			Expect(Power{On: on, Since: clock.Now(), BootID: bootID}.Apply(pod)).To(Succeed())
			Expect(seed.Update(ctx, pod)).To(Succeed())
			settle(ctx)
		}
		boot := func(ctx SpecContext) {
			GinkgoHelper()
			result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(BootTime))
			Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
			clock.SetTime(clock.Now().Add(BootTime))
			settle(ctx)
		}
		ready := func(ctx SpecContext) corev1.ConditionStatus { return node(ctx).Status.Conditions[0].Status }

		BeforeEach(func(ctx SpecContext) {
			assignNode(ctx)
			settle(ctx)
			registered := node(ctx)
			registered.Status.Conditions[0].Status = corev1.ConditionTrue
			Expect(shoot.Status().Update(ctx, registered)).To(Succeed())
		})

		It("is dead without power, and comes back as another boot that is not ready at once", func(ctx SpecContext) {
			power(ctx, false, "1")
			clock.SetTime(clock.Now().Add(time.Hour))
			settle(ctx)
			Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
			Expect(ready(ctx)).To(Equal(corev1.ConditionTrue))

			power(ctx, true, "2")
			boot(ctx)
			Expect(node(ctx).Labels).To(HaveKeyWithValue(kwok.LabelKubelet, kwok.KubeletAlive))
			Expect(node(ctx).Status.NodeInfo.BootID).To(Equal("2"))
			Expect(ready(ctx)).To(Equal(corev1.ConditionFalse))
			Expect(journal(ctx, "0")).To(And(ContainSubstring(`bootID="2"`), Not(ContainSubstring(`bootID="`+string(pod.UID)+`"`))))
			Expect(journal(ctx, "-1")).To(ContainSubstring(`bootID="` + string(pod.UID) + `"`))
		})

		It("comes back as the same boot, if that is what the host says", func(ctx SpecContext) {
			power(ctx, false, "1")
			power(ctx, true, "1")
			boot(ctx)
			Expect(node(ctx).Labels).To(HaveKeyWithValue(kwok.LabelKubelet, kwok.KubeletAlive))
			Expect(node(ctx).Status.NodeInfo.BootID).To(Equal("1"))
			Expect(ready(ctx)).To(Equal(corev1.ConditionTrue))
		})

		It("hangs until it has no power, however long", func(ctx SpecContext) {
			fail(ctx, KernelHang)
			clock.SetTime(clock.Now().Add(time.Hour))
			settle(ctx)
			Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))

			power(ctx, false, "1")
			power(ctx, true, "2")
			boot(ctx)
			Expect(node(ctx).Labels).To(HaveKey(kwok.LabelKubelet))
		})

		It("comes back with the failures that no power cycle heals", func(ctx SpecContext) {
			fail(ctx, KubeletDead)
			power(ctx, false, "1")
			power(ctx, true, "2")
			boot(ctx)
			Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
			Expect(node(ctx).Status.NodeInfo.BootID).To(Equal("1"))
		})

		It("does not join without power", func(ctx SpecContext) {
			pod.Status.Conditions = nil
			Expect(seed.Status().Update(ctx, pod)).To(Succeed())
			Expect(shoot.Delete(ctx, node(ctx))).To(Succeed())
			power(ctx, false, "1")
			Expect(node(ctx)).To(BeNil())
			clock.SetTime(clock.Now().Add(BootTime))
			power(ctx, true, "2")
			clock.SetTime(clock.Now().Add(BootTime))
			settle(ctx)
			Expect(node(ctx).Status.NodeInfo.BootID).To(Equal("2"))
		})

		It("starts the containers anew that ran", func(ctx SpecContext) {
			started := metav1.NewTime(clock.Now())
			running := corev1.PodStatus{
				Phase:             corev1.PodRunning,
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}},
			}
			for name, nodeName := range map[string]string{"here": podName, "elsewhere": "other"} {
				Expect(shoot.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: nodeName}, Status: running})).To(Succeed())
			}
			read := func(name string) corev1.PodStatus {
				GinkgoHelper()
				read := &corev1.Pod{}
				Expect(shoot.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, read)).To(Succeed())
				return read.Status
			}
			power(ctx, false, "1")
			Expect(read("here").ContainerStatuses[0].RestartCount).To(BeZero())
			power(ctx, true, "2")
			boot(ctx)

			container := read("here").ContainerStatuses[0]
			Expect(container.RestartCount).To(BeEquivalentTo(1))
			Expect(container.State.Running.StartedAt.Time).To(BeTemporally("==", clock.Now()))
			Expect(container.LastTerminationState.Terminated.StartedAt.Time).To(BeTemporally("==", started.Time))
			Expect(read("here").Conditions[0].Status).To(Equal(corev1.ConditionTrue))
			Expect(read("elsewhere").ContainerStatuses[0].RestartCount).To(BeZero())
		})
	})

	It("does not register a node that somebody has deleted", func(ctx SpecContext) {
		assignNode(ctx)
		settle(ctx)
		Expect(shoot.Delete(ctx, node(ctx))).To(Succeed())
		settle(ctx)
		Expect(node(ctx)).To(BeNil())
	})

	It("takes the failure of new machines from the control-plane namespace", func(ctx SpecContext) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controlPlane}}
		annotate := func(value string) {
			GinkgoHelper()
			Expect(seed.Patch(ctx, namespace, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+FailureAnnotation+`":`+value+`}}}`)))).To(Succeed())
		}
		annotate(`"never-joins"`)
		assignNode(ctx)
		settle(ctx)
		Expect(pod.Annotations).To(HaveKeyWithValue(FailureAnnotation, "never-joins"))
		Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		Expect(node(ctx)).To(BeNil())

		annotate("null")
		settle(ctx)
		Expect(node(ctx)).To(BeNil())

		fail(ctx, Healthy)
		Expect(node(ctx)).NotTo(BeNil())
	})

	It("warns of a value that it does not know, and of one that comes too late", func(ctx SpecContext) {
		assignNode(ctx)
		settle(ctx)
		fail(ctx, "dead")
		Expect(recorder.Events).To(Receive(And(ContainSubstring("Warning UnknownFailure"), ContainSubstring("valid are kubelet-dead, kernel-hang, node-not-ready, never-joins"))))
		Expect(node(ctx).Labels).To(HaveKey(kwok.LabelKubelet))

		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
		fail(ctx, NeverJoins)
		Expect(recorder.Events).To(Receive(ContainSubstring("Warning FailureTooLate")))
		Expect(node(ctx).Labels).To(HaveKey(kwok.LabelKubelet))
	})

	It("takes away the pod of a deleted machine and what belongs to it, and leaves the node", func(ctx SpecContext) {
		assignNode(ctx)
		pod.Finalizers = []string{"test/keep"}
		Expect(seed.Update(ctx, pod)).To(Succeed())
		settle(ctx)
		Expect(seed.Delete(ctx, pod)).To(Succeed())
		settle(ctx)
		Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Service{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(seed.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: podName + "-userdata"}, &corev1.Secret{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("no longer serves the node of a pod that has vanished", func(ctx SpecContext) {
		assignNode(ctx)
		settle(ctx)
		Expect(seed.Delete(ctx, pod)).To(Succeed())
		settle(ctx)
		Expect(node(ctx).Labels).NotTo(HaveKey(kwok.LabelKubelet))
	})

	It("only looks at pods of machines, and at machines when they get a node", func(ctx SpecContext) {
		Expect(isMachinePod(pod)).To(BeTrue())
		Expect(isMachinePod(&corev1.Pod{})).To(BeFalse())
		Expect(isNodeAssigned(machine)).To(BeFalse())
		Expect(podOfMachine(ctx, machine)).To(ConsistOf(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}))
	})
})
