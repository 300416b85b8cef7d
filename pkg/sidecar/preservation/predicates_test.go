// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Predicates", func() {
	var now = metav1.NewTime(Start.Add(time.Hour))

	DescribeTable("MachineDeployment", func(change func(*machinev1alpha1.MachineDeployment), want bool) {
		before, after := Deployment("pool", Share("1")), Deployment("pool", Share("1"))
		change(after)
		Expect(shoot.DeploymentChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("T9: the share", Share("2"), true),
		Entry("the timeout", DeploymentAnnotation(prefix+"machine-preserve-timeout", "1h"), true),
		Entry("an annotation goes", func(d *machinev1alpha1.MachineDeployment) { d.Annotations = nil }, true),
		Entry("P4: the replicas", Replicas(0), true),
		Entry("P3: the way of updates", InPlace, true),
		Entry("nothing", func(*machinev1alpha1.MachineDeployment) {}, false),
		Entry("the status", func(d *machinev1alpha1.MachineDeployment) { d.Status.ReadyReplicas = 2 }, false),
		Entry("the template", func(d *machinev1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "other" }, false),
	)

	DescribeTable("P3: MachineSet", func(before, after SetOption, want bool) {
		o, n := Set("set", Deployment("pool"), before), Set("set", Deployment("pool"), after)
		Expect(shoot.MachineSetChanged().Update(event.UpdateEvent{ObjectOld: o, ObjectNew: n})).To(Equal(want))
	},
		Entry("gets its first machine", SetReplicas(0, 0), SetReplicas(1, 0), true),
		Entry("is to have none any more", SetReplicas(1, 1), SetReplicas(0, 1), true),
		Entry("has none any more, which its machines tell", SetReplicas(0, 1), SetReplicas(0, 0), false),
		Entry("grows", SetReplicas(1, 1), SetReplicas(5, 1), false),
		Entry("nothing", SetReplicas(0, 0), SetReplicas(0, 0), false),
		Entry("becomes the newest again", Revision("1"), Revision("3"), true),
		Entry("keeps its revision", Revision("1"), Revision("1"), false),
	)

	DescribeTable("Machine", func(change MachineOption, want bool) {
		before, after := Machine("m", Annotation("a", "b")), Machine("m", Annotation("a", "b"))
		change(after)
		Expect(MachineChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("the phase", Phase(machinev1alpha1.MachineUnknown, Start), true),
		Entry("the health timer", Phase(machinev1alpha1.MachineRunning, now.Time), true),
		Entry("P6: the expiry", ExpiryInStatus(now.Time), true),
		Entry("R1: a request", Annotation(preserve, "now"), true),
		Entry("an annotation goes", func(m *machinev1alpha1.Machine) { m.Annotations = nil }, true),
		Entry("P9: the node", func(m *machinev1alpha1.Machine) { m.Labels = map[string]string{"node": "other"} }, true),
		Entry("T10: the deletion", Deleted(now.Time), true),
		Entry("H2: it joins", func(m *machinev1alpha1.Machine) { m.Status.Conditions = nil }, true),
		Entry("its own timeouts", func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}}
		}, true),
		Entry("nothing", func(*machinev1alpha1.Machine) {}, false),
		Entry("another label", func(m *machinev1alpha1.Machine) { m.Labels["a"] = "b" }, false),
		Entry("the node's conditions", func(m *machinev1alpha1.Machine) {
			m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: now}}
		}, false),
		Entry("the last operation", func(m *machinev1alpha1.Machine) { m.Status.LastOperation.LastUpdateTime = now }, false),
		Entry("managed fields", func(m *machinev1alpha1.Machine) { m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "mcm"}} }, false),
	)

	DescribeTable("Node", func(change NodeOption, want bool) {
		before := Node("m", NodeAnnotation("a", "b"), Condition("Preserved", corev1.ConditionTrue, "Draining", ""),
			Condition("DiskPressure", corev1.ConditionFalse, "", ""), Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))
		after := before.DeepCopy()
		change(after)
		Expect(NodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("R1: a request", with("now"), true),
		Entry("R2: a withdrawal", without("a"), true),
		Entry("P5: the protection", NodeAnnotation(disabled, "false"), true),
		Entry("M12: a maintenance", maintainedFrom(Start), true),
		Entry("P7: the taint", Taint("node.machine.sapcloud.io/preserved", Start), true),
		Entry("P11: the condition Preserved", Condition("Preserved", corev1.ConditionFalse, "Draining", ""), true),
		Entry("nothing", func(*corev1.Node) {}, false),
		Entry("H1: readiness", Condition("Ready", corev1.ConditionUnknown, "", ""), true),
		Entry("H1: the node becomes unhealthy in a further way", Condition("DiskPressure", corev1.ConditionTrue, "", ""), true),
		Entry("H1: the node is healthy again", Condition("KernelDeadlock", corev1.ConditionFalse, "", ""), true),
		Entry("H1: a new condition that nobody could determine", Condition("NetworkUnavailable", corev1.ConditionUnknown, "", ""), true),
		Entry("P3: the update in place", Condition(machinev1alpha1.NodeInPlaceUpdate, corev1.ConditionTrue, machinev1alpha1.SelectedForUpdate, ""), true),
		Entry("a new condition that is well", Condition("NetworkUnavailable", corev1.ConditionFalse, "", ""), false),
		Entry("the reason of readiness", Condition("Ready", corev1.ConditionTrue, "KubeletReady", "kubelet is ready"), false),
		Entry("the kubelet's heartbeats", func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				if n.Status.Conditions[i].Type != "Preserved" {
					n.Status.Conditions[i].LastHeartbeatTime = now
				}
			}
		}, false),
		Entry("images", func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}} }, false),
		Entry("a label", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false),
	)

	DescribeTable("V3: Node that waits for a proof", func(reason string, change NodeOption, want bool) {
		before := Node("m", Taint("node.machine.sapcloud.io/preserved", Start), Condition("Preserved", corev1.ConditionTrue, reason, ""), Condition("GPUHealthy", corev1.ConditionTrue, "", ""))
		after := before.DeepCopy()
		change(after)
		Expect(NodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("a report", "AwaitingValidation", func(n *corev1.Node) { n.Status.Conditions[2].LastHeartbeatTime = now }, true),
		Entry("a label", "AwaitingValidation", func(n *corev1.Node) { n.Labels = map[string]string{"gpu": "healthy"} }, true),
		Entry("the kubelet's heartbeat", "AwaitingValidation", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = now }, false),
		Entry("a report while it is drained", "Draining", func(n *corev1.Node) { n.Status.Conditions[2].LastHeartbeatTime = now }, false),
		Entry("a label while it is drained", "Drained", func(n *corev1.Node) { n.Labels = map[string]string{"gpu": "healthy"} }, false),
	)

	It("should let all creations and deletions through", func() {
		Expect(shoot.DeploymentChanged().Create(event.CreateEvent{Object: Deployment("pool")})).To(BeTrue())
		Expect(shoot.MachineSetChanged().Create(event.CreateEvent{Object: Set("set", Deployment("pool"))})).To(BeTrue())
		Expect(MachineChanged().Create(event.CreateEvent{Object: Machine("m")})).To(BeTrue())
		Expect(MachineChanged().Delete(event.DeleteEvent{Object: Machine("m")})).To(BeTrue())
		Expect(shoot.DeploymentChanged().Delete(event.DeleteEvent{Object: Deployment("pool")})).To(BeTrue())
	})
})

var _ = Describe("Mapping", func() {
	var (
		deployment = Deployment("pool")
		set        = Set("set", deployment)
		request    = []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: Namespace, Name: "pool"}}}
		foreign    = func(m *machinev1alpha1.Machine) { m.OwnerReferences[0].Kind = "ReplicaSet" }
		noOwner    = func(m *machinev1alpha1.Machine) { m.OwnerReferences = nil }
	)

	DescribeTable("machine to MachineDeployment", func(ctx SpecContext, machine *machinev1alpha1.Machine, sets []*machinev1alpha1.MachineSet, want []reconcile.Request) {
		e := newEnvironment(holders["HealthTimer"], deployment)
		for _, set := range sets {
			Expect(e.seed.Create(ctx, set.DeepCopy())).To(Succeed())
		}
		Expect(MachineToDeployment(e.Reconciler, ctx, machine)).To(Equal(want))
	},
		Entry("through its MachineSet", Machine("m", Of(set)), []*machinev1alpha1.MachineSet{set}, request),
		Entry("none for an orphan", Machine("m", noOwner), []*machinev1alpha1.MachineSet{set}, nil),
		Entry("none for a machine of something else", Machine("m", Of(set), foreign), []*machinev1alpha1.MachineSet{set}, nil),
		Entry("none while its MachineSet is not known", Machine("m", Of(set)), nil, nil),
		Entry("none for a MachineSet of its own", Machine("m", Of(set)), []*machinev1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: Namespace}}}, nil),
	)

	DescribeTable("node to MachineDeployment", func(ctx SpecContext, node string, want []reconcile.Request) {
		e := newEnvironment(holders["HealthTimer"], deployment, set, Machine("m", Of(set), func(m *machinev1alpha1.Machine) { m.Labels["node"] = "n" }))
		Expect(NodeToDeployment(e.Reconciler, ctx, Node(node))).To(Equal(want))
	},
		Entry("through the label of its machine", "n", request),
		Entry("not through the name of its machine", "m", nil),
		Entry("none for a node without a machine", "other", nil),
	)
})
