// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

const (
	prefix   = "machine-preservation.extensions.gardener.cloud/"
	needs    = "host.metal3.io/external-remediation"
	reboot   = "reboot.metal3.io/machine-remediation"
	owner    = prefix + "power-cycle-owner"
	settings = prefix + "power-cycle-settings"
	taint    = "node.kubernetes.io/out-of-service"
)

var kind = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}

// pool is a MachineDeployment with machines that have a host each. Their hosts and nodes do what real ones do.
type pool struct {
	names []string

	mutex sync.Mutex
	// stuck is what hosts do not do: "off" or "on".
	stuck string
}

var pools = 0

// newPool creates a pool of so many machines, whose nodes are gone after the test.
func newPool(ctx context.Context, namespace string, machines int) *pool {
	GinkgoHelper()
	pools++
	name := fmt.Sprintf("pool-%d", pools)
	set := sidecar.Pool(ctx, s, name, builder.DeploymentAnnotation(settings, "{}"))
	p := &pool{}
	for i := range machines {
		machine := fmt.Sprintf("%s-%d", name, i)
		p.names = append(p.names, machine)
		u := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  online: true
  consumerRef: {apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, namespace: %[3]s, name: %[2]s}
status: {poweredOn: true, operationalStatus: OK, provisioning: {state: provisioned}}
`, namespace, machine, builder.Namespace), &u.Object)).To(Succeed())
		status := u.Object["status"]
		Expect(s.Create(ctx, u)).To(Succeed())
		u.Object["status"] = status
		Expect(s.Status().Update(ctx, u)).To(Succeed())

		node := sidecar.NewNode(machine)
		nodeStatus := node.Status
		Expect(s.Create(ctx, node)).To(Succeed())
		node.Status = nodeStatus
		node.Status.NodeInfo.BootID = string(uuid.NewUUID())
		Expect(s.Status().Update(ctx, node)).To(Succeed())

		m := sidecar.NewMachine(machine, machine, set, builder.Annotation("metal3.io/BareMetalHost", namespace+"/"+machine))
		machineStatus := m.Status
		m.Finalizers = nil
		Expect(s.Create(ctx, m)).To(Succeed())
		m.Status = machineStatus
		Expect(client.IgnoreNotFound(s.Status().Update(ctx, m))).To(Succeed())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		wait.UntilWithContext(running, func(ctx context.Context) {
			for _, name := range p.names {
				p.power(ctx, namespace, name)
			}
		}, 100*time.Millisecond)
	}()
	DeferCleanup(func(ctx SpecContext) {
		cancel()
		<-stopped
		for _, name := range p.names { // they would count as nodes of the shoot that are ready, or not
			Expect(s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
	})
	return p
}

func (p *pool) jam(what string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.stuck = what
}

// power lets a host do what it is asked for, and its node with it. What fails is done the next time.
func (p *pool) power(ctx context.Context, namespace, name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	h := host.New(kind)
	if s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, h) != nil {
		return
	}
	_, off := h.GetAnnotations()[reboot]
	on, _, _ := unstructured.NestedBool(h.Object, "status", "poweredOn")
	if on == !off || off && p.stuck == "off" || !off && p.stuck == "on" {
		return
	}
	node := &corev1.Node{}
	if s.Get(ctx, client.ObjectKey{Name: name}, node) == nil {
		node.Status.Conditions = slices.Clone(node.Status.Conditions)
		for i := range node.Status.Conditions {
			c := &node.Status.Conditions[i]
			if c.Type != corev1.NodeReady {
				continue
			}
			if c.Status, c.LastTransitionTime = corev1.ConditionUnknown, metav1.Now(); !off {
				c.Status, node.Status.NodeInfo.BootID = corev1.ConditionTrue, string(uuid.NewUUID())
			}
		}
		if s.Status().Update(ctx, node) != nil {
			return
		}
	}
	_ = unstructured.SetNestedField(h.Object, !off, "status", "poweredOn")
	_ = s.Status().Update(ctx, h)
}

func machine(ctx context.Context, name string) *machinev1alpha1.Machine {
	m := &machinev1alpha1.Machine{}
	ExpectWithOffset(1, s.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: name}, m)).To(Succeed())
	return m
}

func phase(ctx context.Context, name string) func() string {
	return func() string { return machine(ctx, name).Annotations[prefix+"power-cycle-phase"] }
}

func annotate(ctx context.Context, object client.Object, key, value string) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	Expect(s.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

func annotations(ctx context.Context, namespace, name string) func() map[string]string {
	return func() map[string]string {
		h := host.New(kind)
		ExpectWithOffset(1, s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, h)).To(Succeed())
		return h.GetAnnotations()
	}
}

func node(ctx context.Context, name string) *corev1.Node {
	n := &corev1.Node{}
	ExpectWithOffset(1, s.Get(ctx, client.ObjectKey{Name: name}, n)).To(Succeed())
	return n
}

func isTainted(ctx context.Context, name string) func() bool {
	return func() bool {
		return slices.ContainsFunc(node(ctx, name).Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint })
	}
}

// newPod returns a pod on a node.
func newPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(0))},
	}
}

// hold puts a pod on a node that does not leave it, and returns what lets it go.
func hold(ctx context.Context, node string) func() {
	GinkgoHelper()
	pod := newPod(node)
	Expect(s.Create(ctx, pod)).To(Succeed())
	return func() {
		GinkgoHelper()
		Expect(s.Delete(context.WithoutCancel(ctx), pod)).To(Succeed())
	}
}

// attach attaches the volume of a PersistentVolumeClaim to a node, and returns what detaches it.
func attach(ctx context.Context, node, claim string) func() {
	GinkgoHelper()
	name := node + "-" + claim
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: name}},
		},
	}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}
	Expect(s.Create(ctx, volume)).To(Succeed())
	Expect(s.Create(ctx, attachment)).To(Succeed())
	detach := func() {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(s.Delete(context.WithoutCancel(ctx), attachment))).To(Succeed())
	}
	DeferCleanup(detach)
	return detach
}

// ask asks for a power cycle, and again as long as the controller, which may just have been started, has not seen before that nobody
// does.
func ask(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() string {
		m := machine(ctx, name)
		if !metav1.HasAnnotation(m.ObjectMeta, needs) && m.Annotations[prefix+"power-cycle-phase"] == "" {
			annotate(ctx, m, needs, "")
		}
		return m.Annotations[prefix+"power-cycle-phase"]
	}, patient, time.Second).ShouldNot(BeEmpty())
}

var _ = Describe("Power cycle", Ordered, ContinueOnFailure, func() {
	const hosts = "hosts"

	BeforeAll(func(ctx SpecContext) {
		By("P9: preserving where there is no such kind")
		c := start(ctx, "")
		set := sidecar.Pool(ctx, s, "no-hosts", builder.DeploymentAnnotation(settings, "{}"))
		m := sidecar.NewMachine("no-hosts", "no-hosts", set)
		m.Annotations["node.machine.sapcloud.io/preserve"] = "now"
		Expect(s.Create(ctx, m)).To(Succeed())
		Eventually(func() map[string]string { return machine(ctx, "no-hosts").Annotations }, patient).Should(HaveKey(prefix + "phase"))
		c.Stop()
		_, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{Paths: []string{"../../landscape/hosts/baremetalhost/crd.yaml"}, ErrorIfPathMissing: true})
		Expect(err).NotTo(HaveOccurred())
	})

	It("X1: should not wait for the volume of a pod that stays, but for any other", func(ctx SpecContext) {
		p := newPool(ctx, builder.Namespace, 1)
		m := p.names[0]
		stays := newPod(m)
		stays.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		stays.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "stays"}}}}
		Expect(s.Create(ctx, stays)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(s.Delete(ctx, stays)).To(Succeed()) })
		attach(ctx, m, "stays")
		detach := attach(ctx, m, "leaves")
		start(ctx, "")
		ask(ctx, m)
		Eventually(isTainted(ctx, m), patient).Should(BeTrue())
		Consistently(phase(ctx, m), time.Second).Should(Equal("MakingNodeSafe"))
		detach()
		Eventually(phase(ctx, m), patient).Should(Equal("Succeeded"))
	})

	It("X3: should go on after a restart in each phase", func(ctx SpecContext) {
		p := newPool(ctx, builder.Namespace, 1)
		m := p.names[0]
		release := hold(ctx, m)
		p.jam("off")
		c := start(ctx, "")
		restart := func() {
			GinkgoHelper()
			c.Stop()
			c = start(ctx, "")
		}
		ask(ctx, m)
		Eventually(annotations(ctx, builder.Namespace, m), patient).Should(HaveKey(reboot))
		asked := annotations(ctx, builder.Namespace, m)()[owner]
		restart()
		p.jam("")
		Eventually(phase(ctx, m), patient).Should(Equal("MakingNodeSafe"))
		restart()
		Eventually(isTainted(ctx, m), patient).Should(BeTrue())
		Expect(annotations(ctx, builder.Namespace, m)()).To(HaveKeyWithValue(owner, asked))
		p.jam("on")
		release()
		Eventually(phase(ctx, m), patient).Should(Equal("PoweringOn"))
		restart()
		Eventually(annotations(ctx, builder.Namespace, m), patient).Should(Not(HaveKey(reboot)))
		p.jam("")
		Eventually(phase(ctx, m), patient).Should(Equal("Succeeded"))
		restart()
		Eventually(isTainted(ctx, m), patient).Should(BeFalse())
		Consistently(annotations(ctx, builder.Namespace, m), time.Second).Should(Not(HaveKey(reboot)))
	})

	It("X8: should power-cycle one machine at a time", func(ctx SpecContext) {
		p := newPool(ctx, builder.Namespace, 2)
		start(ctx, "")
		for _, m := range p.names {
			ask(ctx, m)
		}
		off := func() int {
			count := 0
			for _, m := range p.names {
				if _, asked := annotations(ctx, builder.Namespace, m)()[reboot]; asked {
					count++
				}
			}
			return count
		}
		Eventually(func() []string {
			Expect(off()).To(BeNumerically("<=", 1))
			return []string{phase(ctx, p.names[0])(), phase(ctx, p.names[1])()}
		}, patient).Should(HaveEach("Succeeded"))
	})

	It("X8: should power-cycle machines of several MachineDeployments as long as most nodes are ready", func(ctx SpecContext) {
		first, second := newPool(ctx, builder.Namespace, 1).names[0], newPool(ctx, builder.Namespace, 2).names[0]
		release := hold(ctx, first)
		start(ctx, "")
		ask(ctx, first)
		Eventually(isTainted(ctx, first), patient).Should(BeTrue())
		ask(ctx, second)
		Eventually(phase(ctx, second), patient).Should(Equal("Waiting"))
		Consistently(annotations(ctx, builder.Namespace, second), time.Second).ShouldNot(HaveKey(reboot))
		release()
		Eventually(phase(ctx, second), patient).Should(Equal("Succeeded"), "nobody but the first has told")
	})

	It("X2: should release the host of a machine that is deleted within a second, and let that go", func(ctx SpecContext) {
		p := newPool(ctx, builder.Namespace, 1)
		m := p.names[0]
		DeferCleanup(hold(ctx, m))
		start(ctx, "")
		ask(ctx, m)
		Eventually(isTainted(ctx, m), patient).Should(BeTrue())
		Expect(s.Delete(ctx, machine(ctx, m))).To(Succeed())
		Eventually(annotations(ctx, builder.Namespace, m), time.Second).Should(Not(HaveKey(reboot)))
		Eventually(func() error {
			return s.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: m}, &machinev1alpha1.Machine{})
		}, patient).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("X2 X14: should sweep orphans after a restart, and leave the hosts of others alone", func(ctx SpecContext) {
		p := newPool(ctx, builder.Namespace, 4)
		m, other := p.names[0], p.names[1]
		DeferCleanup(hold(ctx, m))
		foreign := `{"seed":"another","namespace":"shoot--test--two","machine":"` + other + `","uid":"x","time":"2026-03-01T12:00:00Z","on":"a/1"}`
		h := host.New(kind)
		h.SetNamespace(builder.Namespace)
		h.SetName(other)
		annotate(ctx, h, owner, foreign)
		annotate(ctx, h, reboot, "")
		c := start(ctx, "")
		ask(ctx, m)
		ask(ctx, other)
		Eventually(isTainted(ctx, m), patient).Should(BeTrue())
		c.Stop()
		gone := machine(ctx, m)
		Expect(s.Patch(ctx, gone, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Expect(s.Delete(ctx, gone)).To(Succeed())
		start(ctx, "")
		Eventually(annotations(ctx, builder.Namespace, m), patient).Should(Not(HaveKey(reboot)))
		Consistently(annotations(ctx, builder.Namespace, other), time.Second).Should(And(HaveKeyWithValue(owner, foreign), HaveKey(reboot)))
		Expect(phase(ctx, other)()).To(Equal("Waiting"))
	})

	It("P9: should find hosts when their kubeconfig comes, and others when it is replaced", func(ctx SpecContext) {
		kubeconfig := newKubeconfig()
		first, second := newPool(ctx, hosts, 1).names[0], newPool(ctx, "elsewhere", 1).names[0]
		start(ctx, kubeconfig)
		ask(ctx, first)
		Eventually(phase(ctx, first), patient).Should(Equal("Waiting"))
		kubeconfigOf(kubeconfig, hosts)
		Eventually(phase(ctx, first), patient).Should(Equal("Succeeded"))
		ask(ctx, second)
		Eventually(phase(ctx, second), patient).Should(Equal("Waiting"))
		kubeconfigOf(kubeconfig, "elsewhere")
		Eventually(phase(ctx, second), patient).Should(Equal("Succeeded"))
	})
})
