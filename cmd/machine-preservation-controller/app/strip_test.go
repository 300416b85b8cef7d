// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = It("P14: should keep messages of conditions up to a length", func() {
	long := strings.Repeat("x", 1<<18)
	node := builder.Node("n", builder.Condition("Preserved", corev1.ConditionTrue, long, long), builder.Condition("PowerCycle", corev1.ConditionTrue, "Reason", "message"))
	stripped, err := StripNode(true)(node)
	Expect(err).NotTo(HaveOccurred())
	Expect(stripped.(*corev1.Node).Size()).To(BeNumerically("<", 10<<10))
	Expect(stripped.(*corev1.Node).Status.Conditions).To(ContainElement(And(HaveField("Reason", "Reason"), HaveField("Message", "message"))))
})

var _ = It("V3: should keep when conditions were reported, and labels only of a node that takes no pods", func() {
	reported := metav1.NewTime(builder.Start)
	node := func(opts ...builder.NodeOption) *corev1.Node {
		stripped, err := StripNode(true)(builder.Node("n", append(opts, builder.Condition("GPUHealthy", corev1.ConditionTrue, "Reason", "message"), func(n *corev1.Node) {
			n.Labels = map[string]string{"example.com/gpu": "healthy"}
			n.Status.Conditions[1].LastHeartbeatTime, n.Status.Conditions[1].LastTransitionTime = reported, reported
		})...))
		Expect(err).NotTo(HaveOccurred())
		return stripped.(*corev1.Node)
	}
	n := node()
	Expect(n.Labels).To(BeEmpty())
	Expect(n.Status.Conditions[1]).To(Equal(corev1.NodeCondition{Type: "GPUHealthy", Status: corev1.ConditionTrue, LastHeartbeatTime: reported, LastTransitionTime: reported}))
	n = node(builder.Taint("node.machine.sapcloud.io/preserved", builder.Start))
	Expect(n.Labels).To(HaveKeyWithValue("example.com/gpu", "healthy"))
	Expect(n.Status.Conditions[1]).To(Equal(corev1.NodeCondition{Type: "GPUHealthy", Status: corev1.ConditionTrue, LastHeartbeatTime: reported, LastTransitionTime: reported}))
})

var _ = Describe("Strip", func() {
	var (
		now     = metav1.NewTime(builder.Start)
		managed = []metav1.ManagedFieldsEntry{{Manager: "machine-controller-manager"}}

		machine = func() *machinev1alpha1.Machine {
			return builder.Machine("m", builder.Of(builder.Set("s", builder.Deployment("d"))), builder.Phase(machinev1alpha1.MachineUnknown, builder.Start), builder.ExpiryInStatus(builder.Start), builder.Templated("now"), func(m *machinev1alpha1.Machine) {
				m.ManagedFields = managed
				m.Finalizers = []string{"machine.sapcloud.io/machine-controller"}
				m.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: "class"}
				m.Spec.NodeTemplateSpec.Spec.Unschedulable = true
				m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}}
				m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
				m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
				m.Status.LastOperation = machinev1alpha1.LastOperation{Description: "created", LastUpdateTime: now}
				m.Status.LastKnownState = "state"
			})
		}
		node = func() *corev1.Node {
			return builder.Node("n", builder.Taint("node.kubernetes.io/unreachable", builder.Start),
				builder.Condition("DiskPressure", corev1.ConditionTrue, "Full", "disk"), builder.Condition("NetworkUnavailable", corev1.ConditionFalse, "", ""),
				builder.Condition("Preserved", corev1.ConditionTrue, "Draining", "Machine preserved until 2026-03-04T13:00:00Z."),
				builder.Condition(machinev1alpha1.NodeInPlaceUpdate, corev1.ConditionTrue, machinev1alpha1.SelectedForUpdate, "selected"),
				builder.NodeAnnotation("node.machine.sapcloud.io/preserve", "now"), builder.NodeAnnotation("flannel.alpha.coreos.com/public-ip", "10.0.0.1"),
				func(n *corev1.Node) {
					n.ManagedFields = managed
					n.Labels = map[string]string{"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"}
					n.Spec.ProviderID, n.Spec.PodCIDR, n.Spec.Unschedulable = "local:///n", "10.0.0.0/24", true
					n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
					n.Status.NodeInfo.KubeletVersion = "v1.36.3"
					n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
				})
		}
		set = func() *machinev1alpha1.MachineSet {
			s := builder.Set("s", builder.Deployment("d"), builder.Revision("2"))
			s.ManagedFields = managed
			s.Status.FailedMachines = &[]machinev1alpha1.MachineSummary{{Name: "m"}}
			return s
		}
		deployment = func() *machinev1alpha1.MachineDeployment {
			d := builder.Deployment("d", builder.Share("1"), builder.InPlace, builder.DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes", "true"))
			d.ManagedFields = managed
			d.Spec.Template.Spec.Class.Name = "class"
			d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": "pool"}
			d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "m"}}
			return d
		}
		strip = func(object client.Object) client.Object {
			GinkgoHelper()
			for _, transform := range []toolscache.TransformFunc{StripMachineDeployment, StripMachineSet, StripMachine, StripNode(true)} {
				stripped, err := transform(object)
				Expect(err).NotTo(HaveOccurred())
				object = stripped.(client.Object)
			}
			return object
		}
	)

	It("should keep what is decided on", func() {
		m := strip(machine()).(*machinev1alpha1.Machine)
		want := machine()
		Expect(m.Spec.ProviderID).To(Equal("local:///m"))
		Expect(m.Spec.MachineConfiguration).To(Equal(want.Spec.MachineConfiguration))
		Expect(m.Status.CurrentStatus).To(Equal(want.Status.CurrentStatus))
		Expect(m.Status.LastOperation).To(Equal(machinev1alpha1.LastOperation{LastUpdateTime: now}), "M12: since when the machine is healthy")
		want.ManagedFields = nil
		Expect(m.ObjectMeta).To(Equal(want.ObjectMeta))
		Expect(m.Spec.NodeTemplateSpec).To(Equal(machinev1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"node.machine.sapcloud.io/preserve": "now"}}}))
		unseen := machine()
		builder.NeverJoined(unseen)
		Expect(strip(unseen).(*machinev1alpha1.Machine).Status.Conditions).To(BeEmpty(), "H2")

		n := strip(node()).(*corev1.Node)
		Expect(n.Spec.Taints).To(Equal(node().Spec.Taints))
		Expect(n.Spec.Unschedulable).To(BeTrue(), "M10: it counts as unavailable")
		Expect(n.Status.Conditions).To(ConsistOf(
			node().Status.Conditions[0],
			corev1.NodeCondition{Type: "DiskPressure", Status: corev1.ConditionTrue},
			node().Status.Conditions[3],
			corev1.NodeCondition{Type: machinev1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: machinev1alpha1.SelectedForUpdate},
		), "H1, P3: Ready, Preserved, and of the others what makes a machine unhealthy, or tells that it is being updated")
		drained := strip(builder.Node("n", builder.Condition("NodeDrain", corev1.ConditionTrue, "DrainTimedOut", "pods"), func(n *corev1.Node) {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": "", "kubernetes.io/os": "linux"}
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: machinev1alpha1.NodeInPlaceUpdate, Reason: machinev1alpha1.SelectedForUpdate, LastTransitionTime: now})
		})).(*corev1.Node)
		Expect(drained.Labels).To(Equal(map[string]string{"node-role.kubernetes.io/control-plane": ""}), "D1")
		Expect(drained.Status.Conditions).To(ContainElements(
			corev1.NodeCondition{Type: "NodeDrain", Status: corev1.ConditionTrue, Reason: "DrainTimedOut", Message: "pods"},
			HaveField("LastTransitionTime", now),
		), "D2, D11")
		for _, t := range []corev1.NodeConditionType{"DrainInProgress", "Drained"} {
			told := strip(builder.Node("n", builder.Condition(t, corev1.ConditionFalse, "KubectlDrainFailed", "it failed"))).(*corev1.Node)
			Expect(told.Status.Conditions).To(ContainElement(corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: "KubectlDrainFailed", Message: "it failed"}), "D13")
		}
		Expect(n.Annotations).To(And(HaveKeyWithValue("node.machine.sapcloud.io/preserve", "now"), Not(HaveKey("flannel.alpha.coreos.com/public-ip"))))

		s := strip(set()).(*machinev1alpha1.MachineSet)
		Expect([]int32{s.Spec.Replicas, s.Status.Replicas}).To(Equal([]int32{3, 3}))
		Expect(s.OwnerReferences).To(Equal(set().OwnerReferences))
		Expect(s.Labels).To(Equal(set().Labels))
		Expect(s.Annotations).To(Equal(set().Annotations), "P3: the revision")

		d := strip(deployment()).(*machinev1alpha1.MachineDeployment)
		Expect(d.Spec.Replicas).To(Equal(int32(3)))
		Expect(d.Spec.Selector).To(Equal(deployment().Spec.Selector))
		Expect(d.Spec.Strategy.Type).To(Equal(machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType), "P3")
		Expect(d.Spec.Template.Spec.NodeTemplateSpec.Labels).To(Equal(deployment().Spec.Template.Spec.NodeTemplateSpec.Labels))
		Expect(d.Annotations).To(Equal(deployment().Annotations))
	})

	It("P14: should keep a bounded number of conditions, whatever they are called", func() {
		n := node()
		for i := range 1000 {
			builder.Condition(corev1.NodeConditionType(fmt.Sprintf("Forged%d", i)), corev1.ConditionTrue, "", "")(n)
		}
		n.Status.Conditions[0], n.Status.Conditions[len(n.Status.Conditions)-1] = n.Status.Conditions[len(n.Status.Conditions)-1], n.Status.Conditions[0]
		n.Status.Conditions[0].Type = corev1.NodeConditionType(strings.Repeat("x", 100_000))
		kept := strip(n).(*corev1.Node).Status.Conditions
		Expect(len(kept)).To(BeNumerically("<=", 35))
		Expect(kept).To(ContainElement(HaveField("Type", corev1.NodeReady)))
		Expect(kept).NotTo(ContainElement(HaveField("Type", HaveLen(100_000))))
	})

	It("X13: should keep the boot id where it is read, and what may be one", func() {
		withBootID := func(id string) *corev1.Node {
			return builder.Node("n", func(n *corev1.Node) { n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: id, KubeletVersion: "v1.36.3"} })
		}
		info := func(powerCycle bool, id string) corev1.NodeSystemInfo {
			stripped, err := StripNode(powerCycle)(withBootID(id))
			Expect(err).NotTo(HaveOccurred())
			return stripped.(*corev1.Node).Status.NodeInfo
		}
		Expect(info(true, "00000000-0000-4000-8000-000000000001")).To(Equal(corev1.NodeSystemInfo{BootID: "00000000-0000-4000-8000-000000000001"}))
		Expect(info(true, strings.Repeat("x", 129))).To(Equal(corev1.NodeSystemInfo{}))
		Expect(info(false, "00000000-0000-4000-8000-000000000001")).To(Equal(corev1.NodeSystemInfo{}))
	})

	It("should drop what is large", func() {
		Expect(strip(machine()).(*machinev1alpha1.Machine).Status).To(Equal(machinev1alpha1.MachineStatus{
			CurrentStatus: machine().Status.CurrentStatus,
			LastOperation: machinev1alpha1.LastOperation{LastUpdateTime: now},
			Conditions:    []corev1.NodeCondition{{Type: corev1.NodeReady}},
		}), "H2: of the conditions, that there are any")
		Expect(strip(node()).(*corev1.Node).Status.Images).To(BeEmpty())
		Expect(strip(node()).(*corev1.Node).Labels).To(BeEmpty())
		Expect(strip(set()).(*machinev1alpha1.MachineSet).Status.FailedMachines).To(BeNil())
		Expect(strip(deployment()).(*machinev1alpha1.MachineDeployment).Spec.Template.Spec.Class).To(Equal(machinev1alpha1.ClassSpec{}))
		for _, object := range []client.Object{machine(), node(), set(), deployment()} {
			Expect(strip(object).GetManagedFields()).To(BeEmpty())
		}
	})

	It("P14: should keep no more of a node's annotations than is read, and no value that means nothing at length", func() {
		n := strip(builder.Node("n",
			builder.NodeAnnotation("evil", strings.Repeat("x", 1<<18)),
			builder.NodeAnnotation("node.machine.sapcloud.io/preserve", strings.Repeat("x", 1<<18)),
			builder.NodeAnnotation("machine-preservation.extensions.gardener.cloud/timeout", strings.Repeat("1h", 1<<10)),
			builder.NodeAnnotation("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"),
			builder.NodeAnnotation("cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm", ""),
			builder.NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance", "2026-03-01T12:00:00Z"),
			builder.NodeAnnotation("machine-preservation.extensions.gardener.cloud/maintenance-cordon", "uid"),
			builder.NodeAnnotation("machine-preservation.extensions.gardener.cloud/power-cycle", "now"),
		)).(*corev1.Node)
		Expect(n.Annotations).To(Equal(map[string]string{
			"machine-preservation.extensions.gardener.cloud/stripped":           "",
			"machine-preservation.extensions.gardener.cloud/maintenance-cordon": "uid",
			"node.machine.sapcloud.io/preserve":                                 strings.Repeat("x", 128) + "...",
			"machine-preservation.extensions.gardener.cloud/timeout":            strings.Repeat("1h", 64) + "...",
			"cluster-autoscaler.kubernetes.io/scale-down-disabled":              "true",
			"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm":       "",
			"machine-preservation.extensions.gardener.cloud/maintenance":        "2026-03-01T12:00:00Z",
			"machine-preservation.extensions.gardener.cloud/power-cycle":        "now",
		}))
		request := preservation.RequestOf(facts.Member{Machine: machine(), Node: n}, 336*time.Hour)
		Expect(request.Timeout).To(BeZero(), "what was cut must not become valid")
		Expect(request.InvalidTimeout).NotTo(BeEmpty())
	})

	It("should pass on what is none of its business", func() {
		gone := toolscache.DeletedFinalStateUnknown{Key: "a"}
		for _, transform := range []toolscache.TransformFunc{StripMachineDeployment, StripMachineSet, StripMachine, StripNode(true)} {
			Expect(transform(gone)).To(Equal(gone))
		}
	})

	DescribeTable("should keep what patches need, so that they change nothing else", func(ctx SpecContext, holder preservation.Holder, d preservation.Decision) {
		objects := []client.Object{machine(), node()}
		for _, object := range objects {
			object.SetManagedFields(nil) // the fake has its own
		}
		c := fakeclient.NewClientBuilder().WithScheme(builder.Scheme()).WithObjects(objects...).
			WithStatusSubresource(&machinev1alpha1.Machine{}, &corev1.Node{}).
			WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: builder.PatchStatus}).Build()

		read := func() (*machinev1alpha1.Machine, *corev1.Node) {
			m, n := &machinev1alpha1.Machine{}, &corev1.Node{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "m"}, m)).To(Succeed())
			Expect(c.Get(ctx, client.ObjectKey{Name: "n"}, n)).To(Succeed())
			return m, n
		}
		timeouts := facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}
		d.Machine, d.Node = read()

		// The same steps on the whole objects, and as patches of stripped ones.
		wantMachine, wantNode := read()
		for _, step := range preservation.Steps(holder, d, timeouts, builder.Start) {
			m, n := read()
			if _, ok := step.Before.(*machinev1alpha1.Machine); ok {
				step.Edit(wantMachine)
				step.Before = strip(m).(*machinev1alpha1.Machine)
			} else {
				step.Edit(wantNode)
				step.Before = strip(n).(*corev1.Node)
			}
			Expect(executor.Apply(ctx, c, step).Err()).To(Succeed())
		}
		gotMachine, gotNode := read()
		for _, object := range []client.Object{wantMachine, wantNode, gotMachine, gotNode} {
			object.SetResourceVersion("")
		}
		byType := func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) }
		slices.SortFunc(gotNode.Status.Conditions, byType)
		slices.SortFunc(wantNode.Status.Conditions, byType)
		Expect(json.Marshal(gotMachine)).To(MatchJSON(text(wantMachine)))
		Expect(json.Marshal(gotNode)).To(MatchJSON(text(wantNode)))
	},
		Entry("hold, HealthTimer", preservation.HealthTimer{}, preservation.Decision{Target: &preservation.Record{Claims: []preservation.Claim{{Cause: "auto", Expiry: builder.Start.Add(time.Hour)}}, Failed: true, FailedSince: builder.Start}}),
		Entry("hold, PreserveExpiry", preservation.PreserveExpiry{}, preservation.Decision{Target: &preservation.Record{Claims: []preservation.Claim{{Cause: "auto", Expiry: builder.Start.Add(time.Hour)}}, Failed: true, FailedSince: builder.Start}}),
		Entry("release, HealthTimer", preservation.HealthTimer{}, preservation.Decision{Current: &preservation.Record{Claims: []preservation.Claim{{Cause: "auto"}}, Failed: true}, ConsumeRequest: true}),
		Entry("release, PreserveExpiry", preservation.PreserveExpiry{}, preservation.Decision{Current: &preservation.Record{Claims: []preservation.Claim{{Cause: "auto"}}, Failed: true}, ConsumeRequest: true}),
	)
})

func text(object client.Object) []byte {
	GinkgoHelper()
	result, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return result
}
