// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const mark = "machine-preservation.extensions.gardener.cloud/maintenance"

func newScheme() *runtime.Scheme {
	GinkgoHelper()
	return Scheme(v1alpha1.AddToScheme)
}

func maintenance(name, phase string, edit ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
	nm := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Finalizers: []string{"maintenance.nvidia.com/finalizer"},
		Annotations: map[string]string{"maintenance.nvidia.com/ready-time": "2026-03-01T12:00:00Z", "maintenance.nvidia.com/garbage-collector.ignore": "true"},
	}}
	nm.Status.WaitForCompletion = []string{"shop/a"}
	domain.SetPhase(&nm.Status, phase, "", 0, Start)
	for _, e := range edit {
		e(nm)
	}
	return nm
}

func cordoned(n *corev1.Node) {
	n.Spec.Unschedulable = true
	n.Annotations[mark] = "2026-03-01T12:00:00Z"
	n.Annotations[mark+"-cordon"] = "uid"
	n.Annotations["other"] = "stays"
	n.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}
	Condition("MaintenanceInProgress", "True", "NodeMaintenance", "")(n)
	Condition("Drained", "True", "SomebodyElse", "")(n)
}

// cordonedBefore is a node as an earlier version has cordoned it.
func cordonedBefore(n *corev1.Node) {
	cordoned(n)
	delete(n.Annotations, mark+"-cordon")
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: mark, Value: "uid", Effect: corev1.TaintEffectNoSchedule})
}

var _ = Describe("End", func() {
	newClient := func(funcs interceptor.Funcs, objects ...client.Object) client.Client {
		return fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).WithStatusSubresource(&corev1.Node{}, &v1alpha1.NodeMaintenance{}).WithInterceptorFuncs(funcs).Build()
	}

	DescribeTable("M7, M15: should set back whatever is in progress, and leave everything else alone", func(ctx SpecContext, cordoned NodeOption) {
		c := newClient(interceptor.Funcs{}, Node("n", cordoned), Node("somebodys", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			maintenance("ready", "Ready"), maintenance("waiting", "WaitForPodCompletion"),
			maintenance("deleted", "Ready", func(nm *v1alpha1.NodeMaintenance) { nm.DeletionTimestamp = new(metav1.NewTime(Start)) }),
			maintenance("pending", "Pending", func(nm *v1alpha1.NodeMaintenance) { nm.Finalizers = nil }))
		Expect(End(ctx, c, time.Now())).To(Succeed())

		node := &corev1.Node{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "n"}, node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", "other")))
		Expect(node.Annotations).To(Equal(map[string]string{"other": "stays"}))
		Expect(node.Status.Conditions).To(ConsistOf(HaveField("Type", corev1.NodeReady), HaveField("Reason", "SomebodyElse")))
		Expect(c.Get(ctx, client.ObjectKey{Name: "somebodys"}, node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeTrue())

		list := &v1alpha1.NodeMaintenanceList{}
		Expect(c.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(HaveLen(3))
		for i := range list.Items {
			nm := &list.Items[i]
			Expect(domain.PhaseOf(nm)).To(Equal("Pending"))
			Expect(nm.Finalizers).To(BeEmpty())
			if nm.Name != "pending" {
				Expect(nm.Annotations).To(Equal(map[string]string{"maintenance.nvidia.com/garbage-collector.ignore": "true"}))
				Expect(nm.Status.WaitForCompletion).To(BeEmpty())
			}
		}
		Expect(End(ctx, c, time.Now())).To(Succeed())
	},
		Entry("of this version", NodeOption(cordoned)),
		Entry("M3: of an earlier version", NodeOption(cordonedBefore)),
	)

	It("M7, P12: should not drop a finalizer as long as its node cannot be cleaned, nor hold up others", func(ctx SpecContext) {
		of := func(node string) func(*v1alpha1.NodeMaintenance) {
			return func(nm *v1alpha1.NodeMaintenance) { nm.Spec.NodeName = node }
		}
		denied := true
		c := newClient(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == "n1" && denied {
				return errors.New("denied")
			}
			return c.Patch(ctx, obj, patch, opts...)
		}}, Node("n1", cordoned), Node("n2", cordoned), maintenance("a", "Ready", of("n1")), maintenance("b", "Ready", of("n2")), maintenance("c", "Ready", of("gone")))
		Expect(End(ctx, c, time.Now())).To(MatchError(And(ContainSubstring("failed to write Node n1: denied"), ContainSubstring("failed to set default/a back: node n1 is not set back yet"))))
		node, nm := &corev1.Node{}, &v1alpha1.NodeMaintenance{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "n2"}, node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, nm)).To(Succeed())
		Expect(nm.Finalizers).NotTo(BeEmpty())
		for _, other := range []string{"b", "c"} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: other}, nm)).To(Succeed())
			Expect(nm.Finalizers).To(BeEmpty())
		}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, nm)).To(Succeed())
		denied = false
		Expect(End(ctx, c, time.Now())).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(nm), nm)).To(Succeed())
		Expect(nm.Finalizers).To(BeEmpty())
	})

	DescribeTable("M15: should leave the cordon where the node shows that machine-controller-manager empties it", func(ctx SpecContext, unschedulable bool, shows NodeOption) {
		c := newClient(interceptor.Funcs{}, Node("n", cordoned, shows))
		Expect(End(ctx, c, time.Now())).To(Succeed())
		node := &corev1.Node{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "n"}, node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(Equal(unschedulable))
		Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", "other")), "nobody takes it for ours later")
		Expect(node.Annotations).To(Equal(map[string]string{"other": "stays"}))
		Expect(node.Status.Conditions).NotTo(ContainElement(HaveField("Reason", "NodeMaintenance")))
	},
		Entry("a Node that is being deleted", true, NodeOption(func(n *corev1.Node) {
			n.DeletionTimestamp, n.Finalizers = new(metav1.NewTime(Start)), []string{"acme.com/audit"}
		})),
		Entry("one whose machine is terminated", true, Condition("Terminating", "True", "ScaleDown", "")),
		Entry("not one of which that is not true", false, Condition("Terminating", "False", "", "")),
		Entry("one that is selected for an update in place", true, selected),
		Entry("one that is drained for it", true, drained),
		Entry("one that is being updated", true, updated),
		Entry("not one that is a candidate for it", false, Condition("InPlaceUpdate", "True", "CandidateForUpdate", "")),
		Entry("not one that has been updated", false, Condition("InPlaceUpdate", "True", "UpdateSuccessful", "")),
	)

	It("P14: should be done with an object whose shoot puts back what was set back", func(ctx SpecContext) {
		writes := 0
		c := newClient(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			if err := c.SubResource(subResource).Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			nm := obj.(*v1alpha1.NodeMaintenance)
			domain.SetPhase(&nm.Status, "Draining", "", 0, Start)
			return c.SubResource(subResource).Update(ctx, nm)
		}}, maintenance("a", "Ready"))
		Expect(End(ctx, c, time.Now())).To(Succeed())
		Expect(writes).To(Equal(1))
		nm := &v1alpha1.NodeMaintenance{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"}, nm)).To(Succeed())
		Expect(nm.Finalizers).To(BeEmpty())
	})

	It("M17: should be done with a shoot that does not know the API", func(ctx SpecContext) {
		c := newClient(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.NodeMaintenanceList); ok {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "NodeMaintenance"}}
			}
			return c.List(ctx, list, opts...)
		}}, Node("n", cordoned))
		Expect(End(ctx, c, time.Now())).To(Succeed())
		node := &corev1.Node{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "n"}, node)).To(Succeed())
		Expect(domain.IsMarked(node)).To(BeTrue(), "by a condition of somebody else")
		Expect(node.Spec.Unschedulable).To(BeFalse())
	})
})

var _ = DescribeTable("M15, M17: what is known of the machine of a node", func(ctx SpecContext, want domain.Machine, node NodeOption, objects ...client.Object) {
	c := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).
		WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} }).Build()
	machine, err := MachineOf(ctx, shoot.NewPools(c), "n", facts.IsUpdatedInPlace(Node("n", node)))
	Expect(err).NotTo(HaveOccurred())
	Expect(machine).To(Equal(want), fmt.Sprint(objects))
},
	Entry("none", domain.Machine{Missing: true}, ready, pool(1)),
	Entry("one of a pool that is at rest", domain.Machine{}, ready, pool(1), set("1", 1), Machine("n", Of(set("1", 1)))),
	Entry("one without a pool", domain.Machine{}, ready, Machine("n")),
	Entry("one that is being deleted", domain.Machine{Terminating: true}, ready, pool(1), set("1", 1), Machine("n", Of(set("1", 1)), Deleted(Start))),
	Entry("hibernation", domain.Machine{Hibernating: true}, ready, pool(0), set("1", 0), Machine("n", Of(set("1", 0)))),
	Entry("a rolling update, the old machine", domain.Machine{Rolling: true}, ready, pool(1), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("a rolling update, the new machine", domain.Machine{Rolling: true}, ready, pool(1), set("1", 1), set("2", 1), Machine("n", Of(set("2", 1)))),
	Entry("one that is over", domain.Machine{}, ready, pool(1), set("1", 0), set("2", 1), Machine("n", Of(set("2", 1)))),
	Entry("an update in place of another node", domain.Machine{}, ready, pool(1, InPlace), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("an update in place", domain.Machine{UpdatedInPlace: true}, selected, pool(1, InPlace), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("one that waits for the node agent", domain.Machine{UpdatedInPlace: true}, drained, pool(1, InPlace), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("one that the node agent carries out", domain.Machine{UpdatedInPlace: true}, updated, pool(1, InPlace), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("one that has failed", domain.Machine{}, Condition("InPlaceUpdate", "True", "UpdateFailed", ""), pool(1, InPlace), set("1", 1), set("2", 1), Machine("n", Of(set("1", 1)))),
	Entry("one that the shoot has made up", domain.Machine{}, selected, pool(1, InPlace), set("1", 1), Machine("n", Of(set("1", 1)))),
	Entry("one in a phase that is not known", domain.Machine{PhaseNotKnown: true}, ready, pool(1), set("1", 1), Machine("n", Of(set("1", 1)), Phase("Maintenance", Start))),
	Entry("a host that is powered off", domain.Machine{PowerCycled: true}, ready, pool(1), set("1", 1), cycled("PoweringOff")),
	Entry("a host that is powered on", domain.Machine{PowerCycled: true}, ready, pool(1), set("1", 1), cycled("Starting")),
	Entry("X8: a power cycle that waits", domain.Machine{}, ready, pool(1), set("1", 1), cycled("Waiting")),
	Entry("X8: a power cycle that nobody has looked at", domain.Machine{}, ready, pool(1), set("1", 1), cycled("")),
	Entry("a power cycle that failed", domain.Machine{}, ready, pool(1), set("1", 1), cycled("Failed")),
	Entry("a power cycle that is over", domain.Machine{}, ready, pool(1), set("1", 1), Machine("n", Of(set("1", 1)), Annotation(prefix+"power-cycle-phase", "Succeeded"))),
)

var _ = DescribeTable("M15: should look at a machine that changes", func(want bool, after ...MachineOption) {
	e := event.UpdateEvent{ObjectOld: Machine("n"), ObjectNew: Machine("n", after...)}
	Expect(MachineChanged().Update(e)).To(Equal(want))
},
	Entry("not for a phase like another", false, Phase("Unknown", Start)),
	Entry("into a phase that is not known", true, Phase("Maintenance", Start)),
	Entry("and is deleted", true, Deleted(Start)),
)

var (
	ready    = NodeOption(func(*corev1.Node) {})
	selected = Condition("InPlaceUpdate", "True", "SelectedForUpdate", "")
	drained  = Condition("InPlaceUpdate", "True", "DrainSuccessful", "")
	updated  = Condition("InPlaceUpdate", "True", "ReadyForUpdate", "")
)

const prefix = "machine-preservation.extensions.gardener.cloud/"

// cycled is a machine that is kept for a power cycle of its host.
func cycled(phase string) *machinev1alpha1.Machine {
	return Machine("n", Of(set("1", 1)), Annotation(prefix+"remediation", "2026-03-01T13:00:00Z"), Annotation(prefix+"power-cycle-phase", phase))
}

func pool(replicas int32, opts ...DeploymentOption) *machinev1alpha1.MachineDeployment {
	return Deployment("pool", append(opts, Replicas(replicas))...)
}

func set(revision string, replicas int32) *machinev1alpha1.MachineSet {
	return Set("pool-"+revision, Deployment("pool"), Revision(revision), SetReplicas(replicas, replicas))
}
